"""A diamond: each line goes two ways, and what both make of it is joined again.

::

    lines ─┬─► length ─┬─► join ─► sink
           └─► words ──┘

Both ways start at one tuple, so the line is acked only when the join has both halves, emitted them together
(anchored on both) and acked them. Lines are told apart by where they began, so both halves come to one task.

    windhover up --port 9092
    python examples/diamond_join.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

import spout
from acker.config.topics import Topics
from spout import BasicBolt, BasicCollector, Bolt, BoltContext, OutputCollector, TopologyBuilder, Tuple
from spout.local.spark_session import local_session


class Length(BasicBolt):
    """Measures a line."""

    output = "origin string, length int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit how long the line is."""
        collector.emit((tuple.message_id.origin, len(tuple["value"].decode())))


class Words(BasicBolt):
    """Counts the words of a line; a line without any is failed."""

    output = "origin string, words int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit how many words the line has."""
        words = len(tuple["value"].decode().split())
        if not words:
            raise ValueError("a line without words")
        collector.emit((tuple.message_id.origin, words))


class Join(Bolt):
    """Waits for both halves of a line. A half whose other one never comes is not acked, so it times out."""

    output = "origin string, length int, words int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin with nothing."""
        self._collector = collector
        self._half: dict[str, Tuple] = {}

    def execute(self, tuple: Tuple) -> None:
        """Hold the first half; with the second emit both, anchored on both, and ack both."""
        other = self._half.pop(tuple["origin"], None)
        if other is None:
            self._half[tuple["origin"]] = tuple
            return
        halves = {each.source_component: each for each in (other, tuple)}
        row = (tuple["origin"], halves["length"]["length"], halves["words"]["words"])
        self._collector.emit(row, anchors=(other, tuple))
        self._collector.ack(other)
        self._collector.ack(tuple)


def topology(topics: Topics) -> TopologyBuilder:
    """Build the diamond."""
    builder = TopologyBuilder()
    builder.set_spout("lines", topics, "sentences", startingOffsets="earliest")
    builder.set_bolt("length", Length()).shuffle_grouping("lines")
    builder.set_bolt("words", Words()).shuffle_grouping("lines")
    join = builder.set_bolt("join", Join(), parallelism=2)
    join.fields_grouping("length", "origin").fields_grouping("words", "origin")
    return builder


def show(batch: DataFrame, _batch_id: int) -> None:
    """Print a micro-batch."""
    for row in batch.collect():
        print(f"{row.length} characters, {row.words} words")


def main() -> None:
    """Measure the lines that are there now, by the topics of topics.yaml."""
    topics = spout.load("topics.yaml")
    with tempfile.TemporaryDirectory(prefix="diamond-join-") as folder:
        spark = local_session("diamond-join", Path(folder))
        spout.run_once(topology(topics).submit(spark, sink=show))


if __name__ == "__main__":
    main()
