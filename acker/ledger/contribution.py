"""What one `Acks` record contributes, in a form that the ledger folds fast.

A canonical record contains each root once: in a run (the contribution is exactly the root edge) or among its
packed positions. A record of another program may contain a root several times. Then the XOR of all its
contributions counts, and the record is *flattened*: every run becomes positions with their root edges.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from acker.hot_paths import Hits, as_array, is_ascending
from acker.identity import I64, U64, WIRE_BLOCK_BITS, root_edges_of_run
from acker.ledger.cohort import RootCohort
from acker.wire.events import Acks, PositionRun, positions, values

FEW_RUNS: Final = 8
"""Up to this many runs are folded one after the other; more are folded together, as one array of indices."""

_NOWHERE = np.zeros(0, np.int64)
_NOTHING = np.zeros(0, np.uint64)


class Contribution:
    """The contributions of one record to roots of one wire block of one source.

    Attributes:
        start: the first position in the record.
        end: the position after the last one; `start` if there is none.
        runs: ascending and disjoint; the contribution to each of their roots is its root edge.
        positions: int64, ``(n,)``, disjoint from the runs; a canonical record has them ascending and
            distinct.
        values: uint64, ``(n,)``, the contributions at the positions.
        outside: whether a position lies outside the record's block; such a record must not be folded.
    """

    __slots__ = ("_distinct", "count", "end", "outside", "positions", "runs", "source", "start", "values")

    def __init__(self, record: Acks) -> None:
        self.source = record.source
        self.runs: Sequence[PositionRun] = record.runs
        self.positions, self.values, self._distinct = _NOWHERE, _NOTHING, True
        if record.positions:
            self.positions = positions(record.positions)
            self.values = values(record.values)
            self._distinct = is_ascending(self.positions)
        self.count = len(self.positions) + sum(run.end - run.start for run in self.runs)
        if not self._canonical():
            self._flatten()
        self.start, self.end = self._bounds(record.block)
        self.outside = self.start < record.block << WIRE_BLOCK_BITS or (
            self.end > (record.block + 1) << WIRE_BLOCK_BITS
        )

    def complete(self, cohort: RootCohort) -> tuple[int, list[Hits]]:
        """Fold the contributions to the roots of a cohort, and settle those that they complete.

        Returns how many contributions counted, and the roots settled.
        """
        roots = cohort.roots
        counted, hits = 0, []
        for run in self._clipped(cohort) if len(self.runs) <= FEW_RUNS else ():
            more, done = roots.complete_run(run.start, run.end)
            counted += more
            hits.append(done)
        if len(self.runs) > FEW_RUNS:
            counted, done = roots.complete_edges(self._run_indices(cohort))
            hits.append(done)
        if len(self.positions) and roots.open:
            more, done = roots.fold(*self._packed(cohort), is_distinct=self._distinct)
            counted += more
            hits.append(done)
        return counted, hits

    def add(self, cohort: RootCohort) -> int:
        """Fold the contributions to the open roots of a cohort, settle none, and return how many counted."""
        roots, counted = cohort.roots, 0
        at = self._run_indices(cohort) if self.runs else _NOWHERE
        at = at[roots.is_open(at)]
        if len(at):
            counted += roots.xor_edges(at)
        packed, part = self._packed(cohort)
        at = as_array(packed)
        kept = roots.is_open(at)
        if kept.any():
            counted += roots.xor(at[kept], part[kept], is_distinct=self._distinct)
        return counted

    def _canonical(self) -> bool:
        if len(self.runs) > 1:
            pairs = zip(self.runs, self.runs[1:], strict=False)
            if any(after.start < before.end for before, after in pairs):
                return False
        if not self.runs or not len(self.positions):
            return True
        bounds = np.array(self.runs, np.int64)
        nearest = np.searchsorted(bounds[:, 0], self.positions, side="right") - 1
        inside = self.positions < bounds[np.maximum(nearest, 0), 1]
        return not bool((inside & (nearest >= 0)).any())

    def _flatten(self) -> None:
        spread = [np.arange(run.start, run.end, dtype=np.int64) for run in self.runs]
        edges: list[U64] = [root_edges_of_run(self.source, run.start, run.end) for run in self.runs]
        self.positions = np.concatenate([self.positions, *spread])
        self.values = np.concatenate([self.values, *edges])
        self.runs = ()
        self._distinct = False

    def _bounds(self, block: int) -> tuple[int, int]:
        starts, ends = [], []
        filled = [run for run in self.runs if run.end > run.start]
        if filled:
            starts.append(filled[0].start)
            ends.append(filled[-1].end)
        if len(self.positions):
            ordered = self._distinct
            starts.append(int(self.positions[0] if ordered else self.positions.min()))
            ends.append(int(self.positions[-1] if ordered else self.positions.max()) + 1)
        nowhere = block << WIRE_BLOCK_BITS
        return (min(starts), max(ends)) if starts else (nowhere, nowhere)

    def _clipped(self, cohort: RootCohort) -> list[PositionRun]:
        start, end = cohort.start, cohort.end
        return [
            PositionRun(max(run.start, start) - start, min(run.end, end) - start)
            for run in self.runs
            if run.start < end and run.end > start and run.end > run.start
        ]

    def _run_indices(self, cohort: RootCohort) -> I64:
        bounds = np.clip(np.array(self.runs, np.int64), cohort.start, cohort.end) - cohort.start
        lengths = bounds[:, 1] - bounds[:, 0]
        before = np.cumsum(lengths) - lengths
        return np.repeat(bounds[:, 0] - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)

    def _packed(self, cohort: RootCohort) -> tuple[Hits, U64]:
        start, end = cohort.start, cohort.end
        found, part = self.positions, self.values
        if start > self.start or end < self.end:
            if self._distinct:
                first, last = np.searchsorted(found, [start, end])
                found, part = found[first:last], part[first:last]
            else:
                inside = (found >= start) & (found < end)
                found, part = found[inside], part[inside]
        if self._distinct and len(found) and int(found[-1]) - int(found[0]) == len(found) - 1:
            return range(int(found[0]) - start, int(found[-1]) + 1 - start), part
        return found - start, part


def clip(named: I64, cohort: RootCohort) -> I64:
    """Return those of ascending positions that lie in a cohort, as indices."""
    first, last = np.searchsorted(named, [cohort.start, cohort.end])
    return named[first:last] - cohort.start


def at_or_above(watermark: int, runs: Sequence[PositionRun], named: I64 | None) -> int:
    """Count the positions in runs and in an array that are not below a watermark."""
    count = sum(max(0, run.end - max(run.start, watermark)) for run in runs)
    return count if named is None else count + int(np.count_nonzero(named >= watermark))
