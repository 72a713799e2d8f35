"""The names of the columns of rows: a store knows a column by its name alone."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from acker.errors import UsageError


def refuse_columns_of_one_name(rows: pa.Table) -> None:
    """Refuse rows of which two columns have one name, since one of them would be lost.

    Raises `UsageError`: two have one.
    """
    for name, count in Counter(rows.column_names).items():
        if count > 1:
            raise UsageError(
                f"{count} columns of the rows are called {name}, and a store knows a column by its"
                " name; rename them, by withColumnRenamed or an alias"
            )
