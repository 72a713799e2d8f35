"""From the reports of a micro-batch's tasks to the outcome of the batch.

What could hide a lost tuple is checked instead of folded.

An *operator* is a read task's bolts, or the bolts between two shuffles; a *report* is what one task
of it did. An *evaluation* is the reports of all tasks of one stage; it is *complete* if no task and
no row is missing. Spark may evaluate an operator several times in one batch, each time with another
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

A task may name a root by its *index*, its number in the plan, from 0. Marks are *placed* when all
their roots are named by source and position. A batch's *own* roots are those in its plan; *older*
ones were emitted by earlier batches. What happens to a tuple that Spark's state *holds* is
described in `spout.publishing.delayed`; an operator that holds tuples is their *holder*.

Source: docs/design/protocol.md, section 5.2 ("The ledger goes beside the data").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from acker.errors import TrackingError
from acker.hot_paths import distinct
from acker.identity import I64, root_edges
from acker.kafka.port import DamagedRun
from acker.root_sets.root_set import NO_ROOTS, RootSet
from acker.units import any_time_text
from acker.wire.causes import HELD, LATE
from acker.wire.events import SourceRun
from acker.wire.passed_calls import PassedCall
from spout.planning.order import LinedRecords, find_blocked_behind
from spout.planning.plan import BatchPlan, PlanIndex
from spout.publishing.delayed import (
    NEVER_MS,
    HighestTime,
    by_key,
    marks_of_older,
    released_once,
)
from spout.publishing.fold import (
    BatchOutcome,
    Missing,
    TaskReport,
    outstanding_marks,
    placed,
)
from spout.publishing.root_marks import NO_MARKS, NUMBERED, PLANNED, RootMark, RootMarks
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import sum_of_counts
from spout.tuples.failures import Cause

Evaluation = list[TaskReport]
"""One evaluation of an operator: the reports of the tasks of one stage, at least one."""

Stages = dict[int, Evaluation]
"""The evaluations of an operator, complete or not, by the number of the stage."""

CompleteByOperator = dict[str, list[Evaluation]]
"""By operator, its complete evaluations, newest first: the first one counts."""

_COUNTED_KINDS: Final = tuple(kind for kind in RootMark if kind is not RootMark.PASSED)
"""The kinds of marks that are read of evaluations that count; `PASSED` is read task by task."""

_UNCOUNTED_KINDS: Final = tuple(kind for kind in _COUNTED_KINDS if kind.is_of_any_evaluation)
"""The kinds of marks that are read of evaluations that do not count."""

_OWN_AND_OLDER_KINDS: Final = (
    RootMark.FAILED,
    RootMark.TOUCHED,
    RootMark.RELEASED,
    RootMark.LEFT_OPEN,
    RootMark.HELD_ON,
)
"""The kinds of marks of which some are of the batch's own roots, and some of earlier ones."""


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
    plan, complete = _complete_evaluations(reports, expected, tasks_of, moment)
    newest_evaluations = [newest_first[0] for newest_first in complete.values()]
    _check_received(newest_evaluations, plan.count)
    counted = [report for evaluation in newest_evaluations for report in evaluation]
    # by identity, since two equal reports may be of two evaluations
    counted_ids = set(map(id, counted))
    uncounted = [report for report in reports if id(report) not in counted_ids]

    # 2. Name each root by its source and position.
    index = plan.index()
    keyed = RootMarks.together(report.marks.of(RootMark.KEYED) for report in reports)
    passed_calls = tuple(call for report in reports for call in _passed_calls(report, index, keyed))
    marks = _placed_marks(counted, index, keyed, _COUNTED_KINDS)
    uncounted_marks = _placed_marks(uncounted, index, keyed, _UNCOUNTED_KINDS)

    # 3. Sum up. Of reports that do not count, only what failed or is open is taken.
    held = _Held.of_marks(marks, plan.roots(), late_ms=-1 if moment is None else moment.late_ms)
    counted_first = (*counted, *uncounted)
    lined_records = tuple(lines for report in counted_first for lines in report.lined_records)
    column_times = [highest for report in counted for highest in report.highest_times]
    return BatchOutcome(
        plan,
        _outcome_marks(plan, marks, uncounted_marks, held, lined_records),
        missing=_missing(reports, counted),
        counts=sum_of_counts(report.counts for report in counted),
        errors=tuple(error for report in counted for error in report.errors),
        lined_records=lined_records,
        late_count=int(held.is_dropped.sum()),
        highest_times=_highest_times([*column_times, *held.highest_times()]),
        passed=passed_calls,
    )


