"""Values on their way to a keyed bolt: encoded by Spark before pandas has them, and decoded tuple
by tuple.

Spark hands a keyed bolt its tuples as structs in a pandas frame. A value that pandas or Python
cannot represent would end the query then, at each start, since there is no tuple yet that could
fail. So Spark encodes such values first, as the table shows, and they are decoded here, one tuple
after the other: one that cannot be decoded fails alone.

=====================  ==============================  =======================================================
type                   encoded as                      what would happen without
=====================  ==============================  =======================================================
timestamp              microseconds since 1970         an hour of each autumn is there twice, a summer after
                                                       2037 has no summer time, the year 1 ends the query
timestamp_ntz          an interval since 1970          a time behind the year 9999 ends the query
date                   days since 1970                 the same
string                 its bytes                       one that is no UTF-8 ends the query
whole number, before   its digits, as bytes            beside a null it becomes a float, which lacks
Spark 4.2                                              the last bits of a large number
array of double,       structs with one field          a null beside numbers becomes NaN
float
array of arrays with   structs with one field          arrays of different lengths, or a null
structs or maps in                                     beside them, end the query
=====================  ==============================  =======================================================

A struct, a map or an array is encoded if a value within it is. A *leaf* is a type without types
within it; an array's elements that are put into structs with one field are *wrapped*.

Before Spark 4.2 arrays within arrays or maps are refused (`type_around_array`).

A key is not encoded, since checkpoints have it as it is: where pandas would refuse it a substitute
takes its place (`readable_key`), and the tuple itself fails.

A state of an earlier version holds times without a zone: they are local times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from operator import or_
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spout.held.key_paths import FieldPath, type_at, value_at
from spout.spark.versions import FRAMES_KEEP_WHOLE_NUMBERS
from spout.tuples.exact import zone_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)

KEY_US_MAX: Final = ((1 << 63) - 1) // 1_000
"""How far from 1970 a time of a key may be, µs: pandas counts it in ns, which reach from 1677 to
2262.
"""

_YEARS_TEXT: Final = "Python has the years 1 to 9999 alone"

_WRAPPED: Final = "v"
"""The one field of the structs into which elements of arrays are put."""

_FLOAT_DTYPES: Final[Mapping[type[DataType], type]] = MappingProxyType(
    {FloatType: np.float32, DoubleType: np.float64}
)
"""By Spark's types of floats: the types of NumPy."""

_WHOLE_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)

_ENCODED_TYPES: Final[tuple[type[DataType], ...]] = (
    *(TimestampType, TimestampNTZType, DateType, StringType),
    *(() if FRAMES_KEEP_WHOLE_NUMBERS else _WHOLE_NUMBERS),
)

Decode = Callable[[Any], Any]
"""Returns the value that an encoded one, which is not None, stands for."""


def has_times(spark_type: DataType) -> bool:
    """Return whether a Spark type is a timestamp, or has one within."""
    return isinstance(spark_type, TimestampType) or any(map(has_times, _types_within(spark_type)))


def needs_encoding(spark_type: DataType) -> bool:
    """Return whether values of a Spark type are encoded; others stay as they are."""
    if isinstance(spark_type, ArrayType) and _is_wrapped(spark_type.elementType):
        return True
    if isinstance(spark_type, _ENCODED_TYPES):
        return True
    return any(map(needs_encoding, _types_within(spark_type)))


def _is_wrapped(element: DataType) -> bool:
    """Return whether an array's elements of this type are each put into a struct."""
    if isinstance(element, ArrayType):
        return _has_dictionaries(element)
    return type(element) in _FLOAT_DTYPES


def _has_dictionaries(spark_type: DataType) -> bool:
    """Return whether encoded values of a type are dictionaries, or have some within.

    Structs and maps are dictionaries in pandas. PySpark makes one NumPy array of arrays that have
    such within, which fails for arrays of different lengths, as [[{}], [{}, {}]].
    """
    if isinstance(spark_type, ArrayType):
        return _is_wrapped(spark_type.elementType) or _has_dictionaries(spark_type.elementType)
    return isinstance(spark_type, StructType | MapType)


