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
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from acker.errors import UsageError
from acker.untrusted import Untrusted

JSON: Final = "json"
"""The `value` of a store that writes JSON."""

Encode = Callable[[pa.Table, int], Sequence[bytes | None]]
"""Returns the value of each row; the number is that of the first row in its batch, for messages."""

_UNFIT: Final = (ValueError, TypeError, OverflowError, AttributeError, LookupError)
"""What `json` and `fastavro` raise for a value that they cannot write."""


def encoding_of(value: str | Mapping[str, Any], key: str | None = None) -> Encode:
    """Return what encodes rows.

    Args:
        value: ``json``, an Avro schema as a mapping, or the name of a column of bytes.
        key: name of the column of the keys, which an Avro schema need not have; None: there is none.

    Raises `UsageError`: the schema is none of Avro's.
    """
    if value == JSON:
        return json_values
    if isinstance(value, str):
        return lambda rows, _first_row: binary_column(rows, value, "value").to_pylist()
    return avro_encoding(value, key)


def binary_column(rows: pa.Table, name: str, role: str) -> pa.BinaryArray:
    """Return a column of bytes, in one piece; `role` is what it is for, "value" or "key".

    Raises `UsageError`: there is no such column, or it has no bytes.
    """
    column = existing_column(rows, name, role)
    column_type = column.type
    if not (pa.types.is_binary(column_type) or pa.types.is_large_binary(column_type)):
        raise UsageError(
            f"the column {name}, which is the {role} of each record, has the type {column_type},"
            f" and not binary; cast it, by col({name!r}).cast('binary')"
        )
    return _in_one_piece(column)


def existing_column(rows: pa.Table, name: str, role: str) -> pa.ChunkedArray:
    """Return a column; raise `UsageError` if the rows have none of its name.

    `role` is what the column is for, as "key", for the message.
    """
    names = rows.column_names
    if name not in names:
        raise UsageError(
            f"the rows have no column {name}, which is to be the {role}"
            f" of each record; their columns are {', '.join(names)}"
        )
    return rows.column(name)


