"""Values on their way to a keyed bolt: encoded by Spark before pandas has them, and decoded tuple
by tuple.

Spark hands a keyed bolt its tuples as structs in a pandas frame. A value that pandas or Python
cannot represent ends the query then, at each start, since it is not yet a tuple that could fail. So
Spark encodes such values first, and they are decoded here, one tuple after the other: one that
cannot be decoded fails alone.

=====================  ==============================  =======================================================
type                   encoded as                      what would happen without
=====================  ==============================  =======================================================
timestamp              microseconds since 1970         an hour of each autumn is there twice, a summer after
                                                       2037 has no summer time, the year 1 ends the query
timestamp_ntz          an interval since 1970          a time behind the year 9999 ends the query
date                   days since 1970                 the same
string                 its bytes                       one that is no UTF-8 ends the query
array of double,       structs with one field          a null beside numbers becomes NaN
float
array of arrays with   structs with one field          arrays of different lengths, or a null
structs or maps in                                     beside them, end the query
=====================  ==============================  =======================================================

A struct, a map or an array is encoded if something within it is.

A key is not encoded, since checkpoints have it as it is: where pandas would refuse it another one
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
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spout.tuples.exact import zone_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)

KEY_US_MAX: Final = ((1 << 63) - 1) // 1_000
"""So far from 1970 a time of a key may lie, µs: pandas counts it in ns, which reach from 1677 to 2262."""

_YEARS: Final = "Python has the years 1 to 9999 alone"

_WRAPPED: Final = "v"
"""The one field of the structs in place of numbers and of arrays within arrays."""

_DTYPES: Final[Mapping[type[DataType], type]] = MappingProxyType(
    {FloatType: np.float32, DoubleType: np.float64}
)
_ENCODED_TYPES: Final = (TimestampType, TimestampNTZType, DateType, StringType)

Decode = Callable[[Any], Any]
"""Returns the value that an encoded one, which is not None, stands for."""


def has_times(spark_type: DataType) -> bool:
    """Return whether a Spark type is a timestamp, or has one within."""
    return isinstance(spark_type, TimestampType) or any(map(has_times, _types_within(spark_type)))


def needs_encoding(spark_type: DataType) -> bool:
    """Return whether values of a Spark type are encoded; others stay as they are."""
    if isinstance(spark_type, ArrayType) and _is_wrapped(spark_type.elementType):
        return True
    return isinstance(spark_type, _ENCODED_TYPES) or any(map(needs_encoding, _types_within(spark_type)))


def _is_wrapped(element: DataType) -> bool:
    """Return whether each element of an array is encoded as a struct with one field."""
    if isinstance(element, ArrayType):
        return _has_dictionaries(element)
    return type(element) in _DTYPES


def _has_dictionaries(spark_type: DataType) -> bool:
    """Return whether values of a type, when they are encoded, have structs or maps within.

    These are dictionaries in pandas, and PySpark turns arrays that have some into one NumPy array,
    which fails for arrays of different lengths, as [[{}], [{}, {}]].
    """
    if isinstance(spark_type, ArrayType):
        return _is_wrapped(spark_type.elementType) or _has_dictionaries(spark_type.elementType)
    return isinstance(spark_type, StructType | MapType)


def unhashable_map_key(spark_type: DataType) -> DataType | None:
    """Return the type of a map's keys, within a type, that no dictionary can have.

    None: there is none.
    """
    if isinstance(spark_type, MapType) and isinstance(spark_type.keyType, StructType | ArrayType):
        return spark_type.keyType
    for type_within in _types_within(spark_type):
        key_type = unhashable_map_key(type_within)
        if key_type is not None:
            return key_type
    return None


def nested_array_within(spark_type: DataType) -> DataType | None:
    """Return the type of arrays of arrays, within that of a key, that could end the query.

    None: none could.

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


def _pyspark_converts(spark_type: DataType) -> bool:
    """Return whether PySpark converts values of a type in a key, or values within them."""
    converted_types = (StructType, TimestampType, TimestampNTZType)
    return isinstance(spark_type, converted_types) or any(map(_pyspark_converts, _types_within(spark_type)))


def _types_within(spark_type: DataType) -> tuple[DataType, ...]:
    """Return the types within a type: of a struct's fields, a map's keys and values, or elements."""
    if isinstance(spark_type, StructType):
        return tuple(field.dataType for field in spark_type.fields)
    if isinstance(spark_type, MapType):
        return spark_type.keyType, spark_type.valueType
    if isinstance(spark_type, ArrayType):
        return (spark_type.elementType,)
    return ()


