"""Back-off."""

from __future__ import annotations

import pytest

from replay.policy.disposition import Backoff, delay_ms


def test_the_delay_doubles_from_the_initial_one() -> None:
    """P34"""
    backoff = Backoff(initial_ms=1_000, multiplier=2, max_ms=300_000)
    assert [delay_ms(backoff, failures, 0.0) for failures in (1, 2, 3, 4)] == [1_000, 2_000, 4_000, 8_000]


def test_an_initial_delay_above_the_maximum_is_the_maximum() -> None:
    """S110"""
    assert delay_ms(Backoff(500_000, 2, 2_000), 1, 0.0) == 2_000


@pytest.mark.parametrize("failures", [*range(44, 81), 1_000_000])
def test_the_delay_stays_at_its_maximum_however_often_a_root_failed(failures: int) -> None:
    """S114; a number with a fraction overflows where a whole one grows."""
    for multiplier in (2, 2.0):
        assert delay_ms(Backoff(initial_ms=2, multiplier=multiplier, max_ms=10_000), failures, 0.0) == 10_000


def test_a_multiplier_of_one_keeps_the_delay() -> None:
    assert delay_ms(Backoff(700, 1, 10_000), 50, 0.0) == 700


def test_no_initial_delay_is_no_delay() -> None:
    """S103: ready at once."""
    assert delay_ms(Backoff(0, 2, 10_000, jitter=1.0), 9, 0.9) == 0


def test_a_list_says_the_delays_itself_and_its_last_one_is_repeated() -> None:
    """P34"""
    backoff = Backoff(1, 2, 3, jitter=0.5, delays_ms=(1_000, 10_000, 60_000))
    assert [delay_ms(backoff, failures, 0.0) for failures in (1, 2, 3, 4, 10**6)] == [
        1_000, 10_000, 60_000, 60_000, 60_000,
    ]  # fmt: skip
    assert delay_ms(backoff, 1, 0.5) == 1_250


def test_jitter_adds_at_most_its_share() -> None:
    backoff = Backoff(1_000, 2, 10_000, jitter=0.2)
    assert delay_ms(backoff, 1, 0.0) == 1_000
    assert delay_ms(backoff, 1, 0.5) == 1_100
    assert delay_ms(backoff, 1, 0.999) == 1_200


@pytest.mark.parametrize(("failures", "jitter"), [(0, 0.0), (-1, 0.0), (1, 1.0), (1, -0.1)])
def test_a_delay_without_a_failure_or_with_impossible_jitter_is_refused(failures: int, jitter: float) -> None:
    """S113"""
    with pytest.raises(ValueError, match=r"failures|jitter"):
        delay_ms(Backoff(1, 2, 3), failures, jitter)
