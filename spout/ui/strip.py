"""One source partition as a band from the start of its log to the end; pure.

The band has a bounded number of cells, each as many offsets wide as is needed. A cell shows the
worst that it has: a dead letter, else a blocked record, else one that waits for its replay, else
an open one. If it has none of these, commit and emission decide: it is committed, settled (done,
and behind something open, so not committed yet), or not emitted. Neighbours that show the same are
one `Run`, which counts what is in it.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from acker.identity import I64, OFFSET_MAX, offset_of
from acker.service.view import OpenRange
from spout.inspect.readings import OLD_STATE, PartitionState, Reading, SourceProgress
from spout.inspect.tables import span
from spout.inspect.waiting_roots import NOTHING_WAITS, WaitingOffsets

CELLS_MAX: Final = 240
"""How many cells a band has at most."""


class BandKind(StrEnum):
    """What a run of offsets shows, the worst last."""

    COMMITTED = "committed"
    NEW = "not emitted"
    SETTLED = "settled"
    UNKNOWN = "unknown"
    OPEN = "open"
    WAITING = "waits for replay"
    BLOCKED = "blocked"
    DEAD = "dead"


_KINDS: Final = tuple(BandKind)
"""A cell's kind is an index of this."""

_COUNTED: Final = (BandKind.OPEN, BandKind.WAITING, BandKind.BLOCKED, BandKind.DEAD)
"""The kinds of which records are counted; the worst one in a cell is the kind of the cell."""


class Run(NamedTuple):
    """Neighbouring cells of one kind.

    Attributes:
        first: the first offset; `end` is behind the last one.
        cell: the number of the first cell; `cell_end` is behind the last one.
        counts: how many records of each kind are in it, in the order open, waiting, blocked, dead.
        due_ms: wall time of the first replay in it; None: none is due, or nobody has taken it over.
    """

    kind: BandKind
    first: int
    end: int
    cell: int
    cell_end: int
    counts: tuple[int, ...]
    due_ms: int | None

    def text(self) -> str:
        """Describe the run in words, without the time of a replay: ``3 to 9: 2 open``."""
        offsets = f"{self.first:,} to {self.end - 1:,}"
        if self.end - self.first == 1:
            offsets = f"offset {self.first:,}"
        parts = []
        for kind, count in zip(_COUNTED, self.counts, strict=True):
            if count:
                words = str(kind) if count == 1 else str(kind).replace("waits", "wait")
                parts.append(f"{count:,} {words}")
        return f"{offsets}: {', '.join(parts) or self.kind}"


@dataclass(frozen=True, slots=True)
class Strip:
    """The band of a log.

    Attributes:
        start: its first offset; `end` is behind the last one.
        cells: how many cells it is wide.
        blocking: the offset that blocks the commit; None: none does, or it is unknown.
        unknown: what it cannot show, and why.
    """

    start: int
    end: int
    cells: int
    runs: Sequence[Run]
    blocking: int | None = None
    unknown: Sequence[str] = ()


