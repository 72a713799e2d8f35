"""One source partition as a band from the start of its log to the end; pure.

The band has a bounded number of cells, each as many offsets wide as is needed. A cell shows the worst that it
has: a dead letter, else a blocked record, else one that waits for its replay, else an open one. Where it has
none of these, the commit and the emission decide: committed, settled (done, and behind something open, so not
committed yet), or not emitted. Neighbours that show the same are one `Run`, which counts what is in it.

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
from spout.inspect.waiting_roots import NOTHING_WAITS

CELLS_MAX: Final = 240


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
_COUNTED: Final = (BandKind.OPEN, BandKind.WAITING, BandKind.BLOCKED, BandKind.DEAD)


class Run(NamedTuple):
    """Neighbouring cells of one kind.

    Attributes:
        first: the first offset; `end` is behind the last one.
        cell: the first cell; `cell_end` is behind the last one.
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
        """Describe it in words; the time of the first replay is left out."""
        offsets = (
            f"offset {self.first:,}" if self.end - self.first == 1 else f"{self.first:,} to {self.end - 1:,}"
        )
        found = [
            f"{n:,} {kind if n == 1 else str(kind).replace('waits', 'wait')}"
            for kind, n in zip(_COUNTED, self.counts, strict=True)
            if n
        ]
        return f"{offsets}: {', '.join(found) or self.kind}"


@dataclass(frozen=True, slots=True)
class Strip:
    """The band of a log. `cells` is its width, and `unknown` says what it cannot show, and why."""

    start: int
    end: int
    cells: int
    runs: Sequence[Run]
    blocking: int | None = None
    unknown: Sequence[str] = ()


def strip_of(state: PartitionState, cells_max: int = CELLS_MAX) -> Reading[Strip]:
    """Return the band of a partition; unknown where it is unknown how far its log reaches."""
    if state.start.value is None or state.end.value is None:
        return Reading(unknown=state.start.unknown or state.end.unknown)
    unknown = {
        "how far the group has committed": state.committed.unknown,
        "what is open": state.progress.unknown,
        "what was emitted since": OLD_STATE.format(span(state.as_of_ms.value or 0)) + state.why_old
        if state.is_old
        else "",
        "what waits for a replay": state.due_at.unknown,
        "what is dead": state.dead_at.unknown,
    }
    cells = _Cells(state.start.value, state.end.value, cells_max)
    progress, due, dead = state.progress.value, state.due_at.value, state.dead_at.value
    committed = None if state.committed.unknown else state.committed.value or 0
    base = cells.base(committed, progress, is_old=state.is_old, knows_lost=due is not None)
    nothing = np.empty(0, np.int64)
    waits, due_ms, is_blocked = due or NOTHING_WAITS
    elsewhere = (state.replays_due.value or 0) - len(waits)
    if due is not None and elsewhere:
        unknown[f"where {elsewhere:,} more that wait began"] = (
            "no replay worker has taken over these copies yet, which finds their records"
        )
    counts = np.stack(
        [
            cells.counts(_open_offsets(progress.ranges if progress else ())),
            cells.counts(waits[~is_blocked]),
            cells.counts(waits[is_blocked]),
            cells.counts(dead.offsets if dead else nothing),
        ]
    )
    first_due = cells.earliest(waits[due_ms > 0], due_ms[due_ms > 0])
    return Reading(
        Strip(
            cells.start,
            cells.end,
            cells.number,
            cells.runs(base, counts, first_due),
            state.blocking.value,
            [f"{what} is unknown: {why}" for what, why in unknown.items() if why],
        ),
        as_of_ms=state.progress.as_of_ms,
    )


