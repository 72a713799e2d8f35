"""Avro single-object encoding: two bytes C3 01, the schema's CRC-64-AVRO fingerprint, then the
body.

A `Codec` is a closed set of record types, each a frozen value of ``acker.wire.events`` (or of
another module that has state of its own to keep) and the Avro schema beside it. A published schema
is never edited; a new version is a further schema, of the same type or of a further one, and every
old one stays readable.

Source: Avro 1.12 specification, "Single-object encoding"; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, EnumType
from functools import cache
from importlib import resources
from operator import itemgetter
from types import MappingProxyType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

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
"""A larger record is not decoded: no program of ours wrote it. A compressed batch may have one of
a gigabyte, and what is decoded takes up to two hundred times as much."""

# What fastavro raises on bytes that are not the schema's; each was seen on garbage under fuzzing.
_GARBAGE = (EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, StopIteration)

E = TypeVar("E")
_Convert = Callable[[Any], Any]


def load_schema(package: str, name: str) -> dict[str, Any]:
    """Read an Avro schema that a package carries as data, ``<package>/schemas/<name>.avsc``."""
    text = resources.files(package).joinpath("schemas", f"{name}.avsc").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _unchanged(value: Any) -> Any:
    """Return a value that Avro and Python have in the same form.

    The makers below compare with it, to leave the call out.
    """
    return value


class _Field(NamedTuple):
    """A field of a record type. `wire_name` is the schema's: ``from``, where Python's name is ``from_``."""

    wire_name: str
    name: str
    type: Any


def _fields(kind: type) -> list[_Field]:
    """Return the fields of a record type, in its order."""
    hints = get_type_hints(kind).items()
    return [_Field(name.rstrip("_"), name, hint) for name, hint in hints if not name.startswith("_")]


def _enum_members(kind: Any) -> tuple[Enum, ...] | None:
    """Return the members of an enum, or those of them that a `Literal` allows; None: it is neither."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(kind) if isinstance(kind, EnumType) else None


def _member_reader(members: Iterable[Enum]) -> _Convert:
    """Return a function from the value of an enum's member to the member."""
    member_by_value = {member.value: member for member in members}

    def member_of(value: Any) -> Enum:
        if value not in member_by_value:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, member_by_value))}")
        return member_by_value[value]

    return member_of


def _is_record(kind: Any) -> bool:
    """Return whether a type is a dataclass or a named tuple: a record of the schema."""
    if not isinstance(kind, type):
        return False
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return hasattr(kind, "__dataclass_fields__") or is_named_tuple


def _writer_of(kind: Any) -> _Convert:
    """Make the function that turns a value of the type `kind` into what fastavro writes."""
    if get_origin(kind) is tuple:
        write_item = _writer_of(get_args(kind)[0])
        if write_item is _unchanged:
            return list
        return lambda values: [write_item(value) for value in values]
    if _enum_members(kind) is not None:
        return lambda value: value.value
    if not _is_record(kind):
        return _unchanged
    # each field's name on the wire, its name in Python, and the function that writes its value
    writers = [(field.wire_name, field.name, _writer_of(field.type)) for field in _fields(kind)]
    if issubclass(kind, tuple) and all(write is _unchanged for _, _, write in writers):
        wire_names = [wire_name for wire_name, _, _ in writers]
        # the type of runs, which come by the ten thousand: its items are written as they are
        return lambda value: dict(zip(wire_names, value, strict=True))
    return lambda value: {wire_name: write(getattr(value, name)) for wire_name, name, write in writers}


def _reader_of(kind: Any, names_read: Container[str] | None = None) -> _Convert:
    """Make the function that turns what fastavro reads into a value of the type `kind`.

    `names_read` are the fields that the schema has, by their names on the wire; None: all of the
    type's.
    """
    if get_origin(kind) is tuple:
        read_item = _reader_of(get_args(kind)[0])
        if read_item is _unchanged:
            return tuple
        return lambda values: tuple([read_item(value) for value in values])
    members = _enum_members(kind)
    if members is not None:
        return _member_reader(members)
    if not _is_record(kind):
        return _unchanged
    return _record_reader(kind, names_read)