def encoded_column(column: Column, spark_type: DataType) -> Column:
    """Return a column with its values encoded, as the table above has it for their type.

    Nulls stay nulls. `TupleDecoder` decodes the values of one tuple.
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
        keyed = sql.transform_keys(column, lambda key, _: encoded_column(key, key_type))
        return sql.transform_values(keyed, lambda _, value: encoded_column(value, value_type))
    if isinstance(spark_type, StringType):
        return column.cast("binary")
    if isinstance(spark_type, DateType):
        return sql.unix_date(column)
    if isinstance(spark_type, TimestampNTZType):
        return column - _local_time(_LOCAL_EPOCH)
    return sql.unix_micros(column)  # a timestamp: no other type is encoded


def _wrapped(column: Column, spark_type: DataType) -> Column:
    """Return a column, encoded, as the one field of a struct."""
    return sql.struct(encoded_column(column, spark_type).alias(_WRAPPED))


def has_floats(spark_type: DataType) -> bool:
    """Return whether a Spark type is of floats, or has some within."""
    return type(spark_type) in _DTYPES or any(map(has_floats, _types_within(spark_type)))


def loses_nulls(spark_type: DataType) -> bool:
    """Return whether pandas has NaN for the nulls in a key: of floats, or with arrays of them."""
    return type(spark_type) in _DTYPES or _has_arrays_of_floats(spark_type)


def _has_arrays_of_floats(spark_type: DataType) -> bool:
    if isinstance(spark_type, ArrayType) and type(spark_type.elementType) in _DTYPES:
        return True
    return any(map(_has_arrays_of_floats, _types_within(spark_type)))


def normal_key(column: Column, spark_type: DataType, *, is_nullable: bool = True) -> Column:
    """Return a column of the key in which equal floats have equal bytes: no -0.0, one NaN.

    Spark takes them for one key within a micro-batch, and looks for what a key
    holds by its bytes: without this, 0.0 would not find what -0.0 held.
    """
    if not has_floats(spark_type):
        return column
    if isinstance(spark_type, StructType):
        fields: list[Column] = []
        for field in spark_type.fields:
            part = normal_key(column[field.name], field.dataType, is_nullable=field.nullable)
            fields.append(part.alias(field.name))
        struct = sql.struct(*fields)
        return sql.when(column.isNotNull(), struct) if is_nullable else struct
    if isinstance(spark_type, ArrayType):
        element, has_null = spark_type.elementType, spark_type.containsNull
        return sql.transform(column, lambda value: normal_key(value, element, is_nullable=has_null))
    if type(spark_type) not in _DTYPES:
        return column  # a map, by which Spark does not group
    zero, nan = (sql.lit(number).cast(spark_type) for number in (0.0, math.nan))
    return sql.when(sql.isnan(column), nan).when(column == zero, zero).otherwise(column)


def normal_floats(value: Any) -> Any:
    """Return a part of a key, as a tuple has it, as `normal_key` has it: 0.0 for -0.0."""
    if isinstance(value, float | np.floating):
        return value + 0.0
    if isinstance(value, dict):
        return {name: normal_floats(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _array_of_objects([normal_floats(part) for part in value])
    is_floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value + 0.0 if is_floats else value


def readable_key(column: Column, spark_type: DataType) -> Column:
    """Return a column of the key, with a substitute where pandas would refuse the key.

    A tuple with such a key fails, so nobody sees the other one. It is no null: a key that is never null stays
    so, as checkpoints have it.
    """
    is_refused = _is_refused(column, spark_type, at_top=True)
    if is_refused is None:
        return column
    substitutes = {
        TimestampType: sql.timestamp_micros(sql.lit(0)),
        TimestampNTZType: sql.lit(_LOCAL_EPOCH.date()).cast("timestamp_ntz"),
        DateType: sql.lit(_LOCAL_EPOCH.date()),
        StringType: sql.lit(""),
    }
    # of a struct or an array it is a null
    substitute = substitutes.get(type(spark_type), sql.lit(None).cast(spark_type))
    return sql.when(is_refused, substitute).otherwise(column)


def _is_refused(column: Column, spark_type: DataType, *, at_top: bool = False) -> Column | None:
    """Return, as a column of booleans, whether pandas refuses a key.

    None: it refuses none of this type.

    A key cannot be a map.

    Args:
        at_top: whether it is the key itself; False: a part of a key. Pandas counts the times of
            keys in ns, those of parts not.
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
    earliest, latest = _key_times() if at_top else (datetime.min, datetime.max)
    if isinstance(spark_type, TimestampType):
        return ~sql.unix_micros(column).between(_micros(earliest), _micros(latest))
    if isinstance(spark_type, TimestampNTZType):
        return ~column.between(_local_time(earliest), _local_time(latest))
    return None


