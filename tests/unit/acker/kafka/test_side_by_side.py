"""Calls that wait for the broker beside their caller, at the same time."""

from __future__ import annotations

import threading
from functools import partial
from threading import Barrier, Event

import pytest

from acker.errors import LogError
from acker.kafka.cluster import KafkaLog
from tests.support.waiting import eventually

WAIT_S = 20.0
WAIT_MS = 20_000


def test_calls_are_made_at_the_same_time() -> None:
    all_are_there = Barrier(5)

    def call(number: int) -> int:
        all_are_there.wait(WAIT_S)
        return number

    log = KafkaLog({"bootstrap.servers": "nobody:1"})
    calls = [log.begin(partial(call, number)) for number in range(5)]
    assert [call.result() for call in calls] == [0, 1, 2, 3, 4]
    assert all(call.is_over() for call in calls)


def test_a_call_is_over_when_it_is_and_its_caller_waits_no_longer_than_he_says() -> None:
    goes_on = Event()
    call = KafkaLog({"bootstrap.servers": "nobody:1"}).begin(lambda: goes_on.wait(WAIT_S))
    assert not call.is_over()
    assert not call.is_over(50)
    goes_on.set()
    assert call.is_over(WAIT_MS)
    assert call.result()


def test_an_error_is_raised_to_who_asks_for_the_result() -> None:
    def fail() -> None:
        raise LogError("refused")

    call = KafkaLog({"bootstrap.servers": "nobody:1"}).begin(fail)
    assert call.is_over(WAIT_MS)
    with pytest.raises(LogError, match="refused"):
        call.result()


def test_a_thread_ends_with_its_call() -> None:
    before = threading.active_count()
    for _ in range(20):
        KafkaLog({"bootstrap.servers": "nobody:1"}).begin(lambda: None).result()
    eventually(lambda: threading.active_count() <= before, WAIT_S)
