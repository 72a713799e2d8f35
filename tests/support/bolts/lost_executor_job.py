"""A query on two executors, one of which is killed in each batch; a program for a test to run.

python -m tests.support.bolts.lost_executor_job TOPICS_YAML FOLDER

The executors are processes of their own (Spark's local-cluster). What is killed takes its shuffle files with
it, so that Spark runs the tasks again that wrote them, and of the stage behind those that have not finished.
In the first batch that is the stage in which the bolt works; in the second one it is the stage behind it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import spout
from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.local.spark_session import home_without_zip
from spout.tuples.tuple import Tuple

PARTITIONS = 4
"""Twice as many as executors with a core each: when the last one begins, another has ended."""


def kill_executor(mark: Path, task: int = PARTITIONS - 1) -> None:
    """Kill the executor whose worker this is, in the task of a number, if nobody has left the mark."""
    context = TaskContext.get()
    if context is None or context.partitionId() != task or mark.exists():
        return
    mark.touch()
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)


class Upper(BasicBolt):
    """Make lines big; the line ``first`` kills its executor, once."""

    output = "line string"

    def __init__(self, folder: str, task: int = PARTITIONS - 1) -> None:
        """Leave the mark in a folder; the number is that of the task in which it works."""
        self._folder = Path(folder)
        self._task = task

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the line."""
        if tuple["value"].startswith(b"first"):
            kill_executor(self._folder / "killed-in-the-bolt", self._task)
        collector.emit((tuple["value"].decode().upper(),))


def cluster_of_two(folder: Path) -> SparkSession:
    """Start a driver with two executors that work in a folder."""
    # executors work in a folder of SPARK_HOME, so it is one of the test's own
    home = home_without_zip(Path(pyspark.__file__).parent, os.environ, folder)
    os.environ |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,512]").appName("lost-executor")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(config: str, out: str) -> None:
    """Read what is there now, in two batches."""
    folder = Path(out)
    spark = cluster_of_two(folder)
    lines = spout.read_stream(
        spark, spout.load(config), "lines", startingOffsets="earliest", maxOffsetsPerTrigger=200
    )
    big = lines.repartition(PARTITIONS, "offset").transform(spout.bolt(Upper(out)))

    def write(rows: DataFrame, batch: int) -> None:
        def killing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if batch:
                kill_executor(folder / "killed-behind-the-bolt")
            yield from batches

        rows = rows.repartition(PARTITIONS, "line").mapInArrow(killing, rows.schema)
        rows.write.mode("append").parquet(f"{out}/rows")

    writer = big.writeStream.foreachBatch(spout.sink(write)).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{out}/checkpoint").start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
