"""Clicks counted by minute with delayed acks: a click is done when the minute that counts it is written.

The tuples of a window wait in Spark's state store, over many micro-batches and over a restart. Their records
stay pending meanwhile; when the watermark has passed and the row is written, all of them are acked at once.
A click that comes too late for its minute is acked and counted, since nobody will ever count it.

    windhover up --config examples/topics.yaml
    python examples/windowed_aggregation.py OUT CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, window

import spout


def clicks_by_minute(lines: DataFrame) -> DataFrame:
    """Count clicks, "2026-11-21T10:00:03 page", by minute and page."""
    minute = window("at", "1 minute")
    return (
        lines.selectExpr("split(CAST(value AS STRING), ' ') AS parts", "_windhover")
        .selectExpr("try_to_timestamp(parts[0]) AS at", "parts[1] AS page", "_windhover")
        .transform(spout.fail_when("at IS NULL", "no time"))
        .transform(spout.hold(until=minute.end, late="ack"))
        .withWatermark("at", "10 seconds")
        .groupBy(minute, "page")
        .agg(count("*").alias("clicks"), spout.collect_anchors())
        .selectExpr("window.start AS minute", "page", "clicks", "_windhover")
        .transform(spout.ack_anchors())
    )


def main(out: str, checkpoint: str) -> None:
    """Write minutes until the query is stopped."""
    # state has as many parts as shuffles have: 200, Spark's default, are for a cluster
    builder = SparkSession.builder.appName("clicks").config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    lines = spout.read_stream(spark, topics, "clicks", startingOffsets="earliest", delayed_acks=True)
    rows = clicks_by_minute(lines).writeStream.outputMode("append").format("parquet")
    files = rows.option("path", out).option("checkpointLocation", checkpoint)
    spout.start(files).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
