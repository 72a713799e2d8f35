"""What a codec makes of types: fields of each kind, names that are keywords, versions with fewer fields."""

from __future__ import annotations

import io
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import fastavro
import fastavro.schema
import pytest

from acker.errors import CodecError, UnknownVersion
from acker.wire.codec import HEADER_BYTES, MAGIC, WIRE_TYPES, Codec, load_schema, wire_codec
from tests.support import golden


class Colour(Enum):
    """An enum whose members are no texts."""

    RED = "RED"
    BLUE = "BLUE"


class Mood(StrEnum):
    """One whose members are texts, written as a string."""

    CALM = "calm"
    GLAD = "glad"


class Plain(NamedTuple):
    """Its fields are written as they are."""

    from_: int
    name: str
    raw: tuple  # type: ignore[type-arg]


class Mixed(NamedTuple):
    """Only some of its fields are turned into something else."""

    colour: Colour
    number: int


class Single(NamedTuple):
    """It has one field, and that one is turned into something else."""

    colour: Colour


@dataclass(frozen=True)
class Nested:
    """All kinds of fields."""

    plain: Plain
    numbers: tuple[int, ...]
    mixed: tuple[Mixed, ...]
    mood: Mood
    single: Single


@dataclass(frozen=True)
class Grown:
    """Its former versions lack fields at its beginning, in its middle and at its end."""

    first: int = 5
    from_: int = 6
    colour: Colour = Colour.BLUE
    last: str = "z"
    _kept: int = 0


class Two(NamedTuple):
    """It has as many fields as one of its former versions has not."""

    a: int
    b: int = 9


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return a schema; an underscore behind a field's name is not part of it."""
    schema_fields = [{"name": field.rstrip("_"), "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": schema_fields}


PLAIN = record("Plain", from_="int", name="string", raw={"type": "array", "items": "int"})
MIXED = record("Mixed", colour=COLOUR, number="long")
NESTED = record(
    "Nested",
    plain=PLAIN,
    numbers={"type": "array", "items": "long"},
    mixed={"type": "array", "items": MIXED},
    mood="string",
    single=record("Single", colour="Colour"),
)
GROWN = record("Grown", first="int", from_="int", colour=COLOUR, last="string")
TWO = record("Two", a="int", b="int")
VALUES: list[tuple[Any, dict[str, Any]]] = [
    (Plain(3, "n", [1, 2]), PLAIN),  # type: ignore[arg-type]
    (Mixed(Colour.BLUE, 7), MIXED),
    (Single(Colour.BLUE), record("Single", colour=COLOUR)),
    (Two(1, 2), TWO),
    (Grown(1, 2, Colour.RED, "x"), GROWN),
    (
        Nested(
            Plain(1, "é", []),  # type: ignore[arg-type]
            (1, -1, 1 << 62),
            (Mixed(Colour.RED, 1), Mixed(Colour.BLUE, 2)),
            Mood.GLAD,
            Single(Colour.RED),
        ),
        NESTED,
    ),
]


@pytest.mark.parametrize(("value", "schema"), VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_any_type_comes_back(value: Any, schema: dict[str, Any]) -> None:
    codec: Codec[Any] = Codec({type(value): schema})
    back = codec.decode(codec.encode(value))
    assert back == value
    assert type(back) is type(value)


def test_all_records_of_the_wire_come_back_from_a_new_codec() -> None:
    """The one that is kept was made before any test."""
    codec = Codec({kind: load_schema("acker.wire", name) for kind, name in WIRE_TYPES.items()})
    for value in golden.WIRE.values():
        assert codec.encode(value) == wire_codec().encode(value)
        assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("mood", ["", "angry"])
def test_a_text_that_is_no_member_does_not_decode(mood: str) -> None:
    text: Codec[Any] = Codec({Mooded: record("Mooded", mood="string")})
    with pytest.raises(CodecError, match="does not decode: ValueError"):
        text.decode(text.header(Mooded) + bytes([2 * len(mood)]) + mood.encode())
    assert text.decode(text.header(Mooded) + b"\x08calm") == Mooded(Mood.CALM)


class Mooded(NamedTuple):
    """A member of `Mood`."""

    mood: Mood


FORMER: list[tuple[dict[str, Any], dict[str, Any], Grown]] = [
    (record("Grown", first="int", last="string"), {"first": 1, "last": "x"}, Grown(1, 6, Colour.BLUE, "x")),
    (record("Grown", from_="int", colour=COLOUR), {"from": 2, "colour": "RED"}, Grown(5, 2, Colour.RED, "z")),
]
"""Former schemas, what was written, and what it is now."""


@pytest.mark.parametrize(("schema", "data", "value"), FORMER)
def test_what_a_former_version_wrote_is_read_with_defaults(
    schema: dict[str, Any], data: dict[str, Any], value: Grown
) -> None:
    """It is never written, and both versions may be in one topic."""
    older = [schema for schema, _, _ in FORMER]
    codec: Codec[Any] = Codec({Grown: GROWN, Two: TWO}, {Grown: older})
    assert codec.decode(header_of(schema) + body(schema, data)) == value
    assert codec.encode(value)[:HEADER_BYTES] == codec.header(Grown)
    assert codec.headers(Grown) == {header_of(GROWN), *map(header_of, older)}
    assert codec.headers(Two) == {header_of(TWO)}


def body(schema: dict[str, Any], data: dict[str, Any]) -> bytes:
    """Return what Avro writes of a record."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(dict(schema), named_schemas={}), data)
    return written.getvalue()


def header_of(schema: dict[str, Any]) -> bytes:
    mark = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return MAGIC + bytes.fromhex(mark)


def test_a_record_is_read_up_to_the_size_that_is_asked_for() -> None:
    value = wire_codec().encode(golden.WIRE["tick"])
    assert wire_codec().decode(value, len(value)) == golden.WIRE["tick"]
    with pytest.raises(CodecError, match=f"it has {len(value)} bytes, more than the {len(value) - 1} that"):
        wire_codec().decode(value, len(value) - 1)


def test_a_header_alone_names_its_version() -> None:
    """A newer acker's record is never taken for garbage, even without a body."""
    with pytest.raises(UnknownVersion):
        wire_codec().decode(b"\xc3\x01" + bytes(HEADER_BYTES - 2))
    with pytest.raises(CodecError, match="first two bytes"):
        wire_codec().decode(b"\xc3\x01" + bytes(HEADER_BYTES - 3))
