"""How a refusal of the broker reads: which right, which resource, which cure, and no secret."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.errors import NotAuthenticated, NotAuthorized, Unreachable
from acker.kafka.client import UNAUTHENTICATED, Background, KafkaClient, Use
from acker.kafka.port import Operation

SETTINGS = {
    "bootstrap.servers": "kafka:9093",
    "sasl.username": "acker",
    "sasl.password": "hunter2",
    "ssl.key.password": "hunter3",
}
SILENT = KafkaError(KafkaError._TIMED_OUT, "nothing came")
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "wrong password for acker: hunter2")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.fixture
def client() -> KafkaClient:
    return KafkaClient(SETTINGS, "test", 30_000, Clock())


def raising(error: KafkaError) -> None:
    raise KafkaException(error)


def test_a_missing_right_is_named_with_its_resource_and_its_cure(client: KafkaClient) -> None:
    cause = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    error = client.error(cause, "reading lines/0 at 7", use=Use(Operation.READ, topic="lines"))

    assert isinstance(error, NotAuthorized)
    assert "reading lines/0 at 7: the right to Read on Topic lines is missing at kafka:9093" in str(error)
    assert str(error).endswith("`windhover acls` prints what each role needs: grant it")


def test_silence_of_a_broker_that_lets_nobody_in_is_told_as_such(client: KafkaClient) -> None:
    background = Background(Clock())
    background(REFUSED)

    error = client.error(SILENT, "describing lines", 10_000, background)

    assert isinstance(error, NotAuthenticated)
    assert "no connection to kafka:9093 was accepted" in str(error)


def test_silence_is_told_with_what_the_connection_said(client: KafkaClient) -> None:
    background = Background(Clock())
    background(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    background(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    error = client.error(SILENT, "describing lines", 10_000, background)

    assert isinstance(error, Unreachable)
    assert "connection refused" in str(error)


def test_a_client_that_was_never_let_in_does_not_wait_for_its_deadline(client: KafkaClient) -> None:
    background = Background(Clock())
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        background(REFUSED)
        raising(SILENT)

    with pytest.raises(NotAuthenticated):
        client.retry("describing lines", client.deadline(), call, background, Use(Operation.DESCRIBE))

    assert len(calls) == 1


def test_a_client_that_was_let_in_before_waits_for_the_broker_to_change_its_mind(client: KafkaClient) -> None:
    background = Background(Clock())
    background.record_answer()
    answers = iter([REFUSED, REFUSED, None])

    def call() -> str:
        if (refusal := next(answers)) is not None:
            background(refusal)
            raising(SILENT)
        return "answer"

    found = client.retry("describing lines", client.deadline(), call, background, Use(Operation.DESCRIBE))

    assert found == "answer"
    assert background.refusal is None


@pytest.mark.parametrize("code", sorted(UNAUTHENTICATED))
def test_no_message_holds_the_value_of_a_secret_setting(code: int, client: KafkaClient) -> None:
    cause = KafkaError(code, "tried hunter2, then hunter3")
    background = Background(Clock())
    background(cause)

    told = [client.error(cause, "x"), client.error(SILENT, "x", 1, background)]

    assert not any("hunter" in str(error) for error in told)
