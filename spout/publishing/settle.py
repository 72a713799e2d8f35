"""From the reports of a micro-batch's tasks to the outcome of the batch.

What could hide a lost tuple is checked instead of folded.

An *operator* is a read task's bolts, or the bolts between two shuffles; a *report* is what one task
of it did. An *evaluation* is the reports of all tasks of one stage. Spark may evaluate an operator
several times in one batch, each time with another stage or attempt:

- The newest complete evaluation *counts*: its reports say what was acked, held, released and
  touched.
- A root is failed if any evaluation failed it, also a partial one or an older attempt. Where an
  executor was lost, its rows may be those that the sink got. For the same reason a root is not
  acked if any evaluation left it open.
- In a partition that is read in order, a record is not acked either if an earlier one of its line
  failed or is not done (`spout.planning.order`).

Where two branches of one stream are joined, Spark reads the batch for each of them: the source is
evaluated twice, and the operator that holds each side once.

In this file an *index* is a root's number in the plan, from 0. Roots of earlier batches have none:
they are named by source and position.

Source: docs/design/protocol.md, section 5.2 ("The ledger goes beside the data").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from acker.errors import TrackingError
from acker.hot_paths import among, distinct
from acker.identity import I64, U64
from acker.kafka.port import DamagedRun
from acker.root_sets.root_set import RootSet
from acker.units import any_time_text
from acker.wire.causes import HELD, LATE
from acker.wire.events import SourceRun
from acker.wire.passed_calls import PassedCall
from spout.planning.order import find_blocked_behind
from spout.planning.plan import BatchPlan, PlanIndex
from spout.publishing.delayed import (
    NEVER_MS,
    HighestTime,
    KeyedRoots,
    by_key,
    indices_in,
    own_and_older,
    own_indices,
)
from spout.publishing.fold import (
    BatchOutcome,
    Missing,
    Subscriptions,
    TaskReport,
    placed,
    residuals,
)
from spout.publishing.root_marks import NO_MARKS, NUMBERED, PLANNED, RootMark, RootMarks
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import sum_of_counts
from spout.tuples.failures import Cause

_NO_ROOTS: I64 = np.empty(0, np.int64)

Reports = list[TaskReport]
"""One evaluation of an operator: the reports of the tasks of one stage."""

Stages = dict[int, Reports]
"""The evaluations of an operator, complete or not, by the number of the stage."""

Evaluations = dict[str, list[Reports]]
"""By operator, its complete evaluations, newest first: the first one counts."""

_OF_COUNTED_EVALUATIONS = [kind for kind in RootMark if kind is not RootMark.PASSED]
"""The kinds of marks that are read of evaluations that count; `PASSED` is read task by task."""

_OF_ANY_EVALUATION = [kind for kind in _OF_COUNTED_EVALUATIONS if kind.is_of_any_evaluation]
"""The kinds of marks that are read of evaluations that do not count."""


def settle(
    reports: Sequence[TaskReport],
    expected: Iterable[str],
    tasks_of: Callable[[int], int | None],
    moment: Moment | None = None,
) -> BatchOutcome:
    """Return the outcome of a batch, from all of its reports that arrived.

    Args:
        reports: of all tasks, each with the task's name.
        expected: operators behind Spark's own ones that must have been evaluated.
        tasks_of: returns how many tasks a stage had, or None when nobody remembers.
        moment: what Spark's log says of the batch; needed where tuples are held or released.

    Raises `TrackingError`: something of the batch is missing, was received twice, or was lost
    between bolts.
    """
    # 1. Choose the reports that count: of each operator those of its newest complete evaluation.
    plan, evaluations = _complete_evaluations(reports, expected, tasks_of, moment)
    newest_evaluations = [newest_first[0] for newest_first in evaluations.values()]
    _check_received(newest_evaluations, plan.count)
    counted = [report for evaluation in newest_evaluations for report in evaluation]
    counted_ids = set(map(id, counted))
    uncounted = [report for report in reports if id(report) not in counted_ids]

    # 2. Name each root by its source and position.
    index = plan.index()
    keyed_marks = [report.marks.of(RootMark.KEYED) for report in reports]
    keyed = KeyedRoots.of_marks(RootMarks.together(keyed_marks))
    counted_part = _PlacedReports.of(counted, index, keyed, _OF_COUNTED_EVALUATIONS)
    uncounted_part = _PlacedReports.of(uncounted, index, keyed, _OF_ANY_EVALUATION)

    # 3. Sum up. In reports that do not count, roots only fail or are open.
    late_ms = -1 if moment is None else moment.late_ms
    outcome = _summed(plan, counted_part, uncounted_part, late_ms)
    passed_calls = tuple(call for report in reports for call in _passed_calls(report, index, keyed))
    return replace(outcome, missing=_missing(reports, counted), passed=passed_calls)


def _complete_evaluations(
    reports: Sequence[TaskReport],
    expected: Iterable[str],
    tasks_of: Callable[[int], int | None],
    moment: Moment | None,
) -> tuple[BatchPlan, Evaluations]:
    """Return the plan of a batch, and the complete evaluations of each operator, as `settle`
    wants them.

    Raises `TrackingError`: an operator has none, or several operators have one name.
    """
    # only the report of a read task has the plan
    reads = _newest_attempts(report for report in reports if report.plan is not None)
    # reports of bolts, by operator; an operator that is found complete is moved to `complete`
    waiting = _by_operator(report for report in reports if report.plan is None)
    _refuse_namesakes_among(waiting)
    complete: Evaluations = {}
    # 1. The read tasks, and the bolts that receive their rows directly, one behind the other.
    if moment is not None and not reads and not moment.plan.ranges:
        # nothing was emitted: a watermark moved, and state was evicted
        plan, expected = moment.plan, ()
    else:
        complete_reads = _complete_reads(reads)
        newest_read = complete_reads[0][0]
        if newest_read.plan is None:
            raise TrackingError("a read task's report carries no plan")
        plan = newest_read.plan
        complete[newest_read.operator] = complete_reads
        _complete_consumers(newest_read.operator, complete, waiting)
    # 2. What comes behind Spark's own operators: bolts that are in no chain of step 1.
    behind_spark = [operator for operator, stages in waiting.items() if not _has_upstream(stages)]
    for operator in sorted({*expected, *behind_spark}):
        _refuse_namesake(operator, complete)
        complete[operator] = _complete_behind_spark(operator, waiting.get(operator, {}), tasks_of)
        _complete_consumers(operator, complete, waiting)
    return plan, complete


class _PlacedReports(NamedTuple):
    """Reports, and the marks of all of them with each root named by source and position."""

    reports: Sequence[TaskReport]
    marks: RootMarks

    @classmethod
    def of(
        cls,
        reports: Sequence[TaskReport],
        index: PlanIndex,
        keyed: KeyedRoots,
        kinds: Iterable[RootMark],
    ) -> _PlacedReports:
        """Read the marks of some kinds.

        Args:
            index: finds the roots that tasks name by index.
            keyed: finds the roots that bolts behind a keyed bolt name by number.
        """
        marks = [placed(report.marks.of(*kinds), index, keyed) for report in reports]
        return cls(reports, RootMarks.together(marks))


def _passed_calls(report: TaskReport, index: PlanIndex, keyed: KeyedRoots) -> Iterator[PassedCall]:
    """Yield the bolt calls of one task that hung or ended their process, and passed when repeated.

    A note of such a call may have been left by an earlier run of the query. So roots that this
    batch does not have are left out, and so is a call of which no root remains.
    """
    passed = report.marks.of(RootMark.PASSED)
    if not len(passed):
        return
    # not placed yet: in the column of positions are indices, or numbers of a keyed bolt
    is_in_plan = (passed.positions >= 0) & (passed.positions < index.count)
    is_planned = (passed.sources == PLANNED) & is_in_plan
    is_keyed = (passed.sources == NUMBERED) & np.isin(passed.positions, keyed.numbers)
    placed_marks = placed(passed.at(is_planned | is_keyed), index, keyed)
    for call_number in distinct(placed_marks.values).tolist():
        call = placed_marks.at(placed_marks.values == call_number)
        [cause] = call.used_causes()  # one call, so one cause
        yield PassedCall(cause.operator, cause.error, cause.message, tuple(call.roots().runs()))


def _missing(reports: Iterable[TaskReport], counted: Iterable[TaskReport]) -> Missing:
    """Return what the read tasks missed in all stages whose reports count.

    A batch is read once for each side of a join. What has left the log between the two readings is
    missing in the later one only.
    """
    counted_stages = {report.task.stage for report in counted}
    absent_runs: list[SourceRun] = []
    damaged_runs: set[DamagedRun] = set()
    lost_counts = dict.fromkeys(counted_stages, 0)
    for report in reports:
        stage = report.task.stage
        if stage in counted_stages:  # a stage without read tasks misses nothing
            absent_runs += report.missing.absent
            damaged_runs.update(report.missing.damaged)
            lost_counts[stage] += report.missing.lost_count
    return Missing(
        absent=tuple(RootSet.of_runs(absent_runs).runs()),
        # of two readings the later one misses all that the earlier one missed
        lost_count=max(lost_counts.values(), default=0),
        damaged=tuple(sorted(damaged_runs)),
    )


def namesakes(name: str) -> str:
    """Return the message that two operators have one name, with the way out."""
    return (
        f"two operators of the query are called {name!r}: one would count as another evaluation of"
        " the other, and what it left open would be acked; give one of them a name of its own"
        " (name=...). A bolt with two branches directly behind it counts as two: let them read one"
        " stream in a spout.TopologyBuilder"
    )


@dataclass(frozen=True, slots=True)
class Moment:
    """What Spark's offset log says of a batch.

    Attributes:
        late_ms: the watermark, event time, at or below which a tuple was late; -1: none was.
    """

    plan: BatchPlan
    late_ms: int


class _Held(NamedTuple):
    """The tuples that a batch handed to Spark's state, row by row.

    Attributes:
        tuples: `HELD_TUPLE` marks: the root, the edge, and as operator of the cause who holds it.
        until_ms: the event time from which on a watermark drops the tuple.
        is_dropped: whether the watermark of this batch dropped it at once.
    """

    tuples: RootMarks
    until_ms: I64
    is_dropped: npt.NDArray[np.bool_]

    @classmethod
    def of_marks(cls, marks: RootMarks, late_ms: int) -> _Held:
        """Return what the tasks held in a batch whose watermark was at `late_ms`."""
        tuples, until_ms = marks.of(RootMark.HELD_TUPLE), marks.of(RootMark.HELD_UNTIL).values
        if len(tuples) != len(until_ms):
            raise TrackingError(f"{len(tuples):,} tuples were held until {len(until_ms):,} times")
        return cls(tuples, until_ms, until_ms <= late_ms)

    def failures(self, late_ms: int) -> RootMarks:
        """Return the marks of the roots that fail since a watermark dropped their tuples."""
        failed: list[RootMarks] = []
        for holder, dropped in self.tuples.at(self.is_dropped).by_cause():
            if holder.error == LATE:
                message = f"a watermark of {any_time_text(late_ms)} dropped it"
                cause = Cause.of(holder.operator, LATE, message)
                roots = dropped.sources, dropped.positions
                failed.append(RootMarks.of_roots(RootMark.FAILED, roots, cause=cause))
        return RootMarks.together(failed)

    def highest_times(self) -> list[HighestTime]:
        """Return for each operator that held tuples the highest of their times; none without
        times.
        """
        # -1 and NEVER_MS are no times: every watermark drops the tuple, or none does
        is_timed = (self.until_ms >= 0) & (self.until_ms < NEVER_MS)
        times: list[HighestTime] = []
        for cause_number, holder in enumerate(self.tuples.causes):
            is_of_holder = self.tuples.cause_numbers == cause_number
            times_ms = np.where(is_timed & is_of_holder, self.until_ms, -1)
            if not (times_ms >= 0).any():
                continue
            # of equal times the first one
            row = int(times_ms.argmax())
            source, position = int(self.tuples.sources[row]), int(self.tuples.positions[row])
            run = SourceRun(source, position, position + 1)
            times.append(HighestTime(holder.operator, int(times_ms[row]), run, is_held=True))
        return times


def _summed(
    plan: BatchPlan,
    counted: _PlacedReports,
    uncounted: _PlacedReports,
    late_ms: int,
) -> BatchOutcome:
    """Return the outcome of a batch, without what is `missing`, `raised` and `passed`.

    A root may be open, held and failed at once; `spout.publishing.publish` lets a failure go first.

    Args:
        counted: reports that count.
        uncounted: further reports. Roots that one of them fails are failed, and those that it
            leaves open are open; it has no other effect.
        late_ms: the watermark, event time; -1: there is none.
    """
    index = plan.index()
    # a failure counts whoever reports it, so both are split
    done = own_and_older(index, RootMarks.together([counted.marks, uncounted.marks]))

    # 1. The roots that are not complete, as indices, each with the XOR of the edges that it lacks.
    # An edge that was held and released in this batch comes twice, and so cancels itself.
    held = _Held.of_marks(counted.marks, late_ms)
    staying = held.tuples.at(~held.is_dropped) if held.is_dropped.any() else held.tuples
    held_edges = [(own_indices(index, staying), staying.edges), done.released_edges]
    outstanding = [report.outstanding for report in counted.reports]
    open_indices, open_sums = residuals(plan, outstanding, held_edges)
    held_indices = _NO_ROOTS
    if len(staying):
        held_indices = _held_indices(plan, counted.reports, held_edges, open_indices)
    left_open_elsewhere = [report.outstanding for report in uncounted.reports]
    open_indices, open_sums = _with_uncounted(plan, open_indices, open_sums, left_open_elsewhere)

    # 2. Without best-effort roots, of Storm's emit without a message id: nobody learns what becomes
    # of them.
    best_effort_indices = distinct(indices_in(index, counted.marks.of(RootMark.UNTRACKED)))
    if len(best_effort_indices):
        is_tracked = ~among(open_indices, best_effort_indices)
        open_indices, open_sums = open_indices[is_tracked], open_sums[is_tracked]

    # 3. What failed, and what is blocked behind it where a partition is read in order. The failed
    # roots are looked up in the plan only where somebody below asks for them.
    failures = RootMarks.together([done.own_failures, held.failures(late_ms)])
    reports = (*counted.reports, *uncounted.reports)
    lined = tuple(lines for report in reports for lines in report.lined)
    failed_indices = indices_in(index, failures) if lined or len(held_indices) else _NO_ROOTS
    blocked = find_blocked_behind(lined, failed_indices, open_indices, best_effort_indices)
    blocked_marks = [
        RootMarks.of_roots(RootMark.FAILED, index.roots(indices), cause=cause) for cause, indices in blocked
    ]

    # 4. One table of it all.
    if len(held_indices):
        settled_indices = distinct(np.concatenate([failed_indices, best_effort_indices]))
        held_indices = held_indices[~among(held_indices, settled_indices)]
    touched_indices = distinct(done.own_touched)
    late_indices = distinct(own_indices(index, held.tuples.at(held.is_dropped)))
    marks = [
        _failed_once(index, RootMarks.together([failures, *blocked_marks]), best_effort_indices),
        RootMarks.of_roots(RootMark.OUTSTANDING, index.roots(open_indices), open_sums),
        RootMarks.of_roots(RootMark.HELD, index.roots(held_indices)),
        RootMarks.of_roots(RootMark.TOUCHED, index.roots(touched_indices)),
        RootMarks.of_roots(RootMark.LATE, index.roots(late_indices)),
        counted.marks.of(RootMark.FIRST_EMITTED, RootMark.TRACED, RootMark.LEFT_OPEN),
        done.older,
    ]
    column_times = [time for report in counted.reports for time in report.highest_times]
    return BatchOutcome(
        plan,
        RootMarks.together(marks),
        counts=sum_of_counts(report.counts for report in counted.reports),
        errors=tuple(error for report in counted.reports for error in report.errors),
        lined=lined,
        late_count=int(held.is_dropped.sum()),
        highest_times=_highest_times([*column_times, *held.highest_times()]),
    )


def _highest_times(times: Iterable[HighestTime]) -> tuple[HighestTime, ...]:
    """Return the highest time of each column that read tasks saw, and of each `hold`."""
    highest: dict[tuple[str, bool], HighestTime] = {}
    for time in times:
        highest_so_far = highest.get((time.name, time.is_held))
        # of equal times the first one stays
        if highest_so_far is None or time.at_ms > highest_so_far.at_ms:
            highest[time.name, time.is_held] = time
    return tuple(highest.values())


def _held_indices(
    plan: BatchPlan,
    counted: Iterable[TaskReport],
    held_edges: Sequence[tuple[I64, U64]],
    open_indices: I64,
) -> I64:
    """Return the roots of which Spark's state holds a tuple after the batch, as ascending indices.

    Args:
        held_edges: roots by index, with the edges of their tuples that were held, and that were
            released again in this batch.
        open_indices: of all roots that are not complete.
    """
    # where no bolt left a tuple open, a root is not complete only because a tuple of it is held
    if not any(report.outstanding for report in counted):
        return open_indices
    held_indices, _ = residuals(plan, (), held_edges)
    return held_indices


def _with_uncounted(
    plan: BatchPlan,
    open_indices: I64,
    open_sums: U64,
    uncounted: Iterable[Mapping[Subscriptions, I64]],
) -> tuple[I64, U64]:
    """Return the open roots and their sums, with the roots that only uncounted reports left open.

    Args:
        open_indices: of the open roots, ascending.
        open_sums: of each the XOR of the edges that it lacks.
        uncounted: the deliveries that each report left open, as `TaskReport.outstanding` has them.
    """
    rows_by_path = by_key(pair for outstanding in uncounted for pair in outstanding.items())
    if not rows_by_path:
        return open_indices, open_sums
    # two reports may have left the same delivery open: taken twice, its edge would cancel itself
    distinct_rows = {path: np.unique(np.concatenate(rows), axis=0) for path, rows in rows_by_path.items()}
    indices, sums = residuals(plan, [distinct_rows])
    # what counts goes first, where it says of a root that it is open, too
    is_new = ~among(indices, open_indices)
    indices = np.concatenate([open_indices, indices[is_new]])
    sums = np.concatenate([open_sums, sums[is_new]])
    order = np.argsort(indices)
    return indices[order], sums[order]


def _newest_attempts(reads: Iterable[TaskReport]) -> dict[str, Stages]:
    """Return the reports of read tasks by branch and stage, without outdated attempts.

    A branch is the bolts that ran in the read task, with the bolt that received its rows, if any.
    Two reports of one stage with the same ranges are attempts of one task.
    """
    newest: dict[tuple[str, int, object], TaskReport] = {}
    # a later attempt overwrites an earlier one
    for report in sorted(reads, key=lambda report: report.task.attempt):
        branch = f"{report.operator} (for {report.consumer})" if report.consumer else report.operator
        newest[branch, report.task.stage, report.ranges] = report
    return _by_stage((branch, report) for (branch, _, _), report in newest.items())


def _by_operator(reports: Iterable[TaskReport]) -> dict[str, Stages]:
    """Return the reports of bolts by operator and stage, without outdated attempts.

    A task that was repeated has the same partition again. One attempt may have several reports, in
    their order.
    """
    all_attempts = list(reports)
    # by (operator, stage, partition)
    newest_attempts: dict[tuple[str, int, int], int] = {}
    for report in all_attempts:
        key = report.first_bolt, report.task.stage, report.task.partition
        newest_attempts[key] = max(report.task.attempt, newest_attempts.get(key, 0))
    newest: list[tuple[str, TaskReport]] = []
    for report in all_attempts:
        key = report.first_bolt, report.task.stage, report.task.partition
        if report.task.attempt == newest_attempts[key]:
            newest.append((report.first_bolt, report))
    return _by_stage(newest)


def _by_stage(named_reports: Iterable[tuple[str, TaskReport]]) -> dict[str, Stages]:
    """Return reports, which come with names, by name and stage."""
    reports_by_name = by_key(named_reports)
    return {
        name: by_key((report.task.stage, report) for report in reports)
        for name, reports in reports_by_name.items()
    }


def _refuse_namesake(name: str, complete: Evaluations) -> None:
    """Raise `TrackingError` if another operator of this name was found complete before."""
    if name in complete:
        raise TrackingError(namesakes(name))


def _refuse_namesakes_among(waiting: Mapping[str, Stages]) -> None:
    """Raise `TrackingError` if two operators go by one name.

    Stages of one name are evaluations of one operator: the same bolts between the same ones.
    """
    for name, stages in waiting.items():
        ways = {
            (report.operator, report.upstream, report.consumer)
            for reports in stages.values()
            for report in reports
        }
        if len(ways) > 1:
            raise TrackingError(namesakes(name))


def _has_upstream(stages: Stages) -> bool:
    """Return whether an operator receives its rows from a tracked one, and not from one of
    Spark's."""
    return any(report.upstream for reports in stages.values() for report in reports)