def unhashable_map_key(spark_type: DataType) -> DataType | None:
    """Return the type of keys, of a map within a type, that no dictionary of Python can have.

    None: there is no such map.
    """
    if isinstance(spark_type, MapType) and isinstance(spark_type.keyType, StructType | ArrayType):
        return spark_type.keyType
    for type_within in _types_within(spark_type):
        key_type = unhashable_map_key(type_within)
        if key_type is not None:
            return key_type
    return None


def nested_array_within(spark_type: DataType) -> DataType | None:
    """Return the type of arrays of arrays, within the type of a key, if they could end the query.

    None: there are none that could.

    A key is not encoded. If it has times or structs, PySpark converts them, and then calls
    `numpy.array` on the arrays that hold them. Where these differ in length, or one is null, that
    raises.
    """
    if isinstance(spark_type, ArrayType) and isinstance(spark_type.elementType, ArrayType):
        return spark_type if _pyspark_converts(spark_type.elementType) else None
    for type_within in _types_within(spark_type):
        nested_array = nested_array_within(type_within)
        if nested_array is not None:
            return nested_array
    return None


def type_around_array(spark_type: DataType) -> DataType | None:
    """Return the first type of an array or a map, in a type or within it, that has arrays within.

    None: there is none. Spark cannot carry them to a pandas frame before 4.2
    (`CARRIES_NESTED_ARRAYS`).
    """
    types_within = _types_within(spark_type)
    is_array_or_map = isinstance(spark_type, ArrayType | MapType)
    if is_array_or_map and any(map(_has_arrays, types_within)):
        return spark_type
    for type_within in types_within:
        around_array = type_around_array(type_within)
        if around_array is not None:
            return around_array
    return None


def _has_arrays(spark_type: DataType) -> bool:
    """Return whether a type is an array, or has one within."""
    return isinstance(spark_type, ArrayType) or any(map(_has_arrays, _types_within(spark_type)))


def _pyspark_converts(spark_type: DataType) -> bool:
    """Return whether PySpark converts values of a type in a key, or values within them."""
    if isinstance(spark_type, StructType | TimestampType | TimestampNTZType):
        return True
    return any(map(_pyspark_converts, _types_within(spark_type)))


def _types_within(spark_type: DataType) -> tuple[DataType, ...]:
    """Return the types of a struct's fields, a map's keys and values, or an array's elements.

    Of a leaf there are none.
    """
    if isinstance(spark_type, StructType):
        return tuple(field.dataType for field in spark_type.fields)
    if isinstance(spark_type, MapType):
        return spark_type.keyType, spark_type.valueType
    if isinstance(spark_type, ArrayType):
        return (spark_type.elementType,)
    return ()


def encoded_column(column: Column, spark_type: DataType) -> Column:
    """Return a column with its values encoded, as the table of this module has it for their type.

    Nulls stay nulls. `TupleDecoder` decodes the values of one tuple again.
    """
    if not needs_encoding(spark_type):
        return column
    if isinstance(spark_type, StructType):
        encoded_fields: list[Column] = []
        for field in spark_type.fields:
            encoded_field = encoded_column(column[field.name], field.dataType)
            encoded_fields.append(encoded_field.alias(field.name))
        return sql.when(column.isNotNull(), sql.struct(*encoded_fields))
    if isinstance(spark_type, ArrayType):
        element = spark_type.elementType
        if _is_wrapped(element):
            return sql.transform(column, lambda value: _wrapped(value, element))
        return sql.transform(column, lambda value: encoded_column(value, element))
    if isinstance(spark_type, MapType):
        key_type, value_type = spark_type.keyType, spark_type.valueType
        with_keys = sql.transform_keys(column, lambda key, _: encoded_column(key, key_type))
        return sql.transform_values(with_keys, lambda _, value: encoded_column(value, value_type))
    if isinstance(spark_type, StringType):
        return column.cast("binary")
    if isinstance(spark_type, IntegralType):
        return _encoded_number(column)
    if isinstance(spark_type, DateType):
        return _encoded_number(sql.unix_date(column))
    if isinstance(spark_type, TimestampNTZType):
        return column - _ntz_column(_LOCAL_EPOCH)  # an interval
    return _encoded_number(sql.unix_micros(column))  # a timestamp: no other type is encoded


