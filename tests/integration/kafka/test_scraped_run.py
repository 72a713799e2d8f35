"""Acker, replay worker, page and a KafkaSpout as they run, scraped by a Prometheus where there is one.

Each metric that alerts and panels name is there, and each query of theirs has a result.
The bolts' metrics, which a driver with Spark serves, are those of a topology in
`tests/integration/spark/test_topology_spark.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.local.embedded import free_port, free_ports
from spout.runtime import tether
from tests.support.brokers import Broker
from tests.support.lacking import lacking
from tests.support.monitoring import ALERTS, DASHBOARD, expressions, metrics_named
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
RESTORES = "rate(windhover_acker_restore_seconds_sum[15m]) / rate(windhover_acker_restore_seconds_count[15m])"
"""It has no result when no partition was restored since the first scrape."""

WAIT_MS = 30_000


def of_drivers(query: str) -> bool:
    """Tell whether only a driver with Spark serves what a query asks for."""
    return all(name.startswith(DRIVERS) for name in metrics_named(query))


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


class Prometheus:
    """A Prometheus that scrapes ports of this machine every second, and evaluates our alerts."""

    def __init__(self, folder: Path, ports: Iterable[int]) -> None:
        if (program := shutil.which("prometheus")) is None:
            lacking("no prometheus in the PATH: Debian's package prometheus has it")
        folder.mkdir()
        targets = [f"127.0.0.1:{port}" for port in ports]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "windhover", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML, too
        self._address = f"127.0.0.1:{free_port()}"
        options = [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        self._log = folder / "log"
        self._process = tether.spawn(tether.Command([program, *options], self._log))

    def __enter__(self) -> Self:
        eventually(self._is_ready, told=lambda: tether.last_lines(self._log))
        return self

    def __exit__(self, *_error: object) -> None:
        tether.stop(self._process, WAIT_MS)

    def result(self, query: str) -> list[float]:
        """Return the values of a query now; none where it has no result."""
        answer = self._asked("query", query=query)
        return [float(each["value"][1]) for each in answer["result"]]

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Return our alerts by their names."""
        (group,) = self._asked("rules")["groups"]
        return {each["name"]: each for each in group["rules"]}

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=10):
                return True
        except OSError:
            return False

    def _asked(self, what: str, **parameters: str) -> Any:
        asked = f"http://{self._address}/api/v1/{what}?{urlencode(parameters)}"
        try:
            with urlopen(asked, timeout=10) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def as_asked(query: str) -> str:
    """Return a query of a panel as Grafana sends it, for all inputs."""
    return query.replace("$input", ".*").replace("$__rate_interval", "5m")


@pytest.mark.slow  # four processes start, and a record has to die
@pytest.mark.timeout(300)
def test_every_query_of_alerts_and_panels_has_a_result_in_a_real_run(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    topics = load_topics(config, {})
    create_topics(topics)
    log = KafkaLog(topics.kafka)
    parts = ("acker", "replay", "ui", "spout")
    ports = dict(zip(parts, free_ports(len(parts)), strict=True))
    named = {name for each in expressions() for name in metrics_named(each)}
    expected = {name for name in named if not name.startswith(DRIVERS)}
    with ExitStack() as stack:
        for part in ("acker", "replay", "ui"):
            at = ["ui", "--port"] if part == "ui" else [part, "run", "--metrics-port"]
            arguments = ["-m", "spout.cli", *at, str(ports[part]), "--config", str(config)]
            stack.enter_context(running(arguments, tmp_path / part))
        lines = stack.enter_context(spout.KafkaSpout(topics, "orders"))
        lines.serve_metrics(f"127.0.0.1:{ports['spout']}")
        prometheus = stack.enter_context(Prometheus(tmp_path / "prometheus", ports.values()))
        first = "windhover_acker_completion_seconds_count"  # what it counts from here on has a rate
        eventually(lambda: prometheus.result(first))
        dead = TopicPartition(topics.input("orders").dead_letter.topic, 0)
        handle_records(topics, log, lines, lambda: log.stable_ends([dead])[dead] > 0)

        def is_missing() -> set[str]:
            return expected - {name for port in ports.values() for name in series_at(port)}

        eventually(lambda: not is_missing(), told=is_missing)
        queries = [each for each in expressions(DASHBOARD) if not of_drivers(each)]

        def is_empty() -> list[str]:
            found = {each: prometheus.result(as_asked(each)) for each in queries}
            return [each for each, values in found.items() if not any(map(isfinite, values))]

        eventually(lambda: is_empty() in ([], [RESTORES]), told=is_empty)
        eventually(lambda: prometheus.alerts()["WindhoverNewDeadLetters"]["state"] != "inactive")
        assert {each["health"] for each in prometheus.alerts().values()} == {"ok"}
    log.close()
    assert len(expected) > 30
    assert len(queries) > 30
