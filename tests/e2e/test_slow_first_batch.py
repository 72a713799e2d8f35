"""A first micro-batch of a minute, as of a cold start on a busy machine: the next ones recover."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.provisioning.provision import create_topics
from spout.planning.pace import FIRST_BATCH_RECORDS
from spout.runtime.child import Child
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import produce_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

FIRST_S = 60.0
"""Twice the timeout: all records of the first batch time out in it."""

RECORDS = 60_000

TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  lines: {{id: 1, topic: "{prefix}lines", group: "{prefix}g", partitions: 2, timeout: 30s}}
"""


def test_a_first_batch_of_a_minute_does_not_make_the_next_ones_crawl(
    broker: Broker, prefix: str, spark: SparkSession, tmp_path: Path
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(TEXT.format(bootstrap=broker.bootstrap, prefix=prefix))
    topics = load_topics(config, {})
    create_topics(topics)
    log = KafkaLog(topics.kafka)
    produce_lines(log, f"{prefix}lines", (str(number) for number in range(RECORDS)))
    log.close()
    sizes: list[int] = []
    over = threading.Event()

    def write(batch: DataFrame, _batch_id: int) -> None:
        rows = len(batch.collect())
        if rows and not sizes:
            over.wait(FIRST_S)
        if rows:
            sizes.append(rows)

    with Child("acker", config) as acker:
        acker.wait_ready()
        lines = spout.read_stream(spark, topics, "lines", startingOffsets="earliest")
        query = (
            lines.writeStream.foreachBatch(spout.sink(write))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            eventually(
                lambda: max(sizes[1:], default=0) >= FIRST_BATCH_RECORDS or not query.isActive,
                5 * FIRST_S,
                told=lambda: sizes,
            )
        finally:
            over.set()
            query.stop()
    assert sizes[0] == FIRST_BATCH_RECORDS <= max(sizes[1:]), f"records of each micro-batch: {sizes}"
    assert len(sizes) < 10, f"it went on record by record: {sizes}"
