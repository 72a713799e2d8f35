"""Arrow columns that a bolt emits, cast to the types of its fields; what
would lose something is refused.

Arrow's own safe cast refuses to cut a number, a digit of a decimal or a unit
of time. It still rounds a decimal to a float and a float to a decimal, drops
the time of a date and the fields that a struct does not have, takes 2 for
true, numbers for times, and a time without a zone for one in UTC. The rules
here are those that `spout.tuples.exact` has for values of Python. Beyond
these, a decimal becomes a float that becomes the same decimal again (15
digits do), a float the decimal of its shortest digits, a text what it says.

`ArrowTypeError` is raised where types do not go together, whatever the values
are; `ArrowInvalid` for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker.identity import I64
from spout.tuples.exact import CONVERSION_ERRORS, exact_values, map_keys

_LISTS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
"""Arrow's forms of a list. A cast of a view to a list loses all values, so
each is taken apart here.
"""

_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
)
"""Kinds of times; no number is one of them."""


_TEXTS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)


_ARROW_KNOWS: Final = (datetime(1970, 1, 1), datetime(2037, 1, 1))
"""Arrow has the rules of zones for these years; from 2038 on it knows no summer time."""


@cache
def with_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Return a type in which times that have a zone, also within lists,
    structs and maps, have this one.
    """
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_map(kind):
        key_field = _field_with_zone(kind.key_field, zone)
        item_field = _field_with_zone(kind.item_field, zone)
        return pa.map_(key_field, item_field)
    if pa.types.is_struct(kind):
        return pa.struct([_field_with_zone(field, zone) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_field_with_zone(kind.value_field, zone))
    return kind


def _field_with_zone(field: pa.Field, zone: str) -> pa.Field:
    """Return a field whose type is `with_zone`."""
    return field.with_type(with_zone(field.type, zone))


@cache
def schema_with_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    """Return a schema whose types are `with_zone`."""
    return pa.schema([_field_with_zone(field, zone) for field in schema], metadata=schema.metadata)


def in_zone(batch: pa.RecordBatch, zone: str) -> pa.RecordBatch:
    """Return the same instants with another zone; the same batch, where no
    column has times with a zone.
    """
    schema = schema_with_zone(batch.schema, zone)
    if schema.equals(batch.schema):
        return batch
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def exact_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as an Arrow type.

    Raises:
        ArrowTypeError, ArrowNotImplementedError: no column of this type
            becomes one of that type.
        ArrowInvalid: a value would lose something.
    """
    cast = _cast(column, kind)
    if _contains(pa.types.is_map, kind):
        _refuse_keys_twice(cast)
    return cast


def cell_text(column: pa.Array, row: int) -> str:
    """Return one value of a column for an error; as Arrow writes it, where
    Python has no form of it.

    Such are a time of the year 10000, and a text that is no UTF-8.
    """
    try:
        return str(column[row])
    except CONVERSION_ERRORS:
        return str(column.slice(row, 1).to_string(skip_new_lines=True))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as a type, by the rule for its own type and that one.

    That no map has a key twice is checked later, by `exact_cast`.
    """
    own_type = column.type
    # a time of day of the same type may still have nanoseconds, which Spark
    # has not
    if own_type == kind and not _contains(pa.types.is_time, kind):
        return column
    if pa.types.is_time(kind) and pa.types.is_time(own_type):
        return _time_of_day(column, kind)
    if pa.types.is_null(own_type):
        return column.cast(kind)
    if isinstance(own_type, pa.BaseExtensionType):
        return _extension(column, kind)
    # what is written more briefly is cast as if it were written out
    if pa.types.is_dictionary(own_type):
        return _cast(column.dictionary_decode(), kind)
    if pa.types.is_run_end_encoded(own_type):
        return _cast(pc.run_end_decode(column), kind)
    # what has parts is cast part by part
    if pa.types.is_struct(kind) and pa.types.is_struct(own_type):
        return _struct(column, kind)
    if pa.types.is_list(kind) and any(is_list(own_type) for is_list in _LISTS):
        return _list(column, kind)
    if pa.types.is_map(kind) and pa.types.is_map(own_type):
        return _map(column, kind)
    return _leaf(column, kind)


def _extension(column: pa.ExtensionArray, kind: pa.DataType) -> pa.Array:
    """Return a column of a type that is stored as another; a UUID's bytes are no text of it."""
    own_type = column.type
    if _is_text(kind) and not _is_text(own_type.storage_type):
        raise pa.ArrowTypeError(f"{own_type} is no {kind}: emit its text, as str(value) of each")
    return _cast(column.storage, kind)


def _leaf(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of single values as a type; types that do not go
    together are refused here.
    """
    own_type = column.type
    if pa.types.is_timestamp(own_type) and pa.types.is_timestamp(kind):
        return _timestamp(column, kind)
    _refuse_other_family(own_type, kind)
    if pa.types.is_decimal(kind):
        return _decimal(column, kind)
    if pa.types.is_floating(kind) and pa.types.is_decimal(own_type):
        return _float_of_decimal(column, kind)
    cast = column.cast(kind)
    if pa.types.is_floating(kind):
        _refuse_infinite(column, cast)
        _refuse_zero(column, cast)
    elif _loses_in_silence(own_type, kind):
        _refuse_changed(column, cast)
    return cast


def _float_of_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the nearest floats of decimals.

    By their digits: Arrow's own cast makes 63.800000000000004 of 63.8.
    """
    floats = column.cast(pa.string()).cast(kind)
    # the same number by its value (2 to the power of 60), or by its shortest
    # digits (63.8)
    same_by_value = pc.fill_null(pc.equal(floats.cast(column.type, safe=False), column), False)
    same_by_digits = pc.fill_null(pc.equal(_decimal_or_null(floats, column.type), column), False)
    is_changed = pc.and_(column.is_valid(), pc.invert(pc.or_(same_by_value, same_by_digits)))
    for row in pc.indices_nonzero(is_changed).to_pylist():  # the first one is named
        raise pa.ArrowInvalid(f"{cell_text(column, row)} would become {cell_text(floats, row)}")
    return floats


def _decimal_or_null(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return floats as decimals of their shortest digits; nulls alone, where
    one of them has no room.
    """
    try:
        return column.cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(len(column), kind)


def _decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return whole numbers, floats, decimals or texts as decimals."""
    written = column
    if pa.types.is_integer(column.type):
        # to a decimal that has room for all of them, whatever these are
        written = column.cast(pa.decimal128(38, min(kind.scale, 18)))
    elif pa.types.is_floating(column.type):
        # by its shortest digits: 0.1, and not what a float has behind them
        written = column.cast(pa.string())
    decimals = written.cast(kind)
    _refuse_wrapped(column, decimals)
    if _is_text(written.type):
        _refuse_vanished(column, written, decimals)
    return decimals


def _refuse_vanished(column: pa.Array, written: pa.Array, decimals: pa.Array) -> None:
    """Raise `ArrowInvalid` if a number became zero: Arrow makes 0 of 5e-324,
    and refuses 5e-30.
    """
    is_zero = pc.equal(decimals, pa.scalar(0, decimals.type))
    # a digit that is no zero, before the exponent; large and viewed texts are
    # searched as plain ones
    was_not_zero = pc.match_substring_regex(written.cast(pa.string()), "^[^eE]*[1-9]")
    for row in pc.indices_nonzero(pc.and_(is_zero, was_not_zero)).to_pylist():
        raise pa.ArrowInvalid(f"{cell_text(column, row)} would become {cell_text(decimals, row)}")


def _refuse_wrapped(column: pa.Array, decimals: pa.Array) -> None:
    """Raise `ArrowInvalid` if a number has no room in the decimals that a cast made of it.

    Arrow multiplies a number by the power of ten of its new scale, and does
    not see that 128 bits overflow: of 2^63 it makes 46826544.815... in a
    decimal(38, 30). What lies just beyond the range it refuses itself, so a
    comparison of floats is exact enough here.
    """
    kind = decimals.type
    range_end = float(10 ** (kind.precision - kind.scale))
    sizes = pc.abs(column.cast(pa.float64(), safe=False))
    for row in pc.indices_nonzero(pc.greater(sizes, range_end)).to_pylist():
        raise pa.ArrowInvalid(f"{cell_text(column, row)} is beyond the range of {kind}")


def _refuse_other_family(own_type: pa.DataType, kind: pa.DataType) -> None:
    """Raise `ArrowTypeError` if one of two types is of times, and the other
    is not, or of another kind.

    Two casts are let through: of a time without a zone to a date, if it is
    midnight, which is checked by its values; and of what a text says, or as a
    text.
    """
    may_be_midnight = pa.types.is_timestamp(own_type) and own_type.tz is None and pa.types.is_date(kind)
    # the text of a duration would be its number, without the unit
    becomes_text = _is_text(kind) and not pa.types.is_duration(own_type)
    if may_be_midnight or becomes_text or _is_text(own_type):
        return
    if _family_of(own_type) != _family_of(kind):
        raise pa.ArrowTypeError(f"{own_type} is no {kind}: cast it as you mean it, by pyarrow.compute")


def _family_of(kind: pa.DataType) -> int:
    """Return the number of a type's family of times; -1: it is of no times."""
    return next((number for number, is_member in enumerate(_FAMILIES) if is_member(kind)), -1)


def _is_text(kind: pa.DataType) -> bool:
    return any(is_text(kind) for is_text in _TEXTS)


def _timestamp(column: pa.Array, kind: pa.TimestampType) -> pa.Array:
    """Return times as a type of times, with a zone or without, as that type has it or has none.

    A time without a zone is local time of the type's zone.
    """
    own_type = column.type
    if (own_type.tz is None) is (kind.tz is None):
        return column.cast(kind)
    if kind.tz is None:
        raise pa.ArrowTypeError(
            f"{own_type} has a zone, and timestamp_ntz has none: emit pc.local_timestamp(column), or make the"
            " field a timestamp"
        )
    local = column.cast(pa.timestamp("us"))
    if kind.tz == "UTC":
        return local.cast(kind)
    first_covered, end_of_covered = _ARROW_KNOWS
    bounds = pc.min_max(local).as_py()
    has_times = bounds["min"] is not None
    if has_times and first_covered <= bounds["min"] <= bounds["max"] < end_of_covered:
        try:
            return pc.assume_timezone(local, kind.tz, ambiguous="earliest").cast(kind)
        except pa.ArrowException:
            pass  # a clock skips one of the times
    return pa.array(exact_values(local.to_pylist(), kind), kind)


def _time_of_day(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return times of day as a type of them, which Spark has in nanoseconds
    that are whole microseconds.
    """
    times = column.cast(kind)
    nanos = times.cast(pa.int64())
    whole_micros = pc.multiply(pc.divide(nanos, 1_000), 1_000)  # 1,500 ns become 1,000
    if len(pc.indices_nonzero(pc.not_equal(whole_micros, nanos))):
        raise pa.ArrowInvalid("a time of day has nanoseconds, and Spark's has microseconds")
    return times


def _loses_in_silence(own_type: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether Arrow's safe cast may change a value: what it gives is
    then cast back and compared.
    """
    if pa.types.is_floating(own_type) or pa.types.is_integer(own_type):
        return bool(pa.types.is_boolean(kind))
    return bool(pa.types.is_date(kind))


def _refuse_changed(column: pa.Array, cast: pa.Array) -> None:
    """Raise `ArrowInvalid` unless what a cast gave becomes the same values again."""
    changed = pc.indices_nonzero(pc.not_equal(cast.cast(column.type, safe=False), column))
    if len(changed):
        row = changed[0].as_py()
        raise pa.ArrowInvalid(f"{cell_text(column, row)} would become {cell_text(cast, row)}")


def _refuse_infinite(column: pa.Array, floats: pa.Array) -> None:
    """Raise `ArrowInvalid` if a float is infinite that was a finite number,
    or a text of one.
    """
    for row in pc.indices_nonzero(pc.is_inf(floats)).to_pylist():
        number_text = str(column[row])
        if "inf" not in number_text.lower():
            raise pa.ArrowInvalid(f"{number_text} is beyond the range of {floats.type}")


def _refuse_zero(column: pa.Array, floats: pa.Array) -> None:
    """Raise `ArrowInvalid` if a float is zero that was another number, as 1e-50."""
    if _is_text(column.type):
        _refuse_vanished(column, column, floats)
    elif pa.types.is_float64(column.type) and pa.types.is_float32(floats.type):
        is_changed = pc.and_(pc.equal(floats, 0), pc.not_equal(column, 0))
        for row in pc.indices_nonzero(is_changed).to_pylist():
            raise pa.ArrowInvalid(f"{cell_text(column, row)} would become 0.0 in a {floats.type}")


def _struct(column: pa.Array, kind: pa.StructType) -> pa.Array:
    """Return structs as a type of them, field by field by name; a field that
    they lack is null.
    """
    names = [field.name for field in column.type]
    unknown = sorted(set(names) - {field.name for field in kind})
    if unknown or len(set(names)) < len(names):
        which = ", ".join(unknown or names)
        has = ", ".join(field.name for field in kind)
        raise pa.ArrowTypeError(f"the struct has no field {which}, or has it twice; its fields are {has}")
    children = dict(zip(names, column.flatten(), strict=True))
    nothing = pa.nulls(len(column))
    cast_children = [_cast(children.get(field.name, nothing), field.type) for field in kind]
    return pa.StructArray.from_arrays(cast_children, fields=list(kind), mask=column.is_null())


def _list(column: pa.Array, kind: pa.ListType) -> pa.Array:
    """Return lists of any form as a type of them, with their elements cast."""
    elements = _cast(column.flatten(), kind.value_type)
    return pa.ListArray.from_arrays(_offsets(column), elements, type=kind, mask=column.is_null())


def _map(column: pa.MapArray, kind: pa.MapType) -> pa.Array:
    """Return maps as a type of them, with keys and items cast."""
    pairs = pairs_of(column)
    keys, items = pairs.flatten().flatten()
    cast_keys, cast_items = _cast(keys, kind.key_type), _cast(items, kind.item_type)
    return pa.MapArray.from_arrays(_offsets(pairs), cast_keys, cast_items, type=kind, mask=column.is_null())


def pairs_of(column: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of their pairs; a part of an array would have the
    pairs of the whole one.
    """
    kind = column.type
    fields = [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
    return column.cast(pa.list_(pa.struct(fields)))


def _offsets(column: pa.Array) -> pa.Array:
    """Return where each list of a column begins among the elements of all of
    them, and where they end.
    """
    ends = np.cumsum(_lengths(column))
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"{ends[-1]:,} elements are more than one column can have")
    return pa.array(np.concatenate([[0], ends]).astype(np.int32))


def _lengths(column: pa.Array) -> I64:
    """Return how many elements each list of a column has; a null has none,
    whatever lies behind it.
    """
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)


@cache
def _contains(is_kind: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Return whether a test is true for a type or a part of it: `is_map` is
    for a list of maps.
    """
    part_types = (kind.field(number).type for number in range(kind.num_fields))
    return is_kind(kind) or any(_contains(is_kind, part_type) for part_type in part_types)


def _refuse_keys_twice(column: pa.Array) -> None:
    """Raise `ArrowInvalid` if a map of a column has one key twice."""
    kind = column.type
    if not _contains(pa.types.is_map, kind):
        return
    if pa.types.is_struct(kind):
        for child in column.flatten():
            _refuse_keys_twice(child)
    elif pa.types.is_list(kind):
        _refuse_keys_twice(column.flatten())
    else:
        pairs = pairs_of(column)
        keys, items = pairs.flatten().flatten()
        # not Arrow's indices of parents: these count what lies behind a null,
        # which `flatten` leaves out
        rows = np.repeat(np.arange(len(pairs)), _lengths(pairs))
        if not _are_unlike(rows, keys):
            _refuse_twice(rows.tolist(), keys)
        _refuse_keys_twice(items)


def _are_unlike(rows: I64, keys: pa.Array) -> bool:
    """Return whether no row has a key twice, where Arrow can tell by itself.

    Args:
        rows: the row of each key.
        keys: of all rows.

    False: there may be one, so somebody must look at each key.
    """
    groupable = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
    if not any(is_kind(keys.type) for is_kind in groupable):
        return False  # it groups no structs, and NaN by its bits
    pairs = pa.table({"row": pa.array(rows), "key": keys})
    return bool(pairs.group_by(["row", "key"]).aggregate([]).num_rows == len(keys))


def _refuse_twice(rows: Sequence[int], keys: pa.Array) -> None:
    """Raise `ArrowInvalid` if two keys of one row are one key; `rows` has the row of each."""
    seen: set[tuple[int, Any]] = set()
    for place, (row, key) in enumerate(zip(rows, map_keys(keys), strict=True)):
        if (row, key) in seen:
            raise pa.ArrowInvalid(f"the map has the key {cell_text(keys, place)} twice")
        seen.add((row, key))


@cache
def has_not_null(field: pa.Field) -> bool:
    """Return whether a field is NOT NULL, or has a part that is."""
    return not field.nullable or any(map(has_not_null, _parts(field.type)))


def _parts(kind: pa.DataType) -> Sequence[pa.Field]:
    """Return the fields of a struct, that of a list, or that of a map's
    values; its keys are never null.
    """
    if pa.types.is_struct(kind):
        return tuple(kind)
    if pa.types.is_map(kind):
        return (kind.item_field,)
    if pa.types.is_list(kind):
        return (kind.value_field,)
    return ()


def _columns_of_parts(array: pa.Array) -> Sequence[pa.Array]:
    """Return the column of each of the `_parts` of a column without nulls."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        return [pairs_of(array).flatten().field("value")]
    return [array.flatten()]


def check_nulls(bolt: str, field: pa.Field, array: pa.Array) -> None:
    """Raise `ValueError` if there is a null where the field or a part of it
    is NOT NULL: Spark would fail.
    """
    if not has_not_null(field):
        return
    if array.null_count and not field.nullable:
        raise ValueError(f"bolt {bolt!r} emitted a null as {field.name!r}, which is NOT NULL")
    parts = _parts(field.type)
    if parts:
        columns = _columns_of_parts(array.drop_null())
        for part, column in zip(parts, columns, strict=True):
            check_nulls(bolt, part, column)