def _key_times() -> tuple[datetime, datetime]:
    """Return the earliest and the latest time that pandas has of a key."""
    reach = timedelta(microseconds=KEY_US_MAX)
    return _LOCAL_EPOCH - reach, _LOCAL_EPOCH + reach


def _is_refused_or_false(column: Column, spark_type: DataType) -> Column:
    """Return whether pandas refuses a part of a key, as a column of booleans also where it refuses
    none.
    """
    is_refused = _is_refused(column, spark_type)
    return sql.lit(False) if is_refused is None else is_refused


def _local_time(time: datetime) -> Column:
    """Return a time without a zone as a column of timestamp_ntz."""
    return sql.lit(time.isoformat(" ")).cast("timestamp_ntz")


def _micros(time: datetime) -> int:
    """Return the microseconds from 1970 to a time without a zone."""
    return (time - _LOCAL_EPOCH) // _MICROSECOND


class TupleDecoder:
    """Decodes the values in the tuples of one stream."""

    def __init__(self, spark_type: DataType, zone: str = "UTC") -> None:
        """Decode times in a zone; `spark_type` is the type of the stream's column, of structs."""
        fields = spark_type.fields if isinstance(spark_type, StructType) else ()
        self._types_by_field = {field.name: field.dataType for field in fields}
        self._zone = zone
        decoders_of_leaves: Mapping[type[DataType], Decode] = {
            TimestampType: partial(_decode_timestamp, zone),
            TimestampNTZType: _decode_timestamp_ntz,
            DateType: _decode_date,
            StringType: _decode_string,
        }
        self._decoders = _decoders(self._types_by_field, decoders_of_leaves)
        # for the state of an earlier version, whose values are not encoded, and lack only the zone
        types_with_times = {
            name: field_type for name, field_type in self._types_by_field.items() if has_times(field_type)
        }
        self._localizers = _decoders(types_with_times, {TimestampType: self.localize}, are_encoded=False)

    def __reduce__(self) -> tuple[type[TupleDecoder], tuple[StructType, str]]:
        """Return what makes it anew in another process: its functions cannot be sent there."""
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
        """Return the values of a tuple from a state, with a zone where an earlier version kept none."""
        return _with_decoded_fields(values, self._localizers)

    def check_key(self, encoded_values: Mapping[str, Any], key_fields: Iterable[str]) -> None:
        """Raise `OverflowError` if a time in a field of the key is out of pandas' range for
        keys.
        """
        for name in key_fields:
            value = encoded_values.get(name)
            spark_type = self._types_by_field.get(name)
            if value is None or not isinstance(spark_type, TimestampType | TimestampNTZType):
                continue
            # a timestamp is encoded as a number, a timestamp_ntz as an interval
            micros = int(value) if isinstance(spark_type, TimestampType) else value // _MICROSECOND
            if abs(micros) > KEY_US_MAX:
                raise OverflowError(
                    f"the key {name!r} is a time {micros} µs behind 1970, and as a key Spark's pandas has the"
                    " years 1677 to 2262 alone: group by it as a text, or as a number"
                )

    def localize(self, value: Any) -> Any:
        """Return a time of pandas with the zone, if it has none."""
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        if not isinstance(value, pd.Timestamp) or value.tzinfo is not None:
            return value
        return pd.Timestamp(value.to_pydatetime(warn=False).replace(tzinfo=zone_of(self._zone)))


