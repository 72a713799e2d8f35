"""`spout.run_once` ends a query when all that was there is done, on each version of Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.errors import UsageError
from tests.support.bolts.sample_bolts import OnceBad
from tests.support.brokers import Broker
from tests.support.worlds.stream_worlds import StreamWorld, config_of, stream_world

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("once")
    config = config_of(folder, broker, ("sunk", "started", "slow", "broken", "none"))
    with stream_world(spark, config, "acker", "replay") as world:
        yield world


def lines_of(world: StreamWorld, name: str) -> DataFrame:
    """Read an input through the bolt."""
    return world.read(name).transform(spout.bolt(OnceBad()))


def test_all_that_is_there_is_done_replays_too_and_a_restart_goes_on_behind_it(
    world: StreamWorld,
) -> None:
    """With `spout.sink`; a record that comes later is not read, one that is given up is done."""
    world.produce("sunk", "a", "late", "never")
    expected = ["a", "late"]
    for line in ("b", "c"):
        lines = lines_of(world, "sunk")
        with world.running("sunk", lines) as query:
            assert spout.run_once(query) is True
            assert not query.isActive
            world.produce("sunk", line, "late")
        status = spout.stream_status(lines).spout
        assert status is not None
        assert status.pending == 0
        assert sorted(world.rows["sunk"]) == sorted((row,) for row in expected)
        expected += [line, "late"]


def test_rows_of_a_sink_of_sparks_own_are_there_when_it_returns(
    world: StreamWorld, spark: SparkSession
) -> None:
    world.produce("started", "a", "late")
    writer = lines_of(world, "started").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(world.folder / "started"))
    rows = str(world.folder / "rows")
    query = spout.start(writer.option("path", rows))
    assert spout.run_once(query) is True
    assert sorted(row.line for row in spark.read.parquet(rows).collect()) == ["a", "late"]


def test_a_query_that_is_not_done_in_time_is_stopped_and_its_next_start_goes_on(world: StreamWorld) -> None:
    """The sink waits in Python, where Spark cannot interrupt it."""
    world.produce("slow", "a", "late")
    given_up = threading.Event()

    def write(batch: DataFrame, _batch_id: int) -> None:
        if batch.count():
            given_up.wait(DEADLINE_S)
            raise ConnectionError("the table is busy")

    began_s = time.monotonic()
    with world.running("slow", lines_of(world, "slow"), write) as query:
        assert spout.run_once(query, timeout_s=2) is False
        assert not query.isActive
    assert time.monotonic() - began_s < DEADLINE_S
    given_up.set()
    with world.running("slow", lines_of(world, "slow")) as query:
        assert spout.run_once(query, timeout_s=2 * DEADLINE_S) is True
    assert sorted(world.rows["slow"]) == [("a",), ("late",)]


def test_a_query_whose_sink_fails_says_so(world: StreamWorld) -> None:
    world.produce("broken", "a")

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch.count():
            raise ConnectionError("the table is away")

    with (
        world.running("broken", lines_of(world, "broken"), write) as query,
        pytest.raises(StreamingQueryException, match="the table is away"),
    ):
        spout.run_once(query)


def test_a_query_without_a_tracked_stream_is_refused_and_goes_on(
    world: StreamWorld, spark: SparkSession
) -> None:
    rate = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(world.folder / "none")).start()
    try:
        with pytest.raises(UsageError, match="one tracked stream"):
            spout.run_once(query)
        assert query.isActive
    finally:
        query.stop()
