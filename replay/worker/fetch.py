"""Fetches single records by topic, partition and offset.

A gap between two requested offsets of a partition is read if it has at most
`fetch_gap_bytes`, estimated by the mean size of the records read; a larger one
is skipped.
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
"""So many records are read at once at most, gaps included."""

_PICK_RECORDS_FIRST: Final = 500
"""In the first poll at most so many records are read, since their mean size is unknown."""

_TRIES: Final = 3
"""So often a fetch begins anew whose records retention removes meanwhile."""

_DAMAGED_MAX: Final = 100
"""So many damaged runs are remembered: to find where the log can be read behind one takes a second."""

_PLACE: Callable[[Record], tuple[str, int, int]] = itemgetter(0, 1, 2)
"""Returns topic, partition and offset of a record."""


def took_the_place(record: Record, leader_epoch: int) -> bool:
    """Return whether a record took the place of one that was there in an epoch, in a log that was cut.

    A record has the epoch of the leader that wrote it. Where the lost one was
    there in epoch 3, it has 3 or less, and what is written after an unclean
    election has 4 or more. Without epochs nobody knows.
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


def find_cut_off(log: Log, epoch_by_place: Mapping[RecordPlace, int]) -> set[RecordPlace]:
    """Return which of some places without a record had one perhaps, before their log was cut.

    `epoch_by_place` has the leader's epoch in which each record was emitted. A
    marker of a transaction may have taken the place of a record that was cut
    off. While the leader is the one of then, nothing was cut. Else the leader
    says how far its log is that of then; where it cannot say so, the record
    counts as cut off: a dead letter too many is better than a loss that nobody
    names.

    For example, a record was emitted at offset 90 in epoch 3. The leader has
    epoch 4 now, and says that epoch 3 ends at 80 in its log. What was at 90
    was cut off, and what is there now is another leader's.

    Raises `Unreachable`: the broker does not answer.
    """
    emitted_epochs = {place: epoch for place, epoch in epoch_by_place.items() if epoch != NO_EPOCH}
    if not emitted_epochs:
        return set()
    partitions = sorted({place.log for place in emitted_epochs})
    leader_epochs = log.bounds(Bound.END, partitions).epochs
    # the broker is asked about one epoch at a time
    doubtful_by_epoch: dict[int, list[RecordPlace]] = defaultdict(list)
    for place, epoch in sorted(emitted_epochs.items()):
        if leader_epochs.get(place.log, epoch) != epoch:
            doubtful_by_epoch[epoch].append(place)

    cut_off: set[RecordPlace] = set()
    for epoch, places in doubtful_by_epoch.items():
        # one question for each partition, about its highest offset: places
        # ascend, so that one stays
        read_to = {place.log: ReadTo(place.offset + 1, epoch) for place in places}
        intact_to: Mapping[TopicPartition, int] = {}
        with suppress(Disagreement):  # the leader knows no such epoch: then nothing counts as intact
            intact_to = log.intact_to(read_to)
        cut_off.update(place for place in places if place.offset >= intact_to.get(place.log, 0))
    return cut_off


