"""How long a new topic is waited for; a broker that needs its time, without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]  # no __all__

from acker.errors import NotAuthorized, TopicError, Unreachable
from acker.kafka.client import PROPAGATION_MS
from acker.kafka.port import TopicInfo
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

    def poll(self, _timeout_s: float) -> None:
        pass

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


class LateBroker(SlowBroker):
    """It does not know yet of a topic that another broker has made, and answers as brokers do then."""

    def __init__(self, *errors: int) -> None:
        super().__init__(0)
        self.errors = list(errors)

    def list_offsets(
        self, spec_by_place: dict[TopicPartition, Any], **_: Any
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        futures = {place: Future[SimpleNamespace]() for place in spec_by_place}
        for place, future in futures.items():
            if self.errors and place.partition == 1:
                future.set_exception(KafkaException(KafkaError(self.errors[0])))
            else:
                future.set_result(SimpleNamespace(offset=5 * (place.topic == "a")))
        self.errors[:1] = []
        return futures

    def list_topics(self, **_: Any) -> SimpleNamespace:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return super().list_topics()


LATE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
INFOS: Final = [TopicInfo(name, "id", 2, 1, {}) for name in ("a", "b")]


@pytest.mark.parametrize("error", LATE)
def test_a_broker_that_does_not_know_of_a_new_topic_yet_is_asked_again(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`topics create` ended with "run `windhover topics create`" some milliseconds after a topic was made."""
    assert connect(LateBroker(error, error), monkeypatch).holding_records(INFOS) == ["a"]


@pytest.mark.parametrize("error", [LATE[1], KafkaError._TRANSPORT])
def test_a_list_of_topics_that_fails_in_passing_is_asked_for_again(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LateBroker()
    client = connect(broker, monkeypatch)
    broker.errors = [error]
    client.make([spec("sentences")])
    assert broker.errors == []


def test_a_topic_that_stays_unknown_is_an_error_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LateBroker(*[KafkaError.UNKNOWN_TOPIC_OR_PART] * 1_000)
    with pytest.raises(TopicError, match=r"listing offsets: there is no such topic"):
        connect(broker, monkeypatch).holding_records(INFOS)
    assert PROPAGATION_MS <= broker.now_s * 1000 < 2 * PROPAGATION_MS


def test_an_error_that_does_not_pass_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LateBroker(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(NotAuthorized, match="the right to Describe on Topic a is missing"):
        connect(broker, monkeypatch).holding_records(INFOS)
    assert len(broker.errors) == 1