def strip_of(state: PartitionState, cells_max: int = CELLS_MAX) -> Reading[Strip]:
    """Return the band of a partition: its log from start to end, in `cells_max` cells at most.

    Unknown: nobody knows where its log begins or ends.
    """
    if state.start.value is None or state.end.value is None:
        return Reading(unknown=state.start.unknown or state.end.unknown)
    why_old = ""
    if state.is_old:
        why_old = OLD_STATE.format(span(state.as_of_ms.value or 0)) + state.why_old
    # why each of these is unknown; empty: it is known
    reasons = {
        "how far the group has committed": state.committed.unknown,
        "what is open": state.progress.unknown,
        "what was emitted since": why_old,
        "what waits for a replay": state.due_at.unknown,
        "what is dead": state.dead_at.unknown,
    }
    progress = state.progress.value
    lost = state.due_at.value or NOTHING_WAITS
    no_offsets = np.empty(0, np.int64)
    dead_offsets = no_offsets if state.dead_at.value is None else state.dead_at.value.offsets
    # the record of a lost copy may be unknown yet: such a copy has no place among the records
    unplaced_count = (state.replays_due.value or 0) - len(lost.offsets)
    if state.due_at.value is not None and unplaced_count:
        reasons[f"where {unplaced_count:,} more that wait began"] = (
            "no replay worker has taken over these copies yet, which finds their records"
        )

    cells = _Cells(state.start.value, state.end.value, cells_max)
    kinds = cells.kinds_without_counted(
        # a group that has committed nothing yet has committed up to 0
        committed=None if state.committed.unknown else state.committed.value or 0,
        progress=progress,
        is_old=state.is_old,
        knows_lost=state.due_at.value is not None,
    )
    open_offsets = _open_offsets(progress.ranges if progress else ())
    counts = cells.counts_of_kinds(open_offsets, lost, dead_offsets)
    has_due_time = lost.due_ms > 0  # a lost root that nobody has taken over has none
    first_due_ms = cells.earliest_times_ms(lost.offsets[has_due_time], lost.due_ms[has_due_time])
    strip = Strip(
        start=cells.start,
        end=cells.end,
        cells=cells.cell_count,
        runs=cells.runs(kinds, counts, first_due_ms),
        blocking=state.blocking.value,
        unknown=[f"{what} is unknown: {why}" for what, why in reasons.items() if why],
    )
    return Reading(strip, as_of_ms=state.progress.as_of_ms)


def copies_strip_of(state: PartitionState) -> Reading[Strip]:
    """Return the band of a partition's copies on the replay topic.

    It begins with the first copy that is open or waits; all copies before it are settled.
    """
    progress, end = state.copies.value, state.copies_end.value
    if progress is None or end is None:
        return Reading(unknown=state.copies.unknown or state.copies_end.unknown)
    emitted_to = int(offset_of(progress.emitted_to))
    open_offsets = _open_offsets(progress.ranges)
    lost = state.copies_due_at.value or NOTHING_WAITS
    not_settled = np.concatenate((open_offsets, lost.offsets))
    start = int(not_settled.min(initial=min(emitted_to, end)))
    cells = _Cells(start, end, CELLS_MAX)
    kinds = cells.kinds_without_counted(
        committed=start,
        progress=progress,
        is_old=state.is_old,
        knows_lost=state.copies_due_at.value is not None,
    )
    # no copy is dead: the dead letter of a copy is one of its record
    counts = cells.counts_of_kinds(open_offsets, lost, dead_offsets=np.empty(0, np.int64))
    runs = cells.runs(kinds, counts, first_due_ms=np.full(cells.cell_count, OFFSET_MAX))
    return Reading(Strip(start, cells.end, cells.cell_count, runs), as_of_ms=state.copies.as_of_ms)