class Absence(Enum):
    """Why there is no record at an offset.

    ``GONE``
        The record is no longer in the log (retention, compaction), or the log
        ends before it (truncation).
    ``NEVER``
        There never was one: the offset is that of a transaction's marker, or
        of an aborted record. In a compacted topic compaction may have removed
        it, so there it is GONE. A topic that was compacted only in the past
        gives NEVER; a caller that has proof of a record must correct that
        (`replay.records.due.was_a_record`).
    ``DAMAGED``
        Its batch cannot be read now. It may be some day, by another replica.
    ``OVERSIZED``, ``NOT_UNPACKED``
        It cannot be read, since it was written so:
        `acker.errors.UnreadableKind`.
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
    """Fetches records with one `Picker`, Kafka's reader of single offsets, which stays open.

    Attributes:
        read_records, read_bytes: all that was read since the start, gaps
            included.
        damaged: the damaged runs that the last fetch passed over.
    """

    def __init__(self, log: Log, limits: ReplayLimits) -> None:
        """Prepare; the first fetch opens the picker."""
        self._log = log
        self._limits = limits
        self._picker: Picker | None = None
        self.read_records = 0
        self.read_bytes = 0
        self.damaged: Sequence[DamagedRun] = ()
        # the damaged runs of the latest fetches, which the next one skips
        self._lately_damaged: deque[DamagedRun] = deque(maxlen=_DAMAGED_MAX)

    def fetch(self, places: Iterable[RecordPlace], *, why: bool = True) -> Answers:
        """Read committed records; return each, or why there is none.

        What does not fit into `fetch_bytes_max`, or comes behind
        `fetch_passed_bytes_max` of others, is left out, but at least one of
        `places` is in the answer. The attribute `damaged` is then what this
        fetch passed over.

        With `why` NEVER is distinguished from GONE; for this the topic's
        settings are read, which needs a right of its own.

        Raises `Unreachable`: the broker sent nothing for `fetch_patience_ms`,
        or the log was shortened during each of several tries.
        """
        targets = list(places)
        if not targets:
            return {}
        offsets = _by_partition(targets)
        for _ in range(_TRIES):
            try:
                return self._fetch(targets, offsets, why=why)
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
        """Do as `fetch` once; `offsets` are those of the targets, by partition.

        Raises `OutOfRange`: the log was shortened meanwhile.
        """
        if self._picker is None:
            self._picker = self._log.picker()
        in_log = self._in_log(offsets)
        run = _FetchRun(self._picker, in_log, self._limits.fetch_gap_bytes, self._lately_damaged)
        self.damaged = run.damaged
        self._read_to_end(run)
        self.read_records += run.read_records
        self.read_bytes += run.read_bytes
        self._lately_damaged.extend(run.damaged)
        if len(run.records) == sum(map(len, offsets.values())):  # the usual case: each has its record
            return run.records
        # the others are absent, except those that the limits did not let this
        # fetch read
        unread = {place for place in _places(run.unread) if place not in run.records}
        answers: dict[RecordPlace, Record | Absence] = {}
        for place in targets:
            if place not in unread:
                answers[place] = _absence_at(place, run.damaged)
        answers.update(run.records)
        if why:
            holes = [place for place in _places(in_log) if answers.get(place) is Absence.GONE]
            answers.update(dict.fromkeys(self._never(holes), Absence.NEVER))
        return answers

    def _read_to_end(self, run: _FetchRun) -> None:
        """Read until nothing is unread, or a limit is reached.

        Raises `Unreachable`: the broker sent nothing for `fetch_patience_ms`.
        """
        limits = self._limits
        patience_ms = limits.fetch_patience_ms  # what is left of it; each poll without progress takes some
        while run.unread and (
            run.kept_bytes < limits.fetch_bytes_max and run.passed_bytes < limits.fetch_passed_bytes_max
        ):
            if run.read():
                patience_ms = limits.fetch_patience_ms
                continue
            patience_ms -= _POLL_MS
            if patience_ms < 0:
                topics = sorted({partition.topic for partition in run.unread})
                raise Unreachable(
                    f"no record of {', '.join(topics)} was sent within"
                    f" {limits.fetch_patience_ms} ms; check that the broker leads its partitions"
                )

    def _never(self, holes: Collection[RecordPlace]) -> list[RecordPlace]:
        """Return which of some places without a record never had one: compaction removed none there."""
        if not holes:
            return []
        infos = self._log.topics({hole.topic for hole in holes}, settings=True)
        not_compacted: set[str] = set()
        for topic, info in infos.items():
            if "compact" not in info.settings.get("cleanup.policy", ""):
                not_compacted.add(topic)
        return [hole for hole in holes if hole.topic in not_compacted]

    def _in_log(self, offsets: _Offsets) -> dict[TopicPartition, Sequence[int]]:
        """Return which offsets lie between start and stable end of their partitions, where any does.

        Raises `TopicError`: a whole topic does not exist.
        """
        partitions: Collection[TopicPartition] = offsets.keys()
        try:
            starts = self._log.starts(partitions)
            ends = self._log.stable_ends(partitions)
        except TopicError:  # the partition of a root may never have existed
            partitions = self._without_missing_partitions(partitions)
            starts = self._log.starts(partitions)
            ends = self._log.stable_ends(partitions)
        in_log: dict[TopicPartition, Sequence[int]] = {}
        for partition in partitions:
            partition_offsets = offsets[partition]
            # offsets ascend, so those from the start to the end are a slice
            begin = bisect_left(partition_offsets, starts[partition])
            end = bisect_left(partition_offsets, ends[partition])
            if begin < end:
                in_log[partition] = partition_offsets[begin:end]
        return in_log

    def _without_missing_partitions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Leave out partitions that their topic does not have.

        Those of a topic that is missing stay: the broker's error tells about
        it.
        """
        partitions = list(partitions)
        infos = self._log.topics({partition.topic for partition in partitions})
        remaining: list[TopicPartition] = []
        for place in partitions:
            info = infos.get(place.topic)
            if info is None or place.partition < info.partitions:
                remaining.append(place)
        return remaining


def _by_partition(places: Iterable[RecordPlace]) -> _Offsets:
    """Return the offsets of places by partition, ascending and without duplicates."""
    offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, number, offset in places:
        offsets[topic, number].append(offset)
    ascending: dict[TopicPartition, Sequence[int]] = {}
    for partition, partition_offsets in sorted(offsets.items()):
        ascending[TopicPartition(*partition)] = sorted(set(partition_offsets))
    return ascending


def _places(offsets: _Offsets) -> Iterator[RecordPlace]:
    """Yield the place of each offset, partition by partition."""
    for partition, partition_offsets in offsets.items():
        for offset in partition_offsets:
            yield RecordPlace(*partition, offset)


