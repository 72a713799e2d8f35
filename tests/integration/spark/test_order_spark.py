"""Ordered inputs in a real Spark on a real broker: what waits holds back what stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from spout.planning_process.status import PlannerStatus, read_status
from tests.support.bolts.sample_bolts import FailsTwice
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import config_of, serving

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0
INPUT = (
    '  {name}: {{{{id: {id}, topic: "{{prefix}}{name}", group: "{{prefix}}{name}", partitions: 2,'
    " timeout: 120s, ordering: {ordering}, hold: 300ms,"
    " retry: {{{{attempts: 4, initial: 4s, multiplier: 1, max: 4s}}}}}}}}"
)

Row = tuple[str, int, int, int]
"""Key, partition, origin's offset, attempt."""


class World:
    """Topics with a running acker and replay worker, and what the sink has."""

    def __init__(self, topics: Topics, spark: SparkSession, folder: Path) -> None:
        self.topics, self.spark, self.folder = topics, spark, folder
        self.batches: dict[int, list[Row]] = {}

    def produce(self, name: str, partition: int, *records: tuple[str, str]) -> None:
        """Write records: key and value of each."""
        log = KafkaLog(self.topics.kafka)
        producer = log.producer()
        for key, value in records:
            producer.send(Outgoing(self.topics.input(name).topic, partition, value.encode(), key.encode()))
        producer.flush(30_000)
        producer.close()
        log.close()

    @contextmanager
    def running(self, name: str) -> Iterator[StreamingQuery]:
        """Run the query from its checkpoint as long as the context lasts."""

        def write(batch: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = [tuple(row) for row in batch.collect()]  # type: ignore[misc]

        frame = spout.read_stream(
            self.spark, self.topics, name, startingOffsets="earliest", status_path=self.status_path
        ).transform(spout.bolt(FailsTwice()))
        query = (
            frame.writeStream.foreachBatch(spout.sink(write))
            .option("checkpointLocation", str(self.folder / name))
            .start()
        )
        try:
            yield query
        finally:
            query.stop()
        assert query.exception() is None

    @property
    def status_path(self) -> Path:
        """Where the planning process tells what it does."""
        return self.folder / "status.json"

    def status(self) -> PlannerStatus:
        """Return what the planning process told last."""
        return read_status(self.status_path) or PlannerStatus("idle", "")

    def rows(self) -> list[Row]:
        """Return all rows, batch by batch."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def wait(self, condition: Callable[[], object], query: StreamingQuery) -> None:
        """Wait for a condition while a query runs."""
        eventually(
            lambda: query.exception() or condition(), DEADLINE_S, told=lambda: (self.batches, self.status())
        )
        assert query.exception() is None

    def origins(self, key: str) -> list[int]:
        """Return the offsets of a key's records as the sink got them."""
        return [origin for found, _, origin, _ in self.rows() if found == key]


@pytest.fixture(scope="module")
def config(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A topics.yaml with an input of each order, an acker and a replay worker."""
    inputs = [
        INPUT.format(name=f"by-{by}", id=n, ordering=by) for n, by in enumerate(("key", "partition"), 1)
    ]
    path = config_of(tmp_path_factory.mktemp("order"), broker, (), *inputs)
    with serving(path, "acker", "replay"):
        yield path


@pytest.fixture
def world(config: Path, spark: SparkSession, tmp_path: Path) -> World:
    """The world of one test."""
    return World(load_topics(config, {}), spark, tmp_path)


def test_by_key_what_stands_behind_a_failed_record_follows_it_in_order_through_a_restart(
    world: World,
) -> None:
    world.produce("by-key", 0, ("a", "bad"), ("b", "1"), ("a", "2"), ("b", "3"), ("a", "4"))
    world.produce("by-key", 1, ("c", "worse"), ("d", "1"), ("c", "2"))
    with world.running("by-key") as query:
        world.wait(lambda: world.origins("b") == [1, 3] and world.origins("d") == [1], query)
        world.wait(lambda: world.status().held >= 3, query)
    assert (world.origins("a"), world.origins("c")) == ([], [])
    world.produce("by-key", 0, ("a", "5"), ("b", "6"))
    with world.running("by-key") as query:
        world.wait(lambda: world.origins("a") == [0, 2, 4, 5], query)
        world.wait(lambda: world.origins("c") == [2], query)
    assert world.origins("b") == [1, 3, 6]


def test_by_partition_the_partition_waits_for_its_failed_record_through_a_restart(world: World) -> None:
    name = "by-partition"
    world.produce(name, 0, ("a", "0"), ("b", "bad"), ("a", "2"), ("c", "3"))
    world.produce(name, 1, ("d", "0"))
    with world.running(name) as query:
        world.wait(lambda: world.origins("a") == [0] and world.origins("d") == [0], query)
        topic = world.topics.input(name).topic
        world.wait(lambda: world.status().waits.get(f"{topic}/0") == f"waits for {topic}/0@1", query)
        world.produce(name, 1, ("d", "1"))
        world.wait(lambda: world.origins("d") == [0, 1], query)
    world.produce(name, 0, ("c", "4"))
    with world.running(name) as query:
        world.wait(lambda: world.origins("c") == [3, 4], query)
    assert [row[2] for row in world.rows() if row[1] == 0] == [0, 1, 2, 3, 4]
