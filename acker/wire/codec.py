"""Avro single-object encoding: two bytes C3 01, the schema's CRC-64-AVRO fingerprint, then the body.

A `Codec` is a closed set of record types, each a frozen value of ``acker.wire.events`` (or of another module
that has state of its own to keep) and the Avro schema beside it. A published schema is never edited; a
new version is a further schema, of the same type or of a further one, and every old one stays readable.

Source: Avro 1.12 specification, "Single-object encoding"; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Iterable, Mapping
from enum import Enum, EnumType
from functools import cache
from importlib import resources
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from acker.errors import CodecError, UnknownVersion
from acker.hot_paths import tuple_maker
from acker.wire import events

MAGIC: Final = b"\xc3\x01"
HEADER_BYTES: Final = 10
RECORD_BYTES_MAX: Final = 900_000
"""A message of the wire stays below this, under the broker's default of 1,048,588 bytes."""

READ_BYTES_MAX: Final = 1_048_588
"""A larger record is not decoded: no program of ours wrote it. A compressed batch may have one of a gigabyte,
and what is decoded takes up to two hundred times as much."""

# What fastavro raises on bytes that are not the schema's; each was seen on garbage under fuzzing.
_GARBAGE = (EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, StopIteration)

E = TypeVar("E")
_Convert = Callable[[Any], Any]


def load_schema(package: str, name: str) -> dict[str, Any]:
    """Read an Avro schema that a package carries as data, ``<package>/schemas/<name>.avsc``."""
    text = resources.files(package).joinpath("schemas", f"{name}.avsc").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _same(value: Any) -> Any:
    return value


def _fields(kind: type) -> list[tuple[str, str, Any]]:
    """Return of each field its name on the wire, its own name, and its type."""
    hints = get_type_hints(kind).items()
    return [(name.rstrip("_"), name, hint) for name, hint in hints if not name.startswith("_")]


