"""Where a query goes on that starts from its checkpoint, on each version of Spark.

Spark 4.0 and 4.1 do not say it when they ask for a batch: `spout.spark.reader_with_memory`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spout
from spout.planning_process.status import PlannerStatus
from tests.support.brokers import Broker
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run one acker for them."""
    folder = tmp_path_factory.mktemp("restarts")
    config = config_of(
        folder, broker, ("done", "undone", "first", "fresh", "others", "mine", "idle", "strange")
    )
    with stream_world(spark, config, "acker") as world:
        yield world


def lines_of(world: StreamWorld, name: str) -> DataFrame:
    """Read the lines of an input."""
    return world.read(name).selectExpr("CAST(value AS string) AS line")


def run_until(world: StreamWorld, name: str, acked: int) -> PlannerStatus:
    """Run a query from its checkpoint until so many roots of its input are acked; return its last status."""
    lines = lines_of(world, name)
    with world.running(name, lines) as query:
        published = world.wait_for(name, acked, query)
        query.processAllAvailable()
    assert not published.failed
    status = spout.stream_status(lines).spout
    assert status is not None
    return status


def run_and_break(world: StreamWorld, name: str) -> list[tuple[int, list[str]]]:
    """Run a query whose sink fails behind its first batch with rows; return the batches that it got."""
    batches: list[tuple[int, list[str]]] = []

    def write_and_fail(batch: DataFrame, batch_id: int) -> None:
        batches.append((batch_id, sorted(row.line for row in batch.collect())))
        if batches[-1][1]:
            raise ConnectionError("the table is away")

    with (
        world.running(name, lines_of(world, name), write_and_fail) as query,
        pytest.raises(StreamingQueryException, match="the table is away"),
    ):
        query.awaitTermination(DEADLINE_S)
    return batches


def test_behind_a_committed_batch_it_goes_on_with_what_came_since(world: StreamWorld) -> None:
    """Nothing is read again, and the session is that of the checkpoint."""
    epochs: list[int] = []
    for run in range(3):
        world.produce("done", f"a {run}", f"b {run}")
        epochs.append(run_until(world, "done", 2 * run + 2).epoch)
    assert sorted(world.rows["done"]) == sorted((f"{side} {run}",) for run in range(3) for side in "ab")
    assert len(set(epochs)) == 1
    assert world.copies("done") == []


def test_a_restart_with_nothing_new_runs_no_batch_again(world: StreamWorld) -> None:
    world.produce("idle", "a", "b")
    run_until(world, "idle", 2)
    for _ in range(2):
        run_until(world, "idle", 2)
    assert sorted(world.rows["idle"]) == [("a",), ("b",)]


def test_a_batch_that_was_not_committed_comes_again_under_its_id_with_the_same_rows(
    world: StreamWorld,
) -> None:
    """The next one begins behind it: with one record more, nothing is missing and nothing comes twice."""
    world.produce("undone", "a", "b")
    run_until(world, "undone", 2)
    world.produce("undone", "c", "d")
    broken = run_and_break(world, "undone")
    world.produce("undone", "e", "f")
    assert run_and_break(world, "undone")[-1] == broken[-1], "the same batch, once more"
    assert broken[-1][1] == ["c", "d"]
    run_until(world, "undone", 6)
    assert sorted(world.rows["undone"]) == [(line,) for line in "abcdef"]
    assert world.copies("undone") == []


def test_the_first_batch_of_all_comes_again_too(world: StreamWorld) -> None:
    """Before it is no offset that a process could remember."""
    world.produce("first", "a", "b")
    broken = run_and_break(world, "first")
    assert broken[-1][1] == ["a", "b"]
    world.produce("first", "c", "d")
    run_until(world, "first", 4)
    assert sorted(world.rows["first"]) == [(line,) for line in "abcd"]


def test_with_a_fresh_checkpoint_it_goes_on_at_the_committed_offset(world: StreamWorld) -> None:
    """What was acked does not come again, in a session of its own."""
    world.produce("fresh", "a", "b")
    before = run_until(world, "fresh", 2)
    shutil.rmtree(world.folder / "fresh")
    world.produce("fresh", "c", "d")
    after = run_until(world, "fresh", 4)
    assert sorted(world.rows["fresh"]) == [(line,) for line in "abcd"]
    assert after.epoch > before.epoch


def test_with_the_checkpoint_of_another_query_of_ours_it_reads_its_own_input(world: StreamWorld) -> None:
    """Where that query stands says nothing of this input: it begins at its own start."""
    world.produce("others", "a", "b")
    run_until(world, "others", 2)
    world.produce("mine", "c", "d")
    shutil.copytree(world.folder / "others", world.folder / "mine")
    run_until(world, "mine", 2)
    assert sorted(world.rows["mine"]) == [("c",), ("d",)]
    assert world.published("others").acked == {0, 1}


def test_with_the_checkpoint_of_another_source_it_is_refused(world: StreamWorld) -> None:
    """Its offsets are none of ours."""
    rate = world.spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(world.folder / "strange")).start()
    try:
        wait_for(query, lambda: query.lastProgress is not None and query.lastProgress.batchId >= 1)
    finally:
        query.stop()
    world.produce("strange", "a", "b")
    with (
        world.running("strange", lines_of(world, "strange")) as query,
        pytest.raises(StreamingQueryException, match="an offset that is not Windhover's"),
    ):
        query.awaitTermination(DEADLINE_S)
    assert world.rows["strange"] == []
