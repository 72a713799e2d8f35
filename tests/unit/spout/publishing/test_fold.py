"""Settling a batch: what must be there, what counts when it is there twice, and what fails the batch."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np
import pytest

from acker.errors import TrackingError, UsageError
from acker.identity import child_edge, root_edge
from acker.wire.events import SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskReport, outstanding_of
from spout.publishing.settle import settle
from spout.streaming.query_plan import label, refuse_namesakes
from spout.tuples.anchors import Fingerprint, fingerprint
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.failures import Cause
from spout.tuples.raised import Raised
from spout.tuples.tuple import Delivery, StreamId
from tests.support.outcomes import absent_of, failed_by_cause, open_edges_of, open_roots_of, touched_of
from tests.support.reports import changed_report, failures_of, reported, task_report

A, B = 1 << 16, 1 << 16 | 1
PLAN = BatchPlan("g", "s", 1, 4, 99, 30_000, True, (SourceRun(A, 10, 20), SourceRun(B, 5, 15)))
LEFT = task_report("split", plan=PLAN, ranges=(SourceRun(A, 10, 20),))
RIGHT = task_report("split", plan=PLAN, ranges=(SourceRun(B, 5, 15),))
BAD = Cause("split", "ValueError", "bad")


def nobody_knows(stage: int) -> None:
    """Say that the number of a stage's tasks is forgotten."""


def read(stage: int = 1, *reports: TaskReport) -> list[TaskReport]:
    """Return the read tasks of one stage."""
    return [reported(stage, n, n, report) for n, report in enumerate(reports or (LEFT, RIGHT))]


def failing(report: TaskReport, *roots: int, cause: Cause = BAD) -> TaskReport:
    """Let a report fail roots."""
    return changed_report(report, failures=failures_of((root, cause) for root in roots))


def test_a_batch_of_which_all_was_read_leaves_nothing_open() -> None:
    """S55."""
    outcome = settle(read(), (), nobody_knows)
    assert (outcome.plan, failed_by_cause(outcome), absent_of(outcome.missing)) == (PLAN, (), ())
    assert (len(open_roots_of(outcome)), len(touched_of(outcome))) == (0, 0)


@pytest.mark.parametrize("missing", [LEFT, RIGHT])
def test_a_missing_read_task_fails_the_batch(missing: TaskReport) -> None:
    """take(1) and limit leave no report, or only some."""
    with pytest.raises(TrackingError, match="take, limit"):
        settle(read(1, missing), (), nobody_knows)
    with pytest.raises(TrackingError, match="nothing of it"):
        settle([], (), nobody_knows)


def test_shares_that_cut_a_range_cover_it_together() -> None:
    halves = [SourceRun(A, 10, 14), SourceRun(A, 14, 20)]
    reports = [replace(LEFT, ranges=(halves[0],)), replace(RIGHT, ranges=(halves[1], SourceRun(B, 5, 15)))]
    assert settle(read(1, *reports), (), nobody_knows).plan == PLAN
    with pytest.raises(TrackingError):
        settle(read(1, reports[0], LEFT, RIGHT), (), nobody_knows)


def test_as_many_positions_as_planned_are_not_yet_those_that_were_planned() -> None:
    with pytest.raises(TrackingError, match="not every read task"):
        settle(read(1, LEFT, replace(RIGHT, ranges=(SourceRun(A, 20, 30),))), (), nobody_knows)


def test_the_newest_complete_evaluation_counts_and_a_failure_in_any_one_does() -> None:
    """Two actions on a batch run the bolts twice; a take after them is not complete, and may fail roots."""
    older = read(1, failing(LEFT, 3), changed_report(RIGHT, absent=(SourceRun(B, 5, 6),)))
    newer = read(2, LEFT, failing(RIGHT, 12))
    part = read(3, failing(LEFT, 1))
    outcome = settle([*part, *older, *newer], (), nobody_knows)
    assert [(cause, roots.tolist()) for cause, roots in failed_by_cause(outcome)] == [(BAD, [1, 3, 12])]
    assert absent_of(outcome.missing) == ()


