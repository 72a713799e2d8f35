"""What became of each record of an input, by its topics alone; pure.

A root is one emission of a record. It gets one verdict; a root that is lost becomes one copy,
which is a new root, or one dead letter. A record ends once: when one of its roots is acked, or
as a dead letter. The demo counts by these rules, and the simulation and the torture of the
checkout judge by them.

Source: docs/design/protocol.md, section 3, rules 2, 5 and 7.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

import numpy as np

from acker.identity import Position, Root, Source, input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import Headers, Record, TopicPartition
from acker.root_sets.position_set import PositionSet
from acker.wire.events import Lost, Verdicts, positions
from acker.wire.verdict import LostVerdict, Verdict
from replay.records.due import Loss, history_of
from replay.records.headers import location, parse_lineage, parse_location


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it requires, whether that is true, and what was found if not."""

    name: str
    passed: bool
    found: str = ""


class Emission(NamedTuple):
    """Which emission a root is: the origin of its record, and its attempt, from 1."""

    origin: str
    attempt: int


class SettledRun(NamedTuple):
    """Roots of a source at positions [start, end) that got the same verdict.

    `lost` has what the acker wrote of a loss; None: they are not lost.
    """

    source: int
    start: int
    end: int
    verdict: Verdict
    lost: Lost | None = None

    def roots(self) -> Iterator[Root]:
        return roots_of_run(self.source, self.start, self.end)


def roots_of_run(source: int, start: int, end: int) -> Iterator[Root]:
    return (Root(Source(source), Position(position)) for position in range(start, end))


def settled_runs(event: Verdicts) -> Iterator[SettledRun]:
    """Yield the verdicts of a record of ``_ack_verdict``, in its order."""
    for verdict, runs in event.done():
        for source, start, end in runs:
            yield SettledRun(source, start, end, verdict)
    for lost in event.lost:
        lost_positions = positions(lost.positions)
        if not len(lost_positions):
            continue
        # Cut where the next position is not the neighbour: [5, 6, 9] becomes [5, 6] and [9]. This
        # is no set: a root that a record names twice has two verdicts, and begins a run of its own
        # each time.
        cuts = np.flatnonzero(np.diff(lost_positions) != 1) + 1
        for run in np.split(lost_positions, cuts):
            yield SettledRun(lost.source, int(run[0]), int(run[-1]) + 1, lost.reason, lost)


def loss_of(headers: Headers) -> Loss | None:
    """Return the loss for which a copy or a dead letter was written; None: its headers have none.

    It is the last one of the history in its headers.
    """
    history = history_of(headers)
    return history[-1] if history else None


