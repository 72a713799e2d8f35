"""Queries that `spout.start` starts, beside what holds up Spark's queue of events, or loses an event.

What holds up the queue does so until its test has seen all acks, or has failed: a publication that waited
for an event would never come. So no test here depends on how long a batch takes: a query's first batch on a
busy machine takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

import spout
from tests.support.bolts.sample_bolts import NoOrigin
from tests.support.brokers import Broker
from tests.support.hold_up import HoldUp
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = pytest.mark.slow

TIMEOUT_S = 60
PROGRESSES_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
LINES = ("a", "b", "c")
INPUT = (
    '  {name}: {{{{id: {id}, topic: "{{prefix}}{name}", group: "{{prefix}}{name}", partitions: 2,'
    " timeout: {seconds}s}}}}"
)
NAMES = (
    "listened",
    "forgetful",
    "once",
    "temporary",
    "hourly",
    "slow_function",
    "beside_function",
    "slow_sink",
    "beside_sink",
    "slow_foreach",
    "beside_foreach",
)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("listeners")
    inputs = [INPUT.format(name=name, id=n, seconds=TIMEOUT_S) for n, name in enumerate(NAMES, 1)]
    config = config_of(folder, broker, (), *inputs)
    with stream_world(spark, config, "acker", "replay") as made:
        yield made


@pytest.fixture
def forgetful(spark: SparkSession) -> Iterator[None]:
    """Let Spark remember no progress of a query."""
    spark.conf.set(PROGRESSES_KEPT, 1)
    yield
    spark.conf.unset(PROGRESSES_KEPT)


@pytest.fixture
def hold_up(tmp_path: Path) -> Iterator[HoldUp]:
    """Give what waits until the test releases it, or has ended."""
    made = HoldUp(tmp_path, seconds_max=2 * DEADLINE_S)
    yield made
    made.release()


class SleepingListener(StreamingQueryListener):
    """Somebody else's: it waits at each batch that has ended, and Spark's queue of events with it."""

    def __init__(self, hold_up: HoldUp) -> None:
        self._hold_up = hold_up

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Hold up the queue."""
        self._hold_up.wait()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""


@contextmanager
def sleeping_listener(spark: SparkSession, hold_up: HoldUp) -> Iterator[None]:
    """Let somebody else listen, before us."""
    listener = SleepingListener(hold_up)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        hold_up.release()
        spark.streams.removeListener(listener)


@contextmanager
def started(world: StreamWorld, name: str) -> Iterator[StreamingQuery]:
    """Write the words of an input to files as long as the context lasts."""
    rows = world.read(name).transform(spout.bolt(NoOrigin(), name="split"))
    writer = rows.writeStream.format("parquet").option("path", str(world.folder / f"{name}-out"))
    query = spout.start(writer.option("checkpointLocation", str(world.folder / name)))
    try:
        yield query
    finally:
        query.stop()


def written(world: StreamWorld, name: str) -> list[str]:
    """Return the words that a query wrote to files."""
    rows = world.spark.read.schema("word string").parquet(str(world.folder / f"{name}-out"))
    return sorted(row.word for row in rows.collect())


def check_each_once(world: StreamWorld, name: str, query: StreamingQuery) -> None:
    """Check that each record was acked and written once, and none came again."""
    published = world.wait_for(name, len(LINES), query)
    assert published.acked == {0, 1, 2}
    assert query.exception() is None
    assert world.copies(name) == []
    assert written(world, name) == list(LINES)


def test_a_listener_that_sleeps_holds_up_no_ack(world: StreamWorld, hold_up: HoldUp) -> None:
    """D201: the queue of events stands still from the batch's event until its records are acked."""
    world.produce("listened", *LINES)
    with sleeping_listener(world.spark, hold_up), started(world, "listened") as query:
        check_each_once(world, "listened", query)
        hold_up.check_that_it_waits(DEADLINE_S)


@pytest.mark.parametrize("kind", ["function", "sink", "foreach"])
def test_a_second_query_with_a_slow_sink_holds_up_no_ack(
    world: StreamWorld, hold_up: HoldUp, kind: str
) -> None:
    """D202: both are of one session, whose queries share a queue; the slow one is there first."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.collect()
        hold_up.wait()

    def put(_row: object) -> None:
        hold_up.wait()

    slow, beside = f"slow_{kind}", f"beside_{kind}"
    world.produce(slow, "x")
    writer = world.read(slow).drop("_windhover").writeStream
    writer = writer.option("checkpointLocation", str(world.folder / slow))
    if kind == "foreach":
        writer = writer.foreach(put)
    else:
        writer = writer.foreachBatch(write if kind == "function" else spout.sink(write))
    slow_query = spout.start(writer)
    try:
        hold_up.check_that_it_waits(DEADLINE_S)
        world.produce(beside, *LINES)
        with started(world, beside) as query:
            check_each_once(world, beside, query)
        hold_up.check_that_it_waits(DEADLINE_S)
    finally:
        hold_up.release()
        slow_query.stop()


@pytest.mark.usefixtures("forgetful")
def test_where_spark_remembers_no_progress_the_commit_log_is_asked(
    world: StreamWorld, hold_up: HoldUp
) -> None:
    """D203: nothing but the commit log says that the batch is written; no event arrives meanwhile, either."""
    world.produce("forgetful", *LINES)
    with sleeping_listener(world.spark, hold_up), started(world, "forgetful") as query:
        check_each_once(world, "forgetful", query)
        hold_up.check_that_it_waits(DEADLINE_S)
        assert query.lastProgress is None


@pytest.mark.parametrize("name", ["once", "temporary"])
@pytest.mark.usefixtures("forgetful")
def test_the_batch_of_a_query_that_stops_behind_it_is_acked(world: StreamWorld, name: str) -> None:
    """D204: Spark asks for no further batch; without a checkpointLocation it removes the checkpoint."""
    world.produce(name, *LINES)
    rows = world.read(name).transform(spout.bolt(NoOrigin(), name="split"))
    writer = rows.writeStream.format("memory").queryName(f"words_{name}").trigger(once=True)
    if name == "once":
        writer = writer.option("checkpointLocation", str(world.folder / name))
    query = spout.start(writer)
    assert query.awaitTermination(DEADLINE_S), query.stop()
    assert world.wait_for(name, len(LINES), query).acked == {0, 1, 2}


def test_a_batch_is_acked_long_before_the_next_one_is_due(world: StreamWorld) -> None:
    """D205: Spark asks for the next batch only when the trigger's interval is over."""
    world.produce("hourly", *LINES)
    rows = world.read("hourly").transform(spout.bolt(NoOrigin(), name="split"))
    writer = rows.writeStream.format("parquet").option("path", str(world.folder / "hourly-out"))
    writer = writer.option("checkpointLocation", str(world.folder / "hourly"))
    query = spout.start(writer.trigger(processingTime="1 hour"))
    try:
        check_each_once(world, "hourly", query)
    finally:
        query.stop()
