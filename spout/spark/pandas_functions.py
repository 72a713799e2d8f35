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
    function: Callable[[Iterator[Any]], Iterator[pa.Array]], returned: DataType
) -> Callable[..., Column]:
    """Return a function of columns of whole numbers; as `arrow_function`."""
    run = over_series(function)
    columns_function = pandas_udf(run, returned).asNondeterministic()  # type: ignore[call-overload]

    def call(*columns: Column) -> Column:
        values = [sql.coalesce(column, sql.lit(0)) for column in columns]
        flags = [column.isNull() for column in columns]
        called: Column = columns_function(*values, *flags)
        return called

    return call


def over_series(
    function: Callable[[Iterator[Any]], Iterator[pa.Array]],
) -> Callable[[Iterator[tuple[pd.Series, ...]]], Iterator[pd.Series]]:
    """Return what Spark calls in place of a function of Arrow arrays; plans show the name of that.

    It gets parts of columns: of each column the values, then of each column where it is null.
    """

    def run(columns: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        for array in function(map(_numbers_of, columns)):
            yield pd.Series(pd.arrays.ArrowExtensionArray(array))

    run.__name__ = function.__name__
    return run


def _numbers_of(series: tuple[pd.Series, ...]) -> pa.Array | tuple[pa.Array, ...]:
    """Return the columns of a part; one comes alone, several as a tuple, as in `arrow_function`."""
    half = len(series) // 2
    arrays: list[pa.Array] = []
    for values, flags in zip(series[:half], series[half:], strict=True):
        arrays.append(pa.array(values.to_numpy(), mask=flags.to_numpy(np.bool_)))
    return tuple(arrays) if len(arrays) > 1 else arrays[0]
