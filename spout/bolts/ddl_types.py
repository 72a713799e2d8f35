"""Reads the types of an output without Spark, for tests of bolts that have no session.

It reads only what `spout.bolts.ddl` accepts, which has refused before what no bolt can emit.
Where there is a session, Spark's own parser reads outputs; a test compares the two.

Source: Spark's SQL reference, data types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql import types
from pyspark.sql.types import DataType, StructField, StructType

from spout.bolts.ddl import name_and_type, outer_parts, without_brackets
from spout.spark.renamed import time_type

_SIMPLE: Final[Mapping[str, type[DataType]]] = {
    "bigint": types.LongType,
    "binary": types.BinaryType,
    "boolean": types.BooleanType,
    "byte": types.ByteType,
    "date": types.DateType,
    "double": types.DoubleType,
    "float": types.FloatType,
    "int": types.IntegerType,
    "integer": types.IntegerType,
    "long": types.LongType,
    "real": types.FloatType,
    "short": types.ShortType,
    "smallint": types.ShortType,
    "string": types.StringType,
    "timestamp": types.TimestampType,
    "timestamp_ltz": types.TimestampType,
    "timestamp_ntz": types.TimestampNTZType,
    "tinyint": types.ByteType,
    "variant": types.VariantType,
    "void": types.NullType,
}
_DECIMALS: Final = frozenset({"dec", "decimal", "numeric"})
_PRECISION_AND_SCALE: Final = (10, 0)
"""Of a ``decimal`` without numbers: how many digits it has, and how many of them behind the
point."""

_INTERVAL_UNITS: Final = ("day", "hour", "minute", "second")
"""The index of a unit is the number that Spark has for it: 0 for ``day``."""

_QUOTED: Final = r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_COMMENT: Final = re.compile(rf"\s+comment\s*{_QUOTED}\s*$", re.S | re.I)
_NOT_NULL: Final = re.compile(r"\s+not\s+null\s*$", re.I)
_WHOLE_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.S | re.I)
_FIRST_WORD: Final = re.compile(r"\s*([a-z_]+)", re.I)
_NUMBER: Final = re.compile(r"\d+")


def read_ddl(output: str) -> StructType:
    """Return the fields of an output that `spout.bolts.ddl.field_names` accepts.

    >>> read_ddl("word string NOT NULL, sizes array<int>").simpleString()
    'struct<word:string,sizes:array<int>>'
    """
    whole_struct = _WHOLE_STRUCT.fullmatch(output)
    fields = output if whole_struct is None else whole_struct[1]
    return _struct(fields)


def _struct(fields: str) -> StructType:
    """Return the struct of fields that commas separate; of an empty text one without fields."""
    return StructType([_field(field) for field in outer_parts(fields) if field.strip()])


def _field(text: str) -> StructField:
    """Return one field, by its text: ``word string NOT NULL COMMENT 'a word'``."""
    name, type_text = name_and_type(text)
    without_comment = _COMMENT.sub("", type_text)
    bare_type = _NOT_NULL.sub("", without_comment)
    is_nullable = bare_type == without_comment
    return StructField(name, _type(bare_type), nullable=is_nullable)


def _type(text: str) -> DataType:
    """Return a type, by its text: ``int``, ``decimal(12, 2)``, ``map<string, array<int>>`` and so
    on.
    """
    match = _FIRST_WORD.match(text)
    first_word = match[1].lower() if match is not None else ""
    text_in_brackets = text[text.find("<") + 1 : text.rfind(">")]
    if first_word == "struct":
        return _struct(text_in_brackets)
    if first_word == "array":
        return types.ArrayType(_type(text_in_brackets))
    if first_word == "map":
        key, value = outer_parts(text_in_brackets)
        return types.MapType(_type(key), _type(value))
    numbers = [int(number) for number in _NUMBER.findall(text)]
    if first_word in _DECIMALS:
        # ``decimal(12)`` names the precision alone: the scale is 0, the second of the defaults
        defaults = _PRECISION_AND_SCALE[len(numbers) :]
        precision, scale = [*numbers, *defaults]
        return types.DecimalType(precision, scale)
    if first_word == "time":
        return time_type(*numbers)
    words = without_brackets(text).lower().split()
    if first_word == "interval":
        # ``interval day`` has one unit, which is the first and the last
        units = [_INTERVAL_UNITS.index(word) for word in words if word in _INTERVAL_UNITS]
        return types.DayTimeIntervalType(units[0], units[-1])
    if first_word == "timestamp" and "without" in words:  # ``timestamp without time zone``
        return types.TimestampNTZType()
    return _SIMPLE[first_word]()
