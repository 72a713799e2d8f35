"""Values on their way to a keyed bolt: through pandas in forms that it neither refuses nor bends.

Spark hands a keyed bolt its tuples as structs in a pandas frame. What pandas or Python has no form of ends
the query then, at each start, since it is no tuple yet that could fail. So Spark makes other forms of such
values first, and here they become values again, one tuple after the other: who cannot be read fails alone.

=====================  ==============================  =======================================================
type                   its form                        what would happen without
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

A key stays what it is, since checkpoints have it: where pandas would refuse it another one takes its place
(`carried_key`), and the tuple itself fails.

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
_FORMED: Final = (TimestampType, TimestampNTZType, DateType, StringType)

Read = Callable[[Any], Any]
"""Makes a value of its form."""


def has_times(kind: DataType) -> bool:
    """Return whether a Spark type is a timestamp, or has one within."""
    return isinstance(kind, TimestampType) or any(map(has_times, _parts(kind)))


def needs_form(kind: DataType) -> bool:
    """Return whether values of a Spark type need another form on their way."""
    if isinstance(kind, ArrayType) and _is_wrapped(kind.elementType):
        return True
    return isinstance(kind, _FORMED) or any(map(needs_form, _parts(kind)))


def _is_wrapped(element: DataType) -> bool:
    """Return whether each element of an array is put into a struct of its own on its way."""
    if isinstance(element, ArrayType):
        return _has_dictionaries(element)
    return type(element) in _DTYPES


def _has_dictionaries(kind: DataType) -> bool:
    """Return whether the form of a type has structs or maps within.

    These are dictionaries in pandas, and PySpark makes a NumPy array of arrays
    that have some: of [[{}], [{}, {}]] there is none.
    """
    if isinstance(kind, ArrayType):
        return _is_wrapped(kind.elementType) or _has_dictionaries(kind.elementType)
    return isinstance(kind, StructType | MapType)


def key_without_hash(kind: DataType) -> DataType | None:
    """Return the type of a map's keys of which Python has no dictionary; None: there is none within."""
    if isinstance(kind, MapType) and isinstance(kind.keyType, StructType | ArrayType):
        return kind.keyType
    keys_within = map(key_without_hash, _parts(kind))
    return next((key_kind for key_kind in keys_within if key_kind is not None), None)


def table_within(kind: DataType) -> DataType | None:
    """Return the type of arrays of arrays, within that of a key, that PySpark makes.

    A key stays what it is, so PySpark makes its times and structs, and then
    `numpy.array` of their arrays. Where these differ in length, or one is null,
    that raises, and the query ends. None: it makes none of this type.
    """
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, ArrayType):
        return kind if _pyspark_builds(kind.elementType) else None
    tables_within = map(table_within, _parts(kind))
    return next((table for table in tables_within if table is not None), None)


def _pyspark_builds(kind: DataType) -> bool:
    """Return whether PySpark makes a value of a type in a key, or a part of it."""
    built_kinds = (StructType, TimestampType, TimestampNTZType)
    return isinstance(kind, built_kinds) or any(map(_pyspark_builds, _parts(kind)))


def _parts(kind: DataType) -> tuple[DataType, ...]:
    """Return the types within a type: of a struct's fields, a map's keys and values, or elements."""
    if isinstance(kind, StructType):
        return tuple(field.dataType for field in kind.fields)
    if isinstance(kind, MapType):
        return kind.keyType, kind.valueType
    if isinstance(kind, ArrayType):
        return (kind.elementType,)
    return ()


