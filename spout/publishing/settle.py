"""From the reports of a micro-batch's tasks to the outcome of the batch.

What could hide a lost tuple is checked instead of folded.

Spark may evaluate an operator several times in one batch. Each evaluation reports, with another
stage or attempt:

- The newest complete evaluation *counts*: its reports say what was acked, held, released and
  touched.
- A root is failed if any evaluation failed it, also a partial one or an older attempt. Where an
  executor was lost, its rows may be those that the sink got. For the same reason a root is not
  acked if any evaluation left it open.
- In a partition that is read in order, a record is not acked either if an earlier one of its line
  failed or is not done (`spout.planning.order`).

Where two branches of one stream are joined, Spark reads the batch for each of them: the source is
evaluated twice, and the operator that holds each side once.

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
from spout.planning.order import behind
from spout.planning.plan import BatchPlan, PlanIndex
from spout.publishing.delayed import (
    NEVER_MS,
    HighestTime,
    KeyedRoots,
    by_key,
    indices_in,
    own_indices,
    split,
)
from spout.publishing.fold import (
    BatchOutcome,
    Evaluated,
    Subscriptions,
    TaskReport,
    placed,
    residuals,
)
from spout.publishing.root_marks import NO_MARKS, NUMBERED, PLANNED, RootMark, RootMarks
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import added
from spout.tuples.failures import Cause

_NO_ROOTS: I64 = np.empty(0, np.int64)

Reports = list[TaskReport]
"""The reports of one evaluation of an operator: of the tasks of one stage."""

Stages = dict[int, Reports]
"""The evaluations of an operator, complete or not, by the number of the stage."""

_OF_COUNTED_EVALUATIONS = [kind for kind in RootMark if kind is not RootMark.PASSED]
"""Calls that passed are read task by task."""

_OF_ANY_EVALUATION = [kind for kind in _OF_COUNTED_EVALUATIONS if kind.is_of_any_evaluation]

Evaluations = dict[str, list[Reports]]
"""The complete evaluations of each operator, newest first: the first one counts."""


def settle(
    evaluations: Sequence[Evaluated],
    expected: Iterable[str],
    tasks_of: Callable[[int], int | None],
    moment: Moment | None = None,
) -> BatchOutcome:
    """Return the outcome of a batch, from all of its reports that arrived.

    Args:
        evaluations: the reports, each with Spark's name of its task.
        expected: operators behind Spark's own ones that must have been evaluated.
        tasks_of: how many tasks a stage had, or None when nobody remembers.
        moment: what Spark's log says of the batch; needed where tuples are held or released.

    Raises `TrackingError`: something of the batch is missing, was received twice, or was lost
    between bolts.
    """
    # 1. Sort the reports. Only that of a read task has the plan.
    reads = _newest_attempts(read for read in evaluations if read.report.plan is not None)
    waiting = _by_operator(bolt for bolt in evaluations if bolt.report.plan is None)
    _refuse_namesakes_among(waiting)
    reports = [evaluation.report for evaluation in evaluations]
    keyed_marks = [report.marks.of(RootMark.KEYED) for report in reports]
    keyed = KeyedRoots.of_marks(RootMarks.together(keyed_marks))

    # 2. Find the complete evaluations of each operator: from the source on, then behind Spark's
    # operators.
    complete: Evaluations = {}
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
    reported = [operator for operator, stages in waiting.items() if not _has_upstream(stages)]
    for operator in sorted({*expected, *reported}):
        _refuse_namesake(operator, complete)
        complete[operator] = _complete_behind_spark(operator, waiting.get(operator, {}), tasks_of)
        _complete_consumers(operator, complete, waiting)
    _check_received([stages[0] for stages in complete.values()], plan.count)

    # 3. Sum up. The newest evaluation of each operator counts; in the others, roots only fail or
    # are open.
    counted = [report for stages in complete.values() for report in stages[0]]
    counted_ids = set(map(id, counted))
    uncounted = [report for report in reports if id(report) not in counted_ids]
    index = plan.index()
    outcome = _summed(
        plan,
        _Evaluation.of(counted, index, keyed, _OF_COUNTED_EVALUATIONS),
        _Evaluation.of(uncounted, index, keyed, _OF_ANY_EVALUATION),
        -1 if moment is None else moment.late_ms,
    )
    missing = _missing(evaluations, counted)
    passed_calls = tuple(call for report in reports for call in _passed_calls(report, index, keyed))
    return replace(
        outcome,
        absent=missing.absent,
        lost=missing.lost_count,
        damaged=missing.damaged,
        passed=passed_calls,
    )


class _Evaluation(NamedTuple):
    """Reports, and the marks of all of them, which name each root by its position."""

    reports: Sequence[TaskReport]
    marks: RootMarks

    @classmethod
    def of(
        cls,
        reports: Sequence[TaskReport],
        index: PlanIndex,
        keyed: KeyedRoots,
        kinds: Iterable[RootMark],
    ) -> _Evaluation:
        """Put the marks of some kinds together."""
        marks = [placed(report.marks.of(*kinds), index, keyed) for report in reports]
        return cls(reports, RootMarks.together(marks))


def _passed_calls(report: TaskReport, index: PlanIndex, keyed: KeyedRoots) -> Iterator[PassedCall]:
    """Yield the calls of one task that passed when they came again, with the positions of their
    roots.

    A former life of the query may have left the note of such a call: roots that this batch does not
    have are left out, and a call of which no root remains is, too.
    """
    passed = report.marks.of(RootMark.PASSED)
    if not len(passed):
        return
    is_in_plan = (passed.positions >= 0) & (passed.positions < index.count)
    is_planned = (passed.sources == PLANNED) & is_in_plan
    is_keyed = (passed.sources == NUMBERED) & np.isin(passed.positions, keyed.numbers)
    passed = placed(passed.at(is_planned | is_keyed), index, keyed)
    for call_number in distinct(passed.values).tolist():
        call = passed.at(passed.values == call_number)
        [cause] = call.used_causes()
        yield PassedCall(cause.operator, cause.error, cause.message, tuple(call.roots().runs()))


class _Missing(NamedTuple):
    """What read tasks did not find, or could not read.

    Attributes:
        absent: positions without a record.
        lost_count: how many of `absent` have left the log since the batch was planned.
        damaged: offsets that could not be read.
    """

    absent: tuple[SourceRun, ...]
    lost_count: int
    damaged: tuple[DamagedRun, ...]


def _missing(evaluations: Sequence[Evaluated], counted: Iterable[TaskReport]) -> _Missing:
    """Return what some evaluation of the source missed that counts, or that feeds one that does.

    Both sides of a join read the batch, and what has left the log in between only one of them has
    seen.
    """
    counted_ids = set(map(id, counted))
    stages = {evaluation.stage for evaluation in evaluations if id(evaluation.report) in counted_ids}
    # only a report of a read task has the plan
    reads = [read for read in evaluations if read.stage in stages and read.report.plan is not None]
    lost_counts = [sum(read.report.lost for read in reads if read.stage == stage) for stage in stages]
    absent = RootSet.of_runs(run for read in reads for run in read.report.absent)
    damaged = {run for read in reads for run in read.report.damaged}
    return _Missing(
        absent=tuple(absent.runs()),
        # of two evaluations the later one misses all that the earlier one missed
        lost_count=max(lost_counts, default=0),
        damaged=tuple(sorted(damaged)),
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
    """What Spark's offset log says of a batch: its plan, and the watermark at which tuples were
    late, ms."""

    plan: BatchPlan
    late_ms: int


class _Held(NamedTuple):
    """The tuples that a batch handed to Spark's state.

    Attributes:
        tuples: the mark of each, with its edge.
        until_ms: of each the event time from which on a watermark drops it.
        is_dropped: whether a watermark dropped it at once.
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
        """Return for each operator that held tuples with a time the highest of these."""
        # what no watermark drops, or each one does, has no time
        is_timed = (self.until_ms >= 0) & (self.until_ms < NEVER_MS)
        times: list[HighestTime] = []
        for cause_number, holder in enumerate(self.tuples.causes):
            is_of_holder = self.tuples.cause_numbers == cause_number
            times_ms = np.where(is_timed & is_of_holder, self.until_ms, -1)
            if not (times_ms >= 0).any():
                continue
            row = int(times_ms.argmax())
            source, position = int(self.tuples.sources[row]), int(self.tuples.positions[row])
            run = SourceRun(source, position, position + 1)
            times.append(HighestTime(holder.operator, int(times_ms[row]), run, is_held=True))
        return times


