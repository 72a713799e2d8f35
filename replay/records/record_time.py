"""The time that a record came with, which its copies and dead letters keep.

A copy has the time of its record, as Kafka has it, wherever it can: then all tools show it. It cannot where
the time is 0, since librdkafka writes the present time in place of 0; where the broker had set the time
(``LogAppendTime``), which no producer can say; and where the replay topic itself has ``LogAppendTime``.
Then it has the record's time in headers, and so has every dead letter, whose own time is that of the death:

===========================  ==================================================================
windhover.timestamp          the record's time, ms since 1970; below 0 where it is before that
windhover.timestamp-type     whose time it is, a `TimestampType`; missing: the producer's
===========================  ==================================================================

Whoever reads a copy sees the record's time in place of the copy's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from acker.kafka.port import Headers, Record, TimestampType
from replay.records.headers import PREFIX, our_values

TIMESTAMP: Final = f"{PREFIX}timestamp"
TIMESTAMP_TYPE: Final = f"{PREFIX}timestamp-type"

_MS = re.compile(rb"-?[0-9]{1,19}\Z")
_MS_MIN: Final = -(1 << 63)
_MS_MAX: Final = (1 << 63) - 1


class RecordTime(NamedTuple):
    """The time of a record in ms since 1970, any int64, and whose time it is, a `TimestampType`."""

    ms: int
    type: int = TimestampType.CREATED


class WrittenTime(NamedTuple):
    """How a record's time is written on a copy: as the copy's own (None: the present), and in headers."""

    timestamp_ms: int | None
    headers: Headers


def time_of(record: Record, *, is_copy: bool) -> RecordTime:
    """Return the time that a record came with; `is_copy`: it is one, on a replay topic."""
    time_in_headers: RecordTime | None = None
    if is_copy and record.headers:  # whoever wrote a source record, such headers are not ours
        time_in_headers = parse_record_time(our_values(record.headers))
    return time_in_headers or RecordTime(record.timestamp_ms, record.timestamp_type)


def needs_no_time_header(record: Record) -> bool:
    """Return whether the timestamp of a record alone gives its copy the right time.

    Then the copy needs no header with the time. It does if the producer set the
    timestamp, it is not 0, and the record has no such header itself (then it is
    a copy, whose own time may be another one). Most records are so, and this
    test costs less than to build a `WrittenTime`.
    """
    if record.timestamp_ms == 0 or record.timestamp_type != TimestampType.CREATED:
        return False
    return TIMESTAMP not in [name for name, _ in record.headers]


def written_time(time: RecordTime, *, topic_keeps: bool) -> WrittenTime:
    """Return how a copy says the time of its record; `topic_keeps`: its topic does not set times itself."""
    # if not, librdkafka, or the topic, would write another time on the copy
    says_itself = topic_keeps and time.ms != 0 and time.type == TimestampType.CREATED
    return WrittenTime(time.ms or None, () if says_itself else time_headers(time))


def time_headers(time: RecordTime) -> Headers:
    """Write a record's time as headers; `parse_record_time` reads them."""
    time_header = (TIMESTAMP, b"%d" % time.ms)
    if time.type == TimestampType.CREATED:
        return (time_header,)
    return (time_header, (TIMESTAMP_TYPE, b"%d" % time.type))


def parse_record_time(ours: Mapping[str, bytes]) -> RecordTime | None:
    """Read the time of a record from our headers, by their names.

    None: it is not there, or no int64.
    """
    value = ours.get(TIMESTAMP, b"")
    if not _MS.match(value):
        return None
    ms = int(value)
    if not _MS_MIN <= ms <= _MS_MAX:
        return None
    kind = ours.get(TIMESTAMP_TYPE, b"")
    return RecordTime(ms, _TYPES.get(kind, TimestampType.CREATED))


_TYPES: Final[Mapping[bytes, TimestampType]] = {b"%d" % kind: kind for kind in TimestampType}
