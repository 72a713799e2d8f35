"""A broker with a quota: librdkafka's word for it reaches our log."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from spout.local.embedded import EmbeddedBroker
from tests.support.brokers import Broker
from tests.support.waiting import eventually

CLIENT = "windhover-slow"
TOOL_S = 60


@pytest.fixture
def throttled(broker: Broker) -> EmbeddedBroker:
    """A broker that lets one client write and read 20,000 bytes a second, and all others as they like."""
    if not isinstance(broker, EmbeddedBroker):
        pytest.skip("quotas are set by Kafka's own tool, which the embedded broker has")
    quotas = "producer_byte_rate=20000,consumer_byte_rate=20000"
    arguments = ("--entity-type", "clients", "--entity-name", CLIENT, "--alter", "--add-config", quotas)
    tool = broker.tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments)
    assert tool.wait(TOOL_S) == 0
    return broker


def test_a_broker_that_throttles_is_said_to_throttle(
    throttled: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """D906: a producer of ours, and it is no outage that its writes take seconds."""
    topic = "throttled"
    admin = AdminClient({"bootstrap.servers": throttled.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    log = KafkaLog({"bootstrap.servers": throttled.bootstrap}, client_id=CLIENT)
    with closing(log):
        producer = log.producer()
        # the quota counts bytes as they are written, and text that repeats is compressed to nearly none
        value = random.Random(1).randbytes(5_000)

        def is_said() -> bool:
            for _ in range(10):
                producer.send(Outgoing(topic, 0, value))
            producer.flush(30_000)
            return "the broker throttles" in caplog.text

        eventually(is_said, 60)
        assert "the broker does not answer" not in caplog.text
        assert log.ends([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] >= 10
