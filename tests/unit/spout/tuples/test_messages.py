"""Rows of a topic: as fields, as Spark's columns, and what they descend from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message

from acker.identity import Root, position_at, source_of
from acker.kafka.port import Headers, TimestampType
from acker.units import TIME_MS_MAX, TIME_MS_MIN
from replay.records import headers
from replay.records.record_time import RecordTime, time_headers
from spout.tuples.columns import SOURCE_COLUMNS
from spout.tuples.messages import ARROW_TYPES, COLUMN_MS_MAX, MessageRows, record_key, record_keys
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.odd_keys import KEYS, VALUES
from tests.support.odd_times import ODD_TIMES_MS

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


def timed(
    *times: tuple[int, int], told: Headers = (), replayed: bool = False, topic: str = "lines"
) -> MessageRows:
    """Make messages with these types and times, as the client has them."""
    messages = [
        Message(topic=topic, partition=2, offset=at, key=None, value=b"a", headers=list(told), timestamp=time)
        for at, time in enumerate(times)
    ]
    positions = np.array([position_at(0, at) for at in range(len(times))])
    return MessageRows(messages, source_of(3, 2, replay=replayed), positions)


@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_time_is_the_same_in_the_column_or_null_and_is_logged(
    time_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """O1002: before, nanoseconds came out as a time of the year 112641, or of 1969; the watermark as well."""
    topic = f"of.{time_ms}.ms"  # each is told once in a process
    fits = abs(time_ms) <= COLUMN_MS_MAX
    for _ in range(2):
        rows_ = timed((1, 1_000), (1, time_ms), (1, time_ms), topic=topic)
        column = rows_.arrow(["timestamp"]).column(0).cast(pa.int64())
        assert column.to_pylist() == [1_000_000, *([time_ms * 1_000 if fits else None] * 2)]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (not fits)
    assert all(f"timestamp_is_null record={topic}/2@1 timestamp_ms={time_ms}" in text for text in told)


@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_tuple_has_the_time_or_names_the_record_whose_time_python_has_not(time_ms: int) -> None:
    """O1003: before, `OverflowError: date value out of range`."""
    line = Tuple(timed((1, 1_000), (1, time_ms)), 1)
    if TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        assert line["timestamp"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
        return
    with pytest.raises(ValueError, match=f"timestamp of lines/2@1 is {time_ms} ms after 1970"):
        line["timestamp"]
    assert line["value"] == b"a", "only the time cannot be read"


@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
@pytest.mark.parametrize("kind", TimestampType)
def test_a_copy_has_the_time_and_the_type_that_its_headers_tell(time_ms: int, kind: TimestampType) -> None:
    """O1001: and a record of a source topic with such headers has its own."""
    told = time_headers(RecordTime(time_ms, kind))
    of_copy, of_record = (timed(WALL, told=told, replayed=replayed) for replayed in (True, False))
    assert of_copy.arrow(["timestampType"]).column(0).to_pylist() == [kind]
    assert Tuple(of_copy, 0)["timestampType"] == kind
    assert of_copy.arrow(["timestamp"]) == timed((kind + 1, time_ms)).arrow(["timestamp"])
    assert Tuple(of_record, 0)["timestamp"] == datetime.fromtimestamp(WALL[1] / 1_000, UTC)
    assert of_record.arrow(["timestampType"]).column(0).to_pylist() == [0]


def test_what_windhover_wrote_on_a_copy_is_a_field_of_its_own() -> None:
    """O1305: for whoever asks for it; nobody else sees it."""
    copy, first = rows(replayed=True), rows()
    assert (Tuple(copy, 0)["headers"], Tuple(first, 0)["windhover"]) == ([], [])
    assert Tuple(copy, 0)["windhover"][1] == (headers.ATTEMPT, b"3")
    assert copy.arrow(["windhover"]).column(0).to_pylist()[0][1] == {"key": headers.ATTEMPT, "value": b"3"}
    assert [name for name in copy.names if name in ("headers", "windhover")] == []


def test_keys_and_values_are_those_of_the_record_in_each_form_of_a_row() -> None:
    """As a field, as a column of Arrow, as a list, and where the line of a key is looked for."""
    records = [(key, value) for key in KEYS.values() for value in VALUES.values()]
    messages = [
        Message(topic="lines", partition=2, offset=at, key=key, value=value, headers=None, timestamp=WALL)
        for at, (key, value) in enumerate(records)
    ]
    made = MessageRows(messages, SOURCE, np.arange(len(records)))
    keys, values = [key for key, _ in records], [value for _, value in records]
    assert [(Tuple(made, row)["key"], Tuple(made, row)["value"]) for row in range(len(records))] == records
    batch = made.arrow(["key", "value"])
    assert batch.column("key").to_pylist() == list(made.values("key")) == record_keys(messages) == keys
    assert batch.column("value").to_pylist() == list(made.values("value")) == values
    assert list(map(record_key, messages)) == keys


def messages_at(partition: int, offset: int, *, told: Headers = (), replayed: bool = False) -> MessageRows:
    """Make one message at some place; the topic's id in Kafka is known."""
    message = Message(
        topic="lines",
        partition=partition,
        offset=offset,
        key=None,
        value=b"a",
        headers=list(told),
        timestamp=WALL,
    )
    found = MessageRows(
        [message], source_of(3, partition, replay=replayed), np.array([position_at(0, offset)])
    )
    found.topic_id = "an-id"
    return found


