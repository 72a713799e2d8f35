"""Tables of runs as bytes.

A source's runs are close to each other, though positions are large: so what is written of a run is how far it
begins behind the one before it, and how long it is. All numbers are little-endian and without a sign:

    1 byte     how many bytes each step takes: 1, 2, 4 or 8
    4 bytes    how many sources there are
    then, for each source, 4 bytes each: the sources; 4 bytes each: how many runs it has; 8 bytes each: where
               its first run begins
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


def packed_table(table: I64) -> bytes:
    """Return the bytes of a canonical table."""
    sources, firsts, runs = np.unique(table[:, 0], return_index=True, return_counts=True)
    steps = np.diff(table[:, 1:].ravel(), prepend=0)
    steps[2 * firsts] = 0
    width = next(size for size in _WIDTHS if not len(steps) or int(steps.max()) >> (8 * size) == 0)
    parts = (
        np.array([len(sources)], "<u4"),
        sources.astype("<u4"),
        runs.astype("<u4"),
        table[firsts, 1].astype("<u8"),
        steps.astype(f"<u{width}"),
    )
    return bytes([width]) + b"".join(part.tobytes() for part in parts)


def unpacked_table(packed: bytes) -> I64:
    """Return the table of `packed_table`, not proved to be canonical.

    Raises `ValueError`: the bytes are something else, or some are missing.
    """
    if len(packed) < _HEAD_BYTES or packed[0] not in _WIDTHS:
        raise ValueError(f"{len(packed)} bytes do not begin as a packed table of runs does")
    width, count = packed[0], int.from_bytes(packed[1:_HEAD_BYTES], "little")
    body = memoryview(packed)[_HEAD_BYTES:]
    numbers, steps_packed = body[: count * _SOURCE_BYTES], body[count * _SOURCE_BYTES :]
    if len(numbers) < count * _SOURCE_BYTES:
        raise ValueError(f"a packed table of runs of {count:,} sources has only {len(packed):,} bytes")
    sources = np.frombuffer(numbers[: 4 * count], "<u4")
    runs = np.frombuffer(numbers[4 * count : 8 * count], "<u4").astype(np.int64)
    firsts = np.frombuffer(numbers[8 * count :], "<u8").astype(np.int64)
    count_of_runs = int(runs.sum())
    if len(steps_packed) != count_of_runs * 2 * width or not runs.all():
        raise ValueError(f"{len(steps_packed):,} bytes are not the {count_of_runs:,} runs of a packed table")
    steps = np.frombuffer(steps_packed, f"<u{width}").astype(np.int64)
    edges = np.cumsum(steps).reshape(-1, 2)
    # each source goes on where the one before it ended, and has to begin at its own first position
    edges += np.repeat(firsts - edges[np.cumsum(runs) - runs, 0], runs)[:, np.newaxis]
    return np.column_stack([np.repeat(sources.astype(np.int64), runs), edges])
