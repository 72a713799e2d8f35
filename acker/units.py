"""Durations and times as people write them, as int milliseconds.

A duration is a number and its unit, ``500ms``, ``30s``, ``5m``, ``12h``, ``7d``; a time is ISO 8601 with its
offset from UTC. A number without a unit is refused rather than guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from acker.errors import UsageError
from acker.untrusted import Untrusted

UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

_ROUNDED_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
"""Units of `rounded_duration_text`, the largest first."""

_DURATION: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, and of Python's calendar."""

TIME_MS_MIN: Final = -62_135_596_800_000
"""The beginning of the year 1, and of Python's calendar."""


def duration_ms(text: str) -> int:
    """Read a duration such as ``30s`` or ``1.5m``: milliseconds, 0 or more.

    Raises `ValueError`: the unit is missing or unknown, or the duration is no whole number of milliseconds.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("is no duration with its unit (ms, s, m, h or d)")
    value = Fraction(match[1]) * UNITS_MS[match[2]]
    if value.denominator != 1:
        raise ValueError("is finer than a millisecond")
    return int(value)


def duration_text(value_ms: int) -> str:
    """Write a duration in milliseconds in the largest unit that holds it exactly; `duration_ms` reads it."""
    for unit, unit_ms in UNITS_MS.items():  # the largest first
        if value_ms and value_ms % unit_ms == 0:
            return f"{value_ms // unit_ms}{unit}"
    return "0s"  # of 0 each unit is a divisor


def rounded_duration_text(value_ms: int) -> str:
    """Write a duration in its largest unit with one digit behind the point, for people alone.

    >>> rounded_duration_text(5_400_000), rounded_duration_text(90_000), rounded_duration_text(250)
    ('1.5 h', '1.5 min', '250 ms')
    """
    for unit, size_ms in _ROUNDED_UNITS:
        if abs(value_ms) >= size_ms:
            return f"{value_ms / size_ms:.1f} {unit}"
    return f"{value_ms} ms"


def time_ms(text: str) -> int:
    """Read a time such as ``2026-07-01T00:00:00Z``: milliseconds since 1970, UTC, 0 or more.

    Raises `ValueError`: it is no time, has no offset, or lies before 1970.
    """
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("is no time in ISO 8601") from None
    if parsed.tzinfo is None:
        raise ValueError("has no offset from UTC, such as Z or +02:00")
    value = (parsed - _EPOCH) // timedelta(milliseconds=1)
    if value < 0:
        raise ValueError("lies before 1970")
    return value


def time_text(value_ms: int) -> str:
    """Write milliseconds since 1970 as ISO 8601, UTC; `time_ms` reads it."""
    return (_EPOCH + timedelta(milliseconds=value_ms)).isoformat().replace("+00:00", "Z")


def any_time_text(value_ms: int) -> str:
    """Write milliseconds since 1970 as `time_text` does; a time outside of Python's calendar as a number."""
    try:
        return time_text(value_ms)
    except OverflowError:
        return f"{value_ms} ms after 1970"


def second_text(value_ms: int) -> str:
    """Write milliseconds since 1970 as `any_time_text` does, without the fraction of the second.

    >>> second_text(1_782_864_000_987)
    '2026-07-01T00:00:00Z'
    """
    return any_time_text(value_ms // 1000 * 1000)


def named_past_ms(name: str, text: str, now_ms: int) -> int:
    """Read a time, or a duration before now, as `past_ms` does.

    `name` is the option or field that has the text. Raises `UsageError`, with that name: the text
    is neither.
    """
    try:
        return past_ms(text, now_ms)
    except ValueError as error:
        raise UsageError(
            f"{name} {Untrusted(text)}: {error}; give a time such as 2026-07-01T00:00:00Z, or 2h for so long"
            " ago"
        ) from error


def past_ms(text: str, now_ms: int) -> int:
    """Read a time, or a duration before now, such as ``2h``; 1970 at the least. `ValueError`: neither."""
    try:
        return max(0, now_ms - duration_ms(text))
    except ValueError:
        return time_ms(text)
