"""What became of each record of an input, by its topics alone; pure.

A root is one emission of a record. It gets one verdict; a root that is lost becomes one copy, which is a new
root, or one dead letter. A record ends once: when one of its roots is acked, or as a dead letter. The demo
counts by these rules, and the simulation and the torture of the checkout judge by them.

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
    """Roots of a source at [start, end) that got the same verdict; `lost` says more of a loss."""

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
    """Yield what a record of ``_ack_verdict`` says, in its order."""
    for verdict, runs in event.done():
        for source, start, end in runs:
            yield SettledRun(source, start, end, verdict)
    for lost in event.lost:
        at = positions(lost.positions)
        # no set: a root that a record names twice has two verdicts, and begins a run of its own each time
        for run in np.split(at, np.flatnonzero(np.diff(at) != 1) + 1) if len(at) else ():
            yield SettledRun(lost.source, int(run[0]), int(run[-1]) + 1, lost.reason, lost)


def loss_of(headers: Headers) -> Loss | None:
    """Return the loss that a copy or dead letter stands for: the last one of its history."""
    history = history_of(headers)
    return history[-1] if history else None


def uncommitted(
    ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """Return the partitions whose committed offset is not at the end: name to "committed of end"."""
    return {
        f"{place.topic}/{place.partition}": f"{committed.get(place, 'none')} of {end}"
        for place, end in ends.items()
        if end and committed.get(place) != end
    }


@dataclass(slots=True)
class OutcomeCounts:
    """The counts so far: roots by their first verdict, verdicts beyond it, copies, and dead letters."""

    acked: int = 0
    absent: int = 0
    lost_by_reason: Counter[LostVerdict] = field(default_factory=Counter)
    repeated_verdicts: int = 0
    copies: int = 0
    dead_letters: int = 0

    @property
    def settled(self) -> int:
        """Records and copies that have a verdict; ABSENT positions (markers of transactions) are neither."""
        return self.acked + sum(self.lost_by_reason.values())


class Outcomes:
    """What became of each root and each record of one input.

    Each topic's records come in its order; a copy may be read before or after the verdicts that it has to
    do with. Roots that are acked cost memory by interval, lost ones each.

    Attributes:
        counts: how many ended how.
        lost: first verdict of each root that was lost.
        copies: emission of each record of the replay topic, by partition and offset.
        dead: how many dead letters each origin has.
        replaced: how many copies or dead letters stand for a root, by its ``topic/partition@offset``.
        ended_again: how often a record ended after it had ended, by origin.
        settled: the positions that have a verdict, by source.
        repeated: all verdicts of each root that has several.
    """

    def __init__(self, input_id: int, topic: str, replay_topic: str) -> None:
        self.counts = OutcomeCounts()
        self.lost: dict[Root, LostVerdict] = {}
        self.copies: dict[tuple[int, int], Emission] = {}
        self.dead = Counter[str]()
        self.replaced = Counter[str]()
        self.ended_again = Counter[str]()
        self._input_id = input_id
        self._topic = topic
        self._replay_topic = replay_topic
        self.settled: dict[int, PositionSet] = defaultdict(PositionSet)
        self._acked: dict[int, PositionSet] = defaultdict(PositionSet)
        self.repeated: dict[Root, list[Verdict | None]] = {}
        self._acked_copies: set[tuple[int, int]] = set()
        self._ended: dict[int, PositionSet] = defaultdict(PositionSet)  # offsets of the topic, by partition

    def settle(self, run: SettledRun) -> None:
        """Take note of one verdict of some roots; those of other inputs are passed over."""
        if input_id_of(run.source) != self._input_id:
            return
        settled = self.settled[run.source]
        for start, end in settled.within(run.start, run.end):
            self.counts.repeated_verdicts += end - start
            for root in roots_of_run(run.source, start, end):
                self.repeated.setdefault(root, [self.verdict_of(root)]).append(run.verdict)
        fresh = settled.outside(run.start, run.end)
        settled.add(run.start, run.end)
        for start, end in fresh:
            match run.verdict:
                case Verdict.ACKED:
                    self.counts.acked += end - start
                    self._acked[run.source].add(start, end)
                    self._end_acked(run.source, start, end)
                case Verdict.ABSENT:
                    self.counts.absent += end - start
                case Verdict.FAILED | Verdict.TIMED_OUT | Verdict.ABANDONED:
                    self.counts.lost_by_reason[run.verdict] += end - start
                    self.lost.update(dict.fromkeys(roots_of_run(run.source, start, end), run.verdict))
                case _:
                    assert_never(run.verdict)

    def replace(self, record: Record) -> None:
        lineage = parse_lineage(record.headers, record.topic, record.partition, record.offset)
        loss = loss_of(record.headers)
        self.replaced[loss.root if loss else f"nobody, by {record.topic}"] += 1
        if record.topic == self._replay_topic:
            self.counts.copies += 1
            place = record.partition, record.offset
            self.copies[place] = Emission(lineage.origin, lineage.attempt)
            if place in self._acked_copies:
                self._end(lineage.origin)
        else:
            self.counts.dead_letters += 1
            self.dead[lineage.origin] += 1
            self._end(lineage.origin)

    @property
    def ended(self) -> int:
        """How many records of the topic ended, acked or as a dead letter."""
        return sum(map(len, self._ended.values()))

    def has_ended(self, origin: str) -> bool:
        topic, partition, offset = parse_location(origin) or ("", 0, 0)
        return topic == self._topic and offset in self._ended[partition]

    def verdict_of(self, root: Root) -> Verdict | None:
        """Return the first verdict of a root; None while it has none."""
        if root.position not in self.settled[root.source]:
            return None
        if root.position in self._acked[root.source]:
            return Verdict.ACKED
        return self.lost.get(root, Verdict.ABSENT)

    def emission_of(self, root: Root) -> Emission | None:
        """Return which emission a root is; None for a root of a copy that was not read."""
        partition, offset = partition_of(root.source), offset_of(root.position)
        if is_replay(root.source):
            return self.copies.get((partition, offset))
        return Emission(location(self._topic, partition, offset), 1)

    def place_of(self, root: Root) -> str:
        """Name the record that a root is an emission of, ``topic/partition@offset``."""
        topic = self._replay_topic if is_replay(root.source) else self._topic
        return location(topic, partition_of(root.source), offset_of(root.position))

    def _end_acked(self, source: int, start: int, end: int) -> None:
        partition, first = partition_of(source), offset_of(start)
        if not is_replay(source):
            self._end_run(partition, first, first + end - start)
            return
        for place in ((partition, offset) for offset in range(first, first + end - start)):
            self._acked_copies.add(place)
            if emission := self.copies.get(place):
                self._end(emission.origin)

    def _end(self, origin: str) -> None:
        topic, partition, offset = parse_location(origin) or ("", 0, 0)
        if topic == self._topic:
            self._end_run(partition, offset, offset + 1)

    def _end_run(self, partition: int, start: int, end: int) -> None:
        for first, behind in self._ended[partition].within(start, end):
            for offset in range(first, behind):
                self.ended_again[location(self._topic, partition, offset)] += 1
        self._ended[partition].add(start, end)