def _complete_evaluations(
    reports: Sequence[TaskReport],
    expected: Iterable[str],
    tasks_of: Callable[[int], int | None],
    moment: Moment | None,
) -> tuple[BatchPlan, CompleteByOperator]:
    """Return the plan of a batch, and the complete evaluations of each operator.

    The arguments are those of `settle`.

    Raises `TrackingError`: an operator has no complete evaluation, or several operators have one
    name.
    """
    # only the report of a read task has the plan
    reads_by_branch = _reads_by_branch(report for report in reports if report.plan is not None)
    # an operator is taken out of `unchecked` when its evaluations were looked at
    unchecked = _bolts_by_operator(report for report in reports if report.plan is None)
    _refuse_namesakes_among(unchecked)
    complete: CompleteByOperator = {}
    # 1. The read tasks, and the bolts that receive their rows directly, one behind the other.
    if moment is not None and not reads_by_branch and not moment.plan.ranges:
        # nothing was emitted: a watermark moved, and state was evicted
        plan, expected = moment.plan, ()
    else:
        complete_reads = _complete_reads(reads_by_branch)
        newest_report = complete_reads[0][0]  # any one of the newest evaluation: all have the plan
        if newest_report.plan is None:
            raise TrackingError("a read task's report carries no plan")
        plan = newest_report.plan
        complete[newest_report.operator] = complete_reads
        _move_consumers(newest_report.operator, unchecked, complete)
    # 2. What comes behind Spark's own operators: bolts that receive the rows of no tracked one.
    behind_spark = [operator for operator, stages in unchecked.items() if not _has_upstream(stages)]
    for operator in sorted({*expected, *behind_spark}):
        _refuse_namesake(operator, complete)
        complete[operator] = _complete_behind_spark(operator, unchecked.get(operator, {}), tasks_of)
        _move_consumers(operator, unchecked, complete)
    return plan, complete


def _placed_marks(
    reports: Sequence[TaskReport], index: PlanIndex, keyed: RootMarks, kinds: Iterable[RootMark]
) -> RootMarks:
    """Return the marks of some kinds of all reports, and what they left outstanding, placed.

    Args:
        index: finds the roots that tasks name by index.
        keyed: the `KEYED` marks of all tasks, for roots that bolts name by number.
    """
    marks = RootMarks.together(report.marks for report in reports).of(*kinds)
    return RootMarks.together([placed(marks, index, keyed), outstanding_marks(index, reports)])


def _passed_calls(report: TaskReport, index: PlanIndex, keyed: RootMarks) -> Iterator[PassedCall]:
    """Yield the bolt calls of one task that hung or ended their process, and passed when repeated.

    What is known of such a call may come from an earlier run of the query. So roots that this batch
    does not have are left out, and so is a call of which no root remains.
    """
    marks = report.marks.of(RootMark.PASSED)
    if not len(marks):
        return
    # They are not placed yet. Under the pseudo source `PLANNED` the column of positions has
    # indices, and under `NUMBERED` the numbers that a keyed bolt gave the roots.
    is_in_plan = (marks.positions >= 0) & (marks.positions < index.count)
    is_planned = (marks.sources == PLANNED) & is_in_plan
    is_keyed = (marks.sources == NUMBERED) & np.isin(marks.positions, keyed.values)
    placed_marks = placed(marks.at(is_planned | is_keyed), index, keyed)
    # the value of such a mark is the number of the call, among those of the task
    for call_number in distinct(placed_marks.values).tolist():
        marks_of_call = placed_marks.at(placed_marks.values == call_number)
        [cause] = marks_of_call.used_causes()  # one call, so one cause
        runs = tuple(marks_of_call.roots().runs())
        yield PassedCall(cause.operator, cause.error, cause.message, runs)


