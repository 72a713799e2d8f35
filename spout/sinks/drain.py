"""How a sink learns that its function has read all rows that Spark shuffled behind the last bolt.

What bolts report says that a batch was evaluated to its end, as long as they work in the stage that the
sink's function runs. Behind a shuffle they do not: Spark has run them for the shuffle, on its own account or
for the first partition that the function asked for, and a function that takes one row leaves the same reports
as one that writes all of them. So its rows go through one operator more, the drain, whose tasks report the
partitions that were read to their end.

The number of a partition goes with the rows, as Spark counts those of the batch: a function may coalesce,
join and repeat what it is given, and then the number of its task says nothing. A partition without rows
cannot tell its number, so of those that nobody reported it is looked up whether they hold any. What was
reported in several jobs counts together, since each of them evaluates the same rows.

Only the number goes through Python, as a filter that keeps every row; the rows stay in the JVM.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from spout.publishing.ledger import Added, Batch, Ledger, Value

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

PARTITION: Final = "_windhover_partition"
_LANE: Final = "drain of "


class Unread(NamedTuple):
    """How many partitions of a batch hold rows that were not read to their end, and of how many."""

    partitions: int
    of: int


class Drain:
    """Follows one run of a sink's function over one batch."""

    def __init__(self, ledger: Ledger, query: str, batch: int) -> None:
        """Begin with nothing read; what an earlier run of the same batch has read does not count."""
        self._ledger = ledger
        self._batch: Batch = (_LANE + query, batch)
        self._run = uuid.uuid4().hex

    def through(self, rows: DataFrame) -> DataFrame:
        """Return the same rows, followed."""
        # Spark reads the kind of the function off its hints
        condition = follower(self._ledger.accumulator, self._batch, self._run)
        followed = arrow_udf(condition, "boolean")  # type: ignore[call-overload]  # the stub wants the kind
        # not deterministic: else Spark would merge it with other conditions, or move it about
        keeps = followed.asNondeterministic()
        # in a column, which counts the batch's partitions; a function's argument would count the tasks
        numbered = rows.withColumn(PARTITION, sql.spark_partition_id())
        return numbered.filter(keeps(sql.col(PARTITION))).drop(PARTITION)

    @property
    def ended(self) -> frozenset[int]:
        """The partitions that were read to their end, as far as they hold rows."""
        return ended(list(self._ledger.accumulator.value.get(self._batch, {}).values()), self._run)

    def unread(self, rows: DataFrame) -> Unread:
        """Tell what of a batch was not read to its end.

        Args:
            rows: those that `through` was given.
        """
        evaluated = rows.select(sql.lit(1)).rdd
        count = evaluated.getNumPartitions()
        left = sorted(set(range(count)) - self.ended)
        held = evaluated.context.runJob(evaluated, _holds_rows, left) if left else []
        return Unread(sum(held), count)

    def forget(self) -> None:
        """Let go of what was reported."""
        self._ledger.accumulator.value.pop(self._batch, None)


def ended(added: Iterable[Added], run: str) -> frozenset[int]:
    """Return the partitions that tasks of a run have reported."""
    return frozenset(partition for _, _, partition, of, _ in added if of == run)


def follower(
    accumulator: Accumulator[Value], batch: Batch, run: str
) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Make the condition: true for each row, and reports its partition when the last one was taken."""

    def drained(numbers: Iterator[pa.Array]) -> Iterator[pa.Array]:
        partition: int | None = None
        for column in numbers:
            if len(column):
                partition = column[0].as_py()
            yield pa.repeat(pa.scalar(value=True), len(column))
        if partition is not None:
            accumulator.add({batch: {uuid.uuid4().hex: (0, 0, partition, run, b"")}})

    return drained


def _holds_rows(rows: Iterable[object]) -> list[bool]:
    """Tell whether a partition holds a row."""
    return [any(True for _ in rows)]