def _open_offsets(ranges: Sequence[OpenRange]) -> I64:
    """Return the offsets of all open roots of some ranges, (n,)."""
    parts = []
    for open_range in ranges:
        first = int(offset_of(open_range.start))
        parts.append(first + np.asarray(open_range.at, np.int64))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class _Cells:
    """The n cells of the band [start, end); offset x is in cell ``(x - start) * n // length``."""

    def __init__(self, start: int, end: int, cells_max: int) -> None:
        """Cut the offsets [start, end) into cells; a log that ends before its start has none."""
        self.start, self.end = start, max(start, end)
        self._length = self.end - start
        self.cell_count = min(cells_max, self._length)
        numbers = np.arange(self.cell_count + 1, dtype=np.int64)
        # first offset of each cell, and the end of the last one, (n + 1,): of 10 offsets in 4
        # cells 0, 3, 5, 8, 10
        self._bounds = numbers + start
        if self.cell_count:
            self._bounds = start - (-numbers * self._length // self.cell_count)  # rounded up

    def _cells_inside(self, offsets: I64) -> tuple[I64, np.ndarray]:
        """Return the cells of those offsets that are in the band, and which offsets these are.

        The second array has a bool for each of all offsets.
        """
        is_inside = (offsets >= self.start) & (offsets < self.end)
        return (offsets[is_inside] - self.start) * self.cell_count // max(1, self._length), is_inside

    def count_in_cells(self, offsets: I64) -> I64:
        """Count the offsets in each cell, (n,)."""
        cells, _is_inside = self._cells_inside(offsets)
        return np.bincount(cells, minlength=self.cell_count).astype(np.int64)

    def counts_of_kinds(self, open_offsets: I64, lost: WaitingOffsets, dead_offsets: I64) -> I64:
        """Count the records of each of `_COUNTED` in each cell, (4, n)."""
        offsets_by_kind = {
            BandKind.OPEN: open_offsets,
            BandKind.WAITING: lost.offsets[~lost.is_blocked],
            BandKind.BLOCKED: lost.offsets[lost.is_blocked],
            BandKind.DEAD: dead_offsets,
        }
        return np.stack([self.count_in_cells(offsets_by_kind[kind]) for kind in _COUNTED])

    def earliest_times_ms(self, offsets: I64, times_ms: I64) -> I64:
        """Return for each cell the earliest time of the offsets in it, (n,).

        `OFFSET_MAX`: it has no offset. `times_ms` has the time of each offset.
        """
        earliest_ms = np.full(self.cell_count, OFFSET_MAX, np.int64)
        # offsets outside the band are left out
        cells, is_inside = self._cells_inside(offsets)
        np.minimum.at(earliest_ms, cells, times_ms[is_inside])
        return earliest_ms

    def kinds_without_counted(
        self, *, committed: int | None, progress: SourceProgress | None, is_old: bool, knows_lost: bool
    ) -> I64:
        """Return the kind of each cell before the kinds in `_COUNTED` are drawn over it, (n,).

        Args:
            committed: the offset that the group has committed; None: it is unknown.
            progress: what the ackers have; None: it is unknown.
            is_old: records that are not emitted by the ackers' State may have been emitted since.
            knows_lost: whether it is known what waits for a replay; if not, any emitted record may.
        """
        first_offsets, ends = self._bounds[:-1], self._bounds[1:]
        kinds = np.full(self.cell_count, _KINDS.index(BandKind.UNKNOWN), np.int64)
        if progress is not None:
            emitted_to = int(offset_of(progress.emitted_to)) if progress.was_emitted else self.start
            if knows_lost:
                kinds[first_offsets < emitted_to] = _KINDS.index(BandKind.SETTLED)
            if not is_old:
                kinds[first_offsets >= emitted_to] = _KINDS.index(BandKind.NEW)
            if committed is not None:
                # the last cell with emitted records may reach into those that are not emitted yet
                emitted_ends = np.minimum(ends, emitted_to)
                is_committed = (first_offsets < committed) & (emitted_ends <= committed)
                kinds[is_committed] = _KINDS.index(BandKind.COMMITTED)
        if committed is not None:
            kinds[ends <= committed] = _KINDS.index(BandKind.COMMITTED)
        return kinds

    def runs(self, kinds: I64, counts: I64, first_due_ms: I64) -> list[Run]:
        """Return the runs of neighbouring cells that show the same kind.

        Args:
            kinds: of each cell, without those of `_COUNTED`, (n,).
            counts: how many records of each of `_COUNTED` are in each cell, (4, n).
            first_due_ms: when the first replay of each cell is due; `OFFSET_MAX`: none is, (n,).
        """
        shown_kinds = kinds.copy()
        for kind, kind_counts in zip(_COUNTED, counts, strict=True):
            # a later kind is worse, and is drawn over an earlier one
            shown_kinds[kind_counts > 0] = _KINDS.index(kind)
        changes = np.flatnonzero(np.diff(shown_kinds)) + 1
        bounds = [0, *changes.tolist(), self.cell_count] if self.cell_count else []
        runs: list[Run] = []
        for cell, cell_end in pairwise(bounds):
            due_ms = int(first_due_ms[cell:cell_end].min())
            run = Run(
                kind=_KINDS[shown_kinds[cell]],
                first=int(self._bounds[cell]),
                end=int(self._bounds[cell_end]),
                cell=cell,
                cell_end=cell_end,
                counts=tuple(counts[:, cell:cell_end].sum(axis=1).tolist()),
                due_ms=due_ms if due_ms < OFFSET_MAX else None,
            )
            runs.append(run)
        return runs
