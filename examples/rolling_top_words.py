"""Storm's RollingTopWords: every few seconds the most frequent words of a sliding window.

::

    words -> counter ──► intermediate ranker (2 tasks, by word) ──► total ranker ──► sink

Storm's bolts keep counts and rankings in memory, and each has ticks of its own. Here the counter alone holds
tuples, in Spark's state, and ticks: by the global grouping it has one key, (), so it emits the counts of all
words in one micro-batch. The rankers behind it see them all, and rank them within that batch. As in Storm
what the tick emits is not anchored: the next tick brings another ranking. A word is acked when it leaves the
window, so a restart from the checkpoint goes on with the counts.

    windhover up --config examples/topics.yaml
    python examples/rolling_top_words.py CHECKPOINT
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import spout
from acker.config.topics import Topics
from spout.local.spark_session import local_session

TOP_N = 5
WINDOW_S = 9
EMIT_EVERY_S = 3


class Word(spout.BasicBolt):
    """Reads a word; Storm's TestWordSpout has such tuples at once."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit((tuple["value"].decode(),))


class RollingCountBolt(spout.KeyedBolt):
    """Counts the objects of a sliding window, and emits the counts at every tick."""

    output = "obj string, count int"

    def __init__(self, window_s: int = WINDOW_S, emit_every_s: int = EMIT_EVERY_S) -> None:
        """Count.

        Args:
            window_s: length of the window.
            emit_every_s: how often the counts are emitted.
        """
        self.tick_every_ms = emit_every_s * 1_000  # type: ignore[misc]  # set for each instance
        self._window_ms = window_s * 1_000

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Hold what has come."""

    def tick(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Emit how often each object is in the window, then ack what leaves it, as Storm's counter does."""
        for obj, count in Counter(each["word"] for each in held).items():
            collector.emit((obj, count))
        begin_ms = time.time_ns() // 1_000_000 - self._window_ms
        collector.ack(*(each for each in held if each.since_ms < begin_ms))


class IntermediateRankingsBolt(spout.Bolt):
    """Ranks the objects that reach one task."""

    output = "obj string, count int"

    def __init__(self, top_n: int = TOP_N) -> None:
        """Keep so many."""
        self._top_n = top_n

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Begin with no ranking."""
        self._collector = collector
        self._rankings: Counter[str] = Counter()

    def execute(self, tuple: spout.Tuple) -> None:
        """Take a count."""
        self._rankings[tuple["obj"]] = tuple["count"]
        self._collector.ack(tuple)

    def cleanup(self) -> None:
        """Emit the top of the task."""
        for obj, count in top(self._rankings, self._top_n):
            self._collector.emit((obj, count))


class TotalRankingsBolt(IntermediateRankingsBolt):
    """Merges the rankings of all tasks."""

    output = "rank int, obj string, count int"

    def cleanup(self) -> None:
        """Emit the top of all."""
        for rank, (obj, count) in enumerate(top(self._rankings, self._top_n), start=1):
            self._collector.emit((rank, obj, count))


def top(rankings: Counter[str], top_n: int) -> list[tuple[str, int]]:
    """Return the most frequent objects; of equal ones the first by name."""
    return sorted(rankings.items(), key=lambda pair: (-pair[1], pair[0]))[:top_n]


def topology(topics: Topics) -> spout.TopologyBuilder:
    """Build the topology."""
    builder = spout.TopologyBuilder()
    builder.set_spout("words", topics, "words", startingOffsets="earliest")
    builder.set_bolt("word", Word()).shuffle_grouping("words")
    builder.set_bolt("counter", RollingCountBolt()).global_grouping("word")
    ranker = builder.set_bolt("intermediateRanker", IntermediateRankingsBolt(), parallelism=2)
    ranker.fields_grouping("counter", "obj")
    builder.set_bolt("finalRanker", TotalRankingsBolt()).global_grouping("intermediateRanker")
    return builder


def show(batch: DataFrame, _batch_id: int) -> None:
    """Print the ranking of a micro-batch, if its counter has ticked."""
    for row in batch.orderBy("rank").collect():
        print(f"{row.rank}. {row.obj} {row['count']}", flush=True)


def main(checkpoint: str) -> None:
    """Rank until the query is stopped."""
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    print(topology(topics).explain())
    with tempfile.TemporaryDirectory(prefix="rolling-top-words-") as folder:
        spark = local_session("rolling-top-words", Path(folder))
        running = topology(topics).submit(
            spark, sink=show, checkpoint=checkpoint, trigger={"processingTime": "500 milliseconds"}
        )
        running.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
