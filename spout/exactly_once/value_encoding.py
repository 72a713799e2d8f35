"""Values of Kafka's records, made of the columns of rows: JSON, Avro, or a column of bytes.

To encode in the driver takes a microsecond a row and more, by Avro some of them. A query that
writes much encodes in its executors, by Spark's `to_json` or `to_avro`, and names the column.
"""

from __future__ import annotations

import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from acker.errors import UsageError

JSON: Final = "json"
"""The `value` of a store that writes JSON."""

Encode = Callable[[pa.Table, int], Sequence[bytes | None]]
"""Returns the value of each row; the number is that of the first row in its batch, for messages."""

_UNFIT: Final = (ValueError, TypeError, OverflowError, AttributeError, LookupError)
"""What `json` and `fastavro` raise for a value that they cannot write."""


def encoding_of(value: str | Mapping[str, Any]) -> Encode:
    """Return what encodes rows.

    Args:
        value: ``json``, an Avro schema as a mapping, or the name of a column of bytes.

    Raises `UsageError`: the schema is none of Avro's.
    """
    if value == JSON:
        return json_values
    if isinstance(value, str):
        return lambda rows, _first_row: binary_column(rows, value, "value").to_pylist()
    return avro_encoding(value)


def binary_column(rows: pa.Table, name: str, role: str) -> pa.BinaryArray:
    """Return a column of bytes, in one piece; `role` is what it is for, "value" or "key".

    Raises `UsageError`: there is no such column, or it has no bytes.
    """
    column = existing_column(rows, name, role)
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise UsageError(
            f"the column {name}, which is the {role} of each record, has the type {kind}, and not"
            f" binary; cast it, by col({name!r}).cast('binary')"
        )
    return _in_one_piece(column)


def existing_column(rows: pa.Table, name: str, role: str) -> pa.ChunkedArray:
    """Return a column; raise `UsageError` if the rows have none of its name."""
    names = rows.column_names
    if name not in names:
        raise UsageError(
            f"the rows have no column {name}, which is to be the {role}"
            f" of each record; their columns are {', '.join(names)}"
        )
    return rows.column(name)


def text_or_bytes(rows: pa.Table, name: str, role: str) -> pa.BinaryArray:
    """Return a column of bytes, or of text as UTF-8; raise `UsageError` if it is neither."""
    column = existing_column(rows, name, role)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _in_one_piece(column)
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise UsageError(
            f"the column {name}, which is the {role} of each record, has the type {kind}; cast it,"
            f" by col({name!r}).cast('string')"
        )
    return _in_one_piece(column)


def _in_one_piece(column: pa.ChunkedArray) -> pa.BinaryArray:
    """Return bytes or text as one array of bytes."""
    chunks = column.cast(pa.binary()).chunks or [pa.array([], pa.binary())]
    joined: pa.BinaryArray = pa.concat_arrays(chunks)
    return joined


def python_rows(rows: pa.Table, first_row: int = 0) -> list[dict[str, Any]]:
    """Return rows as Python has them; see `column_values`."""
    names = rows.column_names
    columns = [column_values(rows.column(name), name, first_row) for name in names]
    if not columns:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def column_values(column: pa.ChunkedArray, name: str, first_row: int = 0) -> list[Any]:
    """Return a column as Python has it, with a dict for each map; Arrow's own are lists of pairs.

    Raises `UsageError`: a value is none of Python's, such as a text that is no UTF-8.
    """
    try:
        values: list[Any] = column.to_pylist()
    except _UNFIT as error:
        raise _no_python_value(column, name, first_row) from error
    if _has_map(column.type):
        return [_with_dicts(value, column.type) for value in values]
    return values


def _no_python_value(column: pa.ChunkedArray, name: str, first_row: int) -> UsageError:
    """Return the error of a column that Python cannot have, with the first such row."""
    for number, scalar in enumerate(column, first_row):
        try:
            scalar.as_py()
        except _UNFIT as error:
            why = f"{type(error).__name__}: {error!s:.300}"
            return UsageError(
                f"row {number} of the batch has in {name}, which is a {column.type}, what Python"
                f" has no value for: {why}; cast the column, or fail such tuples in a bolt"
            )
    raise AssertionError(f"every value of {name} is one of Python's")


