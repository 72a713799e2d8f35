"""What the topics say, collected record by record; pure. Nothing here comes from the parts under torture.

Times are when the broker appended a record (the run's broker stamps that into every topic of the ackers), so
they are of one clock and in the log's order, whoever wrote the record and however wrong its clock was.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from acker.identity import is_replay, offset_of, partition_of
from acker.kafka.port import Record
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Init, PositionRun, Take, Tick, Verdicts, positions
from replay.records.due import parse_history
from replay.records.headers import HISTORY, location, parse_lineage
from spout.planning.session import QUESTION_SUFFIX, SessionName
from tests.torture.workload import number_in


class Root(NamedTuple):
    """One emission of one record."""

    source: int
    position: int


class Story(NamedTuple):
    """How a root began: its session, when it is due on that session's clock, and its acker partition."""

    session: SessionName
    deadline: int
    init_ms: int
    acker_partition: int


class Verdict(NamedTuple):
    """What an acker said of a root, and when that stood in the log. `reason` is ACKED, ABSENT or a loss."""

    reason: str
    at_ms: int
    error: str = ""


class Emission(NamedTuple):
    """Which emission a root is: the origin of its record, and its attempt, from 1."""

    origin: str
    attempt: int


class Mark(NamedTuple):
    """A tick or a take of a session in `_ack_init`: what it says the clock is, and when it was appended."""

    session: SessionName
    now: int
    at_ms: int


class Names(NamedTuple):
    """The topics of the one input and of the ackers."""

    source: str
    replay: str
    dead_letters: str
    init: str
    ack: str
    fail: str
    verdict: str


@dataclass(slots=True)
class Evidence:
    """Everything that was read so far.

    Attributes:
        names: the topics.
        numbers: origin of each committed record of the source topic to its number.
        stories: each root that was initialised.
        contributed: when a contribution that completes a root was appended, by root and session id.
        verdicts: all verdicts of each root.
        planned: by session when its Inits were appended, in no order.
        ticks: by acker partition and session, in the log's order; likewise `takes`, by acker partition.
        copies: emission of each record of the replay topic, by partition and offset.
        replaced: how many copies or dead letters name a root as the one that they stand for.
        dead: how many dead letters each origin has.
    """

    names: Names
    numbers: dict[str, int] = field(default_factory=dict)
    stories: dict[Root, Story] = field(default_factory=dict)
    contributed: dict[tuple[Root, str], int] = field(default_factory=dict)
    verdicts: dict[Root, list[Verdict]] = field(default_factory=dict)
    planned: dict[SessionName, list[int]] = field(default_factory=lambda: defaultdict(list))
    ticks: dict[tuple[int, SessionName], list[Mark]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[int, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[tuple[int, int], Emission] = field(default_factory=dict)
    replaced: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    _holders: dict[int, SessionName] = field(default_factory=dict)

    def read(self, record: Record) -> None:
        """Take note of one record; each partition's records come in order."""
        if record.topic == self.names.source:
            number = number_in(record.headers)
            if number is not None:
                self.numbers[location(record.topic, record.partition, record.offset)] = number
        elif record.topic in (self.names.replay, self.names.dead_letters):
            self._read_replacement(record)
        else:
            self._read_event(record)

    def emission_of(self, root: Root) -> Emission | None:
        """Return which emission a root is; None for a root of a copy that was not read."""
        partition, offset = partition_of(root.source), offset_of(root.position)
        if is_replay(root.source):
            return self.copies.get((partition, offset))
        return Emission(location(self.names.source, partition, offset), 1)

    def place_of(self, root: Root) -> str:
        """Name the record that a root is an emission of, ``topic/partition@offset``."""
        topic = self.names.replay if is_replay(root.source) else self.names.source
        return location(topic, partition_of(root.source), offset_of(root.position))

    def _read_replacement(self, record: Record) -> None:
        lineage = parse_lineage(record.headers, record.topic, record.partition, record.offset)
        history = parse_history(dict(record.headers).get(HISTORY))
        self.replaced[history[-1].root if history else f"nobody, by {record.topic}"] += 1
        if record.topic == self.names.replay:
            self.copies[record.partition, record.offset] = Emission(lineage.origin, lineage.attempt)
        else:
            self.dead[lineage.origin] += 1

    def _read_event(self, record: Record) -> None:
        event = wire_codec().decode(record.value)
        if isinstance(event, Init):
            self._read_init(event, record)
        elif isinstance(event, Take) and not event.session.endswith(QUESTION_SUFFIX):
            name = SessionName(event.epoch, event.session)
            holder = self._holders.get(record.partition, SessionName(0, ""))
            self._holders[record.partition] = max(holder, name)
            self.takes[record.partition].append(Mark(name, event.now, record.timestamp_ms))
        elif isinstance(event, Tick):
            name = SessionName(event.epoch, event.session)
            self.ticks[record.partition, name].append(Mark(name, event.now, record.timestamp_ms))
        elif isinstance(event, Acks):
            for position in _within(event.runs):
                key = (Root(event.source, position), event.session)
                self.contributed.setdefault(key, record.timestamp_ms)
        elif isinstance(event, Verdicts):
            self._read_verdicts(event, record.timestamp_ms)

    def _read_init(self, init: Init, record: Record) -> None:
        """Note new roots; an acker refuses those of a session that a higher one has overtaken."""
        name = SessionName(init.epoch, init.session)
        if name < self._holders.get(record.partition, name):
            return
        self.planned[name].append(record.timestamp_ms)
        story = Story(name, init.now + init.timeout_ms, record.timestamp_ms, record.partition)
        for source, start, end in init.runs:
            for position in range(start, end):
                self.stories.setdefault(Root(source, position), story)

    def _read_verdicts(self, verdicts: Verdicts, at_ms: int) -> None:
        for reason, runs in (("ACKED", verdicts.acked), ("ABSENT", verdicts.absent)):
            for source, start, end in runs:
                for position in range(start, end):
                    self._settle(Root(source, position), Verdict(reason, at_ms))
        for lost in verdicts.lost:
            for position in positions(lost.positions).tolist():
                self._settle(Root(lost.source, position), Verdict(lost.reason.value, at_ms, lost.error))

    def _settle(self, root: Root, verdict: Verdict) -> None:
        self.verdicts.setdefault(root, []).append(verdict)


def _within(runs: Iterable[PositionRun]) -> Iterable[int]:
    return (position for start, end in runs for position in range(start, end))