def _absence_at(place: RecordPlace, damaged: Sequence[DamagedRun]) -> Absence:
    """Return why there is no record at a place: it lies in a damaged run, or it is gone."""
    for run in damaged:
        if place.log == (run.topic, run.partition) and run.start <= place.offset < run.end:
            return absence_in(run)
    return Absence.GONE


class _FetchRun:
    """One fetch in progress: the offsets still to be read of each partition, and the records picked.

    Attributes:
        unread: by partition, the offsets that were not reached yet, ascending;
            never empty.
        records: those that were picked, by their places.
        damaged: the runs that were passed over.
        kept_bytes: of `records`.
        passed_bytes: of what was read between them, with `gap_bytes` for each
            gap that was skipped.
        read_bytes, read_records: all that was read.
    """

    def __init__(
        self, picker: Picker, offsets: _Offsets, gap_bytes: int, lately_damaged: Iterable[DamagedRun]
    ) -> None:
        """Begin with offsets that are in the log, by partition, ascending and none of them empty.

        Larger gaps than `gap_bytes` are skipped. So is what was damaged
        lately: to read into it, to find out where it ends, takes a second.
        """
        # by partition, where the damaged runs of former fetches end
        self._damage_ends: dict[TopicPartition, list[int]] = {}
        for run in lately_damaged:
            self._damage_ends.setdefault(TopicPartition(run.topic, run.partition), []).append(run.end)
        self.unread = dict(offsets)
        self.records: dict[RecordPlace, Record] = {}
        self.damaged: list[DamagedRun] = []
        self.kept_bytes = 0
        self.passed_bytes = 0
        self.read_bytes = 0
        self.read_records = 0
        self._picker = picker
        self._gap_bytes = gap_bytes
        self._offsets_to_pick: dict[TopicPartition, frozenset[int]] = {}
        # by partition, the offset that the picker reads next
        self._positions: dict[TopicPartition, int] = {}
        for partition, partition_offsets in offsets.items():
            self._offsets_to_pick[partition] = frozenset(partition_offsets)
            self._positions[partition] = partition_offsets[0]
        picker.assign(self._positions)

    def read(self) -> bool:
        """Read once, or pass over what is damaged; return whether the picker has moved on."""
        try:
            picked = self._picker.pick(_POLL_MS, self._offsets_to_pick, self._records_to_pick())
        except Damaged as error:
            self.damaged.append(self._picker.pass_over(TopicPartition(error.topic, error.partition)))
            self._follow_picker()
            return True
        places = map(record_place, map(_PLACE, picked.records))
        self.records.update(zip(places, picked.records, strict=True))
        picked_bytes = sum(map(record_bytes, picked.records))
        passed_bytes = picked.passed_bytes + picked.passed * RECORD_OVERHEAD_BYTES
        self.kept_bytes += picked_bytes
        self.passed_bytes += passed_bytes
        self.read_records += picked.passed + len(picked.records)
        self.read_bytes += picked_bytes + passed_bytes
        return self._follow_picker()

    def _records_to_pick(self) -> int:
        """Return how many records to read at once, gaps included.

        In each partition that is up to the last offset which is near: with the
        picker at 100, and 110, 300 and 9,000 still unread, the 201 records
        from 100 to 300.
        """
        record_count = 0
        for partition, offsets in self.unread.items():
            position = self._positions[partition]
            near_count = bisect_left(offsets, position + _PICK_RECORDS)
            if near_count:
                record_count += offsets[near_count - 1] - position + 1
            else:
                record_count += _PICK_RECORDS
        return min(record_count, _PICK_RECORDS if self.read_records else _PICK_RECORDS_FIRST)

    def _follow_picker(self) -> bool:
        """Remove what the picker has passed; let it skip large gaps and damage, and leave what is finished.

        Return whether it has moved since the last call.
        """
        mean_bytes = self.read_bytes / max(1, self.read_records)
        has_moved = must_assign = False
        for partition in list(self.unread):
            position = self._picker.position(partition)
            has_moved |= position != self._positions[partition]
            self._positions[partition] = position
            passed_count = bisect_left(self.unread[partition], position)
            offsets = self.unread[partition][passed_count:]
            self.unread[partition] = offsets
            if not offsets:
                del self.unread[partition], self._positions[partition]
                must_assign = True
                continue
            next_offset = offsets[0]
            gap_bytes = (next_offset - position) * mean_bytes  # an estimate
            damage_ends = self._damage_ends.get(partition, ())
            if gap_bytes > self._gap_bytes:
                self._positions[partition] = next_offset
                self.passed_bytes += self._gap_bytes
                must_assign = True
            elif any(position < end <= next_offset for end in damage_ends):
                self._positions[partition] = next_offset
                must_assign = True
        if must_assign:
            self._picker.assign(self._positions)
        return has_moved
