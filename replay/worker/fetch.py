"""Fetches single records by topic, partition and offset.

A gap between two requested offsets of a partition is read if it has at most `fetch_gap_bytes`, estimated by
the mean size of the records read; a larger one is skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from operator import itemgetter
from typing import Final, NamedTuple

from acker.config.limits import ReplayLimits
from acker.errors import (
    Damaged,
    Disagreement,
    OutOfRange,
    TopicError,
    Unreachable,
    UnreadableKind,
    unreadable_kind,
)
from acker.hot_paths import tuple_maker
from acker.kafka.port import (
    NO_EPOCH,
    RECORD_OVERHEAD_BYTES,
    Bound,
    DamagedRun,
    Log,
    Picker,
    ReadTo,
    Record,
    TopicPartition,
    record_bytes,
)

_POLL_MS: Final = 100
_PICK_RECORDS: Final = 5_000
_PICK_FIRST: Final = 500
"""In the first poll at most so many records are read, since their mean size is unknown."""

_TRIES: Final = 3

_DAMAGED_MAX: Final = 100
"""So many damaged runs are remembered: to find where the log can be read behind one takes a second."""

_PLACE: Callable[[Record], tuple[str, int, int]] = itemgetter(0, 1, 2)


def took_the_place(record: Record, leader_epoch: int) -> bool:
    """Return whether a record took the place of one that was there in an epoch, in a log that was cut.

    A record has the epoch of the leader that wrote it. Where the lost one was there in epoch 3, it has 3 or
    less, and what is written after an unclean election has 4 or more. Without epochs nobody knows.
    """
    return leader_epoch != NO_EPOCH and record.leader_epoch > leader_epoch


class RecordPlace(NamedTuple):
    """One record of a log."""

    topic: str
    partition: int
    offset: int

    @property
    def log(self) -> TopicPartition:
        """Return the partition that the record is in."""
        return TopicPartition(self.topic, self.partition)


record_place = tuple_maker(RecordPlace)


def lost_in_a_cut(log: Log, emitted: Mapping[RecordPlace, int]) -> set[RecordPlace]:
    """Return which of some places without a record had one perhaps, before their log was cut.

    `emitted` has the leader's epoch in which each was emitted. A marker of a transaction may have taken the
    place of a record that was cut off. While the leader is the one of then, nothing was cut. Else the leader
    says how far its log is that of then; where it cannot say so, the place counts as lost: a dead letter too
    many is better than a loss that nobody names.

    Raises `Unreachable`: the broker does not answer.
    """
    epochs = {place: epoch for place, epoch in emitted.items() if epoch != NO_EPOCH}
    if not epochs:
        return set()
    leaders = log.bounds(Bound.END, sorted({place.log for place in epochs})).epochs
    doubtful: dict[int, list[RecordPlace]] = defaultdict(list)
    for place, epoch in sorted(epochs.items()):
        if leaders.get(place.log, epoch) != epoch:
            doubtful[epoch].append(place)

    lost: set[RecordPlace] = set()
    for epoch, places in doubtful.items():
        # one question for each partition, about its highest offset: places ascend, so that one stays
        read = {place.log: ReadTo(place.offset + 1, epoch) for place in places}
        intact: Mapping[TopicPartition, int] = {}
        with suppress(Disagreement):  # the leader knows no such epoch: then nothing counts as intact
            intact = log.intact_to(read)
        lost.update(place for place in places if place.offset >= intact.get(place.log, 0))
    return lost


class Absence(Enum):
    """Why there is no record at an offset.

    ``GONE``
        The record is no longer in the log (retention, compaction), or the log ends before it (truncation).
    ``NEVER``
        There never was one: the offset is that of a transaction's marker, or of an aborted record. In a
        compacted topic compaction may have removed it, so there it is GONE. A topic that was compacted only
        in the past gives NEVER; a caller that has proof of a record must correct that
        (`replay.records.due.was_a_record`).
    ``DAMAGED``
        Its batch cannot be read now. It may be some day, by another replica.
    ``OVERSIZED``, ``NOT_UNPACKED``
        It cannot be read, since it was written so: `acker.errors.UnreadableKind`.
    """

    GONE = "gone"
    NEVER = "never"
    DAMAGED = "damaged"
    OVERSIZED = "oversized"
    NOT_UNPACKED = "not_unpacked"

    @property
    def unreadable(self) -> UnreadableKind | None:
        """What is the matter with a record that is there and cannot be read; None: there is none."""
        return UnreadableKind[self.name] if self.name in UnreadableKind.__members__ else None


def absence_in(run: DamagedRun) -> Absence:
    """Return why a record among offsets that cannot be read is absent."""
    return Absence[unreadable_kind(run.why).name]


def cannot_be_read(record: Record | Absence | None) -> bool:
    """Return whether a record is there, and nobody can read it."""
    return isinstance(record, Absence) and record.unreadable is not None


Answers = Mapping[RecordPlace, Record | Absence]

_Offsets = Mapping[TopicPartition, Sequence[int]]


class Fetcher:
    """Fetches records with one `Picker` that stays open; counts all that it read, gaps included."""

    def __init__(self, log: Log, limits: ReplayLimits) -> None:
        self._log = log
        self._limits = limits
        self._picker: Picker | None = None
        self.read_records = 0
        self.read_bytes = 0
        self.damaged: Sequence[DamagedRun] = ()
        """What the last fetch passed over."""
        self._lately_damaged: deque[DamagedRun] = deque(maxlen=_DAMAGED_MAX)

    def fetch(self, places: Iterable[RecordPlace], *, why: bool = True) -> Answers:
        """Read committed records; return each, or why there is none.

        What does not fit into `fetch_bytes_max`, or comes behind `fetch_passed_bytes_max` of others, is left
        out, but at least one of `places` is in the answer.
        With `why` NEVER is distinguished from GONE; for this the topic's settings are read, which needs a
        right of its own.

        Raises `Unreachable`: the broker sent nothing for `fetch_patience_ms`, or the log was shortened during
        each of several tries.
        """
        targets = list(places)
        offsets = _by_partition(targets)
        for _ in range(_TRIES):
            try:
                return self._fetch(targets, offsets, why=why) if targets else {}
            except OutOfRange:
                continue  # retention passed a requested offset after the log starts were fetched: try again
            finally:
                if self._picker is not None:
                    self._picker.assign({})
        raise Unreachable(f"{targets[0].topic} loses records faster than they are fetched")

    def close(self) -> None:
        if self._picker is not None:
            self._picker.close()
            self._picker = None

    def _fetch(self, targets: Sequence[RecordPlace], offsets: _Offsets, *, why: bool) -> Answers:
        if self._picker is None:
            self._picker = self._log.picker()
        in_log = self._in_log(offsets)
        limits = self._limits
        run = _Run(self._picker, in_log, limits.fetch_gap_bytes, self._lately_damaged)
        self.damaged = run.damaged
        patience_ms = limits.fetch_patience_ms
        while run.unread and (
            run.kept_bytes < limits.fetch_bytes_max and run.passed_bytes < limits.fetch_passed_bytes_max
        ):
            if run.read():
                patience_ms = limits.fetch_patience_ms
                continue
            patience_ms -= _POLL_MS
            if patience_ms < 0:
                raise Unreachable(
                    f"no record of {', '.join(sorted({name.topic for name in run.unread}))} was sent within"
                    f" {limits.fetch_patience_ms} ms; check that the broker leads its partitions"
                )
        self.read_records += run.read_records
        self.read_bytes += run.read_bytes
        self._lately_damaged.extend(run.damaged)
        if len(run.records) == sum(map(len, offsets.values())):
            return run.records
        unread = {place for place in _places(run.unread) if place not in run.records}
        answers: dict[RecordPlace, Record | Absence] = {
            place: _absence_at(place, run.damaged) for place in targets if place not in unread
        }
        answers.update(run.records)
        if why:
            holes = [place for place in _places(in_log) if answers.get(place) is Absence.GONE]
            answers.update(dict.fromkeys(self._never(holes), Absence.NEVER))
        return answers

    def _never(self, holes: Collection[RecordPlace]) -> list[RecordPlace]:
        """Return which of some places without a record never had one: compaction removed none there."""
        infos = self._log.topics({hole.topic for hole in holes}, settings=True) if holes else {}
        not_compacted: set[str] = set()
        for topic, info in infos.items():
            if "compact" not in info.settings.get("cleanup.policy", ""):
                not_compacted.add(topic)
        return [hole for hole in holes if hole.topic in not_compacted]

    def _in_log(self, offsets: _Offsets) -> dict[TopicPartition, Sequence[int]]:
        """Return which offsets lie between start and stable end of their partitions; none: it is left out.

        Raises `TopicError`: a whole topic does not exist.
        """
        partitions: Collection[TopicPartition] = offsets.keys()
        try:
            starts, ends = self._log.starts(partitions), self._log.stable_ends(partitions)
        except TopicError:  # the partition of a root may never have existed
            partitions = self._without_missing_partitions(partitions)
            starts, ends = self._log.starts(partitions), self._log.stable_ends(partitions)
        in_log: dict[TopicPartition, Sequence[int]] = {}
        for partition in partitions:
            sought = offsets[partition]
            begin = bisect_left(sought, starts[partition])
            end = bisect_left(sought, ends[partition])
            if begin < end:
                in_log[partition] = sought[begin:end]
        return in_log

    def _without_missing_partitions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Leave out what its topic does not have; partitions of a missing topic stay, for the error."""
        partitions = list(partitions)
        infos = self._log.topics({partition.topic for partition in partitions})
        return [
            place
            for place in partitions
            if place.topic not in infos or place.partition < infos[place.topic].partitions
        ]


