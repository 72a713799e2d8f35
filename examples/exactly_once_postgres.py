"""Words in a table of PostgreSQL, each of them once, and a counter that the database keeps.

Run it beside `windhover up`, with a database and `psycopg` installed::

    uv run windhover up --port 9092
    DATABASE=postgresql://localhost/words uv run python examples/exactly_once_postgres.py

The rows of a micro-batch, and what is acked and failed for them, are one transaction of the database. What a
trigger does with the rows is part of it. So a counter may simply add, whatever dies, and whatever runs twice.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

import spout
from acker.config.topics import Topics
from spout.local.spark_session import local_session

CREATE = """
CREATE TABLE IF NOT EXISTS words (word text NOT NULL);
CREATE TABLE IF NOT EXISTS word_counts (word text PRIMARY KEY, count bigint NOT NULL);

CREATE OR REPLACE FUNCTION add_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO word_counts SELECT word, count(*) FROM added GROUP BY word
    ON CONFLICT (word) DO UPDATE SET count = word_counts.count + EXCLUDED.count;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER words_are_added AFTER INSERT ON words
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION add_words();
"""


class SplitSentence(spout.BasicBolt):
    """Splits a line into words."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word; all of them are anchored on the line."""
        for word in tuple["value"].decode().lower().split():
            collector.emit((word,))


def write_words(spark: SparkSession, topics: Topics, database: str, checkpoint: Path) -> None:
    """Write the words of what is there now. `database` is a connection string."""
    lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    words = lines.transform(spout.bolt(SplitSentence(), name="split", anchored=True))
    sink = spout.exact_sink(spout.PostgresStore(database, "words"), words)
    writer = words.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    spout.run_once(writer.start())


def main() -> None:
    """Write the words of the topics of topics.yaml, and print the counter."""
    database = os.environ["DATABASE"]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
        with tempfile.TemporaryDirectory(prefix="exactly-once-") as name:
            folder = Path(name)
            spark = local_session("exactly-once-postgres", folder)
            write_words(spark, spout.load("topics.yaml"), database, folder / "checkpoint")
        for word, times in connection.execute("SELECT word, count FROM word_counts ORDER BY 2 DESC, 1"):
            print(f"{times:8,}  {word}")


if __name__ == "__main__":
    main()
