"""Arrow columns that a bolt emits, cast to the types of its fields; what
would lose something is refused.

Arrow's own safe cast refuses to cut a number, a digit of a decimal or a unit
of time. It still rounds a decimal to a float and a float to a decimal, drops
the time of a date and the fields that a struct does not have, takes 2 for
true, numbers for times, and a time without a zone for one in UTC. The rules
here are those that `spout.tuples.exact` has for values of Python. Beyond
these, a decimal becomes a float that becomes the same decimal again (15
digits do), a float the decimal of its shortest digits, a text what it says.

The *target type* is the one that the bolt's output declares for the field.

`ArrowTypeError` is raised where types do not go together, whatever the values
are; `ArrowInvalid` for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker.identity import I64
from spout.tuples.exact import CONVERSION_ERRORS, exact_values, map_keys, near_decimal

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

_TIME_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
)
"""A cast from one of these families of types to another changes what a value
means, and so does one from a number to any of them.
"""

_TEXTS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)


_MAY_BE_SMALL: Final = r"[eE]-0*[1-9][0-9]|\.[0-9]{39}"
"""Of a text: its number may have more than 38 digits behind the point."""

_ZONE_RULES_BEGIN: Final = datetime(1970, 1, 1)
_ZONE_RULES_END: Final = datetime(2037, 1, 1)
"""Between these Arrow has the rules of zones; from 2038 on it knows no summer time."""


@cache
def with_zone(arrow_type: pa.DataType, zone: str) -> pa.DataType:
    """Return a type in which times that have a zone, also within lists,
    structs and maps, have this one.
    """
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return pa.timestamp(arrow_type.unit, zone)
    if pa.types.is_map(arrow_type):
        key_field = _field_with_zone(arrow_type.key_field, zone)
        item_field = _field_with_zone(arrow_type.item_field, zone)
        return pa.map_(key_field, item_field)
    if pa.types.is_struct(arrow_type):
        return pa.struct([_field_with_zone(field, zone) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(_field_with_zone(arrow_type.value_field, zone))
    return arrow_type


def _field_with_zone(field: pa.Field, zone: str) -> pa.Field:
    """Return a field with its type as `with_zone` returns it."""
    return field.with_type(with_zone(field.type, zone))


@cache
def schema_with_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    """Return a schema with the type of each field as `with_zone` returns it."""
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


def exact_cast(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return a column as an Arrow type.

    Raises:
        ArrowTypeError, ArrowNotImplementedError: no column of this type
            becomes one of that type.
        ArrowInvalid: a value would lose something.
    """
    cast_column = _cast(column, target_type)
    if _has_type_within(pa.types.is_map, target_type):
        _refuse_repeated_keys(cast_column)
    return cast_column


def cell_text(column: pa.Array, row: int) -> str:
    """Return one value of a column for an error; as Arrow writes it, where
    Python has no form of it.

    Such are a time of the year 10000, and a text that is no UTF-8.
    """
    try:
        return str(column[row])
    except CONVERSION_ERRORS:
        return str(column.slice(row, 1).to_string(skip_new_lines=True))


