"""Values of rows in Kafka's records: each is read as it was written, or its row is refused by name."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from acker.errors import LogError, RecordRefused, TopicError, UsageError
from acker.kafka.port import Outgoing
from spout.exactly_once.kafka_store import KafkaStore
from spout.exactly_once.value_encoding import Encode, avro_encoding
from tests.support.exact_batches import key_of
from tests.support.odd_values import ODD_VALUES
from tests.support.worlds.kafka_stores import KafkaStoreWorld

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


FIELDS: Final[list[Any]] = [
    *("boolean", "int", "long", "float", "double", "string", "bytes"),
    *(
        logical("long", f"{name}-{unit}")
        for name in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros")
    ),
    *(logical("int", "time-millis"), logical("long", "time-micros"), logical("int", "date")),
    *(logical("bytes", "decimal", precision=38, scale=scale) for scale in (0, 18)),
    logical("string", "uuid"),
    *({"type": "array", "items": items} for items in ("int", "double", "string", "float")),
    *({"type": "map", "values": items} for items in ("int", "long", "string")),
    {
        "type": "record",
        "name": "S",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
    },
]


def schema_of(field: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": field}]}


def plain(value: Any) -> Any:
    """Return a value in a form in which equal things are equal."""
    match value:
        case datetime(tzinfo=None):
            return "local", (value - datetime(1, 1, 1)) // timedelta(microseconds=1)
        case datetime():
            return "moment", (value.astimezone(UTC) - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(
                microseconds=1
            )
        case bool():
            return str(value)
        case float() if math.isnan(value):
            return "no number"
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
    return value


def whole_numbers(value: Any) -> Iterator[int]:
    """Yield the whole numbers in a value."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from whole_numbers(item)


def refusal_of(encode: Encode, rows: pa.Table) -> str:
    """Encode rows; return why they were refused, empty: they were not."""
    try:
        encode(rows, 0)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("field", FIELDS, ids=str)
