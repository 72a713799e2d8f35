"""Storm's SingleJoinExample: the gender and the age of a person come on two streams, and are joined by id.

::

    genders -> gender ─┐ id
                       ├──► join ─► sink
    ages    -> age    ─┘ id

Storm's `SingleJoinBolt` keeps the halves in a TimeCacheMap, in memory: with its worker they are gone. Here
Spark's state store keeps them, and a restart from the checkpoint goes on with them. A half whose time is over
is failed by the bolt's tick, as by the map's callback in Storm, and its record is replayed.

    windhover up --config examples/topics.yaml
    python examples/single_join.py CHECKPOINT
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import spout
from acker.config.topics import Topics
from spout.local.spark_session import local_session

TIMEOUT_MS = 30_000
"""Storm's topology.message.timeout.secs."""


class Gender(spout.BasicBolt):
    """Reads a line, "7 female"; Storm's feeder spout has such tuples at once."""

    output = "id int, gender string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit both fields."""
        id_, gender = tuple["value"].decode().split()
        collector.emit((int(id_), gender))


class Age(spout.BasicBolt):
    """Reads a line, "7 27"."""

    output = "id int, age int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit both fields."""
        id_, age = tuple["value"].decode().split()
        collector.emit((int(id_), int(age)))


class SingleJoinBolt(spout.KeyedBolt):
    """Joins one tuple of each source by their key; of which source a field is, the tuples say."""

    def __init__(self, out_fields: str, num_sources: int, timeout_ms: int = TIMEOUT_MS) -> None:
        """Join tuples.

        Args:
            out_fields: the fields of the result, as Spark DDL.
            num_sources: how many streams the bolt reads.
            timeout_ms: how long halves wait for the others.
        """
        self.output = out_fields  # type: ignore[misc]  # set for each instance
        self.tick_every_ms = timeout_ms  # type: ignore[misc]
        self._out_fields = [field.split()[0] for field in out_fields.split(",")]
        self._num_sources = num_sources

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Hold the halves until one of each source is there; then emit them as one row, and ack them."""
        parts = {each.came_from: each for each in held}
        if len(parts) < len(held):
            raise RuntimeError("received the same side of a single join twice")
        if len(parts) == self._num_sources:
            values = {name: value for part in parts.values() for name, value in part.values.items()}
            collector.emit([values[name] for name in self._out_fields])
            collector.ack(*held)

    def tick(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Fail the halves whose time is over, as Storm's ExpireCallback."""
        for each in held:
            collector.fail(each, "the other half did not come")


def topology(topics: Topics, timeout_ms: int = TIMEOUT_MS) -> spout.TopologyBuilder:
    """Build the join."""
    builder = spout.TopologyBuilder()
    builder.set_spout("genders", topics, "genders", startingOffsets="earliest")
    builder.set_spout("ages", topics, "ages", startingOffsets="earliest")
    builder.set_bolt("gender", Gender()).shuffle_grouping("genders")
    builder.set_bolt("age", Age()).shuffle_grouping("ages")
    join = builder.set_bolt("join", SingleJoinBolt("gender string, age int", 2, timeout_ms))
    join.fields_grouping("gender", "id").fields_grouping("age", "id")
    return builder


def show(batch: DataFrame, _batch_id: int) -> None:
    """Print a micro-batch."""
    for row in batch.collect():
        print(f"{row.gender}, {row.age}", flush=True)


def main(checkpoint: str) -> None:
    """Join until the query is stopped."""
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    print(topology(topics).explain())
    with tempfile.TemporaryDirectory(prefix="single-join-") as folder:
        spark = local_session("single-join", Path(folder))
        running = topology(topics).submit(
            spark, sink=show, checkpoint=checkpoint, trigger={"processingTime": "500 milliseconds"}
        )
        running.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
