"""`spout.sink` where Spark shuffles rows behind the last bolt: what its function reads is what is acked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import spout
from spout.sinks import drain
from spout.sinks.drain import Drain
from spout.spark.private import are_of_batch
from spout.spark.renamed import to_partitions
from spout.streaming.application import Application
from tests.support.bolts.sample_bolts import Keep, NoOrigin
from tests.support.brokers import Broker
from tests.support.worlds.stream_worlds import (
    DEADLINE_S,
    Published,
    StreamWorld,
    config_of,
    stream_world,
)

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

WRITTEN = ("collected", "twice", "persisted", "coalesced", "grown", "one-by-one", "sent", "retried")
UNREAD = ("taken", "unplanned", "kept", "doubled", "halves", "again", "begun", "first-one", "by-filter")
INPUTS = (
    *WRITTEN, *UNREAD, "bolted", "filtered", "joined", "reading", "nothing", "stayed", "dealt",
    "staged", "counted", "unmatched", "shared",
)  # fmt: skip

Write = Callable[[DataFrame, int], object]


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run one acker for them."""
    folder = tmp_path_factory.mktemp("shuffles")
    config = config_of(folder, broker, INPUTS)
    with stream_world(spark, config, "acker") as made:
        yield made


@pytest.fixture
def drains(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """Collect the batches that went through a drain."""
    drained: list[DataFrame] = []
    through = Drain.with_drain

    def noted(self: Drain, rows: DataFrame) -> DataFrame:
        drained.append(rows)
        return through(self, rows)

    monkeypatch.setattr(Drain, "with_drain", noted)
    return drained


@pytest.fixture
def unplanned(spark: SparkSession) -> Iterator[None]:
    """Let Spark run what stands before a shuffle when the sink's function asks for the first row."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")


def words(world: StreamWorld, name: str) -> DataFrame:
    """Read the words of an input; ``bad`` fails its line."""
    return world.read(name).transform(spout.bolt(NoOrigin(), name="split"))


def kinds(world: StreamWorld) -> DataFrame:
    """Make a table to join words with."""
    return world.spark.createDataFrame([("hawk", "bird"), ("it", "pronoun")], "word string, kind string")


def stopped(world: StreamWorld, name: str, rows: DataFrame, write: Write) -> Published:
    """Run a query until it is stopped for what its sink has left unread."""
    says = r"evaluated in part only .* of the \d+ partitions behind its last shuffle were not read"
    with world.running(name, rows, write) as query, pytest.raises(StreamingQueryException, match=says):
        query.awaitTermination(DEADLINE_S)
    return world.published(name)


def test_a_join_that_is_not_broadcast_is_acked_when_its_rows_are_written(
    world: StreamWorld, drains: list[DataFrame]
) -> None:
    """What it leaves out is acked with the batch, and a batch of which nothing is left too."""
    rows = words(world, "joined").join(kinds(world).hint("merge"), "word").select("word")
    with world.running("joined", rows) as query:
        world.produce("joined", "a hawk", "it hovers", "bad", "nobody knows this")
        world.wait_for("joined", 4, query)
        world.produce("joined", "nobody", "waits")
        found = world.wait_for("joined", 6, query)
    assert (found.acked, set(found.failed)) == ({0, 1, 3, 4, 5}, {2})
    assert sorted(world.rows["joined"]) == [("hawk",), ("it",)]
    assert drains


def test_a_join_of_which_no_row_is_left_is_acked(world: StreamWorld) -> None:
    """Adaptive execution may leave nothing of such a plan, not even a partition."""
    rows = words(world, "unmatched").join(kinds(world).hint("shuffle_hash"), "word").select("word")
    world.produce("unmatched", "nobody", "waits")
    with world.running("unmatched", rows) as query:
        assert world.wait_for("unmatched", 2, query).acked == {0, 1}


def collected(kept: list[str]) -> Write:
    """Collect the words."""
    return lambda batch, _: kept.extend(row.word for row in batch.collect())


def twice(kept: list[str]) -> Write:
    """Look for rows, count them, then collect them: three jobs, of which the first reads one row."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        if not batch.isEmpty():
            count, rows = batch.count(), batch.collect()
            assert len(rows) == count
            kept.extend(row.word for row in rows)

    return write


def persisted(kept: list[str]) -> Write:
    """Keep the batch in Spark's memory, and evaluate it from there."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        cached = batch.persist()
        cached.count()
        kept.extend(row.word for row in cached.collect())
        cached.unpersist()

    return write


def coalesced(kept: list[str]) -> Write:
    """Let one task read all partitions."""
    return lambda batch, _: kept.extend(row.word for row in batch.coalesce(1).collect())


def grown(kept: list[str]) -> Write:
    """Let more tasks read than there are partitions, and shuffle once more."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        rows = batch.union(batch).dropDuplicates().repartition(5)
        kept.extend(row.word for row in rows.collect())

    return write


def one_by_one(kept: list[str]) -> Write:
    """Let the driver read one partition after another, each by a job of its own."""
    return lambda batch, _: kept.extend(row.word for row in batch.toLocalIterator())


def sent(kept: list[str]) -> Write:
    """Send the batch to every task, where it is joined."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        letters = batch.sparkSession.createDataFrame([("a",), ("b",), ("c",)], "word string")
        kept.extend(row.word for row in letters.join(sql.broadcast(batch), "word").collect())

    return write


def retried(kept: list[str]) -> Write:
    """Let each task fail once behind its last row."""

    # within: a worker cannot import this module
    def fail_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if not context.attemptNumber():
            raise OSError("the disk is away")

    return lambda batch, _: kept.extend(
        row.word for row in batch.mapInArrow(fail_first, batch.schema).collect()
    )


MANNERS = (collected, twice, persisted, coalesced, grown, one_by_one, sent, retried)


@pytest.mark.parametrize(("name", "manner"), list(zip(WRITTEN, MANNERS, strict=True)))
def test_whatever_reads_all_rows_of_a_batch_is_acked(
    world: StreamWorld, name: str, manner: Callable[[list[str]], Write], drains: list[DataFrame]
) -> None:
    """Rows lie in one partition of four: the others are empty, and tell nothing."""
    kept: list[str] = []
    world.produce(name, "a", "bad")
    rows = words(world, name).repartition(4, "word")
    with world.running(name, rows, manner(kept)) as query:
        world.wait_for(name, 2, query)
        world.produce(name, "b", "c")
        found = world.wait_for(name, 4, query)
    assert (found.acked, set(found.failed)) == ({0, 2, 3}, {1})
    # b and c are of two partitions: either may come first, in a batch of its own
    assert (kept[0], sorted(kept)) == ("a", ["a", "b", "c"])
    assert drains


def kept_in_part(batch: DataFrame, _batch_id: int) -> None:
    """Take one row of what Spark keeps: it keeps the whole partition."""
    cached = batch.persist()
    cached.take(1)
    cached.unpersist()


def doubled(batch: DataFrame, _batch_id: int) -> None:
    """Let many tasks read a row each, of partitions that stand in the plan twice."""
    batch.union(batch).limit(1).write.format("noop").mode("overwrite").save()


def halves(batch: DataFrame, _batch_id: int) -> None:
    """Let as many tasks read as there are partitions, each to the first row of all: behind empty ones."""
    half = batch.coalesce(2)
    half.union(half).limit(1).write.format("noop").mode("overwrite").save()


def first_of_each(batch: DataFrame, _batch_id: int) -> None:
    """Let each task read a few rows of its partition, which has more than its buffers hold."""
    batch.foreachPartition(lambda rows: list(islice(rows, 3)))  # type: ignore[arg-type]


def test_a_task_that_stops_early_in_every_partition_stops_the_query(world: StreamWorld) -> None:
    """Rule 3: a partition that was begun is not read."""
    numbers = sql.explode(sql.sequence(sql.lit(0), sql.lit(400_000)))
    rows = words(world, "begun").select("word", numbers.alias("number")).repartition(2, "number")
    world.produce("begun", "a", "b")
    assert stopped(world, "begun", rows, first_of_each).said == 0


def test_no_row_goes_through_python_to_be_counted(world: StreamWorld) -> None:
    """What the function gets is an RDD of Spark's, and no operator is behind it."""
    seen: list[bool] = []
    world.produce("bolted", "a b c", "d e f")

    def write(batch: DataFrame, _batch_id: int) -> None:
        seen.append(are_of_batch(batch))
        batch.collect()

    with world.running("bolted", words(world, "bolted").repartition(3, "word"), write) as query:
        assert world.wait_for("bolted", 2, query).acked == {0, 1}
    assert set(seen) == {drain.CONTINUES_PARTITIONS}


def test_where_spark_cannot_continue_a_partition_a_filter_tells_what_was_read(
    world: StreamWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "CONTINUES_PARTITIONS", False)
    kept: list[str] = []
    for name in ("filtered", "by-filter"):
        world.produce(name, "a b c d e f", "g h i j k")
    with world.running("filtered", words(world, "filtered").repartition(3), collected(kept)) as query:
        assert world.wait_for("filtered", 2, query).acked == {0, 1}
    assert sorted(kept) == list("abcdefghijk")
    rows = words(world, "by-filter").repartition(3, "word")
    assert stopped(world, "by-filter", rows, lambda batch, _: batch.take(1)).said == 0


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("first-one", lambda batch, _: next(batch.toLocalIterator())),
        ("taken", lambda batch, _: batch.take(1)),
        ("kept", kept_in_part),
        ("doubled", doubled),
    ],
)
def test_what_leaves_rows_unread_stops_the_query_by_name(world: StreamWorld, name: str, write: Write) -> None:
    """Rule 3: a part of a batch publishes nothing."""
    world.produce(name, "a b c d e f", "g h i j k")
    assert stopped(world, name, words(world, name).repartition(3, "word"), write).said == 0


