"""From the reports of a micro-batch's tasks to the outcome of the batch.

What could hide a lost tuple is checked instead of folded. An operator that Spark evaluates twice reports
twice, with another stage or attempt; the newest complete evaluation counts, and a root that any one failed is
failed. So it is by a partial one, and by an older attempt: where an executor was lost, its rows may be those
that the sink got. For the same reason a root that any one left open is not acked. So it is, in a partition
that is read in order, with what stands behind one that failed or is not done (`spout.planning.order`). Where
two branches of one stream are joined, Spark reads the batch for each of them: the source is evaluated twice,
and what holds each side once.

Source: docs/design/protocol.md, section 5.2 ("The ledger goes beside the data").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

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
from spout.publishing.delayed import NEVER_MS, HighestTime, KeyedRoots, by_key, split
from spout.publishing.fold import (
    BatchOutcome,
    Evaluated,
    Subscriptions,
    TaskReport,
    left_by,
    placed,
    residuals,
)
from spout.publishing.root_marks import NO_MARKS, RootMark, RootMarks
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import added
from spout.tuples.failures import Cause

_NONE: I64 = np.empty(0, np.int64)


def settle(
    evaluations: Sequence[Evaluated],
    expected: Iterable[str],
    tasks_of: Callable[[int], int | None],
    moment: Moment | None = None,
) -> BatchOutcome:
    """Work out the outcome of a batch from all of its reports that arrived.

    Args:
        expected: operators behind Spark's own ones that must have been evaluated.
        tasks_of: how many tasks a stage had, or None when nobody remembers.
        moment: what Spark's log says of the batch; needed where tuples are held or released.

    Raises `TrackingError`: something of the batch is missing, was received twice, or was lost between bolts.
    """
    reads = _newest_attempts(each for each in evaluations if each.report.plan is not None)
    waiting = _by_operator(each for each in evaluations if each.report.plan is None)
    for name, stages in waiting.items():
        # stages of one name are evaluations of one operator: the same bolts between the same ones
        ways = {(r.operator, r.upstream, r.consumer) for reports in stages.values() for r in reports}
        if len(ways) > 1:
            raise TrackingError(namesakes(name))
    every = [each.report for each in evaluations]
    keyed = KeyedRoots.together(each.keyed_roots for each in every if each.keyed_roots is not None)
    found: dict[str, list[list[TaskReport]]] = {}
    if moment is not None and not reads and not moment.plan.ranges:
        plan, expected = moment.plan, ()  # nothing was emitted: a watermark moved, and state was evicted
    else:
        complete = _complete_reads(reads)
        source, its_plan = complete[0][0].operator, complete[0][0].plan
        if its_plan is None:
            raise TrackingError("a read task's report carries no plan")
        plan, found[source] = its_plan, complete
        _follow(source, found, waiting)
    loose = (n for n, stages in waiting.items() if not any(r.upstream for s in stages.values() for r in s))
    for name in sorted({*expected, *loose}):
        _refuse_namesake(name, found)
        found[name] = _complete_loose(name, waiting.get(name, {}), tasks_of)
        _follow(name, found, waiting)
    _check_received([stages[0] for stages in found.values()], plan.count)
    newest = [report for stages in found.values() for report in stages[0]]
    absent, lost, damaged = _missing(evaluations, newest)
    late_ms = -1 if moment is None else moment.late_ms
    counted = set(map(id, newest))
    others = [placed(r, keyed, counts=False) for r in every if id(r) not in counted]
    outcome = _summed(plan, [placed(r, keyed) for r in newest], others, late_ms)
    open_marks = [report.marks.of(RootMark.LEFT_OPEN) for report in newest]
    behind = (pair for r in newest if r.keyed_roots is not None for pair in left_by(r))
    for bolt, numbers in behind:
        opener = Cause.of(bolt, "", "")
        open_marks.append(RootMarks.of_roots(RootMark.LEFT_OPEN, keyed.find(numbers), cause=opener))
    passed = tuple(call for report in every for call in _passed(report, plan, keyed))
    marks = RootMarks.together([outcome.marks, *open_marks])
    return replace(outcome, marks=marks, absent=absent, lost=lost, damaged=damaged, passed=passed)


def _passed(report: TaskReport, plan: BatchPlan, keyed: KeyedRoots) -> Iterator[PassedCall]:
    """Yield the calls of one task that passed when they came again, with the positions of their roots.

    A former life of the query may have left the note of such a call: roots that this batch does not have are
    left out.
    """
    for cause, roots in report.passed:
        if report.keyed_roots is None:
            named = RootSet.of_positions(*plan.index().roots(roots[(roots >= 0) & (roots < plan.count)]))
        else:
            named = RootSet.of_positions(*keyed.find(roots[np.isin(roots, keyed.numbers)]))
        if named:
            yield PassedCall(cause.operator, cause.error, cause.message, tuple(named.runs()))


def _missing(
    evaluations: Sequence[Evaluated], newest: Sequence[TaskReport]
) -> tuple[tuple[SourceRun, ...], int, tuple[DamagedRun, ...]]:
    """Return positions without a record, how many of them have left the log, and what could not be read.

    They are what some evaluation of the source could not read that counts, or that feeds one that does.
    Both sides of a join read the batch, and what has left the log in between only one of them has seen.
    """
    counted = set(map(id, newest))
    stages = {evaluation.stage for evaluation in evaluations if id(evaluation.report) in counted}
    # only a report of a read task has the plan
    reads = [read for read in evaluations if read.stage in stages and read.report.plan is not None]
    lost = [sum(read.report.lost for read in reads if read.stage == stage) for stage in stages]
    absent = tuple(RootSet.of_runs(run for read in reads for run in read.report.absent).runs())
    damaged = {run for read in reads for run in read.report.damaged}
    return absent, max(lost, default=0), tuple(sorted(damaged))


def namesakes(name: str) -> str:
    """Say that two operators have one name, and the way out."""
    return (
        f"two operators of the query are called {name!r}: one would count as another evaluation of the other,"
        " and what it left open would be acked; give one of them a name of its own (name=...). A bolt with"
        " two branches directly behind it counts as two: let them read one stream in a spout.TopologyBuilder"
    )


@dataclass(frozen=True, slots=True)
class Moment:
    """What Spark's offset log says of a batch: its plan, and the watermark at which tuples were late, ms."""

    plan: BatchPlan
    late_ms: int


