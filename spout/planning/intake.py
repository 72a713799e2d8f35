"""Which positions of a source were never initialised, and which of them go into the next batch; pure.

Each acker partition has its own watermark. So after a crash between the parts of one batch's Init some blocks
may be initialised although lower ones are not. The free positions below the highest watermark are the *gaps*;
they are planned before anything above it.

Source: docs/design/protocol.md, sections 3 (rule 1), 4 ("Take and Taken") and 5.1 ("Planning").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from acker.identity import (
    ACKER_BLOCK_BITS,
    WIRE_BLOCK_BITS,
    acker_partition,
    generation_of,
    is_replay,
    position_at,
)
from acker.wire.events import PositionRun, SourceRun
from spout.planning.journal import SourceMark
from spout.tuples.intervals import IntervalSet

_BLOCK = 1 << ACKER_BLOCK_BITS


class SourceCursor:
    """One source's free positions, in a generation that begins at `from_`: all from `next` on, and gaps."""

    __slots__ = ("_gaps", "from_", "next")

    def __init__(self, from_: int, next: int, gaps: IntervalSet | None = None) -> None:
        self.from_ = from_
        self.next = next
        self._gaps = gaps if gaps is not None else IntervalSet()

    @property
    def first_free(self) -> int:
        gap = self._gaps.first
        return self.next if gap is None else gap

    def position_of(self, offset: int) -> int:
        """Return the position of an offset in the cursor's generation."""
        return position_at(generation_of(self.from_), offset)

    def free_below(self, end: int) -> int:
        return sum(run.end - run.start for run in self.free_runs(end))

    def free_runs(self, end: int) -> list[PositionRun]:
        runs = self._gaps.within(self.from_, end)
        return [*runs, PositionRun(self.next, end)] if self.next < end else runs

    def use(self, start: int, end: int) -> None:
        """Mark [start, end) as no longer free; positions between `next` and `start` become a gap."""
        self._gaps.remove(start, min(end, self.next))
        if end > self.next:
            self._gaps.add(self.next, start)
            self.next = end

    def mark(self) -> SourceMark:
        return SourceMark(self.from_, self.next, tuple(self._gaps))


def cursor_of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
    """Find the free positions of a source's highest generation, which begins at `from_`.

    `watermarks` has by acker partition its first position of the source that was never initialised.
    """
    own = {
        p: max(from_, mark) for p, mark in watermarks.items() if generation_of(mark) == generation_of(from_)
    }
    top = max(own.values(), default=from_)
    # Below the lowest watermark nothing is free. A partition without a block of the source keeps it low, and
    # then the loop visits more blocks, which is all that it costs.
    start = min((own.get(p, from_) for p in range(partitions)), default=from_)
    free = IntervalSet()
    while start < top:
        end = min((start // _BLOCK + 1) * _BLOCK, top)
        free.add(max(start, own.get(acker_partition(source, start, partitions), from_)), end)
        start = end
    return SourceCursor(from_, top, free)


@dataclass(frozen=True, slots=True)
class Room:
    """How many records may be taken in all (None: any number), and of each input, by its id."""

    total: int | None
    by_input: Mapping[int, int]


def choose_runs(
    cursors: Mapping[int, SourceCursor],
    ends: Mapping[int, int],
    input_ids: Mapping[int, int],
    room: Room,
    caps: Mapping[int, int] = MappingProxyType({}),
) -> list[SourceRun]:
    """Choose free positions to emit; return runs, ascending by source and start.

    Args:
        ends: by source, the offset below which it may be read now.
        input_ids: by source, the id of its input.
        caps: of some sources, how many records may be taken at most.
    """
    limits = {source: cursor.position_of(ends.get(source, 0)) for source, cursor in cursors.items()}
    free = {source: cursor.free_below(limits[source]) for source, cursor in cursors.items()}
    free |= {source: min(free[source], cap) for source, cap in caps.items()}
    left = dict(room.by_input)
    total = sum(free.values()) if room.total is None else room.total
    shares: dict[int, int] = {}
    for replay in (True, False):
        demand = {source: count for source, count in free.items() if is_replay(source) == replay}
        granted: dict[int, int] = {}
        for input_id, most in left.items():
            own = {source: count for source, count in demand.items() if input_ids[source] == input_id}
            granted |= fair_shares(own, most)
        taken = fair_shares(granted, total)
        total -= sum(taken.values())
        for source, count in taken.items():
            left[input_ids[source]] -= count
        shares |= taken
    runs: list[SourceRun] = []
    for source, count in sorted(shares.items()):
        runs += _first(source, cursors[source].free_runs(limits[source]), count, free[source])
    return runs


def _first(source: int, free: list[PositionRun], count: int, available: int) -> list[SourceRun]:
    """Return the first `count` free positions; if more are available, end at a near end of a block."""
    runs: list[SourceRun] = []
    left = count
    for start, end in free:
        if left <= 0:
            break
        taken = min(end - start, left)
        if taken == left and count < available:
            taken = near_block_end(start, taken)
        runs.append(SourceRun(source, start, start + taken))
        left -= end - start
    return runs


def fair_shares(available: Mapping[int, int], budget: int) -> dict[int, int]:
    """Distribute a budget of records over sources in equal parts; none gets more than it has available.

    What cannot be divided goes to the sources with the lowest numbers. Sources that get nothing are missing.
    """
    shares: dict[int, int] = {}
    by_size = sorted((count, source) for source, count in available.items() if count > 0)
    left = max(0, budget)
    for rank, (count, source) in enumerate(by_size):
        shares[source] = min(count, left // (len(by_size) - rank))
        left -= shares[source]
    for source in sorted(shares):
        more = min(left, available[source] - shares[source])
        shares[source] += more
        left -= more
    return {source: share for source, share in sorted(shares.items()) if share}


def near_block_end(start: int, count: int) -> int:
    """Return how many records to take so that they end with a wire block, since whole blocks fold fastest;
    `count` itself where more than a quarter would be left out.
    """
    block = 1 << WIRE_BLOCK_BITS
    whole = (start + count) // block * block - start
    return whole if whole * 4 >= count * 3 else count
