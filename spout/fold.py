"""What tasks report, and what a whole micro-batch comes to: the ledger beside the data.

The contribution of a batch to a root is the XOR, over every tuple of its tree that was acked, of the
tuple's edge and the edges of what was emitted on it. Summed over a tree of which all is acked, that is the
root's edge: every other edge comes twice. So nobody computes edges that cancel. A task reports what is
*outstanding*, the deliveries whose edges are missing from that sum, and the driver computes

    ``value(root) = root edge  ^  XOR of the edges of its outstanding deliveries``

Most batches have none. What could hide a lost tuple is checked instead of folded:

* read tasks name their share of the plan, and the shares must cover it;
* rows that go from one tracked bolt to the next are counted and fingerprinted at both ends;
* a bolt behind Spark's own operators must have finished all tasks of its stage.

An operator that Spark evaluates twice reports twice, with another stage; the newest complete evaluation
counts, and a root that any complete one failed is failed.

Source: DESIGN.md, sections 2 ("The fold") and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from acker.errors import TrackingError
from acker.events import SourceRun
from acker.identity import I64, U64, child_edges, mix64_in_place, root_edges
from spout.collector import Cause, Delivery
from spout.plan import BatchPlan

_MASK = (1 << 64) - 1
_NONE: I64 = np.empty(0, np.int64)

Subscriptions = tuple[int, ...]
"""The keys of the subscriptions along a path, from the spout on."""


class Fingerprint(NamedTuple):
    """How many rows, and the sum (modulo 2^64) of their mixed anchors: order and grouping do not matter."""

    rows: int = 0
    total: int = 0

    def plus(self, other: Fingerprint) -> Fingerprint:
        """Return the fingerprint of both sets of rows together."""
        return Fingerprint(self.rows + other.rows, (self.total + other.total) & _MASK)


def fingerprint(rows: int, anchors: I64) -> Fingerprint:
    """Take the fingerprint of `rows` rows that carry these anchor numbers."""
    mixed = anchors.astype(np.uint64)
    mix64_in_place(mixed)
    return Fingerprint(rows, int(mixed.sum(dtype=np.uint64)))


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did with its share of a batch.

    Attributes:
        operator: the pass that ran, named by its bolts, ``first+second``; the first one's name identifies it.
        upstream: the tracked pass whose rows it received directly; empty for a read task, and behind
            Spark's own operators.
        consumer: the bolt that receives its rows directly; empty when Spark's operators or the sink do.
        plan: the batch's whole plan; read tasks only.
        ranges: the share of the plan that was read.
        absent: positions of the share for which the log holds no record.
        received: which roots a first bolt behind Spark's operators received, by index; else None.
        failures: failed roots, by cause, as indices into the plan; a root may stand under several.
        outstanding: deliveries whose edges the sum misses, by subscriptions: rows of index and ordinals.
        touched: indices of roots whose timeout was reset.
        took: fingerprint of the rows that came from `upstream`.
        gave: fingerprint of the rows that went to `consumer`.
    """

    operator: str
    upstream: str = ""
    consumer: str = ""
    plan: BatchPlan | None = None
    ranges: tuple[SourceRun, ...] = ()
    absent: tuple[SourceRun, ...] = ()
    received: npt.NDArray[np.bool_] | None = None
    failures: tuple[tuple[Cause, I64], ...] = ()
    outstanding: Mapping[Subscriptions, I64] = field(default_factory=dict)
    touched: I64 = field(default_factory=_NONE.copy)
    took: Fingerprint = field(default_factory=Fingerprint)
    gave: Fingerprint = field(default_factory=Fingerprint)

    @property
    def head(self) -> str:
        """Name of the first bolt."""
        return self.operator.partition("+")[0]


class Evaluated(NamedTuple):
    """A report with Spark's name for the task that made it."""

    stage: int
    attempt: int
    partition: int
    report: TaskReport


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a batch comes to, ready to be published.

    Attributes:
        plan: the batch's plan.
        failed: failed roots by cause, as ascending indices; each root under one cause.
        absent: positions without a record, ascending.
        partial: ascending indices of the roots whose contribution is not their root edge.
        residual: for each of `partial`, the XOR of the edges that are outstanding; never 0.
        touched: ascending indices of roots whose timeout was reset.
    """

    plan: BatchPlan
    failed: tuple[tuple[Cause, I64], ...] = ()
    absent: tuple[SourceRun, ...] = ()
    partial: I64 = field(default_factory=_NONE.copy)
    residual: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    touched: I64 = field(default_factory=_NONE.copy)


def outstanding_of(deliveries: Iterable[Delivery]) -> dict[Subscriptions, I64]:
    """Group deliveries by the subscriptions along their paths, as `TaskReport.outstanding` has them."""
    grouped: dict[Subscriptions, list[tuple[int, ...]]] = {}
    for root, path in deliveries:
        row = (root, *(ordinal for _, ordinal in path))
        grouped.setdefault(tuple(subscription for subscription, _ in path), []).append(row)
    return {path: np.array(rows, np.int64) for path, rows in grouped.items()}


def failures_of(failures: Iterable[tuple[int, Cause]]) -> tuple[tuple[Cause, I64], ...]:
    """Group failed roots by cause."""
    grouped: dict[Cause, list[int]] = {}
    for index, cause in failures:
        grouped.setdefault(cause, []).append(index)
    return tuple((cause, np.array(indices, np.int64)) for cause, indices in grouped.items())


def plan_root_edges(plan: BatchPlan, indices: I64) -> U64:
    """Return the root edge of each root of the plan, by index."""
    edges = np.empty(len(indices), np.uint64)
    for run, first in zip(plan.ranges, plan.starts(), strict=True):
        here = (indices >= first) & (indices < first + run.end - run.start)
        edges[here] = root_edges(run.source, indices[here] - first + run.start)
    return edges


def residuals(plan: BatchPlan, outstanding: Iterable[Mapping[Subscriptions, I64]]) -> tuple[I64, U64]:
    """XOR the edges of outstanding deliveries for each root.

    Returns:
        Ascending indices of roots whose sum is not 0, and the sums.
    """
    indices: list[I64] = []
    edges: list[U64] = []
    for terms in outstanding:
        for subscriptions, rows in terms.items():
            edge = plan_root_edges(plan, rows[:, 0])
            for hop, subscription in enumerate(subscriptions, start=1):
                edge = child_edges(edge, subscription, rows[:, hop])
            indices.append(rows[:, 0])
            edges.append(edge)
    if not indices:
        return _NONE, np.empty(0, np.uint64)
    roots, place = np.unique(np.concatenate(indices), return_inverse=True)
    sums = np.zeros(len(roots), np.uint64)
    np.bitwise_xor.at(sums, place, np.concatenate(edges))
    left = sums != 0
    return roots[left], sums[left]


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
    """Keep, of reads that a stage repeated, the newest; by operator and stage."""
    newest: dict[tuple[str, int, object], Evaluated] = {}
    for each in sorted(evaluations, key=lambda each: each.attempt):
        newest[each.report.operator, each.stage, each.report.ranges] = each
    grouped: dict[str, Stages] = {}
    for (operator, stage, _), each in newest.items():
        grouped.setdefault(operator, {}).setdefault(stage, []).append(each.report)
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
    merged: list[SourceRun] = []
    for run in shares:
        if merged and merged[-1].source == run.source and merged[-1].end == run.start:
            merged[-1] = SourceRun(run.source, merged[-1].start, run.end)
        else:
            merged.append(run)
    return plan is not None and tuple(merged) == _merged(plan.ranges)


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
