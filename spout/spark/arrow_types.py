"""Spark's types as Arrow's, and back.

PySpark's own functions do it, which have other arguments since 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from spout.spark.private import requiring
from spout.spark.versions import SPARK, SparkVersion

_TAKES_ZONES: Final = SparkVersion(4, 2) <= SPARK
"""Whether PySpark makes times in a zone; before, it makes them in UTC."""

_FROM_ARROW: Final[Mapping[str, Any]] = {} if _TAKES_ZONES else {"prefer_timestamp_ntz": True}
"""So that a time without a zone is one in Spark, too; since 4.2 that is the default."""


def arrow_schema_of(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema for a Spark schema, with times in a zone."""
    if _TAKES_ZONES:
        return _conversion("to_arrow_schema")(schema, timezone=zone)
    utc_schema = _conversion("to_arrow_schema")(schema)
    fields = [_field_in_zone(field, zone) for field in utc_schema]
    return pa.schema(fields, metadata=utc_schema.metadata)


def arrow_type_of(spark_type: DataType, zone: str = "UTC") -> pa.DataType:
    """Return the Arrow type for a Spark type, with times in a zone."""
    if _TAKES_ZONES:
        return _conversion("to_arrow_type")(spark_type, timezone=zone)
    return type_in_zone(_conversion("to_arrow_type")(spark_type), zone)


def spark_schema_of(schema: pa.Schema) -> StructType:
    """Return the Spark schema for an Arrow schema."""
    spark_schema: StructType = _conversion("from_arrow_schema")(schema, **_FROM_ARROW)
    return spark_schema


def spark_type_of(arrow_type: pa.DataType) -> DataType:
    """Return the Spark type for an Arrow type."""
    spark_type: DataType = _conversion("from_arrow_type")(arrow_type, **_FROM_ARROW)
    return spark_type


def type_in_zone(arrow_type: pa.DataType, zone: str) -> pa.DataType:
    """Return a type with its times in a zone, at any depth; those without a zone stay so."""
    types = pa.types
    if types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return pa.timestamp(arrow_type.unit, zone)
    if types.is_struct(arrow_type):
        return pa.struct([_field_in_zone(field, zone) for field in arrow_type])
    if types.is_map(arrow_type):
        key_field = _field_in_zone(arrow_type.key_field, zone)
        item_field = _field_in_zone(arrow_type.item_field, zone)
        return pa.map_(key_field, item_field, arrow_type.keys_sorted)
    if types.is_list(arrow_type):
        return pa.list_(_field_in_zone(arrow_type.value_field, zone))
    return arrow_type


def _field_in_zone(field: pa.Field, zone: str) -> pa.Field:
    """Return a field with the times of its type in a zone."""
    return field.with_type(type_in_zone(field.type, zone))


def _conversion(name: str) -> Callable[..., Any]:
    """Return one of PySpark's functions between its own types and Arrow's."""
    with requiring(f"pyspark.sql.pandas.types.{name}"):
        conversion: Callable[..., Any] = getattr(import_module("pyspark.sql.pandas.types"), name)
    return conversion
