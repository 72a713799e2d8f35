"""The graphs of topologies and streams, as their drivers' metrics show them.

No topic has the graph. A driver serves it with its counters: each series of received tuples
names who emitted and who received them, and a topology names its edges before a tuple crosses
them. A page that has the addresses of drivers asks them while somebody looks at it.

Source: docs/operate/page.md; docs/reference/metrics.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isinf
from typing import Any, Final, NamedTuple

from acker.config.topics import Topics
from acker.errors import Unreachable
from acker.notation import show_text
from acker.untrusted import UntrustedName
from spout.inspect.readings import Reading
from spout.inspect.tables import Column, count
from spout.runtime.scrape import MetricSample

WINDOW_MS: Final = 60_000
"""A rate is from the oldest reading that is not older than this to the newest."""

APART_MS_MIN: Final = 1_000
"""Two readings that are closer give no rate: a single tuple would change it too much."""

OUT: Final = "(sink)"
"""What no bolt reads goes to the sink, or to Spark's own operators before it."""

NO_DRIVERS: Final = (
    "only the driver of a topology knows its graph, and this page was started without the address"
    " of one: let the driver serve its metrics, and start the page with"
    " `windhover ui --driver HOST:PORT`"
)
NO_RATE: Final = "a rate needs two readings, a second apart"
RESTARTED: Final = "the driver began to count anew within the last minute"
NO_QUANTILE: Final = (
    "the driver, or its executors, are of an earlier version, which counts only the sum of times"
)
NO_SUM: Final = "the driver counts no sum of times"
NOTHING_EXECUTED: Final = "no time was counted, since the bolt has executed nothing"

NO_SUCH_GROUP: Final = "none of the drivers that were asked counts tuples of group {}"

P99: Final = 0.99


def milliseconds(value: float) -> str:
    """Format a time of a tuple in ms; a short one is never shown as 0."""
    if 0 < value < 0.0001:
        return "< 0.0001"
    return f"{value:,.3f}" if value == 0 or value >= 0.1 else f"{value:.4f}"


BOLTS: Final = (
    Column("bolt", "name"),
    Column("executed", "executed", count),
    Column("failed", "failed", count),
    Column("mean, ms", "mean_ms", milliseconds),
    Column("p99, ms", "p99_ms", milliseconds),
)


class _SeriesKey(NamedTuple):
    """Names one series of a driver's metrics; what the series has no label for is empty.

    Attributes:
        metric: one of `_METRICS_READ`.
        operator: the bolt that executed the tuples, or the component that emitted them.
        source: the component that emitted what `operator` executed.
        stream: of the source; of what was emitted, of the operator itself.
        grouping: of an edge; of a histogram the upper bound of a bucket in its place, in seconds.
    """

    metric: str
    group: str
    operator: str
    source: str
    stream: str
    grouping: str


class GraphEdge(NamedTuple):
    """A stream from one component to another.

    Attributes:
        operator: who executes the tuples; `OUT`: no bolt does.
        grouping: empty where the driver does not name it.
        tuples: how many the operator has executed since the driver began; for `OUT`, were emitted.
    """

    source: str
    stream: str
    operator: str
    grouping: str
    tuples: int
    per_s: Reading[float]


class GraphNode(NamedTuple):
    """A component: how many tuples it executed and failed; None: it is a spout, and reads none."""

    name: str
    executed: int | None
    failed: int | None
    mean_ms: Reading[float]
    p99_ms: Reading[float]


@dataclass(frozen=True, slots=True)
class DriverGraph:
    """The graph of one group that a driver reads."""

    address: str
    group: str
    nodes: Sequence[GraphNode]
    edges: Sequence[GraphEdge]

    def row(self) -> dict[str, Any]:
        """Return it for programs: None where a value is unknown."""
        return {
            "driver": self.address,
            "group": self.group,
            "nodes": [
                {**node._asdict(), "mean_ms": node.mean_ms.value, "p99_ms": node.p99_ms.value}
                for node in self.nodes
            ],
            "edges": [{**edge._asdict(), "per_s": edge.per_s.value} for edge in self.edges],
        }


class _Scrape(NamedTuple):
    """What a driver had counted at a wall time."""

    at_ms: int
    counts: Mapping[_SeriesKey, float]


