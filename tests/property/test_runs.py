"""Runs of positions against plain sets of positions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acker.wire.events import PositionRun, joined_bounds, joined_runs, runs_of

RUNS = st.lists(
    st.builds(lambda start, size: PositionRun(start, start + size), st.integers(0, 60), st.integers(1, 9))
)
POSITIONS = st.sets(st.integers(0, 60))


def members(runs: Iterable[tuple[int, int]]) -> list[int]:
    """Return the positions of runs, in their order."""
    return [position for start, end in runs for position in range(start, end)]


def are_apart(runs: list[PositionRun]) -> bool:
    """Tell whether ascending runs are not empty, and leave something out between each two."""
    return all(run.start < run.end for run in runs) and all(a.end < b.start for a, b in pairwise(runs))


@given(POSITIONS)
def test_positions_become_the_fewest_runs_that_hold_them(positions: set[int]) -> None:
    found = runs_of(np.array(sorted(positions), np.int64))
    assert are_apart(found)
    assert members(found) == sorted(positions)


@given(RUNS)
def test_joined_runs_cover_what_the_runs_cover(runs: list[PositionRun]) -> None:
    found = list(joined_runs(sorted(runs)))
    assert are_apart(found)
    assert members(found) == sorted(set(members(runs)))


@given(POSITIONS, st.sets(st.integers(0, 60)))
def test_arrays_and_lists_are_joined_alike(positions: set[int], cuts: set[int]) -> None:
    """Disjoint runs, some of which touch, as their starts and ends."""
    runs: list[PositionRun] = []
    for run in runs_of(np.array(sorted(positions), np.int64)):
        edges = [run.start, *sorted(cut for cut in cuts if run.start < cut < run.end), run.end]
        runs += [PositionRun(*pair) for pair in pairwise(edges)]
    starts, ends = joined_bounds(*(np.array([run[end] for run in runs], np.int64) for end in (0, 1)))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == list(joined_runs(runs))
