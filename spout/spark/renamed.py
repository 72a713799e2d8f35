"""What Spark has renamed, moved or added from one version to the next."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, types
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType

from acker.errors import UsageError
from spout.spark.hashed_partitions import hashed_to_partitions
from spout.spark.private import JavaObject
from spout.spark.versions import SPARK, SparkVersion

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_PACKAGE: Final = f"{_STREAMING}.checkpointing" if SparkVersion(4, 1) <= SPARK else _STREAMING

CHECKPOINT_FILES: Final = f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"
"""The class that keeps a checkpoint on a local disk, without asking Hadoop for each file."""


def to_partitions(rows: DataFrame, partition_count: int, partition_column: str) -> DataFrame:
    """Return rows after a shuffle into so many partitions.

    The column of the name `partition_column` has the number of the partition to which a row goes.
    """
    if SparkVersion(4, 1) <= SPARK:
        return rows.repartitionById(partition_count, sql.col(partition_column))
    return hashed_to_partitions(rows, partition_count, partition_column)


def time_type(*precision: int) -> DataType:
    """Return the type of a time of day.

    `precision`: how many digits it has behind the seconds; without it Spark's default. Raises
    `UsageError`: this version of Spark has no such type.
    """
    if SparkVersion(4, 1) > SPARK:
        raise UsageError(
            "the type time needs Spark 4.1 or later, and PySpark here is of 4.0: declare a string,"
            " or a bigint of microseconds"
        )
    return types.TimeType(*precision)


def batch_metadata(entry: JavaObject) -> JavaObject:
    """Return the watermark and the start of a batch, from its entry in the offset log.

    It is an `Option` of Scala, empty where the entry has none.
    """
    return entry.metadataOpt() if SparkVersion(4, 2) <= SPARK else entry.metadata()
