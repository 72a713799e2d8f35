"""How tuples find the task of the next bolt, as Storm's groupings.

The number of tasks is fixed. Otherwise Spark's adaptive execution would coalesce them, and
their number would depend on the data.

Source: docs/design/protocol.md, section 5.2; Storm's ``fieldsGrouping`` and ``shuffleGrouping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from acker.errors import UsageError


@dataclass(frozen=True, slots=True)
class Grouping:
    """A shuffle. `fields` empty: rows are distributed evenly; `partitions` None: one for each core.

    `spout.fields` and `spout.shuffle` create it, and it works on any DataFrame:

    >>> words = spark.createDataFrame([("hawk",), ("waits",)], "word string")
    >>> spout.Grouping(("word",), partitions=4).apply(words).rdd.getNumPartitions()
    4
    """

    fields: tuple[str, ...] = ()
    partitions: int | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` if `partitions` is no whole number from 1."""
        if self.partitions is None:
            return
        if type(self.partitions) is not int or self.partitions < 1:  # not a bool either
            raise UsageError(
                f"a grouping over {self.partitions!r} partitions: a whole number of them is"
                " needed, at least 1"
            )

    def apply(self, rows: DataFrame) -> DataFrame:
        """Shuffle rows; `UsageError`: the rows have no column of the name of a field."""
        self.check(rows.columns)
        return rows.repartition(self.tasks(rows.sparkSession), *self.fields)

    def check(self, names: Sequence[str]) -> None:
        """Raise `UsageError` if a field is not among the names of columns."""
        unknown_fields = [name for name in self.fields if name not in names]
        if unknown_fields:
            raise UsageError(
                f"grouping by {', '.join(unknown_fields)}: the bolt before emits {', '.join(names)}"
            )

    def tasks(self, session: SparkSession) -> int:
        """Return how many tasks the tuples are distributed over."""
        return self.partitions or session.sparkContext.defaultParallelism


def fields(*names: str, partitions: int | None = None) -> Grouping:
    """Group by fields: tuples with equal values go to the same task.

    >>> spout.fields("word", partitions=4)
    Grouping(fields=('word',), partitions=4)
    >>> count = spout.bolt(SplitSentence(), grouping=spout.fields("value"))

    Args:
        names: at least one field of the bolt before.
        partitions: how many tasks share the values, at least 1; None: one for each core.

    Raises:
        UsageError: there is no name, a name is empty or no text, or `partitions` is no whole
            number from 1.
    """
    if not names:
        raise UsageError('fields() needs the name of a field: fields("word"); shuffle() takes none')
    for name in names:
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"fields() takes the names one by one: {name!r} is none; where they are in a"
                " list, names, say fields(*names)"
            )
    return Grouping(names, partitions)


def shuffle(partitions: int | None = None) -> Grouping:
    """Distribute tuples evenly over `partitions` tasks, at least 1; None: one for each core.

    >>> spout.shuffle(8)
    Grouping(fields=(), partitions=8)
    >>> spout.shuffle(0)
    Traceback (most recent call last):
    ...
    acker.errors.UsageError: a grouping over 0 partitions: a whole number of them is needed, ...

    Raises:
        UsageError: `partitions` is no whole number from 1.
    """
    return Grouping((), partitions)
