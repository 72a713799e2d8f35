"""One of three brokers is killed, or cut off in silence: every view names it first, soon, and does no harm.

All three are tried in turn, while acker, replay worker and a client of a `KafkaSpout` live.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Producer

import spout
from acker.config.topics import load_topics
from acker.kafka.client import SILENT_BROKER_MS
from acker.kafka.cluster import KafkaLog
from acker.provisioning.provision import create_topics
from spout.inspect.overview import missing_brokers
from spout.local.embedded_cluster import EmbeddedCluster
from spout.runtime.child import Child
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.by_turns,
    pytest.mark.timeout(1_200),
]

LATER_S: Final = 5.0
"""How much longer than with all brokers an answer may take."""

NOISE_S: Final = 5.0
"""The commands take from 3 to 8 s on a shared machine, whatever is there."""

SILENT_S: Final = 15.0
"""How much longer it may take while the others still count on a broker that is silent, for nine seconds. The
first questions meet it before anybody knows that it is silent; then each coordinator on it is asked once.
"""

HARMFUL: Final = ("`windhover release", "`windhover acker run", "`windhover replay run")

VIEWS: Final = ("status", "check", "machinery", "roots", "inspect lines/1@0", "doctor --only live")

YAML: Final = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 4}
inputs: {lines: {id: 1, group: g, partitions: 4, timeout: 120s}}
"""


class Answer(NamedTuple):
    """What a view has printed, and how long it took."""

    text: str
    took_s: float


class Installation:
    """An installation that works, and its views.

    Attributes:
        confirmed: how many records were confirmed.
    """

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.config = folder / "topics.yaml"
        self.config.write_text(YAML % cluster.bootstrap)
        self.topics = load_topics(self.config, {})
        create_topics(self.topics)
        self.confirmed = 0
        self._over = threading.Event()

    def run(self) -> Iterator[None]:
        """Let records be written and confirmed meanwhile."""
        threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._confirm)]
        with Child("acker", self.config) as acker, Child("replay", self.config) as replay:
            acker.wait_ready()
            replay.wait_ready()
            for thread in threads:
                thread.start()
            eventually(lambda: self.confirmed > 0, 60)
            yield
            self._over.set()
            for thread in threads:
                thread.join(120)

    def _write(self) -> None:
        # what is under way to a silent broker may go elsewhere after ten seconds, not after sixty
        producer = Producer({**self.topics.kafka, "log_level": 0, "socket.timeout.ms": SILENT_BROKER_MS})
        while not self._over.wait(0.2):
            for partition in range(4):
                producer.produce("lines", b"line", partition=partition)
            producer.poll(0)

    def _confirm(self) -> None:
        with spout.KafkaSpout(self.topics, "lines") as spout_, spout_.client("lines") as client:
            while not self._over.is_set():
                opened = client.open(100, wait_ms=200)
                client.confirm(opened)
                self.confirmed += len(opened)

    def view(self, command: str) -> Answer:
        """Ask a view as an operator does."""
        call = [sys.executable, "-m", "spout.cli", *command.split(), "--config", str(self.config)]
        began_s = time.monotonic()
        done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
        return Answer(done.stderr + done.stdout, time.monotonic() - began_s)

    def missing(self) -> list[int]:
        """Return which brokers the others do not see."""
        with closing(KafkaLog(self.topics.kafka)) as log:
            return [broker.number for broker in missing_brokers(log, self.topics)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def installation(
    cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    made = Installation(cluster, tmp_path_factory.mktemp("views"))
    for _ in made.run():
        yield made


@pytest.fixture(scope="module")
def page(installation: Installation) -> Iterator[str]:
    """Return the address of the page, which reads all the time."""
    call = [sys.executable, "-m", "spout.cli", "ui", "--port", "0", "--config", str(installation.config)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        yield address
        process.terminate()


def overview_of(page: str) -> str:
    with urllib.request.urlopen(page, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "silent"])
def test_every_view_names_the_broker_that_is_missing(
    cluster: EmbeddedCluster, installation: Installation, page: str, number: int, *, is_killed: bool
) -> None:
    """D1001, D1004, D1006, D1007: `check` was CRITICAL, since "no query of group g lives", with the advice
    `windhover release g`, while the query lived; `status` took 17.5 s instead of 3.8.
    """
    eventually(lambda: installation.missing() == [], 120)
    sound = {command: installation.view(command) for command in VIEWS}
    broker = cluster.brokers[number]
    pid = broker.pid
    assert pid is not None
    confirmed = installation.confirmed
    if is_killed:
        broker.kill()
    else:
        os.kill(pid, signal.SIGSTOP)
    try:
        name = f"broker {number + 1}"
        early = {command: installation.view(command) for command in VIEWS}
        eventually(lambda: installation.missing() == [number + 1], 60)
        late = {command: installation.view(command) for command in VIEWS}
        eventually(lambda: f"{name} is missing" in overview_of(page), 60)
        text = overview_of(page)
        assert text.index(f"{name} is missing") < text.index("<h1")
        eventually(lambda: installation.confirmed > confirmed, 120)
    finally:
        if is_killed:
            broker.restart()
        else:
            os.kill(pid, signal.SIGCONT)

    for command, answer in [*early.items(), *late.items()]:
        assert not [advice for advice in HARMFUL if advice in answer.text], (command, answer)
        is_counted_on = not is_killed and answer is early[command]
        more_s = (SILENT_S if is_counted_on else LATER_S) + NOISE_S
        assert answer.took_s < sound[command].took_s + more_s, (command, sound[command].took_s, answer)
    for command, answer in late.items():
        first_line = answer.text.splitlines()[0]
        assert name in first_line, (command, answer)
    assert not [advice for advice in HARMFUL if advice in text]
