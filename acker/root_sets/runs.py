"""Tables of runs: the algebra on arrays that is under `RootSet`.

A run is a half-open stretch of positions of one source: [start, end). A table of runs is an ``(n, 3)`` int64
array with a row for each run: source, start, end. It is *canonical* if no run is empty, rows ascend, and
between two runs of one source a position is left out. So a set of roots has one canonical table only.

Intersection and difference walk along the borders of two tables. A run of the first one adds 1 where
it begins and takes 1 away where it ends; a run of the second one does so with 2. The sum says what
follows a border, 1: positions of the first alone, 2: of the second alone, 3: of both, 0: of none:

    first    0 ─────────── 10         20 ──── 30
    second         5 ──────────────── 20

    border   0     5       10         20      30
    step    +1    +2       -1      -2 +1      -1
    sum      1     3        2          1       0

A run of the result begins at a border whose sum counts where the one before it did not, and ends where
that changes back. The difference counts 1 alone: it is [0, 5) and [20, 30). Borders at one position,
as at 20, have one sum: that behind the last of them. Runs of one table that overlap are joined in the
same way: each adds 1, and every sum but 0 counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from acker.identity import I64

Flags = npt.NDArray[np.bool_]

SOURCE_MAX: Final = (1 << 31) - 1
"""Sources are int32 on the wire."""

IN_BOTH: Final = np.array([False, False, False, True])
IN_FIRST_ALONE: Final = np.array([False, True, False, False])
"""Which sums count for an intersection and for a difference; see the head of this module."""


class PositionRun(NamedTuple):
    """Positions [start, end) of the source that is named beside it."""

    start: int
    end: int


class SourceRun(NamedTuple):
    """Positions [start, end) of one source."""

    source: int
    start: int
    end: int


def flaw_of_table(table: I64) -> str:
    """Return why an array cannot be a table of runs, in any order; empty: it can."""
    if table.ndim != 2 or table.shape[1] != 3 or table.dtype != np.int64:
        return f"a table of runs is an (n, 3) int64 array, not {table.shape} {table.dtype}"
    if not len(table):
        return ""
    lengths = table[:, 2] - table[:, 1]
    if table.min() < 0 or table[:, 0].max() > SOURCE_MAX:
        is_outside = (table[:, 0] > SOURCE_MAX) | (table < 0).any(axis=1)
        return f"a source is not in 0..{SOURCE_MAX}, or a position is negative: {_row(table, is_outside)}"
    if lengths.min() < 0:
        return f"a run ends before it starts: {_row(table, lengths < 0)}"
    return ""


def order_flaw(table: I64) -> str:
    """Return why a table of runs is not canonical; empty: it is."""
    is_empty = table[:, 1] == table[:, 2]
    if is_empty.any():
        return f"a run is empty: {_row(table, is_empty)}"
    is_misplaced = ~_is_apart(table)
    if is_misplaced.any():
        return f"a run does not lie behind the one before it, and apart: {_row(table[1:], is_misplaced)}"
    return ""


def canonical(table: I64) -> I64:
    """Return the canonical table of the same roots; runs may be in any order, overlap, touch or be empty."""
    has_positions = table[:, 1] < table[:, 2]
    if not has_positions.all():
        table = table[has_positions]
    if len(table) < 2 or _is_apart(table).all():
        return table
    table = table[_order(table[:, 0], table[:, 1])]
    is_same_source = table[1:, 0] == table[:-1, 0]
    overlaps = is_same_source & (table[1:, 1] < table[:-1, 2])
    if not overlaps.any():
        return _joined(table)
    # Along the borders of [0, 10) and [5, 20), which are 0, 5, 10 and 20, the sums are 1, 2, 1 and 0: that is
    # the run [0, 20).
    sources = np.tile(table[:, 0], 2)
    borders = table[:, 1:].T.ravel()  # all starts, then all ends
    steps = np.repeat([1, -1], len(table))
    all_but_zero = np.arange(len(table) + 1) > 0
    return _stretches(sources, borders, steps, all_but_zero)


def intersection_or_difference(first: I64, second: I64, sums_in_result: Flags) -> I64:
    """Return the canonical table of the roots in both tables, or in the first alone.

    `sums_in_result` is `IN_BOTH` or `IN_FIRST_ALONE`. Both tables are canonical, and neither is
    empty.
    """
    # of each run a start and an end: by the sum of the steps up to a border, `_stretches` sees
    # which tables have what follows the border (see the head of this module)
    run_counts = [len(first), len(second)]
    # a run of the first table adds 1 at its start and -1 at its end, a run of the second 2 and -2
    steps = np.repeat([1, 2, -1, -2], run_counts * 2)
    # in the order of `steps`: all starts, then all ends
    sources = np.concatenate([first[:, 0], second[:, 0]] * 2)
    borders = np.concatenate([first[:, 1], second[:, 1], first[:, 2], second[:, 2]])
    return _stretches(sources, borders, steps, sums_in_result)


def table_of_positions(source: int, positions: I64) -> I64:
    """Return the canonical table of runs of some positions of one source, in any order, perhaps
    twice.
    """
    if len(positions) == 1:  # as of a cause with a message of its own
        return _table(source, positions, positions + 1)
    if (positions[1:] < positions[:-1]).any():
        positions = np.sort(positions)
    # a root that comes twice goes on with the run in which it is
    breaks = np.flatnonzero(positions[1:] - positions[:-1] > 1) + 1
    return _table_of_ascending(source, positions, breaks)


def table_of_roots(sources: I64, positions: I64) -> I64:
    """Return the canonical table of runs of some roots, in any order; a root may come twice.

    Root i has the source ``sources[i]`` and the position ``positions[i]``.
    """
    # all of one source: the comparison of two rows is cheap, and mostly shows that it is not so
    if len(sources) and sources[0] == sources[-1] == sources.max() == sources.min():
        return table_of_positions(int(sources[0]), positions)
    order = np.lexsort((positions, sources))
    sources, positions = sources[order], positions[order]
    is_new_source = sources[1:] != sources[:-1]
    breaks = np.flatnonzero(is_new_source | (positions[1:] - positions[:-1] > 1)) + 1
    return _table_of_ascending(sources, positions, breaks)


def cut_by_block(table: I64, block_bits: int) -> I64:
    """Cut runs at the ends of blocks of ``2**block_bits`` positions: a row for each block of a run."""
    first_blocks = table[:, 1] >> block_bits
    last_blocks = (table[:, 2] - 1) >> block_bits
    if (first_blocks == last_blocks).all():
        return table
    block_counts = last_blocks - first_blocks + 1
    runs = np.repeat(table, block_counts, axis=0)  # each run once for each of its blocks
    # a run of the blocks 7, 8 and 9 that has the rows 4, 5 and 6: they are 0, 1 and 2 blocks behind block 7
    first_rows = np.cumsum(block_counts) - block_counts
    blocks_behind = np.arange(len(runs)) - np.repeat(first_rows, block_counts)
    blocks = np.repeat(first_blocks, block_counts) + blocks_behind
    starts = np.maximum(runs[:, 1], blocks << block_bits)
    # the last positions are compared, not the ends: where the last of all blocks ends is no int64
    last_positions = (blocks << block_bits) | ((1 << block_bits) - 1)
    ends = np.minimum(runs[:, 2] - 1, last_positions) + 1
    return _table(runs[:, 0], starts, ends)


def rows_by_block(sources: I64, positions: I64, block_bits: int) -> dict[tuple[int, int], slice]:
    """Return, by source and number of a block of ``2**block_bits`` positions, the rows that are in the block.

    Without rows it is empty.

    Args:
        sources: of each row, ascending.
        positions: of each row, ascending in each source.
    """
    blocks = positions >> block_bits
    stretches = stretches_of_rows(sources, blocks)
    first_rows = [rows.start for rows in stretches]
    keys = zip(sources[first_rows].tolist(), blocks[first_rows].tolist(), strict=True)
    return dict(zip(keys, stretches, strict=True))


def is_first_row(*columns: npt.NDArray[np.integer]) -> Flags:
    """Return for each row whether a column has another number there than in the row before.

    The first row always has. Of the columns 7, 7, 7 and 1, 1, 2 these are True, False, True.
    """
    is_first = np.ones(len(columns[0]), np.bool_)
    is_first[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        is_first[1:] |= column[1:] != column[:-1]
    return is_first


def stretches_of_rows(*columns: npt.NDArray[np.integer]) -> list[slice]:
    """Return the stretches of neighbouring rows in which no column changes; none without rows.

    Of the columns 7, 7, 7 and 1, 1, 2 they are the rows 0 to 1, and 2.
    """
    row_count = len(columns[0])
    first_rows = np.flatnonzero(is_first_row(*columns)).tolist()
    return list(map(slice, first_rows, [*first_rows[1:], row_count]))


def rows_within(positions: I64, start: int, end: int) -> slice:
    """Return which of some positions are in [start, end); they ascend, ``(n,)`` int64.

    Of 3, 7 and 9 the rows 1 to 2 are in [5, 10).
    """
    return slice(*np.searchsorted(positions, [start, end]).tolist())


def runs_between(start: int, end: int, positions: I64) -> list[PositionRun]:
    """Return the parts of [start, end) without the positions in it, which ascend, ``(n,)`` int64.

    Of [0, 10) the positions 3, 4 and 7 leave [0, 3), [5, 7) and [8, 10).
    """
    if end - start == len(positions):  # as of a log without holes
        return []
    # between the borders -1, 3, 4, 7 and 10 a part lies where they are more than one step apart
    borders = np.concatenate(([start - 1], positions, [end]))
    before_parts = np.flatnonzero(borders[1:] - borders[:-1] > 1)
    starts = (borders[before_parts] + 1).tolist()
    ends = borders[before_parts + 1].tolist()
    return list(map(PositionRun, starts, ends))


def _order(sources: I64, positions: I64) -> I64:
    """Return the indices that sort by source, then by position; what is nearly sorted takes little time."""
    if sources[0] == sources[-1] and sources.min() == sources.max():
        return np.argsort(positions, kind="stable")
    return np.lexsort((positions, sources))


def _is_apart(table: I64) -> Flags:
    """Return of each row but the first whether it lies behind the one before it, and does not touch it."""
    is_same_source = table[1:, 0] == table[:-1, 0]
    apart: Flags = (table[1:, 0] > table[:-1, 0]) | (is_same_source & (table[1:, 1] > table[:-1, 2]))
    return apart


def _joined(table: I64) -> I64:
    """Join the runs of an ascending table that touch; none overlaps another."""
    # of [0, 3), [3, 5) and [8, 9) rows 0 and 1 are one run, from the start of row 0 to the end of row 1
    first_rows = np.concatenate(([0], np.flatnonzero(_is_apart(table)) + 1))
    last_rows = np.append(first_rows[1:], len(table)) - 1
    return _table(table[first_rows, 0], table[first_rows, 1], table[last_rows, 2])


def _table_of_ascending(sources: int | I64, positions: I64, breaks: I64) -> I64:
    """Return the table of runs of roots that ascend.

    Args:
        sources: the source of all of them, or of each one.
        breaks: the indices at which the second run begins, and each later one. Of the positions 3, 4, 5 and 9
            it is 3 alone: [3, 6) ends there, and [9, 10) begins.
    """
    if not len(positions):
        return np.empty((0, 3), np.int64)
    firsts = np.concatenate(([0], breaks))
    lasts = np.append(breaks, len(positions)) - 1
    sources_of_runs = sources if isinstance(sources, int) else sources[firsts]
    return _table(sources_of_runs, positions[firsts], positions[lasts] + 1)


def _stretches(sources: I64, borders: I64, steps: I64, sums_in_result: Flags) -> I64:
    """Return a canonical table of the stretches between borders of runs whose sum of steps counts.

    The sum at a border is that of the steps of all borders up to it, and is for the positions
    behind it; see the head of this module.

    Args:
        sources: of each border, in any order.
        borders: the starts and ends of runs, at least one of each.
        steps: what each border adds to the sum, or takes away.
        sums_in_result: for each possible sum whether it counts; 0 does not.
    """
    order = _order(sources, borders)
    sources, borders = sources[order], borders[order]
    sums = steps[order].cumsum()
    is_last = np.ones(len(borders), np.bool_)  # of the borders at one position
    is_last[:-1] = (borders[1:] != borders[:-1]) | (sources[1:] != sources[:-1])
    does_count = np.concatenate(([False], sums_in_result[sums[is_last]]))
    # a source begins and ends with a sum of 0, so the changes are a start, an end, a start, an end ...
    changes = np.flatnonzero(is_last)[does_count[1:] != does_count[:-1]]
    start_indices = changes[::2]
    end_indices = changes[1::2]
    return _table(sources[start_indices], borders[start_indices], borders[end_indices])


def _table(sources: int | I64, starts: I64, ends: I64) -> I64:
    # the columns lie one behind the other, so that what reads one of them reads neighbours
    table = np.empty((3, len(starts)), np.int64)
    table[0], table[1], table[2] = sources, starts, ends
    return table.T


def _row(table: I64, is_wrong: Flags) -> str:
    source, start, end = table[int(np.flatnonzero(is_wrong)[0])].tolist()
    return f"[{start}, {end}) of source {source}"
