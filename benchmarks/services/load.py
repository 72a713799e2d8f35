"""``python -m benchmarks load``: what many roots, much at once, one that stays, and many partitions cost.

One process, no broker: a real acker on the in-memory port, real passes and publications. Each figure that can
is a ratio of two things that ran one after the other in this process, so the machine hardly matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
from rich.console import Console

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.errors import CheckFailed
from acker.identity import WIRE_BLOCK_BITS, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.root_sets.root_set import RootSet
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Init, PositionRun, SourceRun, Take, TakeSource
from benchmarks.measure import Figure, print_report
from benchmarks.services.ledger import (
    BLOCK,
    EPOCH,
    GROUP,
    SESSION,
    SOURCE,
    consecutive_positions,
    resident_bytes,
)
from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.bolts.hooks import BoltContext
from spout.execution.stage_run import StageRun
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome
from spout.publishing.publish import BatchLane, publication_of
from spout.publishing.root_marks import RootMark, RootMarks
from spout.publishing.settle import settle
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.failures import Cause
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.memory.cluster import MemoryCluster
from tests.support.reports import reported

TOPIC, TOPIC_ID = "bench", "topic-id"
FLUSH_MS = 1_000
STEPS_MAX = 1_000_000

BATCH_ROOTS = 250
"""Roots that pass a straggler in one step: so the hour has more records than a restart may read again."""

PARTITIONS = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        usual_records: records of contributions that a step finds where nothing is held up; a burst is a
            hundred times as many.
        tree_tuples: tuples of the tree.
        batch_positions: roots of the batch that is published.
        causes: of its failures.
    """

    usual_records: int = 200
    tree_tuples: int = 1_000_000
    batch_positions: int = 1_000_000
    causes: int = 10_000


class World:
    """An acker of one partition on a cluster in memory, and one session that writes to it."""

    def __init__(self, limits: AckerLimits) -> None:
        """Make the topics, start an acker and take the group."""
        self._topics = AckTopics.with_prefix("")
        self._limits = limits
        self._cluster = MemoryCluster()
        for name in self._topics.names():
            self._cluster.create_topic(name, 1, compacted=name in (self._topics.state, self._topics.due))
        self._log = self._cluster.log()
        self._producer = self._log.producer()
        self._codec = wire_codec()
        self._now_ms = 0
        self.acker = self._start()
        self.init(Take(GROUP, SESSION, EPOCH, 0, 1, (TakeSource(SOURCE, TOPIC, TOPIC_ID, 0, 0),)))
        self.settle()

    def init(self, *events: Take | Init) -> None:
        """Write to ``_ack_init``."""
        self._write(self._topics.init, events)

    def open(self, start: int, end: int) -> None:
        """Write an Init that never expires."""
        self.init(Init(GROUP, SESSION, EPOCH, 0, 0, 0, 1, TOPIC, TOPIC_ID, (SourceRun(SOURCE, start, end),)))

    def acks(self, events: Iterable[Acks]) -> None:
        """Write to ``_ack_ack``."""
        self._write(self._topics.ack, events)

    def step(self) -> bool:
        """Let the acker do one round."""
        self._now_ms += 1
        return self.acker.step(self._now_ms)

    def settle(self) -> None:
        """Let the acker do what there is to do."""
        for _ in range(STEPS_MAX):
            if not self.step():
                return

    def restart(self) -> float:
        """Let another acker take over, and return the seconds after which it has restored the partition."""
        self.acker.close()
        began = time.perf_counter()
        self.acker = self._start()
        self.settle()
        return time.perf_counter() - began

    def require_open(self, roots: int) -> None:
        """Make sure that what is measured was right.

        Raises:
            CheckFailed: another number of roots is open.
        """
        if self.acker.status().open_roots != roots:
            raise CheckFailed(f"{self.acker.status().open_roots:,} roots are open, {roots:,} should be")

    def state_bytes(self) -> int:
        """Return what ``_ack_state`` comes to when it is compacted."""
        where = TopicPartition(self._topics.state, 0)
        reader = self._log.reader(committed=True)
        reader.assign({where: self._log.starts([where])[where]})
        last = {record.key: len(record.value or b"") for record in reader.poll(0, STEPS_MAX)}
        return sum(last.values())

    def _start(self) -> AckerService:
        return AckerService(self._cluster.log(), self._topics, 1, group="bench-ackers", limits=self._limits)

    def _write(self, topic: str, events: Iterable[Take | Init | Acks]) -> None:
        for event in events:
            self._producer.send(Outgoing(topic, 0, self._codec.encode(event)))
        self._producer.flush(FLUSH_MS)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def limits() -> AckerLimits:
    """Return the default limits, with nothing to wait for."""
    return AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, retention_interval_ms=1_000)