def test_empty_partitions_do_not_stand_for_others(world: StreamWorld) -> None:
    """Rule 3: all rows lie in the last one of four; four tasks end an empty one, and none the last."""
    world.produce("halves", "a b c d e f", "g h i j k")
    numbered = words(world, "halves").withColumn("half", sql.length("word") + 2)
    rows = to_partitions(numbered, 4, "half").drop("half")
    assert stopped(world, "halves", rows, halves).said == 0


@pytest.mark.usefixtures("unplanned")
def test_what_leaves_rows_unread_stops_the_query_without_adaptive_execution_too(world: StreamWorld) -> None:
    """Rule 3: the bolts end for the first row that is read, so their reports are whole."""
    world.produce("unplanned", "a b c d e f", "g h i j k")
    rows = words(world, "unplanned").repartition(3, "word")
    assert stopped(world, "unplanned", rows, lambda batch, _: batch.take(1)).said == 0


def test_a_batch_that_is_run_again_is_read_anew(world: StreamWorld) -> None:
    """What the run before has read of it does not count."""
    world.produce("again", "a b c d e f", "g h i j k")
    rows = words(world, "again").repartition(3, "word")

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.collect()
        raise RuntimeError("the database is away")

    with world.running("again", rows, write) as query, pytest.raises(StreamingQueryException, match="away"):
        query.awaitTermination(DEADLINE_S)
    assert not [each for each, _ in Application.of(world.spark).ledger.accumulator.value if query.id in each]
    assert stopped(world, "again", rows, lambda batch, _: batch.take(1)).said == 0
    with world.running("again", rows) as query:
        assert world.wait_for("again", 2, query).acked == {0, 1}


