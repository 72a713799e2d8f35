"""The reader of a streaming source as Spark 4.2 and later call it.

Spark tells where the checkpoint stands with each question for the next batch, and says before
the first one if the query is to end at the present ends (``availableNow``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spout.spark.planning_calls import Offset, PlanningCalls


class ReaderWithStart(PlanningCalls, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Passes Spark's calls on."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch."""
        rows_max = self.rows_max
        if rows_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read the inputs and their replays up to the ends that they have now."""
        self.stop_at_ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Plan the next batch and return its end; `start` itself when there is nothing to do."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.plan_batch(start, rows_max)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two offsets.

        Spark's first call may be this one: for a batch that the process before had planned.
        """
        return self.tasks_of_batch(start, end)
