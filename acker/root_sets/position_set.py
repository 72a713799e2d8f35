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
        table = table_of_positions(0, positions)
        members._starts, members._ends = table[:, 1].tolist(), table[:, 2].tolist()
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
        # its end or before it.
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        before = sum(self._ends[i] - self._starts[i] for i in range(low, high))
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]
        added = (end - start) - before
        self._size += added
        return added

    def remove(self, start: int, end: int) -> int:
        """Remove [start, end) and return how many positions of it were there."""
        return self.remove_all(((start, end),))

    def remove_all(self, runs: Iterable[tuple[int, int]]) -> int:
        """Remove ascending, disjoint runs and return how many of their positions were there.

        What lies between the first and the last of them is rebuilt once, so that a million single positions
        cost one pass, not a million shifts of the lists.
        """
        parts = [(start, end) for start, end in runs if start < end]
        if not parts:
            return 0
        low = bisect_right(self._ends, parts[0][0])
        high = bisect_left(self._starts, parts[-1][1])
        if low >= high:
            return 0
        old = list(zip(self._starts[low:high], self._ends[low:high], strict=True))
        kept = list(_uncovered(old, parts))
        removed = sum(end - start for start, end in old) - sum(end - start for start, end in kept)
        self._starts[low:high] = [start for start, _ in kept]
        self._ends[low:high] = [end for _, end in kept]
        self._size -= removed
        return removed

    def within(self, start: int, end: int) -> list[PositionRun]:
        """Return the parts of [start, end) that are in the set, ascending."""
        if start >= end:
            return []
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return [PositionRun(max(self._starts[i], start), min(self._ends[i], end)) for i in range(low, high)]

    def outside(self, start: int, end: int) -> list[PositionRun]:
        """Return the parts of [start, end) that are not in the set, ascending."""
        return list(map(PositionRun._make, _uncovered([(start, end)], self.within(start, end))))

    def overlaps(self, start: int, end: int) -> bool:
        return start < end and bisect_right(self._ends, start) < bisect_left(self._starts, end)


def _uncovered(
    runs: Iterable[tuple[int, int]], covers: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of runs, ascending and disjoint, that none of `covers`, ascending, covers."""
    rest = iter(covers)
    cover = next(rest, None)
    for start, end in runs:
        while cover is not None and cover[1] <= start:
            cover = next(rest, None)
        while cover is not None and cover[0] < end:
            if start < cover[0]:
                yield start, cover[0]
            start = max(start, cover[1])
            if cover[1] > end:
                break  # it reaches into the next run
            cover = next(rest, None)
        if start < end:
            yield start, end