def _enum_members(kind: Any) -> tuple[Enum, ...] | None:
    """Return the members of an enum, or those of them that a `Literal` allows; None: it is neither."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(kind) if isinstance(kind, EnumType) else None


def _member_reader(members: Iterable[Enum]) -> _Convert:
    by_value = {member.value: member for member in members}

    def member_of(value: Any) -> Enum:
        if value not in by_value:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, by_value))}")
        return by_value[value]

    return member_of


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (
        hasattr(kind, "__dataclass_fields__") or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def _writer_of(kind: Any) -> _Convert:
    if get_origin(kind) is tuple:
        item = _writer_of(get_args(kind)[0])
        return list if item is _same else lambda values: [item(value) for value in values]
    if _enum_members(kind) is not None:
        return lambda value: value.value
    if not _is_record(kind):
        return _same
    parts = [(wire, name, _writer_of(hint)) for wire, name, hint in _fields(kind)]
    if issubclass(kind, tuple) and all(convert is _same for _, _, convert in parts):
        names = [wire for wire, _, _ in parts]
        return lambda value: dict(zip(names, value, strict=True))  # runs, by the ten thousand
    return lambda value: {wire: convert(getattr(value, name)) for wire, name, convert in parts}


def _reader_of(kind: Any, read: Container[str] | None = None) -> _Convert:
    """Make the function that turns what fastavro reads into a value of a type."""
    if get_origin(kind) is tuple:
        item = _reader_of(get_args(kind)[0])
        return tuple if item is _same else lambda values: tuple([item(value) for value in values])
    if (members := _enum_members(kind)) is not None:
        return _member_reader(members)
    if not _is_record(kind):
        return _same
    fields = [field for field in _fields(kind) if read is None or field[0] in read]
    parts = [(wire, _reader_of(hint)) for wire, _, hint in fields]
    if len(parts) == 1:
        [(wire, convert)] = parts
        return lambda data: kind(convert(data[wire]))
    pick = itemgetter(*[wire for wire, _ in parts])
    converted = [(place, convert) for place, (_, convert) in enumerate(parts) if convert is not _same]
    names = [name for _, name, _ in fields]
    make = tuple_maker(kind) if issubclass(kind, tuple) else lambda values: kind(*values)
    if len(fields) < len(_fields(kind)):  # those that an older version lacks may stand between others
        make = lambda values: kind(**dict(zip(names, values, strict=True)))  # noqa: E731
    if not converted:
        return lambda data: make(pick(data))

    def value_of(data: Any) -> Any:
        values = list(pick(data))
        for place, convert in converted:
            values[place] = convert(values[place])
        return make(tuple(values))

    return value_of


def _parsed(schema: Mapping[str, Any]) -> tuple[bytes, Any]:
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(dict(schema)), "CRC-64-AVRO"))
    return MAGIC + mark, parse_schema(dict(schema), named_schemas={})


class Codec(Generic[E]):
    """Encodes and decodes the values of a closed set of record types.

    Field names are the schema's, with an underscore appended where the name is a Python keyword; a schema of
    an older version is read, never written, and has a part of a type's fields: the others have defaults.
    """

    def __init__(
        self,
        types: Mapping[type[E], Mapping[str, Any]],
        older: Mapping[type[E], Iterable[Mapping[str, Any]]] = MappingProxyType({}),
    ) -> None:
        self._encoders: dict[type, tuple[bytes, Any, _Convert]] = {}
        self._decoders: dict[bytes, tuple[str, Any, _Convert]] = {}
        self._headers: dict[type, list[bytes]] = {}
        for kind, schema in types.items():
            header, parsed = _parsed(schema)
            self._encoders[kind] = (header, parsed, _writer_of(kind))
            self._add(kind, header, parsed)
            for version in older.get(kind, ()):
                self._add(kind, *_parsed(version))

    def _add(self, kind: type[E], header: bytes, parsed: Any) -> None:
        read = {field["name"] for field in parsed["fields"]}
        self._decoders[header] = (kind.__name__, parsed, _reader_of(kind, read))
        self._headers.setdefault(kind, []).append(header)

    def headers(self, kind: type[E]) -> frozenset[bytes]:
        """Return the ten bytes that a record of a type may begin with, in any version."""
        return frozenset(self._headers[kind])

    def header(self, kind: type[E]) -> bytes:
        """Return the ten bytes that a record of a type begins with when it is written."""
        return self._encoders[kind][0]

    def encode(self, value: E) -> bytes:
        header, schema, convert = self._encoders[type(value)]
        body = io.BytesIO()
        body.write(header)
        try:
            fastavro.schemaless_writer(body, schema, convert(value))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise CodecError(f"{type(value).__name__} cannot be encoded: {error}") from error
        return body.getvalue()

    def decode(self, data: bytes | None, bytes_max: int = READ_BYTES_MAX) -> E:
        """Decode one record, or raise `CodecError`; `UnknownVersion` for a type not among these."""
        if data is not None and len(data) > bytes_max:
            raise CodecError(f"it has {len(data):,} bytes, more than the {bytes_max:,} that are read")
        if data is None or len(data) < HEADER_BYTES or data[:2] != MAGIC:
            raise CodecError("not a single-object Avro record: the first two bytes are not C3 01")
        found = self._decoders.get(data[:HEADER_BYTES])
        if found is None:
            raise UnknownVersion(f"unknown schema fingerprint {data[2:HEADER_BYTES].hex(' ')}")
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
    return Codec({kind: load_schema("acker.wire", name) for kind, name in WIRE_TYPES.items()})


RUNS_MAX: Final = 32
"""More runs than this are decoded faster by compiled code."""


class _Unusual(Exception):
    """Something that only the generic decoder reads."""


class _Cursor:
    __slots__ = ("_data", "_view", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self.at = HEADER_BYTES

    def long(self) -> int:
        data, at = self._data, self.at
        byte = data[at]
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            at += 1
            byte = data[at]
            if shift > 63:  # without a bound, garbage of 900 KB takes half a minute, and ends each acker
                raise _Unusual
            number |= (byte & 0x7F) << shift
            shift += 7
        self.at = at + 1
        if number >> 64:
            raise _Unusual
        return (number >> 1) ^ -(number & 1)

    def packed(self) -> bytes:
        return cast("bytes", self._view[self._skip() : self.at])

    def _skip(self) -> int:
        length = self.long()
        first, end = self.at, self.at + length
        if length < 0 or end > len(self._data):
            raise _Unusual
        self.at = end
        return first

    def text(self) -> str:
        return self._data[self._skip() : self.at].decode()

    def runs(self) -> tuple[events.PositionRun, ...]:
        count = self.long()
        if count == 0:
            return ()
        if not 0 < count <= RUNS_MAX:
            raise _Unusual
        runs = tuple([events.PositionRun(self.long(), self.long()) for _ in range(count)])
        if self.long() != 0:
            raise _Unusual
        return runs


def read_acks(data: bytes, header: bytes) -> events.Acks | None:
    """Read contributions without a copy of what is packed in them: they come by the gigabyte.

    A generic decoder copies both arrays, half a megabyte for a full block, which costs as much as folding
    them. Here they are views of `data`, and keep it alive. `header` is the ten bytes that `Acks` begins with.

    Returns None for whatever is unusual (another kind, an array in several blocks, many runs or bytes): the
    generic decoder reads it, and raises its errors.

    Source: Avro 1.12 specification, "Binary encoding"; the fields are those of ``acker/wire/acks.avsc``.
    """
    if not data.startswith(header) or len(data) > READ_BYTES_MAX:
        return None
    cursor = _Cursor(data)
    try:
        record = events.Acks(
            cursor.text(), cursor.long(), cursor.text(), cursor.text(), cursor.long(), cursor.long(),
            cursor.long(), cursor.runs(), cursor.packed(), cursor.packed(), cursor.runs(), cursor.packed(),
            cursor.long(),
        )  # fmt: skip
    except (IndexError, UnicodeDecodeError, _Unusual):
        return None
    return record if cursor.at == len(data) else None
