"""Sessions by user with a bolt that keeps its tuples in Spark's state store.

The bolt holds what a user does until the user leaves, or was quiet for half an hour; then it writes one row
and acks all of it. A restart of the query goes on with what it held.

    windhover up --config examples/topics.yaml
    python examples/sessions.py OUT CHECKPOINT
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spout

QUIET_MS = 30 * 60 * 1000


class Session(spout.KeyedBolt):
    """Collects the actions of a user."""

    output = "user string, actions string"

    def __init__(self, quiet_ms: int = QUIET_MS) -> None:
        """End a session after so long without an action."""
        self.tick_ms = quiet_ms  # type: ignore[misc]  # set for each instance

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """End the session when the user leaves; until then hold everything."""
        if any(each["action"] == "leave" for each in held):
            self.tick(key, held, collector)

    def tick(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Write the session, and ack all that went into it."""
        collector.emit((key[0], " ".join(each["action"] for each in held)))
        collector.ack(*held)


def sessions(lines: DataFrame, quiet_ms: int = QUIET_MS) -> DataFrame:
    """Collect lines, "user action", into sessions."""
    return (
        lines.selectExpr("split(CAST(value AS STRING), ' ') AS parts", "_windhover")
        .selectExpr("parts[0] AS user", "parts[1] AS action", "_windhover")
        .transform(spout.fail_when("action IS NULL", "no action"))
        .transform(spout.hold(None))
        .transform(spout.keyed(Session(quiet_ms), by=["user"]))
    )


def main(out: str, checkpoint: str) -> None:
    """Write sessions until the query is stopped."""
    # state has as many parts as shuffles have: 200, Spark's default, are for a cluster
    builder = SparkSession.builder.appName("sessions").config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    lines = spout.read_stream(spark, topics, "actions", startingOffsets="earliest", delayed_acks=True)
    rows = sessions(lines).writeStream.outputMode("append").format("parquet")
    files = rows.option("path", out).option("checkpointLocation", checkpoint)
    spout.start(files.trigger(processingTime="1 second")).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
