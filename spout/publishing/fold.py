"""What the tasks of a batch report, and which edges the batch's roots lack by these reports.

The contribution of a batch to a root is the XOR, over every tuple of its tree that was acked, of
the tuple's edge and the edges of what was emitted on it. Summed over a tree of which all is acked,
that is the root's edge: every other edge comes twice. So nobody computes edges that cancel. A task
reports what is *outstanding*, the deliveries whose edges are missing from that sum, and the driver
computes

    ``value(root) = root edge  ^  XOR of the edges of its outstanding deliveries``

Most batches have none. `spout.publishing.settle` puts the reports of a batch together.

A *subscription* is one bolt's receiving of one stream; its key is a number. A delivery's
*ordinal* is its number among the deliveries of its parent on one subscription. A root's edge, a
subscription and an ordinal give the edge of the delivery; with one more of both, that of a
delivery behind it. A
*path* is all subscriptions from the root on.

Source: docs/design/protocol.md, sections 2 ("The fold") and 5.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from acker.hot_paths import distinct
from acker.identity import I64, U64, child_edges, root_edges, subscription_key
from acker.kafka.port import DamagedRun
from acker.root_sets.root_set import NO_ROOTS, RootSet
from acker.wire.causes import UNREADABLE_CAUSES
from acker.wire.events import SourceRun
from acker.wire.lateness import Mover
from acker.wire.passed_calls import PassedCall
from spout.planning.order import LinedRecords
from spout.planning.plan import BatchPlan, PlanIndex
from spout.publishing.delayed import (
    HighestTime,
    by_key,
    find_keyed_roots,
)
from spout.publishing.root_marks import NO_MARKS, NUMBERED, PLANNED, RootMark, RootMarks, roots_of
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import Counts, What, sum_of_counts
from spout.tuples.failures import ERRORS_MAX, Cause
from spout.tuples.raised import Raised, first_of_each
from spout.tuples.tuple import Delivery

Subscriptions = tuple[int, ...]
"""The keys of the subscriptions along a path, from the spout on."""


class TaskId(NamedTuple):
    """Spark's name of a task; if the task is repeated, `attempt` is higher."""

    stage: int
    attempt: int
    partition: int


UNSENT: Final = TaskId(0, 0, 0)
"""The task of a report that was not sent yet."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What read tasks did not find, or could not read.

    Attributes:
        absent: positions for which the log holds no record.
        lost_count: how many of `absent` have left the log since the batch was planned.
        damaged: offsets that could not be read; their roots are failed, or `absent`.
    """

    absent: RootSet = NO_ROOTS
    lost_count: int = 0
    damaged: tuple[DamagedRun, ...] = ()


