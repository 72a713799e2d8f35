"""The first writes of a producer to a partition: what the broker refuses at first is not taken for durable.

A broker that knows nothing of a producer takes whatever sequence number comes first. If it refuses the first
write for a moment and takes the second, librdkafka concludes from the second's success that the first was
written too, and reports both as delivered.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, TopicPartition
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker
from tests.support.servers.relay import Damaging
from tests.support.waiting import committed

TIMEOUT_MS = 60_000
TOPIC = "words"
PLACE = TopicPartition(TOPIC, 0)
DOOR = "DAMAGED"
FIRST, SECOND = b"first", b"second"

Write = Callable[[Log, list[bytes], Damaging], None]


def plainly(log: Log, values: list[bytes], relay: Damaging) -> None:
    """Write each value outside transactions, the second when the first is on its way."""
    producer = log.producer()
    for value in values:
        producer.send(Outgoing(TOPIC, 0, value))
        assert relay.damaged.wait(TIMEOUT_MS / 1_000)
    producer.flush(TIMEOUT_MS)
    producer.close()


def in_a_transaction(log: Log, values: list[bytes], relay: Damaging) -> None:
    """Write all values in one transaction, the second when the first is on its way."""
    writer = log.transactions("owner")
    writer.init(TIMEOUT_MS)
    writer.begin()
    for value in values:
        writer.send(Outgoing(TOPIC, 0, value))
        assert relay.damaged.wait(TIMEOUT_MS / 1_000)
    writer.commit(TIMEOUT_MS)
    writer.close()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("write", [plainly, in_a_transaction])
def test_what_is_refused_at_first_is_written_before_what_comes_behind_it(write: Write) -> None:
    """No second write is on its way before the first has an answer, so none can answer for it."""
    with Damaging(FIRST) as relay, EmbeddedBroker(listeners={DOOR: relay.port}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        relay.connect_to(broker.listener_port(DOOR))
        log = KafkaLog({"bootstrap.servers": f"{HOST}:{relay.port}"}, operation_timeout_ms=TIMEOUT_MS)
        write(log, [FIRST, SECOND], relay)
        log.close()
        look = KafkaLog({"bootstrap.servers": broker.bootstrap})
        found = [record.value for record in committed(look, [PLACE])]
        look.close()
        assert (found, relay.overlapped) == ([FIRST, SECOND], False)
