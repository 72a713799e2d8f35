"""How long a new topic is waited for; a broker that needs its time, without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]  # no __all__

from acker.errors import Unreachable
from acker.provisioning import admin
from acker.provisioning.admin import DEADLINE_MS, PARTITION_MS_MAX, KafkaAdmin
from acker.provisioning.topic_specs import TopicRole, TopicSpec

PARTITIONS: Final = 1_000


class SlowBroker:
    """An `AdminClient` and a clock: orders are taken at once, and shown in turn, each behind the former."""

    def __init__(self, partition_ms: float) -> None:
        self.now_s = 0.0
        self._partition_s = partition_ms / 1000
        self._free_s = 0.0
        self._shown: list[tuple[float, str, int]] = []

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def create_topics(self, new: list[NewTopic], **_: Any) -> dict[str, Future[None]]:
        return self._order({each.topic: each.num_partitions for each in new})

    def create_partitions(self, new: list[NewPartitions], **_: Any) -> dict[str, Future[None]]:
        return self._order({each.topic: each.new_total_count for each in new})

    def list_topics(self, **_: Any) -> SimpleNamespace:
        topics = {
            name: SimpleNamespace(partitions=range(n)) for at, name, n in self._shown if at <= self.now_s
        }
        return SimpleNamespace(topics=topics)

    def _order(self, topics: dict[str, int]) -> dict[str, Future[None]]:
        shown_s = max(self.now_s, self._free_s)
        self._free_s = shown_s + sum(topics.values()) * self._partition_s
        self._shown += [(shown_s, name, count) for name, count in topics.items()]
        taken: Future[None] = Future()
        taken.set_result(None)
        return dict.fromkeys(topics, taken)


def spec(name: str, partitions: int = PARTITIONS) -> TopicSpec:
    return TopicSpec(name, TopicRole.REPLAY, "key", partitions, -1, {})


def connect(broker: SlowBroker, monkeypatch: pytest.MonkeyPatch) -> KafkaAdmin:
    monkeypatch.setattr(admin, "AdminClient", lambda _: broker)
    monkeypatch.setattr(admin, "time", SimpleNamespace(monotonic=lambda: broker.now_s, sleep=broker.sleep))
    return KafkaAdmin({"bootstrap.servers": "kafka:9092"})


def test_a_topic_behind_large_ones_is_waited_for_as_long_as_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker shows an order behind the former ones; 12 ms a partition were too slow for 10 s."""
    broker = SlowBroker(12)
    client = connect(broker, monkeypatch)
    client.make([spec("sentences")])
    client.make([spec("sentences.g.replay"), spec("sentences.g.dlq")])
    assert broker.now_s * 1000 > DEADLINE_MS
    client.grow([spec("sentences", 2 * PARTITIONS)])
    assert broker.now_s * 1000 > 3 * PARTITIONS * 12


def test_the_error_for_a_topic_that_is_never_shown_names_it_and_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = SlowBroker(1_000_000)
    client = connect(broker, monkeypatch)
    client.make([spec("sentences")])
    limit_ms = DEADLINE_MS + (PARTITIONS + 7) * PARTITION_MS_MAX
    with pytest.raises(Unreachable) as caught:
        client.make([spec("small", 7)])
    assert str(caught.value) == (
        f"waiting for small: Kafka at kafka:9092 took the order, but has not shown all 7 "
        f"partitions within {limit_ms} ms; wait, then try again"
    )
