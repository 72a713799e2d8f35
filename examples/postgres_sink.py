"""A sink into PostgreSQL that a replay does not write twice.

Delivery is at least once: a line that failed half-way is emitted again, and its words are written again.
Where a word stands (the id of its line's record, and its ordinal there) is the table's primary key, so the
second time changes nothing. Run it beside `windhover up`, with a database and `psycopg` installed::

    uv run windhover up --port 9092
    DATABASE=postgresql://localhost/words uv run python examples/postgres_sink.py
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

import spout

CREATE = """
CREATE TABLE IF NOT EXISTS words (
    record_id TEXT NOT NULL, ordinal INTEGER NOT NULL, word TEXT NOT NULL,
    PRIMARY KEY (record_id, ordinal)
)
"""
UPSERT = """
INSERT INTO words (record_id, ordinal, word) VALUES (%(record_id)s, %(ordinal)s, %(word)s)
ON CONFLICT (record_id, ordinal) DO UPDATE SET word = EXCLUDED.word
"""


class SplitSentence(spout.BasicBolt):
    """Splits a line into words, and says where each one stands."""

    output = "record_id string, ordinal int, word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit (record_id, ordinal, word) for each word of the line."""
        for ordinal, word in enumerate(tuple["value"].decode().split()):
            collector.emit((tuple.message_id.record_id, ordinal, word))


class WordTable:
    """The table in PostgreSQL."""

    def __init__(self, database: str) -> None:
        """Connect, and make the table where there is none. `database` is a connection string."""
        self._connection = psycopg.connect(database)
        with self._connection.transaction():
            self._connection.execute(CREATE)

    def upsert(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, all or none; one that stands there already is replaced."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(UPSERT, rows)

    def write(self, batch: DataFrame, _batch_id: int) -> None:
        """Write a micro-batch; when this returns, its records are acked."""
        self.upsert(batch.select("record_id", "ordinal", "word").toArrow().to_pylist())

    def counts(self) -> dict[str, int]:
        """Count the rows of each word."""
        with self._connection.transaction():
            return dict(self._connection.execute("SELECT word, COUNT(*) FROM words GROUP BY word").fetchall())

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def main() -> None:
    """Write the words of a topic until Ctrl-C."""
    table = WordTable(os.environ["DATABASE"])
    spark = SparkSession.builder.master("local[2,3]").appName("postgres-sink").getOrCreate()
    lines = spout.read_stream(spark, spout.load("topics.yaml"), "sentences")
    words = lines.transform(spout.bolt(SplitSentence(), name="split"))
    writer = words.writeStream.foreachBatch(spout.sink(table.write))
    writer.option("checkpointLocation", "checkpoints/postgres-sink").start().awaitTermination()


if __name__ == "__main__":
    main()
