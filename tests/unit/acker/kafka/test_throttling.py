"""A broker whose quotas slow a client down: it is said, and it is no outage."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from acker.kafka.client import (
    THROTTLED_LOGGED_EVERY_S,
    THROTTLED_RECENT_S,
    WAIT_MS_MAX,
    Background,
    KafkaClient,
    Outage,
    Throttling,
)
from tests.support.steady_clock import SteadyClock, client_lines

SETTINGS = {"bootstrap.servers": "127.0.0.1:1"}


@dataclass
class Answer:
    """What librdkafka hands to ``throttle_cb``."""

    throttle_time: float
    broker_name: str = "b:9092"


def test_a_throttle_is_said_at_once_then_each_minute_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D906: with the broker, for how long, and what to raise."""
    clock = SteadyClock()
    throttling = Throttling(clock, "b:9092")
    for _ in range(130):
        throttling(Answer(2.0))
        clock.now_s += 1.0
    throttling.record_answer()
    assert client_lines(caplog) == ["the broker throttles"] * 3
    line = vars(caplog.records[0])
    assert (line["broker"], line["throttled_s"]) == ("b:9092", 2.0)
    assert "producer_byte_rate" in line["next_step"]
    clock.now_s += THROTTLED_LOGGED_EVERY_S + 2
    throttling.record_answer()
    throttling.record_answer()
    assert client_lines(caplog)[3:] == ["the broker throttles no more"]


def test_answers_that_are_held_back_for_moments_are_not_said(caplog: pytest.LogCaptureFixture) -> None:
    """That is what a quota is for."""
    clock = SteadyClock()
    throttling = Throttling(clock, "b:9092")
    for _ in range(600):
        throttling(Answer(0.001))
        throttling(Answer(0.0))
        clock.now_s += 1.0
    assert client_lines(caplog) == []
    assert not throttling.is_recent


def test_a_wait_for_a_throttled_answer_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """D907: nobody looks for a broker that is up."""
    clock = SteadyClock()
    throttling = Throttling(clock, "b:9092")
    outage = Outage(clock, "b:9092", throttling)
    throttling(Answer(4.0))
    outage.record_wait("writing", WAIT_MS_MAX, "40 records are not acknowledged")
    assert client_lines(caplog) == ["the broker throttles"] * 2
    assert vars(caplog.records[1])["waits"] == "writing"


def test_the_error_of_a_write_that_a_quota_kept_back_names_the_quota() -> None:
    """Some seconds after the last throttled answer it is the broker again."""
    clock = SteadyClock()
    client = KafkaClient(SETTINGS, "test", 30_000, clock)
    cause = KafkaError(KafkaError._TIMED_OUT, "no answer")
    client.throttling(Answer(4.0))
    assert "producer_byte_rate" in str(client.error(cause, "writing", 30_000, Background(clock)))
    clock.now_s += 4.0 + THROTTLED_RECENT_S
    assert "producer_byte_rate" not in str(client.error(cause, "writing", 30_000, Background(clock)))