def _summed(
    plan: BatchPlan, newest: Sequence[TaskReport], others: Sequence[TaskReport], late_ms: int
) -> BatchOutcome:
    """Work out the outcome; reports that do not count, `others`, fail roots and leave some open."""
    every = [*newest, *others]
    index = plan.index()
    released = split(index, RootMarks.together(report.marks for report in every))
    late = [(report, report.held.until_ms <= late_ms) for report in newest if len(report.held.indices)]
    staying = [(report.held, ~gone if gone.any() else slice(None)) for report, gone in late]
    kept_on = [(held.indices[stays], held.edges[stays]) for held, stays in staying]
    partial, residual = residuals(plan, (r.outstanding for r in newest), [*kept_on, released.edges])
    held = _held(plan, newest, [*kept_on, released.edges], partial) if kept_on else _NONE
    partial, residual = _left_open_too(plan, partial, residual, [r.outstanding for r in others])
    late_roots = distinct(np.concatenate([_NONE, *(report.held.indices[gone] for report, gone in late)]))
    too_late = [
        (
            Cause.of(r.operator, LATE, f"a watermark of {any_time_text(late_ms)} dropped it"),
            np.unique(r.held.indices[gone]),
        )
        for r, gone in late
        if r.held.fails_late and gone.any()
    ]
    failures = [cause for report in every for cause in report.failures]
    # Storm's emit without a message id: nobody learns what becomes of it
    free = distinct(np.concatenate([_NONE, *(report.untracked for report in newest)]))
    kept = ~among(partial, free) if len(free) else slice(None)
    not_done = [*failures, *released.failures, *too_late]
    failed = np.concatenate([_NONE, *(indices for _, indices in not_done)])
    lined = tuple(each for report in every for each in report.lined)
    blocked = behind(lined, failed, partial[kept], free) if lined else []
    if len(held):
        held = held[~among(held, distinct(np.concatenate([failed, free])))]
    touched = distinct(np.concatenate([_NONE, *(report.touched for report in newest), released.touched]))
    marks = [
        _one_cause_each(index, [*not_done, *blocked], free),
        RootMarks.of_roots(RootMark.OUTSTANDING, index.roots(partial[kept]), residual[kept]),
        RootMarks.of_roots(RootMark.HELD, index.roots(held)),
        RootMarks.of_roots(RootMark.TOUCHED, index.roots(touched)),
        RootMarks.of_roots(RootMark.LATE, index.roots(late_roots)),
        *(report.marks.of(RootMark.FIRST_EMITTED, RootMark.TRACED) for report in newest),
        released.older,
    ]
    return BatchOutcome(
        plan,
        RootMarks.together(marks),
        counts=added(report.counts for report in newest),
        errors=tuple(error for report in newest for error in report.errors),
        lined=lined,
        late=sum(int(gone.sum()) for _, gone in late),
        newest=_newest(plan, newest),
    )


