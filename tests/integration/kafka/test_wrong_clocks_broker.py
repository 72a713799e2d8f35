"""On a real broker: processes whose clock is hours wrong go on, or say that it is their clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import spout
from acker.config import topics as topics_yaml
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import check_topics, create_topics
from spout.local.embedded import EmbeddedBroker
from spout.runtime.child import Child
from tests.support.brokers import set_topic
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

WAIT_MS = 30_000
HOUR_MS = 3_600_000
RECORDS = 6
LIMITS = {f"log.message.timestamp.{name}.max.ms": str(HOUR_MS) for name in ("after", "before")}
"""The limit ahead is a broker's default since Kafka 3.6; the one behind is as strict."""

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s"}
acker: {partitions: 1, topic_prefix: "%(prefix)s"}
inputs:
  lines: {id: 1, group: "%(prefix)sg", topic: "%(prefix)slines", partitions: 1, timeout: 1s,
          retry: {attempts: 2, initial: 0s, jitter: 0}, dead_letter: {max_ratio: 1.0}}
"""


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[EmbeddedBroker]:
    """A broker that takes no record whose time is more than an hour from its own."""
    with EmbeddedBroker(settings=LIMITS) as broker:
        yield broker


class Installation:
    """One input on a broker, and processes whose clock may be wrong."""

    def __init__(self, broker: EmbeddedBroker, prefix: str, folder: Path) -> None:
        """Create its topics."""
        self.broker = broker
        self.config = folder / "topics.yaml"
        self.config.write_text(YAML % {"bootstrap": broker.bootstrap, "prefix": prefix})
        self.topics = topics_yaml.load_topics(self.config, {})
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)

    def write(self) -> None:
        """Write records, under a right clock."""
        producer = self.log.producer()
        for number in range(RECORDS):
            producer.send(Outgoing(self.topics.input("lines").topic, 0, b"%d" % number))
        producer.flush(WAIT_MS)
        producer.close()

    def former(self, topic: str) -> None:
        """Set a topic as it was made by earlier versions."""
        for name in ("after", "before"):
            set_topic(self.broker.bootstrap, topic, f"message.timestamp.{name}.max.ms", str(HOUR_MS))
        set_topic(self.broker.bootstrap, topic, "message.timestamp.type", "CreateTime")

    def program(self, ahead_ms: int, *command: str) -> list[str]:
        """Return the arguments for Python of a command under a wrong clock."""
        words = (*command, "--config", str(self.config))
        return ["-m", "tests.support.moved_clock", str(ahead_ms), *words]

    def end_of(self, topic: str) -> int:
        """Return how many offsets a topic has."""
        place = TopicPartition(topic, 0)
        return self.log.ends([place])[place]


@pytest.fixture
def installation(strict_broker: EmbeddedBroker, prefix: str, tmp_path: Path) -> Iterator[Installation]:
    """An installation in which nothing runs."""
    made = Installation(strict_broker, prefix, tmp_path)
    yield made
    made.log.close()


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS], ids=["ahead", "behind"])
def test_processes_whose_clock_is_hours_wrong_lose_nothing_and_go_on(
    installation: Installation, ahead_ms: int
) -> None:
    """D401: acker and replay worker: verdicts, what is due, copies, dead letters."""
    installation.write()
    acker = Child("acker", installation.config, program=installation.program(ahead_ms, "acker", "run"))
    replay = Child("replay", installation.config, program=installation.program(ahead_ms, "replay", "run"))
    dead = installation.topics.input("lines").dead_letter.topic
    with acker, replay:
        acker.wait_ready()
        replay.wait_ready()
        with spout.KafkaSpout(installation.topics, "lines") as lines, lines.client("c") as client:
            # nobody confirms what is open: both emissions of each record time out
            eventually(
                lambda: installation.end_of(dead) > RECORDS,
                told=lambda: (acker.log.read_text(), replay.log.read_text()),
                step=lambda: client.open(RECORDS, wait_ms=200),
            )


@pytest.mark.parametrize(("ahead_ms", "words"), [(2 * HOUR_MS, "ahead of"), (-2 * HOUR_MS, "behind")])
def test_a_topic_with_former_settings_is_found_by_the_check_and_the_error_names_the_clock(
    installation: Installation, ahead_ms: int, words: str
) -> None:
    """D402, D403"""
    verdict = installation.topics.ack_topics.verdict
    installation.former(verdict)
    eventually(
        lambda: any(verdict in line and "wrong clock" in line for line in check_topics(installation.topics))
    )
    spout_code = f"import spout; spout.KafkaSpout(spout.load({str(installation.config)!r}), 'lines').open()"
    program = installation.program(ahead_ms, "acker", "run")
    with (
        subprocess.Popen(
            [sys.executable, *program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as acker,
        subprocess.Popen([sys.executable, "-c", spout_code], stderr=subprocess.DEVNULL) as asking,
    ):
        told, _ = acker.communicate(timeout=WAIT_MS / 1_000)  # until it has to answer the spout, and ends
        asking.kill()
    assert acker.returncode != 0
    assert f"2.0 h {words} the broker's" in told, told
    assert "chronyc" in told.splitlines()[-1]
