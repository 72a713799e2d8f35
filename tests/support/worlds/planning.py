"""A whole group in memory: topics, an acker, and planning processes, driven step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acker.config.topics import Topics, parse
from acker.errors import Unreachable
from acker.identity import WIRE_BLOCK_BITS, acker_partition, source_of
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.root_sets.root_set import RootSet
from acker.service.service import AckerService
from acker.wire.causes import LATE
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
    Verdicts,
    pack_positions,
)
from replay.worker.service import ReplayService
from spout.group.opening import GrantEpoch
from spout.group.presence import Who
from spout.group.sources import PlannerSpec
from spout.inspect.operate import GroupSession, RewindTarget, moves_of_rewind
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning_process.planner import Planner
from spout.publishing.fold import BatchOutcome, LateNote
from spout.publishing.publish import BatchLane, Publisher, publication_of
from spout.streaming.options import plan_between
from spout.tuples.failures import Cause, cause_of
from spout.tuples.raised import Tracebacks, first_of_each
from tests.support.memory.cluster import Faults, MemoryCluster
from tests.support.outcomes import outcome_from

WALL_MS = 1_800_000_000_000
STEP_MS = 100
WHO = Who("web-1", "words", 4711, WALL_MS)
COPIES = source_of(1, 0, replay=True)
"""The source of the copies on partition 0 of the replay topic."""
READY_STEPS_MAX = 150
"""Longer than the silence that lets a group be taken whose holder died."""
FLUSH_MS = 30_000
"""On a real broker; in memory nothing waits."""


def yaml_of(**settings: object) -> str:
    """Return a topics.yaml with one input of two partitions, `sentences`, that has further settings."""
    head = "acker: {partitions: 3}\ninputs:\n  sentences:\n    id: 1\n    group: g\n    partitions: 2\n"
    return head + "".join(f"    {name}: {value}\n" for name, value in settings.items())


YAML = yaml_of(timeout="4s", max_spout_pending="200000")


class FlushesLeft:
    """Lets a number of flushes succeed, and then no more."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    def before(self, operation: str) -> None:
        """Refuse a flush too many."""
        if operation == "flush":
            self.left -= 1
            if self.left < 0:
                raise Unreachable("the broker is gone")

    def after(self, operation: str) -> None:
        """Do nothing."""


