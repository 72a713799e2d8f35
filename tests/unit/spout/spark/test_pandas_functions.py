"""A function of Arrow arrays gets and returns every bit of large numbers and nulls through pandas."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa

from spout.spark.pandas_functions import series_function_of

LARGE = (1 << 62) + 1
"""A float has 53 bits: of this number the last one is lost there."""


def series_of(column: pa.Array) -> tuple[pd.Series, pd.Series]:
    """Return what Spark makes of a column: 0 in place of its nulls, and where they are."""
    return column.fill_null(0).to_pandas(), column.is_null().to_pandas()


def arrow_of(series: pd.Series) -> pa.Array:
    """Return what Spark sends back of a series."""
    return pa.Array.from_pandas(series, type=pa.int64())


def test_numbers_and_nulls_of_several_columns_arrive_and_come_back() -> None:
    first = pa.array([LARGE, None, -LARGE], pa.int64())
    second = pa.array([None, 5, LARGE + 1], pa.int64())
    seen: list[tuple[pa.Array, ...]] = []

    def function(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for arrays in columns:
            seen.append(arrays)
            yield arrays[0]

    run = series_function_of(function)
    assert run.__name__ == "function"
    (values, value_flags), (others, other_flags) = series_of(first), series_of(second)
    (returned,) = run(iter([(values, others, value_flags, other_flags)]))
    assert seen == [(first, second)]
    assert arrow_of(returned) == first


def test_one_column_comes_alone_and_an_empty_part_is_one() -> None:
    column = pa.array([3, 4], pa.int64())
    empty = column.slice(0, 0)
    run = series_function_of(lambda columns: columns)
    assert [arrow_of(part) for part in run(iter([series_of(column), series_of(empty)]))] == [column, empty]