def _complete_reads(reads: dict[str, Stages]) -> list[Reports]:
    """Return the complete evaluations of the source, newest first: at least one.

    Raises `TrackingError`: there is none, or several branches read the batch.
    """
    if not reads:
        raise TrackingError("no read task of the batch reported: nothing of it was evaluated to its end")
    if len(reads) > 1:
        raise TrackingError(
            f"the batch was read more than once, by {' and '.join(sorted(reads))}: two branches"
            " behind one read_stream, each with bolts of its own, and a root has one first bolt."
            " Let several bolts read one stream in a spout.TopologyBuilder, or let one bolt do both"
        )
    [(branch, stages)] = reads.items()
    newest_first = [stages[stage] for stage in sorted(stages, reverse=True)]
    complete = [evaluation for evaluation in newest_first if _reports_cover_plan(evaluation)]
    if not complete:
        raise TrackingError(
            f"not every read task of {branch!r} reported: the sink evaluated a part of the batch"
            " only (take, limit, first, show); let it write the whole batch, or evaluate the whole"
            " batch first"
        )
    return complete


def _reports_cover_plan(reports: Sequence[TaskReport]) -> bool:
    """Return whether read tasks were to read the whole plan, and no position twice.

    There is at least one report, and all of them are of one plan.
    """
    plan = reports[0].plan
    shares = [run for report in reports for run in report.ranges]
    return (
        plan is not None
        and RootSet.of_runs(shares) == RootSet.of_runs(plan.ranges)
        # a position in two shares would be counted twice
        and sum(run.end - run.start for run in shares) == plan.count
    )


