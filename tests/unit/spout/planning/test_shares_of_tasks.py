"""How a plan is cut into tasks, which positions it has, and what is missing, held against plain counting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import TrackingError
from acker.identity import WIRE_BLOCK_BITS, source_of
from acker.wire.events import SourceRun
from spout.planning.order import LineUp
from spout.planning.plan import (
    TASK_RECORDS_MIN,
    BatchPlan,
    PlanIndex,
    cut_ranges,
    read_tasks,
    runs_without_record,
)

BLOCK: Final = 1 << WIRE_BLOCK_BITS


def run_lengths() -> st.SearchStrategy[int]:
    near = [1, 2, 7, 8, BLOCK // 4, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK]
    return st.one_of(st.sampled_from(near), st.integers(1, 90_000))


@st.composite
def run_lists(draw: st.DrawFn) -> list[SourceRun]:
    """Ascending, disjoint ranges, some of which begin at the edge of a block."""
    runs: list[SourceRun] = []
    for source in draw(st.lists(st.integers(1, 5), unique=True, max_size=3).map(sorted)):
        start = draw(st.one_of(st.just(0), st.sampled_from([BLOCK, 3 * BLOCK]), st.integers(0, 99_999)))
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 9), run_lengths()), max_size=3)):
            start += gap
            runs.append(SourceRun(source, start, start + length))
            start += length + 1
    return runs


def plain_shares(runs: Sequence[SourceRun], pieces: int) -> list[tuple[SourceRun, ...]]:
    """Cut at the nearest edge of a range or block that a quarter of a share reaches, else in equal parts."""
    edges = {0}
    firsts: list[int] = []
    total = 0
    for _, start, end in runs:
        firsts.append(total)
        blocks = range((start // BLOCK + 1) * BLOCK, end, BLOCK)
        edges |= {total + (edge - start) for edge in blocks}
        total += end - start
        edges.add(total)
    cuts = {0, total}
    for number in range(1, pieces):
        ideal = round(total / pieces * number)
        nearest = min(sorted(edges), key=lambda edge: abs(edge - ideal))
        cuts.add(nearest if abs(nearest - ideal) <= total / pieces / 4 else ideal)
    shares: list[tuple[SourceRun, ...]] = []
    borders = sorted(cuts)
    for low, high in pairwise(borders):
        share: list[SourceRun] = []
        for (source, start, end), first in zip(runs, firsts, strict=True):
            cut = SourceRun(source, start + max(0, low - first), min(end, start + high - first))
            if cut.start < cut.end:
                share.append(cut)
        shares.append(tuple(share))
    return shares


@given(run_lists(), st.integers(1, 9))
def test_shares_are_cut_at_the_nearest_edge_that_a_quarter_of_a_share_reaches(
    runs: list[SourceRun], pieces: int
) -> None:
    assert cut_ranges(runs, pieces) == plain_shares(runs, pieces)


@pytest.mark.parametrize(
    ("runs", "pieces", "borders"),
    [
        # the ideal cut lies 8,192 behind the edge of a block, and a quarter of a share is that
        ([SourceRun(1, BLOCK - 24_576, BLOCK + 40_960)], 2, [BLOCK]),
        ([SourceRun(1, BLOCK - 24_575, BLOCK + 40_959)], 2, [BLOCK + 8_192]),
        ([SourceRun(1, 100, 140)], 4, [110, 120, 130]),
        ([SourceRun(1, 100, 108), SourceRun(1, 200, 232)], 4, [200, 212, 222]),
        ([SourceRun(1, 100, 107), SourceRun(1, 200, 233)], 4, [203, 213, 223]),
        # the edge of a block in the second range is nearer than its beginning
        ([SourceRun(1, 0, 24_576), SourceRun(2, BLOCK - 10_000, BLOCK + 30_000)], 2, [BLOCK]),
        ([SourceRun(1, 100, 440), SourceRun(1, 500, 800)], 2, [500]),
        ([SourceRun(1, 0, 1)], 9, []),
        ([SourceRun(1, 0, 2 * BLOCK)], 2, [BLOCK]),
        ([SourceRun(1, 0, 3)], 0, []),
    ],
)
def test_a_cut_moves_to_an_edge_that_is_as_near_as_a_quarter_of_a_share(
    runs: list[SourceRun], pieces: int, borders: list[int]
) -> None:
    shares = cut_ranges(runs, pieces)
    assert [share[0].start for share in shares[1:]] == borders


@given(st.sets(st.integers(0, 20), min_size=1), st.integers(0, 20))
def test_holes_are_what_is_missing_up_to_the_last_position(present: set[int], expected: int) -> None:
    positions = np.array(sorted(p for p in present if p >= expected) or [expected], np.int64)
    runs = runs_without_record(7, expected, positions)
    missing = [p for run in runs for p in range(run.start, run.end)]
    assert missing == [p for p in range(expected, int(positions[-1])) if p not in set(positions.tolist())]
    assert all(run.source == 7 and run.start < run.end for run in runs)


@given(run_lists(), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 200_000)), max_size=12))
def test_an_index_finds_each_position_of_the_plan_and_no_other(
    runs: list[SourceRun], drawn: Sequence[tuple[int, int]]
) -> None:
    edges = [(run.source, p) for run in runs for p in (run.start - 1, run.start, run.end - 1, run.end)]
    index = PlanIndex(runs)
    for source in {source for source, _ in (*edges, *drawn)}:
        positions = [p for other, p in (*edges, *drawn) if other == source]
        expected: list[int] = []
        for position in positions:
            first, place = 0, -1
            for run in runs:
                if run.source == source and run.start <= position < run.end:
                    place = first + position - run.start
                first += run.end - run.start
            expected.append(place)
        assert index.find(source, np.array(positions, np.int64)).tolist() == expected
        lowest = np.array([min(positions)], np.int64)
        assert index.find(source, lowest).tolist() == [expected[positions.index(min(positions))]]


def test_positions_of_a_source_that_the_plan_lacks_and_no_positions_are_found_nowhere() -> None:
    index = PlanIndex([SourceRun(1, 5, 9)])
    assert index.find(2, np.array([5, 6], np.int64)).tolist() == [-1, -1]
    assert index.find(1, np.array([1, 4], np.int64)).tolist() == [-1, -1]
    assert index.find(1, np.array([], np.int64)).tolist() == []
    assert index.find(1, np.array([5], np.int64)).tolist() == [0]


@pytest.mark.parametrize(
    "ranges",
    [
        [SourceRun(2, 5, 9), SourceRun(1, 5, 9)],
        [SourceRun(1, 5, 9), SourceRun(1, 1, 3)],
        [SourceRun(1, 5, 9), SourceRun(1, 8, 12)],
        [SourceRun(1, 5, 9), SourceRun(1, 5, 9)],
        [SourceRun(1, 5, 9), SourceRun(1, 9, 12), SourceRun(2, 0, 1), SourceRun(1, 20, 21)],
    ],
)
def test_roots_of_ranges_that_do_not_ascend_get_no_numbers(ranges: list[SourceRun]) -> None:
    """They would be the numbers of other roots."""
    with pytest.raises(TrackingError, match="the ranges of a plan do not ascend: "):
        PlanIndex(ranges)


def plan_of(*runs: SourceRun) -> BatchPlan:
    return BatchPlan("g", "s", 3, 4, 1_000, 30_000, tracked=True, ranges=runs)


@pytest.mark.parametrize(("records", "tasks"), [(TASK_RECORDS_MIN * 2 - 1, 1), (TASK_RECORDS_MIN * 2, 2)])
def test_a_task_has_no_fewer_records_than_its_start_is_worth(records: int, tasks: int) -> None:
    run = SourceRun(1, 10**6, 10**6 + records)
    assert len(read_tasks(plan_of(run), {1: "t"}, 8)) == tasks


def test_partitions_in_order_are_dealt_whole_by_their_size_with_their_copies() -> None:
    """The largest first, each to the task that has least; positions say nothing of the size."""
    first, second, third = (int(source_of(1, number)) for number in range(3))
    copies = int(source_of(1, 1, replay=True))
    runs = [
        SourceRun(first, 10**9, 10**9 + 40),
        SourceRun(second, 0, 30),
        SourceRun(third, 5, 55),
        SourceRun(copies, 0, 25),
    ]
    line_up = LineUp("partition", {}, copies_max=5)
    order = dict.fromkeys((first, second, third), line_up)
    topics = {run.source: "t" for run in runs}
    tasks = read_tasks(plan_of(*runs), topics, 2, order)
    assert [task.ranges for task in tasks] == [(runs[1], runs[3]), (runs[0], runs[2])]
    assert [sorted(task.order) for task in tasks] == [[second], [first, third]]
    assert [task.ranges for task in read_tasks(plan_of(*runs), topics, 9, order)] == [
        (runs[1], runs[3]),
        (runs[2],),
        (runs[0],),
    ]
