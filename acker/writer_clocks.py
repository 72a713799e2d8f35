"""Carries the clock of a writer beside a record, so that a view can compare it with the broker's.

The topics of an installation have ``LogAppendTime``: a record there has the broker's time. What its writer's
clock said then stands in a header, `CLOCK`, of what shows that a process lives: the ticks of a session, the
first piece of an acker's State, and the progress of a replay worker. An Init has it in its body, as `wall`.

A topic that somebody made with ``CreateTime`` is the other case: there the time of a record is what its
writer's clock said, and what the broker's clock said is unknown.

Readers of former versions pass over the header, and no verdict depends on it.

Source: docs/design/protocol.md, section 4; docs/design/conformance.md, D407 to D410.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from acker.kafka.port import Headers, Record, TimestampType
from acker.units import TIME_MS_MAX

CLOCK: Final = "windhover.clock"
"""What the writer's clock said when it wrote the record: wall time in ms, in decimal digits."""

_DIGITS_MAX: Final = 15
"""So many digits has the latest time that there is; a longer number was written by something else."""


class WriterTime(NamedTuple):
    """When a record was written.

    Attributes:
        written_ms: by its writer's clock; None: nobody says it.
        appended_ms: by the broker's clock; None: its topic has ``CreateTime``, or the log has no times.
    """

    written_ms: int | None = None
    appended_ms: int | None = None

    @property
    def ahead_ms(self) -> int | None:
        """By how much the writer's clock is ahead of the broker's at least; None: one of them is unknown.

        A clock that is behind looks worse than it is, since a record takes a while to its broker.
        """
        if self.written_ms is None or self.appended_ms is None:
            return None
        return self.written_ms - self.appended_ms


UNKNOWN_TIME: Final = WriterTime()


def clock_header(wall_ms: int | None) -> Headers:
    """Return the header that says what the writer's clock says; nothing for None."""
    return () if wall_ms is None else ((CLOCK, b"%d" % wall_ms),)


def writer_time(record: Record, in_body_ms: int | None = None) -> WriterTime:
    """Return when a record was written, by its writer's clock and by the broker's.

    `in_body_ms` is what its body says of its writer's clock; None: nothing. A header that says it
    goes before.
    """
    # the time of the record: that of one of the two clocks, by the settings of its topic
    record_ms = record.timestamp_ms if 0 <= record.timestamp_ms <= TIME_MS_MAX else None
    if record.timestamp_type == TimestampType.CREATED:
        return WriterTime(written_ms=record_ms)
    appended_ms = record_ms if record.timestamp_type == TimestampType.APPENDED else None
    in_header_ms = _clock_of(record.headers)
    written_ms = in_body_ms if in_header_ms is None else in_header_ms
    return WriterTime(written_ms, appended_ms)


def _clock_of(headers: Headers) -> int | None:
    value = dict(headers).get(CLOCK) or b""
    if len(value) > _DIGITS_MAX or not value.isdigit():
        return None  # a stranger wrote it
    return min(int(value), TIME_MS_MAX)
