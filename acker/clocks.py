"""Writes the sentences about clocks that differ, for errors, `doctor` and `check`; pure.

Everywhere `ahead_ms` is this machine's time less the broker's: 7,200,000 if it is 14:00 here and 12:00 there.
"""

from __future__ import annotations

from typing import Final

from acker.units import rounded_duration_text, second_text, time_text

CLOCK_MS_MAX: Final = 1_000
"""Clocks that differ by less count as right: a request to the broker takes a part of a second itself."""

_TIME_SERVER: Final = "`chronyc tracking` shows whether a time server does"
SET_CLOCK: Final = f"set it right ({_TIME_SERVER}), then start again"
LIMITS_OF_TOPICS: Final = "`windhover topics check` names the topics that refuse a time, and the cure"


def difference_text(ahead_ms: int) -> str:
    """Return how far this machine's clock is from the broker's; the broker's name follows in the sentence.

    >>> difference_text(7_200_000), difference_text(-7_200_000)
    ('2.0 h ahead of', '2.0 h behind')
    """
    direction = "ahead of" if ahead_ms > 0 else "behind"
    return f"{rounded_duration_text(abs(ahead_ms))} {direction}"


def wrong_clock_text(ahead_ms: int | None) -> str:
    """Return how wrong this machine's clock is; empty: it is right, or `ahead_ms` is None, unknown.

    >>> wrong_clock_text(7_200_000)
    "this machine's clock is 2.0 h ahead of the broker's"
    """
    if ahead_ms is None or abs(ahead_ms) < CLOCK_MS_MAX:
        return ""
    return f"this machine's clock is {difference_text(ahead_ms)} the broker's"


def clocks_differ(ahead_ms: int, now_ms: int) -> str:
    """Return what both clocks show, and the cure; `now_ms` is what this machine's clock says."""
    broker_ms = now_ms - ahead_ms
    return (
        f"{wrong_clock_text(ahead_ms)}: here it is {second_text(now_ms)}, there {second_text(broker_ms)};"
        f" set the wrong one right ({_TIME_SERVER})"
    )


def other_clock_text(whose: str, ahead_ms: int, reference: str) -> str:
    """Return that another machine's clock is wrong, and the cure.

    >>> other_clock_text("the driver of group g", 7_200_000, "the broker's").partition(":")[0]
    "the clock of the driver of group g is 2.0 h ahead of the broker's"
    """
    return (
        f"the clock of {whose} is {difference_text(ahead_ms)} {reference}: set it right on that machine"
        f" ({_TIME_SERVER}); `windhover machinery` names the machine"
    )


def refused_time_text(now_ms: int, ahead_ms: int | None) -> str:
    """Return why a broker may have refused the time of a record, and what to do about it.

    Args:
        now_ms: what this machine's clock says.
        ahead_ms: None: the broker's time is unknown.
    """
    clock_says = f"this machine's clock says {time_text(now_ms)}"
    if ahead_ms is None:
        return (
            f"a clock may be wrong: {clock_says}, `windhover doctor` compares it with the broker's; if it"
            f" differs, {SET_CLOCK}; {LIMITS_OF_TOPICS}"
        )
    is_right = not wrong_clock_text(ahead_ms)
    if is_right:
        return f"no clock is wrong here, so the record itself is dated so; {LIMITS_OF_TOPICS}"
    return f"{clock_says}, and is {difference_text(ahead_ms)} the broker's: {SET_CLOCK}; {LIMITS_OF_TOPICS}"