def copies_strip_of(state: PartitionState) -> Reading[Strip]:
    """Return the band of a partition's copies on the replay topic, from the first that is open or waits."""
    copies, end = state.copies, state.copies_end
    if copies.value is None or end.value is None:
        return Reading(unknown=copies.unknown or end.unknown)
    emitted_to = int(offset_of(copies.value.emitted_to))
    offsets = _open_offsets(copies.value.ranges)
    due = state.copies_due_at.value
    waits, _, is_blocked = due or NOTHING_WAITS
    start = int(np.concatenate((offsets, waits)).min(initial=min(emitted_to, end.value)))
    cells = _Cells(start, end.value, CELLS_MAX)
    base = cells.base(start, copies.value, is_old=state.is_old, knows_lost=due is not None)
    counts = np.zeros((len(_COUNTED), cells.number), np.int64)
    counts[:3] = [cells.counts(each) for each in (offsets, waits[~is_blocked], waits[is_blocked])]
    runs = cells.runs(base, counts, np.full(cells.number, OFFSET_MAX))
    return Reading(Strip(start, cells.end, cells.number, runs), as_of_ms=copies.as_of_ms)


def _open_offsets(ranges: Sequence[OpenRange]) -> I64:
    """Return the offsets of all open roots of some ranges, (n,)."""
    parts = [int(offset_of(found.start)) + np.asarray(found.at, np.int64) for found in ranges]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class _Cells:
    """The cells of a band; offset x is in cell ``(x - start) * n // length``."""

    def __init__(self, start: int, end: int, cells_max: int) -> None:
        self.start, self.end = start, max(start, end)
        self._length = self.end - start
        self.number = min(cells_max, self._length)
        at = np.arange(self.number + 1, dtype=np.int64)
        self._edges = start - (-at * self._length // self.number) if self.number else at + start
        """First offset of each cell, and the end of the last one, (n + 1,)."""

    def _cell_of(self, offsets: I64) -> tuple[I64, np.ndarray]:
        """Return the cells of those offsets that are in the band, and which these are."""
        inside = (offsets >= self.start) & (offsets < self.end)
        return (offsets[inside] - self.start) * self.number // max(1, self._length), inside

    def counts(self, offsets: I64) -> I64:
        """Count the offsets in each cell, (n,)."""
        return np.bincount(self._cell_of(offsets)[0], minlength=self.number).astype(np.int64)

    def earliest(self, offsets: I64, times: I64) -> I64:
        """Return the earliest of the times in each cell, (n,); `OFFSET_MAX` where there is none."""
        found = np.full(self.number, OFFSET_MAX, np.int64)
        cells, inside = self._cell_of(offsets)
        np.minimum.at(found, cells, times[inside])
        return found

    def base(
        self, committed: int | None, progress: SourceProgress | None, *, is_old: bool, knows_lost: bool
    ) -> I64:
        """Return the kind of each cell, an index of `_KINDS`, before what is open or lost is drawn, (n,).

        What a State that `is_old` calls not emitted may have been emitted since. What is settled may wait for
        its replay unless somebody `knows_lost`.
        """
        firsts, ends = self._edges[:-1], self._edges[1:]
        found = np.full(self.number, _KINDS.index(BandKind.UNKNOWN), np.int64)
        if progress is not None:
            emitted_to = int(offset_of(progress.emitted_to)) if progress.was_emitted else self.start
            if knows_lost:
                found[firsts < emitted_to] = _KINDS.index(BandKind.SETTLED)
            if not is_old:
                found[firsts >= emitted_to] = _KINDS.index(BandKind.NEW)
            if committed is not None:
                found[(firsts < committed) & (np.minimum(ends, emitted_to) <= committed)] = 0
        if committed is not None:
            found[ends <= committed] = _KINDS.index(BandKind.COMMITTED)
        return found

    def runs(self, base: I64, counts: I64, due_ms: I64) -> list[Run]:
        """Return what the cells show as runs. `counts` is (4, n), of `_COUNTED`; the others are (n,)."""
        kinds = base.copy()
        for kind, found in zip(_COUNTED, counts, strict=True):
            kinds[found > 0] = _KINDS.index(kind)
        changes = np.flatnonzero(np.diff(kinds)) + 1
        bounds = [0, *changes.tolist(), self.number] if self.number else []
        runs: list[Run] = []
        for first, end in pairwise(bounds):
            due = int(due_ms[first:end].min())
            runs.append(
                Run(
                    _KINDS[kinds[first]],
                    int(self._edges[first]),
                    int(self._edges[end]),
                    first,
                    end,
                    tuple(counts[:, first:end].sum(axis=1).tolist()),
                    due if due < OFFSET_MAX else None,
                )
            )
        return runs
