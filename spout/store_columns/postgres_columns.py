"""What the columns of a table in PostgreSQL make of values, and the values that they would change.

Rows are copied as texts, and a column reads the text of a value in its own way. So it changes some
without a word: it drops the zone of a time, rounds a number to the digits that it was declared
with, takes the bytes ``hi`` for the text ``\\x6869``, and cuts spaces. All of these are refused here.
What PostgreSQL refuses itself, such as a number that is too large, it names by line and column.

Source: PostgreSQL 17, chapter 8 and COPY.
"""

from __future__ import annotations

import math
import struct
from datetime import datetime, time
from decimal import Context, Decimal
from typing import Any, Final, LiteralString, NamedTuple

import pyarrow as pa

from spout.store_columns.first_row import ValueTest

COLUMNS: Final[LiteralString] = """
    WITH RECURSIVE made_of (name, type, modifier) AS (
        SELECT attname::text, atttypid, atttypmod FROM pg_attribute
        WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT m.name, t.typbasetype, t.typtypmod
        FROM made_of AS m JOIN pg_type AS t ON t.oid = m.type AND t.typtype = 'd'
    )
    SELECT m.name, t.typname::text, m.modifier
    FROM made_of AS m JOIN pg_type AS t ON t.oid = m.type AND t.typtype <> 'd'
"""
"""The columns of a table; of a domain, or one that is made of another, the type below it."""

_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "citext"})
_JSONS: Final = frozenset({"json", "jsonb"})
_WHOLE: Final = frozenset({"int2", "int4", "int8"})
_FLOATS: Final = frozenset({"float4", "float8"})
_NUMBERS: Final = _WHOLE | _FLOATS | {"numeric"}
_TIMES: Final = frozenset({"date", "time", "timetz", "timestamp", "timestamptz", "interval"})
_NO_TEXT: Final = _NUMBERS | _TIMES | {"bool", "bytea", "name", "char", "money", "bit", "varbit"}
"""Types of which the text may be written in many ways: a query casts it, and sees what comes of it."""

_ALL_DIGITS: Final = Context(prec=76)
"""Keeps each digit of a number, of which Arrow's decimals have 76 at most. Python's own context
rounds to 28: of ``10000000000000000000000000000.5`` it would leave no half."""


class PostgresColumn(NamedTuple):
    """The type of a column.

    Attributes:
        type: PostgreSQL's short name of it, as ``int4``; of an array with a ``_`` before it.
        modifier: the digits that it was declared with, as PostgreSQL keeps them; -1: none.
    """

    type: str
    modifier: int

    @property
    def element(self) -> PostgresColumn | None:
        """The type of the elements; None: it is no array."""
        return PostgresColumn(self.type[1:], self.modifier) if self.type.startswith("_") else None

    @property
    def is_json(self) -> bool:
        return self.type in _JSONS


def types_for(kind: pa.DataType) -> frozenset[str]:
    """Return the types of columns that may take values of a type; for their digits see `changes`."""
    types = pa.types
    if types.is_boolean(kind):
        return frozenset({"bool"}) | _JSONS
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return _NUMBERS | _TEXTS | _JSONS
    if types.is_binary(kind) or types.is_large_binary(kind):
        return frozenset({"bytea"})
    if types.is_date(kind):
        return _TEXTS | {"date", "timestamp"}
    if types.is_timestamp(kind):
        return _TEXTS | {"timestamp" if kind.tz is None else "timestamptz"}
    if types.is_time(kind):
        return _TEXTS | {"time"}
    if types.is_duration(kind):
        return _TEXTS | {"interval"}
    return _TEXTS | _JSONS


def takes(kind: pa.DataType, column: PostgresColumn) -> bool:
    """Return whether a column takes values of a type as they are, except for its digits."""
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text:
        # types that others have made are read as they like it
        return column.type not in _NO_TEXT and column.element is None
    if pa.types.is_null(kind):
        return True
    if column.element is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        inner = kind.value_type
        while pa.types.is_list(inner) or pa.types.is_large_list(inner):
            inner = inner.value_type  # an array of arrays has the type of an array
        return takes(inner, column.element)
    return column.type in types_for(kind)


def changes(column: PostgresColumn) -> ValueTest | None:
    """Return what tells a value that a column would change; None: it changes none that it takes."""
    element = column.element
    if element is not None:
        changes_element = changes(element)
        if changes_element is None:
            return None
        return lambda value: any(changes_element(item) for item in _items(value))
    match column.type:
        case "float4":
            return lambda value: not _is_same_number(_as_float4(float(value)), value)
        case "float8":
            return lambda value: not _is_same_number(float(value), value)
        case "numeric" if column.modifier >= 0:
            # the lowest eleven bits are the scale, with a sign
            scale = (((column.modifier - 4) & 0x7FF) ^ 1024) - 1024
            return lambda value: not _has_digits(value, scale)
        case "timestamp" | "timestamptz" | "time" if 0 <= column.modifier < 6:
            unit_us = 10 ** (6 - column.modifier)
            return lambda value: isinstance(value, datetime | time) and value.microsecond % unit_us != 0
        case "interval" if column.modifier >= 0:
            return lambda _value: True
        case "bpchar":
            # it is filled with spaces, and a space at its end means nothing
            length = column.modifier - 4
            return lambda value: "\0" in str(value) or len(str(value)) != length or str(value)[-1:] == " "
        case "varchar" if column.modifier >= 0:
            # spaces that it has no room for are cut
            length = column.modifier - 4
            return lambda value: "\0" in str(value) or (len(str(value)) > length and str(value)[-1:] == " ")
    if column.type in _NO_TEXT:
        return None  # it takes no text, and no other value that it would change
    return lambda value: isinstance(value, str) and "\0" in value


def _items(value: Any) -> list[Any]:
    """Return what is in an array, and in the arrays in it, without its nulls."""
    if not isinstance(value, list):
        return [] if value is None else [value]
    return [inner for item in value for inner in _items(item)]


def _as_float4(value: float) -> float:
    """Return the nearest float of 32 bits; of one that is too large infinity."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def _is_same_number(stored: float, value: Any) -> bool:
    return stored == value or (value != value and math.isnan(stored))


def _has_digits(value: Any, scale: int) -> bool:
    """Return whether a number has no more digits behind its point than a scale; NaN has none."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        return True
    exponent = number.normalize(_ALL_DIGITS).as_tuple().exponent
    return not number or (isinstance(exponent, int) and -exponent <= scale)
