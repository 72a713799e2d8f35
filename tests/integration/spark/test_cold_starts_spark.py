"""Queries that begin while Spark has no worker for them: no timeout runs, and no attempt is spent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from tests.support.bolts.sample_bolts import NoOrigin
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = pytest.mark.slow

TIMEOUT_S = 10
BUSY_S = 25.0
"""How long Spark has no worker: two timeouts and a half."""

LINES = ("a", "b", "c")
NAMES = ("function", "start", "again", "restarted")
INPUT = (
    '  {name}: {{{{id: {id}, topic: "{{prefix}}{name}", group: "{{prefix}}{name}", partitions: 2,'
    " timeout: {seconds}s}}}}"
)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("cold")
    inputs = [INPUT.format(name=name, id=n, seconds=TIMEOUT_S) for n, name in enumerate(NAMES, 1)]
    config = config_of(folder, broker, (), *inputs)
    with stream_world(spark, config, "acker", "replay") as made:
        yield made


@contextmanager
def busy(spark: SparkSession) -> Iterator[None]:
    """Let each core of Spark be busy for a while, from before the context begins."""
    context = spark.sparkContext
    cores = context.defaultParallelism

    def occupy() -> None:
        context.parallelize(range(cores), cores).foreach(lambda _: threading.Event().wait(BUSY_S))

    others = threading.Thread(target=occupy)
    others.start()
    eventually(lambda: context.statusTracker().getActiveJobsIds(), DEADLINE_S)
    try:
        yield
    finally:
        others.join()


def words(world: StreamWorld, name: str) -> DataFrame:
    """Read the words of an input."""
    return world.read(name).transform(spout.bolt(NoOrigin(), name="split"))


@pytest.mark.parametrize("name", ["function", "start"])
def test_records_do_not_age_while_spark_has_no_worker(world: StreamWorld, name: str) -> None:
    """D101: the first batch of a process waits for its first task, whoever publishes it."""
    world.produce(name, *LINES)
    with busy(world.spark):
        writer = words(world, name).writeStream.option("checkpointLocation", str(world.folder / name))
        if name == "function":
            query = writer.foreachBatch(spout.sink(lambda batch, _batch_id: batch.collect())).start()
        else:
            query = spout.start(writer.format("noop"))
        try:
            published = world.wait_for(name, len(LINES), query)
        finally:
            query.stop()
    assert published.acked == {0, 1, 2}
    assert world.copies(name) == []


def test_a_batch_that_runs_again_does_not_age_while_spark_has_no_worker(world: StreamWorld) -> None:
    """D102: its records were emitted by the process before, and their clock stands until this one goes on."""
    world.produce("again", *LINES)

    def fail(batch: DataFrame, _batch_id: int) -> None:
        batch.collect()
        raise ValueError("the sink is away")

    writer = words(world, "again").writeStream.option("checkpointLocation", str(world.folder / "again"))
    query = writer.foreachBatch(spout.sink(fail)).start()
    eventually(lambda: not query.isActive, DEADLINE_S)
    with busy(world.spark):
        writer = words(world, "again").writeStream.option("checkpointLocation", str(world.folder / "again"))
        query = writer.foreachBatch(spout.sink(lambda batch, _batch_id: batch.collect())).start()
        try:
            published = world.wait_for("again", len(LINES), query)
        finally:
            query.stop()
    assert published.acked == {0, 1, 2}
    assert world.copies("again") == []


def test_each_start_of_one_query_waits_for_its_own_first_task(world: StreamWorld) -> None:
    """D102: what ran an hour ago may have no worker now."""
    rows = words(world, "restarted")
    sink = spout.sink(lambda batch, _batch_id: batch.collect())
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(world.folder / "restarted"))
    world.produce("restarted", "a")
    query = writer.start()
    world.wait_for("restarted", 1, query)
    query.stop()
    world.produce("restarted", "b", "c")
    with busy(world.spark):
        query = writer.start()
        try:
            published = world.wait_for("restarted", 3, query)
        finally:
            query.stop()
    assert len(published.acked) == 3
    assert world.copies("restarted") == []