def pending(roots: int) -> list[Figure]:
    """Open so many roots, contribute to each, restart, and complete them."""
    blocks = roots // BLOCK
    world = World(limits())
    contributions = consecutive_positions(blocks)
    world.open(0, blocks * BLOCK)
    world.settle()
    first = sum(_fold(world, part) for part in _chunks(islice(contributions, blocks)))
    restart = world.restart()
    world.require_open(blocks * BLOCK)
    second = sum(_fold(world, part) for part in _chunks(contributions))
    world.require_open(0)
    return [
        Figure("pending: millions of roots", blocks * BLOCK / 1e6, ""),
        Figure("pending: restart", restart, "s", "at most 10"),
        Figure("pending: restart to the fold before it", restart / first, "", "at most 1.5"),
        Figure("pending: verdicts", blocks * BLOCK / second / 1e6, "million/s"),
    ]


def _chunks(events: Iterator[Acks]) -> Iterator[list[Acks]]:
    while chunk := list(islice(events, 50)):
        yield chunk


def _fold(world: World, events: Sequence[Acks]) -> float:
    world.acks(events)
    return seconds_of(world.settle)


def burst(usual_records: int) -> list[Figure]:
    """Apply records as they come, and a hundred times as many that have waited."""
    each, batches = 100, 100 * usual_records
    seconds = []
    for waiting in (usual_records, batches):
        world = World(limits())
        world.open(0, each * batches)
        world.settle()
        events = (
            Acks("bench/b", seq, GROUP, SESSION, EPOCH, SOURCE, block, runs, b"", b"", (), b"", 0)
            for seq in range(batches)
            for roots in [RootSet.of_runs([(SOURCE, seq * each, seq * each + each)])]
            for (_, block), runs in roots.runs_by_block().items()
        )
        took = 0.0
        while some := list(islice(events, waiting)):
            took += _fold(world, some)
        world.require_open(0)
        seconds.append(took)
    ratio = seconds[1] / seconds[0]
    return [Figure("burst: time for a record, in a burst to usually", ratio, "", "at most 1")]


def straggler(roots: int) -> list[Figure]:
    """Let roots pass one that stays open, and the same without it; then restart."""
    found = []
    for stays in (False, True):
        world = World(limits())
        world.open(0, 1)
        run = _passing(0, 1)
        if stays:
            run = replace(run, runs=(), positions=bytes(8), values=b"\5" * 8)
        world.acks([run])
        world.settle()
        idle = resident_bytes()
        took = seconds_of(partial(_pass_by, world, roots))
        grown = resident_bytes() - idle
        world.require_open(int(stays))
        found.append((took, world.state_bytes(), grown, world.restart()))
        world.require_open(int(stays))
    (took, state, _, restart), (with_took, with_state, grown, with_restart) = found
    return [
        Figure("straggler: time for what passes, with to without", with_took / took, "", "at most 1.1"),
        Figure("straggler: bytes of State, with", with_state, "bytes"),
        Figure("straggler: bytes of State, without", state, "bytes"),
        Figure("straggler: restart, with", with_restart, "s", "at most 1"),
        Figure("straggler: restart, without", restart, "s"),
        Figure("straggler: memory grown a root that passed, with its log", max(0, grown) / roots, "bytes"),
    ]


def _passing(start: int, end: int) -> Acks:
    """Ack roots of one block."""
    run, block = PositionRun(start, end), start >> WIRE_BLOCK_BITS
    return Acks("bench/s", start, GROUP, SESSION, EPOCH, SOURCE, block, (run,), b"", b"", (), b"", 0)


