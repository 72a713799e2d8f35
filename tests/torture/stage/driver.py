"""The Spark driver as a process: ``python -m tests.torture.stage.driver CONFIG FOLDER CHECKPOINT [MASTER]``.

It runs the topology over the input until it is killed. When its query fails it ends with a trace, and
whoever started it starts it again, as a cluster would.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

import spout
from spout.local.spark_session import local_session
from spout.runtime import logs
from tests.torture.stage.spark_cluster import EXECUTOR_MEMORY
from tests.torture.stage.strangers import SLEEPING
from tests.torture.stage.topology import Keep, Split
from tests.torture.writes import WriteTable

INPUT: Final = "torture"
BATCH_RECORDS_MAX: Final = 5_000
TRIGGER: Final = "1 second"
LOOK_SECONDS: Final = 1
LISTENER_LOOK_SECONDS: Final = 0.1
CORES: Final = 2
ON_A_CLUSTER: Final = {
    "spark.cores.max": str(CORES),
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.pyspark.python": sys.executable,
    # a stage has two tasks: one that is done is half of them
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
}
"""Settings of a driver whose tasks run on executors: a second task soon overtakes a stopped one."""


def main(arguments: Sequence[str]) -> None:
    """Run the query; say that it works when a first micro-batch has ended.

    Args:
        arguments: topics.yaml, the folder of the run, the folder of the checkpoint; `spark.master` where it
            is not this process.
    """
    config, folder, checkpoint = (Path(argument) for argument in arguments[:3])
    logs.configure()
    query = start_query(config, folder, checkpoint, *arguments[3:])
    while query.isActive and query.lastProgress is None:
        query.awaitTermination(LOOK_SECONDS)
    if query.isActive:
        logs.log_event("driver.ready", checkpoint=str(checkpoint))
    query.awaitTermination()


class SleepyListener(StreamingQueryListener):
    """Somebody else's listener: it returns from no event while the run's folder has `SLEEPING`."""

    def __init__(self, folder: Path) -> None:
        """Keep the file that says to sleep."""
        self._sleeping = folder / SLEEPING

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: `start` waits for this one."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Sleep."""
        self._sleep()

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Sleep."""
        self._sleep()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def _sleep(self) -> None:
        while self._sleeping.exists():
            time.sleep(LISTENER_LOOK_SECONDS)


def start_query(config: Path, folder: Path, checkpoint: Path, master: str | None = None) -> StreamingQuery:
    """Start Spark and the query; the checkpoint's session goes on, a fresh one takes the group over."""
    topics = spout.load(config, os.environ)
    # on the small disk too, so that blocks and shuffles find it full as checkpoints do
    further = {} if master is None else {"spark.master": master, **ON_A_CLUSTER}
    spark = local_session("windhover-torture", checkpoint.parent / "spark", cores=CORES, further=further)
    spark.streams.addListener(SleepyListener(folder))
    table = WriteTable(folder / "writes.sqlite")
    lines = spout.read_stream(
        spark, topics, INPUT, startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_RECORDS_MAX,
        # a frozen driver is alive, and loses its group all the same; also where a first start got no batch
        take_over=not any(checkpoint.glob("offsets/[0-9]*")),
    )  # fmt: skip
    rows = lines.transform(spout.bolt(Split(), name="split")).transform(
        spout.bolt(Keep(), name="keep", grouping=spout.fields("word"))
    )

    def upsert(batch: DataFrame, _batch_id: int) -> None:
        columns = batch.select("origin", "ordinal", "attempt", "word").toArrow().columns
        table.upsert(zip(*(column.to_pylist() for column in columns), strict=True))

    return (
        rows.writeStream.foreachBatch(spout.sink(upsert))
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=TRIGGER)
        .start()
    )


if __name__ == "__main__":
    main(sys.argv[1:])