def test_a_repeated_read_task_counts_once_and_what_either_attempt_failed_is_failed() -> None:
    """Rule 3: a task behind a shuffle may have read what the first wrote, without the rows of what failed."""
    first, second = reported(1, 0, 0, failing(LEFT, 1)), reported(1, 7, 0, LEFT)
    outcome = settle([first, second, reported(1, 1, 1, RIGHT)], (), nobody_knows)
    assert [roots.tolist() for _, roots in failed_by_cause(outcome)] == [[1]]


def test_of_a_repeated_read_task_the_newest_attempt_says_what_is_open() -> None:
    older, newer = (outstanding_of([Delivery(0, hops)]) for hops in ((), ((7, 0),)))
    attempts = [reported(1, 0, 0, replace(LEFT, outstanding=older))]
    attempts += [reported(1, 7, 0, replace(LEFT, outstanding=newer)), reported(1, 1, 1, RIGHT)]
    for arrived in (attempts, attempts[::-1]):
        outcome = settle(arrived, (), nobody_knows)
        assert open_edges_of(outcome).tolist() == [child_edge(root_edge(A, 10), 7, 0)]


@pytest.mark.parametrize("stages", [(1, 1), (1, 2), (2, 1), (1, 1, 1), (1, 2, 3)])
def test_what_any_run_of_a_read_task_left_open_is_not_acked(stages: tuple[int, ...]) -> None:
    """Rule 3: a task behind a shuffle may have read its rows, without those that another run emitted."""
    left = replace(LEFT, outstanding=outstanding_of([Delivery(3, ((7, 0),)), Delivery(5, ())]))
    runs = [
        reported(stage, 10 * attempt + part, part, report)
        for attempt, stage in enumerate(stages)
        for part, report in enumerate((left if attempt < len(stages) - 1 else LEFT, RIGHT))
    ]
    outcome = settle(runs, (), nobody_knows)
    edges = [child_edge(root_edge(A, 13), 7, 0), root_edge(A, 15)]
    assert (open_roots_of(outcome).tolist(), open_edges_of(outcome).tolist()) == ([3, 5], edges)


@pytest.mark.parametrize("upstream", ["", "split"], ids=["behind Spark's shuffle", "behind a grouping"])
def test_what_any_run_of_a_partition_behind_a_shuffle_left_open_is_not_acked(upstream: str) -> None:
    source = FEEDING if upstream else read()
    took = fingerprint(4, np.array([1, 2, 3, 4], np.int64)) if upstream else Fingerprint()
    fine = task_report("count", upstream, received_fingerprint=took)
    left = replace(fine, outstanding=outstanding_of([Delivery(12, ((7, 1),))]))
    runs = [reported(2, 5, 0, left), reported(2, 7, 0, left), reported(2, 9, 0, fine)]
    outcome = settle([*source, *runs], [] if upstream else ["count"], lambda stage: 1)
    assert open_roots_of(outcome).tolist() == [12]


def test_a_root_under_several_causes_stands_under_the_first() -> None:
    other = Cause("count", "KeyError", "k")
    reports = read(1, failing(LEFT, 1, 2), failing(RIGHT, 2, 3, cause=other))
    outcome = settle(reports, (), nobody_knows)
    failed = [(cause, roots.tolist()) for cause, roots in failed_by_cause(outcome)]
    assert failed == [(other, [2, 3]), (BAD, [1])]


def test_two_operators_that_read_the_batch_fail_it_by_name() -> None:
    with pytest.raises(TrackingError, match="other and split"):
        settle([*read(1), *read(2, replace(LEFT, operator="other"))], (), nobody_knows)
    branch = [replace(report, consumer="count") for report in (LEFT, RIGHT)]
    with pytest.raises(TrackingError, match=r"split and split \(for count\)"):
        settle([*read(1), *read(2, *branch)], (), nobody_knows)


