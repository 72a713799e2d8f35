"""A broker that makes topics which somebody looks for: none comes about by what a client of ours does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient

from acker.errors import WindhoverError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Bound, Outgoing, TopicPartition
from spout.local.embedded import EmbeddedBroker

pytestmark = pytest.mark.kafka

OPERATION_MS = 2_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(settings={"auto.create.topics.enable": "true"}) as broker:
        yield broker.bootstrap


def read(log: KafkaLog, topic: str) -> None:
    reader = log.reader(committed=True)
    reader.assign({TopicPartition(topic, 0): 0})
    for _ in range(3):
        reader.poll(200, 1)


def write(log: KafkaLog, topic: str) -> None:
    producer = log.producer()
    producer.send(Outgoing(topic, 0, b"value"))
    producer.flush(OPERATION_MS)


def write_in_a_transaction(log: KafkaLog, topic: str) -> None:
    transactions = log.transactions(topic)
    transactions.init(OPERATION_MS)
    transactions.begin()
    transactions.send(Outgoing(topic, 0, b"value"))
    transactions.commit(OPERATION_MS)


def join(log: KafkaLog, topic: str) -> None:
    membership = log.join(topic, [topic])
    for _ in range(3):
        membership.poll(200)
    membership.close()


CALLS: dict[str, Callable[[KafkaLog, str], object]] = {
    "bounds": lambda log, topic: log.bounds(Bound.END, [TopicPartition(topic, 0)]),
    "ends": lambda log, topic: log.ends([TopicPartition(topic, 0)]),
    "times": lambda log, topic: log.offsets_at([TopicPartition(topic, 0)], 1),
    "topics": lambda log, topic: log.topics([topic], settings=True),
    "committed": lambda log, topic: log.committed("g", [TopicPartition(topic, 0)]),
    "delete": lambda log, topic: log.delete_before({TopicPartition(topic, 0): 1}),
    "read": read,
    "write": write,
    "transaction": write_in_a_transaction,
    "join": join,
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CALLS)
def test_a_topic_that_is_missing_stays_so(bootstrap: str, name: str) -> None:
    """O433: a topic that was made by accident has one partition, and the broker's settings."""
    topic = f"missing-{name}"
    log = KafkaLog({"bootstrap.servers": bootstrap}, operation_timeout_ms=OPERATION_MS)
    for _ in range(2):  # the first call would make it, the second one find it
        with suppress(WindhoverError):
            CALLS[name](log, topic)
    log.close()
    assert topic not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