NOTHING_MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did with the part of a batch that it was given.

    Attributes:
        operator: the bolts that ran, one behind the other, ``first+second``; the first one's name
            identifies them.
        upstream: the tracked operator whose rows it received directly; empty for a read task, and
            behind Spark's own operators.
        consumer: the bolt that receives its rows directly; empty when Spark's operators or the sink
            do.
        task: who reports; `spout.publishing.report_accumulator.add` writes it into each report.
        plan: the batch's whole plan; None: it is no read task.
        ranges: the positions that a read task was to read.
        missing: which of them it did not find, or could not read.
        received: a flag for each root by index, up to the last one that a first bolt behind Spark's
            operators received: whether it did. None: the task ran no such bolt.
        outstanding: deliveries whose edges are missing from the sums of their roots, by their
            paths. A delivery is a row: the root's index in the plan, then the ordinal on each
            subscription of the path. Behind a keyed bolt they are marks.
        received_fingerprint: of the rows that came from `upstream`.
        sent_fingerprint: of the rows that went to `consumer`.
        counts: what its bolts did, by component and stream.
        errors: what bolts reported, at most `ERRORS_MAX` of each bolt, the earliest.
        raised: the first traceback of each kind of exception by which they failed tuples.
        lined_records: of each partition that a read task read in order, which record is in which
            line: the records of a line are acked one after the other (`spout.planning.order`). Where
            no rows go on to other tasks, it has only the lines in which a record failed or is open.
        marks: what the task did to roots, each named by its position, by its index in the plan, or
            behind a keyed bolt by its number.
        highest_times: the highest time of each column with times, of a read task whose rows Spark's
            operators get.
    """

    operator: str
    upstream: str = ""
    consumer: str = ""
    task: TaskId = UNSENT
    plan: BatchPlan | None = None
    ranges: tuple[SourceRun, ...] = ()
    missing: Missing = NOTHING_MISSING
    received: npt.NDArray[np.bool_] | None = None
    outstanding: Mapping[Subscriptions, I64] = field(default_factory=dict)
    received_fingerprint: Fingerprint = field(default_factory=Fingerprint)
    sent_fingerprint: Fingerprint = field(default_factory=Fingerprint)
    counts: Counts = field(default_factory=dict)
    errors: tuple[Cause, ...] = ()
    lined_records: tuple[LinedRecords, ...] = ()
    raised: tuple[Raised, ...] = ()
    marks: RootMarks = NO_MARKS
    highest_times: tuple[HighestTime, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the task handed tuples to Spark's state."""
        return len(self.marks.of(RootMark.HELD_TUPLE)) > 0

    @property
    def settles_held(self) -> bool:
        """Whether the task acked, failed or touched what Spark's state had held."""
        settling_kinds = RootMark.RELEASED, RootMark.FAILED, RootMark.HELD_ON, RootMark.TOUCHED
        # what Spark's state had held is named by its position; pseudo sources are below 0
        return bool((self.marks.of(*settling_kinds).sources >= 0).any())

    @property
    def first_bolt(self) -> str:
        """The name of the first bolt, which identifies the operator."""
        return self.operator.partition("+")[0]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of a batch, ready to be published.

    Attributes:
        marks: what became of its roots, and of roots of earlier batches. A root of the batch
            without a mark is acked. A root has each kind at most once, with two exceptions:
            `LEFT_OPEN` once for each bolt, and `FAILED` of an earlier batch once for each cause.
        missing: what its read tasks did not find, or could not read.
        counts: what its bolts did, by component and stream.
        errors: what bolts reported, the earliest of each task.
        lined_records: of each partition that was read in order, which records are in which lines.
        late_count: how many tuples a watermark dropped that `hold` would have held.
        highest_times: the highest times that tasks have seen, of columns and of what they held.
        raised: the first traceback of each kind of exception by which bolts failed tuples.
        passed: calls that hung or ended their process, and passed when they came again.
    """

    plan: BatchPlan
    marks: RootMarks = NO_MARKS
    missing: Missing = NOTHING_MISSING
    counts: Counts = field(default_factory=dict)
    errors: tuple[Cause, ...] = ()
    lined_records: tuple[LinedRecords, ...] = ()
    late_count: int = 0
    highest_times: tuple[HighestTime, ...] = ()
    raised: tuple[Raised, ...] = ()
    passed: tuple[PassedCall, ...] = ()

    @property
    def stops_for_damage(self) -> bool:
        """Whether the query must end after this batch, since a part of it could not be read."""
        return any(cause.error in UNREADABLE_CAUSES for cause in self.marks.of(RootMark.FAILED).used_causes())

    def own_marks(self, *kinds: RootMark) -> RootMarks:
        """Return the marks of some kinds of the roots that the batch emitted itself."""
        return self.marks.of(*kinds).within(self.plan.roots())


class LateNote(NamedTuple):
    """What a watermark dropped of a batch.

    Attributes:
        wall_ms: wall clock.
        watermark_ms: event time at which the watermark stood.
        row_count: how many rows it dropped of which nobody knows the records.
        mover: what had moved it there; None: nobody knows.
    """

    wall_ms: int
    watermark_ms: int
    row_count: int
    mover: Mover | None


def outstanding_of(deliveries: Iterable[Delivery]) -> dict[Subscriptions, I64]:
    """Return deliveries by their subscriptions, as `TaskReport.outstanding` has them.

    The hops of a delivery are pairs (subscription, ordinal). So a delivery of root 5 by (A, 0) and
    (B, 2) becomes a row 5, 0, 2 under the subscriptions (A, B).
    """
    rows_by_path: dict[Subscriptions, list[tuple[int, ...]]] = {}
    for root, hops in deliveries:
        path = tuple(subscription for subscription, _ in hops)
        ordinals = (ordinal for _, ordinal in hops)
        rows_by_path.setdefault(path, []).append((root, *ordinals))
    return {path: np.array(rows, np.int64) for path, rows in rows_by_path.items()}


def _roots_of_deliveries(rows: I64) -> I64:
    """Return the roots of deliveries, as `TaskReport.outstanding` has these: their first column."""
    return rows[:, 0]


def indices_not_done(report: TaskReport) -> I64:
    """Return the roots that a read task fails, or leaves open, as ascending indices."""
    failed_roots = report.marks.of(RootMark.FAILED).positions
    open_roots = [_roots_of_deliveries(rows) for rows in report.outstanding.values()]
    return distinct(np.concatenate([failed_roots, *open_roots]))


def left_open_by_bolts(report: TaskReport) -> Iterator[tuple[str, I64]]:
    """Yield bolts that left tuples open, with the roots of these tuples, each as its index in the plan.

    Behind a keyed bolt the roots come by their numbers instead (`RootMark.KEYED`).

    What a bolt emitted on a tuple that it left open is outstanding, too, though the next bolt may
    be done with it. So only a delivery counts whose parent, one hop up its path, is not outstanding
    itself: with rows 5, 0 of (A,) and 5, 0, 2 of (A, B), only the bolt of A left root 5 open.

    A bolt comes several times if tuples reached it on several paths.
    """
    if not report.outstanding:
        return
    # what a bolt has executed shows which streams it receives
    bolts_by_subscription = {
        subscription_key(stream.component, stream.stream, bolt): bolt
        for what, bolt, stream in report.counts
        if what is What.EXECUTED
    }
    rows_by_path = {path: set(map(tuple, rows.tolist())) for path, rows in report.outstanding.items()}
    for path, rows in report.outstanding.items():
        # the empty path is the root itself, as the first bolt received it: it has no parent
        parents = rows_by_path.get(path[:-1], set()) if path else set()
        roots: list[int] = []
        for delivery in rows.tolist():  # the root, then an ordinal for each hop
            parent = tuple(delivery[:-1])
            if parent not in parents:
                roots.append(delivery[0])
        if not roots:
            continue
        bolt = bolts_by_subscription.get(path[-1], report.operator) if path else report.first_bolt
        yield bolt, np.array(roots, np.int64)


def merged(reports: Sequence[TaskReport]) -> TaskReport:
    """Return one report for a task that reported in parts: `reports`, at least one, in order.

    No two of them have the same tuple. They name no plan, and hold and release nothing.
    """
    first_report = reports[0]  # the parts are of one task: what they say of it is the same in all
    parts_by_path = by_key(pair for report in reports for pair in report.outstanding.items())
    received = [report.received_fingerprint for report in reports]
    sent = [report.sent_fingerprint for report in reports]
    return replace(
        first_report,
        outstanding={path: np.concatenate(parts) for path, parts in parts_by_path.items()},
        marks=RootMarks.together(report.marks for report in reports),
        received_fingerprint=reduce(Fingerprint.plus, received),
        sent_fingerprint=reduce(Fingerprint.plus, sent),
        counts=sum_of_counts(report.counts for report in reports),
        errors=_first_errors(reports),
        raised=first_of_each(raised for report in reports for raised in report.raised),
    )


def _first_errors(reports: Sequence[TaskReport]) -> tuple[Cause, ...]:
    """Return the earliest `ERRORS_MAX` errors of each bolt, in order."""
    first_errors: list[Cause] = []
    counts_by_operator = Counter[str]()
    for report in reports:
        for error in report.errors:
            counts_by_operator[error.operator] += 1
            if counts_by_operator[error.operator] <= ERRORS_MAX:
                first_errors.append(error)
    return tuple(first_errors)


def report_behind_keyed(report: TaskReport) -> TaskReport:
    """Return the report of a task behind a keyed bolt, with its outstanding deliveries as marks.

    Such a task names a root by a number, which is the edge of the tuple that the keyed bolt
    anchored its emission on. So the task can compute the edges of what descends from it.
    """
    parts = [report.marks]
    for path, rows in report.outstanding.items():
        numbers = _roots_of_deliveries(rows)
        edges = _edges_along(numbers.astype(np.uint64), path, rows)
        parts.append(RootMarks.of_roots(RootMark.OUTSTANDING, roots_of(NUMBERED, numbers), edges))
    for bolt, numbers in left_open_by_bolts(report):
        # a mark names a bolt by its cause, which has no error here
        named_bolt = Cause.of(bolt, "", "")
        roots = roots_of(NUMBERED, numbers)
        parts.append(RootMarks.of_roots(RootMark.LEFT_OPEN, roots, cause=named_bolt))
    return replace(report, marks=RootMarks.together(parts), outstanding={})


def placed(marks: RootMarks, planned: PlanIndex, keyed: RootMarks) -> RootMarks:
    """Return a task's marks with each root named by its source and position.

    A task may name a root otherwise: under the pseudo source `PLANNED` the column of positions has
    the root's index in the plan, under `NUMBERED` the number that a keyed bolt gave it.

    Args:
        marks: of any task.
        planned: the roots of the batch, by index.
        keyed: the `KEYED` marks of all tasks of the batch.

    Raises `TrackingError`: a root is not in the plan, or a keyed bolt emitted nothing on it.
    """
    is_planned, is_numbered = marks.sources == PLANNED, marks.sources == NUMBERED
    # a time is of the root of its tuple, which has a mark of its own: nobody asks the time for it
    is_planned &= marks.kinds != RootMark.HELD_UNTIL
    if not (is_planned.any() or is_numbered.any()):
        return marks
    sources, positions, kinds = marks.sources.copy(), marks.positions.copy(), marks.kinds.copy()
    indices = marks.positions[is_planned]
    sources[is_planned], positions[is_planned] = planned.sources_and_positions(indices)
    if is_numbered.any():
        numbers = marks.positions[is_numbered]
        sources[is_numbered], positions[is_numbered] = find_keyed_roots(keyed, numbers)
    # A root behind a keyed bolt may be of an earlier batch, which has published its sum already.
    # `RELEASED` is the kind whose edges are added to such a sum.
    kinds[is_numbered & (kinds == RootMark.OUTSTANDING)] = RootMark.RELEASED
    return replace(marks, sources=sources, positions=positions, kinds=kinds)


def _edges_along(start_edges: U64, subscriptions: Subscriptions, rows: I64) -> U64:
    """Return the edge at the end of each path.

    Args:
        start_edges: the edges from which the paths begin, ``(n,)``.
        subscriptions: along each of the paths, ``h`` of them.
        rows: ``(n, 1 + h)``; after the root, the ordinal on each subscription.
    """
    edges = start_edges
    for hop, subscription in enumerate(subscriptions, start=1):
        edges = child_edges(edges, subscription, rows[:, hop])
    return edges


def outstanding_marks(index: PlanIndex, reports: Iterable[TaskReport]) -> RootMarks:
    """Return an `OUTSTANDING` mark for each delivery that was not acked, with its edge.

    `index`: finds the roots that reports name by index.
    """
    parts: list[RootMarks] = []
    for report in reports:
        for path, rows in report.outstanding.items():
            roots = index.roots(_roots_of_deliveries(rows))
            edges = _edges_along(root_edges(*roots), path, rows)
            parts.append(RootMarks.of_roots(RootMark.OUTSTANDING, roots, edges))
    return RootMarks.together(parts)
