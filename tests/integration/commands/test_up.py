"""`windhover up` as a user runs it: one process to end, and nothing left of the others."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spout.local.embedded import free_port
from spout.runtime.endpoints import serve
from spout.runtime.metrics import Scraped, gauge
from tests.support.waiting import Watch, eventually

YAML = """
kafka: {bootstrap.servers: "${KAFKA_BOOTSTRAP:-127.0.0.1:9092}"}
acker: {partitions: 2}
inputs:
  lines: {id: 1, group: g, partitions: 2}
"""


class Up:
    """A running `windhover up`: what it said until it was ready, and its processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        while not self.lines or not self.lines[-1].startswith("ready: "):
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"it ended: {self.lines}"
            self.lines.append(line.rstrip())
        told = dict(re.findall(r"^([\w ]+) is ready \(process (\d+)", "\n".join(self.lines), re.MULTILINE))
        self.watches = {part: Watch(int(pid)) for part, pid in told.items()}
        self.pids = {part: int(pid) for part, pid in told.items()}

    @property
    def bootstrap(self) -> str:
        """The address that it named."""
        return self.lines[-1].split("bootstrap.servers=")[1].split()[0]

    @property
    def page(self) -> str:
        """The address of its page: the last one that it named, since another process may take the first."""
        return [found[1] for each in self.lines if (found := re.match(r"page: (\S+) ", each))][-1]

    def gone(self) -> list[str]:
        """Return the parts whose process has ended, waiting for each."""
        return [part for part, watch in self.watches.items() if watch.ended()]


@contextmanager
def up(*arguments: str | Path) -> Iterator[Up]:
    """Run `windhover up`."""
    command = [sys.executable, "-m", "spout.cli", "up", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process:
        try:
            yield Up(process)
        finally:
            process.kill()


def config(folder: Path, text: str = YAML) -> Path:
    """Write a topics.yaml."""
    path = folder / "topics.yaml"
    path.write_text(text)
    return path


def failing(*arguments: str | Path) -> tuple[int, str]:
    """Run `windhover up` that ends by itself; return its exit code and what it said on stderr."""
    command = [sys.executable, "-m", "spout.cli", "up", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


def brokers_known_to(address: str, *, timeout_s: float) -> set[int]:
    """Return the ids of the brokers that one of them tells of; none when it does not answer."""
    try:
        return set(
            AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=timeout_s).brokers
        )
    except KafkaException:
        return set()


def test_ctrl_c_ends_all_of_it_and_the_next_one_finds_the_data(tmp_path: Path) -> None:
    with up("--config", config(tmp_path), "--dir", tmp_path / "data") as first:
        assert set(first.pids) == {"broker", "acker", "replay", "page"}, "\n".join(first.lines)
        assert re.fullmatch(r"page: (\S+) answers as soon as Kafka runs", first.lines[0])
        eventually(lambda: b"g on lines: " in urllib.request.urlopen(first.page).read())
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(60) == 130
        assert first.gone() == list(first.pids)
    with up("--broker-only", "--dir", tmp_path / "data") as second:
        assert set(second.pids) == {"broker"}
        admin = AdminClient({"bootstrap.servers": second.bootstrap})
        assert {"lines", "_ack_init"} <= set(admin.list_topics(timeout=10).topics)
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 143


def test_the_page_draws_the_topology_of_the_driver_that_up_names(tmp_path: Path) -> None:
    labels = {
        "group": "g",
        "operator": "split",
        "source": "lines",
        "stream": "default",
        "grouping": "shuffle",
    }
    driver = f"127.0.0.1:{free_port()}"
    edge = gauge("windhover_topology_edge", "an edge", {tuple(labels.values()): 1}, labels)
    serve(Scraped(lambda: [edge]), driver)
    with up("--config", config(tmp_path), "--driver", driver) as running:
        asked = urllib.request.Request(f"{running.page}topology", headers={"accept": "application/json"})
        (graph,) = json.load(urllib.request.urlopen(asked, timeout=10))
        assert (graph["driver"], graph["group"]) == (driver, "g")
        assert [(each["source"], each["operator"]) for each in graph["edges"]] == [("lines", "split")]


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_ctrl_c_before_kafka_runs_leaves_no_folder(tmp_path: Path, brokers: str) -> None:
    command = [sys.executable, "-m", "spout.cli", "up", "--broker-only", "--brokers", brokers]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("starting Kafka on "):
            assert process.poll() is None
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert not list(tmp_path.iterdir())


def test_ports_beyond_the_last_one_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spout.cli", "up", "--broker-only", "--brokers", "3", "--port", "65534"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=120)
    assert (done.returncode, "65535 is the last" in done.stderr) == (2, True), done.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_survives_a_kill(tmp_path: Path) -> None:
    with up("--config", config(tmp_path)) as running:
        running.process.kill()
        assert running.gone() == ["broker", "acker", "replay", "page"]


@pytest.mark.slow
def test_three_brokers_keep_three_copies_of_all_and_one_that_dies_comes_back(tmp_path: Path) -> None:
    with up("--brokers", "3", "--config", config(tmp_path)) as running:
        assert set(running.pids) == {"broker 1", "broker 2", "broker 3", "acker", "replay", "page"}
        topics = AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=30).topics
        for name in ("lines", "lines.g.replay", "lines.g.dlq", "_ack_init", "_ack_verdict"):
            assert {len(each.replicas) for each in topics[name].partitions.values()} == {3}
        os.kill(running.pids["broker 2"], signal.SIGKILL)
        assert running.watches["broker 2"].ended()
        address = running.bootstrap.split(",")[1]
        eventually(lambda: 2 in brokers_known_to(address, timeout_s=1.0), 120)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 130
        assert set(running.gone()) == set(running.pids)


@pytest.mark.slow
def test_a_part_that_dies_ends_all_of_it_with_an_error_that_names_it(tmp_path: Path) -> None:
    with up("--config", config(tmp_path)) as running:
        os.kill(running.pids["page"], signal.SIGKILL)
        assert running.watches["page"].ended()
        os.kill(running.pids["acker"], signal.SIGKILL)
        said = running.process.stdout.read() if running.process.stdout else ""
        assert running.process.wait(60) == 3
        assert "the acker ended with exit code -9" in said
        assert running.gone() == ["broker", "acker", "replay", "page"]


def test_a_port_in_use_and_a_missing_file_are_wrong_usage(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = failing("--broker-only", "--port", str(taken.getsockname()[1]))
    assert (code, said.count("\n")) == (2, 1)
    assert "is in use" in said
    code, said = failing("--config", tmp_path / "missing.yaml")
    assert (code, said.count("\n")) == (2, 1)
    assert "missing.yaml: cannot be read" in said


def test_a_file_that_names_another_broker_is_refused(tmp_path: Path) -> None:
    other = config(tmp_path, YAML.replace("${KAFKA_BOOTSTRAP:-127.0.0.1:9092}", "kafka.example:9092"))
    code, said = failing("--config", other)
    assert code == 4
    assert "kafka.bootstrap.servers is kafka.example:9092" in said