def _with_decoded_fields(values: Mapping[str, Any], decoders: Mapping[str, Decode]) -> Mapping[str, Any]:
    """Return values by field, decoded where the field has a decoder.

    The very same mapping if none has.
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
    leaves: Mapping[type[DataType], Decode],
    *,
    are_encoded: bool = True,
) -> dict[str, Decode]:
    """Return the decoders of those fields that need one, by their names.

    For the rest see `_decoder`.
    """
    decoders: dict[str, Decode] = {}
    for name, spark_type in types_by_field.items():
        decoder = _decoder(spark_type, leaves, are_encoded=are_encoded)
        if decoder is not None:
            decoders[name] = decoder
    return decoders


def _decoder(
    spark_type: DataType, leaves: Mapping[type[DataType], Decode], *, are_encoded: bool
) -> Decode | None:
    """Return the decoder of a type; None: its values are not encoded.

    Args:
        leaves: the decoders of types without types within, by the type's class.
        are_encoded: False: the values are from the state of an earlier version. Only leaves are
            replaced.
    """
    if isinstance(spark_type, StructType):
        types_by_field = {field.name: field.dataType for field in spark_type.fields}
        decoders = _decoders(types_by_field, leaves, are_encoded=are_encoded)
        return partial(_decode_struct, decoders) if decoders else None
    if isinstance(spark_type, MapType):
        decode_key = _decoder(spark_type.keyType, leaves, are_encoded=are_encoded)
        decode_value = _decoder(spark_type.valueType, leaves, are_encoded=are_encoded)
        if decode_key is None and decode_value is None:
            return None
        return partial(_decode_map, decode_key, decode_value)
    if isinstance(spark_type, ArrayType):
        if are_encoded and type(spark_type.elementType) in _DTYPES:
            return partial(_decode_numbers, _DTYPES[type(spark_type.elementType)])
        decode_element = _decoder(spark_type.elementType, leaves, are_encoded=are_encoded)
        if are_encoded and _is_wrapped(spark_type.elementType):
            return partial(_decode_wrapped, decode_element)
        return None if decode_element is None else partial(_decode_array, decode_element)
    return leaves.get(type(spark_type))


def _decode_struct(decoders: Mapping[str, Decode], struct: Any) -> dict[str, Any]:
    """Return a struct as a dictionary; fields without a decoder are as they come."""
    values = struct if isinstance(struct, dict) else struct.asDict()  # a Row in PySpark 4.2
    return {name: _decode(value, decoders.get(name)) for name, value in values.items()}


def _decode_map(decode_key: Decode | None, decode_value: Decode | None, encoded_map: Any) -> dict[Any, Any]:
    """Return a map as a dictionary; keys or values without a decoder are as they come."""
    return {_decode(key, decode_key): _decode(value, decode_value) for key, value in encoded_map.items()}


def _decode_array(decode_element: Decode, elements: Any) -> Any:
    """Return an array with its elements decoded."""
    return _array_of_objects([_decode(element, decode_element) for element in elements])


def _decode_wrapped(decode_element: Decode | None, structs: Any) -> Any:
    """Return an array whose elements are in structs with one field."""
    return _array_of_objects([_decode(struct[_WRAPPED], decode_element) for struct in structs])


def _decode_numbers(dtype: type, structs: Any) -> Any:
    """Return an array of numbers as Spark does, and of objects where one of them is null."""
    numbers = [struct[_WRAPPED] for struct in structs]
    return _array_of_objects(numbers) if None in numbers else np.array(numbers, dtype)


def _array_of_objects(elements: list[Any]) -> Any:
    """Return a NumPy array of objects, as Spark does.

    `np.array` would make two dimensions of [[1], [2]].
    """
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def _decode_timestamp(zone: str, micros: Any) -> Any:
    """Return the time of a timestamp, in a zone; `OverflowError`: its year is none of Python's."""
    import pandas as pd

    try:
        time = _EPOCH + timedelta(microseconds=int(micros))
    except OverflowError:
        raise OverflowError(f"a time lies {int(micros)} µs behind 1970, and {_YEARS}") from None
    with suppress(OverflowError):  # in that zone it is before the year 1, or behind 9999: it stays in UTC
        time = time.astimezone(zone_of(zone))
    return pd.Timestamp(time)


def _decode_timestamp_ntz(interval: Any) -> Any:
    """Return the time of a timestamp_ntz, from its interval since 1970; None: a null in an array.

    Raises `OverflowError`: its year is none of Python's.
    """
    import pandas as pd

    is_null = interval != interval  # only NaT, the null of an array of intervals, differs from itself
    if is_null:
        return None
    since_1970: timedelta = interval.item() if isinstance(interval, np.timedelta64) else interval
    try:
        return pd.Timestamp(_LOCAL_EPOCH + since_1970)
    except OverflowError:
        micros = since_1970 // _MICROSECOND
        raise OverflowError(f"a time lies {micros} µs behind 1970, and {_YEARS}") from None


def _decode_date(days: Any) -> date:
    """Return the date that lies so many days behind 1970; `OverflowError`: its year is none of Python's."""
    try:
        return date.fromordinal(_EPOCH_ORDINAL + int(days))
    except (ValueError, OverflowError):
        raise OverflowError(f"a date lies {int(days)} days behind 1970, and {_YEARS}") from None


def _decode_string(utf8: bytes) -> str:
    """Return the text of its bytes; `UnicodeDecodeError`: they are no UTF-8."""
    return utf8.decode()
