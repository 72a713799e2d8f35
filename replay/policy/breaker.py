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

import math
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from acker.units import duration_text

_SECOND_MS: Final = 1_000
"""Roots are counted by the second in which they were settled."""


@dataclass(slots=True)
class _SettledInSecond:
    """How many roots were acked, and how many became dead letters, in one second.

    `begin_ms` is where that began, wall time.
    """

    begin_ms: int
    acked: int = 0
    dead: int = 0

    @property
    def settled(self) -> int:
        """How many were settled in one way or the other."""
        return self.acked + self.dead


class _SettledInWindow(NamedTuple):
    """How many roots of the window were acked, and how many became dead letters."""

    acked: int
    dead: int

    @property
    def settled(self) -> int:
        """How many were settled in one way or the other."""
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

    Private are how many became dead letters since a root was acked, and what
    was settled in each second of the window, the oldest first.
    """

    max_ratio: float
    max_consecutive: int
    window_ms: int
    dead_min: int
    settled_min: int
    why: str = ""
    _dead_in_a_row: int = 0
    _seconds: deque[_SettledInSecond] = field(default_factory=deque)

    def count_acked(self, count: int, now_ms: int) -> None:
        """Record that so many roots were acked."""
        if count:
            self._dead_in_a_row = 0
            self._second_of_now(now_ms).acked += count

    def count_dead(self, count: int, now_ms: int) -> None:
        """Record that so many records became dead letters."""
        if count:
            self._dead_in_a_row += count
            self._second_of_now(now_ms).dead += count

    def allow_letters_or_open(self, now_ms: int) -> int:
        """Return how many more records may become dead letters now; if none, open the breaker.

        An open breaker has a text in `why`: which of the two rules allows no
        more. The text stays until `close`. With 3 more allowed in a row and 5
        in the window, 3 are returned, and the breaker stays as it is.
        """
        self._forget_old(now_ms)
        # each is 0 or less if its rule allows no more
        allowed_in_a_row = self._more_letters_allowed_in_a_row()
        allowed_in_window = self._more_letters_allowed_by_share()
        if allowed_in_a_row <= 0:
            self.why = (
                f"{self._dead_in_a_row} records in a row became dead letters and none was acked between them"
                f" (max_consecutive {self.max_consecutive})"
            )
        elif allowed_in_window <= 0:
            in_window = self._settled_in_window()
            window_text = duration_text(self._window_length_ms(now_ms))
            self.why = (
                f"{in_window.dead} of {in_window.settled} roots settled within {window_text} became"
                f" dead letters (max_ratio {self.max_ratio})"
            )
        return max(0, min(allowed_in_a_row, allowed_in_window))

    def used_share(self, now_ms: int) -> float:
        """Return how close it is to opening: 0 without dead letters, 1 if none is allowed any more.

        With 3 dead letters in a row and 1 more that is allowed it is 3/4. Of
        its two rules, the row and the window, the one that is closer counts.
        """
        self._forget_old(now_ms)
        dead_in_window = self._settled_in_window().dead
        used_in_a_row = _used_share(self._dead_in_a_row, self._more_letters_allowed_in_a_row())
        used_in_window = _used_share(dead_in_window, self._more_letters_allowed_by_share())
        return max(used_in_a_row, used_in_window)

    def close(self) -> None:
        """Close the breaker and start to count again: a person has resumed the input."""
        self._dead_in_a_row = 0
        self._seconds.clear()
        self.why = ""

    def _settled_in_window(self) -> _SettledInWindow:
        """Count the roots that were settled in the window."""
        acked = sum(second.acked for second in self._seconds)
        dead = sum(second.dead for second in self._seconds)
        return _SettledInWindow(acked, dead)

    def _forget_old(self, now_ms: int) -> None:
        """Forget seconds older than the window, but keep those of the last `settled_min` roots."""
        settled_count = sum(second.settled for second in self._seconds)
        while self._seconds:
            oldest = self._seconds[0]
            settled_count -= oldest.settled  # so many are left without it
            if oldest.begin_ms > now_ms - self.window_ms:  # it is in the window still
                return
            if settled_count < self.settled_min:  # the window reaches back to it
                return
            self._seconds.popleft()

    def _window_length_ms(self, now_ms: int) -> int:
        """Return how far back the window goes, rounded up to whole seconds, in ms.

        That is further than `window_ms` where it reaches back to the last
        `settled_min` roots.
        """
        ages_ms = [now_ms - second.begin_ms for second in self._seconds]
        length_ms = max([self.window_ms, *ages_ms])
        seconds = math.ceil(length_ms / _SECOND_MS)
        return seconds * _SECOND_MS

    def _more_letters_allowed_in_a_row(self) -> int:
        """Return how many more may die by `max_consecutive`; below 0 more have died than it allows."""
        return self.max_consecutive - self._dead_in_a_row

    def _more_letters_allowed_by_share(self) -> int:
        """Return how many more roots may die by the rule of `max_ratio`; 0 or less: none.

        With n more dead letters the share is (dead + n) / (acked + dead + n),
        which may be `max_ratio` at most. With a ratio of 0.5, 10 acked and 4
        dead 6 more are allowed: then 10 of 20 are dead.
        """
        in_window = self._settled_in_window()
        dead, settled = in_window.dead, in_window.settled
        # with a ratio of 1 the share allows any number, and to divide by 1 - 1 fails
        if self.max_ratio < 1:
            # exact, so that of 199 settled and 139 dead a ratio of 0.7 allows one more: 140 of 200
            ratio = Fraction(str(self.max_ratio))
            allowed_by_share = int((ratio * settled - dead) / (1 - ratio))
        else:
            # any share is allowed, so the other rule decides
            allowed_by_share = self._more_letters_allowed_in_a_row()
        # The rule needs `dead_min` dead letters and `settled_min` settled roots:
        # what is missing to either is allowed in any case. A further dead letter
        # counts for both.
        return max(allowed_by_share, self.dead_min - dead, self.settled_min - settled)

    def _second_of_now(self, now_ms: int) -> _SettledInSecond:
        """Return the counts of the present second; begin to count it if nobody has.

        A clock that was set back counts into the latest second.
        """
        begin_ms = now_ms - now_ms % _SECOND_MS
        if not self._seconds or self._seconds[-1].begin_ms < begin_ms:
            self._seconds.append(_SettledInSecond(begin_ms))
        self._forget_old(now_ms)
        return self._seconds[-1]


def _used_share(dead_count: int, allowed_count: int) -> float:
    """Return which share of the allowed dead letters there were.

    There were `dead_count`, and `allowed_count` more are allowed; 0 or less:
    none is.
    """
    if not dead_count:
        return 0.0
    return dead_count / (dead_count + max(0, allowed_count))