def _has_map(kind: pa.DataType) -> bool:
    """Return whether a type is a map, or has one in it."""
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a type with a dict for each map in it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _with_dicts(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind.fields}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_with_dicts(item, kind.value_type) for item in value]
    return value


def _as_json(value: object) -> object:
    """Return a value that JSON has no form for as one that it has."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
    raise TypeError(f"JSON has no form for {type(value).__name__}")


def _without_nan(value: Any) -> Any:
    """Return a value in which the floats that are no number are texts: NaN, Infinity, -Infinity."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _without_nan(item) for key, item in value.items()}
        case list():
            return [_without_nan(item) for item in value]
    return value


def json_values(rows: pa.Table, first_row: int = 0) -> list[bytes | None]:
    """Return each row as an object of JSON, in UTF-8.

    A null is null. Bytes are base64; times are ISO 8601; a decimal, and a float that is no number,
    are texts, since JSON's readers would lose digits of the one and have no word for the other.

    A column is encoded at once: a call of Python's encoder takes a microsecond, a text in it less.
    """
    names = rows.column_names
    if not names:
        return [b"{}"] * rows.num_rows
    columns = [_json_texts(rows.column(name), name, first_row) for name in names]
    # a percent sign in a name is none of the template's
    labels = [_write_json(name).replace("%", "%%") for name in names]
    template = "{" + ",".join(f"{label}:%s" for label in labels) + "}"
    return [(template % row).encode() for row in zip(*columns, strict=True)]


def _json_encoder(item_separator: str) -> Callable[[object], str]:
    return json.JSONEncoder(
        separators=(item_separator, ":"), ensure_ascii=False, allow_nan=False, default=_as_json
    ).encode


_write_json: Final = _json_encoder(",")
_write_lines: Final = _json_encoder("\n")
"""Writes the items of a list on a line each: within a text of JSON a line feed is escaped."""


def _json_texts(column: pa.ChunkedArray, name: str, first_row: int) -> list[str]:
    """Return the text of JSON of each value of a column.

    Raises `UsageError`: JSON has no form for one.
    """
    values = column_values(column, name, first_row)
    if not pa.types.is_nested(column.type):
        with suppress(*_UNFIT):
            texts = _write_lines(values)[1:-1].split("\n")
            # a value that takes several lines, such as an interval, is written by itself
            if len(texts) == len(values):
                return texts
    texts = []
    for number, value in enumerate(values, first_row):
        try:
            try:
                texts.append(_write_json(value))
            except ValueError:
                texts.append(_write_json(_without_nan(value)))
        except _UNFIT as error:
            raise _unfit(number, {name: value}, JSON, error) from error
    return texts


def avro_encoding(schema: Mapping[str, Any]) -> Encode:
    """Return what encodes rows by an Avro schema of a record, as Spark's `to_avro` does.

    Raises `UsageError`: the schema is none.
    """
    try:
        parsed = parse_schema(dict(schema), named_schemas={})
        is_record = schema.get("type") == "record" and "fields" in schema
    except (SchemaParseException, UnknownType, *_UNFIT) as error:
        raise UsageError(f"the Avro schema of the values cannot be read: {error}") from error
    if not is_record:
        raise UsageError("the Avro schema of the values is none of a record; give one of them")

    def encode(rows: pa.Table, first_row: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        for number, row in enumerate(python_rows(rows, first_row), first_row):
            body = io.BytesIO()
            try:
                fastavro.schemaless_writer(body, parsed, row)
            except _UNFIT as error:
                raise _unfit(number, row, f"the Avro schema {schema['name']}", error) from error
            values.append(body.getvalue())
        return values

    return encode


def _unfit(number: int, row: Mapping[str, object], form: str, error: Exception) -> UsageError:
    """Return the error of a row that cannot be encoded."""
    types = ", ".join(f"{name} {type(value).__name__}" for name, value in row.items())
    why = f"{type(error).__name__}: {error!s:.300}"
    return UsageError(f"row {number} of the batch ({types}) does not fit {form}: {why}")
