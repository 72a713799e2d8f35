"""Rows of a topic: as fields, as Spark's columns, and what they descend from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message

from acker.identity import Root, position_at, source_of
from replay.records import headers
from spout.tuples.columns import SOURCE_COLUMNS
from spout.tuples.messages import ARROW_TYPES, MessageRows
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple

WALL = (1, 1_700_000_000_123)
SOURCE = source_of(3, 2)


def rows(*, replayed: bool = False) -> MessageRows:
    """Make two messages of one partition, the second without key, value and headers."""
    told = [
        (headers.ORIGIN, b"lines/0@17"),
        (headers.ATTEMPT, b"3"),
        (headers.FIRST_EMITTED, b"1600000000000"),
    ]
    source = source_of(3, 2, replay=replayed)
    messages = [
        Message(topic="lines", partition=2, offset=7, key=b"k", value=b"a b", headers=told, timestamp=WALL),
        Message(topic="lines", partition=2, offset=9, key=None, value=None, headers=None, timestamp=WALL),
    ]
    return MessageRows(messages, source, np.array([position_at(1, 7), position_at(1, 9)]))


def test_fields_are_those_of_the_record() -> None:
    first, second = (Tuple(rows(), row) for row in range(2))
    at = first["timestamp"]
    assert (at, at.utcoffset()) == (datetime.fromtimestamp(WALL[1] / 1_000, UTC), timedelta(0))
    assert first.values == (b"k", b"a b", "lines", 2, 7, at, 0)
    assert ArrowRows(rows().arrow(["timestamp"])).value("timestamp", 0) == at, "as behind a shuffle"
    assert (second["value"], second[0], second["offset"]) == (None, None, 9)
    assert first["headers"][0] == (headers.ORIGIN, b"lines/0@17")
    assert first.fields == tuple(SOURCE_COLUMNS)


def test_columns_are_those_of_sparks_connector() -> None:
    batch = rows().arrow([*SOURCE_COLUMNS, "headers"])
    assert batch.schema.types == [ARROW_TYPES[name] for name in batch.schema.names]
    assert batch.column("value").to_pylist() == [b"a b", None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [WALL[1] * 1000] * 2
    assert batch.column("timestampType").to_pylist() == [0, 0]
    assert batch.column("headers").to_pylist()[0][1] == {"key": headers.ATTEMPT, "value": b"3"}
    assert batch.column("headers").to_pylist()[1] == []
    assert rows().arrow(["topic"]).column(0).to_pylist() == ["lines", "lines"]


@pytest.mark.parametrize("replayed", [False, True])
def test_only_a_replayed_record_tells_of_earlier_attempts(replayed: bool) -> None:
    """S73: another root in each attempt, the same origin."""
    found = rows(replayed=replayed).message_id(0)
    assert found.root == Root(source_of(3, 2, replay=replayed), position_at(1, 7))
    expected = ("lines/0@17", 3, 1_600_000_000_000) if replayed else ("lines/2@7", 1, None)
    assert (found.origin, found.attempt, found.first_emitted_ms) == expected
    assert rows(replayed=replayed).message_id(1).origin == "lines/2@9"
