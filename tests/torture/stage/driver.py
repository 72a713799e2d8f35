"""The Spark driver as a process; its arguments are topics.yaml, the run's folder, a checkpoint, and a sink.

    python -m tests.torture.stage.driver CONFIG FOLDER CHECKPOINT SINK [MASTER]

It runs the topology over the input until it is killed. When its query fails it ends with a trace, and
whoever started it starts it again, as a cluster would. SINK is `upsert`, or a store in which it writes
exactly once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

import spout
from spout.local.spark_session import local_session
from spout.runtime import logs
from tests.torture.exact.bolts import UnlikeKeep, UnlikeSplit
from tests.torture.exact.struck_store import Order, StruckStore, store_of
from tests.torture.stage.spark_cluster import EXECUTOR_MEMORY
from tests.torture.stage.strangers import SLEEPING
from tests.torture.stage.topology import Keep, Split
from tests.torture.writes import WriteTable

INPUT: Final = "torture"
UPSERT: Final = "upsert"
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

WriteBatch = Callable[[DataFrame, int], None]
"""What `foreachBatch` calls with the rows of a batch, and its number."""


def main(arguments: Sequence[str]) -> None:
    """Run the query; say that it works when a first micro-batch has ended.

    Args:
        arguments: topics.yaml, the folder of the run, the folder of the checkpoint, the sink; `spark.master`
            where it is not this process.
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


def start_query(
    config: Path, folder: Path, checkpoint: Path, sink: str, master: str | None = None
) -> StreamingQuery:
    """Start Spark and the query; the checkpoint's session goes on, a fresh one takes the group over."""
    topics = spout.load(config, os.environ)
    # on the small disk too, so that blocks and shuffles find it full as checkpoints do
    further = {} if master is None else {"spark.master": master, **ON_A_CLUSTER}
    spark = local_session("windhover-torture", checkpoint.parent / "spark", cores=CORES, further=further)
    spark.streams.addListener(SleepyListener(folder))
    lines = spout.read_stream(
        spark, topics, INPUT, startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_RECORDS_MAX,
        # a frozen driver is alive, and loses its group all the same; also where a first start got no batch
        take_over=not any(checkpoint.glob("offsets/[0-9]*")),
    )  # fmt: skip
    if sink == UPSERT:
        rows, write = _upserted(lines, folder)
    else:
        rows, write = _exactly_once(lines, StruckStore(store_of(sink, topics, folder), Order(folder)))
    return (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def _upserted(lines: DataFrame, folder: Path) -> tuple[DataFrame, WriteBatch]:
    """Return the rows of the topology, and what writes them into the table of all that was written."""
    table = WriteTable(folder / "writes.sqlite")
    rows = lines.transform(spout.bolt(Split(), name="split")).transform(
        spout.bolt(Keep(), name="keep", grouping=spout.fields("word"))
    )

    def upsert(batch: DataFrame, _batch_id: int) -> None:
        columns = batch.select("origin", "ordinal", "attempt", "word").toArrow().columns
        table.upsert(zip(*(column.to_pylist() for column in columns), strict=True))

    return rows, spout.sink(upsert)


def _exactly_once(lines: DataFrame, store: StruckStore) -> tuple[DataFrame, WriteBatch]:
    """Return the rows of bolts that differ at each evaluation, and what writes them exactly once."""
    split = spout.bolt(UnlikeSplit(), name="split")
    keep = spout.bolt(UnlikeKeep(), name="keep", grouping=spout.fields("ordinal"), anchored=True)
    rows = lines.transform(split).transform(keep)
    return rows, spout.exact_sink(store, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
