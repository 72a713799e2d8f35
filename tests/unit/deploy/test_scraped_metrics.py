"""A run in memory of acker, replay worker, spout and page has each metric that alerts and panels name.

The metrics of bolts, which a driver with Spark serves, are looked for in tests/integration/spark.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any
from urllib.request import urlopen

from starlette.testclient import TestClient

from acker.kafka.port import TopicPartition
from spout.inspect.overview import Overview
from spout.local.embedded import free_ports
from spout.runtime.endpoints import serve
from spout.runtime.metrics import StatusCollector, acker_metrics, replay_metrics
from spout.standalone.client import Client
from spout.ui.serve import LOOPBACK
from spout.ui.watch import Watch
from tests.support.monitoring import expressions, metrics_named
from tests.support.page_server import pages_of
from tests.support.worlds.kestrel_world import KestrelWorld

YAML = """
acker: {partitions: 3}
inputs:
  orders: {id: 1, group: g, partitions: 1, timeout: 5m, retry: {attempts: 2, initial: 100ms}}
"""
PLACE = TopicPartition("orders", 0)
DRIVERS = ("windhover_stream_", "windhover_topology_")


def names_in(text: str) -> set[str]:
    """Return the names of the series that have a value."""
    return {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line[:1] != "#"}


def names_at(port: int) -> set[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return names_in(answer.read().decode())


def names_of_page(world: KestrelWorld) -> set[str]:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        watch = Watch(overview.snapshot, world.topics, lambda: world.now_ms)
        watch.read()
        pages = pages_of(world, watch)[0].application(LOOPBACK)
        return names_in(TestClient(pages, base_url="http://localhost").get("/metrics").text)


def handle_records(world: KestrelWorld, client: Client) -> None:
    """Confirm records, leave one open, and fail one until it is a dead letter."""
    dead = TopicPartition(world.topics.input("orders").dead_letter.topic, 0)
    for _ in range(300):
        for item in client.open(30):
            if item["value"] == b"15":
                client.fail(item, ValueError("no such order"))
            elif item["value"] != b"12":
                client.confirm(item)
        world.run(100)
        if world.log.stable_ends([dead])[dead]:
            return
    raise AssertionError("no record became a dead letter")


def test_a_run_serves_every_metric_that_rules_and_panels_name() -> None:
    world = KestrelWorld(YAML)
    world.start_replays()
    world.produce(20, topic="orders")
    lines = world.spout()
    handle_records(world, lines.client("worker"))
    world.log.delete_before({PLACE: 5})  # as retention does
    assert world.acker is not None
    assert world.replays is not None
    ports = free_ports(3)
    parts: list[tuple[StatusCollector, Any]] = [
        (StatusCollector("acker", partial(acker_metrics, topics=world.topics), lambda: 0.0), world.acker),
        (StatusCollector("replay", replay_metrics, lambda: 0.0), world.replays),
    ]
    for port, (collector, service) in zip(ports, parts, strict=False):
        collector.update(service.status())
        serve(collector, f"127.0.0.1:{port}")
    lines.serve_metrics(f"127.0.0.1:{ports[-1]}")

    served = names_of_page(world).union(*map(names_at, ports))
    named = {name for each in expressions() for name in metrics_named(each)}
    expected = {name for name in named if not name.startswith(DRIVERS)}
    assert expected - served == set()
    assert len(expected) > 30
