"""Words in a database, each of them once, without a key and without an upsert.

A broker, the topics, an acker and a replay worker run in one terminal, this query in another::

    uv run windhover up --port 9092
    echo "the hawk waits" | kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic sentences
    uv run python examples/exactly_once.py

The rows of a micro-batch, and what is acked and failed for them, are one transaction of the store. So
whatever dies, and whatever runs twice, each line's words are in the table once; those of a line that fails
are not there.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

import spout
from acker.config.topics import Topics
from spout.local.spark_session import local_session


class SplitSentence(spout.BasicBolt):
    """Splits a line into words."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word; all of them are anchored on the line."""
        for word in tuple["value"].decode().lower().split():
            collector.emit((word,))


def write_words(spark: SparkSession, topics: Topics, folder: Path) -> Path:
    """Write the words of what is there now; return the file of the database."""
    database = folder / "words.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS words (word TEXT)")
    lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    words = lines.transform(spout.bolt(SplitSentence(), name="split", anchored=True))
    sink = spout.exact_sink(spout.SQLiteStore(database, "words"), words)
    writer = words.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    spout.run_once(writer.start())
    return database


def counts(database: Path) -> dict[str, int]:
    """Return how often each word stands in the table, the most frequent first."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT word, count(*) FROM words GROUP BY word ORDER BY 2 DESC, 1")
        return dict(rows.fetchall())


def main() -> None:
    """Write the words of the topics of topics.yaml."""
    topics = spout.load("topics.yaml")
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as name:
        folder = Path(name)
        database = write_words(local_session("exactly-once", folder), topics, folder)
        for word, times in counts(database).items():
            print(f"{times:8,}  {word}")


if __name__ == "__main__":
    main()
