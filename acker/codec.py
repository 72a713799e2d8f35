"""Avro single-object encoding: two bytes C3 01, the schema's CRC-64-AVRO fingerprint, then the body.

A `Codec` is a closed set of record types, each a frozen value of ``acker.events`` (or of another module
that has state of its own to keep) and the Avro schema beside it. A published schema is never edited; a
new version is a further type of the same set, and every old one stays readable.

Source: Avro 1.12 specification, "Single-object encoding"; DESIGN.md, section 4.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from enum import EnumType
from functools import cache
from importlib import resources
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from acker import events
from acker.errors import CodecError

MAGIC: Final = b"\xc3\x01"
HEADER_BYTES: Final = 10
RECORD_BYTES_MAX: Final = 900_000
"""A message of the wire stays below this, under the broker's default of 1,048,588 bytes."""

# What fastavro raises on bytes that are not the schema's; each was seen on garbage under fuzzing.
_GARBAGE = (
    EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, StopIteration,
)  # fmt: skip

E = TypeVar("E")
_Convert = Callable[[Any], Any]


def load_schema(package: str, name: str) -> dict[str, Any]:
    """Read an Avro schema that a package carries as data, ``<package>/wire/<name>.avsc``."""
    text = resources.files(package).joinpath("wire", f"{name}.avsc").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _same(value: Any) -> Any:
    return value


def _wire_name(field: str) -> str:
    return field.rstrip("_")


def _fields(kind: type) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if not name.startswith("_")}


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (
        hasattr(kind, "__dataclass_fields__") or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def _writer_of(kind: Any) -> _Convert:
    """Make the function that turns a value of a type into what fastavro writes."""
    if get_origin(kind) is tuple:
        item = _writer_of(get_args(kind)[0])
        return list if item is _same else lambda values: [item(value) for value in values]
    if isinstance(kind, EnumType):
        return lambda value: value.value
    if not _is_record(kind):
        return _same
    parts = [(_wire_name(name), name, _writer_of(hint)) for name, hint in _fields(kind).items()]
    if issubclass(kind, tuple) and all(convert is _same for _, _, convert in parts):
        names = [wire for wire, _, _ in parts]
        return lambda value: dict(zip(names, value, strict=True))  # runs, by the ten thousand
    return lambda value: {wire: convert(getattr(value, name)) for wire, name, convert in parts}


def _reader_of(kind: Any) -> _Convert:
    """Make the function that turns what fastavro reads into a value of a type."""
    if get_origin(kind) is tuple:
        item = _reader_of(get_args(kind)[0])
        return tuple if item is _same else lambda values: tuple([item(value) for value in values])
    if isinstance(kind, EnumType):
        return kind
    if not _is_record(kind):
        return _same
    parts = [(_wire_name(name), _reader_of(hint)) for name, hint in _fields(kind).items()]
    if len(parts) > 1 and issubclass(kind, tuple) and all(convert is _same for _, convert in parts):
        make, pick = kind._make, itemgetter(*[wire for wire, _ in parts])
        return lambda data: make(pick(data))
    return lambda data: kind(*[convert(data[wire]) for wire, convert in parts])


class Codec(Generic[E]):
    """Encodes and decodes the values of a closed set of record types."""

    def __init__(self, types: Mapping[type[E], Mapping[str, Any]]) -> None:
        """Prepare a set of types.

        Args:
            types: each value type with its Avro schema; field names are the schema's, with an underscore
                appended where the name is a Python keyword.
        """
        self._encoders: dict[type, tuple[bytes, Any, _Convert]] = {}
        self._decoders: dict[bytes, tuple[str, Any, _Convert]] = {}
        for kind, schema in types.items():
            parsed = parse_schema(dict(schema), named_schemas={}, _write_hint=False)
            mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(dict(schema)), "CRC-64-AVRO"))
            header = MAGIC + mark
            self._encoders[kind] = (header, parsed, _writer_of(kind))
            self._decoders[header] = (kind.__name__, parsed, _reader_of(kind))

    def header(self, kind: type[E]) -> bytes:
        """Return the ten bytes that a record of a type begins with."""
        return self._encoders[kind][0]

    def encode(self, value: E) -> bytes:
        """Encode one value.

        Raises:
            CodecError: a field is outside what its Avro type can hold.
        """
        header, schema, convert = self._encoders[type(value)]
        body = io.BytesIO()
        body.write(header)
        try:
            fastavro.schemaless_writer(body, schema, convert(value))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise CodecError(f"{type(value).__name__} cannot be encoded: {error}") from error
        return body.getvalue()

    def decode(self, data: bytes | None) -> E:
        """Decode one record.

        Raises:
            CodecError: the bytes are not one whole record of a known type; the message says which of
                header, version, body or length is wrong.
        """
        if data is None or len(data) < HEADER_BYTES or data[:2] != MAGIC:
            raise CodecError("not a single-object Avro record: the first two bytes are not C3 01")
        found = self._decoders.get(data[:HEADER_BYTES])
        if found is None:
            raise CodecError(f"unknown schema fingerprint {data[2:HEADER_BYTES].hex(' ')}")
        name, schema, convert = found
        body = io.BytesIO(data)
        body.seek(HEADER_BYTES)
        try:
            value: E = convert(fastavro.schemaless_reader(body, schema, None))
        except _GARBAGE as error:
            raise CodecError(f"{name} does not decode: {type(error).__name__}: {error}") from error
        if body.tell() != len(data):
            raise CodecError(f"{name} is followed by {len(data) - body.tell()} bytes that are not part of it")
        return value


WIRE_TYPES: Mapping[type[events.Event], str] = MappingProxyType(
    {
        events.Take: "take",
        events.Taken: "taken",
        events.Init: "init",
        events.Tick: "tick",
        events.Acks: "acks",
        events.Fails: "fails",
        events.Verdicts: "verdicts",
    }
)


@cache
def wire_codec() -> Codec[events.Event]:
    """Make the codec of the four public topics, version 1."""
    return Codec({kind: load_schema("acker", name) for kind, name in WIRE_TYPES.items()})
