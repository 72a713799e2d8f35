"""Three brokers as everything else relies on them: writes go on while any one of them is away."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from acker.config.topics import load_topics
from acker.errors import Unreachable
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.local.embedded import EmbeddedBroker
from spout.local.embedded_cluster import EmbeddedCluster
from spout.streaming import consume
from spout.streaming.consume import KeptConsumers, Share, TaskReader, Together
from tests.support.waiting import eventually

TOPIC = "t"
PARTITIONS = 3
TIMEOUT_S = 180.0
SENDS_MAX = 400
"""Longer than the task may take."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        # copies and who must have a write: as the brokers say
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_S)
        yield cluster


@contextmanager
def silenced(broker: EmbeddedBroker) -> Iterator[None]:
    """Stop its process: its connections stay up and bring nothing, as those of a machine that hangs."""
    os.kill(broker.pid or 0, signal.SIGSTOP)
    try:
        eventually(lambda: "T (stopped)" in Path(f"/proc/{broker.pid}/status").read_text())
        yield
    finally:
        os.kill(broker.pid or 0, signal.SIGCONT)


def leaders(admin: AdminClient, topic: str = "lone") -> dict[int, int]:
    """Return who leads each partition of a topic with one copy of each."""
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    return {number: each.leader for number, each in sorted(partitions.items())}


def in_sync(cluster: EmbeddedCluster) -> list[int]:
    """Return how many brokers have all writes, for each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partitions = admin.list_topics(TOPIC, timeout=TIMEOUT_S).topics[TOPIC].partitions
    return [len(each.isrs) for each in partitions.values()]


def write(cluster: EmbeddedCluster) -> list[object]:
    """Write a record to each partition, to be had by all in sync; return the errors."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    errors: list[object] = []
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_writes_go_on_without_any_one_broker_and_it_comes_back_in_sync(
    cluster: EmbeddedCluster, how: str
) -> None:
    lost = cluster.brokers[0]
    eventually(lambda: in_sync(cluster) == [3] * PARTITIONS, TIMEOUT_S)

    getattr(lost, how)()

    assert lost.pid is None
    assert write(cluster) == [None] * PARTITIONS
    lost.restart()
    eventually(lambda: in_sync(cluster) == [3] * PARTITIONS, TIMEOUT_S)
    assert write(cluster) == [None] * PARTITIONS


@pytest.mark.slow
def test_a_task_ends_with_an_error_where_one_leader_is_silent_and_others_send_on(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "STALL_MS", 6_000)
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    admin, producer = AdminClient(settings), Producer(settings)
    admin.create_topics([NewTopic("lone", PARTITIONS, 1)])["lone"].result(TIMEOUT_S)
    eventually(lambda: -1 not in leaders(admin).values())

    def send_on() -> None:
        for _ in range(SENDS_MAX):
            if over.wait(0.05):
                return
            for partition in range(PARTITIONS):
                producer.produce("lone", b"x", partition=partition)
            producer.poll(0)

    over, sender = threading.Event(), threading.Thread(target=send_on)
    sender.start()
    places = [TopicPartition("lone", partition) for partition in range(PARTITIONS)]
    with closing(KafkaLog(settings)) as log:
        eventually(lambda: min(log.ends(places).values()) >= 3)
    *_, (silent, leader) = leaders(admin).items()
    try:
        with silenced(cluster.brokers[leader - 1]):
            shares = [Share("lone", partition, 0, 3) for partition in range(PARTITIONS)]
            reader = TaskReader({"bootstrap.servers": cluster.bootstrap}, shares, KeptConsumers(), Together())
            with pytest.raises(Unreachable, match=rf"lone/{silent}@0: no answer from Kafka"):
                deque(chunk for share in shares for chunk in reader.chunks(share))
            assert sender.is_alive()
    finally:
        over.set()
        sender.join()


def test_status_waits_for_a_silent_broker_once_and_shows_what_the_others_have(
    cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each question that only this one could answer waited for its own half minute."""
    config = tmp_path / "topics.yaml"
    config.write_text(
        f"kafka: {{bootstrap.servers: '{cluster.bootstrap}'}}\n"
        "acker: {partitions: 3, replication_factor: 1}\n"
        f"inputs: {{words: {{id: 1, group: g, partitions: {PARTITIONS}}}}}\n"
    )
    create_topics(load_topics(config, {}))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    eventually(lambda: -1 not in leaders(admin, "words").values())
    of = leaders(admin, "words")
    with silenced(cluster.brokers[of[0] - 1]):
        began_s = time.monotonic()
        assert cli.run(["status", "-o", "json", "--config", str(config)]) == 0
        took_s = time.monotonic() - began_s
    rows = json.loads(capsys.readouterr().out)
    assert {number for number, row in enumerate(rows) if row["end"] is None} == {
        number for number, leader in of.items() if leader == of[0]
    }
    assert took_s < 35
