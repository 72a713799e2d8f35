"""Compares this machine's clock with the broker's, by the times that the broker gives to records.

Kafka has no request for the broker's time. A topic with ``message.timestamp.type=LogAppendTime`` shows it: a
record there has the time at which the broker appended it. A record that a reader gets behind a poll that
brought nothing was appended meanwhile, so its time is the broker's of now. One measurement can be wrong: a
partition that gets a leader again brings old records. So the clocks differ only if all measurements of half a
minute say so.

All of it is pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from acker.clocks import wrong_clock_text
from acker.kafka.port import Record, TimestampType
from acker.units import time_text

CLOCKS_APART_MS: Final = 60_000
"""Clocks that differ by more are reported. What depends on wall clocks waits, or is refused, that much."""

WINDOW_MS: Final = 30_000
"""Measurements of so long decide."""

MEASUREMENTS_MIN: Final = 5

REPEAT_MS: Final = 600_000
"""So often it is said again that the clocks differ."""


class ClockWatch:
    """What the polls of one reader tell of the clocks.

    Attributes:
        ahead_ms: by how much this machine's clock is ahead of the broker's; negative: behind; 0: less than
            `CLOCKS_APART_MS`, or unknown.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._has_waited = False
        self._ages: deque[tuple[int, int]] = deque()  # when it was measured, and how old the record was
        self._reported_ms: int | None = None
        self._newest: tuple[int, int] | None = None  # when it was read, and when the broker appended it

    def polled(self, records: Sequence[Record], now_ms: int) -> str:
        """Take in what a poll brought, and return a sentence if the clocks differ, or agree again.

        Args:
            records: of topics with ``LogAppendTime``; others are passed over.
            now_ms: this machine's wall clock when they came.
        """
        has_waited, self._has_waited = self._has_waited, not records
        appended = [r.timestamp_ms for r in records if r.timestamp_type == TimestampType.APPENDED]
        if appended:
            self._newest = now_ms, max(appended)
        if not has_waited or not appended:
            return ""
        self._ages.append((now_ms, now_ms - max(appended)))
        while not 0 <= now_ms - self._ages[0][0] <= WINDOW_MS:
            self._ages.popleft()
        if len(self._ages) < MEASUREMENTS_MIN:
            return ""
        self.ahead_ms = self._difference_ms()
        return self._sentence(now_ms)

    def broker_ms(self, now_ms: int) -> int | None:
        """Return a time that the broker's clock has passed, and mostly not for long; None: nothing was read.

        It goes on from the newest record by this machine's clock, which may be wrong, but does not run wrong.
        """
        if self._newest is None:
            return None
        read_ms, appended_ms = self._newest
        return appended_ms + max(0, now_ms - read_ms)

    def _difference_ms(self) -> int:
        """Return the smallest difference of the window; 0 unless all of them are large, and of one sign."""
        ages_ms = [age_ms for _, age_ms in self._ages]
        if min(ages_ms) > CLOCKS_APART_MS:
            return min(ages_ms)
        if max(ages_ms) < -CLOCKS_APART_MS:
            return max(ages_ms)
        return 0

    def _sentence(self, now_ms: int) -> str:
        if not self.ahead_ms:
            had_differed, self._reported_ms = self._reported_ms is not None, None
            return "this machine's clock and the broker's agree again" if had_differed else ""
        if self._reported_ms is not None and 0 <= now_ms - self._reported_ms < REPEAT_MS:
            return ""
        self._reported_ms = now_ms
        return clocks_differ(self.ahead_ms, now_ms)


def clocks_differ(ahead_ms: int, now_ms: int) -> str:
    """Return the sentence that names both clocks and the cure; `ahead_ms` as in `ClockWatch`."""
    here, there = (time_text(ms // 1000 * 1000) for ms in (now_ms, now_ms - ahead_ms))
    return (
        f"{wrong_clock_text(ahead_ms)}: here it is {here}, there {there}; set the wrong one right (`chronyc"
        " tracking` shows whether a time server does)"
    )
