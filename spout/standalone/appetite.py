"""How many records are kept ready for the clients of an input; pure.

A planned record is pending, and its timeout runs. So only as many are planned as clients request now, and as
many again as they opened a short time before. Without clients nothing is planned, and a client that opens
records all the time need not wait for a plan.

Source: docs/design/protocol.md, section 5.1; the quarter of the timeout that a batch of Spark may take.
"""

from __future__ import annotations

WINDOW_MS_MAX = 1_000
"""As many records are kept ready as were opened within this time; a short timeout makes it shorter."""

TIMEOUT_SHARE = 8
"""A record that is ready waits for at most about this fraction of the timeout."""

AHEAD_MAX = 20_000
"""At most this many records are ready before a client requests any."""


class Appetite:
    """Measures how many records clients open."""

    __slots__ = ("_before", "_began_ms", "_now", "_window_ms")

    def __init__(self, timeout_ms: int) -> None:
        """Begin with no record opened.

        Args:
            timeout_ms: of the input's roots; 0: they have none.
        """
        self._window_ms = min(WINDOW_MS_MAX, timeout_ms // TIMEOUT_SHARE) if timeout_ms else WINDOW_MS_MAX
        self._began_ms = 0
        self._before = self._now = 0

    def opened(self, count: int, now_ms: int) -> None:
        """Add `count` records that were opened."""
        self._turn(now_ms)
        self._now += count

    def missed(self, count: int, now_ms: int) -> None:
        """Note a request for `count` records when none was ready; a client that does not wait calls again."""
        self._turn(now_ms)
        self._now = max(self._now, count)

    def ahead(self, now_ms: int) -> int:
        """Return how many records to keep ready before a client requests them."""
        self._turn(now_ms)
        return min(AHEAD_MAX, max(self._before, self._now))

    def _turn(self, now_ms: int) -> None:
        """Begin a new window if the last one is over."""
        past_ms = now_ms - self._began_ms
        if 0 <= past_ms < self._window_ms:
            return
        self._before = self._now if self._window_ms <= past_ms < 2 * self._window_ms else 0
        self._now = 0
        self._began_ms = now_ms