def uncommitted(
    ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """Return the partitions whose committed offset has not reached the end, by name.

    The values say where it is: ``{"lines/3": "40 of 42"}``. Empty: all have reached it. A partition
    that never had a record needs no commit.
    """
    uncommitted_by_name: dict[str, str] = {}
    for partition, end in ends.items():
        if end and committed.get(partition) != end:
            name = f"{partition.topic}/{partition.partition}"
            uncommitted_by_name[name] = f"{committed.get(partition, 'none')} of {end}"
    return uncommitted_by_name


@dataclass(slots=True)
class OutcomeCounts:
    """Counts of roots by their first verdict, of further verdicts, copies and dead letters."""

    acked: int = 0
    absent: int = 0
    lost_by_reason: Counter[LostVerdict] = field(default_factory=Counter)
    repeated_verdicts: int = 0
    copies: int = 0
    dead_letters: int = 0

    @property
    def settled(self) -> int:
        """Return how many records and copies have a verdict.

        A position that is ABSENT, such as that of a transaction's marker, is neither.
        """
        return self.acked + sum(self.lost_by_reason.values())


class Outcomes:
    """What became of each root and each record of one input.

    Each topic's records come in its order; a copy may be read before or after the verdicts of its
    own root and of the lost one. Acked roots cost memory for each run of neighbours, lost ones for
    each root.

    Attributes:
        counts: how many roots, copies and dead letters there are.
        loss_verdict_by_root: the first verdict of each root that was lost.
        emission_by_copy: the emission of each record of the replay topic, by that record's
            partition and offset.
        replacements_by_root: how many copies or dead letters were written for a root, by its
            ``topic/partition@offset``.
        extra_ends_by_origin: how often a record ended after it had ended, by its origin.
        settled_by_source: the positions that have a verdict.
        verdicts_by_repeated_root: all verdicts of each root that has several, in their order.
    """

    def __init__(self, input_id: int, topic: str, replay_topic: str) -> None:
        """Begin without a record of the input with this id, topic and replay topic."""
        self.counts = OutcomeCounts()
        self.loss_verdict_by_root: dict[Root, LostVerdict] = {}
        self.emission_by_copy: dict[tuple[int, int], Emission] = {}
        self.replacements_by_root = Counter[str]()
        self.extra_ends_by_origin = Counter[str]()
        self.settled_by_source: dict[int, PositionSet] = defaultdict(PositionSet)
        self.verdicts_by_repeated_root: dict[Root, list[Verdict | None]] = {}
        self._input_id = input_id
        self._topic = topic
        self._replay_topic = replay_topic
        self._acked_by_source: dict[int, PositionSet] = defaultdict(PositionSet)
        # partition and offset of each record of the replay topic that is acked
        self._acked_copies: set[tuple[int, int]] = set()
        # by partition: the offsets of the input's topic whose record has ended
        self._ended_by_partition: dict[int, PositionSet] = defaultdict(PositionSet)

    def record_verdict(self, run: SettledRun) -> None:
        """Record one verdict of some roots; those of other inputs are passed over.

        A root's first verdict counts; each later one is counted as repeated.
        """
        if input_id_of(run.source) != self._input_id:
            return
        # 1. the roots that have a verdict already
        settled = self.settled_by_source[run.source]
        for start, end in settled.within(run.start, run.end):
            self.counts.repeated_verdicts += end - start
            for root in roots_of_run(run.source, start, end):
                first_verdict = self.verdict_of(root)
                self.verdicts_by_repeated_root.setdefault(root, [first_verdict]).append(run.verdict)
        # 2. the others, of which this is the first verdict
        unsettled_runs = settled.outside(run.start, run.end)
        settled.add(run.start, run.end)
        for start, end in unsettled_runs:
            match run.verdict:
                case Verdict.ACKED:
                    self.counts.acked += end - start
                    self._acked_by_source[run.source].add(start, end)
                    self._end_records_of_acked(run.source, start, end)
                case Verdict.ABSENT:
                    self.counts.absent += end - start
                case Verdict.FAILED | Verdict.TIMED_OUT | Verdict.ABANDONED:
                    self.counts.lost_by_reason[run.verdict] += end - start
                    lost_roots = roots_of_run(run.source, start, end)
                    self.loss_verdict_by_root.update(dict.fromkeys(lost_roots, run.verdict))
                case _:
                    assert_never(run.verdict)

    def record_replacement(self, record: Record) -> None:
        """Record a copy or a dead letter, which was written in the place of a lost root."""
        lineage = parse_lineage(record.headers, record.topic, record.partition, record.offset)
        loss = loss_of(record.headers)
        # without a history it replaces no root; it is counted under a name that no root has, so
        # that a check finds it
        lost_root = loss.root if loss else f"nobody, by {record.topic}"
        self.replacements_by_root[lost_root] += 1
        if record.topic == self._replay_topic:
            self.counts.copies += 1
            copy = record.partition, record.offset
            self.emission_by_copy[copy] = Emission(lineage.origin, lineage.attempt)
            if copy in self._acked_copies:  # its verdict was read before the copy
                self._end_record(lineage.origin)
        else:
            self.counts.dead_letters += 1
            self._end_record(lineage.origin)

    @property
    def ended_records(self) -> int:
        """Return how many records of the topic ended, acked or as a dead letter."""
        return sum(map(len, self._ended_by_partition.values()))

    def has_ended(self, origin: str) -> bool:
        """Return whether the record with an origin ended; False for a record of another topic."""
        topic, partition, offset = parse_location(origin) or ("", 0, 0)
        return topic == self._topic and offset in self._ended_by_partition[partition]

    def verdict_of(self, root: Root) -> Verdict | None:
        """Return the first verdict of a root; None while it has none."""
        if root.position not in self.settled_by_source[root.source]:
            return None
        if root.position in self._acked_by_source[root.source]:
            return Verdict.ACKED
        return self.loss_verdict_by_root.get(root, Verdict.ABSENT)

    def emission_of(self, root: Root) -> Emission | None:
        """Return which emission a root is; None: it is a copy, which was not read yet."""
        partition = partition_of(root.source)
        offset = offset_of(root.position)
        if is_replay(root.source):
            return self.emission_by_copy.get((partition, offset))
        return Emission(location(self._topic, partition, offset), 1)

    def place_of(self, root: Root) -> str:
        """Return the place of a root's record or copy, ``topic/partition@offset``."""
        topic = self._replay_topic if is_replay(root.source) else self._topic
        return location(topic, partition_of(root.source), offset_of(root.position))

    def _end_records_of_acked(self, source: int, start: int, end: int) -> None:
        """Record that the records of acked roots, at positions [start, end), ended."""
        partition = partition_of(source)
        first_offset = offset_of(start)
        end_offset = first_offset + end - start
        if not is_replay(source):
            self._end_records(partition, first_offset, end_offset)
            return
        for offset in range(first_offset, end_offset):
            copy = partition, offset
            self._acked_copies.add(copy)
            emission = self.emission_by_copy.get(copy)
            if emission is not None:  # else `record_replacement` ends it, when it reads the copy
                self._end_record(emission.origin)

    def _end_record(self, origin: str) -> None:
        """Record that the record with an origin ended, unless it is of another topic."""
        topic, partition, offset = parse_location(origin) or ("", 0, 0)
        if topic == self._topic:
            self._end_records(partition, offset, offset + 1)

    def _end_records(self, partition: int, start: int, end: int) -> None:
        """Record that the records of the topic at offsets [start, end) ended.

        Those that had ended before are counted in `extra_ends_by_origin`.
        """
        ended = self._ended_by_partition[partition]
        for run_start, run_end in ended.within(start, end):
            for offset in range(run_start, run_end):
                self.extra_ends_by_origin[location(self._topic, partition, offset)] += 1
        ended.add(start, end)
