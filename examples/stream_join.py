"""Two topics joined: a purchase and its payment make one row, anchored on both.

One group reads both topics, and an aggregate by minute and id brings them together: the row has the anchors
of all tuples that went into it, so it acks, or fails, the purchase and the payment at once. A purchase
without a payment is failed by name when its minute is over; it is replayed, comes too late, and is a dead
letter after its last attempt.

    windhover up --config examples/topics.yaml
    python examples/stream_join.py OUT CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, window

import spout


class Settle(spout.BasicBolt):
    """Works on a purchase with what was paid for it."""

    output = "id string, amount double"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit what was settled; one without the other fails all tuples that went into the row."""
        if tuple["price"] is None or tuple["paid"] is None:
            raise spout.FailTuple("a purchase without a payment, or a payment without a purchase")
        collector.emit((tuple["id"], min(tuple["price"], tuple["paid"])))


def settlements(lines: DataFrame) -> DataFrame:
    """Join lines, "2026-11-21T10:00:03 id amount", of both topics by minute and id."""
    parts = "split(CAST(value AS STRING), ' ')"
    amounts = lines.selectExpr(
        "contains(topic, 'payments') AS is_payment",  # a copy's topic is payments.settlement.replay
        f"try_to_timestamp({parts}[0]) AS at",
        f"{parts}[1] AS id",
        f"try_cast({parts}[2] AS DOUBLE) AS amount",
        "_windhover",
    )
    minute = window("at", "1 minute")
    return (
        amounts.transform(spout.fail_when("at IS NULL OR id IS NULL OR amount IS NULL", "no such line"))
        .transform(spout.hold(until=minute.end, late="fail"))
        .withWatermark("at", "10 seconds")
        .groupBy(minute, col("id"))
        .agg(
            expr("sum(amount) FILTER (WHERE NOT is_payment) AS price"),
            expr("sum(amount) FILTER (WHERE is_payment) AS paid"),
            spout.collect_anchors(),
        )
        .transform(spout.ack_anchors(Settle()))
    )


def main(out: str, checkpoint: str) -> None:
    """Write settlements until the query is stopped."""
    # state has as many parts as shuffles have: 200, Spark's default, are for a cluster
    builder = SparkSession.builder.appName("settlement").config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    both = ["purchases", "payments"]
    lines = spout.read_stream(spark, topics, both, startingOffsets="earliest", delayed_acks=True)
    rows = settlements(lines).writeStream.outputMode("append").format("parquet")
    spout.start(rows.option("path", out).option("checkpointLocation", checkpoint)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
