"""The outcome of a batch, as tests write and read it: roots of the batch by their indices in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from acker.identity import I64, U64, root_edges
from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import RootPositions
from spout.publishing.fold import BatchOutcome, Missing
from spout.publishing.root_marks import NO_MARKS, RootMark, RootMarks
from spout.tuples.failures import Cause

NONE: I64 = np.empty(0, np.int64)
NO_EDGES: U64 = np.empty(0, np.uint64)
NO_PLACES = RootPositions(NONE, NONE)
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


def outcome_from(
    plan: BatchPlan,
    failed: tuple[tuple[Cause, I64], ...] = (),
    absent: tuple[SourceRun, ...] = (),
    partial: I64 = NONE,
    residual: U64 = NO_EDGES,
    touched: I64 = NONE,
    *,
    held: I64 = NONE,
    late_roots: I64 = NONE,
    released: Mapping[int, tuple[I64, U64]] = NOTHING,
    failed_older: Mapping[Cause, Mapping[int, I64]] = NOTHING,
    held_open: tuple[tuple[str, RootPositions], ...] = (),
    firsts: RootMarks = NO_MARKS,
    traces: RootMarks = NO_MARKS,
    **facts: Any,
) -> BatchOutcome:
    """Make an outcome; `released` and `failed_older` are of earlier batches, `facts` of the whole batch."""
    index = plan.index()
    marks = [RootMarks.of_roots(RootMark.FAILED, index.roots(roots), cause=cause) for cause, roots in failed]
    open_roots = index.roots(partial)
    marks.append(RootMarks.of_roots(RootMark.OPEN, open_roots, root_edges(*open_roots) ^ residual))
    kinds = {RootMark.TOUCHED: touched, RootMark.HELD: held, RootMark.LATE: late_roots}
    marks += [RootMarks.of_roots(kind, index.roots(roots)) for kind, roots in kinds.items()]
    for source, (positions, sums) in released.items():
        roots_of_source = np.full(len(positions), source), positions
        marks.append(RootMarks.of_roots(RootMark.RELEASED, roots_of_source, sums))
    for cause, by_source in failed_older.items():
        for source, positions in by_source.items():
            roots_of_source = np.full(len(positions), source), positions
            marks.append(RootMarks.of_roots(RootMark.FAILED, roots_of_source, cause=cause))
    for bolt, places in held_open:
        marks.append(RootMarks.of_roots(RootMark.LEFT_OPEN, places, cause=Cause(bolt, "", "")))
    missing = Missing(RootSet.of_runs(absent))
    return BatchOutcome(plan, RootMarks.together([*marks, firsts, traces]), missing, **facts)


def plan_root_edges(plan: BatchPlan, indices: I64) -> U64:
    """Return the root edge of each root of a plan, by index."""
    return root_edges(*plan.index().roots(indices))


def released_marks(
    places: RootPositions = NO_PLACES,
    edges: U64 = NO_EDGES,
    failures: tuple[tuple[Cause, RootPositions], ...] = (),
    held_on: RootPositions = NO_PLACES,
    touched: RootPositions = NO_PLACES,
    open_places: RootPositions = NO_PLACES,
    open_edges: U64 = NO_EDGES,
) -> RootMarks:
    """Mark what a task did with held tuples; those of `open_places` were left open by the bolt ``ack``."""
    return RootMarks.together(
        [
            RootMarks.of_roots(RootMark.RELEASED, places, edges),
            *(RootMarks.of_roots(RootMark.FAILED, roots, cause=cause) for cause, roots in failures),
            RootMarks.of_roots(RootMark.HELD_ON, held_on),
            RootMarks.of_roots(RootMark.TOUCHED, touched),
            RootMarks.of_roots(RootMark.LEFT_OPEN, open_places, open_edges, Cause("ack", "", "")),
        ]
    )


def places_of_marks(marks: RootMarks, *kinds: RootMark) -> RootPositions:
    """Return where the roots of some kinds of marks are; without kinds, of all."""
    some = marks.of(*kinds) if kinds else marks
    return RootPositions(some.sources, some.positions)


def positions_by_cause(marks: RootMarks) -> list[tuple[Cause, list[int]]]:
    """Return the positions of the roots that failed, by cause."""
    return [(cause, failed.positions.tolist()) for cause, failed in marks.of(RootMark.FAILED).by_cause()]


def indices_of(outcome: BatchOutcome, marks: RootMarks) -> I64:
    """Return the index in the plan of each root that is the batch's own, in their order."""
    numbers = outcome.plan.index().find_roots(marks.sources, marks.positions)
    return numbers[numbers >= 0]