GAVE = fingerprint(4, np.array([1, 2, 3, 4]))
FEEDING = read(1, replace(LEFT, consumer="count", sent_fingerprint=GAVE), replace(RIGHT, consumer="count"))


def counting(stage: int, partition: int, *anchors: int) -> TaskReport:
    """Return a task of the bolt ``count`` that received rows with these anchors."""
    took = fingerprint(len(anchors), np.array(anchors, np.int64))
    return reported(
        stage, 10 * stage + partition, partition, task_report("count", "split", received_fingerprint=took)
    )


def test_other_rows_of_the_same_number_and_sum_are_not_those_that_were_emitted() -> None:
    with pytest.raises(TrackingError, match="did not receive"):
        settle([*FEEDING, counting(2, 0, 1, 1, 4, 4)], (), nobody_knows)


def test_a_bolt_behind_a_grouping_is_complete_when_it_received_what_was_emitted() -> None:
    whole = [counting(2, 0, 4, 1), counting(2, 1, 3, 2)]
    assert failed_by_cause(settle([*FEEDING, *whole], (), nobody_knows)) == ()


@pytest.mark.parametrize(
    "received",
    [[(1, 2)], [(1, 2), (3, 5)], [(1, 2, 3, 4), (4,)], [(1, 1), (2, 2)], []],
    ids=["a task is missing", "another row", "one row twice", "other rows, as many", "nothing"],
)
def test_rows_lost_or_repeated_between_bolts_fail_the_batch(received: list[tuple[int, ...]]) -> None:
    tasks = [counting(2, n, *anchors) for n, anchors in enumerate(received)]
    with pytest.raises(TrackingError, match=r"'count' did not receive.* 4 tuples that 'split' emitted"):
        settle([*FEEDING, *tasks], (), nobody_knows)


def test_a_bolt_that_was_sent_nothing_need_not_report() -> None:
    """Adaptive execution leaves out what would be empty."""
    silent = read(1, replace(LEFT, consumer="count"), replace(RIGHT, consumer="count"))
    assert failed_by_cause(settle(silent, (), nobody_knows)) == ()


def test_a_bolt_behind_sparks_operators_must_have_finished_its_stage() -> None:
    marks = np.array([True, False, True])
    loose = [reported(2, 5, 0, task_report("split2", received=marks))]
    assert settle([*read(), *loose], ["split2"], lambda stage: 1).plan == PLAN
    for evaluations, tasks in (([*read(), *loose], 2), (read(), 1)):
        with pytest.raises(TrackingError, match="'split2' was not evaluated to its end"):
            settle(evaluations, ["split2"], lambda stage, n=tasks: n)


def test_what_a_lost_executor_took_along_is_done_again_and_the_whole_counts() -> None:
    """Rule 3: its stage is a new one, with fewer tasks; what the others left open is open all the same."""
    open_ = task_report("split2", outstanding=outstanding_of([Delivery(0, ((7, 0),))]))
    whole = [reported(2, 5, 0, open_), reported(2, 6, 1, task_report("split2"))]
    again = reported(3, 7, 1, failing(task_report("split2"), 4))
    outcome = settle([*read(), *whole, again], ["split2"], {2: 2, 3: 1}.get)
    assert open_roots_of(outcome).tolist() == [0]
    assert [roots.tolist() for _, roots in failed_by_cause(outcome)] == [[4]]


@pytest.mark.parametrize("upstream", ["", "split"], ids=["behind Spark's shuffle", "behind a grouping"])
def test_what_any_attempt_of_a_repeated_partition_behind_a_shuffle_failed_is_failed(upstream: str) -> None:
    """Rule 3: the rows of either may be those that the sink got, in whatever order the reports arrive."""
    source = FEEDING if upstream else read()
    took = fingerprint(4, np.array([1, 2, 3, 4], np.int64)) if upstream else Fingerprint()
    fine = task_report("count", upstream, received_fingerprint=took)
    fails_two = failing(fine, 3, 12)
    for older, newest in ((fine, fails_two), (fails_two, fine)):
        attempts = [reported(2, 5, 0, older), reported(2, 9, 0, newest)]
        for arrived in (attempts, attempts[::-1]):
            outcome = settle([*source, *arrived], [] if upstream else ["count"], lambda stage: 1)
            assert [root for _, roots in failed_by_cause(outcome) for root in roots.tolist()] == [3, 12]


