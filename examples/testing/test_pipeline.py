"""A test of a whole pipeline, on a real broker and a real Spark; run it by `python -m pytest`.

Started as a module, pytest has the project's folder on its path, and so have Spark's Python processes, which
import the bolts from there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pipeline
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import spout

TOPICS = """
kafka: {bootstrap.servers: "${KAFKA_BOOTSTRAP:-127.0.0.1:9092}"}
inputs:
  orders: {id: 1, group: shop, partitions: 2, retry: {initial: 100ms}}
"""
DEADLINE_S = 180


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a broker with the topics, an acker and a replay worker, as long as the tests run."""
    config = tmp_path_factory.mktemp("windhover") / "topics.yaml"
    config.write_text(TOPICS)
    command = ["windhover", "up", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as services:
        lines = iter(services.stdout or ())
        ready = next((line for line in lines if line.startswith("ready: ")), None)
        assert ready is not None, "it ended; what it printed says why"
        os.environ["KAFKA_BOOTSTRAP"] = ready.split("bootstrap.servers=")[1].split()[0]
        yield config
        services.terminate()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run Spark with two cores, and three attempts for each task."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2,3]").getOrCreate()
    yield session
    session.stop()


def test_an_order_that_fails_once_is_written_once_and_nonsense_is_a_dead_letter(
    config: Path, spark: SparkSession, tmp_path: Path
) -> None:
    topics = spout.load(config)
    producer = Producer(dict(topics.kafka))
    for value in (b"7", b"42", b"nonsense"):
        producer.produce("orders", value)
    producer.flush()

    query = pipeline.start(spark, topics, tmp_path)
    assert spout.run_once(query, timeout_s=DEADLINE_S), query.lastProgress

    rows = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(row.order_id for row in rows) == [7, 42]
    letters = subprocess.check_output(["windhover", "dlq", "list", "--config", str(config)], text=True)
    assert "RejectTuple" in letters
    assert "ConnectionError" not in letters
