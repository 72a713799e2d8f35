"""`RootNumbers`: the roots of a set, numbered from 0 in their order, and found by number.

A batch names its roots by numbers, which are small and dense. Of the runs [10, 20) and [30, 35) of source 7
and [0, 4) of source 9::

    root      7@10 ... 7@19    7@30 ... 7@34    9@0 ... 9@3
    number       0 ... 9         10 ... 14       15 ... 18

Within a run, number and position differ by one value, the run's *shift*: here by -10, -20 and 15.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from acker.identity import I64, Position, Root, Source
from acker.root_sets.root_set import RootSet

STRETCHES_MAX: Final = 1_000
"""So many stretches of rows of one source are looked up in turn; of more, the rows are sorted."""


class RootNumbers:
    """The numbers of the roots of a set; what it costs to build is the number of runs."""

    __slots__ = ("_bounds", "_roots", "_shifts")

    def __init__(self, roots: RootSet) -> None:
        starts, ends = roots.table[:, 1], roots.table[:, 2]
        # the numbers at which runs begin, and behind them how many roots there are
        self._bounds = np.concatenate(([0], np.cumsum(ends - starts)))
        self._shifts = self._bounds[:-1] - starts
        self._roots = roots

    @property
    def count(self) -> int:
        """How many roots the set has."""
        return int(self._bounds[-1])

    def find(self, source: int, positions: I64) -> I64:
        """Return the number in the set of each position of a source, in any order.

        -1: it is not in it.
        """
        # 1. the runs of the source, which are neighbouring rows of the table
        rows_of_source = self._roots.rows_of_source(source)
        starts = self._roots.table[rows_of_source, 1]
        ends = self._roots.table[rows_of_source, 2]
        shifts = self._shifts[rows_of_source]
        # none is in the set if the highest lies before its first run: so does all that a batch
        # does to roots of earlier batches
        if not len(starts) or not len(positions) or positions.max() < starts[0]:
            return np.full(len(positions), -1)
        # 2. the last run that begins at a position or before it; before all of them the first one
        rows_of_positions = np.maximum(np.searchsorted(starts, positions, side="right") - 1, 0)
        is_inside = (positions >= starts[rows_of_positions]) & (positions < ends[rows_of_positions])
        numbers: I64 = np.where(is_inside, positions + shifts[rows_of_positions], -1)
        return numbers

    def root(self, number: int) -> Root:
        """Return the root of one number."""
        sources, positions = self.roots(np.array([number]))
        return Root(Source(int(sources[0])), Position(int(positions[0])))

    def roots(self, numbers: I64) -> tuple[I64, I64]:
        """Return the source and the position of each number; see the head of this module.

        The numbers may be in any order, and come twice.
        """
        if not len(numbers):  # often: most kinds of roots are missing in most batches
            return numbers, numbers
        if (numbers[1:] >= numbers[:-1]).all():
            # They ascend, so those of each run are neighbours: the bounds of the runs, which are
            # few, are searched among the numbers. `_bounds` has the number at which each run
            # begins, so each length is how many of the numbers are in a run.
            lengths = np.diff(np.searchsorted(numbers, self._bounds))
            rows = np.repeat(np.arange(len(lengths)), lengths)
        else:  # each number is searched among the bounds of the runs
            rows = np.searchsorted(self._bounds, numbers, side="right") - 1
        # `_shifts`: number minus position, by run
        return self._roots.table[rows, 0], numbers - self._shifts[rows]

    def find_roots(self, sources: I64, positions: I64) -> I64:
        """Return the number of each root, of any sources in any order; -1: it is not in the set.

        Root i has the source ``sources[i]`` and the position ``positions[i]``.
        """
        if not len(sources):
            return sources
        numbers = np.full(len(sources), -1)
        # 1. mostly roots of one source are neighbours: look them up stretch by stretch
        first_rows = np.concatenate(([0], np.flatnonzero(sources[1:] != sources[:-1]) + 1))
        if len(first_rows) <= STRETCHES_MAX:  # as of what one task did, or several
            end_rows = [*first_rows[1:].tolist(), len(sources)]
            for first_row, end_row in zip(first_rows.tolist(), end_rows, strict=True):
                source = int(sources[first_row])
                numbers[first_row:end_row] = self.find(source, positions[first_row:end_row])
            return numbers
        # 2. where sources change often, sort by source, and cut where the next one begins
        order = np.argsort(sources, kind="stable")
        sorted_sources, first_rows = np.unique(sources[order], return_index=True)
        rows_of_sources = np.split(order, first_rows[1:])
        for source, rows in zip(sorted_sources.tolist(), rows_of_sources, strict=True):
            numbers[rows] = self.find(source, positions[rows])
        return numbers