def _missing(reports: Iterable[TaskReport], counted: Iterable[TaskReport]) -> Missing:
    """Return which records the read tasks of all stages that count did not find, or could not read.

    A batch is read once for each side of a join. What has left the log between the two readings is
    missing in the later one only. Several reports of one stage may be of the same ranges: of a task
    and its repetition, or of the two sides of a join in one stage. They count once.
    """
    counted_stages = {report.task.stage for report in counted}
    absent_sets: list[RootSet] = []
    damaged_runs: set[DamagedRun] = set()
    # by stage and ranges: the report of them that misses most
    lost_count_by_ranges: dict[tuple[int, object], int] = {}
    for report in reports:
        stage = report.task.stage
        if stage in counted_stages:  # reports of bolts have an empty `missing`
            absent_sets.append(report.missing.absent)
            damaged_runs.update(report.missing.damaged)
            key = stage, report.ranges
            lost_count = max(lost_count_by_ranges.get(key, 0), report.missing.lost_count)
            lost_count_by_ranges[key] = lost_count
    lost_counts = dict.fromkeys(counted_stages, 0)
    for (stage, _ranges), lost_count in lost_count_by_ranges.items():
        lost_counts[stage] += lost_count
    return Missing(
        # all at once: a union for each of a thousand tasks would sort those of the others again
        absent=RootSet.union_of(absent_sets),
        # of two readings the later one misses all that the earlier one missed
        lost_count=max(lost_counts.values(), default=0),
        damaged=tuple(sorted(damaged_runs)),
    )


