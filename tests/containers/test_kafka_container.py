"""The container that stands in for the embedded broker: the same promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.servers.kafka_container import KafkaContainer

pytestmark = pytest.mark.slow

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def broker(docker: None) -> Iterator[KafkaContainer]:
    with KafkaContainer() as container:
        yield container


def test_a_killed_broker_comes_back_at_its_address_with_its_topics(broker: KafkaContainer) -> None:
    address = broker.bootstrap
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result(TIMEOUT_S)
    broker.kill()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=0.5)
    broker.restart()
    assert broker.bootstrap == address
    assert "kept" in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_client_on_the_host_can_write_in_a_transaction(broker: KafkaContainer) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"x")
    producer.commit_transaction(TIMEOUT_S)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    written = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert written is not None
    assert (written.error(), written.value()) == (None, b"x")