class World:
    """One cluster, one acker, any number of planning processes.

    Attributes:
        query: what its lanes begin with.
        session: what its sessions begin with.
        spouts_ahead_ms: how far the clock of the planning processes is ahead of the broker's.
    """

    query = "q"
    session = "s"
    spouts_ahead_ms = 0

    def __init__(self, text: str = YAML, cluster: MemoryCluster | None = None, published: int = 0) -> None:
        """Create the topics of a topics.yaml, unless a cluster has them, and start an acker.

        `published`: how many batches were published on that cluster before.
        """
        self.topics: Topics = parse(text, file="topics.yaml", environ={})
        if cluster is None:
            cluster = MemoryCluster(WALL_MS)
            for name in self.topics.ack_topics.names():
                cluster.create_topic(name, self.topics.acker.partitions)
            for found in self.topics.inputs.values():
                for topic in (found.topic, found.replay_topic, found.dead_letter.topic):
                    if not cluster.log().topics([topic]):  # one's dead letters may be read by another
                        cluster.create_topic(topic, found.partitions or 1)
        self.cluster = cluster
        self.log: Log = self.cluster.log()
        self.planners: list[Planner] = []
        self.told: list[str] = []
        self.advice: list[object] = []
        self._names = 0
        self._seq = published
        self.replays: ReplayService | None = None
        self.start_acker()

    @property
    def now_ms(self) -> int:
        """Wall time."""
        return self.cluster.now_ms

    @property
    def spouts_ms(self) -> int:
        """Wall time by the clock of the planning processes."""
        return self.now_ms + self.spouts_ahead_ms

    def start_acker(self) -> None:
        """Start an acker."""
        names = self.topics.ack_topics
        settings = self.topics.acker
        self.acker: AckerService | None = AckerService(
            self.cluster.log(), names, settings.partitions, group=settings.group, limits=settings.limits
        )

    def kill_acker(self) -> None:
        """Let the acker die wherever it is; its place in the group is gone after the group's timeout."""
        if self.acker is not None:
            self.acker._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
        self.acker = None

    def start_replays(self) -> None:
        """Start a replay worker."""
        self.replays = ReplayService(self.cluster.log(), self.topics, jitter=lambda: 0.0)

    def stop_replays(self) -> None:
        """Stop the replay worker as a signal does."""
        assert self.replays is not None
        self.replays.close()
        self.replays = None

    def produce(
        self, count: int, *, topic: str = "sentences", partition: int = 0, keys: Sequence[bytes | None] = ()
    ) -> None:
        """Append records to a topic, with keys that come in turn."""
        producer = self.log.producer()
        for number in range(count):
            key = keys[number % len(keys)] if keys else None
            producer.send(Outgoing(topic, partition, b"%d" % number, key))
        producer.flush(FLUSH_MS)

    def planner(
        self, journal: Journal = BEGINNING, *, grant_epoch: GrantEpoch | None = None, **options: Any
    ) -> Planner:
        """Open a planning process; `options` as in `make`."""
        found = self.make(**options)
        found.open(journal, self.spouts_ms, grant_epoch=grant_epoch)
        return found

    def make(
        self,
        faults: Faults | None = None,
        *,
        stops_at_ends: bool = False,
        who: Who | None = None,
        **spec: Any,
    ) -> Planner:
        """Make a planning process that is not open yet; it is stepped from now on."""
        self._names += 1
        values: dict[str, object] = {
            "inputs": tuple(self.topics.inputs.values()),
            "topics": self.topics.ack_topics,
            "partitions": self.topics.acker.partitions,
            **spec,
        }
        planner_spec = PlannerSpec(**values)  # type: ignore[arg-type]
        found = Planner(
            self.client(faults),
            planner_spec,
            new_id=f"{self.session}{self._names}",
            report=self._hear,
            who=who,
        )
        if stops_at_ends:
            found.stop_at_ends()
        self.planners.append(found)
        return found

    def client(self, faults: Faults | None) -> Log:
        """Make a client's view of the cluster."""
        return self.cluster.log(faults)

    def kill(self, planner: Planner) -> None:
        """Let a planning process die: it is stepped no more, and nothing of it is closed."""
        self.planners.remove(planner)

    def rewind(self, to: RewindTarget) -> None:
        """Let the input begin at another place, as `windhover offsets reset` does."""
        plan = moves_of_rewind(self.log, self.topics.input("sentences"), to)
        operation = GroupSession(self.cluster.log(), self.topics, "g", new_id="op", rewind=plan)
        while not operation.step(self.now_ms):
            self.run(100)
        operation.finish()

    def run(self, ms: int) -> None:
        """Let time pass for all of them."""
        for _ in range(max(1, ms // STEP_MS)):
            self.cluster.now_ms += STEP_MS
            for planner in self.planners:
                planner.step(planner.poll(0), self.spouts_ms)
            if self.acker is not None:
                self.acker.step(self.now_ms)
            if self.replays is not None:
                self.replays.step(self.now_ms)

    def _hear(self, event: str, fields: Mapping[str, object]) -> None:
        """Note what a planner reports, and what it advises."""
        self.told.append(event)
        if "next_step" in fields:
            self.advice.append(fields["next_step"])

    def ready(self, journal: Journal = BEGINNING, **options: Any) -> Planner:
        """Open a planning process and let it take its group; `options` as in `make`."""
        found = self.planner(journal, **options)
        for _ in range(READY_STEPS_MAX):
            if found.is_ready:
                return found
            self.run(STEP_MS)
        raise TimeoutError("no acker answered")

    def publish(
        self,
        start: Journal,
        end: Journal,
        *,
        fail: Sequence[int] = (),
        skip: Sequence[int] = (),
        absent: Sequence[SourceRun] = (),
        of: int = 65_536,
        error: str = "ValueError",
    ) -> None:
        """Publish a batch in which every root is acked, except some.

        Args:
            start: the offset before the batch.
            end: the offset behind it.
            fail: positions of a source that fail.
            skip: positions of a source that stay open.
            absent: positions without a record in the log.
            of: the source; the first one by default.
            error: the class of the error by which they fail.
        """
        codec = wire_codec()
        producer = self.log.producer()
        names = self.topics.ack_topics
        self._seq += 1
        absent_by_block = RootSet.of_runs(absent).runs_by_block()
        for (source, block), found in RootSet.of_runs(batch_ranges(start, end)).runs_by_block().items():
            failed = [p for p in fail if any(run.start <= p < run.end for run in found) and source == of]
            left = {*fail, *skip} if source == of else set()
            gone = absent_by_block.get((source, block), ())
            left |= {position for run in gone for position in range(*run)}
            owner = acker_partition(source, block << WIRE_BLOCK_BITS, self.topics.acker.partitions)
            group = next(iter(self.topics.inputs.values())).group
            head = (f"{self.query}/{end.session}", self._seq, group, end.session, end.epoch, source, block)
            if failed:
                cause = FailCause("split", error, "boom", pack_positions(np.array(failed, np.int64)))
                producer.send(Outgoing(names.fail, owner, codec.encode(Fails(*head, (cause,)))))
            acks = Acks(
                *head, runs=_without(found, left), positions=b"", values=b"", absent=gone, touched=b"",
                touched_at=end.now,
            )  # fmt: skip
            producer.send(Outgoing(names.ack, owner, codec.encode(acks)))
        producer.flush(FLUSH_MS)

    def publish_held(
        self,
        start: Journal,
        end: Journal,
        *,
        held: Sequence[int] = (),
        left_open: Sequence[int] = (),
        late: Sequence[int] = (),
        note: LateNote | None = None,
        fails_late: bool = False,
    ) -> BatchOutcome:
        """Publish a batch as the driver does: Spark's state holds some roots, and bolts left some open.

        Roots are named by their numbers in the batch; all others are acked, `late` ones as well, unless they
        fail. `note`: what a watermark dropped.
        """
        partitions = self.topics.acker.partitions
        group = next(iter(self.topics.inputs.values())).group
        plan = plan_between(start, end, group, partitions, min(self._timeouts_ms()))
        waiting = np.array(sorted({*held, *left_open}), np.int64)
        residual = np.arange(1, len(waiting) + 1).astype(np.uint64)
        too_late = np.array(late, np.int64)
        failed = ((Cause("hold", LATE, "a watermark dropped it"), too_late),) if fails_late else ()
        outcome = outcome_from(
            plan,
            failed,
            partial=waiting,
            residual=residual,
            held=np.array(held, np.int64),
            late_roots=too_late,
        )
        self._seq += 1
        longer_ms = {one.id: one.held_longer_ms for one in self.topics.inputs.values()}
        lane = BatchLane(f"{self.query}/{end.session}", self._seq)
        publication = publication_of(outcome, lane, longer_ms, note)
        Publisher(lambda: self.log, self.topics.ack_topics).publish(publication, partitions)
        return outcome

    def publish_raised(self, start: Journal, end: Journal, errors: Mapping[int, BaseException]) -> None:
        """Publish a batch as the driver does, whose bolt `split` raised an error for some roots by number."""
        partitions = self.topics.acker.partitions
        group = next(iter(self.topics.inputs.values())).group
        plan = plan_between(start, end, group, partitions, min(self._timeouts_ms()))
        tracebacks = Tracebacks()
        failed = tuple(
            (cause_of("split", error, tracebacks), np.array([root], np.int64))
            for root, error in errors.items()
        )
        outcome = outcome_from(plan, failed, raised=first_of_each(tracebacks))
        self._seq += 1
        publication = publication_of(outcome, BatchLane(f"{self.query}/{end.session}", self._seq))
        Publisher(lambda: self.log, self.topics.ack_topics).publish(publication, partitions)

    def _timeouts_ms(self) -> list[int]:
        return [one.timeout_ms for one in self.topics.inputs.values()]

    def verdicts(self) -> list[Verdicts]:
        """Return all verdicts so far."""
        return [
            event for event in self._events(self.topics.ack_topics.verdict) if isinstance(event, Verdicts)
        ]

    def _events(self, topic: str) -> list[Event]:
        reader = self.log.reader(committed=True)
        reader.assign({TopicPartition(topic, p): 0 for p in range(self.topics.acker.partitions)})
        codec = wire_codec()
        return [codec.decode(record.value) for record in reader.poll(0, 100_000)]

    def inits(self) -> list[Init]:
        """Return all inits so far, those of one acker partition after those of another."""
        return [event for event in self._events(self.topics.ack_topics.init) if isinstance(event, Init)]

    def takes(self) -> int:
        """Count the takes so far, of all acker partitions."""
        return sum(isinstance(event, Take) for event in self._events(self.topics.ack_topics.init))

    def answers(self) -> list[Record]:
        """Return the last accepted answer of each acker partition in the log."""
        reader = self.log.reader(committed=True)
        verdict = self.topics.ack_topics.verdict
        reader.assign({TopicPartition(verdict, p): 0 for p in range(self.topics.acker.partitions)})
        codec = wire_codec()
        found: dict[int, Record] = {}
        for record in reader.poll(0, 100_000):
            event = codec.decode(record.value)
            if isinstance(event, Taken) and not event.refused:
                found[record.partition] = record
        return [found[partition] for partition in sorted(found)]

    def lost(self, reason: str) -> int:
        """Count the roots that were lost for a reason."""
        found = (lost for verdicts in self.verdicts() for lost in verdicts.lost if lost.reason == reason)
        return sum(len(lost.positions) // 8 for lost in found)

    def committed(self, topic: str = "sentences", partition: int = 0) -> int | None:
        """Return the offset that the group has committed."""
        place = TopicPartition(topic, partition)
        return self.log.committed("g", [place]).get(place)


def batch(planner: Planner, start: Journal, world: World, limit: int | None = None) -> Journal:
    """Plan a batch now."""
    return planner.plan(start, limit, world.spouts_ms)


def positions(start: Journal, end: Journal) -> list[tuple[int, int, int]]:
    """Return what a batch emits as plain tuples."""
    return [tuple(run) for run in batch_ranges(start, end)]


def _without(runs: Sequence[PositionRun], left: set[int]) -> tuple[PositionRun, ...]:
    kept: list[PositionRun] = []
    for start, end in runs:
        for position in sorted(p for p in left if start <= p < end):
            if start < position:
                kept.append(PositionRun(start, position))
            start = position + 1
        if start < end:
            kept.append(PositionRun(start, end))
    return tuple(kept)


def emit_ten(
    world: World,
    *,
    skip: Sequence[int] = (),
    fail: Sequence[int] = (),
    error: str = "ValueError",
    then_ms: int = 1_000,
) -> tuple[Planner, Journal]:
    """Let ten records be emitted, and acked but for some; return who planned them, and its batch's end.

    `error`: by which some fail; `then_ms`: how much time passes.
    """
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=skip, fail=fail, error=error)
    world.run(then_ms)
    return planner, end


def fail_first_copy_untaken(world: World, planner: Planner, end: Journal) -> None:
    """Stop the replay worker, and let the first copy of partition 0 be emitted and fail."""
    world.stop_replays()
    following = batch(planner, end, world)
    world.publish(end, following, fail=(0,), of=COPIES)
    world.run(1_000)


def world_with_one_open() -> World:
    """Return a world with ten records, of which a batch has acked all but one."""
    world = World()
    world.start_replays()
    emit_ten(world, skip=(2,))
    return world