def _record_reader(kind: Any, names_read: Container[str] | None) -> _Convert:
    """Make the function that turns a record, as fastavro's dict, into a value of the type `kind`.

    `names_read` is as for `_reader_of`.
    """
    fields = [field for field in _fields(kind) if names_read is None or field.wire_name in names_read]
    # each field's name on the wire, and the function that reads its value
    readers = [(field.wire_name, _reader_of(field.type)) for field in fields]
    if len(readers) == 1:  # `itemgetter` of one name would return no tuple
        [(wire_name, read)] = readers
        return lambda data: kind(read(data[wire_name]))
    # 1. how the values are picked out of the dict
    pick_values = itemgetter(*[wire_name for wire_name, _ in readers])
    # 2. which of them are converted, by their index: of most records none is
    converters = [(index, read) for index, (_, read) in enumerate(readers) if read is not _unchanged]
    # 3. how the record is made of them
    make_record = _record_maker(kind, [field.name for field in fields])
    if not converters:
        return lambda data: make_record(pick_values(data))

    def read_record(data: Any) -> Any:
        values = list(pick_values(data))
        for index, read in converters:
            values[index] = read(values[index])
        return make_record(tuple(values))

    return read_record


def _record_maker(kind: Any, names: Sequence[str]) -> Callable[[Any], Any]:
    """Return a function that makes a value of a record type from the values of the named fields."""
    if len(names) < len(_fields(kind)):
        # an older version lacks some, which may stand between others: so they are given by name
        return lambda values: kind(**dict(zip(names, values, strict=True)))
    if issubclass(kind, tuple):
        return tuple_maker(kind)
    return lambda values: kind(*values)


class _ParsedSchema(NamedTuple):
    """A schema as fastavro needs it; `header` is the ten bytes that a record of it begins with."""

    header: bytes
    parsed: Any


def _parsed(schema: Mapping[str, Any]) -> _ParsedSchema:
    """Parse a schema, and compute the header of its records: two fixed bytes, and its fingerprint."""
    schema_fingerprint = bytes.fromhex(fingerprint(to_parsing_canonical_form(dict(schema)), "CRC-64-AVRO"))
    return _ParsedSchema(MAGIC + schema_fingerprint, parse_schema(dict(schema), named_schemas={}))


@dataclass(frozen=True, slots=True)
class _Encoder:
    """How values of a type are written: as `header`, and what `convert` makes of them, by the schema."""

    header: bytes
    schema: Any
    convert: _Convert


@dataclass(frozen=True, slots=True)
class _Decoder:
    """How records of a schema are read: `convert` makes a value of the type `name` of each."""

    name: str
    schema: Any
    convert: _Convert


class Codec(Generic[E]):
    """Encodes and decodes the values of a closed set of record types.

    Field names are the schema's, with an underscore appended where the name is a Python keyword; a
    schema of an older version is read, never written, and has a part of a type's fields: the
    others have defaults.
    """

    def __init__(
        self,
        types: Mapping[type[E], Mapping[str, Any]],
        older: Mapping[type[E], Iterable[Mapping[str, Any]]] = MappingProxyType({}),
    ) -> None:
        """Prepare to encode and decode record types by their schemas.

        Records of `older` schemas of some of them are decoded, too.
        """
        # a header here is the ten bytes that a record begins with; it names the schema
        self._encoders: dict[type, _Encoder] = {}
        self._decoder_by_header: dict[bytes, _Decoder] = {}
        self._headers_by_type: dict[type, list[bytes]] = {}  # those of all versions
        for kind, schema in types.items():
            header, parsed = _parsed(schema)
            self._encoders[kind] = _Encoder(header, parsed, _writer_of(kind))
            self._add_decoder(kind, header, parsed)
            for older_schema in older.get(kind, ()):
                self._add_decoder(kind, *_parsed(older_schema))

    def _add_decoder(self, kind: type[E], header: bytes, parsed: Any) -> None:
        """Read records with this header, of this schema, as values of a type."""
        names_read = {field["name"] for field in parsed["fields"]}
        self._decoder_by_header[header] = _Decoder(kind.__name__, parsed, _reader_of(kind, names_read))
        self._headers_by_type.setdefault(kind, []).append(header)

    def headers(self, kind: type[E]) -> frozenset[bytes]:
        """Return the ten bytes that a record of a type may begin with, in any version."""
        return frozenset(self._headers_by_type[kind])

    def header(self, kind: type[E]) -> bytes:
        """Return the ten bytes that a record of a type begins with when it is written."""
        return self._encoders[kind].header

    def encode(self, value: E) -> bytes:
        """Return the bytes of one record, or raise `CodecError` for a value that its schema cannot hold."""
        encoder = self._encoders[type(value)]
        body = io.BytesIO()
        body.write(encoder.header)
        try:
            fastavro.schemaless_writer(body, encoder.schema, encoder.convert(value))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise CodecError(f"{type(value).__name__} cannot be encoded: {error}") from error
        return body.getvalue()

    def decode(self, data: bytes | None, bytes_max: int = READ_BYTES_MAX) -> E:
        """Decode one record, or raise `CodecError`; `UnknownVersion` for a type not among these."""
        if data is not None and len(data) > bytes_max:
            raise CodecError(f"it has {len(data):,} bytes, more than the {bytes_max:,} that are read")
        if data is None or len(data) < HEADER_BYTES or data[:2] != MAGIC:
            raise CodecError("not a single-object Avro record: the first two bytes are not C3 01")
        decoder = self._decoder_by_header.get(data[:HEADER_BYTES])
        if decoder is None:
            raise UnknownVersion(f"unknown schema fingerprint {data[2:HEADER_BYTES].hex(' ')}")
        body = io.BytesIO(data)
        body.seek(HEADER_BYTES)
        try:
            value: E = decoder.convert(fastavro.schemaless_reader(body, decoder.schema, None))
        except _GARBAGE as error:
            raise CodecError(f"{decoder.name} does not decode: {type(error).__name__}: {error}") from error
        bytes_behind = len(data) - body.tell()
        if bytes_behind:
            raise CodecError(f"{decoder.name} is followed by {bytes_behind} bytes that are not part of it")
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
    """What only the generic decoder reads: garbage, a form of others, or over `RUNS_MAX` runs."""


