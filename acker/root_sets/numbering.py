"""`RootNumbers`: the roots of a set, numbered from 0 in their order, and found by number.

A batch names its roots by numbers, which are small and dense. Of the runs [10, 20) and [30, 35) of source 7
and [0, 4) of source 9::

    root      7@10 ... 7@19    7@30 ... 7@34    9@0 ... 9@3
    number       0 ... 9         10 ... 14       15 ... 18

Within a run, number and position differ by one value, the run's *shift*: here by -10, -20 and 15.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from acker.identity import I64
from acker.root_sets.root_set import RootSet


class RootNumbers:
    """The numbers of the roots of a set; what it costs to build is the number of runs."""

    __slots__ = ("_bounds", "_runs_by_source", "_shifts", "_sources")

    def __init__(self, roots: RootSet) -> None:
        table = roots.table
        # the numbers at which runs begin, and behind them how many roots there are
        self._bounds = np.concatenate(([0], np.cumsum(table[:, 2] - table[:, 1])))
        self._sources = table[:, 0]
        self._shifts = self._bounds[:-1] - table[:, 1]
        sources, first_rows = np.unique(table[:, 0], return_index=True)
        bounds = pairwise([*first_rows.tolist(), len(table)])
        self._runs_by_source: dict[int, tuple[I64, I64, I64]] = {}
        for source, (first, end) in zip(sources.tolist(), bounds, strict=True):
            starts, ends = np.ascontiguousarray(table[first:end, 1:].T)
            self._runs_by_source[source] = starts, ends, self._shifts[first:end]

    def find(self, source: int, positions: I64) -> I64:
        """Return the number of each position of a source, in any order; -1: it is no root of the set."""
        runs = self._runs_by_source.get(source)
        if runs is None:
            return np.full(len(positions), -1)
        starts, ends, shifts = runs
        if not len(positions) or positions.max() < starts[0]:  # as of nearly all that is of earlier batches
            return np.full(len(positions), -1)
        # the last run that begins at a position or before it; before all of them the first one
        row = np.maximum(np.searchsorted(starts, positions, side="right") - 1, 0)
        is_inside = (positions >= starts[row]) & (positions < ends[row])
        numbers: I64 = np.where(is_inside, positions + shifts[row], -1)
        return numbers

    def roots(self, numbers: I64) -> tuple[I64, I64]:
        """Return the source and the position of each number, in any order; a number may come twice."""
        if not len(numbers):  # as of most kinds of roots in most batches
            return numbers, numbers
        if (numbers[1:] >= numbers[:-1]).all():
            # each run has a stretch of them: runs are looked up, which are few, and not numbers
            lengths = np.diff(np.searchsorted(numbers, self._bounds))
            rows = np.repeat(np.arange(len(lengths)), lengths)
        else:
            rows = np.searchsorted(self._bounds, numbers, side="right") - 1
        return self._sources[rows], numbers - self._shifts[rows]
