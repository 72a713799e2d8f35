"""Copies the words of an input to a topic by Spark's own Kafka sink; a program for a test to run.

python -m tests.support.bolts.kafka_sink_job TOPICS_YAML OUT_TOPIC FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import spout
from spout.local.spark_session import local_session
from tests.support.bolts.sample_bolts import NoOrigin


def main(config: str, out: str, folder: str) -> None:
    """Copy what is there now."""
    topics = spout.load(config)
    spark = local_session("kafka-sink", Path(folder) / "spark", cores=2)
    lines = spout.read_stream(spark, topics, "lines", startingOffsets="earliest")
    words = lines.transform(spout.bolt(NoOrigin(), name="split")).selectExpr("word AS value")
    writer = words.writeStream.format("kafka").option("topic", out).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", topics.kafka["bootstrap.servers"])
    query = spout.start(writer.option("checkpointLocation", f"{folder}/checkpoint"))
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