def _by_partition(places: Iterable[RecordPlace]) -> _Offsets:
    offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in places:
        offsets[topic, partition].append(offset)
    return {TopicPartition(*partition): sorted(set(sought)) for partition, sought in sorted(offsets.items())}


def _places(offsets: _Offsets) -> Iterator[RecordPlace]:
    for partition, sought in offsets.items():
        for offset in sought:
            yield RecordPlace(*partition, offset)


def _absence_at(place: RecordPlace, unreadable: Sequence[DamagedRun]) -> Absence:
    for run in unreadable:
        if place.log == (run.topic, run.partition) and run.start <= place.offset < run.end:
            return absence_in(run)
    return Absence.GONE


class _Run:
    """One fetch in progress: the offsets still to be read of each partition, and the records found."""

    def __init__(
        self, picker: Picker, sought: _Offsets, gap_bytes: int, lately_damaged: Iterable[DamagedRun]
    ) -> None:
        """Begin with offsets sought that are in the log; damage met lately is not read to get behind it."""
        self._damage_ends: dict[TopicPartition, list[int]] = {}
        for run in lately_damaged:
            self._damage_ends.setdefault(TopicPartition(run.topic, run.partition), []).append(run.end)
        self.unread = dict(sought)
        self.records: dict[RecordPlace, Record] = {}
        self.damaged: list[DamagedRun] = []
        self.kept_bytes = 0
        self.passed_bytes = 0  # with `gap_bytes` for each skip
        self.read_bytes = 0
        self.read_records = 0
        self._offsets = {name: frozenset(offsets) for name, offsets in sought.items()}
        self._picker = picker
        self._gap_bytes = gap_bytes
        self._positions = {name: offsets[0] for name, offsets in sought.items()}
        picker.assign(self._positions)

    def read(self) -> bool:
        """Read once, or pass over what is damaged; False when nothing moved."""
        try:
            picked = self._picker.pick(_POLL_MS, self._offsets, self._records_to_pick())
        except Damaged as error:
            self.damaged.append(self._picker.pass_over(TopicPartition(error.topic, error.partition)))
            self._settle()
            return True
        places = map(record_place, map(_PLACE, picked.records))
        self.records.update(zip(places, picked.records, strict=True))
        picked_bytes = sum(map(record_bytes, picked.records))
        passed_bytes = picked.passed_bytes + picked.passed * RECORD_OVERHEAD_BYTES
        self.kept_bytes += picked_bytes
        self.passed_bytes += passed_bytes
        self.read_records += picked.passed + len(picked.records)
        self.read_bytes += picked_bytes + passed_bytes
        return self._settle()

    def _records_to_pick(self) -> int:
        """Return how many records to read at once: up to the last one sought that is near, gaps included."""
        records, records_max = 0, _PICK_RECORDS if self.read_records else _PICK_FIRST
        for name, sought in self.unread.items():
            position = self._positions[name]
            near = bisect_left(sought, position + _PICK_RECORDS)  # how many of them are near
            records += sought[near - 1] - position + 1 if near else _PICK_RECORDS
        return min(records, records_max)

    def _settle(self) -> bool:
        """Remove what the picker has passed; let it skip large gaps and leave finished partitions."""
        mean_bytes = self.read_bytes / max(1, self.read_records)
        has_moved = must_assign = False
        for name in list(self.unread):
            position = self._picker.position(name)
            has_moved |= position != self._positions[name]
            self._positions[name] = position
            offsets = self.unread[name] = self.unread[name][bisect_left(self.unread[name], position) :]
            if not offsets:
                del self.unread[name], self._positions[name]
                must_assign = True
            elif (offsets[0] - position) * mean_bytes > self._gap_bytes:
                self._positions[name] = offsets[0]
                self.passed_bytes += self._gap_bytes
                must_assign = True
            elif any(position < end <= offsets[0] for end in self._damage_ends.get(name, ())):
                self._positions[name] = offsets[0]
                must_assign = True
        if must_assign:
            self._picker.assign(self._positions)
        return has_moved
