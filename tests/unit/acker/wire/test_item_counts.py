"""The items of arrays are counted as a decoder would make them, over fields of every kind."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.errors import CodecError
from acker.wire.item_counts import require_few_items

LONGS = {"type": "array", "items": "long"}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "text", "type": "string"}, {"name": "longs", "type": LONGS}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Outer",
    "fields": [
        {"name": "yes", "type": "boolean"},
        {"name": "number", "type": "int"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "raw", "type": "bytes"},
        {"name": "one", "type": INNER},
        {"name": "many", "type": {"type": "array", "items": "Inner"}},
        {"name": "big", "type": "long"},
        {"name": "text", "type": {"type": "string"}},
        {"name": "last", "type": LONGS},
    ],
}
FLAT: dict[str, Any] = {"type": "record", "name": "Flat", "fields": [{"name": "longs", "type": LONGS}]}
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INNERS = st.fixed_dictionaries({"text": st.text(max_size=80), "longs": st.lists(LONG, max_size=70)})
OUTERS = st.fixed_dictionaries(
    {
        "yes": st.booleans(),
        "number": st.integers(-(1 << 31), (1 << 31) - 1),
        "colour": st.sampled_from(["RED", "BLUE"]),
        "raw": st.binary(max_size=200),
        "one": INNERS,
        "many": st.lists(INNERS, max_size=3),
        "big": LONG,
        "text": st.text(max_size=5),
        "last": st.lists(LONG, max_size=3),
    }
)


def encoded(schema: dict[str, Any], value: object) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(schema), named_schemas={}), value)
    return body.getvalue()


def parsed(schema: dict[str, Any]) -> Any:
    """Return a schema without names in place of types: the walk goes over types alone."""
    fields = {field["name"]: field for field in schema["fields"]}
    many_field = {"name": "many", "type": {"type": "array", "items": INNER}}
    return {**schema, "fields": [many_field if name == "many" else field for name, field in fields.items()]}


@settings(max_examples=150, deadline=None)
@given(value=OUTERS, begin=st.integers(0, 12))
def test_as_many_items_are_counted_as_there_are(value: dict[str, Any], begin: int) -> None:
    count = len(value["one"]["longs"]) + len(value["many"]) + len(value["last"])
    count += sum(len(inner["longs"]) for inner in value["many"])
    data = b"\xff" * begin + encoded(SCHEMA, value)
    require_few_items(data, begin, parsed(SCHEMA), count)
    if count:
        with pytest.raises(CodecError, match=f"Outer has more than {count - 1} items in its arrays"):
            require_few_items(data, begin, parsed(SCHEMA), count - 1)


@pytest.mark.parametrize(
    ("data", "items_max"),
    [
        (b"\x00", 0),
        (b"\x02\x05\x00", 1),
        # a block of -3 items, whose size in bytes follows; then another one of one item
        (b"\x05\x06\x02\x04\x08\x02\x06\x00", 4),
        # 64 items: the count has two bytes
        (b"\x80\x01" + bytes(64) + b"\x00", 64),
        # the longest number: ten bytes
        (b"\x02" + b"\xff" * 9 + b"\x01\x00", 1),
    ],
)
def test_blocks_of_an_array_are_counted_together(data: bytes, items_max: int) -> None:
    require_few_items(data, 0, FLAT, items_max)
    if items_max:
        with pytest.raises(CodecError, match=f"Flat has more than {items_max - 1} items"):
            require_few_items(data, 0, FLAT, items_max - 1)
    for end in range(len(data)):
        with pytest.raises(CodecError, match="Flat is cut off"):
            require_few_items(data[:end], 0, FLAT, items_max)


@pytest.mark.parametrize("items_max", [1_234, 5_678_901])
def test_too_many_items_are_refused_before_any_is_read(items_max: int) -> None:
    with pytest.raises(CodecError, match=f"Flat has more than {items_max:,} items in its arrays"):
        require_few_items(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, FLAT, items_max)


def test_a_number_of_eleven_bytes_is_refused() -> None:
    with pytest.raises(CodecError, match="Flat has a number of more than 64 bits"):
        require_few_items(b"\x02" + b"\x80" * 10 + b"\x00\x00", 0, FLAT, 1)


def schema_of(kind: object) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


@pytest.mark.parametrize("kind", ["bytes", "string"])
def test_a_size_below_zero_is_refused(kind: str) -> None:
    """It would lead back, and the walk would not end."""
    with pytest.raises(CodecError, match="R has a value of -1 bytes"):
        require_few_items(b"\x01\x00", 0, schema_of(kind), 1)
    require_few_items(b"\x00", 0, schema_of(kind), 0)


@pytest.mark.parametrize("kind", ["double", {"type": "map", "values": "long"}])
def test_a_type_that_no_schema_of_ours_has_is_named(kind: object) -> None:
    name = kind if isinstance(kind, str) else "map"
    with pytest.raises(TypeError, match=f"R: {name} is no type of our schemas"):
        require_few_items(bytes(20), 0, schema_of(kind), 1)
