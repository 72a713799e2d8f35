"""Compares this machine's clock with the broker's, by the times that the broker gives to records.

Kafka has no request for the broker's time. A topic with
``message.timestamp.type=LogAppendTime`` shows it: a record there has the time
at which the broker appended it. A record that a reader gets after a poll that
brought nothing was appended meanwhile, so its time is the broker's of now.
One measurement can be wrong: a partition that gets a leader again brings old
records. So the clocks differ only if all measurements of half a minute say
so.

All of it is pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from acker.clocks import clocks_differ
from acker.kafka.port import Record, TimestampType

CLOCKS_APART_MS: Final = 60_000
"""Clocks that differ by more are reported. What depends on wall clocks waits, or is refused, that much."""

WINDOW_MS: Final = 30_000
"""Measurements of the last half minute decide."""

MEASUREMENTS_MIN: Final = 5
"""With fewer in the window nothing is decided: one old record must not be able to name a clock wrong."""

REPEAT_MS: Final = 600_000
"""While the clocks differ, this is reported again each ten minutes."""

SKEW_MS_MAX: Final = 2_000
"""Ticks move the clock of timeouts every 500 ms, and replays are due by the second."""


class Measurement(NamedTuple):
    """The age of a record that came at once: how far this machine's clock is ahead, plus its way here."""

    measured_ms: int
    age_ms: int


class NewestRecord(NamedTuple):
    """The newest record that was read: when by this machine's clock, and when the broker appended it."""

    read_ms: int
    appended_ms: int


class ClockWatch:
    """Follows the polls of one reader, and measures how far this machine's clock is from the broker's.

    Attributes:
        ahead_ms: by how much this machine's clock is ahead of the broker's;
            negative: behind; 0: less than `CLOCKS_APART_MS`, or unknown.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._was_poll_empty = False
        self._measurements: deque[Measurement] = deque()
        self._reported_ms: int | None = None
        self._newest_record: NewestRecord | None = None

    def compare(self, records: Sequence[Record], now_ms: int) -> str:
        """Compare the clocks by what a poll brought.

        Returns a sentence if they differ, or agree again.

        Args:
            records: of topics with ``LogAppendTime``; others are passed over.
            now_ms: this machine's wall clock when they came.

        Returns:
            Empty: there is nothing to report.
        """
        # only what comes behind an empty poll is new: the records of a
        # backlog are old by any clock
        has_waited = self._was_poll_empty
        self._was_poll_empty = not records
        appended_ms = (r.timestamp_ms for r in records if r.timestamp_type == TimestampType.APPENDED)
        newest_ms = max(appended_ms, default=None)
        if newest_ms is not None:
            self._newest_record = NewestRecord(now_ms, newest_ms)
        if not has_waited or newest_ms is None:
            return ""
        self._measurements.append(Measurement(now_ms, now_ms - newest_ms))
        self._forget_outside_window(now_ms)
        if len(self._measurements) < MEASUREMENTS_MIN:
            return ""
        self.ahead_ms = self._difference_ms()
        return self._sentence_to_report(now_ms)

    def broker_ms(self, now_ms: int) -> int | None:
        """Return a time that the broker's clock shows or has passed; None: no record was read yet.

        It is behind the broker's clock by the time from the append of the
        newest record to its read: some ms as a rule, more where old records
        are read.

        This machine's clock may show a wrong time, but a minute of it is a
        minute. So the time since the newest record was read is added to the
        time at which the broker appended it. Example: appended at 12:00:00,
        read at 14:00:01 by this clock, which now shows 14:00:05: it is
        12:00:04.
        """
        if self._newest_record is None:
            return None
        # a clock that was set back adds nothing, since the broker's time does
        # not go back
        since_read_ms = max(0, now_ms - self._newest_record.read_ms)
        return self._newest_record.appended_ms + since_read_ms

    def _forget_outside_window(self, now_ms: int) -> None:
        """Remove the measurements that are older than `WINDOW_MS`; the newest one stays."""
        # a clock that was set back leaves measurements of the future, which
        # tell nothing either
        while not 0 <= now_ms - self._measurements[0].measured_ms <= WINDOW_MS:
            self._measurements.popleft()

    def _difference_ms(self) -> int:
        """Return how far this clock is ahead by the measurements.

        0 unless all are large, and of one sign. That is the smallest of them;
        negative: this clock is behind.

        Ages of 65, 63 and 70 s give 63 s; 65, 63 and 2 s give 0, since one
        record shows that all is well.
        """
        ages_ms = [measurement.age_ms for measurement in self._measurements]
        if min(ages_ms) > CLOCKS_APART_MS:
            return min(ages_ms)
        if max(ages_ms) < -CLOCKS_APART_MS:
            return max(ages_ms)
        return 0

    def _sentence_to_report(self, now_ms: int) -> str:
        """Return a sentence on whether the clocks differ by now; empty: that was reported already.

        While they differ it is returned again every `REPEAT_MS`.
        """
        had_differed = self._reported_ms is not None
        if not self.ahead_ms:
            self._reported_ms = None
            return "this machine's clock and the broker's agree again" if had_differed else ""
        if self._reported_ms is not None and 0 <= now_ms - self._reported_ms < REPEAT_MS:
            return ""
        self._reported_ms = now_ms
        return clocks_differ(self.ahead_ms, now_ms)


class Poll(NamedTuple):
    """A look at the newest record.

    Attributes:
        begun_ms, answered_ms: when it was asked for, and when the answer
            came, by our clock.
        newest_ms: the record's time by the other clock; -1: there was none.
    """

    begun_ms: int
    answered_ms: int
    newest_ms: int


def skew_ms(polls: Sequence[Poll]) -> int | None:
    """Return by how much another clock is ahead of ours at least, in ms; negative: behind.

    The polls show the times that the other clock gave to newest records. Of
    several records the one that differs least counts: a record that a busy
    broker shows late seems to come from a clock that is behind. None: no record
    was written between the polls.
    """
    skews_ms: list[int] = []
    for former_poll, poll in pairwise(polls):
        if poll.newest_ms == former_poll.newest_ms:  # nothing was written between the two
            continue
        # it was written between the first question and the second answer: a
        # time outside of that is wrong
        ahead_ms = max(0, poll.newest_ms - poll.answered_ms)
        behind_ms = min(0, poll.newest_ms - former_poll.begun_ms)
        skews_ms.append(ahead_ms or behind_ms)
    if skews_ms:
        return min(skews_ms, key=abs)
    if not polls:
        return None
    # an old record says nothing, but nobody writes into the future
    of_future_ms = polls[-1].newest_ms - polls[-1].answered_ms
    return of_future_ms if of_future_ms > SKEW_MS_MAX else None
