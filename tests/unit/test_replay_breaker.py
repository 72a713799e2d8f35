"""The breaker."""

from __future__ import annotations

import pytest

from acker.errors import BreakerOpen, ConfigError, LogError
from replay.breaker import Breaker


def breaker(max_ratio: float = 1.0, max_consecutive: int = 1_000, dead_min: int = 10) -> Breaker:
    return Breaker(
        "sentences",
        max_ratio=max_ratio,
        max_consecutive=max_consecutive,
        window_ms=60_000,
        dead_min=dead_min,
    )


def test_as_many_in_a_row_may_die_as_max_consecutive_says() -> None:
    """P62"""
    one = breaker(max_consecutive=3)
    assert one.room(0) == 3
    one.dead(2, 0)
    assert one.room(0) == 1
    one.dead(1, 0)
    with pytest.raises(BreakerOpen, match="max_consecutive 3"):
        one.room(0)


def test_a_root_that_is_acked_begins_the_row_anew() -> None:
    one = breaker(max_consecutive=3)
    one.dead(3, 0)
    one.acked(1, 0)
    assert one.room(0) == 3


def test_the_share_of_the_window_bounds_what_may_die() -> None:
    """P62"""
    one = breaker(max_ratio=0.1)
    one.acked(900, 0)
    assert one.room(0) == 100
    one.dead(100, 0)
    with pytest.raises(BreakerOpen, match=r"100 of 1000 roots .* \(max_ratio 0.1\)"):
        one.room(0)


def test_few_dead_letters_never_open_the_breaker_by_their_share() -> None:
    one = breaker(max_ratio=0.0, dead_min=10)
    one.dead(9, 0)
    assert one.room(0) == 1


def test_what_is_older_than_the_window_does_not_count() -> None:
    one = breaker(max_ratio=0.1)
    one.dead(50, 0)
    with pytest.raises(BreakerOpen):
        one.room(59_999)
    assert one.room(61_000) == 10


def test_a_clock_that_steps_back_does_no_harm() -> None:
    one = breaker(max_ratio=0.1)
    one.acked(90, 10_000)
    one.dead(1, 2_000)
    assert one.room(1_000) == 9


def test_the_error_is_of_a_class_that_no_retry_catches() -> None:
    assert not issubclass(BreakerOpen, LogError | ConfigError)
