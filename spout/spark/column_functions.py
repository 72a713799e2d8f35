"""Functions on columns, in Python, which get and return Arrow arrays: for this version of Spark."""

from __future__ import annotations

from spout.spark.versions import SPARK, SparkVersion

if SparkVersion(4, 1) <= SPARK:
    from spout.spark.arrow_functions import arrow_function as column_function
else:
    from spout.spark.pandas_functions import pandas_function as column_function

__all__ = ["column_function"]
