"""The records of items, and what clients settled of them until it is published; pure.

An item is named by its *serial*, which counts the items of a group in the order
in which they came. A run of serials is [start, end); its type is
`PositionRun`, as for a run of positions.

Records that come together are a *segment* (`Segment`): neighbouring serials,
and a position for each of them. A message is dropped as soon as its item is
settled, so that one open item does not keep its neighbours in memory.

What clients settle is collected for the next *publication*: the events that
one call of `SpoutService.publish` writes. When a publication is durable, so is
everything that was settled before its outcome was taken.
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
from spout.publishing.root_marks import RootMark, RootMarks, roots_of
from spout.tuples.failures import Cause
from spout.tuples.messages import MessageRows


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive serials from `start` on, of one source, with ascending positions.

    `messages` is parallel to `positions`; None in place of those that were
    dropped. `topic_id` is Kafka's id of their topic; empty: it is not known.
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

    def cut(self, start: int, end: int) -> Segment:
        """Return the items [start, end) as a separate segment, with its own list of messages."""
        cut = slice(start - self.start, end - self.start)
        return Segment(start, self.source, self.messages[cut], self.positions[cut], self.topic_id)

    def message_rows(self) -> MessageRows:
        """Return the messages as rows, one for each item."""
        rows = MessageRows(self.messages, self.source, self.positions)
        rows.topic_id = self.topic_id
        return rows


class _Piece(NamedTuple):
    """The serials [start, end), which lie in one segment.

    `segment_index`: where that is in `ItemRecords._segments`.
    """

    segment: Segment
    segment_index: int
    start: int
    end: int

    @property
    def indices(self) -> slice:
        """Where they are among the segment's messages and positions."""
        return slice(self.start - self.segment.start, self.end - self.segment.start)


_make_piece = tuple_maker(_Piece)


