"""From the reports of a micro-batch's tasks to what the batch comes to.

What could hide a lost tuple is checked instead of folded:

* read tasks name their share of the plan, and the shares must cover it;
* rows that go from one tracked bolt to the next are counted and fingerprinted at both ends;
* a bolt behind Spark's own operators must have finished all tasks of its stage.

An operator that Spark evaluates twice reports twice, with another stage; the newest complete evaluation
counts, and a root that any complete one failed is failed.

Source: DESIGN.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from acker.errors import TrackingError
from acker.events import SourceRun
from acker.identity import I64
from spout.collector import Cause
from spout.fold import Evaluated, Fingerprint, Outcome, TaskReport, residuals

_NONE: I64 = np.empty(0, np.int64)


def settle(
    evaluations: Sequence[Evaluated], expected: Iterable[str], tasks_of: Callable[[int], int | None]
) -> Outcome:
    """Work out what a batch comes to.

    Args:
        evaluations: every report of the batch that arrived.
        expected: operators behind Spark's own ones that must have been evaluated.
        tasks_of: how many tasks a stage had, or None when nobody remembers.

    Raises:
        TrackingError: something of the batch is missing, was received twice, or was lost between bolts.
    """
    reads = _newest_attempts(each for each in evaluations if each.report.plan is not None)
    complete = {"read": _complete_reads(reads)}
    plan = complete["read"][0][0].plan
    if plan is None:
        raise TrackingError("a read task's report carries no plan")
    source = complete["read"][0][0].operator
    found: dict[str, list[list[TaskReport]]] = {source: complete["read"]}
    waiting = _by_operator(each for each in evaluations if each.report.plan is None)
    _follow(source, found, waiting)
    for name in sorted({*expected, *(n for n, s in waiting.items() if not _direct(s))}):
        found[name] = _complete_loose(name, waiting.get(name, {}), tasks_of)
        _follow(name, found, waiting)
    _check_received([stages[0] for stages in found.values()], plan.count)
    newest = [report for stages in found.values() for report in stages[0]]
    partial, residual = residuals(plan, (report.outstanding for report in newest))
    every = (report for stages in found.values() for stage in stages for report in stage)
    return Outcome(
        plan,
        _one_cause_each(cause for report in every for cause in report.failures),
        tuple(sorted(run for report in newest for run in report.absent)),
        partial,
        residual,
        np.unique(np.concatenate([_NONE, *(report.touched for report in newest)])),
    )


Stages = dict[int, list[TaskReport]]


def _newest_attempts(evaluations: Iterable[Evaluated]) -> dict[str, Stages]:
    """Keep, of reads that a stage repeated, the newest; by branch and stage."""
    newest: dict[tuple[str, int, object], Evaluated] = {}
    for each in sorted(evaluations, key=lambda each: each.attempt):
        report = each.report
        branch = f"{report.operator} (for {report.consumer})" if report.consumer else report.operator
        newest[branch, each.stage, report.ranges] = each
    grouped: dict[str, Stages] = {}
    for (branch, stage, _), each in newest.items():
        grouped.setdefault(branch, {}).setdefault(stage, []).append(each.report)
    return grouped


def _by_operator(evaluations: Iterable[Evaluated]) -> dict[str, Stages]:
    """Group reports by operator and stage; of a partition that was repeated the newest attempt counts."""
    listed = list(evaluations)
    newest: dict[tuple[str, int, int], int] = {}
    for each in listed:
        key = each.report.head, each.stage, each.partition
        newest[key] = max(each.attempt, newest.get(key, 0))
    grouped: dict[str, Stages] = {}
    for each in listed:
        if each.attempt == newest[each.report.head, each.stage, each.partition]:
            grouped.setdefault(each.report.head, {}).setdefault(each.stage, []).append(each.report)
    return grouped


def _complete_reads(reads: dict[str, Stages]) -> list[list[TaskReport]]:
    """Return the complete evaluations of the source, newest first."""
    if not reads:
        raise TrackingError("no read task of the batch reported: nothing of it was evaluated to its end")
    if len(reads) > 1:
        raise TrackingError(
            f"the batch was read more than once, by {' and '.join(sorted(reads))}: two branches behind one"
            " read_stream; let one bolt do both"
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
    """Tell whether the tasks' shares, put together, are the plan."""
    plan = reports[0].plan
    shares = sorted(run for report in reports for run in report.ranges)
    return plan is not None and _merged(shares) == _merged(plan.ranges)


def _merged(ranges: Iterable[SourceRun]) -> tuple[SourceRun, ...]:
    merged: list[SourceRun] = []
    for run in ranges:
        if merged and merged[-1].source == run.source and merged[-1].end == run.start:
            merged[-1] = SourceRun(run.source, merged[-1].start, run.end)
        else:
            merged.append(run)
    return tuple(merged)


def _direct(stages: Stages) -> bool:
    return any(report.upstream for reports in stages.values() for report in reports)


def _sum(prints: Iterable[Fingerprint]) -> Fingerprint:
    total = Fingerprint()
    for each in prints:
        total = total.plus(each)
    return total


def _follow(name: str, found: dict[str, list[list[TaskReport]]], waiting: dict[str, Stages]) -> None:
    """Find the complete evaluations of the bolts that receive an operator's rows directly."""
    while consumer := found[name][0][0].consumer:
        given = [_sum(report.gave for report in stage) for stage in found[name]]
        stages = waiting.pop(consumer, {})
        complete = [
            stages[stage]
            for stage in sorted(stages, reverse=True)
            if _sum(report.took for report in stages[stage]) in given
        ]
        if not complete and given[0].rows:
            raise TrackingError(
                f"bolt {consumer!r} did not receive, or not finish, the {given[0].rows:,} tuples that"
                f" {name!r} emitted: the sink evaluated a part of the batch only (take, limit, first, show)"
            )
        if not complete:
            return
        found[consumer] = complete
        name = consumer


def _complete_loose(
    name: str, stages: Stages, tasks_of: Callable[[int], int | None]
) -> list[list[TaskReport]]:
    """Return the complete evaluations, newest first, of a bolt behind Spark's own operators."""
    complete = [stages[s] for s in sorted(stages, reverse=True) if tasks_of(s) in (None, len(stages[s]))]
    if not complete:
        raise TrackingError(
            f"bolt {name!r} was not evaluated to its end in this batch (take, limit, or a sink that does not"
            " use its rows): its roots would be acked without it"
        )
    return complete


def _check_received(evaluations: Iterable[Sequence[TaskReport]], count: int) -> None:
    """See that no root reached first bolts twice."""
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


def _one_cause_each(failures: Iterable[tuple[Cause, I64]]) -> tuple[tuple[Cause, I64], ...]:
    """Merge equal causes and let each root stand under the first of its causes, in order of the causes."""
    merged: dict[Cause, list[I64]] = {}
    for cause, indices in failures:
        merged.setdefault(cause, []).append(indices)
    seen = _NONE
    result: list[tuple[Cause, I64]] = []
    for cause in sorted(merged):
        roots = np.setdiff1d(np.concatenate(merged[cause]), seen)
        if len(roots):
            result.append((cause, roots))
            seen = np.union1d(seen, roots)
    return tuple(result)
