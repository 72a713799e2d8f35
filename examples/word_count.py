"""Storm's word count as a topology.

A broker, the topics, an acker and a replay worker run in one terminal, the word count in another::

    uv run windhover up --port 9092
    echo "the hawk waits" | kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic sentences
    uv run python examples/word_count.py

`SplitSentence` works inside the source's read task. `CountWords` holds the words of a micro-batch, and emits
for each word one tuple that is anchored on all of them; a line is acked when all of its words were counted
and written. A line may come twice, so what is counted is where a word stands: the table knows it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import Topics
from spout.local.spark_session import local_session


class SplitSentence(spout.BasicBolt):
    """Splits a line into words, and says where each one stands."""

    output = "word string, place string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word; all of them are anchored on the line."""
        for ordinal, word in enumerate(tuple["value"].decode().lower().split()):
            collector.emit((word, f"{tuple.message_id.origin}#{ordinal}"))


class CountWords(spout.Bolt):
    """Collects the places of each word; equal words come to the same task."""

    output = "word string, places array<string>"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Begin with no words."""
        self._collector = collector
        self._held: dict[str, list[spout.Tuple]] = {}

    def execute(self, tuple: spout.Tuple) -> None:
        """Hold the word; it is acked in `cleanup`."""
        self._held.setdefault(tuple["word"], []).append(tuple)

    def cleanup(self) -> None:
        """Emit one tuple for each word, anchored on all of its tuples, and ack those."""
        for word, held in self._held.items():
            self._collector.emit((word, [each["place"] for each in held]), anchors=held)
            for each in held:
                self._collector.ack(each)


class WordTable:
    """The counts, in a file: a word counts once for each place where it stands."""

    def __init__(self, path: Path) -> None:
        """Open the table, and make it when it is not there."""
        self._path = path
        with closing(sqlite3.connect(path)) as table, table:
            table.execute("CREATE TABLE IF NOT EXISTS words (place TEXT PRIMARY KEY, word TEXT)")

    def write(self, batch: DataFrame, _batch_id: int) -> None:
        """Write a micro-batch; what stands there already stays as it is."""
        rows = [(place, row.word) for row in batch.collect() for place in row.places]
        with closing(sqlite3.connect(self._path)) as table, table:
            table.executemany("INSERT OR IGNORE INTO words VALUES (?, ?)", rows)

    def counts(self) -> dict[str, int]:
        """Return how often each word stands somewhere, the most frequent first."""
        with closing(sqlite3.connect(self._path)) as table:
            found = table.execute("SELECT word, count(*) FROM words GROUP BY word ORDER BY 2 DESC, 1")
            return dict(found.fetchall())


def show(batch: DataFrame, _batch_id: int) -> None:
    """Print a micro-batch; the sink of word_count.yaml."""
    for row in batch.collect():
        print(f"{len(row.places):8,}  {row.word}")


def topology(topics: Topics) -> spout.TopologyBuilder:
    """Build the word count."""
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", topics, "sentences", startingOffsets="earliest")
    builder.set_bolt("split", SplitSentence()).shuffle_grouping("lines")
    builder.set_bolt("count", CountWords(), parallelism=2).fields_grouping("split", "word")
    return builder


def count(spark: SparkSession, topics: Topics, folder: Path) -> dict[str, int]:
    """Count what is there now, and return the counts."""
    table = WordTable(folder / "words.sqlite")
    running = topology(topics).submit(spark, sink=table.write, checkpoint=folder / "checkpoint")
    spout.run_once(running)
    return table.counts()


def main() -> None:
    """Run the word count against the topics of topics.yaml."""
    topics = spout.load("topics.yaml")
    print(topology(topics).explain())
    with tempfile.TemporaryDirectory(prefix="word-count-") as name:
        folder = Path(name)
        for word, times in count(local_session("word-count", folder), topics, folder).items():
            print(f"{times:8,}  {word}")


if __name__ == "__main__":
    main()
