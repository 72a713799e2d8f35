"""Acker, replay worker, page and a KafkaSpout as they run: each metric that alerts and panels name is there.

The bolts' metrics, which a driver with Spark serves, are those of a topology in
`tests/integration/spark/test_topology_spark.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.monitoring import expressions, metrics_named
from tests.support.programs import running
from tests.support.waiting import eventually

YAML = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  orders: {{id: 1, group: "{prefix}g", topic: "{prefix}orders", partitions: 1, timeout: 5m,
           retry: {{attempts: 2, initial: 100ms}}}}
"""

DRIVERS = ("windhover_stream_", "windhover_topology_")
WAIT_MS = 30_000


def series_at(port: int) -> set[str]:
    """Return the names of the series that have a value at a port; none before it answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return set()
    return {line.partition("{")[0].partition(" ")[0] for line in lines if line[:1] != "#"}


def handle_records(topics: Topics, log: KafkaLog, lines: spout.KafkaSpout, until: Callable[[], bool]) -> None:
    """Confirm some records, fail one until it is a dead letter, and leave one open."""
    place = TopicPartition(topics.input("orders").topic, 0)
    producer = log.producer()
    for number in range(20):
        producer.send(Outgoing(*place, b"%d" % number))
    producer.flush(WAIT_MS)
    with lines.client("worker") as client:
        first = client.open(10, wait_ms=WAIT_MS)
        client.confirm(first, wait_ms=WAIT_MS)
        log.delete_before({place: 5})  # as retention does
        while not until():
            for item in client.open(10, wait_ms=100):
                value = item["value"]
                if value == b"15":
                    client.fail(item, ValueError("no such order"))
                elif value != b"12":  # stays open
                    client.confirm(item)


@pytest.mark.slow  # three processes start, and a record has to die
@pytest.mark.timeout(300)
def test_every_metric_that_alerts_and_panels_name_is_served_by_a_real_run(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    topics = load_topics(config, {})
    create_topics(topics)
    log = KafkaLog(topics.kafka)
    ports = {part: free_port() for part in ("acker", "replay", "ui", "spout")}
    named = {name for each in expressions() for name in metrics_named(each)}
    expected = {name for name in named if not name.startswith(DRIVERS)}
    with ExitStack() as stack:
        for part in ("acker", "replay", "ui"):
            at = ["ui", "--port"] if part == "ui" else [part, "run", "--metrics-port"]
            arguments = ["-m", "spout.cli", *at, str(ports[part]), "--config", str(config)]
            stack.enter_context(running(arguments, tmp_path / part))
        lines = stack.enter_context(spout.KafkaSpout(topics, "orders"))
        lines.serve_metrics(f"127.0.0.1:{ports['spout']}")
        dead = TopicPartition(topics.input("orders").dead_letter.topic, 0)
        handle_records(topics, log, lines, lambda: log.stable_ends([dead])[dead] > 0)

        def is_missing() -> set[str]:
            return expected - {name for port in ports.values() for name in series_at(port)}

        eventually(lambda: not is_missing(), told=is_missing)
    log.close()
    assert len(expected) > 30
