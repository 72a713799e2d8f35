"""The graphs of topologies and streams, as their drivers' metrics show them.

No topic has the graph. A driver serves it with its counters: each series of received tuples names who emitted
them and who received them, and a topology names its edges before any tuple has crossed them. A page that
has the addresses of drivers asks them while somebody looks. Rates are between two of its readings.

Source: docs/operate/page.md; docs/reference/metrics.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
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

OUT: Final = "(sink)"
"""What no bolt reads goes to the sink, or to Spark's own operators before it."""

NO_DRIVERS: Final = (
    "only the driver of a topology knows its graph, and this page was started without the address of one:"
    " let the driver serve its metrics, and start the page with `windhover ui --driver HOST:PORT`"
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

_Key = tuple[str, str, str, str, str, str]
"""What is counted, group, operator, source, stream, grouping; of a histogram the bound in its place."""


class GraphEdge(NamedTuple):
    """A stream from one component to another. `grouping` is empty where the driver does not name it."""

    source: str
    stream: str
    operator: str
    grouping: str
    tuples: int
    per_s: Reading[float]


class GraphNode(NamedTuple):
    """A component. What it executed and failed are tuples; None: it is a spout, which reads none."""

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
                {**each._asdict(), "mean_ms": each.mean_ms.value, "p99_ms": each.p99_ms.value}
                for each in self.nodes
            ],
            "edges": [{**each._asdict(), "per_s": each.per_s.value} for each in self.edges],
        }


class _Scrape(NamedTuple):
    at_ms: int
    counts: Mapping[_Key, float]


class Drivers:
    """Drivers at some addresses; each call of `read` asks all of them, one call at a time."""

    def __init__(self, addresses: Sequence[str], fetch: Callable[[str], Iterable[MetricSample]]) -> None:
        """Prepare. `fetch` reads the metrics at an address, or raises `Unreachable`."""
        self.addresses = addresses
        self._fetch = fetch
        self._past: dict[str, list[_Scrape]] = {address: [] for address in addresses}
        self._lock = threading.Lock()

    def read(self, now_ms: int) -> tuple[list[DriverGraph], dict[str, str]]:
        """Return the graphs, and why there is none of an address; `now_ms` is wall time."""
        graphs: list[DriverGraph] = []
        problems: dict[str, str] = {}
        with self._lock:
            for address in self.addresses:
                try:
                    counts = _counts(self._fetch(address))
                except Unreachable as error:
                    problems[address] = str(error)
                    continue
                # of a clock that was set back, those from before are too new
                past = [each for each in self._past[address] if 0 <= now_ms - each.at_ms <= WINDOW_MS]
                groups = dict.fromkeys(key[1] for key in counts)
                if not groups:
                    problems[address] = f"{address} serves no metrics of a topology or a stream"
                graphs += [_graph(address, group, counts, past, now_ms) for group in groups]
                if not past or now_ms - past[-1].at_ms >= APART_MS_MIN:
                    past.append(_Scrape(now_ms, counts))
                self._past[address] = past
        return graphs, problems


def with_bolts(
    rows: Sequence[dict[str, Any]], topics: Topics, drivers: Drivers, now_ms: int
) -> list[dict[str, Any]]:
    """Return the rows of `CompletionLog`, each with what its input's bolts took, as rows of `BOLTS`."""
    if not drivers.addresses:
        return list(rows)
    graphs, problems = drivers.read(now_ms)
    found: list[dict[str, Any]] = []
    for row in rows:
        group = topics.inputs[row["input"]].group
        label = show_text(group)
        own = [graph.row()["nodes"] for graph in graphs if graph.group == label]
        bolts = [node for nodes in own for node in nodes if node["executed"] is not None]
        unknown = {key: text for key, text in row["unknown"].items() if key != "by_bolt"}
        if not own:
            unknown["by_bolt"] = "; ".join([NO_SUCH_GROUP.format(UntrustedName(group)), *problems.values()])
        found.append({**row, "by_bolt": bolts if own else None, "unknown": unknown})
    return found


def _counts(samples: Iterable[MetricSample]) -> dict[_Key, float]:
    found: dict[_Key, float] = {}
    for sample in samples:
        prefix, _, what = sample.name.partition("_topology_" if "_topology_" in sample.name else "_stream_")
        if prefix == "windhover" and what in _USED:
            labels = sample.labels
            group, operator, source, stream = (
                labels.get(name, "") for name in ("group", "operator", "source", "stream")
            )
            last = labels.get("le") or labels.get("grouping", "")
            found[what, group, operator, source, stream, last] = sample.value
    return found


