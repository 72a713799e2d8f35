"""What one `Acks` record contributes, in a form that the ledger folds fast.

A *cohort* is the roots of one init in one wire block. It names a root by its *index*, the distance
from its first position. `Indices` are a `range` if they are neighbours, else an array.

A canonical record contains each root once: in a run (the contribution is exactly the root edge) or
among its packed positions. A record of another program may contain a root several times. Then the
XOR of all its contributions counts, and every run becomes positions with their root edges.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from acker.hot_paths import Indices, as_array, is_ascending
from acker.identity import I64, U64, WIRE_BLOCK_BITS, root_edges_of_run
from acker.ledger.cohort import RootCohort
from acker.wire.events import Acks, PositionRun, positions, values

FEW_RUNS: Final = 8
"""Up to this many runs are folded one after the other.

More are folded together, as one array of indices.
"""

_NO_POSITIONS = np.zeros(0, np.int64)
_NO_VALUES = np.zeros(0, np.uint64)


class FoldResult(NamedTuple):
    """What contributions did to the roots of one cohort.

    Attributes:
        folded_count: how many of them counted: those to open roots.
        settled_parts: the indices of the roots that they completed, in several parts.
    """

    folded_count: int
    settled_parts: list[Indices]


class Contribution:
    """The contributions of one record to roots of one wire block of one source.

    Attributes:
        start: the first position in the record.
        end: the position after the last one; `start` if there is none.
        runs: ascending and disjoint; the contribution to each of their roots is its root edge.
        positions: int64, ``(n,)``, disjoint from the runs; a canonical record has them ascending
            and distinct.
        values: uint64, ``(n,)``, the contributions at the positions.
        is_outside: whether a position lies outside the record's block; such a record must not be
            folded.
    """

    __slots__ = (
        "_positions_ascend",
        "count",
        "end",
        "is_outside",
        "positions",
        "runs",
        "source",
        "start",
        "values",
    )

    def __init__(self, record: Acks) -> None:
        """Unpack a record.

        If a root is in it twice (it is not canonical), the runs become positions.
        """
        self.source = record.source
        self.runs: Sequence[PositionRun] = record.runs
        self.positions = _NO_POSITIONS
        self.values = _NO_VALUES
        self._positions_ascend = True  # and so are distinct, too
        if record.positions:
            self.positions = positions(record.positions)
            self.values = values(record.values)
            self._positions_ascend = is_ascending(self.positions)
        self.count = len(self.positions) + sum(run.end - run.start for run in self.runs)
        if not self._is_canonical():
            self._runs_to_positions()
        self.start, self.end = self._bounds(record.block)
        self.is_outside = self.start < record.block << WIRE_BLOCK_BITS or (
            self.end > (record.block + 1) << WIRE_BLOCK_BITS
        )

    def fold_and_settle(self, cohort: RootCohort) -> FoldResult:
        """XOR the contributions into the values of a cohort's roots.

        Settles the roots that become complete.
        """
        roots = cohort.roots
        folded_count = 0
        settled_parts: list[Indices] = []
        # 1. those of the runs, each of which is the root's edge
        if len(self.runs) <= FEW_RUNS:
            for run in self._runs_as_indices(cohort):
                folded_of_run, settled_indices = roots.complete_run(run.start, run.end)
                folded_count += folded_of_run
                settled_parts.append(settled_indices)
        else:
            folded_count, settled_indices = roots.complete_edges(self._run_indices(cohort))
            settled_parts.append(settled_indices)
        # 2. those at single positions
        if len(self.positions) and roots.open_count:
            indices, values = self._indices_and_values(cohort)
            folded_of_positions, settled_indices = roots.fold(
                indices, values, is_distinct=self._positions_ascend
            )
            folded_count += folded_of_positions
            settled_parts.append(settled_indices)
        return FoldResult(folded_count, settled_parts)

    def fold_unsettled(self, cohort: RootCohort) -> int:
        """XOR the contributions into the values of a cohort's open roots, and settle none of them.

        Returns how many contributions counted: those to open roots.
        """
        roots = cohort.roots
        folded_count = 0
        # 1. those of the runs, each of which is the root's edge
        run_indices = self._run_indices(cohort) if self.runs else _NO_POSITIONS
        open_run_indices = run_indices[roots.is_open(run_indices)]
        if len(open_run_indices):
            folded_count += roots.xor_edges(open_run_indices)
        # 2. those at single positions
        indices_or_range, values = self._indices_and_values(cohort)
        indices = as_array(indices_or_range)
        is_open = roots.is_open(indices)
        if is_open.any():
            folded_count += roots.xor(indices[is_open], values[is_open], is_distinct=self._positions_ascend)
        return folded_count

    def _is_canonical(self) -> bool:
        """Return whether the record has each root once.

        That is so if its runs ascend, and none overlaps another one or has one of its positions.
        """
        if len(self.runs) > 1:
            neighbours = zip(self.runs, self.runs[1:], strict=False)
            if any(later.start < earlier.end for earlier, later in neighbours):
                return False
        if not self.runs or not len(self.positions):
            return True
        run_starts, run_ends = np.array(self.runs, np.int64).T
        # of each position the row of the last run that begins at it or before it; -1: all begin
        # behind it
        run_rows = np.searchsorted(run_starts, self.positions, side="right") - 1
        is_in_run = (run_rows >= 0) & (self.positions < run_ends[np.maximum(run_rows, 0)])
        return not bool(is_in_run.any())

    def _runs_to_positions(self) -> None:
        """Replace the runs by single positions, each with the root edge as its contribution.

        A root may be among them several times; the XOR of its values counts.
        """
        run_positions = [np.arange(run.start, run.end, dtype=np.int64) for run in self.runs]
        run_edges: list[U64] = [root_edges_of_run(self.source, run.start, run.end) for run in self.runs]
        self.positions = np.concatenate([self.positions, *run_positions])
        self.values = np.concatenate([self.values, *run_edges])
        self.runs = ()
        self._positions_ascend = False

    def _bounds(self, block: int) -> tuple[int, int]:
        """Return the first position of the record and the one behind its last.

        If it has no position, both are the start of its wire block, number `block`.
        """
        starts: list[int] = []
        ends: list[int] = []
        filled_runs = [run for run in self.runs if run.end > run.start]
        if filled_runs:
            starts.append(filled_runs[0].start)
            ends.append(filled_runs[-1].end)
        if len(self.positions):
            is_sorted = self._positions_ascend
            starts.append(int(self.positions[0] if is_sorted else self.positions.min()))
            ends.append(int(self.positions[-1] if is_sorted else self.positions.max()) + 1)
        if not starts:
            block_start = block << WIRE_BLOCK_BITS
            return block_start, block_start
        return min(starts), max(ends)

    def _runs_as_indices(self, cohort: RootCohort) -> list[PositionRun]:
        """Return the parts of the runs that lie in a cohort, as runs of its indices."""
        start, end = cohort.start, cohort.end
        index_runs: list[PositionRun] = []
        for run in self.runs:
            has_part = run.start < end and run.end > start and run.end > run.start
            if has_part:
                first_index = max(run.start, start) - start
                end_index = min(run.end, end) - start
                index_runs.append(PositionRun(first_index, end_index))
        return index_runs

    def _run_indices(self, cohort: RootCohort) -> I64:
        """Return the indices in a cohort of all positions of the runs, ascending."""
        # (runs, 2): first index and end; of a run outside the cohort both are the same
        bounds = np.clip(np.array(self.runs, np.int64), cohort.start, cohort.end) - cohort.start
        lengths = bounds[:, 1] - bounds[:, 0]
        # Of [10, 13) and [20, 22) the rows are 0, 1, 2 and 3, 4: the first run is 10 ahead of its
        # rows, the second one 20 - 3.
        first_rows = np.cumsum(lengths) - lengths
        shifts = bounds[:, 0] - first_rows
        return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)

    def _indices_and_values(self, cohort: RootCohort) -> tuple[Indices, U64]:
        """Return the positions that lie in a cohort, as its indices, with their values.

        Neighbours are a `range`, which `Roots.fold` folds without a search.
        """
        start, end = cohort.start, cohort.end
        own_positions, own_values = self.positions, self.values
        # 1. keep those in the cohort, unless all are
        if start > self.start or end < self.end:
            if self._positions_ascend:  # they ascend: the cohort's are a slice
                first_row, end_row = np.searchsorted(own_positions, [start, end])
                own_positions, own_values = own_positions[first_row:end_row], own_values[first_row:end_row]
            else:
                is_inside = (own_positions >= start) & (own_positions < end)
                own_positions, own_values = own_positions[is_inside], own_values[is_inside]
        # 2. as indices: 5, 6, 7 are a range, since they end 2 behind their first, and are three
        if self._positions_ascend and len(own_positions):
            first_position, last_position = int(own_positions[0]), int(own_positions[-1])
            if last_position - first_position == len(own_positions) - 1:
                return range(first_position - start, last_position + 1 - start), own_values
        return own_positions - start, own_values


def clip(some_positions: I64, cohort: RootCohort) -> I64:
    """Return those of ascending positions that lie in a cohort, as indices."""
    first_row, end_row = np.searchsorted(some_positions, [cohort.start, cohort.end])
    return some_positions[first_row:end_row] - cohort.start


def count_at_or_above(
    watermark: int,
    runs: Sequence[PositionRun],
    some_positions: I64 | None,
) -> int:
    """Count the positions in runs and in an array that are not below a watermark.

    `some_positions` None: there is no array.
    """
    count = sum(max(0, run.end - max(run.start, watermark)) for run in runs)
    return count if some_positions is None else count + int(np.count_nonzero(some_positions >= watermark))