class ItemRecords:
    """The segments with items that are not settled yet; `next_serial` is that of the next item."""

    def __init__(self) -> None:
        """Begin without an item."""
        self.next_serial = 0
        # three parallel lists: the segments in the order of their serials, the
        # serials at which they start, and how many of their items are not
        # settled
        self._segments: list[Segment] = []
        self._first_serials: list[int] = []
        self._unsettled_counts: list[int] = []
        # the same segments by source, each list in the order of the positions
        self._segments_by_source: dict[int, list[Segment]] = {}

    def __len__(self) -> int:
        """Return how many segments there are."""
        return len(self._segments)

    def add(self, source: int, messages: list[Message], positions: I64, topic_id: str = "") -> PositionRun:
        """Add records, one or more, as a segment; return their items, as a run of serials."""
        segment = Segment(self.next_serial, source, messages, positions, topic_id)
        self.next_serial = segment.end
        self._segments.append(segment)
        self._first_serials.append(segment.start)
        self._unsettled_counts.append(len(positions))
        # copies of a source may come in another order than their positions
        insort(self._segments_by_source.setdefault(source, []), segment, key=_lowest_position)
        return PositionRun(segment.start, segment.end)

    def segments_of(self, runs: Iterable[tuple[int, int]]) -> list[Segment]:
        """Return items, runs of serials, as segments of their own; all of them must be here."""
        return [piece.segment.cut(piece.start, piece.end) for piece in self._pieces(runs)]

    def positions_by_source(self, runs: Iterable[tuple[int, int]]) -> dict[int, I64]:
        """Return the positions of items, which are runs of serials, ascending, by source."""
        parts_by_source: dict[int, list[I64]] = {}
        for piece in self._pieces(runs):
            positions = piece.segment.positions[piece.indices]
            parts_by_source.setdefault(piece.segment.source, []).append(positions)
        return {source: np.sort(np.concatenate(parts)) for source, parts in parts_by_source.items()}

    def first_emission_marks(self, runs: Iterable[tuple[int, int]]) -> list[RootMarks]:
        """Return marks that say when those items that are copies were emitted first."""
        marks: list[RootMarks] = []
        for piece in self._pieces(runs):
            source = piece.segment.source
            if is_replay(source):
                rows = piece.segment.cut(piece.start, piece.end).message_rows()
                positions, wall_ms = rows.first_emissions()
                roots = roots_of(source, positions)
                marks.append(RootMarks.of_roots(RootMark.FIRST_EMITTED, roots, wall_ms))
        return marks

    def serial_runs_at(self, source: int, positions: I64) -> list[PositionRun]:
        """Return the items at positions of a source, as runs of serials, by position.

        The positions may be in any order; those without an item are left out.
        """
        positions = np.sort(positions)
        segments = self._segments_by_source.get(source, [])
        serial_runs: list[PositionRun] = []
        begin_index = 0  # of the positions that are not looked up yet
        while begin_index < len(positions):
            # Each position of a source is added once, so segments do not
            # overlap: all positions from `begin_index` up to the lowest of the
            # next segment can only be in the segment before that one. With
            # segments that begin at 10 and 40, of the positions 12, 15, 41
            # those before 41 can only be in the first one.
            next_segment_index = bisect_right(segments, positions[begin_index], key=_lowest_position)
            end_index = len(positions)
            if next_segment_index < len(segments):
                next_lowest = _lowest_position(segments[next_segment_index])
                end_index = int(np.searchsorted(positions, next_lowest))
            # 0: they are below the lowest segment, so they have no item
            if next_segment_index > 0:
                segment = segments[next_segment_index - 1]
                sought_positions = positions[begin_index:end_index]
                is_sought = np.isin(segment.positions, sought_positions, assume_unique=True)
                serials = np.flatnonzero(is_sought) + segment.start
                serial_runs += PositionSet.of_positions(serials)
            begin_index = end_index
        return serial_runs

    def drop_records(self, runs: Iterable[tuple[int, int]]) -> None:
        """Drop the records of settled items, and each segment that has no unsettled item any more.

        An item may be dropped only once.
        """
        # 1. the messages
        emptied_indices: list[int] = []
        for piece in self._pieces(runs):
            dropped_count = piece.end - piece.start
            nothing = [None] * dropped_count  # the message of a settled item is not read again
            piece.segment.messages[piece.indices] = nothing  # type: ignore[assignment]
            self._unsettled_counts[piece.segment_index] -= dropped_count
            if not self._unsettled_counts[piece.segment_index]:
                emptied_indices.append(piece.segment_index)
        # 2. the segments: from the end, so that the indices before stay what they are
        for index in sorted(emptied_indices, reverse=True):
            segment = self._segments[index]
            segments_of_source = self._segments_by_source[segment.source]
            lowest = _lowest_position(segment)
            del segments_of_source[bisect_left(segments_of_source, lowest, key=_lowest_position)]
            del self._segments[index], self._first_serials[index], self._unsettled_counts[index]

    def _pieces(self, runs: Iterable[tuple[int, int]]) -> Iterator[_Piece]:
        """Cut runs of serials at the bounds of segments; yield what of each lies in a segment.

        With segments of the serials [0, 10) and [10, 30), the run [5, 12) is
        cut into [5, 10) and [10, 12).
        """
        for start, end in runs:
            # the last segment that starts at or before the run, up to the last
            # that starts before its end
            first_index = max(0, bisect_right(self._first_serials, start) - 1)
            for index in range(first_index, bisect_left(self._first_serials, end)):
                segment = self._segments[index]
                piece_start = max(start, segment.start)
                piece_end = min(end, segment.end)
                if piece_start < piece_end:
                    yield _make_piece((segment, index, piece_start, piece_end))


def _lowest_position(segment: Segment) -> int:
    return int(segment.positions[0])


class FailedRun(NamedTuple):
    """Positions that were planned and that nobody could read; their roots fail by a cause."""

    run: SourceRun
    cause: Cause


