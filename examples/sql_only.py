"""Spark SQL alone: JSON orders from Kafka to Parquet files, with Storm's guarantee and without a bolt.

A record that holds no order is failed by name: it is replayed, and after its last attempt it is a dead
letter. All others are acked when Spark has committed the files of their micro-batch.

    windhover up --config examples/topics.yaml
    python examples/sql_only.py OUT CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

import spout


def orders(lines: DataFrame) -> DataFrame:
    """Parse orders, and keep the large ones."""
    return (
        lines.withColumn("order", from_json(col("value").cast("string"), "id int, total double"))
        .transform(spout.fail_when(col("order.id").isNull(), "no order"))
        .select("order.id", "order.total")
        .filter("total >= 10")  # what a filter drops is done: it is acked with its micro-batch
    )


def main(out: str, checkpoint: str) -> None:
    """Write orders until the query is stopped."""
    spark = SparkSession.builder.appName("orders").getOrCreate()
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    rows = orders(spout.read_stream(spark, topics, "orders", startingOffsets="earliest"))
    files = rows.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
    spout.start(files).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
