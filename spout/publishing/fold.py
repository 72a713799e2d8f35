"""What tasks report, and how it folds: the ledger beside the data.

The contribution of a batch to a root is the XOR, over every tuple of its tree that was acked, of the
tuple's edge and the edges of what was emitted on it. Summed over a tree of which all is acked, that is the
root's edge: every other edge comes twice. So nobody computes edges that cancel. A task reports what is
*outstanding*, the deliveries whose edges are missing from that sum, and the driver computes

    ``value(root) = root edge  ^  XOR of the edges of its outstanding deliveries``

Most batches have none. `spout.publishing.settle` puts the reports of a batch together.

Source: docs/design/protocol.md, sections 2 ("The fold") and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from acker.hot_paths import distinct, xor_sums
from acker.identity import I64, U64, child_edges, root_edges, subscription_key
from acker.kafka.port import DamagedRun
from acker.root_sets.root_set import RootSet
from acker.wire.causes import UNREADABLE_CAUSES
from acker.wire.events import SourceRun
from acker.wire.lateness import Mover
from acker.wire.passed_calls import PassedCall
from spout.planning.order import Lined
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import (
    Held,
    HighestTime,
    KeyedRoots,
    by_key,
)
from spout.publishing.root_marks import NO_MARKS, RootMark, RootMarks
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import Counts, What, added
from spout.tuples.failures import ERRORS_MAX, Cause
from spout.tuples.raised import Raised, first_of_each
from spout.tuples.tuple import Delivery

_NONE: I64 = np.empty(0, np.int64)

Subscriptions = tuple[int, ...]
"""The keys of the subscriptions along a path, from the spout on."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did with its share of a batch.

    Attributes:
        operator: the pass that ran, named by its bolts, ``first+second``; the first one's name identifies it.
        upstream: the tracked pass whose rows it received directly; empty for a read task, and behind
            Spark's own operators.
        consumer: the bolt that receives its rows directly; empty when Spark's operators or the sink do.
        plan: the batch's whole plan; read tasks only, as is `ranges`, the share that was read.
        absent: positions of the share for which the log holds no record.
        received: which roots a first bolt behind Spark's operators received, by index; else None.
        failures: failed roots, by cause, as indices into the plan; a root may stand under several.
        outstanding: deliveries whose edges the sum misses, by subscriptions: rows of index and ordinals.
        touched: indices of roots whose timeout was reset.
        took: fingerprint of the rows that came from `upstream`.
        gave: fingerprint of the rows that went to `consumer`.
        lost: how many of `absent` have left the log since the batch was planned.
        damaged: offsets that a read task could not read; their roots are failed, or `absent`.
        errors: what bolts reported, the first ones.
        raised: the first traceback of each kind of exception by which they failed tuples.
        held: tuples that were handed to Spark's state.
        untracked: indices of roots that are best effort: acked with the batch, whatever was done to them.
        lined: what a read task read in order: which records stood in which lines. Where nothing goes on to
            other tasks, it has only those lines in which a record failed or is open.
        keyed_roots: the roots of what a keyed bolt handed to this task. If this is not None, its failures,
            what it touched and what is outstanding name roots by such numbers, not by indices of the plan.
        marks: what the task did to roots that it knows by their positions: to tuples that Spark's state had
            held, of this batch or of earlier ones; and of a read task, when copies were emitted first, and
            the traces of records, where the driver writes spans.
        newest: the highest time of each column with times, of a read task whose rows Spark's operators get.
        passed: roots of calls for several rows that hung or ended their process, and passed when they came
            again, divided; by cause, which fails none of them.
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
    lost: int = 0
    counts: Counts = field(default_factory=dict)
    errors: tuple[Cause, ...] = ()
    held: Held = field(default_factory=Held)
    untracked: I64 = field(default_factory=_NONE.copy)
    lined: tuple[Lined, ...] = ()
    raised: tuple[Raised, ...] = ()
    keyed_roots: KeyedRoots | None = None
    marks: RootMarks = NO_MARKS
    damaged: tuple[DamagedRun, ...] = ()
    newest: tuple[HighestTime, ...] = ()
    passed: tuple[tuple[Cause, I64], ...] = ()

    @property
    def settles_held(self) -> bool:
        """Whether the task acked, failed or touched what Spark's state had held."""
        held = RootMark.RELEASED, RootMark.FAILED, RootMark.HELD_ON, RootMark.TOUCHED
        return len(self.marks.of(*held)) > 0

    @property
    def head(self) -> str:
        return self.operator.partition("+")[0]


