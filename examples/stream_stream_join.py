"""Spark's own join of two topics: an ad that was shown and its click within a minute make one row.

One group reads both topics, each side is held by a name of its own, and the join's row acks, or fails, what
went into it from both. An ad that nobody clicked is written when its minute is over; a click on an ad that
was never shown is failed by name, comes too late when it is replayed, and is a dead letter in the end.

    windhover up --config examples/topics.yaml
    python examples/stream_stream_join.py OUT CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import spout


class Rate(spout.BasicBolt):
    """Works on an ad and its click, if there was one."""

    output = "ad string, was_clicked boolean"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit whether it was clicked; a click alone fails its record."""
        if tuple["ad"] is None:
            raise spout.FailTuple("a click on an ad that was not shown")
        collector.emit((tuple["ad"], tuple["clicked_ad"] is not None))


def click_through(lines: DataFrame) -> DataFrame:
    """Join lines, "2026-11-21T10:00:03 ad", of both topics by ad, within a minute."""
    parts = "split(CAST(value AS STRING), ' ')"
    events = lines.selectExpr(
        "contains(topic, 'clicked') AS is_click",  # a copy's topic is clicked.click-through.replay
        f"try_to_timestamp({parts}[0]) AS at",
        f"{parts}[1] AS id",
        "_windhover",
    ).transform(spout.fail_when("at IS NULL OR id IS NULL", "no such line"))
    shown = (
        events.filter("NOT is_click")
        .selectExpr("at AS shown_at", "id AS ad", "_windhover")
        .transform(spout.hold("shown_at", late="fail", name="shown"))
        .withWatermark("shown_at", "10 seconds")
    )
    clicked = (
        events.filter("is_click")
        .selectExpr("at AS clicked_at", "id AS clicked_ad", "_windhover")
        .transform(spout.hold("clicked_at", late="fail", name="clicked"))
        .withWatermark("clicked_at", "10 seconds")
    )
    minute = "clicked_at BETWEEN shown_at AND shown_at + INTERVAL 1 MINUTE"
    rows = shown.join(clicked, expr(f"ad = clicked_ad AND {minute}"), "full_outer")
    rows = rows.select("ad", "clicked_ad", spout.join_anchors(shown, clicked))
    return rows.transform(spout.ack_anchors(Rate()))


def main(out: str, checkpoint: str) -> None:
    """Write ads until the query is stopped."""
    # state has as many parts as shuffles have: 200, Spark's default, are for a cluster
    builder = SparkSession.builder.appName("click-through").config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    both = ["shown", "clicked"]
    lines = spout.read_stream(spark, topics, both, startingOffsets="earliest", delayed_acks=True)
    rows = click_through(lines).writeStream.outputMode("append").format("parquet")
    spout.start(rows.option("path", out).option("checkpointLocation", checkpoint)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
