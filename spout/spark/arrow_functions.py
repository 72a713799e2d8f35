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
    function: Callable[[Iterator[T]], Iterator[pa.Array]], returned: DataType
) -> Callable[..., Column]:
    """Return a function of columns that Spark calls once for each task, with the columns' parts.

    Plans show it under its name. Spark calls it exactly once for each row, as it does with what
    is not deterministic.

    Args:
        function: gets the parts, each with one array, or a tuple of arrays for several columns;
            Spark derives that from its type hints.
        returned: the type of the column that it returns. As a type, no text: to read one Spark
            calls the JVM.
    """
    # the stub requires the kind
    udf = arrow_udf(function, returned)  # type: ignore[call-overload]
    columns_function: Callable[..., Column] = udf.asNondeterministic()
    return columns_function
