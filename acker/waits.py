"""Decides when a wait is long enough for a line in the log, and when for the next one; pure.

A process that waits calls `LongWait.look` each time that it looks whether its wait is over, and `over` when
it is. Where `look` returns a time, the process logs one line: for how long it has waited, for what, and what
helps. So a wait of an hour has sixty lines, and one of a second has none.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

LOGGED_EVERY_MS: Final = 60_000
"""A wait is logged after a minute, and then each minute."""


class LongWait:
    """Measures the waits of a process, one after another."""

    def __init__(self, first_ms: int = LOGGED_EVERY_MS, every_ms: int = LOGGED_EVERY_MS) -> None:
        """Begin without a wait; one is logged after `first_ms`, then every `every_ms`."""
        self._first_ms = first_ms
        self._every_ms = every_ms
        self._reason: Hashable = None
        self._began_ms: int | None = None
        self._next_line_ms = 0

    def look(self, reason: Hashable, now_ms: int) -> int | None:
        """Note that the process waits for a `reason`; return for how long, ms, if it is time for a line.

        Args:
            reason: what it waits for, and how far that has come: another reason begins another wait.
            now_ms: the time by any clock, as long as it is always the same one.

        Returns:
            None: it is not time for a line.
        """
        # a clock that was set back by an hour begins another wait: else no line would come for that hour
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
        self._reason = self._began_ms = None