class Evaluated(NamedTuple):
    """A report, and Spark's name of the task that made it."""

    stage: int
    attempt: int
    partition: int
    report: TaskReport


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of a batch, ready to be published.

    Attributes:
        marks: what became of its roots, and of roots of earlier batches. What has none is acked. A kind
            stands once with a root, except for `LEFT_OPEN`, of each bolt, and `FAILED` of an earlier batch.
        absent: positions without a record, ascending.
        lost: how many of them have left the log since the batch was planned.
        errors: what bolts reported, the first ones of each task.
        lined: of each partition that was read in order, which records are in which lines.
        late: how many tuples a watermark dropped that `hold` would have held.
        newest: the highest times that tasks have seen, of columns and of what they held.
        damaged: offsets that nobody could read, ascending.
        raised: the first traceback of each kind of exception by which bolts failed tuples.
        passed: calls that hung or ended their process, and passed when they came again.
    """

    plan: BatchPlan
    marks: RootMarks = NO_MARKS
    absent: tuple[SourceRun, ...] = ()
    lost: int = 0
    counts: Counts = field(default_factory=dict)
    errors: tuple[Cause, ...] = ()
    lined: tuple[Lined, ...] = ()
    late: int = 0
    newest: tuple[HighestTime, ...] = ()
    damaged: tuple[DamagedRun, ...] = ()
    raised: tuple[Raised, ...] = ()
    passed: tuple[PassedCall, ...] = ()

    @property
    def stops_for_damage(self) -> bool:
        """Whether the query is to end once the batch is published, since a part of it could not be read."""
        return any(cause.error in UNREADABLE_CAUSES for cause in self.marks.of(RootMark.FAILED).used_causes())

    def own(self, *kinds: RootMark) -> RootMarks:
        """Return the marks of some kinds of the roots that the batch emitted itself."""
        marks = self.marks.of(*kinds)
        return marks.at(marks.is_of(RootSet.of_runs(self.plan.ranges)))


class LateNote(NamedTuple):
    """What a batch says of a watermark: `rows` are those of which nobody knows the records.

    Times are ms, `wall_ms` of the clock, and `watermark_ms` of the events. `mover` None: nobody knows it.
    """

    wall_ms: int
    watermark_ms: int
    rows: int
    mover: Mover | None


def outstanding_of(deliveries: Iterable[Delivery]) -> dict[Subscriptions, I64]:
    """Group deliveries by the subscriptions along their paths, as `TaskReport.outstanding` has them."""
    grouped: dict[Subscriptions, list[tuple[int, ...]]] = {}
    for root, path in deliveries:
        row = (root, *(ordinal for _, ordinal in path))
        grouped.setdefault(tuple(subscription for subscription, _ in path), []).append(row)
    return {path: np.array(rows, np.int64) for path, rows in grouped.items()}


def not_done(report: TaskReport) -> I64:
    """Return the roots that a report fails, or leaves open, as ascending indices into the plan."""
    failed = [indices for _, indices in report.failures]
    return distinct(np.concatenate([_NONE, *failed, *(rows[:, 0] for rows in report.outstanding.values())]))


def left_by(report: TaskReport) -> Iterator[tuple[str, I64]]:
    """Yield the bolts that left tuples open, with their roots, as the report names these."""
    if not report.outstanding:
        return
    receivers = {
        subscription_key(stream.component, stream.stream, bolt): bolt
        for what, bolt, stream in report.counts
        if what is What.EXECUTED
    }
    found = {path: set(map(tuple, rows.tolist())) for path, rows in report.outstanding.items()}
    for path, rows in report.outstanding.items():
        parents = found.get(path[:-1], set()) if path else set()
        own = [row[0] for row in rows.tolist() if tuple(row[:-1]) not in parents]
        if own:
            bolt = receivers.get(path[-1], report.operator) if path else report.head
            yield bolt, np.array(own, np.int64)


def failures_of(failures: Iterable[tuple[int, Cause]]) -> tuple[tuple[Cause, I64], ...]:
    by_cause = by_key((cause, index) for index, cause in failures)
    return tuple((cause, np.array(indices, np.int64)) for cause, indices in by_cause.items())


def merged(reports: Sequence[TaskReport]) -> TaskReport:
    """Join at least one report of what one task did bit by bit, in order.

    Each has what the others do not. They name no plan, and hold and release nothing.
    """
    failures = by_key(pair for report in reports for pair in report.failures)
    outstanding = by_key(pair for report in reports for pair in report.outstanding.items())
    return replace(
        reports[0],
        failures=tuple((cause, np.concatenate(found)) for cause, found in failures.items()),
        outstanding={path: np.concatenate(rows) for path, rows in outstanding.items()},
        touched=distinct(np.concatenate([report.touched for report in reports])),
        took=reduce(Fingerprint.plus, (report.took for report in reports)),
        gave=reduce(Fingerprint.plus, (report.gave for report in reports)),
        counts=added(report.counts for report in reports),
        errors=_first_errors(reports),
        raised=first_of_each(each for report in reports for each in report.raised),
    )


def _first_errors(reports: Sequence[TaskReport]) -> tuple[Cause, ...]:
    kept: list[Cause] = []
    for error in (error for report in reports for error in report.errors):
        if sum(each.operator == error.operator for each in kept) < ERRORS_MAX:
            kept.append(error)
    return tuple(kept)


def placed(report: TaskReport, roots: KeyedRoots, *, counts: bool = True) -> TaskReport:
    """Name the roots of a report from behind a keyed bolt by their positions.

    What is outstanding there is as if it had been released: its edge is missing from the sum of the root.
    A report that does not count has released nothing, and reset no timeout.
    """
    marks = report.marks
    if not counts:
        marks = marks.of(RootMark.FAILED, RootMark.LEFT_OPEN)
        report = replace(report, marks=marks, touched=_NONE)
    if report.keyed_roots is None:
        return report
    more = [RootMarks.of_roots(RootMark.TOUCHED, roots.find(report.touched))]
    for path, rows in report.outstanding.items():
        edges = _edges_along(rows[:, 0].astype(np.uint64), path, rows)
        more.append(RootMarks.of_roots(RootMark.RELEASED, roots.find(rows[:, 0]), edges))
    for cause, numbers in report.failures:
        more.append(RootMarks.of_roots(RootMark.FAILED, roots.find(numbers), cause=cause))
    marks = RootMarks.together([marks, *more])
    return replace(report, marks=marks, failures=(), outstanding={}, touched=_NONE)


def _edges_along(first: U64, subscriptions: Subscriptions, rows: I64) -> U64:
    """Return the edge at the end of each path: `first` at its begin, the ordinals of its hops in `rows`."""
    edges = first
    for hop, subscription in enumerate(subscriptions, start=1):
        edges = child_edges(edges, subscription, rows[:, hop])
    return edges


def plan_root_edges(plan: BatchPlan, indices: I64) -> U64:
    """Return the root edge of each root of the plan, by index."""
    return root_edges(*plan.index().roots(indices))


def residuals(
    plan: BatchPlan,
    outstanding: Iterable[Mapping[Subscriptions, I64]],
    further: Sequence[tuple[I64, U64]] = (),
) -> tuple[I64, U64]:
    """XOR, for each root, the edges of outstanding deliveries, and further ones with their roots' indices.

    Returns ascending indices of roots whose sum is not 0, and the sums.
    """
    indices: list[I64] = [roots for roots, _ in further]
    edges: list[U64] = [edge for _, edge in further]
    for terms in outstanding:
        for subscriptions, rows in terms.items():
            indices.append(rows[:, 0])
            edges.append(_edges_along(plan_root_edges(plan, rows[:, 0]), subscriptions, rows))
    return xor_sums(np.concatenate([_NONE, *indices]), np.concatenate([np.empty(0, np.uint64), *edges]))
