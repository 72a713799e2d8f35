"""An acker on an in-memory cluster, with a writer that writes exactly what a test needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.identity import WIRE_BLOCK_BITS, acker_partition, generation_of, root_edge, source_of
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.ledger.output import AckerEvent, AckerStatus
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    FailCause,
    Fails,
    Init,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakeSource,
    Tick,
    Verdicts,
    pack_positions,
    pack_values,
    positions,
)
from acker.wire.verdict import Verdict
from tests.support.memory.cluster import Faults, MemoryCluster

GROUP = "word-count"
TOPIC = "sentences"
TOPIC_ID = "id-of-sentences"
SOURCE = source_of(1, 3)
TIMEOUT_MS = 30_000
TOPICS = AckTopics.with_prefix("")
CODEC = wire_codec()
PLENTY = 200

Outcome = tuple[str, str]
"""Reason (ACKED and ABSENT among them) and error of a verdict."""


@dataclass(frozen=True)
class Writer:
    """A session that speaks the wire; every call returns the record's value and writes it."""

    world: World
    session: str = "s1"
    epoch: int = 1
    group: str = GROUP
    topic: str = TOPIC

    def take(
        self,
        *,
        now: int = 0,
        sources: Sequence[int] = (SOURCE,),
        generation: int = 0,
        from_: int = 0,
        topic_id: str = TOPIC_ID,
        partitions: int | None = None,
    ) -> None:
        """Announce the session to every partition."""
        named = tuple(TakeSource(source, self.topic, topic_id, generation, from_) for source in sources)
        n = self.world.partitions if partitions is None else partitions
        record = Take(self.group, self.session, self.epoch, now, n, named)
        for partition in range(self.world.partitions):
            self.world.write(TOPICS.init, record, partition)

    def init(
        self,
        *runs: tuple[int, int],
        now: int = 0,
        source: int = SOURCE,
        timeout_ms: int = TIMEOUT_MS,
        partitions: int | None = None,
        partition: int | None = None,
        topic: str | None = None,
    ) -> None:
        """Emit runs of one source, to the partition of the first."""
        n = self.world.partitions if partitions is None else partitions
        record = Init(
            self.group, self.session, self.epoch, now, now + 1_000_000, timeout_ms, n,
            topic or self.topic, TOPIC_ID, tuple(SourceRun(source, *run) for run in runs),
        )  # fmt: skip
        where = acker_partition(source, runs[0][0], self.world.partitions) if partition is None else partition
        self.world.write(TOPICS.init, record, where)

    def tick(self, now: int) -> None:
        """Tell the clock to every partition."""
        for partition in range(self.world.partitions):
            self.world.write(TOPICS.init, Tick(self.group, self.session, self.epoch, now), partition)

    def acks(
        self,
        *,
        runs: Iterable[tuple[int, int]] = (),
        values: Sequence[tuple[int, int]] = (),
        absent: Iterable[tuple[int, int]] = (),
        touched: Sequence[int] = (),
        touched_at: int = 0,
        seq: int = 0,
        lane: str | None = None,
        source: int = SOURCE,
        block: int | None = None,
        partition: int | None = None,
    ) -> bytes:
        """Contribute to roots of one wire block."""
        done_runs = tuple(PositionRun(*run) for run in runs)
        absent_runs = tuple(PositionRun(*run) for run in absent)
        named = [run.start for run in done_runs + absent_runs] + [p for p, _ in values] + list(touched)
        record = Acks(
            self.lane if lane is None else lane, seq, self.group, self.session, self.epoch, source,
            named[0] >> WIRE_BLOCK_BITS if block is None else block,
            done_runs,
            pack_positions(np.array([p for p, _ in values], np.int64)),
            pack_values(np.array([v for _, v in values], np.uint64)),
            absent_runs,
            pack_positions(np.array(touched, np.int64)),
            touched_at,
        )  # fmt: skip
        where = self.partition_of(record) if partition is None else partition
        return self.world.write(TOPICS.ack, record, where)

    def fails(
        self,
        *named: int,
        operator: str = "split",
        error: str = "ValueError",
        message: str = "no",
        seq: int = 0,
        lane: str | None = None,
        source: int = SOURCE,
        block: int | None = None,
    ) -> bytes:
        """Fail roots of one wire block."""
        cause = FailCause(operator, error, message, pack_positions(np.array(named, np.int64)))
        record = Fails(
            self.lane if lane is None else lane, seq, self.group, self.session, self.epoch, source,
            named[0] >> WIRE_BLOCK_BITS if block is None else block, (cause,),
        )  # fmt: skip
        return self.world.write(TOPICS.fail, record, self.partition_of(record))

    @property
    def lane(self) -> str:
        """The lane of the session's one query."""
        return f"query/{self.session}"

    def partition_of(self, record: Acks | Fails) -> int:
        """Return the acker partition of a record's block."""
        return acker_partition(record.source, record.block << WIRE_BLOCK_BITS, self.world.partitions)


