"""What the topics say, collected record by record; pure. Nothing here comes from the parts under torture.

Times are when the broker appended a record (the run's broker stamps that into every topic of the ackers), so
they are of one clock and in the log's order, whoever wrote the record and however wrong its clock was.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from acker.identity import Root
from acker.kafka.port import Record
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Init, Take, Tick, Verdicts
from acker.wire.verdict import Verdict
from replay.records.headers import location
from spout.demo.judge import Outcomes, roots_of_run, settled_runs
from spout.planning.session import QUESTION_SUFFIX, SessionName
from tests.torture.workload import number_in


class Story(NamedTuple):
    """How a root began: its session, when it is due on that session's clock, and its acker partition."""

    session: SessionName
    deadline: int
    init_ms: int
    acker_partition: int


class DatedVerdict(NamedTuple):
    """What an acker said of a root, and when that stood in the log."""

    kind: Verdict
    at_ms: int
    error: str = ""


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
        outcomes: what became of each root and record.
        numbers: origin of each committed record of the source topic to its number.
        stories: each root that was initialised.
        contributed: when a contribution that completes a root was appended, by root and session id.
        verdicts: the first verdict of each root, with its time.
        planned: by session when its Inits were appended, in no order.
        ticks: by acker partition and session, in the log's order; likewise `takes`, by acker partition.
    """

    names: Names
    outcomes: Outcomes
    numbers: dict[str, int] = field(default_factory=dict)
    stories: dict[Root, Story] = field(default_factory=dict)
    contributed: dict[tuple[Root, str], int] = field(default_factory=dict)
    verdicts: dict[Root, DatedVerdict] = field(default_factory=dict)
    planned: dict[SessionName, list[int]] = field(default_factory=lambda: defaultdict(list))
    ticks: dict[tuple[int, SessionName], list[Mark]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[int, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    _holders: dict[int, SessionName] = field(default_factory=dict)

    def read(self, record: Record) -> None:
        """Take note of one record; each partition's records come in order."""
        if record.topic == self.names.source:
            number = number_in(record.headers)
            if number is not None:
                self.numbers[location(record.topic, record.partition, record.offset)] = number
        elif record.topic in (self.names.replay, self.names.dead_letters):
            self.outcomes.record_replacement(record)
        else:
            self._read_event(record)

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
            for start, end in event.runs:
                for root in roots_of_run(event.source, start, end):
                    self.contributed.setdefault((root, event.session), record.timestamp_ms)
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
            for root in roots_of_run(source, start, end):
                self.stories.setdefault(root, story)

    def _read_verdicts(self, verdicts: Verdicts, at_ms: int) -> None:
        for run in settled_runs(verdicts):
            self.outcomes.record_verdict(run)
            verdict = DatedVerdict(run.verdict, at_ms, run.lost.error if run.lost else "")
            for root in run.roots():
                self.verdicts.setdefault(root, verdict)
