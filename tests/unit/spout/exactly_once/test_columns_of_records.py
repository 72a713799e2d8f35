"""Which column is what of a record, the largest row, and values in fields that would change them."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest

from acker.errors import UsageError
from spout.exactly_once.kafka_rows import ROWS_AT_ONCE, LargestRow, RecordColumns
from spout.exactly_once.key_partitions import KEYLESS_RUN
from spout.exactly_once.value_encoding import avro_encoding, column_values, encoding_of, json_texts
from tests.support.exact_batches import key_of
from tests.support.worlds.kafka_stores import KafkaStoreWorld

PAIR: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
LONG: Final = 1 << 40


def columns(**options: Any) -> RecordColumns:
    return RecordColumns("words", encoding_of("v"), **options)


def rows_of(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.Table:
    return pa.table(
        {"v": pa.array(values, pa.binary()), "k": pa.array(keys or [None] * len(values), pa.binary())}
    )


@pytest.mark.parametrize(
    ("values", "keys", "largest"),
    [
        ([b"", b"", None], None, LargestRow(0, 0)),
        ([b"a", b"bb", b"cc"], None, LargestRow(1, 2)),
        ([b"a", None, b"ccc"], [b"k", b"four", None], LargestRow(1, 4)),
        ([b"aaa", b"aa"], [b"k", b"kkk"], LargestRow(1, 5)),
        ([*[b"a"] * ROWS_AT_ONCE, b"b", b"cc", b"d"], None, LargestRow(ROWS_AT_ONCE + 1, 2)),
    ],
    ids=["empty", "first of equal ones", "key alone", "both", "far behind"],
)
def test_the_largest_row_is_the_first_whose_key_and_value_are_together_the_longest(
    values: list[bytes | None], keys: list[bytes | None] | None, largest: LargestRow
) -> None:
    assert columns(key="k").largest(rows_of(values, keys)) == largest


def test_rows_without_a_key_go_on_behind_the_runs_of_the_part_before() -> None:
    """Eight runs of a thousand are a part; batch 1 begins in partition 1 of five."""
    rows = rows_of([b"v"] * (ROWS_AT_ONCE + 1))
    parts = list(columns().records(rows, {"words": 5}, batch=1))
    partitions = [[record.partition for record in part.records()] for part in parts]
    assert [len(part) for part in partitions] == [ROWS_AT_ONCE, 1]
    assert partitions[0][::KEYLESS_RUN] == [1, 2, 3, 4, 0, 1, 2, 3]
    assert partitions[1] == [4]


@pytest.mark.parametrize(
    "kind",
    [PAIR, pa.list_(pa.string()), pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
     pa.list_(pa.struct([("key", pa.string())])), pa.string()],
    ids=str,
)  # fmt: skip
def test_headers_of_another_type_are_refused(kind: pa.DataType) -> None:
    rows = pa.table({"v": [b"a"], "h": pa.array([None], kind)})
    with pytest.raises(UsageError, match=r"the column h, .* give array<struct<key string, value binary>>"):
        list(columns(headers="h").records(rows, {"words": 1}, 0))


@pytest.mark.parametrize("kind", [pa.list_(PAIR), pa.large_list(PAIR)], ids=["list", "large list"])
def test_headers_of_either_kind_of_list_are_taken(kind: pa.DataType) -> None:
    rows = pa.table({"v": [b"a", b"b"], "h": pa.array([[{"key": "x", "value": b"1"}], None], kind)})
    [sent] = columns(headers="h").records(rows, {"words": 1}, 0)
    assert [record.headers for record in sent.records()] == [(("x", b"1"),), ()]


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("key", pa.string()), ("value", pa.string())]),
        pa.struct([("key", pa.binary()), ("value", pa.binary())]),
    ],
    ids=str,
)
def test_a_header_whose_name_is_no_text_or_whose_value_is_no_bytes_is_refused(kind: pa.DataType) -> None:
    value: list[Any] = [{"key": "x", "value": "1"}]
    if pa.types.is_binary(kind.field(0).type):
        value = [{"key": b"x", "value": b"1"}]
    rows = pa.table({"v": [b"a"], "h": pa.array([value], pa.list_(kind))})
    with pytest.raises(UsageError, match="row 0 of the batch has in h a header that has no name, or a value"):
        list(columns(headers="h").records(rows, {"words": 1}, 0))


def test_rows_of_which_nothing_is_left_for_the_value_are_empty_objects() -> None:
    world = KafkaStoreWorld()
    store = world.store(timestamp="at")
    store.open("g", 1)
    store.commit(key_of(), pa.table({"at": [5, 6]}), b"1")
    assert [(record.value, record.timestamp_ms) for record in world.records()] == [(b"{}", 5), (b"{}", 6)]
    defaults = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int", "default": 3}]}
    assert avro_encoding(defaults, "k")(pa.table({"k": ["a", "b"]}), 0) == [b"\x06", b"\x06"]


def schema_of(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"v{number}", "type": field} for number, field in enumerate(fields)],
    }


POINT: Final = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["int"], [LONG]),
        (["int"], [1 << 31]),
        (["int"], [-(1 << 31) - 1]),
        ([{"type": "array", "items": "int"}], [[1, LONG]]),
        ([{"type": "array", "items": {"type": "array", "items": "int"}}], [[[1], [2, LONG]]]),
        ([{"type": "array", "items": "float"}], [[1.5, 0.1]]),
        ([{"type": "map", "values": "int"}], [{"a": 1, "b": LONG}]),
        ([{"type": "map", "values": "float"}], [{"a": 1.5, "b": 0.1}]),
        ([POINT, "Point"], [{"x": 1}, {"x": LONG}]),
        ([{**POINT, "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}],
         [{"x": 1, "y": LONG}]),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_a_field_would_change_is_refused_wherever_it_is(
    fields: list[Any], values: list[Any]
) -> None:
    """Behind others that are as they were, in lists, maps, records, and a record that is only named."""
    encode = avro_encoding(schema_of(*fields))
    kinds = [
        pa.map_(pa.string(), pa.int64() if isinstance(next(iter(value.values())), int) else pa.float64())
        if isinstance(value, dict) and "x" not in value
        else None
        for value in values
    ]
    rows = pa.table(
        {f"v{number}": pa.array([list(value.items()) if kind else value], kind)
         for number, (value, kind) in enumerate(zip(values, kinds, strict=True))}
    )  # fmt: skip
    last = len(values) - 1
    with pytest.raises(
        UsageError, match=rf"row 7 of the batch has in v{last} a value that the Avro schema R"
    ):
        encode(rows, 7)


@pytest.mark.parametrize("value", [-(1 << 31), (1 << 31) - 1, 0])
def test_an_int_takes_all_that_has_32_bits(value: int) -> None:
    assert len(avro_encoding(schema_of("int"))(pa.table({"v0": [value]}), 0)) == 1


def test_behind_a_field_that_has_its_default_the_others_are_looked_at_all_the_same() -> None:
    schema = schema_of("int", "int")
    schema["fields"][0]["default"] = 0
    with pytest.raises(UsageError, match="row 0 of the batch has in v1"):
        avro_encoding(schema)(pa.table({"v1": [LONG]}), 0)


def test_a_map_within_a_struct_with_other_fields_is_an_object() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.int64())), ("n", pa.int64())])
    column = pa.chunked_array([pa.array([None, {"m": [("a", 1)], "n": 2}, {"m": None, "n": 3}], kind)])
    values = column_values(column, "s")
    assert values == [None, {"m": {"a": 1}, "n": 2}, {"m": None, "n": 3}]
    assert json_texts(values, "s", 0) == [None, '{"m":{"a":1},"n":2}', '{"m":null,"n":3}']


def test_what_json_has_no_form_for_is_never_a_null() -> None:
    with pytest.raises(UsageError, match=r"row 4 of the batch \(v object\) does not fit json"):
        json_texts(["a", None, object()], "v", 2)
