"""Tables of runs as bytes.

A source's runs are close to each other, though positions are large: so what is written of a run is
how far it begins behind the one before it, and how long it is. All numbers are little-endian and
without a sign:

    1 byte     how many bytes each step takes: 1, 2, 4 or 8
    4 bytes    how many sources there are
    then, for each source, 4 bytes each: the sources; 4 bytes each: how many runs it has;
               8 bytes each: where its first run begins
    then, for each run: two steps, to its start (0 for the first one of a source), and from there to its end

Nothing that is stored has this form yet, so it has no version.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from acker.identity import I64

_WIDTHS: Final = (1, 2, 4, 8)
_HEAD_BYTES: Final = 5
_SOURCE_BYTES: Final = 16
"""Of each source: its number (4 bytes), how many runs it has (4), and where the first one begins (8)."""


def packed_table(table: I64) -> bytes:
    """Return the bytes of a canonical table of runs; `unpacked_table` reads them.

    They have the steps from each border of runs to the next, in as few bytes each (`width`) as
    the largest step needs; the head of this module has the form.
    """
    sources, first_rows, run_counts = np.unique(table[:, 0], return_index=True, return_counts=True)
    # the borders of [100, 103) and [107, 109) are 100, 103, 107, 109: the steps to them are 100, 3,
    # 4 and 2. So the row of a run has two steps: from the end of the run before it to its start,
    # and to its end.
    borders = table[:, 1:].ravel()
    steps = np.diff(borders, prepend=0)
    # the start of the first run of a source is written in full, by `table[first_rows, 1]`, so its
    # step is 0
    steps[2 * first_rows] = 0
    width = _width_of(int(steps.max()) if len(steps) else 0)
    arrays = (
        np.array([len(sources)], "<u4"),
        sources.astype("<u4"),
        run_counts.astype("<u4"),
        table[first_rows, 1].astype("<u8"),
        steps.astype(f"<u{width}"),
    )
    return bytes([width]) + b"".join(array.tobytes() for array in arrays)


def unpacked_table(packed: bytes) -> I64:
    """Return the table of `packed_table`, not proved to be canonical.

    Raises `ValueError`: the bytes are something else, or some are missing.
    """
    if len(packed) < _HEAD_BYTES or packed[0] not in _WIDTHS:
        raise ValueError(f"{len(packed)} bytes do not begin as a packed table of runs does")
    width = packed[0]
    source_count = int.from_bytes(packed[1:_HEAD_BYTES], "little")
    body = memoryview(packed)[_HEAD_BYTES:]
    packed_sources = body[: source_count * _SOURCE_BYTES]
    packed_steps = body[source_count * _SOURCE_BYTES :]
    if len(packed_sources) < source_count * _SOURCE_BYTES:
        raise ValueError(f"a packed table of runs of {source_count:,} sources has only {len(packed):,} bytes")
    # three columns, each with an entry for each source
    counts_at = 4 * source_count
    starts_at = 8 * source_count
    sources = np.frombuffer(packed_sources[:counts_at], "<u4").astype(np.int64)
    run_counts = np.frombuffer(packed_sources[counts_at:starts_at], "<u4").astype(np.int64)
    first_starts = np.frombuffer(packed_sources[starts_at:], "<u8").astype(np.int64)
    run_count = int(run_counts.sum())
    if len(packed_steps) != run_count * 2 * width or not run_counts.all():
        raise ValueError(f"{len(packed_steps):,} bytes are not the {run_count:,} runs of a packed table")
    steps = np.frombuffer(packed_steps, f"<u{width}").astype(np.int64)
    borders = np.cumsum(steps).reshape(-1, 2)  # (runs, 2): start and end
    # So far each source goes on where the one before it ended, and has to begin at its own first
    # position: if that is 100, and its first row has 9, all of its rows are moved by 91.
    first_rows = np.cumsum(run_counts) - run_counts
    moves = first_starts - borders[first_rows, 0]
    borders += np.repeat(moves, run_counts)[:, np.newaxis]
    return np.column_stack([np.repeat(sources, run_counts), borders])


def _width_of(step_max: int) -> int:
    """Return how many bytes the largest step takes."""
    return next(width for width in _WIDTHS if step_max >> (8 * width) == 0)
