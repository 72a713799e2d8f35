"""The reader of a streaming source as Spark 4.0 and 4.1 call it.

Spark asks for the next batch without saying where the last one has ended. So the reader remembers
it. In a new process Spark calls in this order:

| checkpoint | calls |
|---|---|
| fresh | `latestOffset`, `initialOffset`, `partitions(initial, end)` |
| its last batch, up to 7, is committed | `partitions(7, 7)`, `latestOffset` |
| its last batch, from 5 to 7, is not | `partitions(7, 7)`, `partitions(5, 7)`, `latestOffset` |

The first call of the second and third row is Spark's `setLatestSeenOffset`: what it returns is
dropped, and it begins no batch. It is only ever the first call, and a batch may look like it:
the first batch of all is empty if there was nothing to read, and then begins and ends at the
initial offset.

Source: Spark's `MicroBatchExecution.initializeExecution`, `AcceptsLatestSeenOffsetHandler` and
`PythonMicroBatchStream.setLatestSeenOffset`, 4.0.5 and 4.1.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spout.spark.planning_calls import Offset, PlanningCalls

NO_AVAILABLE_NOW: Final = (
    f"trigger(availableNow=True) needs Spark 4.2 or later, and this is {pyspark.__version__}:"
    " it has a Python source plan one batch alone, so the query would write all rows, and end"
    " before their records are done. Nothing was read. Leave the trigger out, and call"
    " spout.run_once(query), which ends the query when all is done; for a topology's file:"
    " windhover submit --once FILE"
)


class ReaderWithMemory(PlanningCalls, DataSourceStreamReader):
    """Passes Spark's calls on, with the end of the batch before as the start of the next one."""

    refused_triggers = MappingProxyType({"AvailableNowTrigger": NO_AVAILABLE_NOW})

    _end: Offset | None = None
    """Where the last batch ends; None: this process knows of none, the next one is the first."""

    _was_called = False
    """Whether Spark has called before, to plan or to run a batch."""

    # PySpark's stubs are those of a later version
    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802 - Spark's name
        """Plan the next batch and return its end; the end of the batch before: nothing is to do."""
        self._was_called = True
        start = self.initialOffset() if self._end is None else self._end
        self._end = self.plan_batch(start, self.rows_max)
        return self._end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two offsets, and remember its end.

        Empty: it is no batch, but Spark's first call, with the end of the checkpoint.
        """
        is_checkpoint_end = not self._was_called and start == end
        self._was_called = True
        self._end = end
        return () if is_checkpoint_end else self.tasks_of_batch(start, end)
