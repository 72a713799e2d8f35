"""The records of items, and what clients settled of them until it is published; pure.

An item is named by its *serial*, which counts the items of a group in the order
in which they came. A run of serials is [start, end).

A message is dropped as soon as its item is settled, so that one open item does
not keep its neighbours in memory. When a publication is durable, so is
everything that was settled before it was taken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from confluent_kafka import Message

from acker.hot_paths import tuple_maker
from acker.identity import I64, is_replay
from acker.root_sets.position_set import PositionSet
from acker.root_sets.root_set import RootSet
from acker.wire.events import PositionRun, SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome, Missing
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause
from spout.tuples.messages import MessageRows


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive serials from `start` on, of one source, with ascending positions.

    `messages` is parallel to `positions`; None in place of those that were
    dropped. `topic_id` is Kafka's id of their topic, where it is known.
    """

    start: int
    source: int
    messages: list[Message]
    positions: I64
    topic_id: str = ""

    @property
    def end(self) -> int:
        """The serial after the last item."""
        return self.start + len(self.positions)

    def part(self, start: int, end: int) -> Segment:
        """Return the items [start, end) as a separate segment, with its own list of messages."""
        rows = slice(start - self.start, end - self.start)
        return Segment(start, self.source, self.messages[rows], self.positions[rows], self.topic_id)

    def rows(self) -> MessageRows:
        """Return the messages as rows, one for each item."""
        rows = MessageRows(self.messages, self.source, self.positions)
        rows.topic_id = self.topic_id
        return rows


class _Piece(NamedTuple):
    """The serials [start, end), which lie in one segment; `segment_index` is that in the list of segments."""

    segment: Segment
    segment_index: int
    start: int
    end: int

    @property
    def rows(self) -> slice:
        """Where they are among the segment's messages and positions."""
        return slice(self.start - self.segment.start, self.end - self.segment.start)


_piece = tuple_maker(_Piece)


class ItemRecords:
    """The segments with items that are not settled yet; `next_serial` is that of the next item."""

    def __init__(self) -> None:
        """Begin without an item."""
        self.next_serial = 0
        # three parallel lists: the segments in the order of their serials, the
        # serials at which they start, and how many of their items are not
        # settled
        self._segments: list[Segment] = []
        self._starts: list[int] = []
        self._open_counts: list[int] = []
        # the same segments by source, each list in the order of the positions
        self._segments_by_source: dict[int, list[Segment]] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, source: int, messages: list[Message], positions: I64, topic_id: str = "") -> PositionRun:
        """Add records, one or more, and return their items, as a run of serials."""
        segment = Segment(self.next_serial, source, messages, positions, topic_id)
        self.next_serial = segment.end
        self._segments.append(segment)
        self._starts.append(segment.start)
        self._open_counts.append(len(positions))
        # copies of a source may come in another order than their positions
        insort(self._segments_by_source.setdefault(source, []), segment, key=_lowest_position)
        return PositionRun(segment.start, segment.end)

    def segments(self, runs: Iterable[tuple[int, int]]) -> list[Segment]:
        """Return items as segments of their own; all of them must be here."""
        return [piece.segment.part(piece.start, piece.end) for piece in self._pieces(runs)]

    def positions(self, runs: Iterable[tuple[int, int]]) -> dict[int, I64]:
        """Return the positions of items, ascending, by source."""
        parts_by_source: dict[int, list[I64]] = {}
        for piece in self._pieces(runs):
            part = piece.segment.positions[piece.rows]
            parts_by_source.setdefault(piece.segment.source, []).append(part)
        return {source: np.sort(np.concatenate(parts)) for source, parts in parts_by_source.items()}

    def first_emission_marks(self, runs: Iterable[tuple[int, int]]) -> list[RootMarks]:
        """Return marks that say when those items that are copies were emitted first."""
        marks: list[RootMarks] = []
        for piece in self._pieces(runs):
            source = piece.segment.source
            if is_replay(source):
                rows = piece.segment.part(piece.start, piece.end).rows()
                positions, wall_ms = rows.first_emissions()
                roots = np.full(len(positions), source, np.int64), positions
                marks.append(RootMarks.of_roots(RootMark.FIRST_EMITTED, roots, wall_ms))
        return marks

    def serials(self, source: int, positions: I64) -> list[PositionRun]:
        """Return the items of positions of a source, by position; positions without an item are left out.

        The positions may be in any order.
        """
        positions = np.sort(positions)
        segments = self._segments_by_source.get(source, [])
        runs: list[PositionRun] = []
        begin = 0
        while begin < len(positions):
            # Each position of a source is put once, so segments do not
            # overlap: all positions from `begin` up to the lowest of the next
            # segment can only be in the segment before that one.
            next_index = bisect_right(segments, positions[begin], key=_lowest_position)
            if next_index < len(segments):
                end = int(np.searchsorted(positions, _lowest_position(segments[next_index])))
            else:
                end = len(positions)
            if next_index:  # else they are below the lowest segment
                segment = segments[next_index - 1]
                is_sought = np.isin(segment.positions, positions[begin:end], assume_unique=True)
                runs += PositionSet.of_positions(np.flatnonzero(is_sought) + segment.start)
            begin = end
        return runs

    def drop_records(self, runs: Iterable[tuple[int, int]]) -> None:
        """Drop the records of settled items, and segments without another one; each item is dropped
        once.
        """
        emptied_indices: list[int] = []
        for piece in self._pieces(runs):
            count = piece.end - piece.start
            piece.segment.messages[piece.rows] = [None] * count  # type: ignore[list-item]  # a settled item's message is not read again
            self._open_counts[piece.segment_index] -= count
            if not self._open_counts[piece.segment_index]:
                emptied_indices.append(piece.segment_index)
        # from the end, so that the indices before stay what they are
        for index in sorted(emptied_indices, reverse=True):
            segment = self._segments[index]
            segments_of_source = self._segments_by_source[segment.source]
            lowest = _lowest_position(segment)
            del segments_of_source[bisect_left(segments_of_source, lowest, key=_lowest_position)]
            del self._segments[index], self._starts[index], self._open_counts[index]

    def _pieces(self, runs: Iterable[tuple[int, int]]) -> Iterator[_Piece]:
        """Cut runs at the bounds of segments; yield what of each lies in a segment.

        With segments of the serials [0, 10) and [10, 30), the run [5, 12) is
        cut into [5, 10) and [10, 12).
        """
        for start, end in runs:
            # the last segment that starts at or before the run, up to the last
            # that starts before its end
            first_index = max(0, bisect_right(self._starts, start) - 1)
            for index in range(first_index, bisect_left(self._starts, end)):
                segment = self._segments[index]
                piece_start = max(start, segment.start)
                piece_end = min(end, segment.end)
                if piece_start < piece_end:
                    yield _piece((segment, index, piece_start, piece_end))