def test_a_sink_of_one_run_after_another_follows_the_rows_of_each(
    world: StreamWorld, drains: list[DataFrame]
) -> None:
    """It judges a run by the plan of its own query."""
    rows = words(world, "shared").repartition(3, "word")
    write = spout.sink(lambda batch, _: batch.collect())
    for count in (2, 4):
        drains.clear()
        world.produce("shared", "a b", "c d")
        with world.running("shared", rows, write) as query:
            assert world.wait_for("shared", count, query).acked == set(range(count))
        assert drains


def test_a_function_that_reads_nothing_skips_its_batch(world: StreamWorld) -> None:
    """As it does where nothing is shuffled."""
    world.produce("nothing", "a", "b")
    rows = words(world, "nothing").repartition(3)
    with world.running("nothing", rows, lambda _batch, _id: None) as query:
        found = world.wait_for("nothing", 2, query)
    assert {error for _, error, _ in found.failed.values()} == {"BATCH_SKIPPED"}
    assert found.acked == set()


def test_a_stream_that_spark_sends_to_every_task_is_acked_when_it_is_written(world: StreamWorld) -> None:
    """The table is joined with the stream: the bolts work in the stage that makes the broadcast."""
    world.produce("reading", "a hawk", "it hovers")
    rows = kinds(world).join(sql.broadcast(words(world, "reading")), "word").select("word")
    with world.running("reading", rows) as query:
        assert world.wait_for("reading", 2, query).acked == {0, 1}
    assert sorted(world.rows["reading"]) == [("hawk",), ("it",)]