def test_of_a_partition_behind_a_shuffle_that_was_repeated_the_newest_attempt_says_what_is_open() -> None:
    older, newer = (outstanding_of([Delivery(0, hops)]) for hops in ((), ((7, 0),)))
    first_attempt = reported(2, 0, 0, task_report("count", outstanding=newer))
    attempts = [reported(2, 5, 0, task_report("count", outstanding=older))]
    attempts += [reported(2, 9, 0, task_report("count", outstanding=newer))]
    for arrived in (attempts, attempts[::-1], [first_attempt]):
        outcome = settle([*read(), *arrived], ["count"], lambda stage: 1)
        assert open_edges_of(outcome).tolist() == [child_edge(root_edge(A, 10), 7, 0)]


def test_what_a_repeated_part_of_the_source_fails_is_failed() -> None:
    """Its rows are those that the sink got."""
    outcome = settle([*read(), *read(2, failing(RIGHT, 12))], (), nobody_knows)
    assert [roots.tolist() for _, roots in failed_by_cause(outcome)] == [[12]]


def test_an_operator_behind_sparks_that_is_called_as_another_one_fails_the_batch_by_name() -> None:
    """Rule 3: one of them would count as another evaluation of the other, and what it left open as acked."""
    says = "two operators of the query are called 'split'.*name="
    open_ = replace(LEFT, outstanding=outstanding_of([Delivery(0, ())]))
    behind = reported(2, 5, 0, task_report("split"))
    with pytest.raises(TrackingError, match=says):
        settle([*read(1, open_, RIGHT), behind], ["split"], lambda stage: 1)
    alone, chained = reported(2, 5, 0, task_report("count")), reported(3, 6, 0, task_report("count+keep"))
    with pytest.raises(TrackingError, match="two operators of the query are called 'count'"):
        settle([*read(), alone, chained], ["count"], lambda stage: 1)
    with pytest.raises(TrackingError, match="two operators of the query are called 'count'"):
        settle([*FEEDING, counting(2, 0, 1, 2, 3, 4), chained], ["count"], lambda stage: 1)


def test_a_bolt_behind_a_grouping_that_is_called_as_one_before_it_fails_the_batch_by_name() -> None:
    """Rule 3: its reports would count in place of those of the read tasks, which left a root open."""
    open_ = replace(FEEDING[1], outstanding=outstanding_of([Delivery(12, ())]))
    count = replace(counting(2, 0, 1, 2, 3, 4), consumer="split", sent_fingerprint=GAVE)
    namesake = reported(3, 30, 0, task_report("split", "count", received_fingerprint=GAVE))
    with pytest.raises(TrackingError, match="two operators of the query are called 'split'"):
        settle([FEEDING[0], open_, count, namesake], (), nobody_knows)
    renamed = replace(namesake, operator="last")
    outcome = settle([FEEDING[0], open_, replace(count, consumer="last"), renamed], (), nobody_knows)
    assert open_roots_of(outcome).tolist() == [12]


def test_a_root_that_two_first_bolts_receive_fails_the_batch_by_name() -> None:
    marks = np.array([False, True])
    twice = [reported(2, n, n, task_report("split2", received=marks)) for n in range(2)]
    with pytest.raises(TrackingError, match="'split2' received a root twice"):
        settle([*read(), *twice], (), nobody_knows)


