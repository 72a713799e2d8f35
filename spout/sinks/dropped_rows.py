"""What Spark counted of the batch that has just run: rows that a watermark dropped, and what moves it.

Spark's progress says it when the batch is over, which is too late for the batch's own records
on the ack topics. The nodes of the batch's plan have the same figures as soon as its tasks have
ended. They are read before a sink evaluates anything once more, since what runs twice counts
twice.

Source: docs/design/protocol.md, section 5.2 ("What is too late"); Spark's `StateStoreWriter` and
`EventTimeWatermarkExec`.
"""

from __future__ import annotations

from spout.publishing.watermarks import Dropped, WatermarkStats
from spout.spark.private import JavaObject, counts_of_plan


def dropped_rows(execution: JavaObject, hold_name_of_each_watermark: tuple[str, ...]) -> Dropped:
    """Return what the last batch of a query's execution has counted.

    Nothing, if it has run no batch.

    `hold_name_of_each_watermark` has for each watermark of the query the name of the `spout.hold`
    below it;
    without a watermark Spark is not asked.
    """
    batch = execution.lastExecution() if hold_name_of_each_watermark else None
    if batch is None:
        return Dropped()
    counts = counts_of_plan(batch.executedPlan())
    # Spark may have taken a watermark out: then nobody can tell which hold is below which
    hold_names = hold_name_of_each_watermark
    if len(hold_name_of_each_watermark) != len(counts.watermarks):
        hold_names = ("",) * len(counts.watermarks)
    stats: list[WatermarkStats] = []
    for count, hold in zip(counts.watermarks, hold_names, strict=True):
        if count is not None:
            stats.append(WatermarkStats(count.column, hold, count.delay_ms, count.highest_ms))
    return Dropped(counts.dropped, tuple(stats))
