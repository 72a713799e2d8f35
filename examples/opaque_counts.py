"""Counts that a table keeps, each with the one before: Storm's opaque transactional state.

Run it beside `windhover up`, with a database and `psycopg` installed::

    uv run windhover up --port 9092
    DATABASE=postgresql://localhost/words uv run python examples/opaque_counts.py

After a crash Spark runs the last batch again, and other records may fail in it than before. So it is not
enough to add once for each batch, and adding again would count twice. The table knows for each word which
batch has changed it last, and the count before that: what the batch did is undone, and done anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import psycopg
from pyspark.sql import DataFrame, SparkSession

import spout

CREATE = """
CREATE TABLE IF NOT EXISTS word_counts (
    word text PRIMARY KEY, count bigint NOT NULL, previous bigint NOT NULL, batch text NOT NULL
)
"""
UNDO = "UPDATE word_counts SET count = previous WHERE batch = %s"
ADD = """
INSERT INTO word_counts AS kept (word, count, previous, batch) VALUES (%s, %s, 0, %s)
ON CONFLICT (word) DO UPDATE
    SET count = kept.count + EXCLUDED.count, previous = kept.count, batch = EXCLUDED.batch
"""


class SplitSentence(spout.BasicBolt):
    """Splits a line into words."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word; all of them are anchored on the line."""
        for word in tuple["value"].decode().lower().split():
            collector.emit((word,))


class CountTable:
    """The table in PostgreSQL."""

    def __init__(self, database: str) -> None:
        """Connect, and make the table where there is none. `database` is a connection string."""
        self._connection = psycopg.connect(database)
        with self._connection.transaction():
            self._connection.execute(CREATE)

    def add(self, batch: str, added_by_word: Mapping[str, int]) -> None:
        """Add what a batch has counted, in place of what an earlier run of it has added."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            # also the words that this run does not have
            cursor.execute(UNDO, (batch,))
            cursor.executemany(ADD, [(word, added, batch) for word, added in added_by_word.items()])

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a micro-batch; Spark counts, and only the counts come here."""
        # a fresh checkpoint has a new query id, and counts its batches from 0 again
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        rows = batch.groupBy("word").count().collect()
        self.add(f"{query_id}/{batch_id}", {row["word"]: row["count"] for row in rows})

    def counts(self) -> dict[str, int]:
        """Return the count of each word."""
        with self._connection.transaction():
            return dict(
                self._connection.execute("SELECT word, count FROM word_counts WHERE count > 0").fetchall()
            )

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def main() -> None:
    """Count the words of a topic until Ctrl-C."""
    table = CountTable(os.environ["DATABASE"])
    spark = SparkSession.builder.master("local[2,3]").appName("opaque-counts").getOrCreate()
    lines = spout.read_stream(spark, spout.load("topics.yaml"), "sentences")
    words = lines.transform(spout.bolt(SplitSentence(), name="split"))
    writer = words.writeStream.foreachBatch(spout.sink(table.write))
    writer.option("checkpointLocation", "checkpoints/opaque-counts").start().awaitTermination()


if __name__ == "__main__":
    main()
