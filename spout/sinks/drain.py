"""How a sink finds out that its function has read all rows that Spark shuffled behind the last bolt.

Behind a shuffle, a function that takes one row leaves the same reports of bolts as one that
writes all of them. So the rows pass one more operator, the drain, whose tasks report the
partitions that were read to their end. There are two drains:

- *Ends.* Behind the rows of each partition comes its end. That is a partition without rows, which
  Spark begins when a task asks for more than the last row. It runs in Python and reports its
  number; the rows themselves stay in the JVM.
- *The filter* keeps every row, and sends the number of the row's partition through Python. A
  partition without rows reports nothing. It is used where Spark cannot put one partition behind
  another (before 4.1, and in builds of it without these classes), where the sink does not get
  the rows as foreachBatch gives them or somebody has persisted them, and on a cluster where
  executors have the state of the rows: Spark forgets behind an end which ones these are.

In both, a partition has the number that it has in the batch, since a function may coalesce, join
and repeat the rows in other tasks. Partitions that nobody reported are checked for rows. Reports
of several jobs count together.

The reports go the way of the bolts' reports: through the ledger, an accumulator of Spark, under a
key that no query has.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType

from spout.publishing.report_accumulator import Batch, ReportLedger, SentReport, Value
from spout.spark.column_functions import column_function
from spout.spark.private import (
    are_kept,
    are_of_batch,
    continue_partitions,
    partition_count_of,
    prefer_executors,
)
from spout.spark.versions import CONTINUES_PARTITIONS

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

_LOGGER = logging.getLogger("windhover.spout")

PARTITION: Final = "_windhover_partition"
_BATCH_PREFIX: Final = "drain of "


class Unread(NamedTuple):
    """How many partitions of a batch have rows that were not read to their end, and how many it has."""

    unread_count: int
    partition_count: int


class Drain:
    """Follows one run of a sink's function over one batch."""

    def __init__(self, ledger: ReportLedger, query: str, batch: int) -> None:
        """Begin with nothing read; what an earlier run of the same batch read does not count.

        Args:
            ledger: gets the reports of the drain's tasks, beside those of bolts.
            query: the query's id.
            batch: the micro-batch's id.
        """
        self._ledger = ledger
        # a key that no batch of bolts has in the ledger
        self._ledger_batch: Batch = (_BATCH_PREFIX + query, batch)
        self._run_id = uuid.uuid4().hex

    def with_drain(self, rows: DataFrame) -> DataFrame:
        """Return the same rows, with a drain behind them."""
        if CONTINUES_PARTITIONS and are_of_batch(rows) and not are_kept(rows):
            try:
                if not prefer_executors(rows):
                    return self._with_ends(rows)
            except Py4JError as error:
                # classes of Spark's own that another build of it may not have
                _LOGGER.debug("ends_refused %s: the rows go through the filter", error)
        accumulator = self._ledger.accumulator
        report_partition = partition_reporter(accumulator, self._ledger_batch, self._run_id)
        # Spark neither merges it with other conditions nor moves it
        keeps_row = column_function(report_partition, BooleanType())
        # In a column, which has the batch's partition; as an argument of the function it would
        # be the task's.
        numbered = rows.withColumn(PARTITION, sql.spark_partition_id())
        return numbered.filter(keeps_row(sql.col(PARTITION))).drop(PARTITION)

    def _with_ends(self, rows: DataFrame) -> DataFrame:
        """Return rows of foreachBatch, with an end behind each of their partitions."""
        partition_count = partition_count_of(rows)
        if not partition_count:
            # adaptive execution may leave no partition of a batch; then there is nothing to end
            return rows
        # rows with a number: that in partition 0 is 0, that in partition 1 is 1, and so on
        partition_numbers = rows.sparkSession.range(0, partition_count, 1, partition_count)
        report_ends = end_reporter(self._ledger.accumulator, self._ledger_batch, self._run_id)
        ends = partition_numbers.mapInArrow(report_ends, partition_numbers.schema)
        return continue_partitions(rows, ends)

    @property
    def ended_partitions(self) -> frozenset[int]:
        """The partitions that this run of the function has read to their end."""
        reports_by_task = self._ledger.accumulator.value.get(self._ledger_batch, {})
        # copied: Spark's thread adds to it meanwhile
        return partitions_ended_in(list(reports_by_task.values()), self._run_id)

    def find_unread(self, rows: DataFrame) -> Unread:
        """Return how many partitions of a batch were not read to their end; run a job if that is
        not clear.

        A function that read fewer columns has read them.
        """
        partition_count = partition_count_of(rows)
        unreported_partitions = sorted(set(range(partition_count)) - self.ended_partitions)
        if not unreported_partitions:
            return Unread(0, partition_count)
        # a partition without rows reports nothing: one that has a row was not read
        constant_rows = rows.select(sql.lit(1)).rdd
        have_rows = constant_rows.context.runJob(
            constant_rows, lambda rows: [any(True for _ in rows)], unreported_partitions
        )
        return Unread(sum(have_rows), partition_count)

    def forget(self) -> None:
        """Forget what was reported of the batch."""
        self._ledger.accumulator.value.pop(self._ledger_batch, None)


def partitions_ended_in(reports: Iterable[SentReport], run_id: str) -> frozenset[int]:
    """Return the partitions that tasks of one run of a sink's function have read to their end."""
    return frozenset(int(partition) for reporter_id, partition in reports if reporter_id == run_id)


def end_reporter(
    accumulator: Accumulator[Value], ledger_batch: Batch, run_id: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs as the end of each partition.

    It reports that the partition was read to its end, and yields no rows. It gets one row with the
    partition's number. Spark begins the end of a partition only if a task has taken the last row
    before it. The report goes to the accumulator, as one of this run.
    """

    def report_ends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                accumulator.add(_report_of_end(partition, ledger_batch, run_id))
        yield from ()  # a generator without rows

    return report_ends


def partition_reporter(
    accumulator: Accumulator[Value], ledger_batch: Batch, run_id: str
) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return the condition of the drain's filter: it keeps each row of a task.

    When a task's last row was taken, it adds a report to the accumulator, that this run has read
    the rows' partition to its end.
    """

    def keep_all(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Yield True for each row of a task; behind its last row, report its partition."""
        # each column has the partition's number in each row; None: no row has come
        partition: int | None = None
        for column in columns:
            if len(column):
                partition = column[0].as_py()
            yield pa.repeat(pa.scalar(value=True), len(column))
        if partition is not None:
            accumulator.add(_report_of_end(partition, ledger_batch, run_id))

    return keep_all


def _report_of_end(partition: int, ledger_batch: Batch, run_id: str) -> Value:
    """Return the report that a run has read a partition of a batch to its end."""
    # in the place of the stream's id the run, in that of the report the partition
    report: SentReport = run_id, str(partition).encode()
    return {ledger_batch: {uuid.uuid4().hex: report}}