class Drivers:
    """Drivers at some addresses; each call of `read` asks all of them, one call at a time."""

    def __init__(self, addresses: Sequence[str], fetch: Callable[[str], Iterable[MetricSample]]) -> None:
        """Prepare. `fetch` reads the metrics at an address, or raises `Unreachable`."""
        self.addresses = addresses
        self._fetch = fetch
        # by address: the scrapes of the last `WINDOW_MS`, oldest first
        self._scrapes: dict[str, list[_Scrape]] = {address: [] for address in addresses}
        self._lock = threading.Lock()

    def read(self, now_ms: int) -> tuple[list[DriverGraph], dict[str, str]]:
        """Ask all drivers; return their graphs, and by address why a driver has none.

        The counts are kept for the rates that later calls return. `now_ms` is wall time.
        """
        graphs: list[DriverGraph] = []
        problems: dict[str, str] = {}
        with self._lock:
            for address in self.addresses:
                try:
                    scrape = _Scrape(now_ms, _counts_by_key(self._fetch(address)))
                except Unreachable as error:
                    problems[address] = str(error)
                    continue
                former_scrapes = [
                    former
                    for former in self._scrapes[address]
                    # an age below 0: that scrape was made before the clock was set back
                    if 0 <= now_ms - former.at_ms <= WINDOW_MS
                ]
                groups = dict.fromkeys(key.group for key in scrape.counts)
                if not groups:
                    problems[address] = f"{address} serves no metrics of a topology or a stream"
                graphs += [_graph(address, group, scrape, former_scrapes) for group in groups]
                # several tabs may ask within a second: only the first of these scrapes is kept
                if not former_scrapes or now_ms - former_scrapes[-1].at_ms >= APART_MS_MIN:
                    former_scrapes.append(scrape)
                self._scrapes[address] = former_scrapes
        return graphs, problems


def with_bolts(
    rows: Sequence[dict[str, Any]], topics: Topics, drivers: Drivers, now_ms: int
) -> list[dict[str, Any]]:
    """Return the rows of `CompletionLog`, each with the bolts of its input, as rows of `BOLTS`.

    `by_bolt` is None where no driver that was asked knows the group, and `unknown` then says so.
    """
    if not drivers.addresses:
        return list(rows)
    graphs, problems = drivers.read(now_ms)
    rows_with_bolts: list[dict[str, Any]] = []
    for row in rows:
        group = topics.inputs[row["input"]].group
        label = show_text(group)  # metrics have the group as it is shown
        graphs_of_group = [graph.row() for graph in graphs if graph.group == label]
        nodes = [node for graph in graphs_of_group for node in graph["nodes"]]
        bolts = [node for node in nodes if node["executed"] is not None]  # None: it is a spout
        unknown = {key: text for key, text in row["unknown"].items() if key != "by_bolt"}
        if not graphs_of_group:
            reasons = [NO_SUCH_GROUP.format(UntrustedName(group)), *problems.values()]
            unknown["by_bolt"] = "; ".join(reasons)
        by_bolt = bolts if graphs_of_group else None
        rows_with_bolts.append({**row, "by_bolt": by_bolt, "unknown": unknown})
    return rows_with_bolts


_EXECUTED: Final = "executed_total"
_EMITTED: Final = "emitted_total"
_FAILED: Final = "failed_total"
_SECONDS: Final = "execute_seconds_total"
_TIME_BUCKET: Final = "execute_per_tuple_seconds_bucket"
_EDGE: Final = "edge"
_METRICS_READ: Final = (_EXECUTED, _EMITTED, _FAILED, _SECONDS, _TIME_BUCKET, _EDGE)


def _counts_by_key(samples: Iterable[MetricSample]) -> dict[_SeriesKey, float]:
    """Return the values of the series that a graph is made of; others are left out."""
    counts: dict[_SeriesKey, float] = {}
    for sample in samples:
        # windhover_topology_executed_total, or windhover_stream_executed_total
        infix = "_topology_" if "_topology_" in sample.name else "_stream_"
        prefix, _, metric = sample.name.partition(infix)
        if prefix != "windhover" or metric not in _METRICS_READ:
            continue
        labels = sample.labels
        key = _SeriesKey(
            metric,
            group=labels.get("group", ""),
            operator=labels.get("operator", ""),
            source=labels.get("source", ""),
            stream=labels.get("stream", ""),
            grouping=labels.get("le") or labels.get("grouping", ""),
        )
        counts[key] = sample.value
    return counts


def _graph(address: str, group: str, scrape: _Scrape, former_scrapes: Sequence[_Scrape]) -> DriverGraph:
    """Return the graph of one group by the newest scrape of its driver; rates by all scrapes."""
    counts = {key: value for key, value in scrape.counts.items() if key.group == group}
    edges = list(_edges(counts, scrape, former_scrapes))
    nodes = _nodes(counts, edges)
    edges.sort(key=lambda edge: (edge.source, edge.stream, edge.operator))
    return DriverGraph(address, group, nodes, edges)