def _summed(
    plan: BatchPlan,
    counted: _Evaluation,
    uncounted: _Evaluation,
    late_ms: int,
) -> BatchOutcome:
    """Return the outcome of reports.

    Roots that a report of `uncounted` fails are failed, and those that it leaves open are open; it
    has no other effect. Where a root has several fates, `spout.publishing.publish` lets a failure
    go first.
    """
    index = plan.index()
    released = split(index, RootMarks.together([counted.marks, uncounted.marks]))

    # 1. Which roots are not complete: a tuple that was held and released in this batch cancels
    # itself.
    held = _Held.of_marks(counted.marks, late_ms)
    staying = held.tuples.at(~held.is_dropped) if held.is_dropped.any() else held.tuples
    held_edges = [(own_indices(index, staying), staying.edges), released.edges]
    outstanding = [report.outstanding for report in counted.reports]
    open_roots, open_sums = residuals(plan, outstanding, held_edges)
    held_roots = _held_roots(plan, counted.reports, held_edges, open_roots) if len(staying) else _NO_ROOTS
    open_roots, open_sums = _with_uncounted(
        plan, open_roots, open_sums, [report.outstanding for report in uncounted.reports]
    )

    # 2. Best-effort roots, of Storm's emit without a message id: nobody learns what becomes of
    # them.
    untracked = distinct(indices_in(index, counted.marks.of(RootMark.UNTRACKED)))
    if len(untracked):
        is_tracked = ~among(open_roots, untracked)
        open_roots, open_sums = open_roots[is_tracked], open_sums[is_tracked]

    # 3. What failed, and what is blocked behind it where a partition is read in order.
    failures = RootMarks.together([released.failures, held.failures(late_ms)])
    reports = (*counted.reports, *uncounted.reports)
    lined = tuple(lines for report in reports for lines in report.lined)
    failed_roots = indices_in(index, failures) if lined or len(held_roots) else _NO_ROOTS
    blocked = behind(lined, failed_roots, open_roots, untracked) if lined else []
    blocked_marks = [
        RootMarks.of_roots(RootMark.FAILED, index.roots(indices), cause=cause) for cause, indices in blocked
    ]

    # 4. One table of it all.
    if len(held_roots):
        settled_roots = distinct(np.concatenate([failed_roots, untracked]))
        held_roots = held_roots[~among(held_roots, settled_roots)]
    touched_roots = distinct(released.touched)
    late_roots = distinct(own_indices(index, held.tuples.at(held.is_dropped)))
    column_times = [time for report in counted.reports for time in report.newest]
    marks = [
        _failed_once(index, RootMarks.together([failures, *blocked_marks]), untracked),
        RootMarks.of_roots(RootMark.OUTSTANDING, index.roots(open_roots), open_sums),
        RootMarks.of_roots(RootMark.HELD, index.roots(held_roots)),
        RootMarks.of_roots(RootMark.TOUCHED, index.roots(touched_roots)),
        RootMarks.of_roots(RootMark.LATE, index.roots(late_roots)),
        counted.marks.of(RootMark.FIRST_EMITTED, RootMark.TRACED, RootMark.LEFT_OPEN),
        released.older,
    ]
    return BatchOutcome(
        plan,
        RootMarks.together(marks),
        counts=added(report.counts for report in counted.reports),
        errors=tuple(error for report in counted.reports for error in report.errors),
        lined=lined,
        late=int(held.is_dropped.sum()),
        newest=_highest_times([*column_times, *held.highest_times()]),
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


def _held_roots(
    plan: BatchPlan,
    counted: Iterable[TaskReport],
    held_edges: Sequence[tuple[I64, U64]],
    open_roots: I64,
) -> I64:
    """Return the roots of which Spark's state holds a tuple after the batch, as ascending indices.

    `held_edges` are those of what was held and of what was released in the same batch, and
    `open_roots` all roots that are not complete; where bolts left nothing open, these are the ones.
    """
    if not any(report.outstanding for report in counted):
        return open_roots
    held_roots, _ = residuals(plan, (), held_edges)
    return held_roots


def _with_uncounted(
    plan: BatchPlan,
    open_roots: I64,
    open_sums: U64,
    uncounted: Iterable[Mapping[Subscriptions, I64]],
) -> tuple[I64, U64]:
    """Return the open roots and their sums, with the roots that only uncounted evaluations left
    open.

    Two of these may have left the same delivery open: it is taken once, or its edge would cancel
    itself.
    """
    parts_by_path = by_key(pair for outstanding in uncounted for pair in outstanding.items())
    if not parts_by_path:
        return open_roots, open_sums
    distinct_rows = {path: np.unique(np.concatenate(rows), axis=0) for path, rows in parts_by_path.items()}
    roots, sums = residuals(plan, [distinct_rows])
    is_further = ~among(roots, open_roots)
    roots = np.concatenate([open_roots, roots[is_further]])
    sums = np.concatenate([open_sums, sums[is_further]])
    order = np.argsort(roots)
    return roots[order], sums[order]


def _newest_attempts(evaluations: Iterable[Evaluated]) -> dict[str, Stages]:
    """Return the reads by branch and stage; of a share that a stage read twice the newest attempt.

    A branch is the pass that ran in the read task, with the bolt that received its rows, if any.
    """
    newest: dict[tuple[str, int, object], TaskReport] = {}
    # a later attempt overwrites an earlier one
    for evaluation in sorted(evaluations, key=lambda evaluation: evaluation.attempt):
        report = evaluation.report
        branch = f"{report.operator} (for {report.consumer})" if report.consumer else report.operator
        newest[branch, evaluation.stage, report.ranges] = report
    return _by_stage((branch, stage, report) for (branch, stage, _), report in newest.items())


def _by_operator(evaluations: Iterable[Evaluated]) -> dict[str, Stages]:
    """Return the reports by operator and stage; of a partition that was repeated the newest
    attempt's.

    One attempt may have several reports, in their order.
    """
    repeated = list(evaluations)
    newest: dict[tuple[str, int, int], int] = {}
    for evaluation in repeated:
        key = evaluation.report.head, evaluation.stage, evaluation.partition
        newest[key] = max(evaluation.attempt, newest.get(key, 0))
    reports: list[tuple[str, int, TaskReport]] = []
    for evaluation in repeated:
        operator = evaluation.report.head
        if evaluation.attempt == newest[operator, evaluation.stage, evaluation.partition]:
            reports.append((operator, evaluation.stage, evaluation.report))
    return _by_stage(reports)


def _by_stage(reports: Iterable[tuple[str, int, TaskReport]]) -> dict[str, Stages]:
    """Return reports by name and stage; each comes with both."""
    by_name = by_key((name, (stage, report)) for name, stage, report in reports)
    return {name: by_key(pairs) for name, pairs in by_name.items()}


def _refuse_namesake(name: str, complete: Evaluations) -> None:
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
    complete = [stages[stage] for stage in sorted(stages, reverse=True) if _reports_cover_plan(stages[stage])]
    if not complete:
        raise TrackingError(
            f"not every read task of {branch!r} reported: the sink evaluated a part of the batch"
            " only (take, limit, first, show); let it write the whole batch, or evaluate the whole"
            " batch first"
        )
    return complete


def _reports_cover_plan(reports: Sequence[TaskReport]) -> bool:
    """Return whether the shares of read tasks are the whole plan, and no position is in two.

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
    return reduce(Fingerprint.plus, prints, Fingerprint())


def _complete_consumers(operator: str, complete: Evaluations, waiting: dict[str, Stages]) -> None:
    """Move the bolts that receive an operator's rows, one behind the other, from `waiting` to
    `complete`.

    An evaluation of a bolt is complete if it received the very rows that some complete evaluation
    of the operator before it emitted. A bolt that got no rows need not have been evaluated.

    Raises `TrackingError`: the rows reached no evaluation, or a bolt has the name of another
    operator.
    """
    while consumer := complete[operator][0][0].consumer:
        gave = [_sum(report.gave for report in reports) for reports in complete[operator]]
        _refuse_namesake(consumer, complete)
        stages = waiting.pop(consumer, {})
        fed = [
            stages[stage]
            for stage in sorted(stages, reverse=True)
            if _sum(report.took for report in stages[stage]) in gave
        ]
        if not fed and gave[0].rows:
            raise TrackingError(
                f"bolt {consumer!r} did not receive, or not finish, the {gave[0].rows:,} tuples"
                f" that {operator!r} emitted: the sink evaluated a part of the batch only (take,"
                " limit, first, show)"
            )
        if not fed:
            return
        complete[consumer] = fed
        operator = consumer


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
    """Raise `TrackingError` if first bolts behind Spark's operators received one of `count` roots
    twice."""
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


def _failed_once(index: PlanIndex, failed: RootMarks, best_effort: I64) -> RootMarks:
    """Return one mark for each failed root: by the first of its causes, as they ascend.

    A root that only waited for others, `HELD`, has that cause if it has no other. Best-effort roots
    have no mark. One pass over all of them: a batch may fail each of its records with a message of
    its own.
    """
    if not len(failed):
        return NO_MARKS
    causes = sorted(failed.causes, key=lambda cause: (cause.error == HELD, cause))
    ranks_by_cause = {cause: rank for rank, cause in enumerate(causes)}
    ranks_of_causes = np.array([ranks_by_cause[cause] for cause in failed.causes], np.int32)
    ranks = ranks_of_causes[failed.cause_numbers]
    order = np.argsort(ranks, kind="stable")
    # `unique` returns the first row of each root, which is of the first of its causes
    roots, first_rows = np.unique(indices_in(index, failed)[order], return_index=True)
    is_tracked = ~among(roots, best_effort)
    ranks_of_roots = ranks[order][first_rows[is_tracked]]
    failed_roots = index.roots(roots[is_tracked])
    return RootMarks.of_causes(RootMark.FAILED, failed_roots, ranks_of_roots, causes)
