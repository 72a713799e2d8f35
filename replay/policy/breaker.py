"""The breaker: pauses an input before a worker turns all records of a broken stream into dead letters.

Each input has one breaker. It opens when `max_consecutive` records in a row became dead letters and one more
would; or when the next one would make more than `max_ratio` of the roots settled in a window dead letters, if
the window has enough of them.

The window is the last minute, say. A small stream settles few roots in a minute, and would never have enough.
So where they are fewer than `settled_min`, the window reaches back until it has so many: of ten records an
hour the last hundred count, which are those of ten hours.

When a breaker allows no more dead letters, the worker pauses the input
(`replay.worker.partition`), and a person resumes it. A breaker's counts are lost when the process ends.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from acker.units import duration_text

_BUCKET_MS: Final = 1_000


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Counts acked roots and dead letters of one input.

    Attributes:
        max_ratio: 0 to 1; highest share of dead letters among the roots settled in `window_ms`, or the last
            `settled_min`, if these go back further; with fewer than `dead_min` dead letters, or as long as
            there were not so many roots, the share does not count.
        why: why it is open; empty while it is closed.
    """

    max_ratio: float
    max_consecutive: int
    window_ms: int
    dead_min: int
    settled_min: int
    why: str = ""
    _consecutive: int = 0
    _buckets: deque[list[int]] = field(default_factory=deque)  # [begin in ms, acked, dead]

    def acked(self, count: int, now_ms: int) -> None:
        if count:
            self._consecutive = 0
            self._bucket(now_ms)[1] += count

    def dead(self, count: int, now_ms: int) -> None:
        if count:
            self._consecutive += count
            self._bucket(now_ms)[2] += count

    def room(self, now_ms: int) -> int:
        """Return how many more records may become dead letters now. At 0 it is open, and `why` is set."""
        acked, dead = self._window(now_ms)
        in_a_row, in_window = self._rooms(acked, dead)
        if in_a_row <= 0:
            self.why = (
                f"{self._consecutive} records in a row became dead letters and none was acked between them"
                f" (max_consecutive {self.max_consecutive})"
            )
        elif in_window <= 0:
            within = duration_text(self._reach_ms(now_ms))
            self.why = (
                f"{dead} of {acked + dead} roots settled within {within} became dead letters"
                f" (max_ratio {self.max_ratio})"
            )
        return max(0, min(in_a_row, in_window))

    def used(self, now_ms: int) -> float:
        """Return which share it has seen of the dead letters that it allows, 0 to 1; at 1 it opens."""
        acked, dead = self._window(now_ms)
        in_a_row, in_window = (max(0, room) for room in self._rooms(acked, dead))
        seen = (self._consecutive, in_a_row), (dead, in_window)
        return max(count / (count + room) if count else 0.0 for count, room in seen)

    def close(self) -> None:
        """Close the breaker and start to count again: a person has resumed the input."""
        self._consecutive = 0
        self._buckets.clear()
        self.why = ""

    def _window(self, now_ms: int) -> tuple[int, int]:
        """Return how many roots of the window were acked, and how many became dead letters."""
        self._forget(now_ms)
        return sum(bucket[1] for bucket in self._buckets), sum(bucket[2] for bucket in self._buckets)

    def _forget(self, now_ms: int) -> None:
        """Leave the window's oldest seconds, unless too few roots would be left in it."""
        settled = sum(acked + dead for _, acked, dead in self._buckets)
        while self._buckets and self._buckets[0][0] <= now_ms - self.window_ms:
            _, acked, dead = self._buckets[0]
            settled -= acked + dead
            if settled < self.settled_min:
                return
            self._buckets.popleft()

    def _reach_ms(self, now_ms: int) -> int:
        """Return over which time the window goes, in whole seconds."""
        reach_ms = max([self.window_ms, *(now_ms - begin_ms for begin_ms, _, _ in self._buckets)])
        return -(-reach_ms // _BUCKET_MS) * _BUCKET_MS

    def _rooms(self, acked: int, dead: int) -> tuple[int, int]:
        """Return how many more may die by each of the two rules."""
        in_a_row = self.max_consecutive - self._consecutive
        by_share = in_a_row
        if self.max_ratio < 1:
            by_share = int((self.max_ratio * (acked + dead) - dead) / (1 - self.max_ratio))
        return in_a_row, max(by_share, self.dead_min - dead, self.settled_min - acked - dead)

    def _bucket(self, now_ms: int) -> list[int]:
        begin_ms = now_ms - now_ms % _BUCKET_MS
        if not self._buckets or self._buckets[-1][0] < begin_ms:
            self._buckets.append([begin_ms, 0, 0])
        self._forget(now_ms)
        return self._buckets[-1]
