"""What a batch may take of a source: positions never initialised, and which of them hold a record;
pure.

A position without a record is a marker of a transaction, or a record that was aborted or compacted away. It
costs a batch nothing: limits count records. Planning has no records, so it looks at what comes next of a
source (`spout.planning_process.scout`), as far as that is cheap; `Sighting` is what it saw. Of 10 records and
40,000 aborted ones a batch with room for 100 takes::

    offset    0          10                          40,010            40,100
    log       records    aborted records, marker     records           ...
    seen      |------------------------------------->|  (end = 40,010)
    taken     range      hole                        range of 90

* A **hole** is a long stretch that was seen to be empty. It is initialised, as all positions are, and at once
  reported as absent; no task reads it, and it is not in the batch.
* A shorter empty stretch stays in the batch's range, since each further range costs a task a seek. It does
  not count as a record, and the read task reports it as absent.
* A position of which nothing was seen counts as a record. So a limit is never broken, and may be kept too
  well.

Source: docs/design/protocol.md, section 5.1 ("Planning").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from acker.identity import I64, WIRE_BLOCK_BITS
from acker.root_sets.runs import rows_within, runs_between
from acker.wire.events import PositionRun, SourceRun

HOLE_MIN: Final = 10_000
"""Empty positions in a row from which on a task is not sent to read them: a further range costs a
task 20 to 35 ms, as much as so many aborted records of 1 kB."""

HOLES_MAX: Final = 32
"""Holes that one batch passes of a source, as its ranges cost a task a seek
each; the next batch goes on.
"""

HOLE_POSITIONS_MAX: Final = 1_000_000
"""Empty positions of a source that are initialised and have no verdict yet.
Should this process die and another session follow, they count as lost, and a
replay worker looks for each of them. `max_spout_pending` is as many."""

EMPTY_MAX: Final = 100_000
"""Empty positions in one batch's ranges of a source: an acker may need 9
bytes for each until the batch has ended."""

_BLOCK: Final = 1 << WIRE_BLOCK_BITS


class Sighting(NamedTuple):
    """Which positions in [start, end) were seen to hold a record: those in
    `records`, ascending, `(n,) int64`.
    """

    start: int
    end: int
    records: I64

    def moved(self, shift: int) -> Sighting:
        """Return it with all positions higher by `shift`: from offsets to positions, say."""
        return Sighting(self.start + shift, self.end + shift, self.records + shift)


class Portion(NamedTuple):
    """What is taken of a source: ascending, disjoint runs.

    Attributes:
        ranges: what the batch emits.
        holes: what is passed beside it, since it is empty.
        empty: the parts of `ranges` that are known to be empty.
    """

    ranges: tuple[SourceRun, ...] = ()
    holes: tuple[SourceRun, ...] = ()
    empty: tuple[SourceRun, ...] = ()

    @property
    def records(self) -> int:
        """How many records the ranges hold at most."""
        return positions_in(self.ranges) - positions_in(self.empty)

    @property
    def sources(self) -> set[int]:
        """The sources of which anything is taken."""
        return {run.source for run in (*self.ranges, *self.holes)}

    def without(self, sources: Collection[int]) -> Portion:
        """Return what is left without some sources."""
        return Portion(
            ranges=_without(self.ranges, sources),
            holes=_without(self.holes, sources),
            empty=_without(self.empty, sources),
        )

    def end_of(self, source: int) -> int | None:
        """Return the position up to which a source is taken; None: nothing of it is."""
        taken = (*self.ranges, *self.holes)
        return max((run.end for run in taken if run.source == source), default=None)


def _without(runs: Sequence[SourceRun], sources: Collection[int]) -> tuple[SourceRun, ...]:
    """Return runs without those of some sources."""
    return tuple(run for run in runs if run.source not in sources)


def positions_in(runs: Sequence[SourceRun]) -> int:
    """Return how many positions runs have together."""
    return sum(end - start for _, start, end in runs)


def joined_portions(portions: Iterable[Portion]) -> Portion:
    """Return the portions of several sources as one, whose runs ascend by source and position."""
    ranges: list[SourceRun] = []
    holes: list[SourceRun] = []
    empty: list[SourceRun] = []
    for portion in portions:
        ranges += portion.ranges
        holes += portion.holes
        empty += portion.empty
    return Portion(tuple(sorted(ranges)), tuple(sorted(holes)), tuple(sorted(empty)))


class _SightedRun(NamedTuple):
    """A run of positions that were never initialised, with what was seen of it.

    Attributes:
        start, end: the run is [start, end).
        seen_to: before this position it is known which ones hold a record; all behind it count as
            records.
        records: those that do, ascending, `(n,) int64`.
    """

    start: int
    seen_to: int
    end: int
    records: I64

    @property
    def count_max(self) -> int:
        """How many records it holds at most."""
        return len(self.records) + self.end - self.seen_to

    def end_of(self, count: int) -> int:
        """Return where the first `count` records end, with the empty positions behind them."""
        if count < len(self.records):
            return int(self.records[count])
        return min(self.end, self.seen_to + count - len(self.records))

    def count_below(self, position: int) -> int:
        """Return how many records there may be below a position of the run."""
        seen_count = rows_within(self.records, self.start, position).stop
        return int(seen_count) + max(0, position - self.seen_to)

    def empty_stretches(self, end: int) -> list[PositionRun]:
        """Return the stretches below `end` that are known to be empty, ascending."""
        seen_end = min(end, self.seen_to)
        records = self.records[rows_within(self.records, self.start, seen_end)]
        return runs_between(self.start, seen_end, records)


class Supply:
    """The positions of a source that a batch may take: those that were never initialised.

    Attributes:
        runs: these positions, in ascending runs.
        count_max: how many records they hold at most.
    """

    def __init__(self, source: int, runs: Sequence[PositionRun], sighting: Sighting | None = None) -> None:
        """Begin with `runs`, which ascend.

        `sighting`: which positions hold a record, as far as somebody has looked; None: nobody has,
        so each counts as a record.
        """
        self.runs = runs
        self.source = source
        self._sighted_runs = [_sighted_run(run, sighting) for run in runs]
        self.count_max = sum(run.count_max for run in self._sighted_runs)

    def is_seen(self, count: int) -> bool:
        """Return whether it is known where the first `count` records are, or that there are fewer."""
        records_left = count
        for run in self._sighted_runs:
            if records_left <= len(run.records):
                return True
            if run.seen_to < run.end:  # the next record may be in what was not seen
                return False
            records_left -= len(run.records)
        return True

    def take(
        self,
        count: int,
        *,
        hole_min: int = HOLE_MIN,
        holes_left: int = HOLE_POSITIONS_MAX,
        ends_with_block: bool = False,
    ) -> Portion:
        """Return a portion with the first `count` records, or fewer; the supply stays as it is.

        Args:
            hole_min: how many empty positions in a row are a hole.
            holes_left: how many positions its holes may have together.
            ends_with_block: end at a near end of a wire block, since ackers apply whole
                blocks fastest; no more than a quarter of a run's records is left out for that.
        """
        taking = _Taking(self.source, hole_min, holes_left)
        records_left = count
        for run in self._sighted_runs:
            if records_left <= 0 or taking.is_full:
                break
            end = run.end_of(records_left)
            if ends_with_block and end < run.end:
                end = _near_block_end(run, end)
            taking.add(run, end)
            records_left -= run.count_max
        return taking.portion()


def _sighted_run(run: PositionRun, sighting: Sighting | None) -> _SightedRun:
    """Return a run with what was seen of it: nothing, if its first position was not looked at."""
    if sighting is None or not sighting.start <= run.start < sighting.end:
        return _SightedRun(run.start, seen_to=run.start, end=run.end, records=np.empty(0, np.int64))
    seen_to = min(sighting.end, run.end)
    records = sighting.records[rows_within(sighting.records, run.start, seen_to)]
    return _SightedRun(run.start, seen_to, run.end, records)


def _near_block_end(run: _SightedRun, end: int) -> int:
    """Return the last end of a wire block (32,768 positions) in a run, at `end` or before it.

    It is `end` itself if more than a quarter of the records before `end` would be left out, or if
    no block of the run ends before it.
    """
    block_end = end // _BLOCK * _BLOCK
    if block_end <= run.start:
        return end
    leaves_few_out = run.count_below(block_end) * 4 >= run.count_below(end) * 3
    return block_end if leaves_few_out else end


class _Taking:
    """Collects the portion of one source, run by run.

    Attributes:
        is_full: whether an empty stretch had no room: then nothing behind it may be taken.
    """

    def __init__(self, source: int, hole_min: int, hole_positions_max: int) -> None:
        """Begin with nothing taken.

        Args:
            hole_min: so many empty positions in a row are a hole; fewer are read with the range
                about them.
            hole_positions_max: how many positions all holes may have together.
        """
        self.is_full = False
        self._source = source
        self._hole_min = hole_min
        self._hole_positions_left = hole_positions_max
        self._empty_positions_left = EMPTY_MAX  # for those within ranges
        # what `portion` returns
        self._ranges: list[SourceRun] = []
        self._holes: list[SourceRun] = []
        self._empty: list[SourceRun] = []

    def add(self, run: _SightedRun, end: int) -> None:
        """Take a run up to `end`, or up to the first empty stretch for which there is no room."""
        range_start = run.start
        for stretch in run.empty_stretches(end):
            position_count = stretch.end - stretch.start
            if position_count >= self._hole_min:
                # a hole ends the range, and another one begins behind it
                self._add_range(range_start, stretch.start)
                range_start = self._add_hole(stretch)
                self.is_full = range_start < stretch.end
            elif position_count <= self._empty_positions_left:
                # the range goes on across it
                self._empty_positions_left -= position_count
                self._empty.append(SourceRun(self._source, stretch.start, stretch.end))
            else:
                # too short for a hole, and no room for more empty positions
                self._add_range(range_start, stretch.start)
                self.is_full = True
            if self.is_full:
                return
        self._add_range(range_start, end)

    def portion(self) -> Portion:
        """Return what was taken."""
        return Portion(tuple(self._ranges), tuple(self._holes), tuple(self._empty))

    def _add_hole(self, stretch: PositionRun) -> int:
        """Add an empty stretch to the holes, as far as there is room.

        Return where the rest of it begins.

        That is its end if all of it was added, and its start if nothing was.
        """
        if len(self._holes) == HOLES_MAX:
            return stretch.start
        end = min(stretch.end, stretch.start + self._hole_positions_left)
        if stretch.start < end:
            self._hole_positions_left -= end - stretch.start
            self._holes.append(SourceRun(self._source, stretch.start, end))
        return end

    def _add_range(self, start: int, end: int) -> None:
        """Add [start, end) to what the batch emits, unless it is empty."""
        if start < end:
            self._ranges.append(SourceRun(self._source, start, end))
