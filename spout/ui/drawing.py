"""SVG paths of what the pages draw; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spout.inspect.tables import Row
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


def histogram_path(bins: Sequence[Row], name: str) -> str:
    """Return the path of one series of a histogram, each part 30 wide, in a height of 120.

    `acked` has the left two thirds of each part, and any other series the rest. All series have one scale,
    and what is not 0 is seen.
    """
    highest = max((max(each["acked"], each["late"]) for each in bins), default=0)
    left, width = (1, 18) if name == "acked" else (20, 9)
    path = ""
    for number, each in enumerate(bins):
        if each[name]:
            height = max(3, 120 * each[name] // highest)
            path += f"M{30 * number + left} {120 - height}h{width}v{height}h-{width}z"
    return path


def histogram_place(bins: Sequence[Row], at_ms: int) -> int:
    """Return where a time is in a histogram of `histogram_path`, in proportion within its part."""
    for number, each in enumerate(bins):
        low, high = int(each["from_ms"]), int(each["to_ms"])
        if at_ms <= high:
            return 30 * number + 30 * max(0, at_ms - low) // (high - low)
    return 30 * len(bins)
