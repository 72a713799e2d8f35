"""This machine's clock and the broker's, as the records tell that a reader gets."""

from __future__ import annotations

import pytest

from acker.clock_watch import CLOCKS_APART_MS, REPEAT_MS, WINDOW_MS, ClockWatch
from acker.kafka.port import Record, TimestampType

NOON_MS = 1_782_000_000_000
HOUR_MS = 3_600_000
TICK_MS = 1_000


def record(appended_ms: int, kind: TimestampType = TimestampType.APPENDED) -> Record:
    """Return a tick, as a reader has it."""
    return Record("_ack_init", 0, 0, None, b"", (), appended_ms, kind)


def ticks(watch: ClockWatch, ahead_ms: int, count: int, start_ms: int = NOON_MS) -> list[str]:
    """Let a tick come each second, behind a poll without one; return what is said, without empty ones."""
    said: list[str] = []
    for number in range(count):
        now_ms = start_ms + number * TICK_MS
        watch.compare([], now_ms - TICK_MS // 2)
        said.append(watch.compare([record(now_ms - ahead_ms - 20)], now_ms))
    return [sentence for sentence in said if sentence]


@pytest.mark.parametrize(
    ("ahead_ms", "words"),
    [
        (2 * HOUR_MS, "2.0 h ahead of the broker's"),
        (-2 * HOUR_MS, "2.0 h behind the broker's"),
        (CLOCKS_APART_MS + TICK_MS, "1.0 min ahead of"),
        (3 * 24 * HOUR_MS, "3.0 d ahead of"),
    ],
)
def test_a_clock_that_is_wrong_is_named_with_the_difference_and_the_cure(ahead_ms: int, words: str) -> None:
    """D404: ahead and behind; once, and again after a while."""
    watch = ClockWatch()
    (sentence,) = ticks(watch, ahead_ms, 100)
    assert words in sentence
    assert "set the wrong one right" in sentence
    assert "2026-06-21T00:00:04Z" in sentence, "what this machine's clock says"
    assert abs(watch.ahead_ms - ahead_ms) <= 20
    assert len(ticks(watch, ahead_ms, 10, NOON_MS + REPEAT_MS + 60_000)) == 1


@pytest.mark.parametrize(
    "ahead_ms", [0, 5_000, -5_000, CLOCKS_APART_MS - TICK_MS, -CLOCKS_APART_MS + TICK_MS]
)
def test_clocks_that_are_near_each_other_are_not_reported(ahead_ms: int) -> None:
    watch = ClockWatch()
    assert ticks(watch, ahead_ms, 100) == []
    assert watch.ahead_ms == 0


def test_that_the_clocks_agree_again_is_said_once() -> None:
    watch = ClockWatch()
    assert len(ticks(watch, HOUR_MS, 20)) == 1
    said = ticks(watch, 0, 100, NOON_MS + 20 * TICK_MS)
    assert said == ["this machine's clock and the broker's agree again"]


def test_records_of_a_backlog_tell_nothing() -> None:
    """A reader that comes back after an hour gets old records, one poll after the other."""
    watch = ClockWatch()
    watch.compare([], NOON_MS)
    said = [
        watch.compare([record(NOON_MS - HOUR_MS + number * TICK_MS)], NOON_MS + number)
        for number in range(900)
    ]
    assert [sentence for sentence in said if sentence] == []


def test_one_partition_that_comes_back_with_old_records_is_no_wrong_clock() -> None:
    watch = ClockWatch()
    said: list[str] = []
    for number in range(100):
        now_ms = NOON_MS + number * TICK_MS
        age_ms = HOUR_MS if number % 3 else 20
        watch.compare([], now_ms)
        said.append(watch.compare([record(now_ms - age_ms)], now_ms))
    assert not any(said)


def test_times_that_writers_chose_tell_nothing() -> None:
    watch = ClockWatch()
    for number in range(100):
        now_ms = NOON_MS + number * TICK_MS
        watch.compare([], now_ms)
        assert watch.compare([record(now_ms - HOUR_MS, TimestampType.CREATED)], now_ms) == ""
    assert watch.broker_ms(NOON_MS) is None


def test_a_clock_that_is_set_back_begins_a_new_window() -> None:
    """Measurements of a time that is not yet are none."""
    watch = ClockWatch()
    ticks(watch, HOUR_MS, 20)
    said = ticks(watch, 0, 20, NOON_MS - HOUR_MS)
    assert said == ["this machine's clock and the broker's agree again"]


@pytest.mark.parametrize("ahead_ms", [3_000, -3_000, 0, 2 * HOUR_MS])
def test_the_brokers_time_goes_on_from_the_newest_record(ahead_ms: int) -> None:
    """D406: it is never ahead of the broker's clock, whatever this machine's says."""
    watch = ClockWatch()
    watch.compare([record(NOON_MS - ahead_ms)], NOON_MS + 20)
    assert watch.broker_ms(NOON_MS + 20 + WINDOW_MS) == NOON_MS - ahead_ms + WINDOW_MS
    assert watch.broker_ms(NOON_MS - HOUR_MS) == NOON_MS - ahead_ms, "this machine's clock was set back"
