"""A query on two executors that writes exactly once, one of which is killed; a program for a test to run.

python -m tests.support.bolts.exact_lost_executor_job TOPICS_YAML FOLDER KIND

KIND says where the bolt works: `narrow`, in the read tasks, or `shuffled`, behind a shuffle. In its first
batch an executor dies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import spout
from tests.support.bolts.lost_executor_job import PARTITIONS, Upper, cluster_of_two

NARROW = "narrow"
SHUFFLED = "shuffled"
DATABASE = "rows.sqlite"
READ_TASKS = 1
"""So few lines are read by one task."""


def main(config: str, out: str, kind: str) -> None:
    """Write what is there now, in two batches."""
    folder = Path(out)
    spark = cluster_of_two(folder)
    try:
        lines = spout.read_stream(
            spark, spout.load(config), "lines", startingOffsets="earliest", maxOffsetsPerTrigger=200
        )
        if kind == SHUFFLED:
            lines = lines.repartition(PARTITIONS, "offset")
        tasks = PARTITIONS if kind == SHUFFLED else READ_TASKS
        big = lines.transform(spout.bolt(Upper(out, tasks - 1), anchored=True))
        sink = spout.exact_sink(spout.SQLiteStore(folder / DATABASE, "rows"), big)
        writer = big.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{out}/checkpoint").start().awaitTermination()
    finally:
        # executors that outlive their driver keep its exit waiting
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
