"""Rows of a batch as records of Kafka: which column is what of a record.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acker.errors import UsageError
from acker.hot_paths import tuple_maker
from acker.kafka.port import Headers, Outgoing
from spout.exactly_once.key_partitions import I64, KEYLESS_RUN, key_partitions
from spout.exactly_once.value_encoding import Encode, existing_column, text_or_bytes

ROWS_AT_ONCE: Final = 8 * KEYLESS_RUN
"""So many rows are records in memory at a time."""

_outgoing = tuple_maker(Outgoing)


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

    def records(
        self, rows: pa.Table, partitions_by_topic: Mapping[str, int], batch: int
    ) -> Iterator[Outgoing]:
        """Yield a record for each row, in their order.

        Args:
            partitions_by_topic: how many each topic of the rows has.
            batch: number of the batch; by it batches of few rows without a key take turns at the
                partitions.

        Raises `UsageError`: a column is missing, or has another type; a value cannot be encoded.
        """
        for start in range(0, rows.num_rows, ROWS_AT_ONCE):
            part = rows.slice(start, ROWS_AT_ONCE)
            yield from self._records(part, partitions_by_topic, batch + start // KEYLESS_RUN)

    def _records(
        self, rows: pa.Table, partitions_by_topic: Mapping[str, int], shift: int
    ) -> Iterator[Outgoing]:
        keys = self._keys(rows)
        topics = [self.topic] * rows.num_rows
        if self.topic_column is not None:
            topics = self._topics(rows, self.topic_column)
        numbers_by_topic: dict[str, I64] = {}
        for topic in set(topics):
            numbers_by_topic[topic] = key_partitions(keys, partitions_by_topic[topic], shift)
        if len(numbers_by_topic) == 1:
            [numbers] = [numbers.tolist() for numbers in numbers_by_topic.values()]
        else:
            numbers = [int(numbers_by_topic[topic][row]) for row, topic in enumerate(topics)]
        columns = (
            topics,
            numbers,
            self.encode(self._value_columns(rows)),
            keys.to_pylist(),
            self._headers(rows),
            self._times_ms(rows),
        )
        yield from map(_outgoing, zip(*columns, strict=True))

    def _value_columns(self, rows: pa.Table) -> pa.Table:
        """Return the columns that are neither headers nor time nor topic."""
        beside = {self.headers, self.timestamp, self.topic_column}
        return rows.select([name for name in rows.column_names if name not in beside])

    def _keys(self, rows: pa.Table) -> pa.BinaryArray:
        if self.key is None:
            return pa.nulls(rows.num_rows, pa.binary())
        return text_or_bytes(rows, self.key, "key")

    def _topics(self, rows: pa.Table, name: str) -> list[str]:
        topics = text_or_bytes(rows, name, "topic").cast(pa.string())
        names: list[str] = pc.fill_null(topics, self.topic).to_pylist()
        return names

    def _headers(self, rows: pa.Table) -> list[Headers]:
        if self.headers is None:
            return [()] * rows.num_rows
        column = existing_column(rows, self.headers, "headers")
        kind = column.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        item = kind.value_type if is_list else kind
        names = [field.name for field in item.fields] if pa.types.is_struct(item) else []
        if not is_list or names != ["key", "value"]:
            raise UsageError(
                f"the column {self.headers}, which is to be the headers of each record, has the"
                f" type {kind}; give array<struct<key string, value binary>>, as Spark's Kafka sink"
                " takes it"
            )
        return [_headers_of(headers, self.headers) for headers in column.to_pylist()]

    def _times_ms(self, rows: pa.Table) -> list[int | None]:
        if self.timestamp is None:
            return [None] * rows.num_rows
        column = existing_column(rows, self.timestamp, "time")
        kind = column.type
        if pa.types.is_timestamp(kind):
            # microseconds are cut: a record's time has milliseconds
            column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
        elif not pa.types.is_integer(kind):
            raise UsageError(
                f"the column {self.timestamp}, which is to be the time of each record, has the type"
                f" {kind}; give a timestamp, or milliseconds since 1970 as a bigint"
            )
        times_ms: list[int | None] = column.to_pylist()
        return times_ms


def _headers_of(headers: list[dict[str, Any]] | None, name: str) -> Headers:
    """Return the headers of one row."""
    pairs: list[tuple[str, bytes | None]] = []
    for header in headers or ():
        value = header["value"]
        if not isinstance(header["key"], str) or not isinstance(value, bytes | None):
            raise UsageError(
                f"a header of the column {name} has no name, or a value that is not bytes; cast it,"
                " by cast('array<struct<key: string, value: binary>>')"
            )
        pairs.append((header["key"], value))
    return tuple(pairs)