def _edges(
    counts: Mapping[_SeriesKey, float], scrape: _Scrape, former_scrapes: Sequence[_Scrape]
) -> Iterator[GraphEdge]:
    """Yield the streams that bolts read, then those that no bolt reads; all of one group."""
    # by (source, stream, operator): the grouping; empty: the driver does not name it
    grouping_by_ends: dict[tuple[str, str, str], str] = {}
    executed_by_ends: dict[tuple[str, str, str], _SeriesKey] = {}
    for key in counts:
        if key.metric in (_EXECUTED, _EDGE):
            ends = key.source, key.stream, key.operator
            grouping_by_ends[ends] = grouping_by_ends.get(ends) or key.grouping
            executed_by_ends[ends] = key._replace(metric=_EXECUTED, grouping="")
    for (source, stream, operator), grouping in grouping_by_ends.items():
        executed = executed_by_ends[source, stream, operator]
        tuples = int(counts.get(executed, 0))  # an edge is named before a tuple has crossed it
        per_s = _rate(executed, scrape, former_scrapes)
        yield GraphEdge(source, stream, operator, grouping, tuples, per_s)

    streams_read = {(source, stream) for source, stream, _operator in grouping_by_ends}
    for key, value in counts.items():
        if key.metric == _EMITTED and (key.operator, key.stream) not in streams_read:
            per_s = _rate(key, scrape, former_scrapes)
            yield GraphEdge(key.operator, key.stream, OUT, "", int(value), per_s)


def _nodes(counts: Mapping[_SeriesKey, float], edges: Sequence[GraphEdge]) -> list[GraphNode]:
    """Return the components at the ends of edges; one that no edge leads to is a spout."""
    # by (metric, operator): the sum over all streams that the operator reads
    totals: dict[tuple[str, str], float] = {}
    # by operator, then by a bound in seconds: how many tuples took at most so long
    counts_by_bound: dict[str, dict[float, float]] = {}
    for key, value in counts.items():
        totals[key.metric, key.operator] = totals.get((key.metric, key.operator), 0.0) + value
        if key.metric == _TIME_BUCKET:
            buckets = counts_by_bound.setdefault(key.operator, {})
            bound_s = float(key.grouping)
            buckets[bound_s] = buckets.get(bound_s, 0.0) + value
    bolts = {edge.operator for edge in edges}
    nodes: dict[str, GraphNode] = {}
    for edge in edges:
        for name in (edge.source, edge.operator):
            if name == OUT or name in nodes:
                continue
            if name in bolts:
                nodes[name] = _bolt(name, totals, counts_by_bound.get(name, {}))
            else:
                nodes[name] = GraphNode(name, None, None, Reading(), Reading())
    return list(nodes.values())


def _bolt(
    name: str, totals: Mapping[tuple[str, str], float], counts_by_bound: Mapping[float, float]
) -> GraphNode:
    """Return the node of a bolt; `totals` are by (metric, operator)."""
    executed = int(totals.get((_EXECUTED, name), 0))
    failed = int(totals.get((_FAILED, name), 0))
    if not executed:
        no_time: Reading[float] = Reading(unknown=NOTHING_EXECUTED)
        return GraphNode(name, executed, failed, no_time, no_time)
    mean_ms: Reading[float] = Reading(unknown=NO_SUM)
    seconds = totals.get((_SECONDS, name))
    if seconds is not None:
        mean_ms = Reading(1_000 * seconds / executed)
    p99_ms: Reading[float] = Reading(unknown=NO_QUANTILE)
    if any(counts_by_bound.values()):
        p99_ms = Reading(1_000 * _quantile(counts_by_bound, P99))
    return GraphNode(name, executed, failed, mean_ms, p99_ms)


def _quantile(counts_by_bound: Mapping[float, float], share: float) -> float:
    """Return below or at how many seconds a share of all took, as `histogram_quantile` computes it.

    Within its bucket a quantile is where it would be if times were spread evenly. With {1: 50, 2:
    90, inf: 100} the median is 1 s, and 0.7 is in the middle of the second bucket, 1.5 s. Of 0.99
    only the bound below is known, 2 s, since the last bucket has no upper bound.

    Args:
        counts_by_bound: how many took at most so many seconds; the last bound is infinite.
        share: which quantile, between 0 and 1.
    """
    bounds = sorted(counts_by_bound)
    rank = share * counts_by_bound[bounds[-1]]
    bucket = next(index for index, bound in enumerate(bounds) if counts_by_bound[bound] >= rank)
    low = bounds[bucket - 1] if bucket else 0.0
    count_below = counts_by_bound[low] if bucket else 0.0
    high = bounds[bucket]
    if isinf(high):
        return low
    return low + (high - low) * (rank - count_below) / (counts_by_bound[high] - count_below)


def _rate(key: _SeriesKey, scrape: _Scrape, former_scrapes: Sequence[_Scrape]) -> Reading[float]:
    """Return how many tuples a second a series counted since the oldest of the former scrapes."""
    if not former_scrapes or scrape.at_ms - former_scrapes[0].at_ms < APART_MS_MIN:
        return Reading(unknown=NO_RATE)
    scrapes = [*former_scrapes, scrape]
    values = [some_scrape.counts.get(key, 0.0) for some_scrape in scrapes]
    # a counter never falls, unless its process began anew
    if any(later < earlier for earlier, later in pairwise(values)):
        return Reading(unknown=RESTARTED)
    return Reading((values[-1] - values[0]) / (scrape.at_ms - former_scrapes[0].at_ms) * 1_000)
