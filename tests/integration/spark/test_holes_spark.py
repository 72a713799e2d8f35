"""What a batch has beside positions without a record, and beside copies: a real Spark on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from acker.provisioning.provision import create_topics
from spout.runtime.child import Child
from tests.support.brokers import Broker
from tests.support.ended_queries import run_to_end
from tests.support.holes import Aborted, Each, Records, Stretch, write_stretches
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  lines: {{id: 1, topic: "{prefix}lines", group: "{prefix}g", partitions: 2, timeout: 5m,
          retry: {{attempts: 1000, initial: 100ms, multiplier: 1, max: 100ms, jitter: 0}}}}
"""


@pytest.fixture
def config(broker: Broker, prefix: str, tmp_path: Path) -> Path:
    """A topics.yaml with an input of two partitions, its topics created."""
    path = tmp_path / "topics.yaml"
    path.write_text(TEXT.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    create_topics(load_topics(path, {}))
    return path


@pytest.fixture
def topics(config: Path) -> Topics:
    """What the file says."""
    return load_topics(config, {})


def write(topics: Topics, partition: int, *stretches: Stretch) -> int:
    log = KafkaLog(topics.kafka)
    written = write_stretches(log, TopicPartition(topics.input("lines").topic, partition), stretches)
    log.close()
    return written


def batch_sizes(frame: DataFrame, checkpoint: Path) -> list[int]:
    """Run a query until all is read and done; return how many records each of its batches had."""
    sizes: list[int] = []
    sink = spout.sink(lambda batch, _: sizes.append(batch.count()))
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    if not run_to_end(writer, timeout_s=240):
        raise TimeoutError(f"the query did not end: {sizes}")
    return sizes


HOLES: dict[str, tuple[list[Stretch], int]] = {
    "at the start": ([Aborted(50_000), Records(100)], 1_000),
    "at the end": ([Records(100), Aborted(50_000)], 1_000),
    "several": ([Records(100), Aborted(20_000), Records(100), Aborted(20_000), Records(100)], 1_000),
    "where a batch ends": ([Records(500), Aborted(20_000), Records(500), Aborted(20_000), Records(10)], 500),
    "behind each record": ([Each(300)], 100),
    "everywhere": ([Aborted(50_000)], 1_000),
}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("kind", HOLES)
def test_the_limit_of_a_batch_counts_records(
    spark: SparkSession, config: Path, topics: Topics, tmp_path: Path, kind: str, tracked: bool
) -> None:
    """O501, O502: a hole of 50,000 took 51 batches of 1,000 positions, each without a record."""
    stretches, limit = HOLES[kind]
    records = write(topics, 0, *stretches)
    frame = spout.read_stream(spark, topics, "lines", maxOffsetsPerTrigger=limit, tracked=tracked)
    with Child("acker", config) as acker:
        acker.wait_ready()
        sizes = batch_sizes(frame, tmp_path / "checkpoint")
    assert sum(sizes) == records
    assert max(sizes, default=0) <= limit
    assert len(sizes) <= -(-records // limit) + 1, sizes


def test_records_that_fail_each_time_keep_no_new_one_waiting(
    spark: SparkSession, config: Path, topics: Topics, tmp_path: Path
) -> None:
    """O507: a hundred copies took each batch of twenty, and of fifty new records none was read."""

    class FailsSmall(spout.BasicBolt):  # a local one travels to the worker as it is
        output = "number long"

        def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
            number = int(tuple["value"])
            if number < 100:
                raise ValueError(f"{number} is small")
            collector.emit([number])

    write(topics, 0, Records(100))
    numbers: list[int] = []

    def collect(batch: DataFrame, _batch_id: int) -> None:
        numbers.extend(row.number for row in batch.collect())

    lines = spout.read_stream(spark, topics, "lines", maxOffsetsPerTrigger=20)
    writer = lines.transform(spout.bolt(FailsSmall())).writeStream.foreachBatch(spout.sink(collect))
    with Child("acker", config) as acker, Child("replay", config) as replay:
        acker.wait_ready()
        replay.wait_ready()
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        log = KafkaLog(topics.kafka)
        copies = TopicPartition(topics.input("lines").replay_topic, 0)
        eventually(lambda: log.ends([copies])[copies] >= 200, 120)
        write(topics, 1, Records(150))
        eventually(lambda: len(numbers) >= 50, 60, told=lambda: numbers)
        query.stop()
        log.close()
    assert sorted(numbers) == list(range(100, 150))
