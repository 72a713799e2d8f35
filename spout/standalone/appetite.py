"""How many records to have ready for the clients of an input; pure.

A record that is planned is pending, and its timeout runs. So no more are planned than clients ask for now,
and as many again as they opened within a short while before: with nobody there nothing is planned, and a
client that keeps on opening need not wait for a plan.

Source: docs/design/protocol.md, section 5.1; the quarter of the timeout that a batch of Spark may take.
"""

from __future__ import annotations

WINDOW_MS_MAX = 1_000
"""As many records are kept ready as were opened within this time, or less where the timeout is short."""

TIMEOUT_SHARE = 8
"""What is ready waits for at most about this fraction of the timeout."""

AHEAD_MAX = 20_000
"""Never more than this are ready before somebody asks."""


class Appetite:
    """Measures what is opened."""

    __slots__ = ("_before", "_began_ms", "_now", "_window_ms")

    def __init__(self, timeout_ms: int) -> None:
        """Begin with nothing opened.

        Args:
            timeout_ms: of the input's roots; 0: never.
        """
        self._window_ms = min(WINDOW_MS_MAX, timeout_ms // TIMEOUT_SHARE) if timeout_ms else WINDOW_MS_MAX
        self._began_ms = 0
        self._before = self._now = 0

    def opened(self, count: int, now_ms: int) -> None:
        """Note that records were opened."""
        self._turn(now_ms)
        self._now += count

    def missed(self, count: int, now_ms: int) -> None:
        """Note that so many were asked for when there was none; a client that does not wait comes again."""
        self._turn(now_ms)
        self._now = max(self._now, count)

    def ahead(self, now_ms: int) -> int:
        """Return how many records to have ready before somebody asks."""
        self._turn(now_ms)
        return min(AHEAD_MAX, max(self._before, self._now))

    def _turn(self, now_ms: int) -> None:
        """Begin a new window where the last one is over."""
        past_ms = now_ms - self._began_ms
        if 0 <= past_ms < self._window_ms:
            return
        self._before = self._now if self._window_ms <= past_ms < 2 * self._window_ms else 0
        self._now = 0
        self._began_ms = now_ms