def test_outstanding_deliveries_are_folded_by_root() -> None:
    """S28: a tuple that is not acked keeps its root from completing, and only its own."""
    held = [Delivery(0, ()), Delivery(12, ((7, 0),)), Delivery(12, ((7, 2), (9, 1)))]
    reports = read(1, replace(LEFT, outstanding=outstanding_of(held)), RIGHT)
    outcome = settle(reports, (), nobody_knows)
    twelve = root_edge(B, 7)
    left = child_edge(twelve, 7, 0) ^ child_edge(child_edge(twelve, 7, 2), 9, 1)
    assert open_roots_of(outcome).tolist() == [0, 12]
    assert open_edges_of(outcome).tolist() == [root_edge(A, 10), left]


def test_a_report_survives_its_way_to_the_driver() -> None:
    report = task_report(
        "split+upper",
        "spout",
        "count",
        plan=PLAN,
        ranges=(SourceRun(A, 10, 20),),
        absent=(SourceRun(A, 11, 12),),
        received=np.array([True, False, True]),
        failures=failures_of([(3, BAD), (4, BAD)]),
        outstanding=outstanding_of([Delivery(0, ()), Delivery(12, ((7, 2), (9, 1)))]),
        touched=np.array([1, 2]),
        received_fingerprint=Fingerprint(3, 2**64 - 1),
        sent_fingerprint=Fingerprint(1, 2),
        lost_count=7,
    )
    again = decode(encode(report))
    assert repr(again) == repr(report)


class Name(StrEnum):
    """Names that somebody gives to bolts and streams."""

    SPLIT = "split"
    ERRORS = "errors"


def test_bolts_and_streams_may_be_called_by_members_of_an_enumeration() -> None:
    """The driver reads no class of a report, and would refuse each batch."""

    def report(bolt: str, stream: str) -> TaskReport:
        counts = {Counted(What.EMITTED, bolt, StreamId(bolt, stream)): Measure(2)}
        failures = failures_of([(1, Cause(bolt, "ValueError", "bad"))])
        raised = (Raised(bolt, "ValueError", "split.py:12", "Traceback"),)
        return task_report(
            bolt, upstream=bolt, consumer=bolt, counts=counts, failures=failures, raised=raised
        )

    sent = decode(encode(report(Name.SPLIT, Name.ERRORS)))
    assert encode(sent) == encode(report("split", "errors"))
    assert type(sent.operator) is str


def test_the_report_of_a_task_without_failures_is_small() -> None:
    """A million roots must not cost a megabyte in the accumulator."""
    plan = replace(PLAN, ranges=(SourceRun(A, 0, 1_000_000),))
    assert len(encode(task_report("split", plan=plan, ranges=plan.ranges))) < 1_000
    marks = np.ones(1_000_000, np.bool_)
    assert len(encode(task_report("split", received=marks))) < 2_000


def test_a_root_that_is_best_effort_is_acked_whatever_its_bolts_did() -> None:
    """S52, S68, S77: Storm's emit without a message id: failed, or left open, it is not heard of."""
    left = replace(
        failing(LEFT, 1, 2), outstanding=outstanding_of([Delivery(3, ((7, 0),)), Delivery(4, ((7, 0),))])
    )
    outcome = settle(read(1, changed_report(left, untracked=np.array([1, 3])), RIGHT), (), nobody_knows)
    assert [(cause, roots.tolist()) for cause, roots in failed_by_cause(outcome)] == [(BAD, [2])]
    assert open_roots_of(outcome).tolist() == [4]


def test_operators_of_a_plan_are_told_apart_by_their_names() -> None:
    """A DataFrame that is used twice stands in the plan twice."""
    one, other = label("keep", "1"), label("split+keep", "2")
    refuse_namesakes([one, label("a: b #1", "3"), one])
    with pytest.raises(UsageError, match=r"two operators of the query are called 'keep'.*\(name="):
        refuse_namesakes([one, other])
    with pytest.raises(UsageError, match="called 'keep'"):
        refuse_namesakes([one, label("keep", "2")])