def _sum(prints: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of all rows, in whatever order and tasks they came."""
    return reduce(Fingerprint.plus, prints, Fingerprint())


def _complete_consumers(operator: str, complete: Evaluations, waiting: dict[str, Stages]) -> None:
    """Move the bolts that receive an operator's rows, one behind the other, from `waiting` to
    `complete`.

    An evaluation of a bolt is complete if it received the very rows that some complete evaluation
    of the operator before it emitted. A bolt that got no rows need not have been evaluated.

    Raises `TrackingError`: the rows reached no evaluation, or a bolt has the name of another
    operator.
    """
    # all reports of an operator name the same consumer; empty: Spark's operators, or the sink
    consumer = complete[operator][0][0].consumer
    while consumer:
        # of each evaluation of the operator, newest first, what it emitted
        sent = [_sum(report.sent_fingerprint for report in reports) for reports in complete[operator]]
        _refuse_namesake(consumer, complete)
        stages = waiting.pop(consumer, {})
        fed = [
            stages[stage]
            for stage in sorted(stages, reverse=True)
            if _sum(report.received_fingerprint for report in stages[stage]) in sent
        ]
        if not fed and sent[0].rows:
            raise TrackingError(
                f"bolt {consumer!r} did not receive, or not finish, the {sent[0].rows:,} tuples"
                f" that {operator!r} emitted: the sink evaluated a part of the batch only (take,"
                " limit, first, show)"
            )
        if not fed:
            return
        complete[consumer] = fed
        operator, consumer = consumer, fed[0][0].consumer


def _complete_behind_spark(
    operator: str, stages: Stages, tasks_of: Callable[[int], int | None]
) -> list[Reports]:
    """Return the complete evaluations, newest first, of a bolt behind Spark's own operators.

    Where an executor was lost between two jobs of a batch, Spark runs under the name of a new stage
    what has gone with it, and no more. So a stage with fewer tasks comes behind one with more,
    whatever its number: stage 7 with 200 tasks goes before stage 9 with 3.

    Raises `TrackingError`: there is none.
    """
    newest = sorted(stages, key=lambda stage: (len(stages[stage]), stage), reverse=True)
    # a stage of which nobody remembers how many tasks it had is taken for complete
    complete = [stages[stage] for stage in newest if tasks_of(stage) in (None, len(stages[stage]))]
    if not complete:
        raise TrackingError(
            f"bolt {operator!r} was not evaluated to its end in this batch (take, limit, or a sink"
            " that does not use its rows): its roots would be acked without it. Of branches that a"
            " union brings together only one may have bolts; let several read one stream in a"
            " spout.TopologyBuilder"
        )
    return complete


def _check_received(evaluations: Iterable[Sequence[TaskReport]], count: int) -> None:
    """Raise `TrackingError` if first bolts behind Spark's operators received a root twice.

    `count`: how many roots the batch has.
    """
    is_received = np.zeros(count, np.bool_)
    for reports in evaluations:
        for report in reports:
            if report.received is None:
                continue
            # a task's bitmap ends with the last root that it received; a view, so that `|=` writes
            is_received_before = is_received[: len(report.received)]
            if (is_received_before & report.received).any():
                root = int(np.flatnonzero(is_received_before & report.received)[0])
                raise TrackingError(
                    f"bolt {report.operator!r} received a root twice (number {root} of the batch):"
                    " explode, union or two branches stand before it; put the bolt directly behind"
                    " read_stream"
                )
            is_received_before |= report.received


def _failed_once(index: PlanIndex, failed: RootMarks, best_effort_indices: I64) -> RootMarks:
    """Return one mark for each failed root: by the first of its causes, as they ascend.

    A root that only waited for others, `HELD`, has that cause if it has no other. Best-effort roots
    have no mark.
    """
    if not len(failed):
        return NO_MARKS
    # causes are compared by their ranks, all rows at once: a batch may fail each of its records
    # with a message of its own
    causes = sorted(failed.causes, key=lambda cause: (cause.error == HELD, cause))
    ranks_by_cause = {cause: rank for rank, cause in enumerate(causes)}
    ranks_of_causes = np.array([ranks_by_cause[cause] for cause in failed.causes], np.int32)
    ranks = ranks_of_causes[failed.cause_numbers]
    order = np.argsort(ranks, kind="stable")
    # `unique` returns the first row of each root, which is of the first of its causes
    indices, first_rows = np.unique(indices_in(index, failed)[order], return_index=True)
    is_tracked = ~among(indices, best_effort_indices)
    ranks_of_roots = ranks[order][first_rows[is_tracked]]
    failed_roots = index.roots(indices[is_tracked])
    return RootMarks.of_causes(RootMark.FAILED, failed_roots, ranks_of_roots, causes)
