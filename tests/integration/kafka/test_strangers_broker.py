"""Somebody else in a group, on a real broker: what Kafka's tools do to a spout's commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from acker.errors import LogError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from spout.group.starting import COMMITTED_BY
from spout.group.strangers import REFUSED_CHECK_MS, StrangerWatch
from tests.support.brokers import Broker
from tests.support.waiting import eventually

CONSOLE = "console-consumer"


@pytest.fixture
def place(broker: Broker, prefix: str) -> TopicPartition:
    """A partition of a topic that no other test uses."""
    topic = f"{prefix}-stranger"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    return TopicPartition(topic, 0)


@pytest.fixture(params=["classic", "consumer"])
def stranger(request: pytest.FixtureRequest, broker: Broker, place: TopicPartition) -> Iterator[Consumer]:
    """A consumer in the group of the topic's name, by each protocol that Kafka has for it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": place.topic,
            "client.id": CONSOLE,
            "group.protocol": request.param,
        }
    )
    consumer.subscribe([place.topic])
    eventually(lambda: (consumer.poll(0.1), bool(consumer.assignment()))[1], 60)
    yield consumer
    consumer.close()


def test_a_consumer_in_a_spout_s_group_is_named(
    broker: Broker, place: TopicPartition, stranger: Consumer
) -> None:
    """D1101: with client id, host and member; Kafka refuses our commits as long as it is there."""
    heard: list[tuple[str, Mapping[str, object]]] = []
    with closing(KafkaLog({"bootstrap.servers": broker.bootstrap})) as log:
        watch = StrangerWatch(log, place.topic, lambda event, fields: heard.append((event, fields)))
        with pytest.raises(LogError) as refused:
            log.commit(place.topic, {place: 0}, COMMITTED_BY)
        watch.step(str(refused.value), 0)
        assert [event for event, _ in heard] == ["stranger_in_group"]
        named = str(heard[0][1]["member"])
        is_named = named.startswith(f"{CONSOLE} on 127.0.0.1 (member {stranger.memberid()})")
        # librdkafka asks for members of the older protocol alone
        assert is_named or "whom the broker names" in named
        stranger.close()
        eventually(lambda: _commits(log, place), 60)
        watch.step("", REFUSED_CHECK_MS * 10)
        assert [event for event, _ in heard] == ["stranger_in_group", "stranger_left_group"]


def _commits(log: KafkaLog, place: TopicPartition) -> bool:
    """Return whether our commit is taken."""
    try:
        log.commit(place.topic, {place: 0}, COMMITTED_BY)
    except LogError:
        return False
    return True
