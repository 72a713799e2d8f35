"""Records of a topic as rows: for tuples and for Arrow columns.

A tuple reads from the client's message, a field when somebody uses it.
Columns are built for those that need Arrow: an `ArrowBolt`, or Spark itself
where no bolt runs in the read task.

A copy of a record looks like the record: what the replay worker wrote on it
is in a field of its own, ``windhover``, which a bolt directly behind
`read_stream` reads if it asks for it.

Source: docs/design/protocol.md, section 5.1; the columns are those of Spark's
Kafka connector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from acker.identity import I64, Position, Root, Source, is_replay
from acker.kafka.headers import headers_of
from acker.kafka.port import NO_EPOCH
from acker.wire.checks import LogOnce
from replay.records.headers import location, our_values, parse_lineage, parted_headers, record_id
from replay.records.record_time import TIMESTAMP, RecordTime, parse_record_time
from spout.tuples.exact import zone_of
from spout.tuples.tuple import MessageId, StreamId

_LOGGER = logging.getLogger("windhover.spout")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

ARROW_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": _TIMESTAMP,
        "timestampType": pa.int32(),
        "headers": _HEADERS,
        "windhover": _HEADERS,
    }
)
"""Arrow type of each column of the source."""

ON_REQUEST: Final = frozenset({"headers", "windhover"})
"""Fields that only those get who name them."""

_NAMES = tuple(name for name in ARROW_TYPES if name not in ON_REQUEST)


def record_key(message: Message) -> bytes | None:
    """Return the key of a record; None: it has none."""
    return _as_bytes(message.key())


def record_keys(messages: Sequence[Message]) -> list[bytes | None]:
    """Return the `record_key` of each message that a consumer of our own
    read: these are bytes.
    """
    return cast("list[bytes | None]", list(map(Message.key, messages)))


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _time_in_log(message: Message) -> RecordTime:
    """Return the time that the log has of a message itself, be it a copy or not."""
    client_type, ms = message.timestamp()
    # the client counts 0 unknown, 1 create time, 2 append time; Kafka -1, 0 and 1
    return RecordTime(ms, client_type - 1)


def time_of_original(message: Message) -> RecordTime:
    """Return the time of the record that a copy, on a replay topic, is a copy of."""
    headers = headers_of(message)
    time_in_headers: RecordTime | None = None
    if any(name == TIMESTAMP for name, _ in headers):
        time_in_headers = parse_record_time(our_values(headers))
    # most copies have no such header: they were written with the time of the record
    return time_in_headers or _time_in_log(message)


def _datetime_of(message: Message, ms: int) -> datetime:
    """Return a time in ms since 1970; `ValueError`, with the record's place:
    `datetime` has no such year.
    """
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        place = f"{message.topic()}/{message.partition()}@{message.offset()}"
        raise ValueError(
            f"the timestamp of {place} is {ms} ms after 1970, and a datetime of Python has the"
            " years 1 to 9999 alone; correct what its producer writes, or read the column"
            " `timestamp` in an ArrowBolt or in Spark"
        ) from None


GETTERS: Mapping[str, Callable[[Message], Any]] = MappingProxyType(
    {
        "key": Message.key,
        "value": Message.value,
        "topic": Message.topic,
        "partition": Message.partition,
        "offset": Message.offset,
        "timestamp": lambda message: _datetime_of(message, _time_in_log(message).ms),
        "timestampType": lambda message: _time_in_log(message).type,
        "headers": lambda message: list(headers_of(message)),
        "windhover": lambda _message: [],
    }
)
"""How to read a tuple's field, by name. Values are as in Spark's column; a
timestamp has the zone UTC.
"""

COPY_GETTERS: Mapping[str, Callable[[Message], Any]] = MappingProxyType(
    {
        **GETTERS,
        "timestamp": lambda message: _datetime_of(message, time_of_original(message).ms),
        "timestampType": lambda message: time_of_original(message).type,
        "headers": lambda message: list(parted_headers(headers_of(message)).original),
        "windhover": lambda message: list(parted_headers(headers_of(message)).added),
    }
)
"""The same for a record of a replay topic: its fields are those of the record
that it is a copy of.
"""

COLUMN_MS_MAX: Final = ((1 << 63) - 1) // 1_000
"""The latest time of Spark's timestamp, which counts microseconds: in the
year 294247; likewise the first.
"""

_log_once = LogOnce()

_PACKED_FIELDS: Final = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "headers",
    "timestamp",
    "leader_epoch",
)
"""What of a message goes to another process, by the names of the arguments of `Message`."""


def _structs_of(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, Any]]:
    """Return headers as the column has them."""
    return [{"key": key, "value": value} for key, value in headers]


def _packed(message: Message) -> tuple[Any, ...]:
    """Return the `_PACKED_FIELDS` of a message as built-in types."""
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        list(headers_of(message)),
        message.timestamp(),
        message.leader_epoch(),
    )


def _unpacked(values: tuple[Any, ...]) -> Message:
    """Make a message of its `_PACKED_FIELDS`."""
    arguments = dict(zip(_PACKED_FIELDS, values, strict=True))
    if arguments["leader_epoch"] is None:  # not known; `Message` takes no None for it
        del arguments["leader_epoch"]
    return Message(**arguments)


@cache
def _getters_in(zone: str, *, is_copy: bool) -> Mapping[str, Callable[[Message], Any]]:
    """Return how to read a tuple's field, by name, with times in a zone.

    A time stays in UTC where Python's calendar has no such day in the zone.
    """
    getters_in_utc = COPY_GETTERS if is_copy else GETTERS
    if zone == "UTC":
        return getters_in_utc
    time_in_utc = getters_in_utc["timestamp"]
    time_zone = zone_of(zone)

    def time_in_zone(message: Message) -> datetime:
        utc_time: datetime = time_in_utc(message)
        try:
            return utc_time.astimezone(time_zone)
        except OverflowError:
            return utc_time

    return {**getters_in_utc, "timestamp": time_in_zone}


SPOUT = StreamId("spout")
"""`came_from` of the records of `read_stream`; spouts of a `TopologyBuilder`
have their own names.
"""


class MessageRows:
    """Messages of one partition, in order.

    Attributes:
        source: of the partition.
        topic_id: Kafka's id of its topic; empty where it is not known.
    """

    __slots__ = (
        "_are_copies",
        "_getters",
        "_messages",
        "_positions",
        "_zone",
        "came_from",
        "names",
        "source",
        "topic_id",
    )

    names: Sequence[str]

    def __init__(
        self,
        messages: Sequence[Message],
        source: int,
        positions: I64,
        zone: str = "UTC",
    ) -> None:
        """Take messages of a source.

        Args:
            messages: `(n,)`, in order.
            source: of their partition.
            positions: `(n,) int64`: of each.
            zone: times are read in it.
        """
        self.names = _NAMES
        self._zone = zone
        self.came_from = SPOUT
        self._messages = messages
        self.source = Source(source)
        self._are_copies = is_replay(self.source)
        self._getters = _getters_in(zone, is_copy=self._are_copies)
        self._positions = positions
        self.topic_id = ""

    def __len__(self) -> int:
        return len(self._messages)

    def value(self, name: str, row: int) -> Any:
        return self._getters[name](self._messages[row])

    def values(self, name: str) -> Iterator[Any]:
        """Yield one field of all rows, in order; `KeyError`: there is none of that name."""
        return map(self._getters[name], self._messages)

    def message_id(self, row: int) -> MessageId:
        """Return what a record descends from. A copy has that in its headers;
        any other record descends from itself.
        """
        message = self._messages[row]
        root = Root(self.source, Position(int(self._positions[row])))
        topic = message.topic() or ""
        partition = message.partition() or 0
        offset = message.offset() or 0
        if self._are_copies:
            lineage = parse_lineage(headers_of(message), topic, partition, offset)
            return MessageId(
                root,
                lineage.attempt,
                lineage.origin,
                lineage.first_emitted_ms,
                record_id=lineage.record_id or lineage.origin,
            )
        origin = location(topic, partition, offset)
        return MessageId(
            root,
            attempt=1,
            origin=origin,
            first_emitted_ms=None,
            record_id=self._record_id(message) or origin,
        )

    def _record_id(self, message: Message) -> str:
        """Return the record id of a message; empty: its topic's id is not known."""
        if not self.topic_id:
            return ""
        leader_epoch = message.leader_epoch()  # None: the broker has not named it
        return record_id(
            self.topic_id,
            message.partition() or 0,
            message.offset() or 0,
            NO_EPOCH if leader_epoch is None else leader_epoch,
        )

    def first_emissions(self) -> tuple[I64, I64]:
        """Return when copies were first emitted: their positions, and the wall times, ms.

        Both are `(n,) int64`. Copies whose headers do not have that time are
        left out.
        """
        positions: list[int] = []
        times_ms: list[int] = []
        for row, position in enumerate(self._positions.tolist()):
            first_emitted_ms = self.message_id(row).first_emitted_ms
            if first_emitted_ms is not None:
                positions.append(position)
                times_ms.append(first_emitted_ms)
        return np.array(positions, np.int64), np.array(times_ms, np.int64)

    def _timestamps(self) -> pa.Array:
        """Return the column of times; a time that Spark's timestamp cannot
        hold is null, and is logged.
        """
        if self._are_copies:
            each_ms = (time_of_original(message).ms for message in self._messages)
        else:
            each_ms = (message.timestamp()[1] for message in self._messages)
        times_ms = np.fromiter(each_ms, np.int64, count=len(self._messages))
        is_outside = (times_ms > COLUMN_MS_MAX) | (times_ms < -COLUMN_MS_MAX)
        if is_outside.any():
            first_row = int(is_outside.argmax())
            self._log_null_time(self._messages[first_row], int(times_ms[first_row]))
            times_ms = np.where(is_outside, 0, times_ms)  # so that none of them overflows below
        times_us = pa.array(times_ms * 1_000, mask=is_outside)
        return times_us.cast(pa.timestamp("us", tz=self._zone))

    def _log_null_time(self, message: Message, ms: int) -> None:
        """Log that the time of a record is null in its column, once for each topic."""
        topic = message.topic() or ""
        is_new = _log_once.add_if_new(topic, "timestamp")
        if is_new:
            _LOGGER.warning(
                "timestamp_is_null record=%s timestamp_ms=%d: Spark's timestamp ends in the year"
                " 294247, so the column has null for such records of %s; correct what its"
                " producer writes",
                location(topic, message.partition() or 0, message.offset() or 0),
                ms,
                topic,
            )

    def part(self, first_row: int, row_count: int) -> MessageRows:
        """Return `row_count` of the messages, from `first_row` on."""
        rows = slice(first_row, first_row + row_count)
        part = MessageRows(self._messages[rows], self.source, self._positions[rows], self._zone)
        part.came_from = self.came_from
        part.topic_id = self.topic_id
        return part

    def packed(self) -> tuple[Any, ...]:
        """Return the rows as built-in types and an array, for another process;
        `unpacked` reads them.
        """
        # `unpacked` takes them in this order
        return (
            int(self.source),
            self._positions,
            self._zone,
            tuple(self.came_from),
            self.topic_id,
            [_packed(message) for message in self._messages],
        )

    @classmethod
    def unpacked(cls, packed: tuple[Any, ...]) -> MessageRows:
        """Return the rows that another process packed; they need no client here."""
        source, positions, zone, came_from, topic_id, messages = packed
        rows = cls([_unpacked(values) for values in messages], source, positions, zone)
        rows.came_from = StreamId(*came_from)
        rows.topic_id = topic_id
        return rows

    def arrow(self, fields: Sequence[str] | None) -> pa.RecordBatch:
        """Return the named columns; None: all but the headers."""
        names = list(self.names if fields is None else fields)
        return pa.RecordBatch.from_arrays([self._column(name) for name in names], names=names)

    def _column(self, name: str) -> pa.Array:
        """Build the column of a field, as Spark has it."""
        messages = self._messages
        if messages and name in ("topic", "partition"):
            # messages are of one partition, so every row has the same value
            value = pa.scalar(GETTERS[name](messages[0]), ARROW_TYPES[name])
            return pa.repeat(value, len(messages))
        if name == "timestamp":
            return self._timestamps()
        if name in ON_REQUEST:
            header_lists = [_structs_of(headers) for headers in self.values(name)]
            return pa.array(header_lists, _HEADERS)
        return pa.array(list(self.values(name)), ARROW_TYPES[name])
