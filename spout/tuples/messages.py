"""Records of a topic as rows: for tuples and for Arrow columns.

A tuple reads from the client's message, a field when somebody uses it. Columns are built for those that need
Arrow: an `ArrowBolt`, or Spark itself where no bolt runs in the read task.

Source: docs/design/protocol.md, section 5.1; the columns are those of Spark's Kafka connector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from acker.identity import I64, Position, Root, Source, is_replay
from replay.records.headers import location, parse_lineage
from spout.tuples.exact import zone_of
from spout.tuples.tuple import MessageId, StreamId

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
    }
)
"""Arrow type of each column of the source."""

_NAMES = tuple(name for name in ARROW_TYPES if name != "headers")


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    pairs: Sequence[tuple[str, str | bytes | None]] = message.headers() or ()  # type: ignore[assignment]
    return tuple([(name, _as_bytes(value)) for name, value in pairs])


def record_key(message: Message) -> bytes | None:
    return _as_bytes(message.key())


def record_keys(messages: Sequence[Message]) -> list[bytes | None]:
    """Return the `record_key` of each message that a consumer of our own read: these are bytes."""
    return cast("list[bytes | None]", list(map(Message.key, messages)))


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


GETTERS: Mapping[str, Callable[[Message], Any]] = MappingProxyType(
    {
        "key": Message.key,
        "value": Message.value,
        "topic": Message.topic,
        "partition": Message.partition,
        "offset": Message.offset,
        "timestamp": lambda message: _EPOCH + timedelta(milliseconds=message.timestamp()[1]),
        # The client counts 0 unknown, 1 create time, 2 append time; Spark's connector -1, 0, 1.
        "timestampType": lambda message: message.timestamp()[0] - 1,
        "headers": lambda message: list(headers_of(message)),
    }
)
"""How to read a tuple's field, by name. Values are as in Spark's column; a timestamp has the zone UTC."""


@cache
def _getters_in(zone: str) -> Mapping[str, Callable[[Message], Any]]:
    """Return the same with times in a zone; in UTC where Python's calendar has no such day in the zone."""
    if zone == "UTC":
        return GETTERS
    read, there = GETTERS["timestamp"], zone_of(zone)

    def timestamp(message: Message) -> datetime:
        at: datetime = read(message)
        try:
            return at.astimezone(there)
        except OverflowError:
            return at

    return {**GETTERS, "timestamp": timestamp}


SPOUT = StreamId("spout")
"""`came_from` of the records of `read_stream`; spouts of a `TopologyBuilder` have their own names."""


class MessageRows:
    """Messages of one partition, in order."""

    __slots__ = (
        "_getters",
        "_messages",
        "_positions",
        "_replayed",
        "_zone",
        "came_from",
        "names",
        "source",
    )

    names: Sequence[str]

    def __init__(self, messages: Sequence[Message], source: int, positions: I64, zone: str = "UTC") -> None:
        """Take messages of a source, with their positions; their times are read in a zone."""
        self.names = _NAMES
        self._zone = zone
        self._getters = _getters_in(zone)
        self.came_from = SPOUT
        self._messages = messages
        self.source = Source(source)
        self._replayed = is_replay(self.source)
        self._positions = positions

    def __len__(self) -> int:
        return len(self._messages)

    def value(self, name: str, row: int) -> Any:
        return self._getters[name](self._messages[row])

    def message_id(self, row: int) -> MessageId:
        """Return where a record was first emitted: a copy has that in its headers; else at its own place."""
        message = self._messages[row]
        root = Root(self.source, Position(int(self._positions[row])))
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        if not self._replayed:
            return MessageId(root, 1, location(topic, partition, offset), None)
        lineage = parse_lineage(headers_of(message), topic, partition, offset)
        return MessageId(root, lineage.attempt, lineage.origin, lineage.first_emitted_ms)

    def first_emissions(self) -> tuple[I64, I64]:
        """Return the positions of copies whose headers have the time of the first emission, and it, ms."""
        found = [
            (position, first_ms)
            for row, position in enumerate(self._positions.tolist())
            if (first_ms := self.message_id(row).first_emitted_ms) is not None
        ]
        at, wall_ms = np.array(found, np.int64).reshape(-1, 2).T
        return at, wall_ms

    def part(self, first: int, size: int) -> MessageRows:
        """Return `size` of the messages, from `first` on."""
        end = first + size
        part = MessageRows(self._messages[first:end], self.source, self._positions[first:end], self._zone)
        part.came_from = self.came_from
        return part

    def packed(self) -> tuple[Any, ...]:
        """Return them as built-in types and an array, for another process."""
        messages = [
            (m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp())
            for m in self._messages
        ]
        return int(self.source), self._positions, self._zone, tuple(self.came_from), messages

    @classmethod
    def unpacked(cls, packed: tuple[Any, ...]) -> MessageRows:
        """Restore messages that another process packed; they need no client here."""
        source, positions, zone, came_from, messages = packed
        names = ("topic", "partition", "offset", "key", "value", "headers", "timestamp")
        unpacked = [Message(**dict(zip(names, m, strict=True))) for m in messages]
        rows = cls(unpacked, source, positions, zone)
        rows.came_from = StreamId(*came_from)
        return rows

    def arrow(self, fields: Sequence[str] | None) -> pa.RecordBatch:
        """Return the named columns; None: all but the headers."""
        names = list(self.names if fields is None else fields)
        return pa.RecordBatch.from_arrays([self._column(name) for name in names], names=names)

    def _column(self, name: str) -> pa.Array:
        messages, rows = self._messages, len(self._messages)
        if rows and name in ("topic", "partition"):
            # One partition at a time: the same value in every row.
            return pa.repeat(pa.scalar(GETTERS[name](messages[0]), ARROW_TYPES[name]), rows)
        if name == "timestamp":
            ms = np.fromiter((message.timestamp()[1] for message in messages), np.int64, rows)
            return pa.array(ms * 1000).cast(pa.timestamp("us", tz=self._zone))
        if name == "headers":
            return pa.array([[{"key": k, "value": v} for k, v in headers_of(m)] for m in messages], _HEADERS)
        getter = GETTERS[name]
        return pa.array([getter(message) for message in messages], ARROW_TYPES[name])
