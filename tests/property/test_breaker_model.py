"""The breaker, against a model that keeps every root and counts them anew at each call."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from hypothesis import given
from hypothesis import strategies as st

from acker.units import duration_text
from replay.policy.breaker import Breaker

SECOND_MS = 1_000


@dataclass
class Settled:
    """Roots that settled in one second."""

    begin_ms: int
    acked: int = 0
    dead: int = 0


@dataclass
class BreakerModel:
    """What the breaker has to say, by all that ever settled; `ratio` has no rounding."""

    ratio: Fraction
    max_consecutive: int
    window_ms: int
    dead_min: int
    settled_min: int
    seconds: list[Settled] = field(default_factory=list)
    consecutive: int = 0

    def second(self, now_ms: int) -> Settled:
        begin_ms = now_ms // SECOND_MS * SECOND_MS
        if not self.seconds or self.seconds[-1].begin_ms != begin_ms:
            self.seconds.append(Settled(begin_ms))
        return self.seconds[-1]

    def window(self, now_ms: int) -> list[Settled]:
        """Return the seconds of the window, the newest first; older ones only while there are too few."""
        window: list[Settled] = []
        settled = 0
        for second in reversed(self.seconds):
            if second.begin_ms <= now_ms - self.window_ms and settled >= self.settled_min:
                break
            window.append(second)
            settled += second.acked + second.dead
        return window

    def rooms(self, now_ms: int) -> tuple[int, int]:
        """Return how many more may die in a row, and how many in the window."""
        window = self.window(now_ms)
        acked = sum(second.acked for second in window)
        dead = sum(second.dead for second in window)
        in_a_row = self.max_consecutive - self.consecutive
        by_share = in_a_row
        if self.ratio < 1:
            # the largest n for which dead + n is not above ratio * (acked + dead + n)
            by_share = floor((self.ratio * (acked + dead) - dead) / (1 - self.ratio))
        return in_a_row, max(by_share, self.dead_min - dead, self.settled_min - acked - dead)

    def used(self, now_ms: int) -> Fraction:
        dead = sum(second.dead for second in self.window(now_ms))
        in_a_row, in_window = self.rooms(now_ms)
        shares = [Fraction(0)]
        if self.consecutive:
            shares.append(Fraction(self.consecutive, self.consecutive + max(0, in_a_row)))
        if dead:
            shares.append(Fraction(dead, dead + max(0, in_window)))
        return max(shares)

    def why(self, now_ms: int) -> str:
        """Return why the breaker is open; empty: it is closed."""
        in_a_row, in_window = self.rooms(now_ms)
        if in_a_row <= 0:
            return (
                f"{self.consecutive} records in a row became dead letters and none was acked between them"
                f" (max_consecutive {self.max_consecutive})"
            )
        if in_window > 0:
            return ""
        window = self.window(now_ms)
        acked = sum(second.acked for second in window)
        dead = sum(second.dead for second in window)
        reach_ms = max([self.window_ms, *(now_ms - second.begin_ms for second in window)])
        whole_seconds_ms = (reach_ms + SECOND_MS - 1) // SECOND_MS * SECOND_MS
        return (
            f"{dead} of {acked + dead} roots settled within {duration_text(whole_seconds_ms)}"
            f" became dead letters (max_ratio {float(self.ratio)})"
        )


calls = st.tuples(
    st.sampled_from(["acked", "dead", "dead", "used", "room", "room", "close"]),
    st.integers(0, 6),
    # at the same moment, in the same second, at the borders of seconds and of the window, after hours
    st.sampled_from([0, 1, 300, 999, 1_000, 1_001, 2_000, 2_500, 3_000, 4_000, 10_000, 3_600_000]),
)


@given(
    ratio=st.sampled_from([Fraction(twentieths, 20) for twentieths in (0, 2, 5, 10, 14, 15, 18, 20)]),
    max_consecutive=st.sampled_from([1, 3, 10, 1_000]),
    window_ms=st.sampled_from([1_000, 2_000, 3_000]),
    dead_min=st.sampled_from([0, 1, 4]),
    settled_min=st.sampled_from([0, 1, 5, 12]),
    history=st.lists(calls, max_size=40),
)
def test_the_breaker_counts_what_its_window_holds(
    ratio: Fraction,
    max_consecutive: int,
    window_ms: int,
    dead_min: int,
    settled_min: int,
    history: list[tuple[str, int, int]],
) -> None:
    """D603: windows of seconds and of the last roots, rows that an ack ends, and what a person resumed."""
    limits = (max_consecutive, window_ms, dead_min, settled_min)
    breaker = Breaker(
        max_ratio=float(ratio),
        max_consecutive=max_consecutive,
        window_ms=window_ms,
        dead_min=dead_min,
        settled_min=settled_min,
    )
    model = BreakerModel(ratio, *limits)
    now_ms = 1_700_000_000_000
    for call, count, later_ms in history:
        now_ms += later_ms
        if call == "acked" and count:
            model.consecutive = 0
            model.second(now_ms).acked += count
        if call == "dead" and count:
            model.consecutive += count
            model.second(now_ms).dead += count
        if call == "close":
            model = BreakerModel(ratio, *limits)
            breaker.close()
            assert breaker.why == ""
        elif call == "used":
            assert abs(breaker.used_share(now_ms) - model.used(now_ms)) < 1e-9
        elif call == "room":
            assert breaker.allow_letters_or_open(now_ms) == max(0, min(model.rooms(now_ms)))
            assert model.why(now_ms) in ("", breaker.why)
            assert (breaker.why == "") <= (model.why(now_ms) == "")
        else:
            (breaker.count_acked if call == "acked" else breaker.count_dead)(count, now_ms)