def _pass_by(world: World, roots: int) -> None:
    # Batches end with blocks, so that each is one record.
    at, last = 1, 1 + roots
    while at < last:
        end = min(last, at + BATCH_ROOTS, (at // BLOCK + 1) * BLOCK)
        world.open(at, end)
        world.acks([_passing(at, end)])
        world.step()
        at = end
    world.settle()


class _Spread(BasicBolt):
    """Emit as many tuples as the input says."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        for number in range(tuple["number"]):
            collector.emit((number,))


class _Sink(BasicBolt):
    """Ack every tuple."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        pass


def tree(tuples: int) -> list[Figure]:
    """Run a million tuples through two bolts: as one tree, and as a million."""
    one = seconds_of(lambda: _outcome([tuples]))
    many = seconds_of(lambda: _outcome([1] * tuples))
    return [
        Figure("tree: a million tuples of one root", one, "s"),
        Figure("tree: the same to a million roots of one tuple", one / many, "", "at most 1"),
    ]


def _outcome(children: Sequence[int]) -> BatchOutcome:
    plan = _plan(1, len(children))
    schema = pa.schema([("number", pa.int64())])
    spread = Chain((Step("spread", _Spread(), schema),), "", "sink", AnchorForm.PACKED, (), AnchorForm.PACKED)
    sink = Chain(
        (Step("sink", _Sink(), schema),), "spread", "", AnchorForm.PACKED, spread.emitted_subscriptions
    )
    first, second = (StageRun(each.stage, BoltContext(each.name, 0, 0)) for each in (spread, sink))
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(len(children)) << ORDINAL_BITS))
    emitted = first.feed(ArrowRows(pa.RecordBatch.from_pydict({"number": children})), anchors)
    carried = Anchors(AnchorForm.PACKED, emitted.column(1), spread.emitted_subscriptions)
    second.feed(ArrowRows(emitted.select([0])), carried)
    reports = [replace(first.report(), plan=plan, ranges=plan.ranges), second.report()]
    outcome = settle([reported(stage, 0, 0, each) for stage, each in enumerate(reports)], (), lambda _: 1)
    if len(outcome.marks):
        raise CheckFailed("a tree of which all was acked did not come out as its root edge")
    return outcome


def partitions(sizes: Sizes) -> list[Figure]:
    """Publish a million roots of a thousand partitions, with ten thousand causes, and the same of four."""
    few, many = (seconds_of(partial(_publish, count, sizes)) for count in (4, PARTITIONS))
    return [
        Figure("partitions: publishing a million roots of a thousand", many, "s"),
        Figure("partitions: the same to that of four", many / few, "", "at most 10"),
    ]


def _publish(count: int, sizes: Sizes) -> None:
    plan = _plan(count, sizes.batch_positions // count)
    failed = np.linspace(0, plan.count - 1, sizes.causes).astype(np.int64)
    causes = [Cause("b", "E", f"{n:05}") for n in range(sizes.causes)]
    roots = plan.index().roots(failed)
    marks = RootMarks.of_causes(RootMark.FAILED, roots, np.arange(len(failed)), causes)
    codec = wire_codec()
    publication = publication_of(BatchOutcome(plan, marks), BatchLane("bench/p", 1))
    for fails in publication.fails:
        codec.encode(fails)
    for acks in publication.acks:
        codec.encode(acks)


def _plan(count: int, records: int) -> BatchPlan:
    runs = tuple(SourceRun(source_of(1, partition), 0, records) for partition in range(count))
    return BatchPlan(GROUP, SESSION, EPOCH, 1, 0, 0, True, runs)


def run(roots: int, *, json: bool, sizes: Sizes = Sizes()) -> int:
    """Measure all of it. Return 0."""
    console = Console(stderr=True)
    figures: list[Figure] = []
    parts: list[tuple[str, Callable[[], list[Figure]]]] = [
        (f"{roots:,} pending roots", lambda: pending(roots)),
        ("a burst of a hundred times the usual", lambda: burst(sizes.usual_records)),
        (f"a straggler, while {roots:,} roots pass", lambda: straggler(roots)),
        ("a tree of a million tuples", lambda: tree(sizes.tree_tuples)),
        ("a thousand partitions", lambda: partitions(sizes)),
    ]
    for what, measure in parts:
        console.print(f"measuring {what}", highlight=False)
        figures += measure()
    print_report(console, figures, json=json)
    return 0
