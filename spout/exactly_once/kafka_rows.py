"""Rows of a batch as records of Kafka: which column is what of a record.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from acker.errors import UsageError
from acker.kafka.port import Headers, OutgoingColumns
from spout.exactly_once.key_partitions import KEYLESS_RUN, key_partitions
from spout.exactly_once.value_encoding import (
    Encode,
    column_values,
    existing_column,
    text_or_bytes,
)

ROWS_AT_ONCE: Final = 8 * KEYLESS_RUN
"""So many rows are records in memory at a time."""

T = TypeVar("T")


class LargestRow(NamedTuple):
    """The number of a row in its batch, and how many bytes its key and value have."""

    row: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """What of a row becomes what of a record.

    Attributes:
        topic: of rows that name none.
        encode: makes the values of the columns that are nothing else.
        key: name of the column of the key, bytes or text; None: no record has a key.
        headers: of a column as Spark's Kafka sink has it, array<struct<key string, value binary>>.
        timestamp: of a column of times, or of milliseconds since 1970.
        topic_column: of a column with the topic of each row; null: `topic`.
    """

    topic: str
    encode: Encode
    key: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    topic_column: str | None = None

    def topics_of(self, rows: pa.Table) -> list[str]:
        """Return the names of the topics of some rows, sorted.

        Raises `UsageError`: a column is missing, or has another type.
        """
        if self.topic_column is None:
            return [self.topic]
        return sorted(set(self._topics(rows, self.topic_column)))

    def row_of_topic(self, rows: pa.Table, topic: str) -> int | None:
        """Return the number of the first row that names a topic; None: no row names its topic."""
        if self.topic_column is None:
            return None
        return self._topics(rows, self.topic_column).index(topic)

    def largest(self, rows: pa.Table) -> LargestRow:
        """Return the row whose key and value together are the largest; of some, the first.

        There is at least one row. Raises `UsageError` as `records`.
        """
        largest = LargestRow(0, -1)
        for first_row in range(0, rows.num_rows, ROWS_AT_ONCE):
            some_rows = rows.slice(first_row, ROWS_AT_ONCE)
            values = self.encode(self._value_columns(some_rows), first_row)
            keys = self._keys(some_rows).to_pylist()
            for row_number, (key, value) in enumerate(zip(keys, values, strict=True), first_row):
                size_bytes = len(key or b"") + len(value or b"")
                if size_bytes > largest.bytes:
                    largest = LargestRow(row_number, size_bytes)
        return largest

    def records(
        self, rows: pa.Table, partitions_by_topic: Mapping[str, int], batch: int
    ) -> Iterator[OutgoingColumns]:
        """Yield the records of the rows, by topic; those of a topic are in the order of their rows.

        Args:
            partitions_by_topic: how many each topic of the rows has.
            batch: number of the batch. Its first rows without a key go into this partition, modulo
                the number of partitions, so that batches of few rows take turns.

        Raises `UsageError`: a column is missing, or has another type; a value cannot be encoded.
        """
        for first_row in range(0, rows.num_rows, ROWS_AT_ONCE):
            some_rows = rows.slice(first_row, ROWS_AT_ONCE)
            # of 20,000 rows without a key the second 8,000 go on where the first ones have ended
            partitions = _Partitions(partitions_by_topic, batch + first_row // KEYLESS_RUN)
            yield from self._records(some_rows, first_row, partitions)

    def _records(
        self,
        rows: pa.Table,
        first_row: int,
        partitions: _Partitions,
    ) -> Iterator[OutgoingColumns]:
        """Yield the records of some rows, by topic.

        Args:
            rows: neighbouring rows of a batch.
            first_row: number of the first of them in the batch, for messages.
            partitions: computes the partition of each record.
        """
        keys = self._keys(rows)
        columns = _Columns(
            self.encode(self._value_columns(rows), first_row),
            keys.to_pylist() if self.key is not None else None,
            self._headers(rows, first_row),
            self._times_ms(rows, first_row),
        )
        if self.topic_column is None:
            yield columns.of_topic(self.topic, partitions.of(self.topic, keys))
            return
        row_numbers_by_topic: dict[str, list[int]] = {}
        for row_number, topic in enumerate(self._topics(rows, self.topic_column)):
            row_numbers_by_topic.setdefault(topic, []).append(row_number)
        for topic, row_numbers in row_numbers_by_topic.items():
            keys_of_topic = keys.take(pa.array(row_numbers))
            yield columns.at(row_numbers).of_topic(topic, partitions.of(topic, keys_of_topic))

    def _value_columns(self, rows: pa.Table) -> pa.Table:
        """Return the columns that are neither headers nor time nor topic."""
        other_columns = {self.headers, self.timestamp, self.topic_column}
        return rows.select([name for name in rows.column_names if name not in other_columns])

    def _keys(self, rows: pa.Table) -> pa.BinaryArray:
        if self.key is None:
            return pa.nulls(rows.num_rows, pa.binary())
        return text_or_bytes(rows, self.key, "key")

    def _topics(self, rows: pa.Table, name: str) -> list[str]:
        topics = pc.fill_null(text_or_bytes(rows, name, "topic"), self.topic.encode()).to_pylist()
        # bytes that are no UTF-8 name no topic, and the error has to show them
        return [topic.decode("utf-8", "backslashreplace") for topic in topics]

    def _headers(self, rows: pa.Table, first_row: int) -> list[Headers] | None:
        """Return the headers of each record; None: no record has headers.

        `first_row` is the number of the first row in its batch. Raises `UsageError`: the column is
        missing, has another type, or has a header that Kafka's client cannot write.
        """
        if self.headers is None:
            return None
        column = existing_column(rows, self.headers, "headers")
        column_type = column.type
        is_list = pa.types.is_list(column_type) or pa.types.is_large_list(column_type)
        names: list[str] = []
        if is_list and pa.types.is_struct(column_type.value_type):
            names = [field.name for field in column_type.value_type.fields]
        if names != ["key", "value"]:
            raise UsageError(
                f"the column {self.headers}, which is to be the headers of each record, has the"
                f" type {column_type}; give array<struct<key string, value binary>>, as Spark's"
                " Kafka sink takes it"
            )
        headers_by_row = column_values(column, self.headers, first_row)
        return [
            _headers_of(headers, f"row {row} of the batch has in {self.headers}")
            for row, headers in enumerate(headers_by_row, first_row)
        ]

    def _times_ms(self, rows: pa.Table, first_row: int) -> list[int | None] | None:
        """Return the time of each record; None, for one or for all: the present time.

        `first_row` is the number of the first row in its batch, for messages.

        Raises `UsageError`: a time is the first moment of 1970, which no client can write; or the
        times have no zone; or the column is missing, or has another type.
        """
        if self.timestamp is None:
            return None
        column = existing_column(rows, self.timestamp, "time")
        column_type = column.type
        times_ms: list[int | None]
        if pa.types.is_timestamp(column_type) and column_type.tz is None:
            raise UsageError(
                f"the column {self.timestamp}, which is to be the time of each record, is a"
                " timestamp_ntz: without a zone nobody knows which moment it is; cast it, by"
                " cast('timestamp')"
            )
        if pa.types.is_timestamp(column_type):
            in_microseconds = column.cast(pa.timestamp("us", column_type.tz)).cast(pa.int64())
            times_us = in_microseconds.to_pylist()
            # a record's time has milliseconds; one before 1970 is rounded down, too, as by Spark
            times_ms = [None if time_us is None else time_us // 1_000 for time_us in times_us]
        elif pa.types.is_integer(column_type):
            times_ms = column.to_pylist()
        else:
            raise UsageError(
                f"the column {self.timestamp}, which is to be the time of each record, has the type"
                f" {column_type}; give a timestamp, or milliseconds since 1970 as a bigint"
            )
        if 0 in times_ms:
            raise UsageError(
                f"row {first_row + times_ms.index(0)} of the batch has in {self.timestamp} the first"
                " millisecond of 1970, and Kafka's client writes the present time for it; give null"
                " for the present time, or fail such tuples in a bolt"
            )
        return times_ms


@dataclass(frozen=True, slots=True)
class _Partitions:
    """Computes the partition of each key, by the number of partitions of its topic.

    `shift` is the partition of the first rows without a key, modulo that number.
    """

    counts_by_topic: Mapping[str, int]
    shift: int

    def of(self, topic: str, keys: pa.BinaryArray) -> list[int]:
        numbers: list[int] = key_partitions(keys, self.counts_by_topic[topic], self.shift).tolist()
        return numbers


@dataclass(frozen=True, slots=True)
class _Columns:
    """What records have beside topic and partition; None: no record has it."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    times_ms: Sequence[int | None] | None

    def at(self, row_numbers: Sequence[int]) -> _Columns:
        """Return the columns with the entries of some rows alone, in the order of the numbers."""
        return _Columns(
            [self.values[row_number] for row_number in row_numbers],
            _entries(self.keys, row_numbers),
            _entries(self.headers, row_numbers),
            _entries(self.times_ms, row_numbers),
        )

    def of_topic(self, topic: str, partitions: Sequence[int]) -> OutgoingColumns:
        """Return the records, for a topic."""
        columns = self.values, self.keys, self.headers, self.times_ms
        return OutgoingColumns(topic, partitions, *columns)


def _entries(column: Sequence[T] | None, row_numbers: Sequence[int]) -> list[T] | None:
    """Return the entries of some rows of a column; None: there is no column."""
    if column is None:
        return None
    return [column[row_number] for row_number in row_numbers]


def _headers_of(headers: list[dict[str, Any] | None] | None, where: str) -> Headers:
    """Return the headers of one row; `where` begins the message about what is wrong with them."""
    pairs: list[tuple[str, bytes | None]] = []
    for header in headers or ():
        if header is None:
            raise UsageError(f"{where} a null among its headers; leave it out, by array_compact")
        value = header["value"]
        if not isinstance(header["key"], str) or not isinstance(value, bytes | None):
            raise UsageError(
                f"{where} a header that has no name, or a value that is not bytes; cast it, by"
                " cast('array<struct<key: string, value: binary>>')"
            )
        if "\0" in header["key"]:
            raise UsageError(
                f"{where} a header whose name has a null byte, where Kafka's client would cut it;"
                " fail such tuples in a bolt"
            )
        pairs.append((header["key"], value))
    return tuple(pairs)