_EXECUTED: Final = "executed_total"
_EMITTED: Final = "emitted_total"
_FAILED: Final = "failed_total"
_SECONDS: Final = "execute_seconds_total"
_TIMES: Final = "execute_per_tuple_seconds_bucket"
_EDGE: Final = "edge"
_USED: Final = (_EXECUTED, _EMITTED, _FAILED, _SECONDS, _TIMES, _EDGE)


def _graph(
    address: str, group: str, counts: Mapping[_Key, float], past: Sequence[_Scrape], now_ms: int
) -> DriverGraph:
    own = {key: value for key, value in counts.items() if key[1] == group}
    edges: dict[tuple[str, str, str], str] = {}
    for what, _, operator, source, stream, grouping in own:
        if what in (_EXECUTED, _EDGE):
            place = source, stream, operator
            edges[place] = edges.get(place) or grouping
    read = {(source, stream) for source, stream, _ in edges}
    emitted = {(key[2], key[4]): key for key in own if key[0] == _EMITTED}
    found = [
        GraphEdge(
            source,
            stream,
            operator,
            grouping,
            int(own.get(key := (_EXECUTED, group, operator, source, stream, ""), 0)),
            _rate(key, own, past, now_ms),
        )
        for (source, stream, operator), grouping in edges.items()
    ]
    found += [
        GraphEdge(source, stream, OUT, "", int(own[sent]), _rate(sent, own, past, now_ms))
        for (source, stream), sent in emitted.items()
        if (source, stream) not in read
    ]
    totals: dict[tuple[str, str], float] = {}
    times: dict[str, dict[float, float]] = {}
    for key, value in own.items():
        totals[key[0], key[2]] = totals.get((key[0], key[2]), 0.0) + value
        if key[0] == _TIMES:
            by_bound = times.setdefault(key[2], {})
            by_bound[float(key[5])] = by_bound.get(float(key[5]), 0.0) + value
    names = dict.fromkeys(name for each in found for name in (each.source, each.operator) if name != OUT)
    bolts = {each.operator for each in found}
    nodes = [
        _node(name, totals, times.get(name, {}))
        if name in bolts
        else GraphNode(name, None, None, Reading(), Reading())
        for name in names
    ]
    return DriverGraph(address, group, nodes, sorted(found, key=lambda each: each[:3]))


def _node(name: str, totals: Mapping[tuple[str, str], float], times: Mapping[float, float]) -> GraphNode:
    executed, seconds = int(totals.get((_EXECUTED, name), 0)), totals.get((_SECONDS, name))
    failed = int(totals.get((_FAILED, name), 0))
    if not executed:
        nothing: Reading[float] = Reading(unknown=NOTHING_EXECUTED)
        return GraphNode(name, executed, failed, nothing, nothing)
    mean: Reading[float] = Reading(unknown=NO_SUM)
    if seconds is not None:
        mean = Reading(1_000 * seconds / executed)
    p99: Reading[float] = Reading(unknown=NO_QUANTILE)
    if any(times.values()):
        p99 = Reading(1_000 * _quantile(times, P99))
    return GraphNode(name, executed, failed, mean, p99)


def _quantile(times: Mapping[float, float], share: float) -> float:
    """Return a quantile of a histogram as Prometheus' `histogram_quantile` does, so that both agree.

    `times` has how many took at most so long. Within its class a quantile is where it would be if times were
    spread evenly; in the last one, which has no bound, the answer is the bound before.
    """
    bounds = sorted(times)
    rank = share * times[bounds[-1]]
    at = next(at for at, bound in enumerate(bounds) if times[bound] >= rank)
    low = bounds[at - 1] if at else 0.0
    below = times[low] if at else 0.0
    if isinf(bounds[at]):
        return low
    return low + (bounds[at] - low) * (rank - below) / (times[bounds[at]] - below)


def _rate(key: _Key, now: Mapping[_Key, float], past: Sequence[_Scrape], now_ms: int) -> Reading[float]:
    if not past or now_ms - past[0].at_ms < APART_MS_MIN:
        return Reading(unknown=NO_RATE)
    values = [*(each.counts.get(key, 0.0) for each in past), now.get(key, 0.0)]
    if any(later < before for before, later in pairwise(values)):
        return Reading(unknown=RESTARTED)
    return Reading((values[-1] - values[0]) / (now_ms - past[0].at_ms) * 1_000)