class _FieldReader:
    """Reads the fields of one encoded record, one after the other.

    `next_index` is that of the first byte that is not read yet.
    """

    __slots__ = ("_data", "_view", "next_index")

    def __init__(self, data: bytes) -> None:
        """Begin behind the header."""
        self._data = data
        self._view = memoryview(data)
        self.next_index = HEADER_BYTES

    def long(self) -> int:
        """Read the next number of the record: zigzag, seven bits to a byte, the lowest first.

        Raises `_Unusual`: it has more than 64 bits; `IndexError`: the record ends within it.
        """
        data, index = self._data, self.next_index
        byte = data[index]
        number, shift = byte & 0x7F, 7
        while byte & 0x80:  # its upper bit: another byte follows
            index += 1
            byte = data[index]
            if shift > 63:  # without a bound, garbage of 900 KB takes half a minute, and ends each acker
                raise _Unusual
            number |= (byte & 0x7F) << shift
            shift += 7
        self.next_index = index + 1
        if number >> 64:  # ten bytes have room for 70 bits
            raise _Unusual
        # zigzag: 0, 1, 2, 3 stand for 0, -1, 1, -2
        return (number >> 1) ^ -(number & 1)

    def packed(self) -> bytes:
        """Read bytes, as a view of the record."""
        start = self._skip()
        return cast("bytes", self._view[start : self.next_index])

    def _skip(self) -> int:
        """Read a length, go behind so many bytes, and return the index of the first of them.

        Raises `_Unusual`: the record has fewer bytes.
        """
        length = self.long()
        start, end = self.next_index, self.next_index + length
        if length < 0 or end > len(self._data):
            raise _Unusual
        self.next_index = end
        return start

    def text(self) -> str:
        """Read a text: bytes of UTF-8."""
        start = self._skip()
        return self._data[start : self.next_index].decode()

    def runs(self) -> tuple[events.PositionRun, ...]:
        """Read an array of runs as our writers write it: how many there are, the runs, and a 0.

        Raises `_Unusual`: another program wrote it in parts, or it has more than `RUNS_MAX` runs.
        """
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

    A generic decoder copies both arrays, half a megabyte for a full block, which costs as much as
    folding them. Here they are views of `data`, and keep it alive. `header` is the ten bytes that
    `Acks` begins with.

    Returns None for whatever is unusual (another kind, an array in several blocks, many runs or
    bytes): the generic decoder reads it, and raises its errors.

    Source: Avro 1.12 specification, "Binary encoding"; the fields are those of
    ``acker/wire/acks.avsc``.
    """
    if not data.startswith(header) or len(data) > READ_BYTES_MAX:
        return None
    reader = _FieldReader(data)
    try:
        # in the order of the schema's fields, which is that of the class
        record = events.Acks(
            reader.text(), reader.long(), reader.text(), reader.text(), reader.long(), reader.long(),
            reader.long(), reader.runs(), reader.packed(), reader.packed(), reader.runs(), reader.packed(),
            reader.long(),
        )  # fmt: skip
    except (IndexError, UnicodeDecodeError, _Unusual):
        return None
    return record if reader.next_index == len(data) else None
