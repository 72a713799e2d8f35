"""Shows repeated events once a minute for each kind, so that a log stays readable in an outage."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

RECURRING_EVERY_S: Final = 60.0
"""How often events of one kind are shown, such as lines of librdkafka that differ only in their numbers."""

KINDS_MAX: Final = 1_000
"""How many kinds are remembered; then all are forgotten, and each may be shown once more."""


class OncePerKind:
    """Decides whether a repeated event is shown: one of each kind per period; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float], every_s: float = RECURRING_EVERY_S) -> None:
        self._clock = clock
        self._every_s = every_s
        self._shown: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, kind: Hashable) -> int | None:
        """Return how many of a kind were left out since the last one shown; None: leave this one out too."""
        now = self._clock()
        shown_s, left_out = self._shown.get(kind, (None, 0))
        if shown_s is not None and now - shown_s < self._every_s:
            self._shown[kind] = shown_s, left_out + 1
            return None
        if len(self._shown) >= KINDS_MAX:
            self._shown.clear()
        self._shown[kind] = now, 0
        return left_out
