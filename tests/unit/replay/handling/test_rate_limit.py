"""How many letters a rate lets through, and when the next one."""

from __future__ import annotations

import math

import pytest

from acker.errors import UsageError
from replay.handling.letter_handling import CHUNK_MAX, RATE_MIN, RateLimit

START_MS = 60_000


def after(rate: float, count: int, at_ms: int = START_MS) -> RateLimit:
    """Return a limit by which so many letters were handled at a time."""
    pace = RateLimit(rate, at_ms)
    pace.record_handled(count)
    return pace


@pytest.mark.parametrize("rate", [0.0, -1.0, RATE_MIN * 0.999, math.inf, math.nan])
def test_a_rate_that_is_too_low_or_no_number_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="letters a second or more"):
        RateLimit(rate, 0)


@pytest.mark.parametrize("rate", [RATE_MIN, 0.5, 1e9, None])
def test_the_lowest_rate_and_all_higher_ones_are_taken(rate: float | None) -> None:
    assert RateLimit(rate, 0).allowed_letters(0) == (CHUNK_MAX if rate is None else 1)


@pytest.mark.parametrize(
    ("rate", "at_once"), [(1_000, 1_000), (100, 100), (10, 10), (2, 2), (1, 1), (0.5, 1), (RATE_MIN, 1)]
)
def test_after_a_long_time_the_letters_of_one_second_may_be_handled(rate: float, at_once: int) -> None:
    pace = RateLimit(rate, 0)
    assert pace.allowed_letters(START_MS) == at_once
    pace.record_handled(at_once)
    assert (pace.allowed_letters(START_MS), pace.wait_ms(START_MS)) == (0, 1_000 / rate)


@pytest.mark.parametrize(
    ("rate", "wait_ms"), [(1_000, 1), (400, 3), (10, 100), (2, 500), (1, 1_000), (0.5, 2_000), (0.001, 10**6)]
)
def test_the_next_letter_may_be_handled_when_the_one_before_has_taken_its_time(
    rate: float, wait_ms: int
) -> None:
    """Whenever it was begun, and whether or not somebody asks meanwhile."""
    for at_ms in (0, START_MS):
        pace = RateLimit(rate, at_ms)
        assert pace.allowed_letters(at_ms) == 1
        pace.record_handled(1)
        assert (pace.allowed_letters(at_ms), pace.wait_ms(at_ms)) == (0, wait_ms)
        assert pace.allowed_letters(at_ms + wait_ms) == 1
        assert pace.wait_ms(at_ms + wait_ms) == 0


def test_without_a_rate_nothing_is_counted() -> None:
    pace = RateLimit(None, 0, at_once_max=7)
    pace.record_handled(1_000)
    assert (pace.allowed_letters(0), pace.wait_ms(0)) == (7, 0)


def test_no_more_are_let_through_than_one_transaction_may_have() -> None:
    assert RateLimit(100, 0, at_once_max=7).allowed_letters(START_MS) == 7


@pytest.mark.parametrize("by_ms", [-START_MS, -1])
def test_a_clock_that_is_set_back_before_the_first_letter_holds_nothing_up(by_ms: int) -> None:
    assert RateLimit(10, START_MS).allowed_letters(START_MS + by_ms) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_behind_a_clock_that_is_set_back_the_last_letters_take_their_time_once(count: int) -> None:
    pace = after(10, count)
    back_ms = START_MS - 3_600_000
    assert pace.wait_ms(back_ms) == count * 100
    assert pace.allowed_letters(back_ms + count * 100) == 1
