"""Calls that wait for the broker at the same time."""

from __future__ import annotations

from functools import partial
from threading import Barrier, Event

import pytest

from acker.errors import LogError
from acker.kafka.cluster import KafkaLog

WAIT_S = 20.0
MOMENT_S = 0.2


def test_calls_are_made_at_the_same_time_and_their_results_keep_their_order() -> None:
    all_are_there = Barrier(5)

    def call(number: int) -> int:
        all_are_there.wait(WAIT_S)
        return number

    log = KafkaLog({"bootstrap.servers": "nobody:1"})
    assert log.side_by_side([partial(call, number) for number in range(5)]) == [0, 1, 2, 3, 4]
    assert log.side_by_side([]) == []


def test_an_error_is_raised_when_no_call_is_under_way_any_more() -> None:
    """Who gives writers up after an error must not do so while a thread uses them."""
    has_begun, was_raised = Event(), Event()
    went_on: list[bool] = []

    def fail() -> None:
        has_begun.wait(WAIT_S)
        raise LogError("refused")

    def last() -> None:
        has_begun.set()
        went_on.append(was_raised.wait(MOMENT_S))

    with pytest.raises(LogError, match="refused"):
        KafkaLog({"bootstrap.servers": "nobody:1"}).side_by_side([fail, last])
    was_raised.set()
    assert went_on == [False]
