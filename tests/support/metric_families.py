"""Every metric that a process of Windhover can serve, by its part."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields

from prometheus_client import Metric

from acker.ledger.output import AckerStatus, Counts
from replay.worker.report import Counters, ReplayStatus
from spout.builder.streams import StreamStatus, stream_metrics
from spout.builder.submitted import TopologyStatus, topology_metrics
from spout.inspect.overview import Overview
from spout.planning_process.status import PlannerStatus
from spout.runtime.metrics import StatusCollector, acker_metrics, build_info, replay_metrics
from spout.standalone.kafka_spout import spout_metrics
from spout.standalone.queues import SpoutStatus
from spout.ui.metrics import view_metrics
from spout.ui.watch import LatestState
from tests.support.worlds.planning import World

SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
    "summary": ("_count", "_sum"),
}
"""What follows a family's name in the names of its series, by its type."""


def acker_status(**changed: object) -> AckerStatus:
    """An acker's status in which nothing has happened, but for what is changed."""
    values: dict[str, object] = {
        "partitions": (0, 1), "assigned": 3, "open_roots": 5, "ranges": 1, "never_expiring": 0,
        "sessions": ("g/s1",), "pending": 0, "counts": Counts(transactions=7),
    }  # fmt: skip
    return AckerStatus(**{**values, **changed})  # type: ignore[arg-type]


def replay_status(**changed: object) -> ReplayStatus:
    """A replay worker's status in which nothing has happened, but for what is changed."""
    values: dict[str, object] = {each.name: getattr(Counters(), each.name) for each in fields(Counters)}
    values |= {
        "partitions": (0,), "assigned": 1, "waiting": 0, "waiting_bytes": 0, "next_due_ms": 1_000,
        "fetched_records": 0, "fetched_bytes": 0, "aside": 0, "aside_by_input": {}, "paused": (),
        "breaker_used": {"sentences": 0.0},
    }  # fmt: skip
    return ReplayStatus(**{**values, **changed})  # type: ignore[arg-type]


def every_family() -> dict[str, list[Metric]]:
    """Return the families of each part: acker, replay, stream, topology, spout, ui, and those of all."""
    world = World()
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        latest = LatestState(1, overview.snapshot(world.now_ms))
    acker = StatusCollector("acker", lambda status: acker_metrics(status, world.topics), lambda: 0.0)
    acker.update(acker_status())
    replay = StatusCollector("replay", replay_metrics, lambda: 0.0)
    replay.update(replay_status())
    planner = PlannerStatus("running", "g")
    parts: dict[str, Iterable[Metric]] = {
        "acker": acker.collect(),
        "replay": replay.collect(),
        "stream": stream_metrics([StreamStatus("g", planner, {})], 0),
        "topology": topology_metrics(TopologyStatus("active", planner, {}), "g", 0),
        "spout": spout_metrics(SpoutStatus(planner, {}, {}, 0), 0),
        "ui": view_metrics(latest, world.topics, world.now_ms),
        "all": [build_info()],
    }
    return {part: list(found) for part, found in parts.items()}


def series_names(families: Iterable[Metric]) -> set[str]:
    """Return the names of the series of some families, as a query names them."""
    return {f"{each.name}{suffix}" for each in families for suffix in SUFFIXES[each.type]}