def test_a_stateful_aggregate_is_acked_when_its_rows_are_written(world: StreamWorld) -> None:
    """Spark runs it without adaptive execution, as it did before there was a drain."""
    world.produce("counted", "a b a", "b bad")
    kept: list[tuple[object, ...]] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        kept.extend(tuple(row) for row in batch.collect())

    counts = words(world, "counted").groupBy("word").count()
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(spout.sink(write))
        .option("checkpointLocation", str(world.folder / "counted"))
        .start()
    )
    try:
        found = world.wait_for("counted", 2, query)
    finally:
        query.stop()
    assert (found.acked, set(found.failed)) == ({0}, {1})
    assert sorted(kept) == [("a", 2), ("b", 1)]


def grouped(world: StreamWorld, name: str) -> DataFrame:
    """Put a bolt behind a shuffle."""
    return words(world, name).transform(spout.bolt(Keep(), name="keep", grouping=spout.fields("word")))


def broadcast(world: StreamWorld, name: str) -> DataFrame:
    """Join with a table that is sent to every task."""
    return words(world, name).join(sql.broadcast(kinds(world)), "word").select("word")


@pytest.mark.parametrize(("name", "build"), [("stayed", broadcast), ("dealt", grouped)])
def test_where_nothing_is_shuffled_behind_the_last_bolt_there_is_no_drain(
    world: StreamWorld, name: str, build: Callable[[StreamWorld, str], DataFrame], drains: list[DataFrame]
) -> None:
    """A shuffle in front of the last bolt costs nothing more, nor does a broadcast of something else."""
    world.produce(name, "a hawk", "it hovers")
    with world.running(name, build(world, name)) as query:
        assert world.wait_for(name, 2, query).acked == {0, 1}
    assert drains == []


def test_a_topology_whose_last_stage_is_behind_a_shuffle_has_no_drain(
    world: StreamWorld, drains: list[DataFrame]
) -> None:
    """Its stages have no names in Spark's plan; they are known by the rows that they read."""
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", world.topics, "staged", startingOffsets="earliest")
    builder.set_bolt("split", NoOrigin()).shuffle_grouping("lines")
    builder.set_bolt("keep", Keep(), parallelism=2).fields_grouping("split", "word")
    world.produce("staged", "a hawk", "it hovers")
    kept: list[str] = []
    running = builder.submit(world.spark, sink=collected(kept))
    try:
        assert running.query is not None
        assert world.wait_for("staged", 2, running.query).acked == {0, 1}
    finally:
        running.kill()
    assert (sorted(kept), drains) == (["a", "hawk", "hovers", "it"], [])