@dataclass
class World:
    """A cluster with the ack topics, one acker process at a time, and the reader of what it wrote.

    `now_ms` is wall time, and `clock_set_ms` by how much it was set, and did not pass.
    """

    partitions: int = 1
    limits: AckerLimits = field(default_factory=lambda: AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0))
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    events: list[AckerEvent] = field(default_factory=list)
    now_ms: int = 0
    clock_set_ms: int = 0

    def __post_init__(self) -> None:
        """Create the topics and start an acker."""
        for name in TOPICS.names():
            self.cluster.create_topic(name, self.partitions, compacted=name in (TOPICS.state, TOPICS.due))
        self.writer_log = self.cluster.log()
        self.acker = self.start()

    def start(self, faults: Faults | None = None, log: Log | None = None) -> AckerService:
        """Start a further acker process."""
        return AckerService(
            log or self.cluster.log(faults), TOPICS, self.partitions, group="windhover-acker",
            limits=self.limits, report=self.events.append, clock_ms=lambda: self.now_ms - self.clock_set_ms,
        )  # fmt: skip

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock ahead, or back, while no time passes."""
        self.now_ms += by_ms
        self.clock_set_ms += by_ms

    def crash(self, faults: Faults | None = None, log: Log | None = None) -> None:
        """Kill the acker, wherever it is, and start another that takes its place."""
        self.acker._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
        self.acker = self.start(faults, log)

    def session(self, session: str = "s1", epoch: int = 1, group: str = GROUP, topic: str = TOPIC) -> Writer:
        """Make a writer."""
        return Writer(self, session, epoch, group, topic)

    def write(self, topic: str, event: Event, partition: int = 0) -> bytes:
        """Write a record."""
        return self.write_raw(topic, CODEC.encode(event), partition)

    def write_raw(self, topic: str, value: bytes, partition: int = 0) -> bytes:
        """Write bytes."""
        producer = self.writer_log.producer()
        producer.send(Outgoing(topic, partition, value))
        producer.flush(1_000)
        return value

    def step(self) -> bool:
        """Let the acker do one round."""
        self.now_ms += 1
        return self.acker.step(self.now_ms)

    def settle(self) -> None:
        """Let the acker work until nothing is left to do."""
        for _ in range(PLENTY):
            if not self.step():
                return
        raise AssertionError(f"the acker still works after {PLENTY} steps")

    def read(self, topic: str, partition: int = 0) -> list[Record]:
        """Return what is committed in a partition."""
        reader = self.writer_log.reader(committed=True)
        where = TopicPartition(topic, partition)
        reader.assign({where: self.writer_log.starts([where])[where]})
        return list(reader.poll(0, 1_000_000))

    def answers(self, partition: int = 0) -> list[Event]:
        """Return the records of the verdict topic, decoded."""
        return [CODEC.decode(record.value) for record in self.read(TOPICS.verdict, partition)]

    def taken(self, partition: int = 0) -> list[Taken]:
        """Return the answers to takes."""
        return [event for event in self.answers(partition) if isinstance(event, Taken)]

    def outcomes(self) -> dict[tuple[int, int], list[Outcome]]:
        """Return every verdict of every root, in order."""
        found: dict[tuple[int, int], list[Outcome]] = {}
        for partition in range(self.partitions):
            for event in self.answers(partition):
                if isinstance(event, Verdicts):
                    for root, outcome in outcomes_of(event):
                        found.setdefault(root, []).append(outcome)
        return found

    def of(self, source: int = SOURCE) -> dict[int, str]:
        """Return the one verdict of each root of a source, by position."""
        found = self.outcomes()
        twice = {root: all_of for root, all_of in found.items() if len(all_of) > 1}
        if twice:
            raise AssertionError(f"more than one verdict: {twice}")
        return {position: given[0][0] for (of, position), given in found.items() if of == source}

    def status(self) -> AckerStatus:
        """Return what the acker counts."""
        return self.acker.status()

    def quarantined(self, partition: int = 0) -> list[Record]:
        """Return the quarantined records."""
        return self.read(TOPICS.quarantine, partition)


def outcomes_of(verdicts: Verdicts) -> Iterable[tuple[tuple[int, int], Outcome]]:
    """Return root and outcome of each verdict in a record."""
    for name, runs in (("ACKED", verdicts.acked), ("ABSENT", verdicts.absent)):
        for run in runs:
            for position in range(run.start, run.end):
                yield (run.source, position), (name, "")
    for lost in verdicts.lost:
        for position in positions(lost.positions).tolist():
            yield (lost.source, position), (Verdict(lost.reason).value, lost.error)


def edge(position: int, source: int = SOURCE) -> int:
    """Return a root edge."""
    return root_edge(source, position)


__all__ = ["GROUP", "PLENTY", "SOURCE", "TOPICS", "World", "Writer", "edge", "generation_of", "replace"]
