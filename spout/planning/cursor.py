"""Which positions of a source were never initialised: planning goes on with them.

Each acker partition has its own watermark. So after a crash between the parts of one batch's Init some blocks
may be initialised although lower ones are not. The free positions below the highest watermark are the *gaps*;
they are planned before anything above it.

Source: docs/design/protocol.md, sections 3 (rule 1) and 4 ("Take and Taken": which position is new).
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.identity import ACKER_BLOCK_BITS, acker_partition, generation_of
from acker.wire.events import PositionRun
from spout.planning.journal import SourceMark
from spout.tuples.intervals import IntervalSet

_BLOCK = 1 << ACKER_BLOCK_BITS


class SourceCursor:
    """One source's free positions: the gaps, and everything from `next` on."""

    __slots__ = ("_gaps", "from_", "next")

    def __init__(self, from_: int, next: int, gaps: IntervalSet | None = None) -> None:
        """Create the cursor of a generation that begins at `from_`: `next` is free, and `gaps` below it."""
        self.from_ = from_
        self.next = next
        self._gaps = gaps if gaps is not None else IntervalSet()

    @property
    def first_free(self) -> int:
        """The lowest free position."""
        gap = self._gaps.first
        return self.next if gap is None else gap

    def free_below(self, end: int) -> int:
        """Return how many positions below `end` are free."""
        return sum(run.end - run.start for run in self.free_runs(end))

    def free_runs(self, end: int) -> list[PositionRun]:
        """Return the free positions below `end`, ascending."""
        runs = self._gaps.within(self.from_, end)
        return [*runs, PositionRun(self.next, end)] if self.next < end else runs

    def use(self, start: int, end: int) -> None:
        """Mark [start, end) as no longer free; positions between `next` and `start` become a gap."""
        self._gaps.remove(start, min(end, self.next))
        if end > self.next:
            self._gaps.add(self.next, start)
            self.next = end

    def mark(self) -> SourceMark:
        """Return the source's entry for the journal."""
        return SourceMark(self.from_, self.next, tuple(self._gaps))


def cursor_of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
    """Find the free positions of a source.

    Args:
        source: the source.
        from_: first position of its highest generation for the group.
        watermarks: by acker partition, its first position of the source that was never initialised.
        partitions: N, the number of acker partitions.
    """
    own = {
        p: max(from_, mark) for p, mark in watermarks.items() if generation_of(mark) == generation_of(from_)
    }
    top = max(own.values(), default=from_)
    cursor = SourceCursor(from_, top)
    # Below the lowest watermark nothing is free. A partition without a block of the source keeps it low, and
    # then the loop visits more blocks, which is all that it costs.
    start = min((own.get(p, from_) for p in range(partitions)), default=from_)
    free = IntervalSet()
    while start < top:
        end = min((start // _BLOCK + 1) * _BLOCK, top)
        free.add(max(start, own.get(acker_partition(source, start, partitions), from_)), end)
        start = end
    return SourceCursor(from_, top, free) if len(free) else cursor