def as_form(column: Column, kind: DataType) -> Column:
    """Return a column in the form of its type; nulls stay nulls."""
    if not needs_form(kind):
        return column
    if isinstance(kind, StructType):
        fields = [as_form(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
        return sql.when(column.isNotNull(), sql.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        if _is_wrapped(element):
            return sql.transform(column, lambda value: _wrapped(value, element))
        return sql.transform(column, lambda value: as_form(value, element))
    if isinstance(kind, MapType):
        key_kind, value_kind = kind.keyType, kind.valueType
        keyed = sql.transform_keys(column, lambda key, _: as_form(key, key_kind))
        return sql.transform_values(keyed, lambda _, value: as_form(value, value_kind))
    if isinstance(kind, StringType):
        return column.cast("binary")
    if isinstance(kind, DateType):
        return sql.unix_date(column)
    if isinstance(kind, TimestampNTZType):
        return column - _local_time(_LOCAL_EPOCH)
    return sql.unix_micros(column)


def _wrapped(column: Column, kind: DataType) -> Column:
    """Return the form of a column in a struct of its own."""
    return sql.struct(as_form(column, kind).alias(_WRAPPED))


def has_floats(kind: DataType) -> bool:
    """Return whether a Spark type is of floats, or has some within."""
    return type(kind) in _DTYPES or any(map(has_floats, _parts(kind)))


def loses_nulls(kind: DataType) -> bool:
    """Return whether pandas has NaN for the nulls in a key: of floats, or with arrays of them."""
    return type(kind) in _DTYPES or _has_arrays_of_floats(kind)


def _has_arrays_of_floats(kind: DataType) -> bool:
    if isinstance(kind, ArrayType) and type(kind.elementType) in _DTYPES:
        return True
    return any(map(_has_arrays_of_floats, _parts(kind)))


def normal_key(column: Column, kind: DataType, *, is_nullable: bool = True) -> Column:
    """Return a column of the key in which equal floats have equal bytes: no -0.0, one NaN.

    Spark takes them for one key within a micro-batch, and looks for what a key
    holds by its bytes: without this, 0.0 would not find what -0.0 held.
    """
    if not has_floats(kind):
        return column
    if isinstance(kind, StructType):
        fields: list[Column] = []
        for field in kind.fields:
            part = normal_key(column[field.name], field.dataType, is_nullable=field.nullable)
            fields.append(part.alias(field.name))
        struct = sql.struct(*fields)
        return sql.when(column.isNotNull(), struct) if is_nullable else struct
    if isinstance(kind, ArrayType):
        element, has_null = kind.elementType, kind.containsNull
        return sql.transform(column, lambda value: normal_key(value, element, is_nullable=has_null))
    if type(kind) not in _DTYPES:
        return column  # a map, by which Spark does not group
    zero, nan = (sql.lit(number).cast(kind) for number in (0.0, math.nan))
    return sql.when(sql.isnan(column), nan).when(column == zero, zero).otherwise(column)


def normal_floats(value: Any) -> Any:
    """Return a part of a key, as a tuple has it, as `normal_key` has it: 0.0 for -0.0."""
    if isinstance(value, float | np.floating):
        return value + 0.0
    if isinstance(value, dict):
        return {name: normal_floats(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _objects([normal_floats(part) for part in value])
    is_floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value + 0.0 if is_floats else value


def carried_key(column: Column, kind: DataType) -> Column:
    """Return a column of the key, with another key where pandas would refuse this one.

    A tuple with such a key fails, so nobody sees the other one. It is no null: a key that is never null stays
    so, as checkpoints have it.
    """
    is_refused = _is_refused(column, kind, at_top=True)
    if is_refused is None:
        return column
    substitutes = {
        TimestampType: sql.timestamp_micros(sql.lit(0)),
        TimestampNTZType: sql.lit(_LOCAL_EPOCH.date()).cast("timestamp_ntz"),
        DateType: sql.lit(_LOCAL_EPOCH.date()),
        StringType: sql.lit(""),
    }
    # of a struct or an array it is a null
    substitute = substitutes.get(type(kind), sql.lit(None).cast(kind))
    return sql.when(is_refused, substitute).otherwise(column)


def _is_refused(column: Column, kind: DataType, *, at_top: bool = False) -> Column | None:
    """Return whether pandas refuses a key, or a part of it; None: it refuses none of this type.

    `at_top`: whether it is the key itself, or a part. Of a key pandas counts times in ns, of parts not.
    """
    if isinstance(kind, StructType):
        tests: list[Column] = []
        for field in kind.fields:
            is_field_refused = _is_refused(column[field.name], field.dataType)
            if is_field_refused is not None:
                tests.append(is_field_refused)
        return reduce(or_, tests) if tests else None
    if isinstance(kind, ArrayType):
        element = kind.elementType
        if _is_refused(column, element) is None:
            return None
        return sql.exists(column, lambda value: _refusal(value, element))
    if isinstance(kind, StringType):
        return ~sql.is_valid_utf8(column)
    if isinstance(kind, DateType):
        first_day = date.min.toordinal() - _EPOCH_ORDINAL
        last_day = date.max.toordinal() - _EPOCH_ORDINAL
        return ~sql.unix_date(column).between(first_day, last_day)
    earliest, latest = _key_times() if at_top else (datetime.min, datetime.max)
    if isinstance(kind, TimestampType):
        return ~sql.unix_micros(column).between(_micros(earliest), _micros(latest))
    if isinstance(kind, TimestampNTZType):
        return ~column.between(_local_time(earliest), _local_time(latest))
    return None


def _key_times() -> tuple[datetime, datetime]:
    """Return the earliest and the latest time that pandas has of a key."""
    reach = timedelta(microseconds=KEY_US_MAX)
    return _LOCAL_EPOCH - reach, _LOCAL_EPOCH + reach


def _refusal(column: Column, kind: DataType) -> Column:
    """Return whether pandas refuses a part of a key, as a column in any case."""
    is_refused = _is_refused(column, kind)
    return sql.lit(False) if is_refused is None else is_refused


def _local_time(time: datetime) -> Column:
    """Return a time without a zone as a column of timestamp_ntz."""
    return sql.lit(time.isoformat(" ")).cast("timestamp_ntz")


def _micros(time: datetime) -> int:
    """Return the microseconds from 1970 to a time without a zone."""
    return (time - _LOCAL_EPOCH) // _MICROSECOND


class TupleValues:
    """The values in the tuples of one stream."""

    def __init__(self, kind: DataType, zone: str = "UTC") -> None:
        """Read times in a zone; `kind` is the type of the stream's column, of structs."""
        fields = kind.fields if isinstance(kind, StructType) else ()
        self._types_by_field = {field.name: field.dataType for field in fields}
        self._zone = zone
        readers_of_leaves: Mapping[type[DataType], Read] = {
            TimestampType: partial(_time, zone),
            TimestampNTZType: _local_time_of,
            DateType: _day,
            StringType: _text,
        }
        self._readers = _readers(self._types_by_field, readers_of_leaves)
        # of values, not forms, from the state of an earlier version
        types_with_times = {
            name: field_type for name, field_type in self._types_by_field.items() if has_times(field_type)
        }
        self._localizers = _readers(types_with_times, {TimestampType: self.localize}, are_forms=False)

    def __reduce__(self) -> tuple[type[TupleValues], tuple[StructType, str]]:
        """Be made anew in another process: its functions cannot be sent there."""
        kind = StructType()
        for name, field_type in self._types_by_field.items():
            kind.add(name, field_type)
        return TupleValues, (kind, self._zone)

    def read(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a tuple in place of their forms.

        Raises:
            OverflowError: a date or time is not in Python's years 1 to 9999.
            UnicodeDecodeError: a text is no UTF-8.
        """
        return _replaced(values, self._readers)

    def read_kept(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a tuple from a state, with a zone where an earlier version kept none."""
        return _replaced(values, self._localizers)

    def check_key(self, forms: Mapping[str, Any], names: Iterable[str]) -> None:
        """Raise `OverflowError` if a time of the key, in its form, is none that pandas has."""
        for name in names:
            form = forms.get(name)
            kind = self._types_by_field.get(name)
            if form is None or not isinstance(kind, TimestampType | TimestampNTZType):
                continue
            # a timestamp's form is a number, a timestamp_ntz's an interval
            micros = int(form) if isinstance(kind, TimestampType) else form // _MICROSECOND
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


def _replaced(values: Mapping[str, Any], readers: Mapping[str, Read]) -> Mapping[str, Any]:
    """Return values by field name, with those replaced that have a reader; the same ones if none has."""
    if not readers:
        return values
    replaced = dict(values)
    for name, reader in readers.items():
        if name in values:
            replaced[name] = _read(values[name], reader)
    return replaced


def _read(form: Any, reader: Read | None) -> Any:
    """Return the value of a form; a null, or a form without a reader, as it is."""
    return form if form is None or reader is None else reader(form)


def _readers(
    kinds: Mapping[str, DataType], leaves: Mapping[type[DataType], Read], *, are_forms: bool = True
) -> dict[str, Read]:
    """Return what reads the fields that have to be read, by their names."""
    readers = {name: _reader(kind, leaves, are_forms=are_forms) for name, kind in kinds.items()}
    return {name: reader for name, reader in readers.items() if reader is not None}


def _reader(kind: DataType, leaves: Mapping[type[DataType], Read], *, are_forms: bool) -> Read | None:
    """Return what makes a value of a type from its form; None: it is its own form.

    Args:
        kind: the type.
        leaves: what reads the types that have no parts.
        are_forms: whether it is a form; else it is a value already, of which only leaves are replaced.
    """
    if isinstance(kind, StructType):
        fields = {field.name: field.dataType for field in kind.fields}
        readers = _readers(fields, leaves, are_forms=are_forms)
        return partial(_read_struct, readers) if readers else None
    if isinstance(kind, MapType):
        key_reader = _reader(kind.keyType, leaves, are_forms=are_forms)
        value_reader = _reader(kind.valueType, leaves, are_forms=are_forms)
        if key_reader is None and value_reader is None:
            return None
        return partial(_read_map, key_reader, value_reader)
    if isinstance(kind, ArrayType):
        if are_forms and type(kind.elementType) in _DTYPES:
            return partial(_read_numbers, _DTYPES[type(kind.elementType)])
        element = _reader(kind.elementType, leaves, are_forms=are_forms)
        if are_forms and _is_wrapped(kind.elementType):
            return partial(_read_wrapped, element)
        return None if element is None else partial(_read_array, element)
    return leaves.get(type(kind))


def _read_struct(readers: Mapping[str, Read], form: Any) -> dict[str, Any]:
    """Return a struct as a dictionary; fields without a reader are as they come."""
    forms = form if isinstance(form, dict) else form.asDict()  # a Row in PySpark 4.2
    return {name: _read(field_form, readers.get(name)) for name, field_form in forms.items()}


def _read_map(key_reader: Read | None, value_reader: Read | None, form: Any) -> dict[Any, Any]:
    """Return a map as a dictionary; keys or values without a reader are as they come."""
    return {_read(key, key_reader): _read(value, value_reader) for key, value in form.items()}


def _read_array(element: Read, form: Any) -> Any:
    return _objects([_read(part, element) for part in form])


def _read_wrapped(element: Read | None, form: Any) -> Any:
    return _objects([_read(part[_WRAPPED], element) for part in form])


def _read_numbers(dtype: type, form: Any) -> Any:
    """Return numbers as Spark does, and as objects where one of them is null."""
    numbers = [part[_WRAPPED] for part in form]
    return _objects(numbers) if None in numbers else np.array(numbers, dtype)


def _objects(elements: list[Any]) -> Any:
    """Return an array of objects, as Spark does; NumPy would make a table of lists of one length."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def _time(zone: str, micros: Any) -> Any:
    """Return the time of a timestamp, in a zone; `OverflowError`: its year is none of Python's."""
    import pandas as pd

    try:
        time = _EPOCH + timedelta(microseconds=int(micros))
    except OverflowError:
        raise OverflowError(f"a time lies {int(micros)} µs behind 1970, and {_YEARS}") from None
    with suppress(OverflowError):  # in that zone it is before the year 1, or behind 9999: it stays in UTC
        time = time.astimezone(zone_of(zone))
    return pd.Timestamp(time)


def _local_time_of(interval: Any) -> Any:
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


def _day(days: Any) -> date:
    """Return the date that lies so many days behind 1970; `OverflowError`: its year is none of Python's."""
    try:
        return date.fromordinal(_EPOCH_ORDINAL + int(days))
    except (ValueError, OverflowError):
        raise OverflowError(f"a date lies {int(days)} days behind 1970, and {_YEARS}") from None


def _text(utf8: bytes) -> str:
    """Return the text of its bytes; `UnicodeDecodeError`: they are no UTF-8."""
    return utf8.decode()
