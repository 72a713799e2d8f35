"""When a wait is long enough to be said, and when it is said again; pure.

Whoever waits calls `LongWait.look` each time that it looks whether its wait is over, and `over` when it is.
Where `look` returns a time, it writes one line: for how long it has waited, for what, and what helps. So a
process that stands still for an hour has said so sixty times, and one that waits for a second says nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

LOGGED_EVERY_MS: Final = 60_000
"""A wait is said after a minute, and then each minute."""


class LongWait:
    """One wait after another of one process."""

    def __init__(self, first_ms: int = LOGGED_EVERY_MS, every_ms: int = LOGGED_EVERY_MS) -> None:
        """Wait for nothing yet; what lasts is said after `first_ms`, then every `every_ms`."""
        self._first_ms = first_ms
        self._every_ms = every_ms
        self._reason: Hashable = None
        self._began_ms: int | None = None
        self._say_ms = 0

    def look(self, reason: Hashable, now_ms: int) -> int | None:
        """Take note that the process waits for a `reason`; return for how long, ms, where that is to be said.

        Args:
            reason: what it waits for, and how far that has come: a wait for another one begins anew.
            now_ms: of any clock, as long as it is always the same one.

        Returns:
            None: it is not to be said now.
        """
        # with a clock that was set back it begins anew, too: else it would be silent for as long as that
        if self._began_ms is None or reason != self._reason or now_ms < self._began_ms:
            self._reason, self._began_ms, self._say_ms = reason, now_ms, now_ms + self._first_ms
        if now_ms < self._say_ms:
            return None
        self._say_ms = now_ms + self._every_ms
        return now_ms - self._began_ms

    def waited_ms(self, now_ms: int) -> int:
        """Return how long the present wait lasts; 0 where there is none."""
        return 0 if self._began_ms is None else max(0, now_ms - self._began_ms)

    def over(self) -> None:
        """End the wait: the next one begins anew."""
        self._reason = self._began_ms = None
