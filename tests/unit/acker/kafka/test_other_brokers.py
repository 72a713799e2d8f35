"""Brokers that are no Kafka of today: too old, or of somebody else."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.errors import ConfigError
from acker.kafka.client import KafkaClient
from acker.kafka.cluster import KafkaLog, describe_topics
from acker.kafka.port import TopicPartition

NO_GROUP = KafkaError(KafkaError.GROUP_ID_NOT_FOUND)


class OldBroker:
    """An admin client whose broker answers as one before 2.8 does."""

    def describe_topics(self, topics: object, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError._BAD_MSG)))
        return {"lines": answer}


def test_a_broker_that_is_too_old_is_refused_by_its_version() -> None:
    """D2201."""
    old: Any = OldBroker()
    with pytest.raises(ConfigError, match=r"older than Kafka 2\.8; Windhover works with 2\.8 and newer"):
        describe_topics(old, ["lines"], 1.0, settings=True)


class Asker:
    """A consumer that asks a broker which knows no group without offsets."""

    def __init__(self, *, raises: bool) -> None:
        self._raises = raises

    def committed(self, partitions: list[Any], timeout_s: float) -> list[Any]:
        if self._raises:
            raise KafkaException(NO_GROUP)
        return [_WithError(partition.topic, partition.partition) for partition in partitions]


class _WithError(confluent_kafka.TopicPartition):
    error = NO_GROUP


@pytest.mark.parametrize("raises", [True, False])
def test_a_group_that_is_not_there_has_committed_nothing(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """D2202. franz-go's kfake says so of a group that has no offsets."""
    log = KafkaLog({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(KafkaClient, "make_client", lambda *_arguments: Asker(raises=raises))

    assert log.committed("g", [TopicPartition("lines", 0)]) == {}