@pytest.mark.parametrize("partition", [0, 2])
@pytest.mark.parametrize("offset", [0, 7])
def test_the_first_partition_and_the_first_record_are_named_as_all_others(
    partition: int, offset: int
) -> None:
    of_record = messages_at(partition, offset).message_id(0)
    assert of_record.origin == f"lines/{partition}@{offset}"
    assert of_record.record_id == f"an-id/{partition}@{offset}#-"
    assert messages_at(partition, offset, replayed=True).message_id(0).origin == f"lines/{partition}@{offset}"


def test_a_single_record_has_its_topic_and_its_partition_in_its_columns() -> None:
    assert messages_at(2, 7).arrow(["topic", "partition"]).to_pylist() == [{"topic": "lines", "partition": 2}]


@pytest.mark.parametrize("partition", [0, 2])
def test_a_time_that_no_column_holds_is_told_once_with_the_place_of_the_first(
    partition: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"of.partition.{partition}"
    messages = [
        Message(topic=topic, partition=partition, offset=offset, key=None, value=b"a", headers=None,
                timestamp=(1, time_ms))
        for offset, time_ms in enumerate((COLUMN_MS_MAX + 1, 5, -COLUMN_MS_MAX - 1))
    ]  # fmt: skip
    positions = np.array([position_at(0, offset) for offset in range(3)])
    found = MessageRows(messages, source_of(3, partition), positions)
    for _ in range(3):
        column = found.arrow(["timestamp"]).column(0)
        assert column.cast(pa.int64()).to_pylist() == [None, 5_000, None]
    [told] = [record.getMessage() for record in caplog.records]
    assert f"record={topic}/{partition}@0 timestamp_ms={COLUMN_MS_MAX + 1}:" in told


@pytest.mark.parametrize("time_ms", [COLUMN_MS_MAX, COLUMN_MS_MAX - 1, -COLUMN_MS_MAX, 0])
def test_the_last_and_the_first_time_of_a_column_are_in_it(time_ms: int) -> None:
    column = timed((1, time_ms)).arrow(["timestamp"]).column(0)
    assert column.cast(pa.int64()).to_pylist() == [time_ms * 1_000]


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("America/New_York", -5), ("Asia/Tokyo", 9)])
@pytest.mark.parametrize("replayed", [False, True])
def test_a_tuple_shows_the_clock_of_the_zone(zone: str, hours: int, replayed: bool) -> None:
    """In UTC where Python's calendar has no such day there."""
    last_ms = TIME_MS_MAX
    times = ((1, WALL[1]), (1, last_ms))
    rows_ = timed(*times, replayed=replayed)
    in_zone = MessageRows(
        [Message(topic="lines", partition=2, offset=at, key=None, value=b"a", headers=None, timestamp=time)
         for at, time in enumerate(times)],
        int(rows_.source), np.array([position_at(0, at) for at in range(2)]), zone,
    )  # fmt: skip
    first, last = (Tuple(in_zone, row)["timestamp"] for row in range(2))
    assert first == datetime.fromtimestamp(WALL[1] / 1_000, UTC)
    assert first.utcoffset() == timedelta(hours=hours)
    assert last == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=last_ms)
    assert last.utcoffset() == timedelta(hours=min(hours, 0))
    assert in_zone.arrow(["timestamp"]).column(0).type == pa.timestamp("us", tz=zone)


def test_only_copies_that_say_it_have_the_time_of_their_first_emission() -> None:
    """`rows` has it on its first copy alone."""
    at, wall_ms = rows(replayed=True).first_emissions()
    assert (at.tolist(), wall_ms.tolist()) == ([position_at(1, 7)], [1_600_000_000_000])
    assert at.dtype == wall_ms.dtype == np.int64
    for others in (rows(), messages_at(0, 0, replayed=True)):
        at, wall_ms = others.first_emissions()
        assert (at.tolist(), wall_ms.tolist()) == ([], [])
