"""Durations and times, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.units import duration_ms, duration_text, past_ms, time_ms, time_text


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("1.5s", 1500),
        ("0.001s", 1),
        (" 30 s ", 30_000),
        ("0s", 0),
    ],
)
def test_a_duration_with_its_unit_is_read_as_milliseconds(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text", ["30", "", "s", "-1s", "30 sec", "1e3s", "0.0005s", "٣s", "1s1s", "99999999999999999s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"millisecond|unit"):
        duration_ms(text)


@given(st.integers(min_value=0, max_value=10**15 - 1))
def test_a_written_duration_reads_as_itself(value_ms: int) -> None:
    assert duration_ms(duration_text(value_ms)) == value_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-07-01T00:00:00Z", 1_782_864_000_000),
        ("2026-07-01T02:00:00+02:00", 1_782_864_000_000),
        ("2026-07-01T00:00:00.250Z", 1_782_864_000_250),
    ],
)
def test_a_time_is_read_as_milliseconds_since_1970(text: str, expected_ms: int) -> None:
    assert time_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text", ["2026-07-01T00:00:00", "yesterday", "2026-07-01", "1969-12-31T23:59:59Z", ""]
)
def test_a_time_without_offset_or_before_1970_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset|ISO|1970"):
        time_ms(text)


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_a_written_time_reads_as_itself(value_ms: int) -> None:
    assert time_ms(time_text(value_ms)) == value_ms


def test_a_time_before_now_is_a_duration_or_a_time() -> None:
    now_ms = 1_800_000_000_000
    assert past_ms("2h", now_ms) == now_ms - 7_200_000
    assert past_ms("2027-01-15T07:00:00Z", now_ms) == now_ms - 3_600_000
    assert past_ms("60000d", now_ms) == 0
    with pytest.raises(ValueError, match="is no time in ISO 8601"):
        past_ms("soon", now_ms)
