"""`PositionSet`: positions of one source that come and go, as runs.

`RootSet` never changes: each sum or difference is another set, and costs the runs of both. Here a run comes,
or goes, at the cost of the runs that it touches. So it is for what changes with each verdict, as the pending
roots of a source do.

Source: docs/design/protocol.md, section 5.1 (the pending window); docs/design/conformance.md, S101.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from acker.identity import I64
from acker.root_sets.runs import PositionRun, table_of_positions

_NEW_RUN: Final = partial(tuple.__new__, PositionRun)


class PositionSet:
    """A set of positions of one source, which changes; its cost is the number of its runs."""

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with the union of runs [start, end), in any order."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._size = 0
        for start, end in runs:
            self.add(start, end)

    @classmethod
    def of_positions(cls, positions: I64) -> PositionSet:
        """Return a set of positions, ``(n,)`` int64, in any order; one may come twice."""
        members = cls()
        # 0 is any source: only starts and ends of the table are used
        table = table_of_positions(0, positions)
        members._starts = table[:, 1].tolist()
        members._ends = table[:, 2].tolist()
        members._size = sum(members._ends) - sum(members._starts)
        return members

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[PositionRun]:
        # `tuple.__new__` makes a named tuple in a third of the time
        return map(_NEW_RUN, zip(self._starts, self._ends, strict=True))

    def __repr__(self) -> str:
        return f"PositionSet({[tuple(run) for run in self]})"

    @property
    def holes(self) -> int:
        """The number of runs: what it costs."""
        return len(self._starts)

    @property
    def first(self) -> int | None:
        """The lowest position."""
        return self._starts[0] if self._starts else None

    def __contains__(self, position: int) -> bool:
        index = bisect_right(self._starts, position) - 1
        return index >= 0 and position < self._ends[index]

    def add(self, start: int, end: int) -> int:
        """Add [start, end) and return how many positions of it were not there before."""
        if start >= end:
            return 0
        # Runs that touch the new one merge with it: those that end at its start or behind it, and begin at
        # its end or before it. Of [0, 2), [5, 7) and [9, 12) they are, for [2, 6), the first two.
        first_index = bisect_left(self._ends, start)
        end_index = bisect_right(self._starts, end)
        present = sum(self._ends[i] - self._starts[i] for i in range(first_index, end_index))
        if first_index < end_index:  # there are such runs
            start = min(start, self._starts[first_index])
            end = max(end, self._ends[end_index - 1])
        self._starts[first_index:end_index] = [start]
        self._ends[first_index:end_index] = [end]
        added = (end - start) - present
        self._size += added
        return added

    def remove(self, start: int, end: int) -> int:
        """Remove [start, end) and return how many positions of it were there."""
        return self.remove_all(((start, end),))

    def remove_all(self, runs: Iterable[tuple[int, int]]) -> int:
        """Remove ascending, disjoint runs and return how many of their positions were there.

        All runs of the set between the first and the last removed position are written anew once. So a
        million single positions cost one pass over the lists, not a million shifts of their ends.
        """
        removals = [(start, end) for start, end in runs if start < end]
        if not removals:
            return 0
        # 1. the runs of the set that end behind the first removed position and begin before the
        # last
        first_removed, end_removed = removals[0][0], removals[-1][1]
        first_index = bisect_right(self._ends, first_removed)
        end_index = bisect_left(self._starts, end_removed)
        if first_index >= end_index:
            return 0
        touched_starts = self._starts[first_index:end_index]
        touched_ends = self._ends[first_index:end_index]
        touched_runs = list(zip(touched_starts, touched_ends, strict=True))
        # 2. put what is left of them in their place
        remaining_runs = list(_uncovered(touched_runs, removals))
        removed = _position_count(touched_runs) - _position_count(remaining_runs)
        self._starts[first_index:end_index] = [start for start, _ in remaining_runs]
        self._ends[first_index:end_index] = [end for _, end in remaining_runs]
        self._size -= removed
        return removed

    def within(self, start: int, end: int) -> list[PositionRun]:
        """Return the parts of [start, end) that are in the set, ascending."""
        if start >= end:
            return []
        # the runs of the set that end behind `start` and begin before `end`
        first_index = bisect_right(self._ends, start)
        end_index = bisect_left(self._starts, end)
        run_starts = self._starts[first_index:end_index]
        run_ends = self._ends[first_index:end_index]
        parts: list[PositionRun] = []
        for run_start, run_end in zip(run_starts, run_ends, strict=True):
            parts.append(PositionRun(max(run_start, start), min(run_end, end)))
        return parts

    def outside(self, start: int, end: int) -> list[PositionRun]:
        """Return the parts of [start, end) that are not in the set, ascending."""
        return list(map(PositionRun._make, _uncovered([(start, end)], self.within(start, end))))

    def overlaps(self, start: int, end: int) -> bool:
        return start < end and bisect_right(self._ends, start) < bisect_left(self._starts, end)


def _position_count(runs: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in runs)


def _uncovered(
    runs: Iterable[tuple[int, int]], covers: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of runs [start, end) that are outside all `covers`, which are runs, too;
    ascending.

    Runs and covers ascend, and those of each are disjoint. Of the runs [0, 5) and [8, 12) the
    covers [3, 4) and [4, 9) leave [0, 3) and [9, 12).
    """
    following_covers = iter(covers)
    cover = next(following_covers, None)
    for start, end in runs:
        # 1. pass covers that end before this run
        while cover is not None and cover[1] <= start:
            cover = next(following_covers, None)
        # 2. yield what lies before each cover within it, and go on behind the cover
        while cover is not None and cover[0] < end:
            if start < cover[0]:
                yield start, cover[0]
            start = max(start, cover[1])
            if cover[1] > end:
                break  # it reaches behind this run, so the next one may begin in it
            cover = next(following_covers, None)
        # 3. what lies behind the last one
        if start < end:
            yield start, end
