"""The class from which the reader of our streaming source derives: for this version of Spark."""

from __future__ import annotations

from spout.spark.versions import SPARK, SparkVersion

if SparkVersion(4, 2) <= SPARK:
    from spout.spark.reader_with_start import ReaderWithStart as PlanningReader
else:
    from spout.spark.reader_with_memory import (  # type: ignore[assignment]
        ReaderWithMemory as PlanningReader,
    )

__all__ = ["PlanningReader"]
