"""The simulation's checkers over the topics of a real run; pure.

The truth of the simulation (``tests.simulation.truth.truth``) is fed with what was recorded, in the order in
which the broker appended it. What that order does not tell is decided for the parts: of what was
appended in one millisecond, takes, ticks and inits come first, then acks, then fails, then verdicts.

Copies and dead letters bear their record's time, not the broker's. A copy is read when its root is
initialised, or at the end; its partition's order is kept.

What only a simulation knows is not judged here: which evaluation's output stood (the sink's table tells, see
``tests.torture.judging.judge``), for how long each process of a session lived, what a process knew
when it rested.

Source: docs/design/protocol.md, section 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Final, NamedTuple

from acker.config.topics import Topics
from acker.errors import CodecError
from acker.identity import is_replay, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Init
from spout.demo.judge import Check
from tests.simulation.checkers.checkers import CHECKERS
from tests.simulation.checkers.exactly_once_checker import ExactlyOnce
from tests.simulation.checkers.loss_checkers import HonestDeadlines
from tests.simulation.checkers.order_checker import InOrder
from tests.simulation.checkers.verdict_checkers import NoEarlyCompletion
from tests.simulation.truth.checker import Checker
from tests.simulation.truth.facts import Broken
from tests.simulation.truth.reader import TruthReader
from tests.torture.judging.recording import RecordedCluster, Recording

WRITER: Final = "writer"
"""Stands for every transactional id: what was read is committed."""

BESIDE: Final = 2
"""Processes of one session that may live at once: a driver, and the zombie of the one before."""


class Deadlines(HonestDeadlines):
    """Rule 8, as far as the broker's clock tells: an append may wait, and its time with it."""

    SLACK_MS = 1_000


JUDGES: Final[tuple[Callable[[], Checker], ...]] = tuple(
    Deadlines if each is HonestDeadlines else each
    for each in CHECKERS
    if each not in (NoEarlyCompletion, InOrder, ExactlyOnce)
)
"""Those who judge by what is written; the others ask the processes."""


class Appended(NamedTuple):
    """A record of an ack topic, in the order in which it counts."""

    at_ms: int
    rank: int
    partition: int
    offset: int
    record: Record


class RecordedTruth(TruthReader):
    """The truth of a run whose processes nobody watched."""

    def alive_ms(self, session: str, first_ms: int, last_ms: int) -> int:
        """Take a session for alive all the time."""
        return last_ms - first_ms

    def processes(self, session: str, first_ms: int, last_ms: int) -> int:
        """Take it that a zombie lives beside each process."""
        return BESIDE

    def rivals(self, session: str) -> int:
        """Take the same for what may be pending."""
        return BESIDE


def checks(recording: Recording, topics: Topics, stepped_ms: int) -> list[Check]:
    """Judge a run that is drained, rule by rule.

    Args:
        recording: all that was read of it.
        topics: its topics.yaml.
        stepped_ms: by how much a clock was wrong at most.
    """
    told = list(merge(*_partitions(recording, topics)))
    return [_check(_Hearing(judge(), recording, topics, stepped_ms), told) for judge in JUDGES]


def _check(hearing: _Hearing, told: Sequence[Appended]) -> Check:
    """Let one checker see all of it, up to what breaks its rule."""
    checker, found = hearing.checker, ""
    try:
        hearing.hear(told)
    except Broken as broken:
        found = str(broken)
    return Check(checker.rule, not found, found)


class _Hearing:
    """Tells one checker what happened."""

    def __init__(self, checker: Checker, recording: Recording, topics: Topics, stepped_ms: int) -> None:
        self.checker = checker
        self._recording = recording
        self._topics = topics
        self._cluster = RecordedCluster(recording)
        self._truth = RecordedTruth(topics, [checker], lambda *said: None)
        self._truth.cluster = self._cluster
        self._truth.skew_ms_max = stepped_ms
        self._codec = wire_codec()
        put_back = {each.replay_topic for each in topics.inputs.values()}
        buried = {each.dead_letter.topic for each in topics.inputs.values()}
        self._untold = {
            place: deque(records[offset] for offset in sorted(records))
            for place, records in recording.records.items()
            if place.topic in put_back | buried
        }

    def hear(self, told: Sequence[Appended]) -> None:
        """Tell everything in order, and of the copies and dead letters between.

        Raises:
            Broken: the rule does not hold.
        """
        for each in told:
            self._cluster.now_ms = each.at_ms
            place = TopicPartition(each.record.topic, each.record.partition)
            if each.rank == 0:
                self._dispose_what_begins(each.record)
            owner = WRITER if place.topic == self._topics.ack_topics.verdict else None
            self._append(place, each.record, owner)
        for place in sorted(self._untold):
            self._dispose(place, self._recording.ends[place])
        for found in self._topics.inputs.values():
            self._truth.kept(found.group, self._recording.commits, "")
        self._truth.end()

    def _dispose_what_begins(self, record: Record) -> None:
        """Tell of the copies that an Init emits, and of those before them."""
        try:
            event = self._codec.decode(record.value)
        except CodecError:
            return
        if not isinstance(event, Init):
            return
        for run in event.runs:
            if is_replay(run.source):
                place = TopicPartition(event.topic, partition_of(run.source))
                self._dispose(place, int(offset_of(run.end - 1)) + 1)

    def _dispose(self, place: TopicPartition, end: int) -> None:
        """Tell of the copies or dead letters of a partition below an offset that were not told of yet."""
        untold = self._untold.get(place, deque())
        while untold and untold[0].offset < end:
            self._append(place, untold.popleft(), WRITER)

    def _append(self, place: TopicPartition, record: Record, owner: str | None) -> None:
        sent = Outgoing(
            place.topic, place.partition, record.value, record.key, record.headers, record.timestamp_ms
        )
        self._truth.appended(place, record.offset, sent, owner)
        if owner is not None:
            self._truth.ended(place, owner, [record.offset], committed=True)


def _partitions(recording: Recording, topics: Topics) -> list[Iterator[Appended]]:
    """Return the records of each partition of the ack topics, each with the highest time so far."""
    names = topics.ack_topics
    ranks = {name: rank for rank, name in enumerate((names.init, names.ack, names.fail, names.verdict))}
    return [
        _in_order(ranks[place.topic], place.partition, [records[at] for at in sorted(records)])
        for place, records in recording.records.items()
        if place.topic in ranks
    ]


def _in_order(rank: int, partition: int, records: list[Record]) -> Iterator[Appended]:
    at_ms = 0
    for record in records:
        at_ms = max(at_ms, record.timestamp_ms)
        yield Appended(at_ms, rank, partition, record.offset, record)
