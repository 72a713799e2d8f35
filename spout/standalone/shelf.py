"""The records behind items: which serial is which position of which source, and its message; pure.

What is put down together is a segment: consecutive serials, ascending positions of one source. Messages are
let go as soon as their items are settled, for one that stays open must not keep its neighbours in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Message

from acker.identity import I64
from acker.wire.events import Run, runs_of
from spout.tuples.messages import MessageRows


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive items of one source.

    Attributes:
        first: serial of the first one.
        source: the source.
        messages: the records, one for one with `positions`; None in place of those that were let go.
        positions: ascending.
    """

    first: int
    source: int
    messages: list[Message]
    positions: I64

    @property
    def end(self) -> int:
        """The serial behind the last one."""
        return self.first + len(self.positions)

    def part(self, start: int, end: int) -> Segment:
        """Return the items [start, end) of it as a segment of their own, with a list of its own."""
        low, high = start - self.first, end - self.first
        return Segment(start, self.source, self.messages[low:high], self.positions[low:high])

    def rows(self) -> MessageRows:
        """Return the records as rows that tuples look at."""
        return MessageRows(self.messages, self.source, self.positions)


class Shelf:
    """The segments of which an item is not settled yet."""

    def __init__(self) -> None:
        """Begin empty."""
        self.next = 0
        self._firsts: list[int] = []
        self._segments: list[Segment] = []
        self._left: list[int] = []

    def __len__(self) -> int:
        """Return how many segments are kept."""
        return len(self._segments)

    def put(self, source: int, messages: list[Message], positions: I64) -> Run:
        """Put records down, one or more, and return the items that they are."""
        segment = Segment(self.next, source, messages, positions)
        self.next = segment.end
        self._firsts.append(segment.first)
        self._segments.append(segment)
        self._left.append(len(positions))
        return Run(segment.first, segment.end)

    def segments(self, runs: Iterable[tuple[int, int]]) -> list[Segment]:
        """Return items, all of which are there, as segments of their own."""
        return [segment.part(start, end) for segment, start, end, _ in self._pieces(runs)]

    def positions(self, runs: Iterable[tuple[int, int]]) -> dict[int, I64]:
        """Return the positions of items, ascending, by source."""
        found: dict[int, list[I64]] = {}
        for segment, start, end, _ in self._pieces(runs):
            piece = segment.positions[start - segment.first : end - segment.first]
            found.setdefault(segment.source, []).append(piece)
        return {source: np.sort(np.concatenate(pieces)) for source, pieces in found.items()}

    def serials(self, source: int, positions: I64) -> list[Run]:
        """Return which items positions of a source are, ascending; those that are not here are left out."""
        runs: list[Run] = []
        for segment in self._segments:
            if segment.source == source:
                here = np.flatnonzero(np.isin(segment.positions, positions, assume_unique=True))
                runs += [Run(segment.first + start, segment.first + end) for start, end in runs_of(here)]
        return runs

    def let_go(self, runs: Iterable[tuple[int, int]]) -> None:
        """Forget the records of items that are settled; each is let go once."""
        emptied: list[int] = []
        for segment, start, end, index in self._pieces(runs):
            segment.messages[start - segment.first : end - segment.first] = [None] * (end - start)  # type: ignore[list-item]  # a settled item's message is not asked for again
            self._left[index] -= end - start
            if not self._left[index]:
                emptied.append(index)
        for index in sorted(emptied, reverse=True):
            del self._firsts[index], self._segments[index], self._left[index]

    def _pieces(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[Segment, int, int, int]]:
        """Cut runs by segment; yield each with the segment's place."""
        for start, end in runs:
            low = bisect_right(self._firsts, start) - 1
            high = bisect_left(self._firsts, end)
            for index in range(max(0, low), high):
                segment = self._segments[index]
                if max(start, segment.first) < min(end, segment.end):
                    yield segment, max(start, segment.first), min(end, segment.end), index