def namesakes_message(name: str) -> str:
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
        tuples: `HELD_TUPLE` marks: the root, the edge, and as operator of the cause the holder.
        until_ms: the event time from which on a watermark drops the tuple; -1: every one does;
            `NEVER_MS`: none does.
        late_ms: the watermark of this batch, event time; -1: there is none.
        is_dropped: whether it dropped the tuple at once.
    """

    tuples: RootMarks
    until_ms: I64
    late_ms: int
    is_dropped: npt.NDArray[np.bool_]

    @classmethod
    def of_marks(cls, marks: RootMarks, planned: RootSet, late_ms: int) -> _Held:
        """Return what the tasks held in a batch, of its roots `planned`, by its watermark.

        Raises `TrackingError`: a tuple has no time, or its root is not the batch's.
        """
        tuples, until_ms = marks.of(RootMark.HELD_TUPLE), marks.of(RootMark.HELD_UNTIL).values
        if len(tuples) != len(until_ms):
            raise TrackingError(f"{len(tuples):,} tuples were held until {len(until_ms):,} times")
        if tuples.without(planned):
            raise TrackingError(
                "a task held a tuple of a root that its batch did not emit: nobody could release"
                " it; do not change anchors"
            )
        return cls(tuples, until_ms, late_ms, is_dropped=until_ms <= late_ms)

    def staying(self) -> RootMarks:
        """Return the tuples that the watermark did not drop."""
        return self.tuples.at(~self.is_dropped) if self.is_dropped.any() else self.tuples

    def dropped(self) -> RootMarks:
        """Return the tuples that the watermark dropped."""
        return self.tuples.at(self.is_dropped)

    def failures(self) -> RootMarks:
        """Return a `FAILED` mark for the root of each tuple that the watermark dropped.

        A tuple that its holder may lose without a failure has none: it counts as acked.
        """
        failed: list[RootMarks] = []
        for holder, tuples in self.dropped().by_cause():
            # the error of this cause only says whether the holder fails what is dropped
            if holder.error == LATE:
                message = f"a watermark of {any_time_text(self.late_ms)} dropped it"
                cause = Cause.of(holder.operator, LATE, message)
                roots = tuples.sources, tuples.positions
                failed.append(RootMarks.of_roots(RootMark.FAILED, roots, cause=cause))
        return RootMarks.together(failed)

    def highest_times(self) -> list[HighestTime]:
        """Return the highest time of the tuples of each holder; a holder without times has none."""
        # -1 and NEVER_MS are no times
        is_timed = (self.until_ms >= 0) & (self.until_ms < NEVER_MS)
        highest_times: list[HighestTime] = []
        for cause_number, holder in enumerate(self.tuples.causes):
            is_of_holder = self.tuples.cause_numbers == cause_number
            times_ms = np.where(is_timed & is_of_holder, self.until_ms, -1)
            if not (times_ms >= 0).any():
                continue
            row = int(times_ms.argmax())  # of equal times the first one
            source, position = int(self.tuples.sources[row]), int(self.tuples.positions[row])
            run = SourceRun(source, position, position + 1)
            highest = HighestTime(holder.operator, int(times_ms[row]), run, is_held=True)
            highest_times.append(highest)
        return highest_times


def _outcome_marks(
    plan: BatchPlan,
    marks: RootMarks,
    uncounted: RootMarks,
    held: _Held,
    lined_records: Sequence[LinedRecords],
) -> RootMarks:
    """Return what became of the roots of a batch, and of older ones, as one table.

    A root may be open, held and failed at once; `spout.publishing.publish` lets a failure go first.

    Args:
        marks: of reports that count, placed.
        uncounted: of further reports, placed. Roots that one of them fails are failed, and those
            that it leaves open are open; it has no other effect.
        held: what the batch handed to Spark's state.
        lined_records: of the partitions that are read in order.
    """
    # a failure counts whoever reports it, so the marks of all are divided
    all_marks = RootMarks.together([marks, uncounted])
    own_marks, older_marks = all_marks.of(*_OWN_AND_OLDER_KINDS).divided(plan.roots())
    # of Storm's emit without a message id: nobody learns what becomes of these roots
    best_effort = marks.of(RootMark.UNTRACKED).roots()

    # 1. The roots that are not complete; a value is the XOR of the edges that the root lacks.
    # An edge that was held and released in this batch comes twice, and so cancels itself.
    held_open = RootMarks.together([held.staying(), released_once(own_marks)]).summed(RootMark.OPEN)
    outstanding = marks.of(RootMark.OUTSTANDING)
    counted_open = RootMarks.together([held_open, outstanding]).summed(RootMark.OPEN)
    lacking = _with_uncounted(counted_open, uncounted).without(best_effort)

    # 2. What failed, and what is blocked behind it where a partition is read in order.
    failures = RootMarks.together([own_marks.of(RootMark.FAILED), held.failures()])
    blocked = _blocked(plan, lined_records, failures, lacking, best_effort)
    failed = _failed_once(RootMarks.together([failures, blocked]).without(best_effort))

    # 3. What Spark's state holds on, each an open root: one that failed, or whose verdict nobody
    # awaits, needs no later deadline.
    held_roots = held_open.roots() if held.staying() else NO_ROOTS
    if held_roots:
        held_roots = held_roots - failures.roots() - best_effort

    # 4. One table of it all.
    return RootMarks.together(
        [
            failed,
            _open_marks(lacking),
            RootMarks.of_roots(RootMark.HELD, held_roots.each_root()),
            own_marks.of(RootMark.TOUCHED).once_for_each_root(),
            RootMarks.of_roots(RootMark.LATE, held.dropped().roots().each_root()),
            marks.of(RootMark.FIRST_EMITTED, RootMark.TRACED, RootMark.LEFT_OPEN),
            marks_of_older(older_marks),
        ]
    )


def _open_marks(lacking: RootMarks) -> RootMarks:
    """Return the mark of each open root, with what the batch contributes to it.

    `lacking`: one mark for each root, with the XOR of the edges that it lacks.
    """
    # of the edges of a tree all but the root's come twice, so the sum lacks just these edges
    contributions = root_edges(lacking.sources, lacking.positions) ^ lacking.edges
    return replace(lacking, values=contributions.view(np.int64))


def _with_uncounted(counted_open: RootMarks, uncounted: RootMarks) -> RootMarks:
    """Return the open roots, with those that only uncounted reports left open, ascending.

    Args:
        counted_open: the open roots by the reports that count.
        uncounted: the marks of the other reports.
    """
    # two reports may have left the same delivery open: taken twice, its edge would cancel itself
    outstanding = uncounted.of(RootMark.OUTSTANDING).once_for_each_value()
    if not outstanding:  # as of most batches
        return counted_open
    # what counts goes first, where it says of a root that it is open, too
    further = outstanding.summed(RootMark.OPEN).without(counted_open.roots())
    return RootMarks.together([counted_open, further]).ascending()


def _blocked(
    plan: BatchPlan,
    lined_records: Sequence[LinedRecords],
    failures: RootMarks,
    lacking: RootMarks,
    best_effort: RootSet,
) -> RootMarks:
    """Return a `FAILED` mark for each record that is blocked behind one that failed, or is open."""
    if not lined_records:  # nothing is read in order: only lines name roots by index
        return NO_MARKS
    index = plan.index()
    indices_by_cause = find_blocked_behind(
        lined_records,
        index.find_roots(failures.sources, failures.positions),
        index.find_roots(lacking.sources, lacking.positions),
        index.find_roots(*best_effort.each_root()),
    )
    return RootMarks.together(
        RootMarks.of_roots(RootMark.FAILED, index.roots(indices), cause=cause)
        for cause, indices in indices_by_cause
    )


def _highest_times(reported: Iterable[HighestTime]) -> tuple[HighestTime, ...]:
    """Return of each column that read tasks saw, and of each `hold`, the highest of some times."""
    # by name, and whether it is of a `hold`: a column and a `hold` may have one name
    highest_by_kind: dict[tuple[str, bool], HighestTime] = {}
    for highest in reported:
        kind = highest.name, highest.is_held
        highest_so_far = highest_by_kind.get(kind)
        # of equal times the first one stays
        if highest_so_far is None or highest.at_ms > highest_so_far.at_ms:
            highest_by_kind[kind] = highest
    return tuple(highest_by_kind.values())


def _reads_by_branch(reads: Iterable[TaskReport]) -> dict[str, Stages]:
    """Return the reports of read tasks by branch and stage, without outdated attempts.

    A branch is the bolts that ran in the read task, with the bolt that received its rows, if any.
    Two reports of one stage with the same ranges are attempts of one task.
    """
    # by (branch, stage, ranges)
    newest_attempts: dict[tuple[str, int, object], TaskReport] = {}
    # a later attempt overwrites an earlier one
    for report in sorted(reads, key=lambda report: report.task.attempt):
        branch = report.operator
        if report.consumer:
            branch = f"{branch} (for {report.consumer})"
        newest_attempts[branch, report.task.stage, report.ranges] = report
    return _by_stage((branch, report) for (branch, _, _), report in newest_attempts.items())


def _bolts_by_operator(reports: Iterable[TaskReport]) -> dict[str, Stages]:
    """Return the reports of bolts by operator and stage, without outdated attempts.

    A task that was repeated has the same partition again. One attempt may have several reports, in
    their order.
    """
    all_attempts = list(reports)
    # by (operator, stage, partition): the number of the newest attempt
    newest_attempts: dict[tuple[str, int, int], int] = {}
    for report in all_attempts:
        key = report.first_bolt, report.task.stage, report.task.partition
        newest_attempts[key] = max(report.task.attempt, newest_attempts.get(key, 0))
    newest_reports: list[tuple[str, TaskReport]] = []
    for report in all_attempts:
        key = report.first_bolt, report.task.stage, report.task.partition
        if report.task.attempt == newest_attempts[key]:
            newest_reports.append((report.first_bolt, report))
    return _by_stage(newest_reports)


def _by_stage(named_reports: Iterable[tuple[str, TaskReport]]) -> dict[str, Stages]:
    """Return reports, which come with a branch or an operator, by its name and by stage."""
    stages_by_name: dict[str, Stages] = {}
    for name, reports in by_key(named_reports).items():
        stages_by_name[name] = by_key((report.task.stage, report) for report in reports)
    return stages_by_name


def _refuse_namesake(name: str, complete: CompleteByOperator) -> None:
    """Raise `TrackingError` if another operator of this name was found complete before."""
    if name in complete:
        raise TrackingError(namesakes_message(name))


def _refuse_namesakes_among(unchecked: Mapping[str, Stages]) -> None:
    """Raise `TrackingError` if two operators go by one name.

    Stages of one name are evaluations of one operator: the same bolts between the same ones.
    """
    for name, stages in unchecked.items():
        operators = {
            (report.operator, report.upstream, report.consumer)
            for evaluation in stages.values()
            for report in evaluation
        }
        if len(operators) > 1:
            raise TrackingError(namesakes_message(name))


def _has_upstream(stages: Stages) -> bool:
    """Return whether an operator receives its rows from a tracked one, and not from one of
    Spark's."""
    return any(report.upstream for evaluation in stages.values() for report in evaluation)


