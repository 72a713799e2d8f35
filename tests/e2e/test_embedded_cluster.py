"""Three brokers as everything else relies on them: writes go on while any one of them is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spout.local.embedded_cluster import EmbeddedCluster
from tests.support.waiting import eventually

TOPIC = "t"
PARTITIONS = 3
TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        # copies and who must have a write: as the brokers say
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_S)
        yield cluster


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
