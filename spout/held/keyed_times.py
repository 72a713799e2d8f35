"""Times on their way to a keyed bolt: through pandas as numbers, which shifts and refuses none of them.

Spark gives a keyed bolt pandas' times without a zone: an hour of each autumn is there twice, a summer after
2037 has no summer time, and the first day of the year 1 ends the query. So Spark makes numbers of the times
first, microseconds since 1970, and here they become pandas' times with the zone of the session.

A state of an earlier version holds times without a zone: they are local times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from spout.tuples.exact import zone_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def has_times(kind: DataType) -> bool:
    """Return whether a Spark type is a timestamp, or has one within."""
    if isinstance(kind, StructType):
        return any(has_times(field.dataType) for field in kind.fields)
    if isinstance(kind, MapType):
        return has_times(kind.keyType) or has_times(kind.valueType)
    return has_times(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, TimestampType)


def as_micros(column: Column, kind: DataType) -> Column:
    """Return a column with numbers of microseconds for its timestamps; nulls stay nulls."""
    if not has_times(kind):
        return column
    if isinstance(kind, StructType):
        fields = [as_micros(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
        return sql.when(column.isNotNull(), sql.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return sql.transform(column, lambda value: as_micros(value, element))
    if isinstance(kind, MapType):
        key_kind, value_kind = kind.keyType, kind.valueType
        keyed = sql.transform_keys(column, lambda key, _: as_micros(key, key_kind))
        return sql.transform_values(keyed, lambda _, value: as_micros(value, value_kind))
    return sql.unix_micros(column)


class TupleTimes:
    """The times in the tuples of one stream."""

    def __init__(self, kind: DataType, zone: str = "UTC") -> None:
        """Read times in a zone; `kind` is the type of the stream's column, of structs."""
        fields = kind.fields if isinstance(kind, StructType) else ()
        self._timed = {field.name: field.dataType for field in fields if has_times(field.dataType)}
        self._zone = zone

    def read(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a tuple with times in place of numbers.

        Raises `OverflowError`: one is not in Python's years 1 to 9999.
        """
        return self._with(values, self._at)

    def read_kept(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a tuple from a state, with a zone where an earlier version kept none."""
        return self._with(values, self.localize)

    def localize(self, value: Any) -> Any:
        """Return a time of pandas with the zone, if it has none."""
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        if not isinstance(value, pd.Timestamp) or value.tzinfo is not None:
            return value
        return pd.Timestamp(value.to_pydatetime(warn=False).replace(tzinfo=zone_of(self._zone)))

    def _with(self, values: Mapping[str, Any], time: Callable[[Any], Any]) -> Mapping[str, Any]:
        timed = {name: _replaced(values[name], kind, time) for name, kind in self._timed.items()}
        return {**values, **timed} if timed else values

    def _at(self, micros: Any) -> Any:
        import pandas as pd

        try:
            at = _EPOCH + timedelta(microseconds=int(micros))
        except OverflowError:
            raise OverflowError(
                f"a time lies {int(micros)} µs behind 1970, and Python has the years 1 to 9999 alone"
            ) from None
        with suppress(OverflowError):  # in that zone it is before the year 1, or behind 9999
            at = at.astimezone(zone_of(self._zone))
        return pd.Timestamp(at)


def _replaced(value: Any, kind: DataType, time: Callable[[Any], Any]) -> Any:
    """Return a value in which a function was applied to what stands for a timestamp."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        named = value if isinstance(value, dict) else value.asDict()  # a Row in PySpark 4.2
        times = {field.name: field.dataType for field in kind.fields if has_times(field.dataType)}
        return {
            name: _replaced(part, times[name], time) if name in times else part
            for name, part in named.items()
        }
    if isinstance(kind, MapType):
        return {
            _replaced(key, kind.keyType, time) if has_times(kind.keyType) else key: (
                _replaced(item, kind.valueType, time) if has_times(kind.valueType) else item
            )
            for key, item in value.items()
        }
    if isinstance(kind, ArrayType):
        elements = [_replaced(element, kind.elementType, time) for element in value]
        array = np.empty(len(elements), object)  # as Spark has them; of lists it would make a table
        array[:] = elements
        return array
    return time(value)