def _cast(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return a column as the target type, by the rule for these two types.

    Maps may still have a key twice: `exact_cast` refuses them.
    """
    own_type = column.type
    # a time of day of the same type may still have nanoseconds, which Spark
    # has not
    if own_type == target_type and not _has_type_within(pa.types.is_time, target_type):
        return column
    if pa.types.is_time(target_type) and pa.types.is_time(own_type):
        return _cast_times_of_day(column, target_type)
    if pa.types.is_null(own_type):
        return column.cast(target_type)
    if isinstance(own_type, pa.BaseExtensionType):
        return _cast_extension(column, target_type)
    # a column that Arrow stores compressed is decoded first
    if pa.types.is_dictionary(own_type):
        return _cast(column.dictionary_decode(), target_type)
    if pa.types.is_run_end_encoded(own_type):
        return _cast(pc.run_end_decode(column), target_type)
    # nested types are cast field by field, by elements, or by keys and items
    if pa.types.is_struct(target_type) and pa.types.is_struct(own_type):
        return _cast_structs(column, target_type)
    if pa.types.is_list(target_type) and any(is_list(own_type) for is_list in _LISTS):
        return _cast_lists(column, target_type)
    if pa.types.is_map(target_type) and pa.types.is_map(own_type):
        return _cast_maps(column, target_type)
    return _cast_single_values(column, target_type)


def _cast_extension(column: pa.ExtensionArray, target_type: pa.DataType) -> pa.Array:
    """Return a column of an extension type, which Arrow stores as another type, as the target type.

    Raises `ArrowTypeError`: a text is wanted, and the stored values are none,
    as the bytes of a UUID.
    """
    own_type = column.type
    if _is_text(target_type) and not _is_text(own_type.storage_type):
        cure = "emit its text, as str(value) of each"
        raise pa.ArrowTypeError(f"{own_type} is no {target_type}: {cure}")
    return _cast(column.storage, target_type)


def _cast_single_values(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return a column of single values, such as numbers, as the target type.

    Raises `ArrowTypeError`: the two types do not go together.
    """
    own_type = column.type
    if pa.types.is_timestamp(own_type) and pa.types.is_timestamp(target_type):
        return _cast_timestamps(column, target_type)
    _refuse_other_family(own_type, target_type)
    if pa.types.is_decimal(target_type):
        return _cast_to_decimals(column, target_type)
    if pa.types.is_floating(target_type) and pa.types.is_decimal(own_type):
        return _floats_of_decimals(column, target_type)
    cast_column = column.cast(target_type)
    if pa.types.is_floating(target_type):
        _refuse_infinite(column, cast_column)
        _refuse_zero(column, cast_column)
    elif _loses_in_silence(own_type, target_type):
        _refuse_changed(column, cast_column)
    return cast_column


def _floats_of_decimals(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return the floats that are nearest to decimals.

    They are read from the digits, since Arrow's own cast makes
    63.800000000000004 of 63.8.

    Raises `ArrowInvalid`: a float would not become the same decimal again.
    """
    floats = column.cast(pa.string()).cast(target_type)
    # the same number by its value, as 1152921504606846976 (2 to the power of
    # 60), or by its shortest digits, as 63.8
    same_by_value = pc.equal(floats.cast(column.type, safe=False), column)
    same_by_digits = pc.equal(_decimals_by_digits(floats, column.type), column)
    is_same = pc.or_(pc.fill_null(same_by_value, False), pc.fill_null(same_by_digits, False))
    changed_row = _first_true(pc.and_(column.is_valid(), pc.invert(is_same)))
    if changed_row is not None:
        decimal_text, float_text = cell_text(column, changed_row), cell_text(floats, changed_row)
        raise pa.ArrowInvalid(f"{decimal_text} would become {float_text}")
    return floats


def _first_true(is_true: pa.Array) -> int | None:
    """Return the first row where a column of bools is true; None: it is true nowhere."""
    true_rows = pc.indices_nonzero(is_true)
    return int(true_rows[0].as_py()) if len(true_rows) else None


def _decimals_by_digits(floats: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return floats as decimals of their shortest digits.

    Where one of them has more digits than the decimals, all are null.
    """
    try:
        return floats.cast(pa.string()).cast(target_type)
    except pa.ArrowInvalid:
        return pa.nulls(len(floats), target_type)


def _cast_to_decimals(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return whole numbers, floats, decimals or texts as decimals."""
    castable = column
    if pa.types.is_integer(column.type):
        # any integer of 64 bits fits into 38 digits, 18 of them behind the point
        castable = column.cast(pa.decimal128(38, min(target_type.scale, 18)))
    elif pa.types.is_floating(column.type):
        # by its shortest digits: 0.1, and not 0.1000000000000000055
        castable = column.cast(pa.string())
    if _is_text(castable.type):
        castable = _texts_of_near_decimals(castable, target_type)
    decimals = castable.cast(target_type)
    _refuse_overflow(column, decimals)
    if _is_text(castable.type):
        _refuse_zero_of_text(column, castable, decimals)
    return decimals


def _texts_of_near_decimals(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return texts of numbers, none of which is smaller than the last digit of a type of decimals.

    A zero is plain behind it: of ``0e-99999999`` it is ``0``. What is no number stays, and Arrow
    refuses it.

    Raises `ArrowInvalid`: a number is smaller, and no zero; see `near_decimal`.
    """
    plain_texts = texts.cast(pa.string())
    may_be_small = pc.match_substring_regex(plain_texts, _MAY_BE_SMALL)
    row_numbers = pc.indices_nonzero(may_be_small).to_pylist()
    if not row_numbers:
        return texts
    changed_texts: list[str | None] = plain_texts.to_pylist()
    for row in row_numbers:
        with suppress(InvalidOperation):  # no number
            number = Decimal(changed_texts[row] or "")
            if near_decimal(number, target_type) is not number:
                changed_texts[row] = "0"
    return pa.array(changed_texts, pa.string())


def _refuse_zero_of_text(column: pa.Array, texts: pa.Array, numbers: pa.Array) -> None:
    """Raise `ArrowInvalid` if a number became zero that is not zero as a text.

    Arrow makes 0 of the text 5e-324, while it refuses 5e-30.

    Args:
        column: the values that were emitted, for the message.
        texts: the same values as texts.
        numbers: what the cast of `texts` gave.
    """
    is_zero = pc.equal(numbers, pa.scalar(0, numbers.type))
    # The text has a digit that is no zero before its exponent. The search
    # takes no texts of Arrow's large and viewed types: so the cast.
    was_not_zero = pc.match_substring_regex(texts.cast(pa.string()), "^[^eE]*[1-9]")
    row = _first_true(pc.and_(is_zero, was_not_zero))
    if row is not None:
        raise pa.ArrowInvalid(f"{cell_text(column, row)} would become {cell_text(numbers, row)}")


def _refuse_overflow(column: pa.Array, decimals: pa.Array) -> None:
    """Raise `ArrowInvalid` if a number has no room in the decimals that a cast made of it.

    Arrow multiplies a number by the power of ten of its new scale, and does
    not see that 128 bits overflow: of 2^63 it makes 46826544.815... in a
    decimal(38, 30). What lies just beyond the range it refuses itself, so a
    comparison of floats is exact enough here.
    """
    decimal_type = decimals.type
    range_end = float(10 ** (decimal_type.precision - decimal_type.scale))
    absolute_values = pc.abs(column.cast(pa.float64(), safe=False))
    row = _first_true(pc.greater(absolute_values, range_end))
    if row is not None:
        raise pa.ArrowInvalid(f"{cell_text(column, row)} is beyond the range of {decimal_type}")


def _refuse_other_family(own_type: pa.DataType, target_type: pa.DataType) -> None:
    """Raise `ArrowTypeError` if two types are of different `_TIME_FAMILIES`,
    or one of them is of none.

    These casts are let through: of a time without a zone to a date, since it
    may be midnight (`_refuse_changed` looks at the values); of a text to
    times; and of times to a text.
    """
    has_no_zone = pa.types.is_timestamp(own_type) and own_type.tz is None
    may_be_midnight = has_no_zone and pa.types.is_date(target_type)
    # the text of a duration would be its number, without the unit
    becomes_text = _is_text(target_type) and not pa.types.is_duration(own_type)
    if may_be_midnight or becomes_text or _is_text(own_type):
        return
    if _time_family_of(own_type) != _time_family_of(target_type):
        cure = "cast it as you mean it, by pyarrow.compute"
        raise pa.ArrowTypeError(f"{own_type} is no {target_type}: {cure}")


def _time_family_of(arrow_type: pa.DataType) -> int:
    """Return the index in `_TIME_FAMILIES` of a type; -1: it is no type of times."""
    for index, is_member in enumerate(_TIME_FAMILIES):
        if is_member(arrow_type):
            return index
    return -1


def _is_text(arrow_type: pa.DataType) -> bool:
    return any(is_text(arrow_type) for is_text in _TEXTS)


def _cast_timestamps(column: pa.Array, target_type: pa.TimestampType) -> pa.Array:
    """Return times as the target type of times.

    A time without a zone counts as local time of the target's zone.

    Raises `ArrowTypeError`: the times have a zone, and the target has none.
    """
    own_type = column.type
    if (own_type.tz is None) is (target_type.tz is None):
        return column.cast(target_type)
    if target_type.tz is None:
        raise pa.ArrowTypeError(
            f"{own_type} has a zone, and timestamp_ntz has none: emit"
            " pc.local_timestamp(column), or make the field a timestamp"
        )
    local_times = column.cast(pa.timestamp("us"))
    if target_type.tz == "UTC":
        return local_times.cast(target_type)
    bounds = pc.min_max(local_times).as_py()
    has_times = bounds["min"] is not None
    if has_times and _ZONE_RULES_BEGIN <= bounds["min"] <= bounds["max"] < _ZONE_RULES_END:
        try:
            instants = pc.assume_timezone(local_times, target_type.tz, ambiguous="earliest")
            return instants.cast(target_type)
        except pa.ArrowException:
            pass  # a clock is set forward over one of the times, and Arrow refuses it
    # one by one in Python, which is slower and has the rules of all years
    return pa.array(exact_values(local_times.to_pylist(), target_type), target_type)


def _cast_times_of_day(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return times of day as the target type, which counts nanoseconds.

    Raises `ArrowInvalid`: one is no whole number of microseconds, and Spark
    would cut it.
    """
    times = column.cast(target_type)
    times_ns = times.cast(pa.int64())
    cut_times_ns = pc.multiply(pc.divide(times_ns, 1_000), 1_000)  # 1,500 ns become 1,000
    if _first_true(pc.not_equal(cut_times_ns, times_ns)) is not None:
        raise pa.ArrowInvalid("a time of day has nanoseconds, and Spark's has microseconds")
    return times


def _loses_in_silence(own_type: pa.DataType, target_type: pa.DataType) -> bool:
    """Return whether Arrow's safe cast may change a value: what it gives is
    then cast back and compared.
    """
    if pa.types.is_floating(own_type) or pa.types.is_integer(own_type):
        return bool(pa.types.is_boolean(target_type))
    return bool(pa.types.is_date(target_type))


def _refuse_changed(column: pa.Array, cast_column: pa.Array) -> None:
    """Raise `ArrowInvalid` unless what a cast gave becomes the same values again."""
    cast_back = cast_column.cast(column.type, safe=False)
    row = _first_true(pc.not_equal(cast_back, column))
    if row is not None:
        value_text, cast_text = cell_text(column, row), cell_text(cast_column, row)
        raise pa.ArrowInvalid(f"{value_text} would become {cast_text}")


def _refuse_infinite(column: pa.Array, floats: pa.Array) -> None:
    """Raise `ArrowInvalid` if a float is infinite that was a finite number,
    or a text of one.
    """
    for row in pc.indices_nonzero(pc.is_inf(floats)).to_pylist():
        number_text = str(column[row])
        was_infinite = "inf" in number_text.lower()
        if not was_infinite:
            raise pa.ArrowInvalid(f"{number_text} is beyond the range of {floats.type}")


def _refuse_zero(column: pa.Array, floats: pa.Array) -> None:
    """Raise `ArrowInvalid` if a float is zero that was another number, as 1e-50.

    Only of texts and of wider floats a cast makes a zero.
    """
    if _is_text(column.type):
        _refuse_zero_of_text(column, texts=column, numbers=floats)
    elif pa.types.is_float64(column.type) and pa.types.is_float32(floats.type):
        row = _first_true(pc.and_(pc.equal(floats, 0), pc.not_equal(column, 0)))
        if row is not None:
            raise pa.ArrowInvalid(f"{cell_text(column, row)} would become 0.0 in a {floats.type}")


def _cast_structs(column: pa.Array, target_type: pa.StructType) -> pa.Array:
    """Return structs as the target type, field by field by name; a field that
    they lack is null.

    Raises `ArrowTypeError`: they have a field that the target lacks, or one
    name twice.
    """
    names = [field.name for field in column.type]
    target_names = [field.name for field in target_type]
    unknown_names = sorted(set(names) - set(target_names))
    repeated_names = sorted({name for name in names if names.count(name) > 1})
    if unknown_names or repeated_names:
        problems = []
        if unknown_names:
            problems.append(f"the struct has no field {', '.join(unknown_names)}")
        if repeated_names:
            problems.append(f"the value has {', '.join(repeated_names)} more than once")
        raise pa.ArrowTypeError(
            f"{'; '.join(problems)}; the fields of the struct are {', '.join(target_names)}"
        )
    column_by_name = dict(zip(names, column.flatten(), strict=True))
    nulls = pa.nulls(len(column))
    columns = [column_by_name.get(name, nulls) for name in target_names]
    cast_columns = list(map(_cast, columns, (field.type for field in target_type)))
    return pa.StructArray.from_arrays(cast_columns, fields=list(target_type), mask=column.is_null())


def _cast_lists(column: pa.Array, target_type: pa.ListType) -> pa.Array:
    """Return lists of any of the `_LISTS` as the target type, with their elements cast."""
    elements = _cast(column.flatten(), target_type.value_type)
    offsets = _element_offsets(column)
    return pa.ListArray.from_arrays(offsets, elements, type=target_type, mask=column.is_null())


def _cast_maps(column: pa.MapArray, target_type: pa.MapType) -> pa.Array:
    """Return maps as the target type, with keys and items cast."""
    pairs = pairs_of(column)
    keys, items = _keys_and_items(pairs)
    return pa.MapArray.from_arrays(
        _element_offsets(pairs),
        _cast(keys, target_type.key_type),
        _cast(items, target_type.item_type),
        type=target_type,
        mask=column.is_null(),
    )


def _keys_and_items(pairs: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys of all pairs in one column, and their items in another."""
    structs = pairs.flatten()  # of all rows
    keys, items = structs.flatten()  # the two fields
    return keys, items


def pairs_of(column: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of their pairs, which are structs of key and value.

    The `keys` and `items` of a `MapArray` cannot be used: those of a slice
    are those of the whole array.
    """
    map_type = column.type
    key_field = pa.field("key", map_type.key_type, nullable=False)
    pair_type = pa.struct([key_field, pa.field("value", map_type.item_type)])
    return column.cast(pa.list_(pair_type))


def _element_offsets(column: pa.Array) -> pa.Array:
    """Return where each list of a column begins among the elements of all
    lists, and behind these where the last one ends.

    Of lists of 2, 0 and 3 elements: 0, 2, 2, 5.
    """
    ends = np.cumsum(_element_counts(column))
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"{ends[-1]:,} elements are more than one column can have")
    return pa.array(np.concatenate([[0], ends]).astype(np.int32))


def _element_counts(column: pa.Array) -> I64:
    """Return how many elements each list of a column has; a null has none,
    whatever lies behind it.
    """
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)


@cache
def _has_type_within(is_type: Callable[[pa.DataType], bool], arrow_type: pa.DataType) -> bool:
    """Return whether a test is true for a type or a part of it: `is_map` is
    for a list of maps.
    """
    part_types = [arrow_type.field(number).type for number in range(arrow_type.num_fields)]
    if is_type(arrow_type):
        return True
    return any(_has_type_within(is_type, part_type) for part_type in part_types)


def _refuse_repeated_keys(column: pa.Array) -> None:
    """Raise `ArrowInvalid` if a map of a column, or within its values, has a key twice."""
    arrow_type = column.type
    if not _has_type_within(pa.types.is_map, arrow_type):
        return
    if pa.types.is_struct(arrow_type):
        for field_column in column.flatten():
            _refuse_repeated_keys(field_column)
    elif pa.types.is_list(arrow_type):
        _refuse_repeated_keys(column.flatten())
    else:
        pairs = pairs_of(column)
        keys, items = _keys_and_items(pairs)
        # not by `pc.list_parent_indices`: it also counts pairs that lie
        # behind a null, and `flatten` leaves these out
        row_of_key = np.repeat(np.arange(len(pairs)), _element_counts(pairs))
        if not _are_sure_to_differ(row_of_key, keys):
            _refuse_repeated_key(row_of_key.tolist(), keys)
        _refuse_repeated_keys(items)


def _are_sure_to_differ(row_of_key: I64, keys: pa.Array) -> bool:
    """Return whether Arrow can tell by itself that no row has a key twice.

    False: it cannot, or a row has one; then each key is looked at in Python,
    which is slower.

    Args:
        row_of_key: `(n,) int64`: the row of each key.
        keys: of all rows, `(n,)`.
    """
    # Arrow groups no structs, and would take two NaNs of other bits for two keys
    groupable = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
    if not any(is_type(keys.type) for is_type in groupable):
        return False
    pairs = pa.table({"row": pa.array(row_of_key), "key": keys})
    return bool(pairs.group_by(["row", "key"]).aggregate([]).num_rows == len(keys))


def _refuse_repeated_key(row_of_key: Sequence[int], keys: pa.Array) -> None:
    """Raise `ArrowInvalid` if two keys of one row are one key for Spark."""
    keys_seen: set[tuple[int, Any]] = set()  # with their rows
    for number, (row, key) in enumerate(zip(row_of_key, map_keys(keys), strict=True)):
        if (row, key) in keys_seen:
            raise pa.ArrowInvalid(f"the map has the key {cell_text(keys, number)} twice")
        keys_seen.add((row, key))


@cache
def has_not_null(field: pa.Field) -> bool:
    """Return whether a field is NOT NULL, or has a part that is."""
    return not field.nullable or any(map(has_not_null, _fields_within(field.type)))


def _fields_within(arrow_type: pa.DataType) -> Sequence[pa.Field]:
    """Return the fields of a struct, that of a list, or that of a map's
    values; its keys are never null.
    """
    if pa.types.is_struct(arrow_type):
        return tuple(arrow_type)
    if pa.types.is_map(arrow_type):
        return (arrow_type.item_field,)
    if pa.types.is_list(arrow_type):
        return (arrow_type.value_field,)
    return ()


def _columns_of_fields_within(array: pa.Array) -> Sequence[pa.Array]:
    """Return the column of each of the `_fields_within` of a column without nulls."""
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
    parts = _fields_within(field.type)
    if parts:
        columns = _columns_of_fields_within(array.drop_null())
        for part, column in zip(parts, columns, strict=True):
            check_nulls(bolt, part, column)