def _newest(plan: BatchPlan, reports: Sequence[TaskReport]) -> tuple[HighestTime, ...]:
    """Return the highest times of a batch: of each column that read tasks saw, and of each `hold`."""
    highest: dict[tuple[str, bool], HighestTime] = {}

    def see(found: HighestTime) -> None:
        highest_so_far = highest.get((found.name, found.is_held))
        if highest_so_far is None or found.at_ms > highest_so_far.at_ms:
            highest[found.name, found.is_held] = found

    for report in reports:
        for of_column in report.newest:
            see(of_column)
        # what no watermark drops, or one drops in any case, has no time
        timed = np.flatnonzero((report.held.until_ms >= 0) & (report.held.until_ms < NEVER_MS))
        if len(timed):
            row = int(timed[report.held.until_ms[timed].argmax()])
            source, position = plan.index().root(int(report.held.indices[row]))
            run = SourceRun(source, position, position + 1)
            see(HighestTime(report.operator, int(report.held.until_ms[row]), run, is_held=True))
    return tuple(highest.values())


def _held(
    plan: BatchPlan, newest: Sequence[TaskReport], edges: Sequence[tuple[I64, U64]], partial: I64
) -> I64:
    """Return the roots of which Spark's state holds a tuple after the batch, as ascending indices.

    `edges` are those of what was held and of what was released in the same batch, and `partial` all roots
    that are not complete; where bolts left nothing open, these are the ones.
    """
    if not any(report.outstanding for report in newest):
        return partial
    return residuals(plan, (), edges)[0]


def _left_open_too(
    plan: BatchPlan, partial: I64, residual: U64, others: Iterable[Mapping[Subscriptions, I64]]
) -> tuple[I64, U64]:
    """Add roots that only other evaluations left open; each delivery once, or those of two would cancel."""
    found = by_key(pair for each in others for pair in each.items())
    if not found:
        return partial, residual
    each_once = {path: np.unique(np.concatenate(rows), axis=0) for path, rows in found.items()}
    roots, sums = residuals(plan, [each_once])
    further = ~among(roots, partial)
    roots, sums = np.concatenate([partial, roots[further]]), np.concatenate([residual, sums[further]])
    order = np.argsort(roots)
    return roots[order], sums[order]


Stages = dict[int, list[TaskReport]]


def _newest_attempts(evaluations: Iterable[Evaluated]) -> dict[str, Stages]:
    """Group reads by branch and stage; of those that a stage repeated the newest counts."""
    newest: dict[tuple[str, int, object], Evaluated] = {}
    for each in sorted(evaluations, key=lambda each: each.attempt):
        report = each.report
        branch = f"{report.operator} (for {report.consumer})" if report.consumer else report.operator
        newest[branch, each.stage, report.ranges] = each
    return _by_stage((branch, stage, each.report) for (branch, stage, _), each in newest.items())


def _by_operator(evaluations: Iterable[Evaluated]) -> dict[str, Stages]:
    """Group reports by operator and stage; of a partition that was repeated the newest attempt counts."""
    listed = list(evaluations)
    newest: dict[tuple[str, int, int], int] = {}
    for each in listed:
        key = each.report.head, each.stage, each.partition
        newest[key] = max(each.attempt, newest.get(key, 0))
    return _by_stage(
        (each.report.head, each.stage, each.report)
        for each in listed
        if each.attempt == newest[each.report.head, each.stage, each.partition]
    )


def _by_stage(reports: Iterable[tuple[str, int, TaskReport]]) -> dict[str, Stages]:
    by_name = by_key((name, (stage, report)) for name, stage, report in reports)
    return {name: by_key(pairs) for name, pairs in by_name.items()}


def _refuse_namesake(name: str, found: Iterable[str]) -> None:
    if name in found:
        raise TrackingError(namesakes(name))