def text_or_bytes(rows: pa.Table, name: str, role: str) -> pa.BinaryArray:
    """Return a column of bytes, or of text as UTF-8, in one piece.

    `role` is what the column is for, as "key", for the message. Raises `UsageError`: it is neither
    bytes nor text, or there is no such column.
    """
    types = pa.types
    column = existing_column(rows, name, role)
    column_type = column.type
    if types.is_string(column_type) or types.is_large_string(column_type):
        return _in_one_piece(column)
    if not (types.is_binary(column_type) or types.is_large_binary(column_type)):
        raise UsageError(
            f"the column {name}, which is the {role} of each record, has the type {column_type};"
            f" cast it, by col({name!r}).cast('string')"
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

    `name` is the column's, `first_row` the number of its first row in the batch, for the message.
    Raises `UsageError`: a value is none of Python's, such as a text that is no UTF-8, or a map that
    has a key twice.
    """
    try:
        values: list[Any] = column.to_pylist()
        if _has_map(column.type):
            return [_with_dicts(value, column.type) for value in values]
    except _UNFIT as error:
        raise _no_python_value(column, name, first_row) from error
    return values


def _no_python_value(column: pa.ChunkedArray, name: str, first_row: int) -> UsageError:
    """Return the error of a column that Python cannot have, with the first such row."""
    for row_number, scalar in enumerate(column, first_row):
        try:
            _with_dicts(scalar.as_py(), column.type)
        except _UNFIT as error:
            why = f"{type(error).__name__}: {Untrusted(str(error)[:300])}"
            return UsageError(
                f"row {row_number} of the batch has in {name}, which is a {column.type}, what"
                f" Python has no value for: {why}; cast the column, or fail such tuples in a bolt"
            )
    raise AssertionError(f"every value of {name} is one of Python's")


def _has_map(arrow_type: pa.DataType) -> bool:
    """Return whether a type is a map, or has one in it."""
    if pa.types.is_map(arrow_type):
        return True
    types_within = [arrow_type.field(index).type for index in range(arrow_type.num_fields)]
    return any(map(_has_map, types_within))


def _with_dicts(value: Any, arrow_type: pa.DataType) -> Any:
    """Return a value with a dict for each map in it, where Arrow has a list of pairs.

    `arrow_type` is the type of the value.

    Raises:
        ValueError: a map has a key twice, as Spark's `from_json` makes one of ``{"x": 1, "x": 2}``.
        TypeError: a key is a list, or a dict.
    """
    types = pa.types
    if value is None:
        return None
    if types.is_map(arrow_type):
        items_by_key = {key: _with_dicts(item, arrow_type.item_type) for key, item in value}
        if len(items_by_key) < len(value):
            raise ValueError("a map that has a key twice, of which one item would be lost")
        return items_by_key
    if types.is_struct(arrow_type):
        fields = arrow_type.fields
        return {field.name: _with_dicts(value[field.name], field.type) for field in fields}
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        return [_with_dicts(item, arrow_type.value_type) for item in value]
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
        # fast: the whole column is written at once; what it refuses is written value by value
        with suppress(*_UNFIT):
            texts = _write_lines(values)[1:-1].split("\n")
            # a value that takes several lines, such as an interval, is written by itself
            if len(texts) == len(values):
                return texts
    return [text or "null" for text in json_texts(values, name, first_row)]


def json_texts(values: Sequence[Any], name: str, first_row: int) -> list[str | None]:
    """Return the text of JSON of each value of a column; of a null None, not the text ``null``.

    `first_row` is the number of the first value's row in its batch, for messages.

    Raises `UsageError`: JSON has no form for a value.
    """
    texts: list[str | None] = []
    for row_number, value in enumerate(values, first_row):
        if value is None:
            texts.append(None)
            continue
        try:
            try:
                texts.append(_write_json(value))
            except ValueError:
                # the encoder refuses NaN and Infinity, for which JSON has no number
                texts.append(_write_json(_without_nan(value)))
        except _UNFIT as error:
            raise _unfit_error(row_number, {name: value}, JSON, error) from error
    return texts


def avro_encoding(schema: Mapping[str, Any], key: str | None = None) -> Encode:
    """Return what encodes rows by an Avro schema of a record, as Spark's `to_avro` does.

    Fastavro changes a value that a field does not hold, and says nothing: it cuts a time to
    milliseconds, takes every text for true, and writes 2**40 as an int. So each value is read back,
    and one that has changed is refused.

    Args:
        schema: as plain data.
        key: name of a column that the schema may lack; None: it may lack none.

    Raises `UsageError`: the schema is none.
    """
    try:
        parsed = parse_schema(dict(schema), named_schemas={})
        is_record = schema.get("type") == "record" and "fields" in schema
    except (SchemaParseException, UnknownType, *_UNFIT) as error:
        raise UsageError(f"the Avro schema of the values cannot be read: {error}") from error
    if not is_record or not isinstance(parsed, dict):
        raise UsageError("the Avro schema of the values is none of a record; give one of them")
    schema_text = f"the Avro schema {schema['name']}"
    field_names = {field["name"] for field in schema["fields"]}

    def encode(rows: pa.Table, first_row: int) -> list[bytes | None]:
        """Return the bytes of each row; `first_row` is the number of the first one in its batch."""
        left_out = [name for name in rows.column_names if name not in field_names]
        lost = [name for name in left_out if name != key]  # the key has a place of its own
        if lost:
            raise UsageError(
                f"{schema_text} has no field {', '.join(lost)}, so the column would be lost; add"
                " the field, or drop the column"
            )
        encoded_rows: list[bytes | None] = []
        rows_to_encode = python_rows(rows.drop_columns(left_out), first_row)
        for row_number, row in enumerate(rows_to_encode, first_row):
            encoded = io.BytesIO()
            try:
                fastavro.schemaless_writer(encoded, parsed, row, strict_allow_default=True)
                encoded.seek(0)
                read_back = fastavro.schemaless_reader(encoded, parsed, None)
            except _UNFIT as error:
                raise _unfit_error(row_number, row, schema_text, error) from error
            _refuse_changed(row_number, row, read_back, parsed, schema_text)
            encoded_rows.append(encoded.getvalue())
        return encoded_rows

    return encode


def _refuse_changed(
    row_number: int,
    row: Mapping[str, Any],
    read_back: Any,
    schema: Mapping[str, Any],
    schema_text: str,
) -> None:
    """Refuse a row if a value of it is another one where the encoded row is read back.

    Args:
        row_number: of the row in its batch, for the message.
        row: the values by column.
        read_back: what Fastavro reads from the encoded row, by field.
        schema: by which the row was encoded.
        schema_text: what the message calls it.

    Raises `UsageError`: there is such a value.
    """
    for field in schema["fields"]:
        name = field["name"]
        if name not in row:
            continue  # the field's default
        value, value_read_back = row[name], read_back[name]
        is_same = _is_same(value, value_read_back)
        if not is_same or not _ints_fit(value_read_back, field["type"], schema):
            raise UsageError(
                f"row {row_number} of the batch has in {name} a value that {schema_text} would"
                f" change ({_shown(value)} to {_shown(value_read_back)}); widen the field, or cast"
                " the column"
            )


def _shown(value: object) -> Untrusted:
    """Return a value as a message has it."""
    return Untrusted(f"{value!r:.100}")


def _is_same(value: Any, read_back: Any) -> bool:
    """Return whether a value is what is read back of it; a struct may have further fields there."""
    match value:
        case bool():
            return value is read_back
        case datetime():
            is_time = isinstance(read_back, datetime)
            if not is_time or (value.tzinfo is None) != (read_back.tzinfo is None):
                return False
            # Python compares times of one zone by their clocks alone, which show the hour twice in
            # which summer time ends
            if value.tzinfo is not None:
                value, read_back = value.astimezone(UTC), read_back.astimezone(UTC)
        case float() if math.isnan(value):
            return isinstance(read_back, float) and math.isnan(read_back)
        case list():
            is_list = isinstance(read_back, list) and len(value) == len(read_back)
            return is_list and all(map(_is_same, value, read_back))
        case dict():
            return isinstance(read_back, dict) and all(
                name in read_back and _is_same(item, read_back[name]) for name, item in value.items()
            )
        case str() if isinstance(read_back, UUID):
            return UUID(value) == read_back
    return bool(value == read_back) and not isinstance(read_back, bool)


def _ints_fit(value: Any, value_schema: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether each ``int`` of Avro in a value has 32 bits; Fastavro writes longer ones, too.

    For a union it is True: there Fastavro itself checks how long a number is.

    Args:
        value: as it is read back.
        value_schema: the schema of the value, within `schema`.
        schema: the whole schema, which has the named types.
    """
    match value_schema:
        case "int" | {"type": "int"}:
            return not isinstance(value, int) or -(1 << 31) <= value < 1 << 31
        case {"type": "array", "items": items}:
            return all(_ints_fit(item, items, schema) for item in value)
        case {"type": "map", "values": items}:
            return all(_ints_fit(item, items, schema) for item in value.values())
        case {"type": "record", "fields": fields}:
            return all(_ints_fit(value[field["name"]], field["type"], schema) for field in fields)
        case str() if value_schema in schema.get("__named_schemas", {}):
            return _ints_fit(value, schema["__named_schemas"][value_schema], schema)
    return True


def _unfit_error(
    row_number: int,
    row: Mapping[str, object],
    encoding: str,
    error: Exception,
) -> UsageError:
    """Return the error of a row that cannot be encoded; `encoding`: as "json", for the message."""
    types = ", ".join(f"{name} {type(value).__name__}" for name, value in row.items())
    why = f"{type(error).__name__}: {Untrusted(str(error)[:300])}"
    return UsageError(f"row {row_number} of the batch ({types}) does not fit {encoding}: {why}")
