"""Types of Spark become Arrow's and come back, on each version of PySpark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spout.spark.arrow_types import (
    arrow_schema_of,
    arrow_type_of,
    spark_schema_of,
    spark_type_of,
    type_in_zone,
)


def test_types_of_arrow_and_spark_are_each_others() -> None:
    schema = StructType([StructField("at", TimestampType()), StructField("all", ArrayType(LongType()))])
    arrow = arrow_schema_of(schema)
    assert arrow.field("at").type == pa.timestamp("us", "UTC")
    assert spark_schema_of(arrow) == schema
    assert arrow_type_of(IntegerType()) == pa.int32()
    assert spark_type_of(pa.int32()) == IntegerType()


NESTED = StructType(
    [
        StructField("at", TimestampType(), nullable=False),
        StructField("wall", TimestampNTZType()),
        StructField(
            "of", StructType([StructField("at", TimestampType()), StructField("wall", TimestampNTZType())])
        ),
        StructField("all", ArrayType(TimestampType())),
        StructField("by", MapType(StringType(), ArrayType(TimestampType()))),
    ]
)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_times_are_in_the_zone_at_any_depth_and_those_without_one_stay_so(zone: str) -> None:
    arrow = arrow_schema_of(NESTED, zone)
    time = pa.timestamp("us", zone)
    assert (arrow.field("at").type, arrow.field("at").nullable) == (time, False)
    assert arrow.field("wall").type == pa.timestamp("us")
    assert arrow.field("of").type.field("at").type == time
    assert arrow.field("all").type.value_type == time
    assert arrow.field("by").type.item_type.value_type == time
    assert spark_schema_of(arrow) == NESTED
    assert arrow_type_of(TimestampType(), zone) == time


def test_a_zone_is_put_into_a_type_wherever_it_has_times() -> None:
    """So it is done where PySpark takes no zone."""
    utc, kolkata = arrow_schema_of(NESTED), arrow_schema_of(NESTED, "Asia/Kolkata")
    assert [type_in_zone(field.type, "Asia/Kolkata") for field in utc] == [field.type for field in kolkata]