def _complete_reads(reads: dict[str, Stages]) -> list[list[TaskReport]]:
    if not reads:
        raise TrackingError("no read task of the batch reported: nothing of it was evaluated to its end")
    if len(reads) > 1:
        raise TrackingError(
            f"the batch was read more than once, by {' and '.join(sorted(reads))}: two branches behind one"
            " read_stream, each with bolts of its own, and a root has one first bolt. Let several bolts read"
            " one stream in a spout.TopologyBuilder, or let one bolt do both"
        )
    [(operator, stages)] = reads.items()
    complete = [stages[stage] for stage in sorted(stages, reverse=True) if _covers(stages[stage])]
    if not complete:
        raise TrackingError(
            f"not every read task of {operator!r} reported: the sink evaluated a part of the batch only"
            " (take, limit, first, show); let it write the whole batch, or evaluate the whole batch first"
        )
    return complete


def _covers(reports: Sequence[TaskReport]) -> bool:
    plan = reports[0].plan
    shares = [run for report in reports for run in report.ranges]
    return (
        plan is not None
        and RootSet.of_runs(shares) == RootSet.of_runs(plan.ranges)
        and sum(run.end - run.start for run in shares) == plan.count
    )


def _sum(prints: Iterable[Fingerprint]) -> Fingerprint:
    return reduce(Fingerprint.plus, prints, Fingerprint())


def _follow(name: str, found: dict[str, list[list[TaskReport]]], waiting: dict[str, Stages]) -> None:
    while consumer := found[name][0][0].consumer:
        gave = [_sum(report.gave for report in stage) for stage in found[name]]
        _refuse_namesake(consumer, found)
        stages = waiting.pop(consumer, {})
        complete = [
            stages[stage]
            for stage in sorted(stages, reverse=True)
            if _sum(report.took for report in stages[stage]) in gave
        ]
        if not complete and gave[0].rows:
            raise TrackingError(
                f"bolt {consumer!r} did not receive, or not finish, the {gave[0].rows:,} tuples that"
                f" {name!r} emitted: the sink evaluated a part of the batch only (take, limit, first, show)"
            )
        if not complete:
            return
        found[consumer] = complete
        name = consumer


def _complete_loose(
    name: str, stages: Stages, tasks_of: Callable[[int], int | None]
) -> list[list[TaskReport]]:
    """Return the complete evaluations, newest first, of a bolt behind Spark's own operators.

    Where an executor was lost between two jobs of a batch, Spark runs under the name of a new stage what has
    gone with it, and no more: what has fewer tasks counts behind what has more.
    """
    newest = sorted(stages, key=lambda stage: (len(stages[stage]), stage), reverse=True)
    complete = [stages[stage] for stage in newest if tasks_of(stage) in (None, len(stages[stage]))]
    if not complete:
        raise TrackingError(
            f"bolt {name!r} was not evaluated to its end in this batch (take, limit, or a sink that does not"
            " use its rows): its roots would be acked without it. Of branches that a union brings together"
            " only one may have bolts; let several read one stream in a spout.TopologyBuilder"
        )
    return complete


def _check_received(evaluations: Iterable[Sequence[TaskReport]], count: int) -> None:
    seen = np.zeros(count, np.bool_)
    for reports in evaluations:
        for report in reports:
            if report.received is None:
                continue
            here = seen[: len(report.received)]
            if (here & report.received).any():
                root = int(np.flatnonzero(here & report.received)[0])
                raise TrackingError(
                    f"bolt {report.operator!r} received a root twice (number {root} of the batch): explode,"
                    " union or two branches stand before it; put the bolt directly behind read_stream"
                )
            here |= report.received


def _one_cause_each(index: PlanIndex, failures: Iterable[tuple[Cause, I64]], but: I64) -> RootMarks:
    """Mark each failed root, `but` some, by the first of its causes, in their order; equal causes are one.

    One pass over all of them: a batch may fail each of its records with a message of its own.
    """
    merged = by_key(failures)
    if not merged:
        return NO_MARKS
    causes = sorted(merged, key=lambda cause: (cause.error == HELD, cause))  # what failed did not only wait
    indices_by_cause = [np.concatenate(merged[cause]) for cause in causes]
    roots, first = np.unique(np.concatenate(indices_by_cause), return_index=True)
    numbers = np.repeat(np.arange(len(causes)), list(map(len, indices_by_cause)))[first]
    counts = ~among(roots, but)
    return RootMarks.of_causes(RootMark.FAILED, index.roots(roots[counts]), numbers[counts], causes)
