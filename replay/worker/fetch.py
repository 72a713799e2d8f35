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
from replay.policy.disposition import DeadReason
from replay.records.headers import RecordPlace

_POLL_MS: Final = 100
_PICK_RECORDS: Final = 5_000
"""So many records are read at once at most, gaps included."""

_PICK_RECORDS_FIRST: Final = 500
"""Until something was read at most so many records are read at once: their mean size is unknown."""

_TRIES: Final = 3
"""So often a fetch is tried whose records retention removes meanwhile."""

_DAMAGED_MAX: Final = 100
"""So many damaged runs are remembered: to find where the log can be read behind one takes a second."""

_topic_partition_offset: Callable[[Record], tuple[str, int, int]] = itemgetter(0, 1, 2)
"""Returns these three of a record."""


def is_of_later_leader(record: Record, emitted_epoch: int) -> bool:
    """Return whether a record took the place of one that was there in an epoch, in a log that was cut.

    A record has the epoch of the leader that wrote it. Where the lost one was
    there in epoch 3, it has 3 or less, and what is written after an unclean
    election has 4 or more. If either epoch is `NO_EPOCH`, nothing shows it, and
    False is returned.
    """
    return emitted_epoch != NO_EPOCH and record.leader_epoch > emitted_epoch


_record_place = tuple_maker(RecordPlace)


def find_cut_off(log: Log, emitted_epoch_by_place: Mapping[RecordPlace, int]) -> set[RecordPlace]:
    """Return which of some places without a record may have had one, before their log was cut.

    `emitted_epoch_by_place` has the leader's epoch in which the record of each place
    was emitted. A log is cut where a leader is elected that lacks its end (an
    unclean election); then the marker of a later transaction may take the place
    of a record.

    1. While the epoch is still that one, no leader was elected, and nothing was
       cut.
    2. Else the leader says up to which offset its log is the log of that epoch.
    3. What lies behind that offset counts as cut off. So does everything where
       the leader cannot say so: a dead letter too many is better than a loss
       that nobody names.

    For example, a record was emitted at offset 90 in epoch 3. The leader has
    epoch 4 now, and says that epoch 3 ends at 80 in its log. What was at 90
    was cut off, and what is there now is another leader's.

    Raises `Unreachable`: the broker does not answer.
    """
    # without an epoch the log cannot be compared
    epoch_by_comparable_place = {
        place: epoch for place, epoch in emitted_epoch_by_place.items() if epoch != NO_EPOCH
    }
    if not epoch_by_comparable_place:
        return set()
    # 1. which leaders are others
    partitions = sorted({place.topic_partition for place in epoch_by_comparable_place})
    leader_epochs = log.bounds(Bound.END, partitions).epochs
    doubtful_places_by_epoch: dict[int, list[RecordPlace]] = defaultdict(list)
    for place, epoch in sorted(epoch_by_comparable_place.items()):
        # a partition without a leader now counts as unchanged
        if leader_epochs.get(place.topic_partition, epoch) != epoch:
            doubtful_places_by_epoch[epoch].append(place)

    cut_off: set[RecordPlace] = set()
    # 2. ask the leaders, about one epoch at a time
    for epoch, places in doubtful_places_by_epoch.items():
        # one question for each partition, about its highest offset: places
        # ascend, so a later one replaces an earlier one in the dict
        question_by_partition: dict[TopicPartition, ReadTo] = {}
        for place in places:
            question_by_partition[place.topic_partition] = ReadTo(place.offset + 1, epoch)
        intact_to: Mapping[TopicPartition, int] = {}
        with suppress(Disagreement):  # the leader knows no such epoch: then nothing counts as intact
            intact_to = log.intact_to(question_by_partition)
        # 3. what is not intact; a partition without an answer has no intact
        # offset, so its places count as cut off
        cut_off.update(place for place in places if not _is_below_end(place, intact_to))
    return cut_off


