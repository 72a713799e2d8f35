"""Batches that hold tuples, and release them: settled and published by way of the tasks' blobs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from acker.identity import I64, WIRE_BLOCK_BITS, root_edge
from acker.wire.events import SourceRun, positions, values
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.delayed import HeldAt, RootPositions, held_edges
from spout.publishing.fold import TaskReport
from spout.publishing.publish import BatchLane, Publication, publication_of
from spout.publishing.root_marks import RootMark, RootMarks
from spout.publishing.settle import Moment, settle
from tests.support.reports import Held, reported, task_report

A, B = 1 << 16, 1 << 16 | 1
LONGER_MS = 60_000
"""How much longer a root may stay open that Spark's state holds."""
Root = tuple[int, int]


def plan_of(*ranges: SourceRun) -> BatchPlan:
    """Make a plan."""
    return BatchPlan("g", "s", 1, 4, 99, 30_000, True, ranges)


def array(*numbers: int) -> I64:
    """Make an array."""
    return np.array(numbers, np.int64)


def held(plan: BatchPlan, *roots: int, until_ms: int = 1_000, fails_late: bool = False) -> Held:
    """Hold a tuple of each root, by index; a root that comes twice is held twice."""
    at = [(run.source, p) for run in plan.ranges for p in range(run.start, run.end)]
    places = RootPositions(array(*(at[root][0] for root in roots)), array(*(at[root][1] for root in roots)))
    edges = held_edges(places, (7,), array(*range(len(roots))), HeldAt(11, 0, 0))
    return Held(array(*roots), edges, np.full(len(roots), until_ms), fails_late)


def released(plan: BatchPlan, tuples: Held, rows: slice = slice(None)) -> RootMarks:
    """Ack some of what was held."""
    at = [(run.source, p) for run in plan.ranges for p in range(run.start, run.end)]
    roots = [at[index] for index in tuples.indices.tolist()][rows]
    places = RootPositions(
        array(*(source for source, _ in roots)), array(*(position for _, position in roots))
    )
    return RootMarks.of_roots(RootMark.RELEASED, places, tuples.edges[rows])


def batch(plan: BatchPlan, *reports: TaskReport, watermark_ms: int = 0) -> Publication:
    """Settle a batch and write its records, by way of the tasks' blobs."""
    reads = [task_report("split", plan=plan, ranges=plan.ranges)] if plan.ranges else []
    sent = [decode(encode(report)) for report in (*reads, *reports)]
    evaluations = [reported(stage, stage, 0, report) for stage, report in enumerate(sent)]
    outcome = settle(evaluations, (), lambda _stage: 1, Moment(plan, watermark_ms))
    return publication_of(outcome, BatchLane("q/s", 1), {1: LONGER_MS})


def sums(*batches: Publication) -> dict[Root, int]:
    """Sum up what batches contribute to each root."""
    summed: dict[Root, int] = defaultdict(int)
    for record in (record for each in batches for record in each.acks):
        for run in record.runs:
            for position in range(*run):
                summed[record.source, position] ^= root_edge(record.source, position)
        for position, value in zip(positions(record.positions), values(record.values), strict=True):
            assert position >> WIRE_BLOCK_BITS == record.block
            summed[record.source, int(position)] ^= int(value)
    return summed


def open_roots(*batches: Publication) -> set[Root]:
    """Return the roots that are named and not complete."""
    return {root for root, value in sums(*batches).items() if value != root_edge(*root)}
