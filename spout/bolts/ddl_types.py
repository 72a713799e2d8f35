"""The types of an output, read without Spark, for tests of bolts that have no session.

`spout.bolts.ddl` has refused before what no bolt can emit, so this reads what is left. Where there is a
session, Spark's own parser reads outputs; a test holds that both say the same.

Source: Spark's SQL reference, data types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyspark.sql.types as kinds
from pyspark.sql.types import DataType, StructField, StructType

from spout.bolts.ddl import name_and_type, outer_parts, without_brackets

_SIMPLE: Final[Mapping[str, type[DataType]]] = {
    "bigint": kinds.LongType,
    "binary": kinds.BinaryType,
    "boolean": kinds.BooleanType,
    "byte": kinds.ByteType,
    "date": kinds.DateType,
    "double": kinds.DoubleType,
    "float": kinds.FloatType,
    "int": kinds.IntegerType,
    "integer": kinds.IntegerType,
    "long": kinds.LongType,
    "real": kinds.FloatType,
    "short": kinds.ShortType,
    "smallint": kinds.ShortType,
    "string": kinds.StringType,
    "timestamp": kinds.TimestampType,
    "timestamp_ltz": kinds.TimestampType,
    "timestamp_ntz": kinds.TimestampNTZType,
    "tinyint": kinds.ByteType,
    "variant": kinds.VariantType,
    "void": kinds.NullType,
}
_DECIMALS: Final = frozenset({"dec", "decimal", "numeric"})
_PRECISION: Final = (10, 0)
"""Digits of a decimal that names none, and how many of them stand behind the point."""

_UNITS: Final = ("day", "hour", "minute", "second")
"""Units of an interval, by the numbers that Spark has for them."""

_COMMENT: Final = re.compile(r"\s+comment\s*(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\s*$", re.S | re.I)
_NOT_NULL: Final = re.compile(r"\s+not\s+null\s*$", re.I)
_WHOLE_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.S | re.I)
_FIRST_WORD: Final = re.compile(r"\s*([a-z_]+)", re.I)
_NUMBER: Final = re.compile(r"\d+")


def read_ddl(output: str) -> StructType:
    """Return the fields of an output that `spout.bolts.ddl.field_names` accepts.

    >>> read_ddl("word string NOT NULL, sizes array<int>").simpleString()
    'struct<word:string,sizes:array<int>>'
    """
    whole = _WHOLE_STRUCT.fullmatch(output)
    return _struct(output if whole is None else whole[1])


def _struct(text: str) -> StructType:
    return StructType([_field(part) for part in outer_parts(text) if part.strip()])


def _field(text: str) -> StructField:
    name, kind = name_and_type(text)
    kind = _COMMENT.sub("", kind)
    bare = _NOT_NULL.sub("", kind)
    return StructField(name, _type(bare), nullable=bare == kind)


def _type(text: str) -> DataType:
    first = _FIRST_WORD.match(text)
    word = first[1].lower() if first is not None else ""
    inner = text[text.find("<") + 1 : text.rfind(">")]
    if word == "struct":
        return _struct(inner)
    if word == "array":
        return kinds.ArrayType(_type(inner))
    if word == "map":
        key, value = outer_parts(inner)
        return kinds.MapType(_type(key), _type(value))
    numbers = [int(number) for number in _NUMBER.findall(text)]
    if word in _DECIMALS:
        precision, scale = [*numbers, *_PRECISION[len(numbers) :]]
        return kinds.DecimalType(precision, scale)
    if word == "time":
        return kinds.TimeType(*numbers)
    words = without_brackets(text).lower().split()
    if word == "interval":
        units = [_UNITS.index(unit) for unit in words if unit in _UNITS]
        return kinds.DayTimeIntervalType(units[0], units[-1])
    if word == "timestamp" and "without" in words:
        return kinds.TimestampNTZType()
    return _SIMPLE[word]()
