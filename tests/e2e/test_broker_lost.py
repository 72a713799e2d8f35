"""One of three brokers is killed: verdicts come again almost as soon as plain writes do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

import spout
from acker.config.topics import load_topics
from acker.identity import offset_of, partition_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from acker.provisioning.provision import create_topics
from acker.wire.codec import wire_codec
from acker.wire.events import Verdicts
from spout.local.embedded_cluster import EmbeddedCluster
from spout.runtime.child import Child
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.by_turns,
    pytest.mark.timeout(600),
]

PARTITIONS = 4
AFTER_WRITES_S = 10.0
"""How much later than plain writes verdicts may come again. A question that went on asking the broker that
died took 30 s.
"""
OUTAGE_S_MAX = 120.0
EVERY_S = 0.1

YAML = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 4}
inputs: {lines: {id: 1, group: g, partitions: 4}}
"""


class Traffic:
    """Records that are written, opened and confirmed all the time, and when which partition was served.

    Attributes:
        written: when the newest record that the brokers have was produced, by partition.
        settled: when the newest record that has a verdict was produced.
    """

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.config = folder / "topics.yaml"
        self.config.write_text(YAML % cluster.bootstrap)
        self.topics = load_topics(self.config, {})
        create_topics(self.topics)
        self.written = [0.0] * PARTITIONS
        self.settled = [0.0] * PARTITIONS
        self._log = KafkaLog(self.topics.kafka)
        self._produced: dict[tuple[int, int], float] = {}
        self._over = threading.Event()
        self._errors: list[KafkaError] = []

    def run(self) -> Iterator[None]:
        """Let the traffic flow."""
        work = [self._write, self._confirm, self._follow]
        threads = [threading.Thread(target=each, daemon=True) for each in work]
        with Child("acker", self.config) as acker:
            acker.wait_ready()
            for thread in threads:
                thread.start()
            yield
            self._over.set()
            for thread in threads:
                thread.join(OUTAGE_S_MAX)
        assert not self._errors

    def _write(self) -> None:
        producer = Producer({**self.topics.kafka, "log_level": 0})
        while not self._over.wait(EVERY_S):
            for partition in range(PARTITIONS):
                value = repr(time.time()).encode()
                producer.produce("lines", value, partition=partition, on_delivery=self._note)
            producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
            return
        place = message.partition() or 0, message.offset() or 0
        self._produced[place] = float(message.value() or b"")
        self.written[place[0]] = self._produced[place]

    def _confirm(self) -> None:
        with spout.KafkaSpout(self.topics, "lines") as spout_, spout_.client("lines") as client:
            while not self._over.is_set():
                client.confirm(client.open(100, wait_ms=200))

    def _follow(self) -> None:
        codec, reader = wire_codec(), self._log.reader(committed=True)
        name = self.topics.ack_topics.verdict
        reader.assign({TopicPartition(name, partition): 0 for partition in range(PARTITIONS)})
        while not self._over.is_set():
            for record in reader.poll(100, 1_000):
                event = codec.decode(record.value or b"")
                for run in event.acked if isinstance(event, Verdicts) else ():
                    newest = self._produced.get((partition_of(run.source), offset_of(run.end - 1)))
                    if newest is not None:
                        self.settled[partition_of(run.source)] = newest


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def traffic(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traffic]:
    made = Traffic(cluster, tmp_path_factory.mktemp("traffic"))
    for _ in made.run():
        yield made


def controller_of(cluster: EmbeddedCluster) -> int:
    """Return the place of the node that controls the cluster, as its quorum has written it down."""
    states = (cluster.directory / "broker-1").rglob("__cluster_metadata-0/quorum-state")
    leader: int = json.loads(next(iter(states)).read_text())["leaderId"]
    return leader - 1


def test_verdicts_come_again_almost_as_soon_as_writes(cluster: EmbeddedCluster, traffic: Traffic) -> None:
    """Of both brokers that do not control the cluster: which leads and coordinates what is chance.

    Without its controller a cluster writes nothing for longer than a member of a group may be silent.
    """
    controller = controller_of(cluster)
    for number in {0, 1, 2} - {controller}:
        kill_one(cluster, traffic, number)


def kill_one(cluster: EmbeddedCluster, traffic: Traffic, number: int) -> None:
    """Kill a broker, and compare when plain writes and verdicts come again; start it again."""
    begin = time.time()
    eventually(lambda: min(traffic.settled) > begin, OUTAGE_S_MAX)
    killed_at = time.time()
    cluster.brokers[number].kill()

    eventually(lambda: min(traffic.written) > killed_at, OUTAGE_S_MAX)
    writes_s = time.time() - killed_at
    eventually(lambda: min(traffic.settled) > killed_at, OUTAGE_S_MAX)
    verdicts_s = time.time() - killed_at

    cluster.brokers[number].restart()
    found = f"plain writes after {writes_s:.1f} s, verdicts after {verdicts_s:.1f} s"
    assert verdicts_s < writes_s + AFTER_WRITES_S, found
