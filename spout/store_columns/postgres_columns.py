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
        modifier: the digits or the length that it was declared with, as PostgreSQL keeps them;
            -1: none, and then it has room for all.
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


def types_for(arrow_type: pa.DataType) -> frozenset[str]:
    """Return PostgreSQL's types of columns that may take values of a type of Arrow.

    Whether the column has room for their digits is another question: see `changes`.
    """
    types = pa.types
    if types.is_boolean(arrow_type):
        return frozenset({"bool"}) | _JSONS
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return _NUMBERS | _TEXTS | _JSONS
    if types.is_binary(arrow_type) or types.is_large_binary(arrow_type):
        return frozenset({"bytea"})
    if types.is_date(arrow_type):
        return _TEXTS | {"date", "timestamp"}
    if types.is_timestamp(arrow_type):
        return _TEXTS | {"timestamp" if arrow_type.tz is None else "timestamptz"}
    if types.is_time(arrow_type):
        return _TEXTS | {"time"}
    if types.is_duration(arrow_type):
        return _TEXTS | {"interval"}
    return _TEXTS | _JSONS


def takes(arrow_type: pa.DataType, column: PostgresColumn) -> bool:
    """Return whether a column takes values of a type as they are, if it has room for their digits."""
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type):
        # a type that PostgreSQL does not bring along reads texts in its own way, but a query may
        # want just that: only the types of `_NO_TEXT` and arrays are refused
        return column.type not in _NO_TEXT and column.element is None
    if pa.types.is_null(arrow_type):
        return True
    is_list = pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)
    if column.element is not None and is_list:
        # an array of arrays of int4 has the type of an array of int4
        innermost = arrow_type.value_type
        while pa.types.is_list(innermost) or pa.types.is_large_list(innermost):
            innermost = innermost.value_type
        return takes(innermost, column.element)
    return column.type in types_for(arrow_type)


def changes(column: PostgresColumn) -> ValueTest | None:
    """Return the test for the values that a column would change; None: it changes none.

    The test is for values of the types that the column takes (`takes`).
    """
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
            # Of numeric(6, 2) the modifier is 4 more than 6 << 16 | 2. Its lowest eleven bits are the
            # scale, which has a sign: 2,047 is -1.
            scale = (((column.modifier - 4) & 0x7FF) ^ 1024) - 1024
            return lambda value: not _has_digits(value, scale)
        case "timestamp" | "timestamptz" | "time" if 0 <= column.modifier < 6:
            unit_us = 10 ** (6 - column.modifier)
            return lambda value: isinstance(value, datetime | time) and value.microsecond % unit_us != 0
        case "interval" if column.modifier >= 0:
            return lambda _value: True  # which parts of an interval it cuts is not read here
        case "bpchar" if column.modifier >= 0:
            return _changed_by_char(column.modifier - 4)  # PostgreSQL adds 4 to the length
        case "varchar" if column.modifier >= 0:
            return _changed_by_varchar(column.modifier - 4)
    if column.type in _NO_TEXT:
        return None  # it takes no text, and no other value that it would change
    return lambda value: isinstance(value, str) and "\0" in value


def _changed_by_char(length: int) -> ValueTest:
    """Return the test for the values that a column char(length) would change.

    It fills them up with spaces, and a space at their end means nothing. PostgreSQL has no NUL.
    """

    def is_changed(value: Any) -> bool:
        text = str(value)
        return "\0" in text or len(text) != length or text[-1:] == " "

    return is_changed


def _changed_by_varchar(length: int) -> ValueTest:
    """Return the test for the values that a column varchar(length) would change.

    A text that is too long and ends in a space may be stored shorter, since spaces are cut there.
    Any other that is too long is refused, not changed. PostgreSQL has no NUL.
    """

    def is_changed(value: Any) -> bool:
        text = str(value)
        return "\0" in text or (len(text) > length and text[-1:] == " ")

    return is_changed


def _items(value: Any) -> list[Any]:
    """Return the single values in a list, and in the lists in it, without nulls.

    Of ``[[1, None], [2]]`` they are ``[1, 2]``, of a value that is no list the value itself.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        return [value]
    items: list[Any] = []
    for item in value:
        items += _items(item)
    return items


def _as_float4(value: float) -> float:
    """Return the nearest float of 32 bits; of one that is too large infinity."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def _is_same_number(stored: float, value: Any) -> bool:
    return stored == value or (value != value and math.isnan(stored))


def _has_digits(value: Any, scale: int) -> bool:
    """Return whether a number has at most `scale` digits behind its point; NaN has none.

    A negative scale is for numbers that end in zeros: with -2 the number 1,200 has them.
    """
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite() or not number:
        return True
    # of 1.50 it is -1, of 1,200 it is 2
    exponent = number.normalize(_ALL_DIGITS).as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= scale