def failed_by_cause(outcome: BatchOutcome) -> tuple[tuple[Cause, I64], ...]:
    """Return the roots of the batch that failed, by their causes, as ascending indices."""
    by_cause = [(cause, indices_of(outcome, marks)) for cause, marks in failures_of_outcome(outcome)]
    return tuple((cause, indices) for cause, indices in by_cause if len(indices))


def failures_of_outcome(outcome: BatchOutcome) -> list[tuple[Cause, RootMarks]]:
    return outcome.marks.of(RootMark.FAILED).by_cause()


def open_roots_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch whose contribution is not their root edge, as ascending indices."""
    return indices_of(outcome, outcome.marks.of(RootMark.OPEN))


def open_edges_of(outcome: BatchOutcome) -> U64:
    """Return the XOR of the outstanding edges of each of `open_roots_of`."""
    open_marks = outcome.marks.of(RootMark.OPEN)
    return open_marks.edges ^ root_edges(open_marks.sources, open_marks.positions)


def absent_of(missing: Missing) -> tuple[SourceRun, ...]:
    """Return the positions for which the log holds no record, as runs."""
    return tuple(missing.absent.runs())


def touched_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch whose timeout was reset."""
    return indices_of(outcome, outcome.marks.of(RootMark.TOUCHED))


def held_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch of which Spark's state holds tuples."""
    return indices_of(outcome, outcome.marks.of(RootMark.HELD))


def late_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch of which a watermark dropped tuples."""
    return indices_of(outcome, outcome.marks.of(RootMark.LATE))


def older_sums(outcome: BatchOutcome) -> dict[int, tuple[list[int], list[int]]]:
    """Return what the batch contributes to roots of earlier ones: positions and sums, by source."""
    return sums_by_source(outcome.marks)


def sums_by_source(marks: RootMarks) -> dict[int, tuple[list[int], list[int]]]:
    """Return positions and sums of what was released, by source."""
    released = marks.of(RootMark.RELEASED)
    sums: dict[int, tuple[list[int], list[int]]] = {}
    for source, position, edge in zip(
        released.sources.tolist(), released.positions.tolist(), released.edges.tolist(), strict=True
    ):
        positions, edges = sums.setdefault(source, ([], []))
        positions.append(position)
        edges.append(edge)
    return sums


def older(outcome: BatchOutcome, marks: RootMarks) -> dict[int, list[int]]:
    """Return the positions of the roots of earlier batches, by source."""
    positions: dict[int, list[int]] = {}
    for source, position, *_ in marks.without(outcome.plan.roots()).rows():
        positions.setdefault(source, []).append(position)
    return positions


def older_failed(outcome: BatchOutcome) -> dict[Cause, dict[int, list[int]]]:
    """Return the roots of earlier batches that it fails: positions by cause and source."""
    by_cause = {cause: older(outcome, marks) for cause, marks in failures_of_outcome(outcome)}
    return {cause: by_source for cause, by_source in by_cause.items() if by_source}


def older_touched(outcome: BatchOutcome) -> dict[int, list[int]]:
    """Return the roots of earlier batches whose timeout it resets: positions by source."""
    return older(outcome, outcome.marks.of(RootMark.TOUCHED))


def left_open_of(outcome: BatchOutcome) -> list[tuple[str, list[int]]]:
    """Return the bolts that left open what was held, with the positions of the roots."""
    by_cause = outcome.marks.of(RootMark.LEFT_OPEN).by_cause()
    return [(cause.operator, marks.positions.tolist()) for cause, marks in by_cause]
