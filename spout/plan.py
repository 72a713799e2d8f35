"""The plan of one micro-batch: which positions of which sources it emits, and how tasks share them.

A plan is a pure function of what Spark journalled (``spout.journal``), so a batch that is run again has
the same positions in the same order. Blobs speak of a root by its index into the plan.

Source: DESIGN.md, section 5.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from acker.errors import TrackingError
from acker.events import SourceRun
from acker.identity import I64, WIRE_BLOCK_BITS

TASK_RECORDS_MIN = 1_000
"""A task is not made smaller than this: below it, starting a task costs more than a second core gains."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What one micro-batch emits.

    Attributes:
        group: the group whose session emits it.
        session: id of the session; empty where nothing is tracked.
        epoch: the session's epoch.
        partitions: N, the number of acker partitions.
        now: session clock of the batch's last Init, ms; what `Acks.touched_at` says.
        timeout_ms: the shortest timeout of the group's inputs that have one; 0: none has.
        tracked: whether acks and fails of it are published.
        ranges: what it emits, ascending by source and start, disjoint.
    """

    group: str
    session: str
    epoch: int
    partitions: int
    now: int
    timeout_ms: int
    tracked: bool
    ranges: tuple[SourceRun, ...]

    @property
    def count(self) -> int:
        """How many positions it has."""
        return sum(run.end - run.start for run in self.ranges)

    def starts(self) -> tuple[int, ...]:
        """Return the index of each range's first position, one for one with `ranges`."""
        return (0, *accumulate(run.end - run.start for run in self.ranges))[:-1]

    def index(self) -> PlanIndex:
        """Make what looks positions up; keep it where many are looked up."""
        return PlanIndex(self.ranges)

    def index_of(self, source: int, positions: I64) -> I64:
        """Return each position's index into the concatenation of the ranges, as `PlanIndex.of` does."""
        return self.index().of(source, positions)


class PlanIndex:
    """Finds positions in the concatenation of a plan's ranges."""

    __slots__ = ("_by_source",)

    def __init__(self, ranges: Sequence[SourceRun]) -> None:
        """Prepare ranges, ascending by source and start, disjoint."""
        rows: dict[int, list[tuple[int, int, int]]] = {}
        first = 0
        for run in ranges:
            rows.setdefault(run.source, []).append((run.start, run.end, first - run.start))
            first += run.end - run.start
        self._by_source = {source: np.array(row, np.int64).T.copy() for source, row in rows.items()}

    def of(self, source: int, positions: I64) -> I64:
        """Return each position's index, int64, one for one.

        Raises:
            TrackingError: a position is not in the plan.
        """
        if not len(positions):
            return np.empty(0, np.int64)
        found = self._by_source.get(source)
        if found is None:
            raise TrackingError(f"source {source} is not in the plan of this batch; do not change anchors")
        starts, ends, shifts = found
        row = np.searchsorted(starts, positions, side="right") - 1
        if (row < 0).any() or (positions >= ends[row]).any():
            raise TrackingError(
                f"a position of source {source} is not in the plan of this batch; do not change anchors"
            )
        indices: I64 = positions + shifts[row]
        return indices


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one Spark task reads.

    Attributes:
        plan: the whole batch's plan; the task's blob carries it on.
        ranges: this task's share, ascending by source and start: a slice of the plan's concatenation.
        topics: topic name of each source in `ranges`.
    """

    plan: BatchPlan
    ranges: tuple[SourceRun, ...]
    topics: Mapping[int, str]

    def __reduce__(self) -> tuple[type[ReadTask], tuple[object, ...]]:
        """Pickle the topics as a plain dict, since a mapping proxy has no pickle."""
        return ReadTask, (self.plan, self.ranges, dict(self.topics))


def read_tasks(plan: BatchPlan, topics: Mapping[int, str], tasks: int) -> list[ReadTask]:
    """Share a plan over tasks of about equal size.

    Args:
        plan: the plan; without positions there are no tasks.
        topics: topic name of every source of the plan.
        tasks: how many to make at most; fewer where one would get less than `TASK_RECORDS_MIN`.

    Returns:
        Tasks whose ranges, put one behind the other, are the plan's.
    """
    shares = cut(plan.ranges, min(tasks, max(1, plan.count // TASK_RECORDS_MIN)))
    return [
        ReadTask(plan, share, MappingProxyType({run.source: topics[run.source] for run in share}))
        for share in shares
    ]


def cut(ranges: Sequence[SourceRun], pieces: int) -> list[tuple[SourceRun, ...]]:
    """Cut ranges into at most `pieces` shares of about equal size, in order.

    A cut moves to the end of a range or of a block of the wire (32,768 positions) where one is near
    (within a quarter of a share): such a share needs fewer seeks and folds over whole blocks.
    """
    total = sum(run.end - run.start for run in ranges)
    if not total:
        return []
    firsts = list(accumulate((run.end - run.start for run in ranges), initial=0))
    share = total / max(1, pieces)
    wanted = (_near_edge(ranges, firsts, round(share * i), share / 4) for i in range(1, max(1, pieces)))
    return _split(ranges, sorted({*wanted} - {0, total}))


def _near_edge(ranges: Sequence[SourceRun], firsts: Sequence[int], index: int, reach: float) -> int:
    """Return the index of the best place to cut that is at most `reach` away."""
    row = min(bisect_right(firsts, index), len(ranges)) - 1
    start = ranges[row].start
    inside = start + (index - firsts[row])
    block = 1 << WIRE_BLOCK_BITS
    low = inside >> WIRE_BLOCK_BITS << WIRE_BLOCK_BITS
    edges = [firsts[row], firsts[row + 1]]
    edges += [firsts[row] + (edge - start) for edge in (low, low + block) if start < edge < ranges[row].end]
    best = min(edges, key=lambda edge: (abs(edge - index), edge))
    return best if abs(best - index) <= reach else index


def _split(ranges: Iterable[SourceRun], cuts: Sequence[int]) -> list[tuple[SourceRun, ...]]:
    """Split the concatenation of ranges at ascending indices."""
    shares: list[tuple[SourceRun, ...]] = []
    share: list[SourceRun] = []
    first = 0
    left = list(reversed(cuts))
    for source, start, end in ranges:
        while left and left[-1] <= first + (end - start):
            middle = start + left.pop() - first
            if start < middle:
                share.append(SourceRun(source, start, middle))
            shares.append(tuple(share))
            share = []
            first += middle - start
            start = middle
        if start < end:
            share.append(SourceRun(source, start, end))
            first += end - start
    return [*shares, tuple(share)] if share else shares
