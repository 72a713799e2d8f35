"""Functions on columns, in Python, which get and return Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType

T = TypeVar("T", pa.Array, tuple[pa.Array, ...])


def arrow_function(
    function: Callable[[Iterator[T]], Iterator[pa.Array]], result_type: DataType
) -> Callable[..., Column]:
    """Return a function that makes one column of columns, by `function` in Python.

    Spark calls `function` once for each task, and passes it each row exactly once, since it is
    marked as not deterministic. Plans show it under its name.

    Args:
        function: gets the columns of a task in parts: a part is an array, or for several columns
            a tuple of arrays; Spark derives that from its type hints. Yields an array for each.
        result_type: the type of the column. It is no text, since Spark calls the JVM to parse one.
    """
    # the type stub of `arrow_udf` demands an argument that PySpark itself derives
    udf = arrow_udf(function, result_type)  # type: ignore[call-overload]
    columns_function: Callable[..., Column] = udf.asNondeterministic()
    return columns_function