def _is_below_end(place: RecordPlace, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether a place is below the end of its partition; without an end, no place is."""
    return place.offset < ends.get(place.topic_partition, 0)


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

    @property
    def dead_reason(self) -> DeadReason | None:
        """Why a root dies whose record is absent; None: there never was one that could die."""
        return None if self is Absence.NEVER else DeadReason[self.name]


def absence_by_damage(damaged_run: DamagedRun) -> Absence:
    """Return why a record among offsets that cannot be read is absent."""
    return Absence[unreadable_kind(damaged_run.why).name]


def cannot_be_read(record: Record | Absence | None) -> bool:
    """Return whether a record is there, and nobody can read it."""
    return isinstance(record, Absence) and record.unreadable is not None


Answers = Mapping[RecordPlace, Record | Absence]
"""What a fetch found: at each place the record, or why there is none."""

_Offsets = Mapping[TopicPartition, Sequence[int]]
"""Offsets by partition, ascending and without duplicates; no partition has none."""


class Fetched(NamedTuple):
    """What one fetch found, and the damaged runs that it passed over."""

    answers: Answers
    damaged_runs: Sequence[DamagedRun]


class Fetcher:
    """Fetches records with one `Picker`, Kafka's reader of single offsets, which stays open.

    Attributes:
        read_records, read_bytes: how many records and bytes were read since the
            start, gaps included.
    """

    def __init__(self, log: Log, limits: ReplayLimits) -> None:
        """Prepare; the first fetch opens the picker."""
        self._log = log
        self._limits = limits
        self._picker: Picker | None = None
        self.read_records = 0
        self.read_bytes = 0
        # the damaged runs of the latest fetches, which the next one skips
        self._former_damaged_runs: deque[DamagedRun] = deque(maxlen=_DAMAGED_MAX)

    def fetch(self, places: Iterable[RecordPlace], *, tells_never: bool = True) -> Answers:
        """Read committed records; do as `fetch_past_damage`, and do not return what is damaged."""
        return self.fetch_past_damage(places, tells_never=tells_never).answers

    def fetch_past_damage(self, places: Iterable[RecordPlace], *, tells_never: bool = True) -> Fetched:
        """Read committed records; return each, or why there is none, and what was passed over.

        What does not fit into `fetch_bytes_max`, or comes behind
        `fetch_passed_bytes_max` of other records, has no answer; but at least
        one of `places` has one.

        `tells_never`: where there is no record, tell NEVER from GONE. For this
        the topic's settings are read, which needs a right of its own. Without
        it all such places are GONE.

        Raises `Unreachable`: the broker sent nothing for `fetch_patience_ms`,
        or the log was shortened during each of several tries.
        """
        targets = list(places)
        if not targets:
            return Fetched({}, ())
        offsets = _by_partition(targets)
        for _ in range(_TRIES):
            try:
                return self._fetch_once(targets, offsets, tells_never=tells_never)
            except OutOfRange:
                continue  # retention passed a requested offset after the log starts were fetched: try again
            finally:
                if self._picker is not None:
                    self._picker.assign({})  # so that it fetches nothing until the next call
        raise Unreachable(f"{targets[0].topic} loses records faster than they are fetched")

    def close(self) -> None:
        """Close the picker; the next fetch opens another one."""
        if self._picker is not None:
            self._picker.close()
            self._picker = None

    def _fetch_once(self, targets: Sequence[RecordPlace], offsets: _Offsets, *, tells_never: bool) -> Fetched:
        """Try a fetch once; `offsets` are those of the targets.

        1. Read the records at offsets that are in the log.
        2. The others are absent, except those that the limits did not let this
           fetch read.
        3. Where there is no record, find out whether there ever was one.

        Raises `OutOfRange`: the log was shortened meanwhile.
        """
        # 1. records
        if self._picker is None:
            self._picker = self._log.picker()
        offsets_in_log = self._offsets_in_log(offsets)
        gap_bytes = self._limits.fetch_gap_bytes
        former_runs = self._former_damaged_runs
        reading = _OffsetsReading(self._picker, offsets_in_log, gap_bytes, former_runs)
        self._read_to_end(reading)
        self.read_records += reading.read_records
        self.read_bytes += reading.read_bytes
        self._former_damaged_runs.extend(reading.damaged_runs)
        target_count = sum(map(len, offsets.values()))
        if len(reading.records) == target_count:  # the usual case: each has its record
            return Fetched(reading.records, reading.damaged_runs)
        # 2. absent ones
        unread_places = set(_places_of(reading.unread_by_partition)) - reading.records.keys()
        answers: dict[RecordPlace, Record | Absence] = {}
        for place in targets:
            if place not in unread_places:
                answers[place] = _absence_at(place, reading.damaged_runs)
        answers.update(reading.records)  # in place of the absence, where there is a record
        # 3. never, or gone: an offset that is not in the log is GONE in any case
        if tells_never:
            places_in_log = _places_of(offsets_in_log)
            without_record = [place for place in places_in_log if answers.get(place) is Absence.GONE]
            for place in self._never_written(without_record):
                answers[place] = Absence.NEVER
        return Fetched(answers, reading.damaged_runs)

    def _read_to_end(self, reading: _OffsetsReading) -> None:
        """Read until nothing is unread, or enough was kept or passed over.

        Raises `Unreachable`: the broker sent nothing for `fetch_patience_ms`.
        """
        limits = self._limits
        patience_ms = limits.fetch_patience_ms  # what is left of it: a poll without progress takes some
        while reading.unread_by_partition and (
            reading.kept_bytes < limits.fetch_bytes_max
            and reading.passed_bytes < limits.fetch_passed_bytes_max
        ):
            if reading.read_once():
                patience_ms = limits.fetch_patience_ms
                continue
            patience_ms -= _POLL_MS
            if patience_ms < 0:
                topics = sorted({partition.topic for partition in reading.unread_by_partition})
                raise Unreachable(
                    f"no record of {', '.join(topics)} was sent within"
                    f" {limits.fetch_patience_ms} ms; check that the broker leads its partitions"
                )

    def _never_written(self, places: Collection[RecordPlace]) -> list[RecordPlace]:
        """Return which of some places without a record never had one.

        Those are the ones of topics without compaction: there only a marker or
        an aborted record takes an offset without a record.
        """
        if not places:
            return []
        info_by_topic = self._log.topics({place.topic for place in places}, settings=True)
        not_compacted: set[str] = set()
        for topic, info in info_by_topic.items():
            if "compact" not in info.settings.get("cleanup.policy", ""):
                not_compacted.add(topic)
        return [place for place in places if place.topic in not_compacted]

    def _offsets_in_log(self, offsets: _Offsets) -> dict[TopicPartition, Sequence[int]]:
        """Return which offsets lie between start and stable end of their partitions, where any does.

        Raises `TopicError`: a whole topic does not exist.
        """
        partitions: Collection[TopicPartition] = offsets.keys()
        try:
            starts = self._log.starts(partitions)
            ends = self._log.stable_ends(partitions)
        except TopicError:  # a root may name a partition that its topic never had
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
        """Return partitions without those that their topic does not have.

        Those of a topic that is missing stay: whoever asks the broker for them
        gets its error.
        """
        partitions = list(partitions)
        info_by_topic = self._log.topics({partition.topic for partition in partitions})
        existing: list[TopicPartition] = []
        for partition in partitions:
            info = info_by_topic.get(partition.topic)
            if info is None or partition.partition < info.partitions:
                existing.append(partition)
        return existing


def _by_partition(places: Iterable[RecordPlace]) -> _Offsets:
    """Return the offsets of places by partition, ascending and without duplicates."""
    offsets_by_partition: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, number, offset in places:
        offsets_by_partition[topic, number].append(offset)
    ascending_by_partition: dict[TopicPartition, Sequence[int]] = {}
    for partition, offsets in sorted(offsets_by_partition.items()):
        ascending_by_partition[TopicPartition(*partition)] = sorted(set(offsets))
    return ascending_by_partition


def _places_of(offsets: _Offsets) -> Iterator[RecordPlace]:
    """Yield the place of each offset, partition by partition."""
    for partition, partition_offsets in offsets.items():
        for offset in partition_offsets:
            yield RecordPlace(*partition, offset)


def _absence_at(place: RecordPlace, damaged_runs: Sequence[DamagedRun]) -> Absence:
    """Return why there is no record at a place: it lies in a damaged run, or it is gone."""
    for damaged_run in damaged_runs:
        is_same_partition = place.topic_partition == (damaged_run.topic, damaged_run.partition)
        if is_same_partition and damaged_run.start <= place.offset < damaged_run.end:
            return absence_by_damage(damaged_run)
    return Absence.GONE


class _OffsetsReading:
    """One fetch in progress: the offsets still to be read of each partition, and the records picked.

    Attributes:
        unread_by_partition: the offsets that were not reached yet, ascending;
            never empty.
        records: those that were picked, by their places.
        damaged_runs: offsets that could not be read, and were passed over.
        kept_bytes: how many bytes `records` have.
        passed_bytes: how many bytes were read between them, with `gap_bytes`
            for each gap that was skipped.
        read_bytes, read_records: how many bytes and records were read in all.
    """

    def __init__(
        self,
        picker: Picker,
        offsets: _Offsets,
        gap_bytes: int,
        former_damaged_runs: Iterable[DamagedRun],
    ) -> None:
        """Begin to read `offsets`: by partition, ascending, all in the log, no list empty.

        Gaps of more than `gap_bytes` between them are skipped. So are runs that
        former fetches met as damaged: to find the end of one again takes a
        second.
        """
        # by partition, the offsets behind the damaged runs of former fetches
        self._damage_ends_by_partition: dict[TopicPartition, list[int]] = {}
        for run in former_damaged_runs:
            partition = TopicPartition(run.topic, run.partition)
            self._damage_ends_by_partition.setdefault(partition, []).append(run.end)
        # what was read so far; see the class
        self.unread_by_partition = dict(offsets)
        self.records: dict[RecordPlace, Record] = {}
        self.damaged_runs: list[DamagedRun] = []
        self.kept_bytes = 0
        self.passed_bytes = 0
        self.read_bytes = 0
        self.read_records = 0
        self._picker = picker
        self._gap_bytes = gap_bytes
        self._all_offsets = offsets
        # where to read on: by partition, the offset that the picker reads next
        self._next_offset_by_partition: dict[TopicPartition, int] = {}
        for partition, partition_offsets in offsets.items():
            self._next_offset_by_partition[partition] = partition_offsets[0]
        picker.assign(self._next_offset_by_partition)

    def read_once(self) -> bool:
        """Poll once, or pass over what is damaged; return whether the picker has moved on.

        Raises `OutOfRange`: the log was shortened meanwhile.
        """
        try:
            picked = self._picker.pick(_POLL_MS, self._all_offsets, self._records_to_pick())
        except Damaged as error:
            partition = TopicPartition(error.topic, error.partition)
            self.damaged_runs.append(self._picker.pass_over(partition))
            self._follow_picker()
            return True
        places = map(_record_place, map(_topic_partition_offset, picked.records))
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

        In each partition that is up to the last unread offset that is less than
        `_PICK_RECORDS` ahead: with the picker at 100, and 110, 300 and 9,000
        still unread, the 201 records from 100 to 300. If all are further ahead,
        it is `_PICK_RECORDS`.
        """
        record_count = 0
        for partition, offsets in self.unread_by_partition.items():
            next_offset = self._next_offset_by_partition[partition]
            near_count = bisect_left(offsets, next_offset + _PICK_RECORDS)
            if near_count:
                record_count += offsets[near_count - 1] - next_offset + 1
            else:
                record_count += _PICK_RECORDS
        # before anything was read, how large records are is not known
        record_count_max = _PICK_RECORDS if self.read_records else _PICK_RECORDS_FIRST
        return min(record_count, record_count_max)

    def _follow_picker(self) -> bool:
        """Remove the offsets that the picker has passed, and let it skip large gaps and damage.

        A partition without an unread offset is read no more. Return whether the
        picker has moved since the last call.
        """
        mean_bytes = self.read_bytes / max(1, self.read_records)
        has_moved = False
        must_assign = False  # whether the picker has to read other offsets
        for partition in list(self.unread_by_partition):
            next_offset = self._picker.position(partition)
            if next_offset != self._next_offset_by_partition[partition]:
                has_moved = True
            self._next_offset_by_partition[partition] = next_offset
            # offsets ascend, so those that were passed are the first ones
            passed_count = bisect_left(self.unread_by_partition[partition], next_offset)
            unread_offsets = self.unread_by_partition[partition][passed_count:]
            self.unread_by_partition[partition] = unread_offsets
            if not unread_offsets:
                del self.unread_by_partition[partition], self._next_offset_by_partition[partition]
                must_assign = True
                continue
            # what lies before the first unread offset is skipped if it is
            # large, or was damaged lately
            first_unread = unread_offsets[0]
            gap_bytes = (first_unread - next_offset) * mean_bytes  # an estimate
            is_large_gap = gap_bytes > self._gap_bytes
            damage_ends = self._damage_ends_by_partition.get(partition, ())
            has_damage = any(next_offset < end <= first_unread for end in damage_ends)
            if is_large_gap:
                self.passed_bytes += self._gap_bytes
            if is_large_gap or has_damage:
                self._next_offset_by_partition[partition] = first_unread
                must_assign = True
        if must_assign:
            self._picker.assign(self._next_offset_by_partition)
        return has_moved
