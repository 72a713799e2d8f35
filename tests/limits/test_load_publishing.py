"""What the driver does for a micro-batch, when many records fail, of many partitions, each in its own way."""

from __future__ import annotations

import numpy as np

from acker.identity import root_edges, source_of
from acker.wire.causes import TEXT_BYTES_MAX
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import SourceRun, positions
from spout.planning.plan import BatchPlan
from spout.publishing.fold import TaskReport, outstanding_marks
from spout.publishing.publish import CAUSES_MAX, BatchLane, publication_of
from spout.publishing.root_marks import RootMark
from spout.publishing.settle import settle
from spout.tuples.failures import Cause, cause_of
from tests.support.cpu_time import within
from tests.support.outcomes import failed_by_cause, outcome_from
from tests.support.reports import failures_of, reported, task_report

PARTITIONS = 1_000
LANE = BatchLane("query/s1", 7)


def plan_of(partitions: int, records: int) -> BatchPlan:
    """Plan so many records of each partition."""
    runs = tuple(SourceRun(source_of(1, p), 100, 100 + records) for p in range(partitions))
    return BatchPlan("g", "s1", 1, 4, 0, 30_000, True, runs)


def test_every_record_of_a_batch_may_fail_with_a_message_of_its_own() -> None:
    """A parser's messages quote what they could not read: 30,000 records, as many causes.

    To sort them out took minutes, in which the batch's own roots timed out.
    """
    plan = plan_of(4, 7_500)
    failures = failures_of((i, Cause("parse", "ValueError", f"bad line {i:06}")) for i in range(plan.count))
    report = task_report("parse", plan=plan, ranges=plan.ranges, failures=failures)
    with within(cpu_seconds=10):
        outcome = settle([reported(0, 0, 0, report)], (), lambda _stage: 1)
        publication = publication_of(outcome, LANE)
    named = [positions(cause.positions) for fails in publication.fails for cause in fails.causes]
    assert sum(map(len, named)) == plan.count
    assert max(len(fails.causes) for fails in publication.fails) == CAUSES_MAX
    assert publication.acks == ()


def test_a_root_that_fails_for_several_causes_stands_under_the_first() -> None:
    """In the order of the causes, however many there are."""
    plan = plan_of(1, 5_000)
    causes = [Cause("a", "E", f"{n:04}") for n in range(5_000)]
    failures = failures_of((i, causes[n]) for n in range(5_000) for i in (n, 4_999 - n))
    report = task_report("a", plan=plan, ranges=plan.ranges, failures=failures)
    outcome = settle([reported(0, 0, 0, report)], (), lambda _stage: 1)
    assert [(cause.message, roots.tolist()) for cause, roots in failed_by_cause(outcome)] == [
        (f"{n:04}", sorted((n, 4_999 - n))) for n in range(2_500)
    ]


def test_failures_and_holes_in_a_thousand_partitions_are_published_in_one_pass() -> None:
    """3,000 causes and 100,000 holes took 35 s: each was looked for in each partition."""
    plan = plan_of(PARTITIONS, 1_000)
    failed = np.arange(0, plan.count, 333)
    causes = tuple((Cause("b", "E", f"{n:05}"), failed[n : n + 1]) for n in range(len(failed)))
    holes = tuple(SourceRun(r.source, at, at + 1) for r in plan.ranges for at in range(r.start, r.end, 10))
    left = np.setdiff1d(failed, np.arange(0, plan.count, 10))
    causes = tuple((cause, roots) for cause, roots in causes if roots[0] in left)
    with within(cpu_seconds=10):
        publication = publication_of(outcome_from(plan, causes, holes), LANE)
    assert len(publication.acks) == PARTITIONS
    assert sum(run.end - run.start for record in publication.acks for run in record.absent) == len(holes)
    said = sum(run.end - run.start for record in publication.acks for run in record.runs)
    assert said == plan.count - len(holes) - len(left)


def test_a_million_open_roots_of_a_thousand_partitions_are_published_with_their_values() -> None:
    """Edges of all roots and what they lack; looking at each root once for each partition took a minute."""
    plan = plan_of(PARTITIONS, 1_000)
    every = np.arange(plan.count)
    rows = np.stack([every, np.zeros_like(every)], axis=1)
    with within(cpu_seconds=10):
        lacking = outstanding_marks(plan.index(), [TaskReport("b", outstanding={(5,): rows})])
        residual = lacking.summed(RootMark.OPEN).edges
        publication = publication_of(
            outcome_from(plan, partial=every, residual=residual, touched=every), LANE
        )
    assert len(publication.acks) == PARTITIONS
    last = publication.acks[-1]
    assert (last.source, positions(last.positions).tolist()) == (plan.ranges[-1].source, [*range(100, 1_100)])
    edges = root_edges(last.source, positions(last.positions))
    assert np.array_equal(np.frombuffer(last.values, "<u8") ^ residual[-1_000:], edges)
    assert last.touched == last.positions


def test_an_exception_with_an_endless_name_does_not_burst_a_record() -> None:
    """Classes may be made at run time: 256 causes of a full block stay below the wire's limit."""
    endless = type("E" * 5_000, (Exception,), {})
    plan = plan_of(1, 1 << 15)
    causes = tuple(
        (cause_of("split", endless(f"{n:04}" + "é" * 500)), np.arange(n, plan.count, 300)) for n in range(300)
    )
    [first, *_] = publication_of(outcome_from(plan, causes), LANE).fails
    assert len(first.causes[0].error) <= TEXT_BYTES_MAX
    assert len(wire_codec().encode(first)) < RECORD_BYTES_MAX