def _lowest_position(segment: Segment) -> int:
    return int(segment.positions[0])


class NextPublication:
    """Settlements that wait to be published.

    Attributes:
        number: of the publication, 1 for the first.
        confirmed: serials of items that were confirmed alone; append to it.
        runs: items that were confirmed together; append to it.
        absent: positions that were planned and have no record; append to it.
        unreadable: positions that nobody could read, with the cause by which
            they fail; append to it.
    """

    def __init__(self) -> None:
        """Begin with the first publication."""
        self.number = 1
        self._clear()

    def _clear(self) -> None:
        """Begin without a settlement."""
        self.confirmed: list[int] = []
        self.runs: list[PositionRun] = []
        self.absent: list[SourceRun] = []
        self.unreadable: list[tuple[SourceRun, Cause]] = []
        self._failed_runs: dict[Cause, list[PositionRun]] = {}

    def __bool__(self) -> bool:
        return bool(self.confirmed or self.runs or self._failed_runs or self.absent or self.unreadable)

    def fail(self, runs: Iterable[PositionRun], cause: Cause) -> None:
        """Add items that failed."""
        self._failed_runs.setdefault(cause, []).extend(runs)

    def take_outcome(self, records: ItemRecords, plan_without_ranges: BatchPlan) -> BatchOutcome:
        """Return everything as the outcome of a batch, drop its `records`, and begin the next
        publication.

        The batch is one whose plan has exactly the positions that are settled
        here: what has no mark is acked.

        1. Turn items into positions.
        2. Drop their records.
        3. Add what could not be read to what failed.
        4. Mark what failed.
        """
        # 1. positions
        confirmed_runs = [*self.runs, *PositionSet.of_positions(np.array(self.confirmed, np.int64))]
        confirmed = records.positions(confirmed_runs)
        marks = records.first_emission_marks(confirmed_runs)
        failed: dict[Cause, dict[int, I64]] = {}  # by cause, then by source: positions
        for cause, runs in sorted(self._failed_runs.items()):
            failed[cause] = records.positions(runs)
        # 2. records
        for settled_runs in (confirmed_runs, *self._failed_runs.values()):
            records.drop_records(settled_runs)
        # 3. unreadable positions
        for run, cause in self.unreadable:
            positions_by_source = failed.setdefault(cause, {})
            unreadable = np.arange(run.start, run.end, dtype=np.int64)
            failed_before = positions_by_source.get(run.source, unreadable[:0])
            positions_by_source[run.source] = np.concatenate([failed_before, unreadable])
        # 4. marks
        ranges = _ranges([confirmed, *failed.values()], self.absent)
        for cause, positions_by_source in failed.items():
            for source, positions in positions_by_source.items():
                roots = np.full(len(positions), source, np.int64), positions
                marks.append(RootMarks.of_roots(RootMark.FAILED, roots, cause=cause))
        outcome = BatchOutcome(
            replace(plan_without_ranges, ranges=ranges),
            RootMarks.together(marks),
            Missing(RootSet.of_runs(self.absent)),
        )
        self._clear()
        self.number += 1
        return outcome


def _ranges(settled: Iterable[Mapping[int, I64]], absent: Sequence[SourceRun]) -> tuple[SourceRun, ...]:
    """Return all positions that are settled, by source, and those that are absent, as the fewest runs."""
    parts: list[tuple[int, I64]] = []
    for positions_by_source in settled:
        parts += positions_by_source.items()
    roots = RootSet.of_parts(parts) | RootSet.of_runs(absent)
    return tuple(roots.runs())
