"""`windhover submit` as a user runs it: a topology from a file, until a signal comes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.cli.main import run
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.gated import GATE
from tests.support.programs import ROOT, running
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import serving
from tests.torture.stage.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark]

EXAMPLE = ROOT / "examples" / "word_count.yaml"


def config_of(folder: Path, broker: Broker, prefix: str) -> Path:
    """Write the topics.yaml beside the topology, with topics of this test alone."""
    config = folder / "topics.yaml"
    config.write_text(
        f'kafka: {{bootstrap.servers: "{broker.bootstrap}"}}\n'
        f'acker: {{partitions: 2, topic_prefix: "{prefix}"}}\n'
        # longer than a first batch may take on a busy machine: what timed out would be counted again
        f'inputs: {{sentences: {{id: 1, topic: "{prefix}s", group: "{prefix}g", partitions: 2,'
        " timeout: 5m}}\n"
    )
    create_topics(load_topics(config, {}))
    return config


def topology_of(folder: Path) -> Path:
    """Write the example's topology with a sink that can be held up."""
    text = EXAMPLE.read_text().replace("../topics.yaml", "topics.yaml")
    path = folder / "word_count.yaml"
    text = text.replace("examples.word_count:show", "tests.support.gated:show_when_allowed")
    path.write_text(f"{text}\nspark: {{spark.pyspark.python: {python_of(folder)}}}\n")
    return path


def python_of(folder: Path) -> Path:
    """Write an interpreter for Spark's workers that leaves a mark where it runs."""
    path = folder / "python-of-workers"
    path.write_text(f'#!/bin/sh\ntouch "{folder}/mark-of-workers"\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def scraped(port: int) -> dict[str, float]:
    """Return the metrics of a topology by name and labels; none before it serves them."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}


@pytest.mark.timeout(600)
def test_a_submitted_topology_counts_until_a_signal_lets_it_finish_what_runs(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The batch that runs when SIGTERM comes is written, acked and settled before the process ends."""
    config = config_of(tmp_path, broker, prefix)
    topics = load_topics(config, {})
    log = KafkaLog(topics.kafka)
    producer = log.producer()

    def produce(*lines: bytes) -> None:
        for number, line in enumerate(lines):
            producer.send(Outgoing(topics.input("sentences").topic, number % 2, line))
        producer.flush(30_000)

    port = free_port()
    gate = tmp_path / "gate"
    arguments = ("-m", "spout.cli", "submit", topology_of(tmp_path), "--metrics-port", str(port))
    produce(b"the hawk waits", b"\xff is no text", b"the hawk hovers")
    with (
        serving(config, "acker", "replay"),
        running(arguments, tmp_path / "log", environ={GATE: str(gate)}) as topology,
    ):
        group = f'group="{topics.input("sentences").group}"'
        acked = f"windhover_topology_roots_acked_total{{{group}}}"
        topology.until(lambda: scraped(port).get(acked) == 2)
        assert "bolt count" in topology.said, "the plan is printed"
        of = f'{group},operator="split",source="lines",stream="default"'
        executed = f"windhover_topology_executed_total{{{of}}}"
        topology.until(lambda: scraped(port).get(executed) == 3)
        assert (tmp_path / "mark-of-workers").exists(), "the file's setting goes before the local session's"

        gate.with_suffix(".closed").touch()
        produce(b"the end")
        topology.until(lambda: "the sink waits" in topology.said)
        topology.send(signal.SIGTERM)
        topology.until(lambda: "stopping: no new tuples are emitted" in topology.said)
        topology.until(lambda: scraped(port).get(f"windhover_topology_roots_pending{{{group}}}") == 1)
        produce(b"too late")
        gate.touch()
        assert topology.ended() == 128 + signal.SIGTERM, topology.said
        # Spark's Python daemon may still say that its pipe broke, behind it
        ends = [line for line in topology.said.splitlines() if line.startswith("stopped: ")]
        assert ends == ["stopped: acked 3, failed 1, pending 0"]

        words = set(re.findall(r"^ *[12]  (\w+)$", topology.said, re.MULTILINE))
        assert words == {"the", "hawk", "waits", "hovers", "end"}
        places = [TopicPartition(topics.input("sentences").topic, part) for part in range(2)]
        dead = TopicPartition(topics.input("sentences").dead_letter.topic, 1)
        eventually(lambda: log.ends([dead])[dead] > 0)
        assert log.committed(topics.input("sentences").group, places) == {places[0]: 3, places[1]: 1}
        capsys.readouterr()
        assert run(["status", "--config", str(config), "-o", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
    assert sum(row["pending"] for row in rows) == 0, rows
    producer.close()
    log.close()


@pytest.mark.timeout(600)
def test_a_topology_with_a_master_takes_its_bolts_and_its_python_along(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """One bolt is beside the file, one in a zip; a worker of the cluster knows neither."""
    config = config_of(tmp_path, broker, prefix)
    topics = load_topics(config, {})
    log = KafkaLog(topics.kafka)
    producer = log.producer()
    producer.send(Outgoing(topics.input("sentences").topic, 0, b"the hawk waits"))
    producer.flush(30_000)
    producer.close()
    (tmp_path / "beside_words.py").write_text((ROOT / "examples" / "word_count.py").read_text())
    with zipfile.ZipFile(tmp_path / "bolts.zip", "w") as shipped:
        shipped.write(ROOT / "examples" / "word_count.py", "shipped_words.py")
    text = EXAMPLE.read_text().replace("../topics.yaml", "topics.yaml")
    text = text.replace("examples.word_count:Split", "shipped_words:Split")
    text = text.replace("examples.word_count:", "beside_words:")
    path = tmp_path / "word_count.yaml"
    (tmp_path / "elsewhere").mkdir()
    with SparkCluster(tmp_path / "cluster", 1, os.environ) as cluster, serving(config, "acker"):
        settings = {
            "spark.master": cluster.master,
            "spark.pyspark.python": str(python_of(tmp_path)),
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.enabled": False,
        }
        path.write_text(f"{text}\nspark: {json.dumps(settings)}\n")
        arguments = ("-m", "spout.cli", "submit", "--once", path, "--py-files", str(tmp_path / "bolts.zip"))
        with running(arguments, tmp_path / "log", folder=tmp_path / "elsewhere") as topology:
            topology.until(lambda: any("-Xmx512M" in command_of(each.pid) for each in cluster.executors()))
            assert topology.ended() == 0, topology.said
    assert (tmp_path / "mark-of-workers").exists()
    words = set(re.findall(r"^ *1  (\w+)$", topology.said, re.MULTILINE))
    assert words == {"the", "hawk", "waits"}, topology.said
    place = TopicPartition(topics.input("sentences").topic, 0)
    assert log.committed(topics.input("sentences").group, [place]) == {place: 1}
    log.close()


def command_of(pid: int) -> str:
    """Return a process's command line; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
