"""The records of items, and what clients settled of them until it is published; pure.

A message is dropped as soon as its item is settled, so that one open item does not keep its neighbours in
memory. When a publication is durable, so is everything that was settled before it was taken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from confluent_kafka import Message

from acker.identity import I64, is_replay
from acker.root_sets.position_set import PositionSet
from acker.root_sets.root_set import RootSet
from acker.wire.events import PositionRun, SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause
from spout.tuples.messages import MessageRows


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive serials from `first` on, of one source, with ascending positions.

    `messages` is parallel to `positions`; None in place of those that were dropped. `topic_id` is Kafka's id
    of their topic, where it is known.
    """

    first: int
    source: int
    messages: list[Message]
    positions: I64
    topic_id: str = ""

    @property
    def end(self) -> int:
        """The serial after the last item."""
        return self.first + len(self.positions)

    def part(self, start: int, end: int) -> Segment:
        """Return the items [start, end) as a separate segment, with its own list of messages."""
        low, high = start - self.first, end - self.first
        positions = self.positions[low:high]
        return Segment(start, self.source, self.messages[low:high], positions, self.topic_id)

    def rows(self) -> MessageRows:
        rows = MessageRows(self.messages, self.source, self.positions)
        rows.topic_id = self.topic_id
        return rows


class ItemRecords:
    """The segments with items that are not settled yet."""

    def __init__(self) -> None:
        self.next = 0
        self._firsts: list[int] = []
        self._segments: list[Segment] = []
        self._left: list[int] = []
        self._by_position: dict[int, list[Segment]] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, source: int, messages: list[Message], positions: I64, topic_id: str = "") -> PositionRun:
        """Add records, one or more, and return their items."""
        segment = Segment(self.next, source, messages, positions, topic_id)
        self.next = segment.end
        self._firsts.append(segment.first)
        self._segments.append(segment)
        self._left.append(len(positions))
        insort(self._by_position.setdefault(source, []), segment, key=_lowest)
        return PositionRun(segment.first, segment.end)

    def segments(self, runs: Iterable[tuple[int, int]]) -> list[Segment]:
        """Return items as segments of their own; all of them must be here."""
        return [segment.part(start, end) for segment, start, end, _ in self._pieces(runs)]

    def positions(self, runs: Iterable[tuple[int, int]]) -> dict[int, I64]:
        """Return the positions of items, ascending, by source."""
        found: dict[int, list[I64]] = {}
        for segment, start, end, _ in self._pieces(runs):
            piece = segment.positions[start - segment.first : end - segment.first]
            found.setdefault(segment.source, []).append(piece)
        return {source: np.sort(np.concatenate(pieces)) for source, pieces in found.items()}

    def first_emissions(self, runs: Iterable[tuple[int, int]]) -> list[RootMarks]:
        """Return when those items that are copies were emitted first."""
        copies = (
            segment.part(start, end)
            for segment, start, end, _ in self._pieces(runs)
            if is_replay(segment.source)
        )
        marks = []
        for segment in copies:
            positions, wall_ms = segment.rows().first_emissions()
            roots = np.full(len(positions), segment.source, np.int64), positions
            marks.append(RootMarks.of_roots(RootMark.FIRST_EMITTED, roots, wall_ms))
        return marks

    def serials(self, source: int, positions: I64) -> list[PositionRun]:
        """Return the items of positions of a source, by position; positions without an item are left out."""
        positions, at = np.sort(positions), 0
        segments, runs = self._by_position.get(source, []), list[PositionRun]()
        while at < len(positions):
            # Positions of a source are put once each, so those of two segments do not overlap.
            index = bisect_right(segments, positions[at], key=_lowest)
            is_last = index == len(segments)
            end = len(positions) if is_last else int(np.searchsorted(positions, _lowest(segments[index])))
            if index:
                segment = segments[index - 1]
                here = np.flatnonzero(np.isin(segment.positions, positions[at:end], assume_unique=True))
                runs += PositionSet.of_positions(here + segment.first)
            at = end
        return runs

    def let_go(self, runs: Iterable[tuple[int, int]]) -> None:
        """Drop the records of settled items; each item is dropped once."""
        emptied: list[int] = []
        for segment, start, end, index in self._pieces(runs):
            segment.messages[start - segment.first : end - segment.first] = [None] * (end - start)  # type: ignore[list-item]  # a settled item's message is not read again
            self._left[index] -= end - start
            if not self._left[index]:
                emptied.append(index)
        for index in sorted(emptied, reverse=True):
            segment = self._segments[index]
            by_position = self._by_position[segment.source]
            del by_position[bisect_left(by_position, _lowest(segment), key=_lowest)]
            del self._firsts[index], self._segments[index], self._left[index]

    def _pieces(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[Segment, int, int, int]]:
        """Cut runs at the bounds of segments; yield each piece with its segment and the segment's index."""
        for start, end in runs:
            low = bisect_right(self._firsts, start) - 1
            high = bisect_left(self._firsts, end)
            for index in range(max(0, low), high):
                segment = self._segments[index]
                if max(start, segment.first) < min(end, segment.end):
                    yield segment, max(start, segment.first), min(end, segment.end), index


def _lowest(segment: Segment) -> int:
    return int(segment.positions[0])


class NextPublication:
    """Settlements that wait to be published; `number` is that of the publication, 1 for the first.

    Append to `confirmed` an item that is confirmed alone, to `runs` items that are confirmed together, to
    `absent` positions that were planned and have no record, and to `unreadable` those that nobody could read,
    each with the cause by which they fail.
    """

    def __init__(self) -> None:
        self.number = 1
        self.confirmed: list[int] = []
        self.runs: list[PositionRun] = []
        self.absent: list[SourceRun] = []
        self.unreadable: list[tuple[SourceRun, Cause]] = []
        self._failed: dict[Cause, list[PositionRun]] = {}

    def __bool__(self) -> bool:
        return bool(self.confirmed or self.runs or self._failed or self.absent or self.unreadable)

    def fail(self, runs: Iterable[PositionRun], cause: Cause) -> None:
        self._failed.setdefault(cause, []).extend(runs)

    def take(self, records: ItemRecords, around: BatchPlan) -> BatchOutcome:
        """Take out everything, drop its `records`, and begin the next publication."""
        runs = [*self.runs, *PositionSet.of_positions(np.array(self.confirmed, np.int64))]
        confirmed = records.positions(runs)
        marks = records.first_emissions(runs)
        failed = {cause: records.positions(found) for cause, found in sorted(self._failed.items())}
        for found in (runs, *self._failed.values()):
            records.let_go(found)
        for (source, start, end), cause in self.unreadable:
            by_source = failed.setdefault(cause, {})
            more = np.arange(start, end, dtype=np.int64)
            by_source[source] = np.concatenate([by_source.get(source, more[:0]), more])
        plan = replace(around, ranges=_ranges([confirmed, *failed.values()], self.absent))
        for cause, positions_by_source in failed.items():
            for source, positions in positions_by_source.items():
                roots = np.full(len(positions), source, np.int64), positions
                marks.append(RootMarks.of_roots(RootMark.FAILED, roots, cause=cause))
        outcome = BatchOutcome(plan, RootMarks.together(marks), tuple(sorted(self.absent)))
        self.confirmed, self.runs, self._failed, self.absent, self.unreadable = [], [], {}, [], []
        self.number += 1
        return outcome


def _ranges(parts: Iterable[dict[int, I64]], absent: Sequence[SourceRun]) -> tuple[SourceRun, ...]:
    records = RootSet.of_parts(of_source for part in parts for of_source in part.items())
    return tuple((records | RootSet.of_runs(absent)).runs())
