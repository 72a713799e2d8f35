"""SVG paths of what the pages draw: bands, sparklines, rates, histograms and graphs; pure.

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
"""Top and height of each kind in a band of height 24: a second sign beside its colour."""

BIN_WIDTH: Final = 30
"""The width of a bin of a histogram."""


def strip_paths(runs: Sequence[Run]) -> dict[BandKind, str]:
    """Return for each kind one SVG path of all its runs, which is shorter than many shapes."""
    paths: dict[BandKind, str] = {}
    for run in runs:
        paths[run.kind] = paths.get(run.kind, "") + band_rectangle(run.kind, run.cell, run.cell_end)
    return paths


def band_rectangle(kind: BandKind, left: int, right: int) -> str:
    """Return the SVG path of a run of cells, from `left` to `right`, in a band of height 24."""
    top, height = _SHAPES[kind]
    return f"M{left} {top}h{right - left}v{height}h-{right - left}z"


def sparkline_path(points: Sequence[Point], now_ms: int) -> str:
    """Return the SVG path of the last fifteen minutes in a box of 900 by 20.

    The right side is the present, and a second is 1 wide. The highest value is drawn at 1, and
    0 at 19: a line that is 2 thick is not cut by the box. An unknown value leaves a gap.
    """
    highest = max((value for _, value in points if value is not None), default=0)
    path = ""
    is_line_begun = False
    for at_ms, value in points:
        if value is None:
            is_line_begun = False
            continue
        x = 900 - (now_ms - at_ms) // 1_000
        y = 19 - 18 * value // max(1, highest)
        command = "L" if is_line_begun else "M"
        path += f"{command}{x} {y}h{SERIES_EVERY_MS // 1_000}"
        is_line_begun = True
    return path


def rate_columns(series: RateSeries) -> list[list[Any]]:
    """Return four columns for the chart of rates: times in s since 1970, then roots a second.

    These are acked, failed and timed out; None: unknown.
    """
    step_s = RATES_EVERY_MS // 1_000
    first_s = series.first_ms // 1_000
    times_s = [first_s + step_s * index for index in range(len(series.acked))]

    def per_s(counts: Sequence[int | None]) -> list[float | None]:
        return [None if count is None else count / step_s for count in counts]

    return [times_s, per_s(series.acked), per_s(series.failed), per_s(series.timed_out)]


def rate_minutes(series: RateSeries) -> list[tuple[int, list[int | None]]]:
    """Return each whole minute's wall time in ms, and its numbers of roots; the newest first.

    These are acked, failed and timed out; None: a part of the minute is unknown.
    """
    minute_ms = UNITS_MS["m"]
    steps_of_minute = minute_ms // RATES_EVERY_MS
    # the series may begin within a minute: with steps of 10 s at 12:00:40 the first is step 2
    first_step = -series.first_ms % minute_ms // RATES_EVERY_MS
    minutes = []
    for step in range(first_step, len(series.acked) - steps_of_minute + 1, steps_of_minute):
        sums: list[int | None] = []
        for column in (series.acked, series.failed, series.timed_out):
            counts = [count for count in column[step : step + steps_of_minute] if count is not None]
            sums.append(sum(counts) if len(counts) == steps_of_minute else None)
        minutes.append((series.first_ms + step * RATES_EVERY_MS, sums))
    return minutes[::-1]


def histogram_path(bins: Sequence[Row], name: str) -> str:
    """Return the SVG path of one series of a histogram; a bin is `BIN_WIDTH` wide, the highest 120 high.

    `acked` has the left two thirds of each bin, and any other series the rest. All series have
    one scale, and what is not 0 is seen.
    """
    highest = max((max(bin["acked"], bin["late"]) for bin in bins), default=0)
    left, width = (1, 18) if name == "acked" else (20, 9)
    path = ""
    for index, bin in enumerate(bins):
        if bin[name]:
            height = max(3, 120 * bin[name] // highest)
            path += f"M{BIN_WIDTH * index + left} {120 - height}h{width}v{height}h-{width}z"
    return path


def histogram_x(bins: Sequence[Row], duration_ms: int) -> int:
    """Return the x of a duration in a histogram of `histogram_path`, in proportion in its bin.

    Of bins 0-10 ms and 10-20 ms, 5 ms has the x 15, and 10 ms has 30.
    """
    for index, bin in enumerate(bins):
        from_ms, to_ms = int(bin["from_ms"]), int(bin["to_ms"])
        if duration_ms <= to_ms:
            # a duration below the first bin is drawn at its left
            in_bin_ms = max(0, duration_ms - from_ms)
            return BIN_WIDTH * index + BIN_WIDTH * in_bin_ms // (to_ms - from_ms)
    return BIN_WIDTH * len(bins)  # it is behind the last bin


NODE_WIDTH: Final = 168
NODE_HEIGHT: Final = 76
COLUMN_GAP: Final = 94
"""Five columns are as wide as the page, and a rate has room between two."""

ROW_GAP: Final = 34
MARGIN: Final = 8


class Corner(NamedTuple):
    """The left upper corner of a node, or of what an edge takes up in a column, in pixels."""

    x: int
    y: int


class EdgeDrawing(NamedTuple):
    """The SVG path of an edge, and where its text begins."""

    path: str
    text_x: int
    text_y: int


class GraphDrawing(NamedTuple):
    """Where a graph is drawn, in pixels: its nodes by their names, and its edges in their order."""

    width: int
    height: int
    nodes: Mapping[str, Corner]
    edges: Sequence[EdgeDrawing]


def draw_graph(edges: Sequence[tuple[str, str]]) -> GraphDrawing:
    """Place a graph from left to right: each node is behind all that it reads from.

    An edge that passes a column has a place of its own there, so none runs through a node. A
    circle, which no topology has, is drawn with an edge that goes back.

    Args:
        edges: the names of source and target of each; an edge that is there twice is drawn twice.
    """
    # 1. columns: a node is one column behind the farthest that it reads from
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    column_by_name = dict.fromkeys(names, 0)
    for _ in names:  # as often as the longest path may be, so that each node gets to its column
        for source, target in edges:
            column = max(column_by_name[target], column_by_name[source] + 1)
            column_by_name[target] = min(len(names) - 1, column)

    # 2. rows: nodes first, then the edges that pass a column between their ends
    row_counts = Counter[int]()  # by column: how many of its rows are taken

    def take_row(column: int) -> Corner:
        """Take the next row of a column, and return its left upper corner."""
        row = row_counts[column]
        row_counts[column] += 1
        x = MARGIN + column * (NODE_WIDTH + COLUMN_GAP)
        return Corner(x, MARGIN + row * (NODE_HEIGHT + ROW_GAP))

    names.sort(key=column_by_name.__getitem__)
    nodes = {name: take_row(column_by_name[name]) for name in names}
    passed_by_edge: dict[tuple[str, str], list[Corner]] = {}
    for source, target in dict.fromkeys(edges):
        columns = range(column_by_name[source] + 1, column_by_name[target])
        passed_by_edge[source, target] = [take_row(column) for column in columns]

    # 3. paths, from the right side of a source to the left side of its target
    drawings: list[EdgeDrawing] = []
    drawn_counts = Counter[tuple[str, str]]()
    for edge in edges:
        source, target = edge
        # the first edge of two nodes leaves at half their height, and each further one 18 lower
        down = NODE_HEIGHT // 2 + 18 * drawn_counts[edge]
        drawn_counts[edge] += 1
        x, y = nodes[source].x + NODE_WIDTH, nodes[source].y + down
        text_x, text_y = x + 8, y - 6
        path = f"M{x} {y}"
        passed = passed_by_edge[edge]
        for corner in [*passed, nodes[target]]:
            bend = max(40, (corner.x - x) // 2)
            end_x, end_y = corner.x, corner.y + down
            path += f"C{x + bend} {y} {end_x - bend} {end_y} {end_x} {end_y}"
            if passed and corner == passed[0]:
                # on the straight part through a column there is more room than before the bend
                text_x, text_y = end_x + 8, end_y - 6
            x, y = end_x, end_y
            if corner != nodes[target]:
                x += NODE_WIDTH
                path += f"H{x}"
        drawings.append(EdgeDrawing(path, text_x, text_y))
    width = max((corner.x for corner in nodes.values()), default=0) + NODE_WIDTH + MARGIN
    height = MARGIN + max(row_counts.values(), default=0) * (NODE_HEIGHT + ROW_GAP)
    return GraphDrawing(width, height, nodes, drawings)
