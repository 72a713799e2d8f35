"""Functions on columns of whole numbers, in Python, for Spark 4.0.

It has none that get Arrow arrays, so a function of pandas stands in. Pandas makes floats of a
column of whole numbers that has nulls, and a float does not have the last bits of a large number.
So Spark gives each column as two: one with 0 in place of the nulls, and one that says where they
are. What the function returns stays Arrow's on its way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DataType


def pandas_function(
    function: Callable[[Iterator[Any]], Iterator[pa.Array]], result_type: DataType
) -> Callable[..., Column]:
    """Return a function that computes one column from columns of whole numbers.

    `function` is Python, as for `arrow_function`.

    Pandas would make floats of a column with nulls. So each column is passed as two: one with 0 in
    place of its nulls, and one that has True where they are.
    """
    series_function = series_function_of(function)
    udf = pandas_udf(series_function, result_type)  # type: ignore[call-overload]
    columns_function = udf.asNondeterministic()

    def call_with_columns(*columns: Column) -> Column:
        values = [sql.coalesce(column, sql.lit(0)) for column in columns]
        null_flags = [column.isNull() for column in columns]
        result_column: Column = columns_function(*values, *null_flags)
        return result_column

    return call_with_columns


def series_function_of(
    function: Callable[[Iterator[Any]], Iterator[pa.Array]],
) -> Callable[[Iterator[tuple[pd.Series, ...]]], Iterator[pd.Series]]:
    """Return a function of pandas series that calls `function`, a function of Arrow arrays.

    The returned one gets parts of columns, each as a tuple of series: the values of all columns,
    then for all columns where they are null. It has the name of `function`, which plans show.
    """

    def run(columns: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        for array in function(map(_arrow_arrays_of, columns)):
            yield pd.Series(pd.arrays.ArrowExtensionArray(array))

    run.__name__ = function.__name__
    return run


def _arrow_arrays_of(series: tuple[pd.Series, ...]) -> pa.Array | tuple[pa.Array, ...]:
    """Return a part of columns as arrays: several as a tuple, one alone, as in `arrow_function`."""
    column_count = len(series) // 2
    arrays: list[pa.Array] = []
    for values, null_flags in zip(series[:column_count], series[column_count:], strict=True):
        arrays.append(pa.array(values.to_numpy(), mask=null_flags.to_numpy(np.bool_)))
    return tuple(arrays) if len(arrays) > 1 else arrays[0]
