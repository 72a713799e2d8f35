"""The outcome of a batch, as tests write and read it: roots by their indices in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from acker.identity import I64, U64
from acker.wire.events import SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import Older, RootPositions
from spout.publishing.fold import BatchOutcome, FirstEmissions, RootTraces
from spout.tuples.failures import Cause

NONE: I64 = np.empty(0, np.int64)
NO_EDGES: U64 = np.empty(0, np.uint64)
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
    firsts: FirstEmissions | None = None,
    traces: RootTraces | None = None,
    **facts: Any,
) -> BatchOutcome:
    """Make an outcome; `released` and `failed_older` are of earlier batches, `facts` of the whole batch."""
    if firsts is not None:
        facts["firsts"] = firsts
    if traces is not None:
        facts["traces"] = traces
    return BatchOutcome(
        plan,
        failed,
        absent,
        partial=partial,
        residual=residual,
        touched=touched,
        held=held,
        late_roots=late_roots,
        older=Older(released, failed_older),
        held_open=held_open,
        **facts,
    )


def failed_by_cause(outcome: BatchOutcome) -> tuple[tuple[Cause, I64], ...]:
    """Return the roots of the batch that failed, by their causes, as ascending indices."""
    return outcome.failed


def open_roots_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch whose contribution is not their root edge, as ascending indices."""
    return outcome.partial


def open_edges_of(outcome: BatchOutcome) -> U64:
    """Return the XOR of the outstanding edges of each of `open_roots_of`."""
    return outcome.residual


def touched_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch whose timeout was reset."""
    return outcome.touched


def held_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch of which Spark's state holds tuples."""
    return outcome.held


def late_of(outcome: BatchOutcome) -> I64:
    """Return the roots of the batch of which a watermark dropped tuples."""
    return outcome.late_roots


def older_sums(outcome: BatchOutcome) -> dict[int, tuple[list[int], list[int]]]:
    """Return what the batch contributes to roots of earlier ones: positions and sums, by source."""
    return {source: (at.tolist(), sums.tolist()) for source, (at, sums) in outcome.older.acked.items()}


def older_failed(outcome: BatchOutcome) -> dict[Cause, dict[int, list[int]]]:
    """Return the roots of earlier batches that it fails: positions by cause and source."""
    return {
        cause: {source: at.tolist() for source, at in by_source.items()}
        for cause, by_source in outcome.older.failed.items()
    }


def older_touched(outcome: BatchOutcome) -> dict[int, list[int]]:
    """Return the roots of earlier batches whose timeout it resets: positions by source."""
    return {source: at.tolist() for source, at in outcome.older.touched.items()}


def left_open_of(outcome: BatchOutcome) -> list[tuple[str, list[int]]]:
    """Return the bolts that left open what was held, with the positions of the roots."""
    return [(bolt, places.positions.tolist()) for bolt, places in outcome.held_open]
