"""The graphs of topologies and streams, as their drivers' metrics show them.

No topic has the graph. A driver serves it with its counters: each series of received tuples names who emitted
them and who received them, and a topology names its edges before any tuple has crossed them. A page that
has the addresses of drivers asks them while somebody looks. Rates are between two of its readings.

Source: docs/operate/page.md; docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from acker.errors import Unreachable
from spout.inspect.readings import Reading
from spout.runtime.scrape import MetricSample

WINDOW_MS: Final = 60_000
"""A rate is from the oldest reading that is not older than this to the newest."""

APART_MS_MIN: Final = 1_000

OUT: Final = "(sink)"
"""What no bolt reads goes to the sink, or to Spark's own operators before it."""

NO_DRIVERS: Final = (
    "the graph of a topology is in no topic, and the page was started without the address of a driver: serve"
    " its metrics, and name it with `windhover ui --driver HOST:PORT`"
)
NO_RATE: Final = "a rate needs two readings, a second apart"
RESTARTED: Final = "the driver began to count anew within the last minute"
NO_QUANTILE: Final = "drivers count the sum of times of each bolt, and no quantile"
NOTHING_EXECUTED: Final = "no time was counted, since the bolt has executed nothing"

_Key = tuple[str, str, str, str, str, str]
"""What is counted, group, operator, source, stream, grouping."""


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
    """Drivers at some addresses; each call of `read` asks all of them. Used by one thread at a time."""

    def __init__(self, addresses: Sequence[str], fetch: Callable[[str], Iterable[MetricSample]]) -> None:
        """Prepare. `fetch` reads the metrics at an address, or raises `Unreachable`."""
        self.addresses = addresses
        self._fetch = fetch
        self._past: dict[str, list[_Scrape]] = {address: [] for address in addresses}

    def read(self, now_ms: int) -> tuple[list[DriverGraph], dict[str, str]]:
        """Return the graphs, and why there is none of an address; `now_ms` is wall time."""
        graphs: list[DriverGraph] = []
        problems: dict[str, str] = {}
        for address in self.addresses:
            try:
                counts = _counts(self._fetch(address))
            except Unreachable as error:
                problems[address] = str(error)
                continue
            past = [each for each in self._past[address] if now_ms - each.at_ms <= WINDOW_MS]
            groups = dict.fromkeys(key[1] for key in counts)
            if not groups:
                problems[address] = f"{address} serves no metrics of a topology or a stream"
            graphs += [_graph(address, group, counts, past, now_ms) for group in groups]
            if not past or now_ms - past[-1].at_ms >= APART_MS_MIN:
                past.append(_Scrape(now_ms, counts))
            self._past[address] = past
        return graphs, problems


def _counts(samples: Iterable[MetricSample]) -> dict[_Key, float]:
    """Return what the graphs are made of."""
    found: dict[_Key, float] = {}
    for sample in samples:
        prefix, _, what = sample.name.partition("_topology_" if "_topology_" in sample.name else "_stream_")
        if prefix == "windhover" and what in _USED:
            labels = sample.labels
            group, operator, source, stream, grouping = (
                labels.get(name, "") for name in ("group", "operator", "source", "stream", "grouping")
            )
            found[what, group, operator, source, stream, grouping] = sample.value
    return found


_EXECUTED: Final = "executed_total"
_EMITTED: Final = "emitted_total"
_FAILED: Final = "failed_total"
_SECONDS: Final = "execute_seconds_total"
_EDGE: Final = "edge"
_USED: Final = (_EXECUTED, _EMITTED, _FAILED, _SECONDS, _EDGE)


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
    for key, value in own.items():
        totals[key[0], key[2]] = totals.get((key[0], key[2]), 0.0) + value
    names = dict.fromkeys(name for each in found for name in (each.source, each.operator) if name != OUT)
    bolts = {each.operator for each in found}
    nodes = [
        _node(name, totals) if name in bolts else GraphNode(name, None, None, Reading(), Reading())
        for name in names
    ]
    return DriverGraph(address, group, nodes, sorted(found, key=lambda each: each[:3]))


def _node(name: str, totals: Mapping[tuple[str, str], float]) -> GraphNode:
    executed, seconds = int(totals.get((_EXECUTED, name), 0)), totals.get((_SECONDS, name))
    mean: Reading[float] = Reading(unknown=NOTHING_EXECUTED)
    if executed and seconds is not None:
        mean = Reading(1_000 * seconds / executed)
    failed = int(totals.get((_FAILED, name), 0))
    return GraphNode(name, executed, failed, mean, Reading(unknown=NO_QUANTILE))


def _rate(key: _Key, now: Mapping[_Key, float], past: Sequence[_Scrape], now_ms: int) -> Reading[float]:
    """Return how many tuples a second there were in the window."""
    if not past or now_ms - past[0].at_ms < APART_MS_MIN:
        return Reading(unknown=NO_RATE)
    values = [*(each.counts.get(key, 0.0) for each in past), now.get(key, 0.0)]
    if any(later < before for before, later in pairwise(values)):
        return Reading(unknown=RESTARTED)
    return Reading((values[-1] - values[0]) / (now_ms - past[0].at_ms) * 1_000)