def _encoded_number(column: Column) -> Column:
    """Return a column of whole numbers as it is, or as their digits where pandas makes floats."""
    return column if FRAMES_KEEP_WHOLE_NUMBERS else column.cast("string").cast("binary")


def _wrapped(column: Column, spark_type: DataType) -> Column:
    """Return a column of elements, encoded, each as the one field of a struct."""
    return sql.struct(encoded_column(column, spark_type).alias(_WRAPPED))


def has_floats(spark_type: DataType) -> bool:
    """Return whether a Spark type is one of floats, or has one within."""
    return type(spark_type) in _FLOAT_DTYPES or any(map(has_floats, _types_within(spark_type)))


def loses_nulls(spark_type: DataType) -> bool:
    """Return whether pandas has NaN for nulls in a key: in floats, or in arrays of floats.

    Before Spark 4.2 whole numbers in an array with nulls are floats too.
    """
    return type(spark_type) in _FLOAT_DTYPES or _has_arrays_of_floats(spark_type)


def _has_arrays_of_floats(spark_type: DataType) -> bool:
    """Return whether a type is an array of what pandas makes floats of, or has one within."""
    if isinstance(spark_type, ArrayType) and _becomes_floats(spark_type.elementType):
        return True
    return any(map(_has_arrays_of_floats, _types_within(spark_type)))


def _becomes_floats(spark_type: DataType) -> bool:
    """Return whether pandas may have floats for numbers of a type in an array with nulls."""
    is_whole = type(spark_type) in _WHOLE_NUMBERS
    return type(spark_type) in _FLOAT_DTYPES or (is_whole and not FRAMES_KEEP_WHOLE_NUMBERS)


def normal_key(column: Column, spark_type: DataType, *, is_nullable: bool = True) -> Column:
    """Return a column of the key in which equal floats have equal bytes: no -0.0, and one NaN.

    To Spark 0.0 and -0.0 are one key within a micro-batch. But it looks for what a key holds by the
    bytes of the key: without this, 0.0 would not find what -0.0 held.

    `is_nullable`: whether values of the column may be null. If not, the result is not null either,
    as checkpoints have it.
    """
    if not has_floats(spark_type):
        return column
    if isinstance(spark_type, StructType):
        fields: list[Column] = []
        for field in spark_type.fields:
            normal_field = normal_key(column[field.name], field.dataType, is_nullable=field.nullable)
            fields.append(normal_field.alias(field.name))
        struct = sql.struct(*fields)
        return sql.when(column.isNotNull(), struct) if is_nullable else struct
    if isinstance(spark_type, ArrayType):
        element, has_null = spark_type.elementType, spark_type.containsNull
        return sql.transform(column, lambda value: normal_key(value, element, is_nullable=has_null))
    if type(spark_type) not in _FLOAT_DTYPES:
        return column  # a map, by which Spark does not group
    zero = sql.lit(0.0).cast(spark_type)
    nan = sql.lit(math.nan).cast(spark_type)
    return sql.when(sql.isnan(column), nan).when(column == zero, zero).otherwise(column)


