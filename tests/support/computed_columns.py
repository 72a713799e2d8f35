"""Columns and frames that stand for Spark's: a column is computed from a row, without a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from spout.tuples.anchor_columns import ANCHORS
from spout.tuples.columns import ANCHOR

HELD_TYPE = StructType([StructField(name, LongType()) for name in ("source", "position", "edge")])
ANCHORS_TYPE = ArrayType(HELD_TYPE)
Row = Sequence[Any]


class Computed:
    """Stands for a column of Spark: it is computed from a row."""

    def __init__(self, read: Callable[[Row], Any], name: str = "") -> None:
        """Compute a value by `read`."""
        self.read = read
        self.name = name

    def alias(self, name: str) -> Computed:
        """Have another name."""
        return Computed(self.read, name)

    def cast(self, kind: str) -> Computed:
        """Be of the type that anchors have."""
        assert kind == ANCHORS
        return self


def array(*columns: Computed) -> Computed:
    """Build an array of the values of columns."""
    return Computed(lambda row: [column.read(row) for column in columns])


def array_compact(column: Computed) -> Computed:
    """Leave the nulls of an array out."""
    return Computed(lambda row: [value for value in column.read(row) if value is not None])


def coalesce(column: Computed, other: Computed) -> Computed:
    """Put another column's value in the place of a null."""
    return Computed(lambda row: other.read(row) if column.read(row) is None else column.read(row))


def concat(*columns: Computed) -> Computed:
    """Join arrays; it is null if one of them is, as in Spark."""

    def read(row: Row) -> Any:
        arrays = [column.read(row) for column in columns]
        return None if None in arrays else [value for values in arrays for value in values]

    return Computed(read)


def col(name: str) -> Computed:
    """Read the column whose name was made of its place, as `toDF` has renamed it."""
    place = int(name.rsplit("_", 1)[1])
    return Computed(lambda row: row[place], name)


class Frame:
    """Stands for a DataFrame: columns, of which several may have one name, and rows."""

    def __init__(self, columns: Sequence[tuple[str, DataType]], rows: Sequence[Row] = ()) -> None:
        """Have these columns, each with its type."""
        self.schema = StructType([StructField(name, kind) for name, kind in columns])
        self.columns = [name for name, _ in columns]
        self.rows = rows

    def __getitem__(self, name: str) -> Computed:
        """Return the only column of a name; the place is that of the whole row of a join."""
        return Computed(lambda row: row[id(self)], name)

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - as Spark calls it
        """Rename all columns."""
        kinds = [field.dataType for field in self.schema.fields]
        return Frame(list(zip(names, kinds, strict=True)), self.rows)

    def select(self, *columns: Computed) -> Frame:
        """Compute other columns; their types are not needed."""
        rows = [[column.read(row) for column in columns] for row in self.rows]
        return Frame([(column.name, StringType()) for column in columns], rows)


COMPUTED_FUNCTIONS = SimpleNamespace(
    array=array, array_compact=array_compact, coalesce=coalesce, concat=concat, col=col
)
"""In place of `pyspark.sql.functions`, which builds nothing without a session."""


def frame(*kinds: DataType, rows: Sequence[Row] = ()) -> DataFrame:
    """Make a frame with a text, then columns of anchors of these types, each followed by a number."""
    columns: list[tuple[str, DataType]] = [("line", StringType())]
    for number, kind in enumerate(kinds):
        columns += [(ANCHOR, kind), (f"n{number}", LongType())]
    return cast("DataFrame", Frame(columns, rows))
