"""A query that writes exactly once into a store and is killed at a point; a program for a test to run.

python -m tests.support.bolts.exact_sink_job TOPICS_YAML FOLDER CHECKPOINT POINT STORE

STORE is `sqlite`, `kafka`, or the connection string of a PostgreSQL. It reads what is there now, and ends;
with a POINT it kills itself there, the second time that it comes by, or stops, or sleeps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

import spout
from acker.config.topics import Topics
from spout.exactly_once.store import BatchKey, Store, StoreGrant
from spout.local.spark_session import local_session
from spout.sinks.exact_sink import exact_sink
from tests.support.bolts.unlike_bolts import Unlike

DATABASE = "rows.sqlite"
TABLE = "rows"
COLUMNS = "line TEXT, evaluation TEXT, ordinal INTEGER, rows INTEGER"
INPUT_OF_ROWS = "rows"
"""The input whose topic has the rows, if the store is in Kafka."""

SQLITE = "sqlite"
KAFKA = "kafka"


class Point(StrEnum):
    """Where something happens to the driver: it is killed, except at the first three."""

    NOWHERE = "nowhere"
    STOPPED = "stopped"
    """It stops itself when a batch is settled, and its commit begins when somebody lets it go on."""
    ASLEEP = "asleep"
    """It sleeps there, for longer than a root of the test may be pending, and goes on."""
    STORE_OPENED = "store-opened"
    SETTLED = "settled"
    COMMITTED = "committed"
    PUBLISHED = "published"


ASLEEP_S = 12.0


class Killer:
    """Kills this process at a point; or stops it, or lets it sleep."""

    def __init__(self, point: Point) -> None:
        self._point = point
        # the store is opened once a start; of the batches some are to end before
        self._passes_left = 0 if point is Point.STORE_OPENED else 1

    def come_by(self, point: Point) -> None:
        """Kill the process, if this is the point and it was passed before."""
        if point is not self._point:
            return
        if not self._passes_left:
            self._strike()
        self._passes_left -= 1

    def _strike(self) -> None:
        match self._point:
            case Point.STOPPED:
                # to this thread: one that goes to the process may find the thread in the store already
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case Point.ASLEEP:
                threading.Event().wait(ASLEEP_S)
            case _:
                os.kill(os.getpid(), signal.SIGKILL)


class KilledStore:
    """A store whose process may be killed before and after each call."""

    def __init__(self, store: Store, killer: Killer) -> None:
        self._store = store
        self._killer = killer

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Open the store, and perhaps nothing more."""
        grant = self._store.open(group, epoch_min)
        self._killer.come_by(Point.STORE_OPENED)
        return grant

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Commit, and perhaps do nothing before or after it."""
        for point in (Point.STOPPED, Point.ASLEEP, Point.SETTLED):
            self._killer.come_by(point)
        self._store.commit(key, rows, publication)
        self._killer.come_by(Point.COMMITTED)


def store_of(kind: str, topics: Topics, folder: Path) -> Store:
    """Return the store that a STORE names."""
    if kind == SQLITE:
        return spout.SQLiteStore(folder / DATABASE, TABLE)
    if kind == KAFKA:
        return spout.KafkaStore(topics, topics.input(INPUT_OF_ROWS).topic, key="line", value="json")
    return spout.PostgresStore(kind, TABLE)


def main(config: str, folder: str, checkpoint: str, point: str, kind: str) -> None:
    """Write what is there now."""
    topics = spout.load(config)
    spark = local_session("exact-sink", Path(folder) / "spark", cores=2)
    lines = spout.read_stream(spark, topics, "lines", startingOffsets="earliest", maxOffsetsPerTrigger=30)
    rows = lines.transform(spout.bolt(Unlike(), name="unlike", anchored=True))
    killer = Killer(Point(point))
    store = KilledStore(store_of(kind, topics, Path(folder)), killer)
    sink = exact_sink(store, rows)

    def write(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        killer.come_by(Point.PUBLISHED)

    writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
