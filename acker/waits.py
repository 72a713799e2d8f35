"""Decides when a wait is long enough: for a line in the log, for the next one, or to end it; pure.

A process that waits calls `LongWait.record_wait` each time that it looks
whether its wait is over, and `over` when it is. Where `record_wait` returns a
time, the process logs one line: for how long it has waited, for what, and what helps. So a wait
of an hour has sixty lines, and one of a second has none.

Where a wait ends by itself, with an error say, no wall clock measures it: one
that is set ahead by an hour has not made anybody wait for an hour. What looks
several times a second takes `PassedTime`; what may do something else for long
in between takes a clock that nobody can set, `steady_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

LOGGED_EVERY_MS: Final = 60_000
"""A wait is logged after a minute, and then each minute."""


SteadyMs = Callable[[], int]
"""Returns the time in ms by a clock that nobody can set; only differences of two readings say something."""


def steady_ms() -> int:
    """Return the time as `SteadyMs` does."""
    return time.monotonic_ns() // 1_000_000


class LongWait:
    """Measures the waits of a process, one after another."""

    def __init__(self, first_ms: int = LOGGED_EVERY_MS, every_ms: int = LOGGED_EVERY_MS) -> None:
        """Begin without a wait; one is logged after `first_ms`, then every `every_ms`."""
        self._first_ms = first_ms
        self._every_ms = every_ms
        self._reason: Hashable = None
        self._began_ms: int | None = None
        self._next_line_ms = 0  # when a line of the log is due

    def record_wait(self, reason: Hashable, now_ms: int) -> int | None:
        """Record that the wait for a `reason` goes on.

        Returns how long it is, ms, if a line is to be logged.

        Args:
            reason: what the process waits for, and how far that has come:
                another reason begins another wait.
            now_ms: the time by any clock, as long as it is always the same
                one.

        Returns:
            None: it is not time for a line of the log.
        """
        # a clock that was set back by an hour begins another wait: else no
        # line would come for that hour
        if self._began_ms is None or reason != self._reason or now_ms < self._began_ms:
            self._reason = reason
            self._began_ms = now_ms
            self._next_line_ms = now_ms + self._first_ms
        if now_ms < self._next_line_ms:
            return None
        self._next_line_ms = now_ms + self._every_ms
        return now_ms - self._began_ms

    def waited_ms(self, now_ms: int) -> int:
        """Return how long the present wait has lasted; 0 if there is none."""
        return 0 if self._began_ms is None else max(0, now_ms - self._began_ms)

    def over(self) -> None:
        """End the wait: the next one begins anew."""
        self._reason = None
        self._began_ms = None


READING_MS_MAX: Final = 1_000
"""A process that looks all the time counts at most this much between two readings of a clock."""


class PassedTime:
    """The time that has passed for a process, measured with a wall clock that may be set meanwhile.

    It goes by slower than the clock where readings lie further apart than
    that: the process was busy, or its machine slept, and did not look whether
    its wait is over.
    """

    __slots__ = ("_between_ms_max", "_read_ms", "ms")

    def __init__(self, now_ms: int | None = None, between_ms_max: int = READING_MS_MAX) -> None:
        """Begin at 0 now; None: with the first reading.

        `between_ms_max`: so much passes between two readings at most,
        whatever the clock shows.
        """
        self.ms = 0
        self._read_ms = now_ms
        self._between_ms_max = between_ms_max

    def read(self, now_ms: int) -> int:
        """Count the time since the last reading of the clock; return how much has passed in all, ms."""
        if self._read_ms is not None:
            self.ms += min(self._between_ms_max, max(0, now_ms - self._read_ms))
        self._read_ms = now_ms
        return self.ms


class LastTime:
    """When a process did something last that it does from time to time, by wall clock.

    A clock that was set back makes it due at once: else nothing would be done for as long as that.

    >>> commits = LastTime()
    >>> [commits.begin_if_due(now_ms, every_ms=3_000) for now_ms in (10_000, 12_999, 13_000, 5_000)]
    [True, False, True, True]

    Attributes:
        at_ms: when that was, ms; None: never, so that it is due.
    """

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int | None = None) -> None:
        """Begin with what was done at a time; None: never."""
        self.at_ms = at_ms

    def is_due(self, now_ms: int, every_ms: int) -> bool:
        """Return whether to do it again, where it is done every so many ms."""
        return self.at_ms is None or not 0 <= now_ms - self.at_ms < every_ms

    def begin_if_due(self, now_ms: int, every_ms: int) -> bool:
        """Return whether to do it again now; if so, record that it is done."""
        is_due = self.is_due(now_ms, every_ms)
        if is_due:
            self.at_ms = now_ms
        return is_due


class SilentBroker:
    """For how long a broker has answered nothing, by a clock that nobody can set."""

    def __init__(self, clock_ms: SteadyMs) -> None:
        self._clock_ms = clock_ms
        self._since_ms: int | None = None

    def record_failure(self) -> bool:
        """Record that a call was not answered; return whether it is the first one of a silence."""
        is_first = self._since_ms is None
        if self._since_ms is None:
            self._since_ms = self._clock_ms()
        return is_first

    def record_answer(self) -> None:
        """Record that a call was answered: a silence is over."""
        self._since_ms = None

    @property
    def silent_ms(self) -> int:
        """Milliseconds since the first call that was not answered; 0: all was answered."""
        return 0 if self._since_ms is None else self._clock_ms() - self._since_ms
