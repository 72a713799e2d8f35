"""A record that the broker refuses is raised where the caller waits for it, whenever its report arrives."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from acker.errors import LogError, NotAuthenticated, NotAuthorized, Unreachable
from acker.kafka.port import Outgoing
from acker.kafka.reader import record_of
from acker.kafka.writer import FIRST_POLL_S, KafkaProducer
from tests.support.given_client import GivenClient
from tests.support.odd_keys import KEYS, VALUES

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
NO_RIGHT = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class LibrdkafkaProducer:
    """Reports on each record as it was told to, in a call to `poll` or to `flush`.

    Attributes:
        refused: topics whose records are refused, and why.
        silent: whether reports do not arrive at all.
    """

    def __init__(self, settings: Mapping[str, Any], reports_in: str) -> None:
        self.settings = settings
        self.reports_in = reports_in
        self.refused: dict[str, KafkaError] = {}
        self.silent = False
        self._queue: list[tuple[str, int]] = []
        self.written: list[tuple[object, object]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def cluster_id(self, _timeout_s: float) -> str:
        return "cluster"

    def produce(self, topic: str, value: object, key: object, partition: int, **_options: object) -> None:
        self._queue.append((topic, partition))
        self.written.append((key, value))

    def poll(self, _timeout_s: float) -> None:
        self._report("poll")

    def flush(self, _timeout_s: float) -> int:
        self._report("poll")
        self._report("flush")
        return len(self._queue)

    def list_topics(self, topic: str, _timeout_s: float) -> object:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, topic))

    def _report(self, call: str) -> None:
        if self.silent or call != self.reports_in:
            return
        queue, self._queue = self._queue, []
        for topic, partition in queue:
            error = self.refused.get(topic)
            if error is not None or not self.settings.get("delivery.report.only.error"):
                message = SimpleNamespace(topic=lambda topic=topic: topic, partition=lambda n=partition: n)
                self.settings["on_delivery"](error, message)


def opened(reports_in: str, **refused: KafkaError) -> tuple[KafkaProducer, LibrdkafkaProducer]:
    """Return a producer, and the one beneath it that refuses records of some topics."""
    made: list[LibrdkafkaProducer] = []
    seconds = count(1.0)  # the clock goes on by one with each look

    def make(settings: dict[str, Any]) -> LibrdkafkaProducer:
        made.append(LibrdkafkaProducer(settings, reports_in))
        return made[-1]

    producer = KafkaProducer(GivenClient(make, 1_000, lambda: next(seconds)))
    made[-1].refused = refused
    return producer, made[-1]


@pytest.mark.parametrize("reports_in", ["poll", "flush"])
@pytest.mark.parametrize(("error", "raised"), [(TOO_LARGE, LogError), (NO_RIGHT, NotAuthorized)])
def test_a_delivery_report_with_an_error_is_raised_by_flush_once(
    reports_in: str, error: KafkaError, raised: type[Exception]
) -> None:
    producer, _ = opened(reports_in, lines=error)
    producer.send(Outgoing("words", 0, b"fine"))
    producer.send(Outgoing("lines", 3, b"refused"))
    producer.send(Outgoing("words", 0, b"fine too"))
    with pytest.raises(raised, match="writing lines/3"):
        producer.flush(1_000)
    producer.send(Outgoing("words", 0, b"later"))
    producer.flush(1_000)


@pytest.mark.parametrize("reports_in", ["poll", "flush"])
def test_of_several_refusals_the_first_is_told(reports_in: str) -> None:
    producer, _ = opened(reports_in, lines=TOO_LARGE, words=NO_RIGHT)
    producer.send(Outgoing("lines", 1, b"first"))
    producer.send(Outgoing("words", 2, b"second"))
    with pytest.raises(LogError, match="writing lines/1"):
        producer.flush(1_000)


def test_what_librdkafka_refuses_at_once_is_raised_by_flush() -> None:
    producer, beneath = opened("flush")

    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(TOO_LARGE)

    beneath.produce = refuse  # type: ignore[method-assign]
    producer.send(Outgoing("lines", 4, b"refused"))
    with pytest.raises(LogError, match="writing lines/4"):
        producer.flush(1_000)


def test_a_record_without_a_report_is_not_taken_for_written() -> None:
    producer, beneath = opened("flush")
    beneath.silent = True
    producer.send(Outgoing("lines", 0, b"v"))
    with pytest.raises(Unreachable, match="1 records are not acknowledged"):
        producer.flush(1_000)


def test_a_first_record_is_waited_for_by_polls_until_the_broker_lets_nobody_in() -> None:
    """A flush would go on to the delivery callback with the exception set."""
    producer, beneath = opened("flush")
    beneath.silent = True
    producer.send(Outgoing("lines", 0, b"v"))
    polls: list[float] = []

    def poll(timeout_s: float) -> None:
        polls.append(timeout_s)
        beneath.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "wrong password"))

    beneath.poll = poll  # type: ignore[method-assign]
    producer._background._has_answered = False
    producer._client.clock = lambda: 0.0
    with pytest.raises(NotAuthenticated, match="connecting: no connection to kafka:9092 was accepted"):
        producer.flush(1_000)
    assert polls == [FIRST_POLL_S]


def test_only_the_first_flush_waits_for_a_first_record() -> None:
    producer, beneath = opened("poll")
    waits: list[float] = []
    report = beneath.poll

    def poll(timeout_s: float) -> None:
        waits.append(timeout_s)
        report(timeout_s)

    for _ in range(2):
        producer.send(Outgoing("lines", 0, b"v"))
        beneath.poll = poll  # type: ignore[method-assign]
        producer.flush(1_000)
    assert [wait_s for wait_s in waits if wait_s] == []


def test_keys_and_values_go_to_the_client_and_come_from_it_as_they_are() -> None:
    """Null is not empty, in either direction."""
    records = [(key, value) for key in KEYS.values() for value in VALUES.values()]
    producer, beneath = opened("flush")
    for key, value in records:
        producer.send(Outgoing("lines", 0, value, key))
    producer.flush(1_000)
    assert beneath.written == records
    messages = [Message(topic="lines", partition=0, offset=5, key=key, value=value) for key, value in records]
    assert [(record.key, record.value) for record in map(record_of, messages)] == records
