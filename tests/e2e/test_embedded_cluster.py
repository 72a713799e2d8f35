"""Three brokers as everything else relies on them: writes go on while any one of them is away."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from acker.errors import Unreachable
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from spout.local.embedded_cluster import EmbeddedCluster
from spout.streaming import consume
from spout.streaming.consume import Kept, Share, TaskReader, Together
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


def leaders(admin: AdminClient) -> dict[int, int]:
    """Return who leads each partition of the topic with one copy of each."""
    partitions = admin.list_topics("lone", timeout=TIMEOUT_S).topics["lone"].partitions
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


def test_a_task_ends_with_an_error_where_one_leader_is_silent_and_others_send_on(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay up and bring nothing, as those of a machine that hangs."""
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
    broker = cluster.brokers[leader - 1]
    os.kill(broker.pid or 0, signal.SIGSTOP)
    try:
        eventually(lambda: "T (stopped)" in Path(f"/proc/{broker.pid}/status").read_text())
        shares = [Share("lone", partition, 0, 3) for partition in range(PARTITIONS)]
        reader = TaskReader({"bootstrap.servers": cluster.bootstrap}, shares, Kept(), Together())
        with pytest.raises(Unreachable, match=rf"lone/{silent}@0: no answer from Kafka"):
            deque(chunk for share in shares for chunk in reader.chunks(share))
        assert sender.is_alive()
    finally:
        os.kill(broker.pid or 0, signal.SIGCONT)
        over.set()
        sender.join()
