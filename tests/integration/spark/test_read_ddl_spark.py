"""An output that is read without Spark means what it means to Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spout.bolts.ddl_types import read_ddl
from spout.spark.arrow_types import arrow_schema_of

OUTPUTS = (
    "word string", " a\n int ,\n b STRING NOT NULL\n", "a: int, b: array<int>",
    "a tinyint, b byte, c smallint, d short, e integer, f bigint, g long, h real, i float, j double",
    "a boolean, b binary, c date, d void, e variant",
    "m map<string,array<decimal(3,1)>> not null comment 'x, y)'", "`a b` int, `c``d` int",
    "s struct<x int not null comment 'a,b', `y z`: string>", "struct<a: int, b: int>", "s struct<>",
    "i interval day to second, j interval hour, k interval minute to second, l interval day",
    "t timestamp without time zone, u timestamp, v timestamp_ntz, w timestamp_ltz",
    "d dec(5, 2), e decimal, f numeric(7), g decimal( 38 , 18 )",
    "timestamp timestamp_ntz, select int", "a map<string, struct<x: array<map<int, binary>>>>",
    'a int comment "not null"', "a array<struct<b: map<int, array<string>>>> not null",
)  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_is_read_as_spark_reads_it(output: str, spark: SparkSession) -> None:
    """D2117."""
    expected = StructType.fromDDL(output)
    assert isinstance(expected, StructType)
    # a comment is metadata, which no bolt sees
    assert arrow_schema_of(read_ddl(output)) == arrow_schema_of(expected)
    assert read_ddl(output).simpleString() == expected.simpleString()


def test_a_time_of_day_is_read_as_spark_reads_it(spark: SparkSession) -> None:
    """D2117: apart, since not every session allows the type."""
    assert read_ddl("t time(6), u time") == StructType.fromDDL("t time(6), u time")