@pytest.mark.parametrize("is_optional", [False, True], ids=["", "or null"])
def test_what_is_written_by_an_avro_schema_is_read_as_it_was_or_is_refused_by_row(
    field: Any, is_optional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3226: also where the process is in another zone than Spark."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    schema = schema_of(["null", field] if is_optional else field)
    encode = avro_encoding(schema)
    for name, (kind, values) in ODD_VALUES.items():
        for odd in (None, *values):
            rows = pa.table({"v": pa.array([odd], kind)})
            refusal = refusal_of(encode, rows)
            if refusal:
                assert "row 0 of the batch" in refusal, (name, odd, refusal)
                continue
            [value] = encode(rows, 0)
            decoded = fastavro.schemaless_reader(
                io.BytesIO(value or b""), fastavro.parse_schema(schema), None
            )
            [written] = rows.column("v").to_pylist()
            if pa.types.is_map(kind) and written is not None:
                written = dict(written)
            assert isinstance(decoded, dict)
            assert plain(decoded["v"]) == plain(written), (name, odd, decoded)
            if "'int'" in f"'{field}'":
                assert all(abs(number) <= 1 << 31 for number in whole_numbers(decoded["v"]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("long", (1 << 63) - 1),
        ("double", float("nan")),
        ("float", 1.5),
        (logical("long", "timestamp-micros"), datetime(2026, 11, 1, 6, 30, tzinfo=UTC)),
        (logical("long", "local-timestamp-micros"), datetime(1, 1, 1)),
        ({"type": "array", "items": ["null", "string"]}, ["a", None]),
    ],
    ids=str,
)
def test_what_a_field_holds_is_written(field: Any, value: Any) -> None:
    assert refusal_of(avro_encoding(schema_of(field)), pa.table({"v": [value]})) == ""


def test_a_column_that_an_avro_schema_lacks_is_refused_except_the_key() -> None:
    """D3226: it would be lost, and a field of a misspelt column would have its default."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "v", "type": ["null", "string"], "default": None}],
    }
    rows = pa.table({"v": ["a"], "k": ["b"]})
    assert avro_encoding(schema, "k")(rows, 0) == avro_encoding(schema)(rows.select(["v"]), 0)
    for misspelt in (rows, rows.rename_columns(["V", "k"])):
        with pytest.raises(UsageError, match=r"has no field (k|V|V, k), so the column would be lost"):
            avro_encoding(schema, None)(misspelt, 0)
    with pytest.raises(UsageError, match="has no field V, so"):
        avro_encoding(schema, "k")(rows.rename_columns(["V", "k"]), 0)


def opened(**options: Any) -> tuple[KafkaStoreWorld, KafkaStore]:
    world = KafkaStoreWorld()
    store = world.store(**options)
    store.open("g", 1)
    return world, store


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([None], "a null among its headers"),
        ([{"key": None, "value": b""}], "a header that has no name"),
        (
            [{"key": "a\0b", "value": b""}],
            "a header whose name has a null byte, where Kafka's client would cut it",
        ),
    ],
)
def test_headers_that_cannot_be_written_are_refused_by_row_and_column(headers: Any, why: str) -> None:
    """D3226."""
    world, store = opened(headers="h")
    rows = pa.table({"n": [1, 2, 3], "h": pa.array([None, [], headers], HEADERS)})
    with pytest.raises(UsageError, match=f"row 2 of the batch has in h {why}"):
        store.commit(key_of(), rows, b"1")
    assert world.records() == []


def written_alone(world: KafkaStoreWorld, record: Outgoing) -> None:
    producer = world.cluster.log().producer()
    producer.send(record)
    producer.flush(1_000)


def test_the_name_of_a_header_is_never_cut() -> None:
    """D3226: the port refuses it, whoever writes."""
    world = KafkaStoreWorld()
    record = Outgoing("words", 0, b"v", headers=(("a\0b", b"1"),))
    with pytest.raises(LogError, match="the name of a header has a null byte"):
        written_alone(world, record)
    assert world.records() == []


@pytest.mark.parametrize("time_us", [-(1 << 63), -(1 << 63) + 999, -1, 1, 999, 1_000, (1 << 63) - 1])
def test_a_time_at_either_end_is_rounded_down_to_milliseconds(time_us: int) -> None:
    world, store = opened(timestamp="at")
    times = pa.array([time_us], pa.int64()).cast(pa.timestamp("us", "UTC"))
    if time_us // 1_000 == 0:
        return  # refused: D3225
    store.commit(key_of(), pa.table({"n": [1], "at": times}), b"1")
    assert [record.timestamp_ms for record in world.records()] == [time_us // 1_000]


def test_a_time_without_a_zone_is_no_time_of_a_record() -> None:
    """D3226: nobody knows which moment it is."""
    world, store = opened(timestamp="at")
    rows = pa.table({"n": [1], "at": pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))})
    with pytest.raises(UsageError, match=r"without a zone nobody knows.*cast\('timestamp'\)"):
        store.commit(key_of(), rows, b"1")
    assert world.records() == []


@pytest.mark.parametrize(
    ("topic", "error", "why"),
    [
        ("", TopicError, "there is no topic without a name; no topic can have that name"),
        ("..", TopicError, "no topic can have that name"),
        ("a b", TopicError, "no topic can have that name"),
        ("x" * 250, TopicError, "no topic can have that name"),
        ("`rm -rf`", TopicError, "there is no topic %60rm -rf%60; no topic can have that name"),
        ("missing", TopicError, "there is no topic missing; create it"),
        ("_ack_sink", UsageError, "_ack_sink is an ack topic"),
        ("lines.g.dlq", UsageError, "is the dead-letter topic of lines"),
    ],
)
def test_a_topic_that_takes_no_rows_is_named_with_the_first_row_that_has_it(
    topic: str, error: type[Exception], why: str
) -> None:
    """D3227."""
    world, store = opened(topic_column="t")
    with pytest.raises(error, match=rf"{why}.*\(row 2 of the batch has it in t\)"):
        store.commit(key_of(), pa.table({"n": [1, 2, 3, 4], "t": [None, "words", topic, topic]}), b"1")
    assert world.records() == []


def test_a_record_that_is_too_large_is_named_by_its_row() -> None:
    """D3227."""
    world = KafkaStoreWorld(**{"max.message.bytes": "300"})
    store = world.store()
    store.open("g", 1)
    with pytest.raises(RecordRefused, match=r"the largest is row 1, with 50[0-9] bytes"):
        store.commit(key_of(), pa.table({"w": ["a", "b" * 498, "c"]}), b"1")
    assert world.records() == []
