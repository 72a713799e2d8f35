"""SVG paths of what the pages draw; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from acker.units import UNITS_MS
from spout.inspect.summary import RATES_EVERY_MS, SERIES_EVERY_MS, Point, RateSeries
from spout.inspect.tables import Row
from spout.ui.strip import BandKind, Run

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


def rate_columns(series: RateSeries) -> list[list[Any]]:
    """Return the columns of the time chart: seconds since 1970; roots acked, failed, timed out a second."""
    every_s = RATES_EVERY_MS // 1_000
    times = [series.first_ms // 1_000 + every_s * number for number in range(len(series.acked))]
    rates = [
        [None if each is None else each / every_s for each in column]
        for column in (series.acked, series.failed, series.timed_out)
    ]
    return [times, *rates]


def rate_minutes(series: RateSeries) -> list[tuple[int, list[int | None]]]:
    """Return for each whole minute its wall time, and what was acked, failed and timed out; the newest first.

    A minute of which a part is unknown is unknown.
    """
    size = UNITS_MS["m"] // RATES_EVERY_MS
    skip = -series.first_ms % UNITS_MS["m"] // RATES_EVERY_MS
    minutes = []
    for at in range(skip, len(series.acked) - size + 1, size):
        parts = [column[at : at + size] for column in (series.acked, series.failed, series.timed_out)]
        sums = [None if None in part else sum(each or 0 for each in part) for part in parts]
        minutes.append((series.first_ms + at * RATES_EVERY_MS, sums))
    return minutes[::-1]


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


NODE_WIDTH: Final = 168
NODE_HEIGHT: Final = 76
COLUMN_GAP: Final = 94
"""Five columns are as wide as the page, and a rate has room between two."""

ROW_GAP: Final = 34
MARGIN: Final = 8


class GraphDrawing(NamedTuple):
    """Where the nodes and edges of a graph are drawn, in pixels: nodes by name, edges in their order.

    A node is its left upper corner; an edge is its path, and the place of its text.
    """

    width: int
    height: int
    nodes: Mapping[str, tuple[int, int]]
    edges: Sequence[tuple[str, int, int]]


def draw_graph(edges: Sequence[tuple[str, str]]) -> GraphDrawing:
    """Place a graph from left to right: each node is behind all that it reads from.

    An edge that passes a column has a place of its own there, so none runs through a node. A circle, which no
    topology has, is drawn with an edge that goes back.
    """
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    column = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in edges:
            column[target] = min(len(names) - 1, max(column[target], column[source] + 1))
    rows = Counter[int]()

    def place(at: int) -> tuple[int, int]:
        rows[at] += 1
        return MARGIN + at * (NODE_WIDTH + COLUMN_GAP), MARGIN + (rows[at] - 1) * (NODE_HEIGHT + ROW_GAP)

    nodes = {name: place(column[name]) for name in sorted(names, key=lambda each: column[each])}
    passed = {
        edge: [place(at) for at in range(column[edge[0]] + 1, column[edge[1]])]
        for edge in dict.fromkeys(edges)
    }
    paths: list[tuple[str, int, int]] = []
    parallel = Counter[tuple[str, str]]()
    for edge in edges:
        down = NODE_HEIGHT // 2 + 18 * parallel[edge]
        parallel[edge] += 1
        x, y = nodes[edge[0]][0] + NODE_WIDTH, nodes[edge[0]][1] + down
        text = x + 8, y - 6
        path = f"M{x} {y}"
        for left, top in [*passed[edge], nodes[edge[1]]]:
            bend = max(40, (left - x) // 2)
            path += f"C{x + bend} {y} {left - bend} {top + down} {left} {top + down}"
            if passed[edge] and (left, top) == passed[edge][0]:
                text = left + 8, top + down - 6
            x, y = left, top + down
            if (left, top) != nodes[edge[1]]:
                x += NODE_WIDTH
                path += f"H{x}"
        paths.append((path, *text))
    width = max((x for x, _ in nodes.values()), default=0) + NODE_WIDTH + MARGIN
    height = MARGIN + max(rows.values(), default=0) * (NODE_HEIGHT + ROW_GAP)
    return GraphDrawing(width, height, nodes, paths)