def _complete_reads(reads_by_branch: dict[str, Stages]) -> list[Evaluation]:
    """Return the complete evaluations of the source, newest first: at least one.

    Raises `TrackingError`: there is none, or several branches read the batch.
    """
    if not reads_by_branch:
        raise TrackingError("no read task of the batch reported: nothing of it was evaluated to its end")
    if len(reads_by_branch) > 1:
        raise TrackingError(
            f"the batch was read more than once, by {' and '.join(sorted(reads_by_branch))}: two branches"
            " behind one read_stream, each with bolts of its own, and a root has one first bolt."
            " Let several bolts read one stream in a spout.TopologyBuilder, or let one bolt do both"
        )
    [(branch, stages)] = reads_by_branch.items()
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
        and RootSet.of_runs(shares) == plan.roots()
        # a position in two shares would be counted twice
        and sum(run.end - run.start for run in shares) == plan.count
    )


def _sum(fingerprints: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of all rows, in whatever order and tasks they came."""
    return reduce(Fingerprint.plus, fingerprints, Fingerprint())


def _move_consumers(operator: str, unchecked: dict[str, Stages], complete: CompleteByOperator) -> None:
    """Move the bolts that receive an operator's rows, one behind the other, from `unchecked` to
    `complete`.

    An evaluation of a bolt is complete if it received the very rows that some complete evaluation
    of the operator before it emitted. A bolt that got no rows need not have been evaluated.

    Raises `TrackingError`: the rows reached no evaluation, or a bolt has the name of another
    operator.
    """
    consumer = _consumer_of(complete[operator])
    while consumer:
        # of each evaluation of the operator, newest first, what it emitted
        sent = [_sum(report.sent_fingerprint for report in evaluation) for evaluation in complete[operator]]
        newest_sent = sent[0]
        _refuse_namesake(consumer, complete)
        stages = unchecked.pop(consumer, {})
        evaluations: list[Evaluation] = []
        for stage in sorted(stages, reverse=True):
            received = _sum(report.received_fingerprint for report in stages[stage])
            if received in sent:
                evaluations.append(stages[stage])
        if not evaluations and newest_sent.rows:
            raise TrackingError(
                f"bolt {consumer!r} did not receive, or not finish, the {newest_sent.rows:,} tuples"
                f" that {operator!r} emitted: the sink evaluated a part of the batch only (take,"
                " limit, first, show)"
            )
        if not evaluations:
            return
        complete[consumer] = evaluations
        operator, consumer = consumer, _consumer_of(evaluations)


def _consumer_of(evaluations: Sequence[Evaluation]) -> str:
    """Return the bolt that receives an operator's rows directly.

    Empty: Spark's operators do, or the sink. All reports of an operator name the same.
    """
    return evaluations[0][0].consumer


def _complete_behind_spark(
    operator: str, stages: Stages, tasks_of: Callable[[int], int | None]
) -> list[Evaluation]:
    """Return the complete evaluations, newest first, of a bolt behind Spark's own operators.

    Where an executor was lost between two jobs of a batch, Spark runs under the name of a new stage
    what has gone with it, and no more. So a stage with fewer tasks comes behind one with more,
    whatever its number: stage 7 with 200 tasks goes before stage 9 with 3.

    Raises `TrackingError`: there is none.
    """
    best_first = sorted(stages, key=lambda stage: (len(stages[stage]), stage), reverse=True)
    # a stage of which nobody remembers how many tasks it had is taken for complete
    complete: list[Evaluation] = []
    for stage in best_first:
        task_count = tasks_of(stage)
        if task_count is None or task_count == len(stages[stage]):
            complete.append(stages[stage])
    if not complete:
        raise TrackingError(
            f"bolt {operator!r} was not evaluated to its end in this batch (take, limit, or a sink"
            " that does not use its rows): its roots would be acked without it. Of branches that a"
            " union brings together only one may have bolts; let several read one stream in a"
            " spout.TopologyBuilder"
        )
    return complete


def _check_received(evaluations: Iterable[Evaluation], root_count: int) -> None:
    """Raise `TrackingError` if first bolts behind Spark's operators received a root twice.

    Args:
        evaluations: those that count, one of each operator.
        root_count: how many roots the batch has.
    """
    is_received = np.zeros(root_count, np.bool_)  # by index
    for evaluation in evaluations:
        for report in evaluation:
            if report.received is None:
                continue
            # a task's flags end with the last root that it received; a view, so that `|=` writes
            is_received_before = is_received[: len(report.received)]
            if (is_received_before & report.received).any():
                root = int(np.flatnonzero(is_received_before & report.received)[0])
                raise TrackingError(
                    f"bolt {report.operator!r} received a root twice (number {root} of the batch):"
                    " explode, union or two branches stand before it; put the bolt directly behind"
                    " read_stream"
                )
            is_received_before |= report.received


def _failed_once(failed: RootMarks) -> RootMarks:
    """Return one mark for each failed root: by the first of its causes, as they ascend.

    A root that only waited for others, `HELD`, has that cause if it has no other.
    """
    if not failed:
        return NO_MARKS
    # causes are compared by their ranks, all rows at once: a batch may fail each of its records
    # with a message of its own
    causes = sorted(failed.causes, key=lambda cause: (cause.error == HELD, cause))
    ranks_by_cause = {cause: rank for rank, cause in enumerate(causes)}
    ranks_of_causes = np.array([ranks_by_cause[cause] for cause in failed.causes], np.int32)
    ranks = ranks_of_causes[failed.cause_numbers]
    ranked = replace(failed, cause_numbers=ranks, causes=tuple(causes))
    # the rows of a root ascend by their causes then
    return ranked.once().once_for_each_root()
