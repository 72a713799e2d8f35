"""Where a tuple has the value of its key: a column, or a field of a struct in a column.

Spark takes ``event.time`` as the field `time` of the column `event`, `` `event.time` `` as a
column of that name, and ``Event.Time`` as ``event.time`` unless `spark.sql.caseSensitive` is on.
The values of a tuple have the names of the columns alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import DataType, StructType

FieldPath = tuple[str, ...]
"""A field of a tuple, then a field of the struct in it, and so on: ``("event", "time")``.

Empty: the value of the key is no field of the tuple, and the key itself has all that is needed.
"""

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
"""A part of a name: in backticks, where two of them stand for one, or without."""


def field_path(tuple_type: StructType, name: str) -> FieldPath | None:
    """Return the way to what Spark takes for a name of a column.

    None: that is no field of a struct. Such is the value of a map (``counts.hawk``), and a field
    of the structs in an array.
    """
    path: list[str] = []
    value_type: DataType = tuple_type
    for quoted, plain in _PART.findall(name):
        part = quoted.replace("``", "`") or plain
        if not isinstance(value_type, StructType):
            return None
        field = _field_named(value_type, part)
        if field is None:
            return None
        path.append(field)
        value_type = value_type[field].dataType
    return tuple(path)


def _field_named(struct: StructType, name: str) -> str | None:
    """Return the name as the struct has it, perhaps with other capitals; None: it has none."""
    if name in struct.names:
        return name
    with_other_capitals = [field for field in struct.names if field.lower() == name.lower()]
    return with_other_capitals[0] if len(with_other_capitals) == 1 else None


def type_at(tuple_type: StructType, path: FieldPath) -> DataType:
    """Return the type of the values at the end of a path that `field_path` returned."""
    value_type: DataType = tuple_type
    for name in path:
        if not isinstance(value_type, StructType):
            raise TypeError(f"{path}: {name!r} is a field of no struct")
        value_type = value_type[name].dataType
    return value_type


def value_at(values: Mapping[str, Any], path: FieldPath, default: Any = None) -> Any:
    """Return the value of a tuple at the end of a path.

    None where it, or a struct before it, is null.

    `default`: returned where a tuple of an older state has no such field.
    """
    value: Any = values
    for name in path:
        if value is None:
            return None
        try:
            value = value[name]  # of a dictionary; PySpark 4.2 has a Row in some places
        except (KeyError, ValueError):
            return default
    return value