class NextPublication:
    """Settlements that wait to be published.

    Attributes:
        number: of the publication, 1 for the first.
        confirmed_serials: items that were confirmed one by one; append to it.
        confirmed_runs: items that were confirmed together, as runs of serials;
            append to it.
        absent_runs: positions that were planned and have no record; append to
            it.
        unreadable_runs: positions that nobody could read; append to it.
    """

    def __init__(self) -> None:
        """Begin with the first publication."""
        self.number = 1
        self._clear()

    def _clear(self) -> None:
        """Begin without a settlement."""
        self.confirmed_serials: list[int] = []
        self.confirmed_runs: list[PositionRun] = []
        self.absent_runs: list[SourceRun] = []
        self.unreadable_runs: list[FailedRun] = []
        # by cause: items that failed, as runs of serials
        self._failed_runs_by_cause: dict[Cause, list[PositionRun]] = {}

    def __bool__(self) -> bool:
        """Return whether there is anything to publish."""
        return bool(
            self.confirmed_serials
            or self.confirmed_runs
            or self._failed_runs_by_cause
            or self.absent_runs
            or self.unreadable_runs
        )

    def fail(self, runs: Iterable[PositionRun], cause: Cause) -> None:
        """Add items that failed, as runs of serials."""
        self._failed_runs_by_cause.setdefault(cause, []).extend(runs)

    def take_outcome(self, records: ItemRecords, plan_without_ranges: BatchPlan) -> BatchOutcome:
        """Return all settlements as the outcome of a batch, and begin the next publication.

        The batch is one whose plan has exactly the positions that are settled
        here: what has no mark is acked. `records` loses the records of the
        settled items.

        1. Turn items into positions.
        2. Drop their records.
        3. Add what could not be read to what failed.
        4. Mark what failed.
        """
        # 1. positions
        single_runs = PositionSet.of_positions(np.array(self.confirmed_serials, np.int64))
        confirmed_runs = [*self.confirmed_runs, *single_runs]
        confirmed_positions = records.positions_by_source(confirmed_runs)
        marks = records.first_emission_marks(confirmed_runs)
        # by cause, then by source
        failed_positions: dict[Cause, dict[int, I64]] = {}
        for cause, runs in sorted(self._failed_runs_by_cause.items()):
            failed_positions[cause] = records.positions_by_source(runs)
        # 2. records, from which positions and marks were made
        for settled_runs in (confirmed_runs, *self._failed_runs_by_cause.values()):
            records.drop_records(settled_runs)
        # 3. unreadable positions
        for run, cause in self.unreadable_runs:
            positions_by_source = failed_positions.setdefault(cause, {})
            unreadable = np.arange(run.start, run.end, dtype=np.int64)
            failed_before = positions_by_source.get(run.source, unreadable[:0])
            positions_by_source[run.source] = np.concatenate([failed_before, unreadable])
        # 4. marks
        marks += _failed_marks(failed_positions)
        settled_positions = [confirmed_positions, *failed_positions.values()]
        ranges = _ranges(settled_positions, self.absent_runs)
        outcome = BatchOutcome(
            replace(plan_without_ranges, ranges=ranges),
            RootMarks.together(marks),
            Missing(RootSet.of_runs(self.absent_runs)),
        )
        self._clear()
        self.number += 1
        return outcome


def _failed_marks(failed_positions: Mapping[Cause, Mapping[int, I64]]) -> Iterator[RootMarks]:
    """Yield the marks of roots that failed, from their positions by cause and source."""
    for cause, positions_by_source in failed_positions.items():
        for source, positions in positions_by_source.items():
            yield RootMarks.of_roots(RootMark.FAILED, roots_of(source, positions), cause=cause)


def _ranges(
    settled_positions: Iterable[Mapping[int, I64]],
    absent_runs: Sequence[SourceRun],
) -> tuple[SourceRun, ...]:
    """Return all settled positions, which are by source, and absent ones, as the fewest runs."""
    parts: list[tuple[int, I64]] = []
    for positions_by_source in settled_positions:
        parts += positions_by_source.items()
    roots = RootSet.of_parts(parts) | RootSet.of_runs(absent_runs)
    return tuple(roots.runs())