def normal_floats(value: Any) -> Any:
    """Return a value of a tuple with 0.0 for -0.0, as `normal_key` has it in the key.

    A struct is a dictionary here, and an array one of NumPy. Other values are returned as they are.
    """
    if isinstance(value, float | np.floating):
        return value + 0.0  # -0.0 + 0.0 is 0.0
    if isinstance(value, dict):
        return {name: normal_floats(field_value) for name, field_value in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _array_of_objects([normal_floats(element) for element in value])
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value + 0.0
    return value


def readable_key(column: Column, spark_type: DataType) -> Column:
    """Return a column of the key, with a substitute where pandas would refuse the key.

    A tuple with such a key fails, so no bolt gets the substitute. The substitute of a time, a date
    or a text is no null: a column that is never null stays so, since checkpoints keep that with the
    schema. Structs and arrays have null.
    """
    # a column of booleans; None: pandas refuses no key of this type
    refused_flags = _is_refused(column, spark_type, at_top=True)
    if refused_flags is None:
        return column
    substitutes = {
        TimestampType: sql.timestamp_micros(sql.lit(0)),
        TimestampNTZType: sql.lit(_LOCAL_EPOCH.date()).cast("timestamp_ntz"),
        DateType: sql.lit(_LOCAL_EPOCH.date()),
        StringType: sql.lit(""),
    }
    null = sql.lit(None).cast(spark_type)  # for a struct or an array
    substitute = substitutes.get(type(spark_type), null)
    return sql.when(refused_flags, substitute).otherwise(column)


def _is_refused(column: Column, spark_type: DataType, *, at_top: bool = False) -> Column | None:
    """Return a column of booleans: whether pandas refuses the key in `column`.

    None: pandas refuses no key of this type. (A key cannot be a map.)

    Args:
        at_top: whether it is the key itself; False: a value within a key. Pandas counts the times
            of keys in ns, which reach less far, those within not.
    """
    if isinstance(spark_type, StructType):
        refusals: list[Column] = []
        for field in spark_type.fields:
            is_field_refused = _is_refused(column[field.name], field.dataType)
            if is_field_refused is not None:
                refusals.append(is_field_refused)
        return reduce(or_, refusals) if refusals else None
    if isinstance(spark_type, ArrayType):
        element = spark_type.elementType
        if _is_refused(column, element) is None:
            return None
        return sql.exists(column, lambda value: _is_refused_or_false(value, element))
    if isinstance(spark_type, StringType):
        return ~sql.is_valid_utf8(column)
    if isinstance(spark_type, DateType):
        first_day = date.min.toordinal() - _EPOCH_ORDINAL
        last_day = date.max.toordinal() - _EPOCH_ORDINAL
        return ~sql.unix_date(column).between(first_day, last_day)
    earliest, latest = datetime.min, datetime.max
    if at_top:
        reach = timedelta(microseconds=KEY_US_MAX)
        earliest, latest = _LOCAL_EPOCH - reach, _LOCAL_EPOCH + reach
    if isinstance(spark_type, TimestampType):
        return ~sql.unix_micros(column).between(_micros(earliest), _micros(latest))
    if isinstance(spark_type, TimestampNTZType):
        return ~column.between(_ntz_column(earliest), _ntz_column(latest))
    return None


def _is_refused_or_false(column: Column, spark_type: DataType) -> Column:
    """Return a column of booleans: whether pandas refuses the value within a key in `column`.

    As `_is_refused`, but false where pandas refuses no value of the type.
    """
    is_refused = _is_refused(column, spark_type)
    return sql.lit(False) if is_refused is None else is_refused


def _ntz_column(time: datetime) -> Column:
    """Return a column of timestamp_ntz that has one time, without a zone, in all rows."""
    return sql.lit(time.isoformat(" ")).cast("timestamp_ntz")


def _micros(time: datetime) -> int:
    """Return the microseconds from 1970 to a time without a zone."""
    return (time - _LOCAL_EPOCH) // _MICROSECOND


class TupleDecoder:
    """Decodes the values in the tuples of one stream."""

    def __init__(self, spark_type: DataType, zone: str = "UTC") -> None:
        """Prepare a decoder for each field that needs one.

        Args:
            spark_type: of the column with the stream's tuples: a struct.
            zone: of the times that a bolt gets.
        """
        self._tuple_type = spark_type if isinstance(spark_type, StructType) else StructType()
        fields = self._tuple_type.fields
        self._types_by_field = {field.name: field.dataType for field in fields}
        self._zone = zone
        decoder_by_leaf: Mapping[type[DataType], Decode] = {
            TimestampType: partial(_decode_timestamp, zone),
            TimestampNTZType: _decode_timestamp_ntz,
            DateType: _decode_date,
            StringType: _decode_string,
        }
        if not FRAMES_KEEP_WHOLE_NUMBERS:
            # whole numbers come as their digits, in bytes, which `int` reads
            decoder_by_leaf = {**decoder_by_leaf, **dict.fromkeys(_WHOLE_NUMBERS, int)}
        self._decoders = _decoders(self._types_by_field, decoder_by_leaf)
        # for tuples in the state of an earlier version: their values are not encoded, and their
        # times
        # have no zone
        types_with_times = {
            name: field_type for name, field_type in self._types_by_field.items() if has_times(field_type)
        }
        self._zone_setters = _decoders(
            types_with_times,
            {TimestampType: self.localize},
            are_encoded=False,
        )

    def __reduce__(self) -> tuple[type[TupleDecoder], tuple[StructType, str]]:
        """Return how pickle makes it in another process: its functions cannot be sent there."""
        spark_type = StructType()
        for name, field_type in self._types_by_field.items():
            spark_type.add(name, field_type)
        return TupleDecoder, (spark_type, self._zone)

    def decode(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a tuple, by field, decoded.

        Raises:
            OverflowError: a date or time is not in Python's years 1 to 9999.
            UnicodeDecodeError: a text is no UTF-8.
        """
        return _with_decoded_fields(values, self._decoders)

    def with_zones(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values from a state, with the zone for times that were kept without one."""
        return _with_decoded_fields(values, self._zone_setters)

    def check_key(self, encoded_values: Mapping[str, Any], key_paths: Iterable[FieldPath]) -> None:
        """Raise `OverflowError` if a time in the key is out of pandas' range for keys.

        `encoded_values`: of a tuple, by field, before they are decoded. `key_paths`: the ways to
        the values of the key.
        """
        for path in key_paths:
            value = value_at(encoded_values, path)
            if value is None:
                continue
            spark_type = type_at(self._tuple_type, path)
            name = ".".join(path)
            if isinstance(spark_type, TimestampType):
                micros = int(value)  # encoded as a number
            elif isinstance(spark_type, TimestampNTZType):
                micros = value // _MICROSECOND  # encoded as an interval
            else:
                continue
            if abs(micros) > KEY_US_MAX:
                raise OverflowError(
                    f"the key {name!r} is a time {micros} µs behind 1970, and as a key Spark's pandas has the"
                    " years 1677 to 2262 alone: group by it as a text, or as a number"
                )

    def localize(self, value: Any) -> Any:
        """Return a time of pandas in the zone, if it has none; any other value as it is."""
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        if not isinstance(value, pd.Timestamp) or value.tzinfo is not None:
            return value
        return pd.Timestamp(value.to_pydatetime(warn=False).replace(tzinfo=zone_of(self._zone)))


def _with_decoded_fields(
    values: Mapping[str, Any],
    decoders: Mapping[str, Decode],
) -> Mapping[str, Any]:
    """Return values by field, decoded where the field has a decoder.

    If there are no decoders the very same mapping is returned.
    """
    if not decoders:
        return values
    decoded = dict(values)
    for name, decoder in decoders.items():
        if name in values:
            decoded[name] = _decode(values[name], decoder)
    return decoded


def _decode(value: Any, decoder: Decode | None) -> Any:
    """Return what an encoded value stands for; a null, or a value without a decoder, as it is."""
    return value if value is None or decoder is None else decoder(value)


def _decoders(
    types_by_field: Mapping[str, DataType],
    decoder_by_leaf: Mapping[type[DataType], Decode],
    *,
    are_encoded: bool = True,
) -> dict[str, Decode]:
    """Return the decoders of the fields that need one; arguments as of `_decoder`."""
    decoders: dict[str, Decode] = {}
    for name, spark_type in types_by_field.items():
        decoder = _decoder(spark_type, decoder_by_leaf, are_encoded=are_encoded)
        if decoder is not None:
            decoders[name] = decoder
    return decoders


def _decoder(
    spark_type: DataType, decoder_by_leaf: Mapping[type[DataType], Decode], *, are_encoded: bool
) -> Decode | None:
    """Return a function that decodes values of a type; None: they stay as they are.

    Args:
        decoder_by_leaf: the decoders of types without types within, by the type's class.
        are_encoded: whether values were encoded as the table shows. False: they are from the state
            of an earlier version, in which nothing is wrapped, and only leaves are replaced.
    """
    if isinstance(spark_type, StructType):
        types_by_field = {field.name: field.dataType for field in spark_type.fields}
        decoders = _decoders(types_by_field, decoder_by_leaf, are_encoded=are_encoded)
        return partial(_decode_struct, decoders) if decoders else None
    if isinstance(spark_type, MapType):
        decode_key = _decoder(spark_type.keyType, decoder_by_leaf, are_encoded=are_encoded)
        decode_value = _decoder(spark_type.valueType, decoder_by_leaf, are_encoded=are_encoded)
        if decode_key is None and decode_value is None:
            return None
        return partial(_decode_map, decode_key, decode_value)
    if isinstance(spark_type, ArrayType):
        if are_encoded and type(spark_type.elementType) in _FLOAT_DTYPES:
            return partial(_decode_numbers, _FLOAT_DTYPES[type(spark_type.elementType)])
        decode_element = _decoder(spark_type.elementType, decoder_by_leaf, are_encoded=are_encoded)
        if are_encoded and _is_wrapped(spark_type.elementType):
            return partial(_decode_wrapped, decode_element)
        return None if decode_element is None else partial(_decode_array, decode_element)
    return decoder_by_leaf.get(type(spark_type))


def _decode_struct(decoders: Mapping[str, Decode], struct: Any) -> dict[str, Any]:
    """Return a struct as a dictionary; values of fields without a decoder stay as they are."""
    values = struct if isinstance(struct, dict) else struct.asDict()  # a Row in PySpark 4.2
    return {name: _decode(value, decoders.get(name)) for name, value in values.items()}


def _decode_map(
    decode_key: Decode | None,
    decode_value: Decode | None,
    encoded_map: Any,
) -> dict[Any, Any]:
    """Return a map as a dictionary; keys or values without a decoder stay as they are."""
    decoded: dict[Any, Any] = {}
    for key, value in encoded_map.items():
        decoded[_decode(key, decode_key)] = _decode(value, decode_value)
    return decoded


def _decode_array(decode_element: Decode, elements: Any) -> Any:
    """Return an array with its elements decoded."""
    return _array_of_objects([_decode(element, decode_element) for element in elements])


def _decode_wrapped(decode_element: Decode | None, structs: Any) -> Any:
    """Return an array with its elements taken out of their structs, and decoded."""
    return _array_of_objects([_decode(struct[_WRAPPED], decode_element) for struct in structs])


def _decode_numbers(dtype: type, structs: Any) -> Any:
    """Return an array with its floats taken out of structs; of objects if one is null."""
    numbers = [struct[_WRAPPED] for struct in structs]
    return _array_of_objects(numbers) if None in numbers else np.array(numbers, dtype)


def _array_of_objects(elements: list[Any]) -> Any:
    """Return a NumPy array of objects; `np.array` would make two dimensions of [[1], [2]]."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def _decode_timestamp(zone: str, micros: Any) -> Any:
    """Return a time in a zone by its microseconds since 1970.

    Raises `OverflowError`: it is outside of Python's years.
    """
    import pandas as pd

    try:
        time = _EPOCH + timedelta(microseconds=int(micros))
    except OverflowError:
        raise OverflowError(f"a time lies {int(micros)} µs behind 1970, and {_YEARS_TEXT}") from None
    # if it is before the year 1 in that zone, or behind 9999, it stays in UTC
    with suppress(OverflowError):
        time = time.astimezone(zone_of(zone))
    return pd.Timestamp(time)


def _decode_timestamp_ntz(interval: Any) -> Any:
    """Return a time without a zone by the interval since 1970; None: the interval is null.

    Raises `OverflowError`: it is outside of Python's years.
    """
    import pandas as pd

    # only NaT, the null of an array of intervals, differs from itself
    is_null = interval != interval
    if is_null:
        return None
    since_1970: timedelta = interval.item() if isinstance(interval, np.timedelta64) else interval
    try:
        return pd.Timestamp(_LOCAL_EPOCH + since_1970)
    except OverflowError:
        micros = since_1970 // _MICROSECOND
        raise OverflowError(f"a time lies {micros} µs behind 1970, and {_YEARS_TEXT}") from None


def _decode_date(days: Any) -> date:
    """Return a date by its days since 1970; `OverflowError`: it is outside of Python's years."""
    try:
        return date.fromordinal(_EPOCH_ORDINAL + int(days))
    except (ValueError, OverflowError):
        raise OverflowError(f"a date lies {int(days)} days behind 1970, and {_YEARS_TEXT}") from None


def _decode_string(utf8: bytes) -> str:
    """Return the text in bytes; `UnicodeDecodeError`: they are no UTF-8."""
    return utf8.decode()
