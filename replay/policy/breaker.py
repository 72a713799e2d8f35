"""The breaker: pauses an input before a worker turns all records of a broken stream into dead letters.

Each input has one breaker. It opens when `max_consecutive` records in a row
became dead letters and one more would; or when the next one would make more
than `max_ratio` of the roots settled in a window dead letters, if the window
has enough of them.

The window is the last minute, say. A small stream settles few roots in a
minute, and would never have enough. So where they are fewer than
`settled_min`, the window reaches back until it has so many: of ten records an
hour the last hundred count, which are those of ten hours.

When a breaker allows no more dead letters, the worker pauses the input
(`replay.worker.partition`), and a person resumes it. A breaker's counts are
lost when the process ends.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from acker.units import duration_text

_BUCKET_MS: Final = 1_000
"""Roots are counted by the second in which they were settled."""


@dataclass(slots=True)
class _Bucket:
    """How many roots were acked, and how many became dead letters, in the second that began at a time."""

    begin_ms: int
    acked: int = 0
    dead: int = 0

    @property
    def settled(self) -> int:
        return self.acked + self.dead


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Counts acked roots and dead letters of one input.

    Attributes:
        max_consecutive: so many dead letters in a row are allowed, with no
            acked root between them.
        max_ratio: 0 to 1; highest share of dead letters among the roots
            settled in `window_ms`, or the last `settled_min`, if these go back
            further; with fewer than `dead_min` dead letters, or as long as
            there were not so many roots, the share does not count.
        why: why it is open; empty while it is closed.
    """

    max_ratio: float
    max_consecutive: int
    window_ms: int
    dead_min: int
    settled_min: int
    why: str = ""
    _dead_in_a_row: int = 0
    _buckets: deque[_Bucket] = field(default_factory=deque)  # of the window, the oldest first

    def count_acked(self, count: int, now_ms: int) -> None:
        """Record that so many roots were acked."""
        if count:
            self._dead_in_a_row = 0
            self._bucket_of_now(now_ms).acked += count

    def count_dead(self, count: int, now_ms: int) -> None:
        """Record that so many records became dead letters."""
        if count:
            self._dead_in_a_row += count
            self._bucket_of_now(now_ms).dead += count

    def allowed_letters(self, now_ms: int) -> int:
        """Return how many more records may become dead letters now; if none, open it, and set
        `why`.
        """
        self._forget_old(now_ms)
        allowed_in_a_row = self._allowed_in_a_row()
        allowed_in_window = self._allowed_in_window()
        if allowed_in_a_row <= 0:
            self.why = (
                f"{self._dead_in_a_row} records in a row became dead letters and none was acked between them"
                f" (max_consecutive {self.max_consecutive})"
            )
        elif allowed_in_window <= 0:
            acked, dead = self._counts()
            window = duration_text(self._reach_ms(now_ms))
            self.why = (
                f"{dead} of {acked + dead} roots settled within {window} became dead letters"
                f" (max_ratio {self.max_ratio})"
            )
        return max(0, min(allowed_in_a_row, allowed_in_window))

    def used_share(self, now_ms: int) -> float:
        """Return how close it is to opening: 0 without dead letters, 1 if none is allowed any more.

        With 3 dead letters in a row and 1 more that is allowed it is 3/4. Of
        its two rules, the row and the window, the one that is closer counts.
        """
        self._forget_old(now_ms)
        _, dead_in_window = self._counts()
        used_in_a_row = _used_share(self._dead_in_a_row, self._allowed_in_a_row())
        used_in_window = _used_share(dead_in_window, self._allowed_in_window())
        return max(used_in_a_row, used_in_window)

    def close(self) -> None:
        """Close the breaker and start to count again: a person has resumed the input."""
        self._dead_in_a_row = 0
        self._buckets.clear()
        self.why = ""

    def _counts(self) -> tuple[int, int]:
        """Return how many roots of the window were acked, and how many became dead letters."""
        acked = sum(bucket.acked for bucket in self._buckets)
        dead = sum(bucket.dead for bucket in self._buckets)
        return acked, dead

    def _forget_old(self, now_ms: int) -> None:
        """Forget seconds that are older than the window, unless too few roots would be left in it."""
        settled = sum(bucket.settled for bucket in self._buckets)
        while self._buckets and self._buckets[0].begin_ms <= now_ms - self.window_ms:
            settled -= self._buckets[0].settled
            if settled < self.settled_min:
                return
            self._buckets.popleft()

    def _reach_ms(self, now_ms: int) -> int:
        """Return how far back the window goes, rounded up to whole seconds."""
        ages_ms = [now_ms - bucket.begin_ms for bucket in self._buckets]
        reach_ms = max([self.window_ms, *ages_ms])
        return -(-reach_ms // _BUCKET_MS) * _BUCKET_MS

    def _allowed_in_a_row(self) -> int:
        """Return how many more may die by `max_consecutive`; below 0 more have died than it allows."""
        return self.max_consecutive - self._dead_in_a_row

    def _allowed_in_window(self) -> int:
        """Return how many more may die by `max_ratio`, or since there are too few roots for a share.

        With n more dead letters the share is (dead + n) / (acked + dead + n),
        which may be `max_ratio` at most. With a ratio of 0.5, 10 acked and 4
        dead 6 more are allowed: then 10 of 20 are dead.
        """
        acked, dead = self._counts()
        settled = acked + dead
        if self.max_ratio < 1:
            allowed_by_share = int((self.max_ratio * settled - dead) / (1 - self.max_ratio))
        else:
            allowed_by_share = self._allowed_in_a_row()  # any share is allowed, so the other rule decides
        return max(allowed_by_share, self.dead_min - dead, self.settled_min - settled)

    def _bucket_of_now(self, now_ms: int) -> _Bucket:
        """Return the bucket of the present second; begin one if there is none."""
        begin_ms = now_ms - now_ms % _BUCKET_MS
        if not self._buckets or self._buckets[-1].begin_ms < begin_ms:
            self._buckets.append(_Bucket(begin_ms))
        self._forget_old(now_ms)
        return self._buckets[-1]


def _used_share(dead_count: int, allowed_count: int) -> float:
    """Return which share of the allowed dead letters there were; `allowed_count` more are (none
    below 0).
    """
    if not dead_count:
        return 0.0
    return dead_count / (dead_count + max(0, allowed_count))
