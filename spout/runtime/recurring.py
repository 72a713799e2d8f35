"""What recurs is told once a minute: of each kind, so that a log can be read in an outage."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

RECURRING_EVERY_S: Final = 60.0
"""What recurs, as librdkafka's lines that differ in their figures alone, is told once in so long."""

KINDS_MAX: Final = 1_000
"""So many kinds are told apart; then each may be told once more."""


class OncePerKind:
    """Says of each thing that recurs whether it is to be told: of each kind once in so long."""

    def __init__(self, clock: Callable[[], float], every_s: float = RECURRING_EVERY_S) -> None:
        """Begin with nothing told.

        Args:
            clock: monotonic seconds.
            every_s: seconds between two of a kind.
        """
        self._clock = clock
        self._every_s = every_s
        self._told: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, kind: Hashable) -> int | None:
        """Return how many of a kind were left out since the last that was told; None: leave this out too."""
        now = self._clock()
        told, left_out = self._told.get(kind, (None, 0))
        if told is not None and now - told < self._every_s:
            self._told[kind] = told, left_out + 1
            return None
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = now, 0
        return left_out
