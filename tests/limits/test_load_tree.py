"""A tree of a million tuples: one root with a million descendants, through real bolts to its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError
from acker.kafka.port import Outgoing
from acker.wire.events import SourceRun
from spout.bolts.bolts import AnyBolt, BasicBolt, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.execution.stage_run import StageRun
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.fold import BatchOutcome, TaskReport
from spout.publishing.publish import BatchLane, publication_of
from spout.publishing.settle import settle
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, ORDINALS_MAX, AnchorForm, Anchors, pack
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Rows, Tuple
from tests.support.cpu_time import within
from tests.support.outcomes import failed_by_cause, open_roots_of
from tests.support.reports import reported
from tests.support.worlds.acker_world import CODEC, GROUP, SOURCE, TIMEOUT_MS, TOPICS, World

TUPLES = 1_000_000
NUMBER = pa.schema([("number", pa.int64())])
CONTEXT = BoltContext("pass", 0, 1)
ROOT = 5


class Spread(BasicBolt):
    """Emit a million tuples for one."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit every number up to the one that comes."""
        for number in range(tuple["number"]):
            collector.emit((number,))


class SpreadByHand(Bolt):
    """Emit a million tuples for one, anchored by hand."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit every number up to the one that comes, then ack it."""
        for number in range(tuple["number"]):
            self._collector.emit((number,), anchors=tuple)
        self._collector.ack(tuple)


class Drop(BasicBolt):
    """Take every tuple but a certain one."""

    output = "value string"

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Ack, or fail, the tuple."""
        if tuple["number"] == self.bad:
            raise ValueError(f"number {self.bad}")


class DropByHand(Bolt):
    """Ack every tuple but a certain one, which it forgets; or none at all."""

    output = "value string"

    def __init__(self, forgotten: int = -1, *, acks: bool = True) -> None:
        self.forgotten = forgotten
        self.acks = acks

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Ack the tuple or forget it."""
        if self.acks and tuple["number"] != self.forgotten:
            self._collector.ack(tuple)


def chain_of(bolt: AnyBolt, **about: Any) -> Chain:
    """Make a tracked chain of one bolt."""
    return Chain((Step(type(bolt).__name__, bolt, NUMBER),), **about)


def outcome_of(first: AnyBolt, second: AnyBolt, tuples: int = TUPLES) -> BatchOutcome:
    """Run a batch of ten records, one of which becomes a million, through a pass and another in two tasks."""
    plan = BatchPlan(GROUP, "s1", 1, 1, 0, TIMEOUT_MS, True, (SourceRun(SOURCE, 0, 10),))
    numbers = [tuples if row == ROOT else 1 for row in range(10)]
    rows: Rows = ArrowRows(pa.RecordBatch.from_pydict({"number": numbers}))
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(10) << ORDINAL_BITS))
    names = (type(first).__name__, type(second).__name__)
    rich = isinstance(first, Bolt)
    carry = AnchorForm.HOPS if rich else AnchorForm.PACKED
    reading = chain_of(first, arriving_form=AnchorForm.PACKED, leaving_form=carry, consumer=names[1])
    leaving = reading.emitted_subscriptions
    read = StageRun(reading.stage, CONTEXT)
    emitted = read.feed(rows, anchors)
    reports = [through_a_blob(replace(read.report(), plan=plan, ranges=plan.ranges))]
    for task in (0, 1):
        share = emitted.filter(pa.array(np.arange(emitted.num_rows) % 2 == task))
        counting = chain_of(second, arriving_form=carry, upstream=names[0], subscriptions=leaving)
        counted = StageRun(counting.stage, CONTEXT)
        for start in range(0, share.num_rows, 10_000):
            part = share.slice(start, 10_000)
            column = part.column(part.num_columns - 1)
            counted.feed(ArrowRows(part.select([0])), Anchors(carry, column, leaving))
        counted.finish()
        reports.append(through_a_blob(counted.report()))
    evaluated = [reported(min(n, 1), 0, n, report) for n, report in enumerate(reports)]
    return settle(evaluated, (), lambda stage: 1 + stage)


def through_a_blob(report: TaskReport) -> TaskReport:
    """Send a report as a task does."""
    return decode(encode(report))


def verdicts_of(outcome: BatchOutcome, *, clock: int = 0) -> dict[int, str]:
    """Publish a batch to an acker and return its verdicts."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    world.settle()
    publication = publication_of(outcome, BatchLane(writer.lane, 1))
    for topic, records in ((TOPICS.fail, publication.fails), (TOPICS.ack, publication.acks)):
        producer = world.writer_log.producer()
        for record in records:
            producer.send(Outgoing(topic, 0, CODEC.encode(record)))
        producer.flush(0)
    writer.tick(clock)
    world.settle()
    return world.of()


ACKED = dict.fromkeys(range(10), "ACKED")


def test_a_tree_of_a_million_tuples_is_acked() -> None:
    """S27: a tree of a million costs the acker what a tree of one does, its edges cancel in the tasks."""
    with within(cpu_seconds=15):
        outcome = outcome_of(Spread(), Drop())
    assert len(open_roots_of(outcome)) == 0
    assert verdicts_of(outcome) == ACKED


def test_the_last_of_a_million_tuples_fails_its_root() -> None:
    """And no other; by its own name."""
    outcome = outcome_of(Spread(), Drop(bad=TUPLES - 1))
    ((cause, roots),) = failed_by_cause(outcome)
    assert cause.message.startswith("number 999999 (test_load_tree.py:")
    assert roots.tolist() == [ROOT]
    assert verdicts_of(outcome) == ACKED | {ROOT: "FAILED"}


@pytest.mark.parametrize(("first", "tuples"), [(Spread, 300_000), (SpreadByHand, 150_000)])
def test_one_forgotten_tuple_of_very_many_keeps_its_root_open_until_it_times_out(
    first: type[Spread] | type[SpreadByHand], tuples: int
) -> None:
    """Rule 3: one edge is missing, and the value says so.

    A bolt that anchors and acks by hand does so tuple by tuple: fewer than a million go the same way.
    """
    with within(cpu_seconds=30):
        outcome = outcome_of(first(), DropByHand(forgotten=123_456), tuples)
    assert open_roots_of(outcome).tolist() == [ROOT]
    held = {at: verdict for at, verdict in ACKED.items() if at != ROOT}
    assert verdicts_of(outcome, clock=TIMEOUT_MS - 1) == held
    assert verdicts_of(outcome, clock=TIMEOUT_MS) == held | {ROOT: "TIMED_OUT"}


def test_very_many_forgotten_tuples_are_one_value() -> None:
    """The task names each delivery, the driver folds them: nothing of the tree's size is published.

    200,000 here, each by itself, as a million would be.
    """
    with within(cpu_seconds=30):
        outcome = outcome_of(Spread(), DropByHand(acks=False), 200_000)
    assert open_roots_of(outcome).tolist() == list(range(10))
    [record] = publication_of(outcome, BatchLane("q/s1", 1)).acks
    assert len(CODEC.encode(record)) < 400


def test_more_tuples_than_an_ordinal_can_count_are_refused_by_name() -> None:
    """The limit is 16,777,216 for one input of one pass; it is an error, never a wrong edge."""

    said = "bolt 'split' emitted 16,777,217 tuples for one input tuple, and there are numbers for 16,777,216"
    with pytest.raises(TrackingError, match=said):
        pack(np.zeros(1, np.int64), np.array([ORDINALS_MAX]), "split")
    assert pack(np.array([3]), np.array([ORDINALS_MAX - 1]), "split").tolist() == [(4 << ORDINAL_BITS) - 1]
