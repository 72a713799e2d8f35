"""What is said of clocks that differ: pure sentences for errors, `doctor` and `check`."""

from __future__ import annotations

from typing import Final

from acker.units import time_text

CLOCK_MS_MAX: Final = 1_000
"""Clocks that differ by less are right: asking the broker takes a part of a second itself."""

SET_CLOCK: Final = "set it right (`chronyc tracking` shows whether a time server does), then start again"
LIMITS_OF_TOPICS: Final = "`windhover topics check` names the topics that refuse a time, and the cure"

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def difference_text(ahead_ms: int) -> str:
    """Return how far a clock is from another one, as ``2.0 h ahead of``.

    >>> difference_text(-7_200_000)
    '2.0 h behind'
    """
    apart_ms = abs(ahead_ms)
    unit, size_ms = next((unit for unit in _UNITS if apart_ms >= unit[1]), ("ms", 1))
    apart = f"{apart_ms / size_ms:.1f} {unit}" if size_ms > 1 else f"{apart_ms} ms"
    return f"{apart} {'ahead of' if ahead_ms > 0 else 'behind'}"


def wrong_clock_text(ahead_ms: int | None) -> str:
    """Return that this machine's clock is wrong, by the broker's; empty: it is right, or nobody could tell.

    >>> wrong_clock_text(7_200_000)
    "this machine's clock is 2.0 h ahead of the broker's"
    """
    if ahead_ms is None or abs(ahead_ms) < CLOCK_MS_MAX:
        return ""
    return f"this machine's clock is {difference_text(ahead_ms)} the broker's"


def refused_time_text(now_ms: int, ahead_ms: int | None) -> str:
    """Return why a broker may have refused the time of a record, and what to do about it.

    Args:
        now_ms: what this machine's clock says.
        ahead_ms: by how much that is ahead of the broker's; None: nobody could tell.
    """
    says = f"this machine's clock says {time_text(now_ms)}"
    if ahead_ms is None:
        return (
            f"a clock may be wrong: {says}, `windhover doctor` compares it with the broker's; if it differs,"
            f" {SET_CLOCK}; {LIMITS_OF_TOPICS}"
        )
    if not wrong_clock_text(ahead_ms):
        return f"no clock is wrong here, so the record itself is dated so; {LIMITS_OF_TOPICS}"
    return f"{says}, and is {difference_text(ahead_ms)} the broker's: {SET_CLOCK}; {LIMITS_OF_TOPICS}"
