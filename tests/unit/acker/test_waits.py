"""When a wait is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.waits import LOGGED_EVERY_MS, READING_MS_MAX, LastTime, LongWait, PassedTime


def said(wait: LongWait, reason: str, times_ms: range) -> list[int]:
    """Return what `look` returned at these times, where it was something."""
    return [waited for now_ms in times_ms if (waited := wait.record_wait(reason, now_ms)) is not None]


def test_a_wait_is_said_after_a_minute_and_then_each_minute() -> None:
    """D901: and a short one never."""
    wait = LongWait()
    assert said(wait, "ackers", range(0, LOGGED_EVERY_MS, 50)) == []
    assert said(wait, "ackers", range(LOGGED_EVERY_MS, 190_000, 50)) == [60_000, 120_000, 180_000]
    assert wait.waited_ms(190_000) == 190_000


def test_a_wait_for_something_else_begins_anew() -> None:
    """Also one for the same thing that has come further."""
    wait = LongWait()
    assert said(wait, "five roots", range(0, 59_000, 500)) == []
    assert said(wait, "four roots", range(59_000, 118_000, 500)) == []
    assert said(wait, "four roots", range(118_000, 121_000, 500)) == [60_000]


def test_a_wait_that_is_over_begins_anew() -> None:
    """Though it is for the same thing."""
    wait = LongWait()
    wait.record_wait("ackers", 0)
    wait.over()
    assert wait.waited_ms(70_000) == 0
    assert wait.record_wait("ackers", 70_000) is None
    assert wait.record_wait("ackers", 130_000) == 60_000


def test_a_clock_that_is_set_back_silences_no_wait() -> None:
    """The wait begins anew there."""
    wait = LongWait()
    wait.record_wait("ackers", 10_000_000)
    assert said(wait, "ackers", range(0, 61_000, 1_000)) == [60_000]


def test_the_first_line_may_come_sooner() -> None:
    """A start says after seconds what it waits for."""
    wait = LongWait(first_ms=10_000)
    assert said(wait, "ackers", range(0, 131_000, 1_000)) == [10_000, 70_000, 130_000]


@pytest.mark.parametrize(
    ("readings_ms", "passed_ms"),
    [
        ((0, 100, 300), 300),
        ((0, 100, 100), 100),
        ((0, 100, -3_599_900, -3_599_500), 500),
        ((0, 100, 3_600_100, 3_600_500), 500 + READING_MS_MAX),
        ((0, 30_000), READING_MS_MAX),
    ],
    ids=["right", "stands", "back", "ahead", "nobody looked"],
)
@pytest.mark.parametrize("is_begun", [True, False], ids=["begins before", "begins with the first reading"])
def test_time_passes_whatever_a_clock_is_set_to(
    readings_ms: tuple[int, ...], passed_ms: int, is_begun: bool
) -> None:
    began_ms = 1_800_000_000_000
    passed = PassedTime(began_ms) if is_begun else PassedTime()
    assert [passed.read(began_ms + now_ms) for now_ms in readings_ms][-1] == passed_ms
    assert passed.ms == passed_ms


@given(st.none() | st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.integers(1, 1 << 40))
def test_what_is_done_from_time_to_time_is_due_after_its_time_and_where_the_clock_was_set_back(
    at_ms: int | None, now_ms: int, every_ms: int
) -> None:
    """D413: a clock that is set back by an hour holds nothing up for that hour."""
    last_commit = LastTime(at_ms)
    is_due = at_ms is None or now_ms < at_ms or now_ms - at_ms >= every_ms
    assert last_commit.is_due(now_ms, every_ms) is is_due
    assert last_commit.at_ms == at_ms
    assert last_commit.begin_if_due(now_ms, every_ms) is is_due
    assert last_commit.at_ms == (now_ms if is_due else at_ms)
    assert not last_commit.is_due(now_ms, every_ms) or not is_due
