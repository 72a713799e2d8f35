"""SVG paths of what the pages draw; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spout.ui.strip import BandKind, Run
from spout.ui.summary import SERIES_EVERY_MS, Point

_SHAPES: Final = {
    BandKind.COMMITTED: (18, 6),
    BandKind.NEW: (22, 2),
    BandKind.SETTLED: (11, 13),
    BandKind.UNKNOWN: (8, 8),
    BandKind.OPEN: (2, 22),
    BandKind.WAITING: (2, 10),
    BandKind.BLOCKED: (7, 10),
    BandKind.DEAD: (0, 24),
}
"""Where a kind begins in a band of height 24, and how high it is: a second sign beside its colour."""


def strip_paths(runs: Sequence[Run]) -> dict[BandKind, str]:
    """Return for each kind the SVG path of its runs; one path of many parts is shorter than many shapes."""
    paths: dict[BandKind, str] = {}
    for run in runs:
        paths[run.kind] = paths.get(run.kind, "") + band_rectangle(run.kind, run.cell, run.cell_end)
    return paths


def band_rectangle(kind: BandKind, left: int, right: int) -> str:
    """Return the path of a run of cells in a band of height 24."""
    top, height = _SHAPES[kind]
    return f"M{left} {top}h{right - left}v{height}h-{right - left}z"


def sparkline_path(points: Sequence[Point], now_ms: int) -> str:
    """Return the SVG path of the last fifteen minutes in a box of 900 by 20; it is absent where unknown."""
    highest = max((value for _, value in points if value is not None), default=0)
    path, is_drawn = "", False
    for at_ms, value in points:
        if value is not None:
            x, y = 900 - (now_ms - at_ms) // 1_000, 19 - 18 * value // max(1, highest)
            path += f"{'L' if is_drawn else 'M'}{x} {y}h{SERIES_EVERY_MS // 1_000}"
        is_drawn = value is not None
    return path
