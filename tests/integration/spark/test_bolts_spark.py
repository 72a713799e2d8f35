"""Bolts in a real Spark on a real broker: what is acked, failed and left open, judged by the ack topics."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from logging import LogRecord
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import spout
from acker.errors import UsageError
from spout.local.embedded import free_port
from spout.streaming.application import Application
from spout.streaming.frames import node_of
from spout.tuples.columns import ANCHOR
from tests.support.bolts.sample_bolts import Count, Keep, NoOrigin, Pairs, Seen, Split, Upper, place_in
from tests.support.brokers import Broker
from tests.support.monitoring import expressions, metrics_named
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

INPUTS = ("chain", "joined", "loose", "taken", "twice", "skipped", "branches", "noop", "bare",
          "parted", "first", "counted", "cut", "limited", "shown", "named", "again", "sparks",
          "pandas", "switched", "threaded", "pooled", "handed")  # fmt: skip


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run one acker for them."""
    folder = tmp_path_factory.mktemp("bolts")
    config = config_of(folder, broker, INPUTS)
    with stream_world(spark, config, "acker") as made:
        yield made


def test_a_chain_of_narrow_bolts_acks_what_went_through_and_fails_the_rest_by_name(
    world: StreamWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """S82, S84: inside the read task; the row identity is the origin of the record and the ordinal."""
    lines = ("a b", "c bad", "d worse", "")
    world.produce("chain", *lines)
    frame = world.read("chain").transform(spout.bolt(Split(), name="split")).transform(spout.bolt(Upper()))
    with world.running("chain", frame) as query:
        found = world.wait_for("chain", 4, query)
    topic = world.topics.input("chain").topic
    assert found.acked == {0, 3}
    place = place_in(Split, 'raise ValueError("a bad word")')
    assert found.failed == {
        1: ("split", "ValueError", f"a bad word ({place})"),
        2: ("Upper", "", "a worse word"),
    }
    [traced] = [text for text in map(LogRecord.getMessage, caplog.records) if text.startswith("bolt_raised ")]
    assert f"operator=split error=ValueError place={place} batch=" in traced
    assert traced.endswith("ValueError: a bad word")
    assert sorted(world.rows["chain"]) == [
        ("A", f"{topic}/0@0", 0),
        ("B", f"{topic}/0@0", 1),
        ("D", f"{topic}/0@1", 0),
    ]


def test_trees_that_cross_a_grouping_complete_when_both_bolts_acked(
    world: StreamWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """S28, S31, S81: what one of them forgets leaves its roots open, and what fails fails its roots only."""
    world.produce("joined", "a b a", "b lost", "c forget", "a worst", "c a")
    counted = (
        world.read("joined")
        .transform(spout.bolt(Pairs(), name="pairs"))
        .transform(spout.bolt(Count(), name="count", grouping=spout.fields("word", partitions=3)))
    )
    with world.running("joined", counted) as query:
        found = world.wait_for("joined", 5, query)
    assert (found.acked, found.open) == ({0, 4}, {1, 2})
    assert found.failed == {3: ("count", "", "the worst word")}
    topic = world.topics.input("joined").topic
    told = [each.getMessage().partition(":")[0] for each in caplog.records]
    assert {f"left_open operator={bolt} roots=1 first={topic}/{at}" for bolt, at in (
        ("pairs", "0@1"), ("count", "1@0"),
    )} == {each for each in told if each.startswith("left_open ")}  # fmt: skip
    total: Counter[object] = Counter()
    for word, count in world.rows["joined"]:
        total[word] += int(str(count))
    assert total == {"a": 4, "b": 2, "c": 2, "forget": 1}


def test_sparks_own_operators_may_stand_before_and_between_bolts(world: StreamWorld) -> None:
    """What they filter is acked with its batch; what bolts behind them fail is failed."""
    world.produce("loose", "a bb", "no", "ccc worse", "bad", "dd")
    words = (
        world.read("loose")
        .filter(sql.col("value") != b"no")
        .withColumn("value", sql.encode(sql.trim(sql.decode("value", "UTF-8")), "UTF-8"))
        .transform(spout.bolt(NoOrigin(), name="split", anchored=True))
        .filter(sql.length("word") > 1)
        .transform(spout.bolt(Keep(), name="keep", grouping=spout.shuffle()))
    )
    with world.running("loose", words) as query:
        found = world.wait_for("loose", 5, query)
    assert found.acked == {0, 1, 4}
    place = place_in(NoOrigin, 'raise ValueError("a bad word")')
    assert found.failed == {
        2: ("keep", "", "a worse word"),
        3: ("split", "ValueError", f"a bad word ({place})"),
    }
    assert sorted(world.rows["loose"]) == [("bb",), ("ccc",), ("dd",)]


def one_row(batch: DataFrame, _batch_id: int) -> None:
    """Look at a part of a batch."""
    batch.limit(1).collect()


def shown(batch: DataFrame, _batch_id: int) -> None:
    """Print a part of a batch."""
    batch.show()


def threaded(batch: DataFrame, _batch_id: int) -> None:
    """Read a batch in a thread, and once more."""
    thread = Thread(target=batch.collect)
    thread.start()
    thread.join()
    batch.collect()


def pooled(batch: DataFrame, _batch_id: int) -> None:
    """Read a batch in a pool alone, as who writes to several places does."""
    with ThreadPoolExecutor() as pool:
        pool.submit(batch.collect).result()


def test_sparks_sql_joins_with_tables_and_udfs_keep_working_behind_a_bolt(world: StreamWorld) -> None:
    """What an inner join leaves out is acked with its batch, as what a filter leaves out."""
    world.produce("sparks", "a hawk", "it hovers", "bad", "nobody knows this")
    kinds = world.spark.createDataFrame(
        [("hawk", "bird"), ("a", "article"), ("it", "pronoun")], "w string, kind string"
    )
    kinds.createOrReplaceTempView("kinds_of_words")
    shouted = sql.udf(lambda word: f"{word}!", "string")
    world.read("sparks").transform(spout.bolt(NoOrigin(), name="split")).withColumn(
        "loud", shouted("word")
    ).createOrReplaceTempView("words_behind_a_bolt")
    rows = world.spark.sql(
        "SELECT /*+ BROADCAST(kinds_of_words) */ kind, loud"
        " FROM words_behind_a_bolt JOIN kinds_of_words ON word = w WHERE length(word) > 1"
    )
    with world.running("sparks", rows) as query:
        found = world.wait_for("sparks", 4, query)
    assert (found.acked, set(found.failed)) == ({0, 1, 3}, {2})
    assert sorted(world.rows["sparks"]) == [("bird", "hawk!"), ("pronoun", "it!")]


def test_a_sink_may_group_join_and_apply_pandas_to_the_rows_of_a_batch(world: StreamWorld) -> None:
    """They are rows of a batch like any other; all of it is acked when the sink has returned."""
    world.produce("pandas", "a b a", "bad", "b")
    kept: Counter[str] = Counter()

    def write(batch: DataFrame, _batch_id: int) -> None:
        def count(rows: Any) -> Any:
            return rows[["word"]].head(1).assign(times=len(rows))

        counted = batch.groupBy("word").applyInPandas(count, "word string, times long")
        for row in batch.dropDuplicates(["word"]).join(counted, "word").collect():
            kept[row.word] += row.times

    words = world.read("pandas").transform(spout.bolt(NoOrigin(), name="split"))
    with world.running("pandas", words, write) as query:
        found = world.wait_for("pandas", 3, query)
    assert (found.acked, set(found.failed)) == ({0, 2}, {1})
    assert kept == {"a": 2, "b": 2}


def exploded(rows: DataFrame) -> DataFrame:
    """Repeat every row."""
    return rows.withColumn("copy", sql.explode(sql.array(sql.lit(1), sql.lit(2))))


@pytest.mark.parametrize(
    ("name", "build", "write", "says"),
    [
        ("taken", lambda rows: rows, lambda batch, _: batch.take(1), "part"),
        ("limited", lambda rows: rows, one_row, "part"),
        ("shown", lambda rows: rows, shown, "part"),
        ("threaded", lambda rows: rows, threaded, "InheritableThread"),
        ("pooled", lambda rows: rows, pooled, "InheritableThread"),
        ("twice", exploded, None, "'split' received a root twice"),
        ("branches", lambda rows: rows.union(rows), None, "'split' received a root twice"),
    ],
)
def test_what_would_ack_without_work_stops_the_query(
    world: StreamWorld,
    name: str,
    build: Callable[[DataFrame], DataFrame],
    write: Callable[[DataFrame, int], object] | None,
    says: str,
) -> None:
    """Rule 3: a part of a batch, or a root that comes twice, publishes nothing."""
    world.produce(name, *["a b"] * 3_000)
    frame = build(world.read(name)).transform(spout.bolt(NoOrigin(), name="split"))
    with world.running(name, frame, write) as query, pytest.raises(StreamingQueryException, match=says):
        query.awaitTermination(DEADLINE_S)
    assert world.published(name).said == 0
    assert query.id not in {each for each, _ in Application.of(world.spark).ledger.accumulator.value}


def test_a_sink_writes_in_a_pool_that_is_told_the_batch(world: StreamWorld) -> None:
    world.produce("handed", "a b", "bad", "b")
    kept: Counter[str] = Counter()

    def write(batch: DataFrame, _batch_id: int) -> None:
        with ThreadPoolExecutor() as pool:
            for row in pool.submit(inheritable_thread_target(batch.sparkSession)(batch.collect)).result():
                kept[row.word] += 1

    words = world.read("handed").transform(spout.bolt(NoOrigin(), name="split"))
    with world.running("handed", words, write) as query:
        found = world.wait_for("handed", 3, query)
    assert (found.acked, set(found.failed)) == ({0, 2}, {1})
    assert kept == {"a": 1, "b": 2}


def test_a_limit_before_the_sink_stops_the_query_before_anything_is_written(world: StreamWorld) -> None:
    """Rule 3: read tasks of few rows end although a limit drops most of what they emit."""
    world.produce("cut", *["a"] * 8)
    frame = world.read("cut").transform(spout.bolt(NoOrigin(), name="split")).limit(3)
    says = "GlobalLimit stands behind a tracked stream"
    with world.running("cut", frame) as query, pytest.raises(StreamingQueryException, match=says):
        query.awaitTermination(DEADLINE_S)
    assert world.rows["cut"] == []
    assert world.published("cut").said == 0
    sunk = Application.of(world.spark).sunk
    assert query.runId not in sunk, "nothing of it is published here"
    whole = world.read("cut").transform(spout.bolt(NoOrigin(), name="split"))
    with world.running("cut", whole) as query:
        assert world.wait_for("cut", 8, query).acked == set(range(8))
    assert query.runId in sunk


def test_a_batch_that_was_planned_untracked_runs_again_untracked_before_the_query_is_tracked(
    world: StreamWorld,
) -> None:
    """Its rows have no anchors, whichever way the query is started: the error of a bolt has the cure."""
    kept = world.rows.setdefault("switched", [])

    def rows(*, tracked: bool) -> DataFrame:
        read = spout.read_stream(
            world.spark, world.topics, "switched", tracked=tracked, startingOffsets="earliest"
        )
        return read.filter(sql.length("value") > 0).transform(spout.bolt(NoOrigin(), name="split"))

    def breaks(batch: DataFrame, _batch_id: int) -> None:
        raise ConnectionError("the table is away")

    world.produce("switched", "a", "b")
    untracked, tracked = rows(tracked=False), rows(tracked=True)
    for frame, write, says in ((untracked, breaks, "the table is away"), (tracked, None, "tracked=False")):
        with (
            world.running("switched", frame, write) as query,
            pytest.raises(StreamingQueryException, match=says),
        ):
            query.awaitTermination(DEADLINE_S)
    with world.running("switched", untracked) as query:
        query.processAllAvailable()
    assert sorted(kept) == [("a",), ("b",)]
    world.produce("switched", "c", "d")
    with world.running("switched", tracked) as query:
        assert world.wait_for("switched", 2, query).acked == {2, 3}
    assert sorted(kept) == [("a",), ("b",), ("c",), ("d",)]


def shuffled(rows: DataFrame, times: int) -> DataFrame:
    """Put bolts of one name behind shuffles of Spark's."""
    for _ in range(times):
        rows = rows.repartition(2).transform(spout.bolt(Keep(), name="keep", anchored=True))
    return rows.drop(ANCHOR)


def test_two_operators_of_one_name_stop_the_query_by_their_name(world: StreamWorld) -> None:
    """Rule 3: one would count as another evaluation of the other, and what it left open as acked."""
    world.produce("named", "a", "b")
    words = world.read("named").transform(spout.bolt(NoOrigin(), name="split", anchored=True)).select("*")
    says = r"two operators of the query are called 'keep'.*name="
    twice = shuffled(words, 2)
    with world.running("named", twice) as query, pytest.raises(StreamingQueryException, match=says):
        query.awaitTermination(DEADLINE_S)
    within = world.read("named").transform(spout.bolt(Keep(), name="keep", anchored=True)).select("*")
    for frame in (twice, shuffled(within, 1)):
        with pytest.raises(UsageError, match=says):
            spout.start(frame.writeStream.format("noop"))
    assert world.rows["named"] == []
    assert world.published("named").said == 0


def test_a_frame_that_is_built_again_or_used_twice_has_one_operator_of_a_name(world: StreamWorld) -> None:
    """What was thrown away stands in no plan, and one frame may run in one query after another."""
    world.produce("again", "a", "b")
    words = world.read("again").transform(spout.bolt(NoOrigin(), name="split", anchored=True)).select("*")
    shuffled(words, 1)
    kept = shuffled(words, 1)
    with world.running("again", kept) as query:
        assert world.wait_for("again", 2, query).acked == {0, 1}
    world.produce("again", "c", "d")
    with world.running("again", kept) as query:
        assert world.wait_for("again", 4, query).acked == {0, 1, 2, 3}
    assert set(world.rows["again"]) == {("a",), ("b",), ("c",), ("d",)}  # a batch may run again when stopped


@pytest.mark.parametrize(
    ("name", "anchored", "says"),
    [
        ("first", False, r"read one stream more than once; .*a spout\.TopologyBuilder"),
        ("parted", True, r"bolt 'left' was not evaluated to its end .*union .*a spout\.TopologyBuilder"),
    ],
)
def test_two_bolts_that_read_one_stream_stop_the_query_with_the_way_out(
    world: StreamWorld, name: str, anchored: bool, says: str
) -> None:
    """Rule 3: each would be the first bolt of every root; a topology has one spout before both."""
    world.produce(name, "a", "b")
    words = world.read(name).transform(spout.bolt(NoOrigin(), name="split", anchored=anchored))
    rows = words.select("*") if anchored else words
    left, right = (rows.transform(spout.bolt(Keep(), name=each)) for each in ("left", "right"))
    with (
        world.running(name, left.union(right)) as query,
        pytest.raises(StreamingQueryException, match=says),
    ):
        query.awaitTermination(DEADLINE_S)
    assert world.published(name).said == 0


def test_what_bolts_do_is_counted_shown_to_hooks_and_told_to_prometheus(world: StreamWorld) -> None:
    """S74: in the read task and behind Spark's operators; hooks work in Spark's workers."""
    seen = world.folder / "seen.txt"
    world.produce("counted", "a b", "bad", "b b worse")
    words = (
        world.read("counted")
        .transform(spout.bolt(NoOrigin(), name="split", anchored=True, hooks=[Seen(str(seen))]))
        .filter("word <> 'a'")
        .transform(spout.bolt(Keep(), name="keep"))
    )
    with world.running("counted", words) as query:
        world.wait_for("counted", 3, query)
        # told now and then, and no more when the query has ended
        eventually(lambda: (told := spout.stream_status(words).spout) is not None and told.emitted == 3)
    # what was published is counted next
    eventually(lambda: spout.stream_status(words).count("executed", "keep") == 4)
    status = spout.stream_status(words)
    told = {
        (name, what): status.count(what, name)
        for name in ("spout", "split", "keep")
        for what in ("emitted", "transferred", "executed", "acked", "failed")
    }
    assert {key: count for key, count in told.items() if count} == {
        ("spout", "emitted"): 3, ("spout", "transferred"): 3,
        ("split", "executed"): 3, ("split", "acked"): 2, ("split", "failed"): 1, ("split", "emitted"): 5,
        ("keep", "executed"): 4, ("keep", "acked"): 3, ("keep", "failed"): 1, ("keep", "emitted"): 3,
    }  # fmt: skip
    assert all(measure.total_ns for of, measure in status.counts.items() if of.what == "executed")
    assert (status.group, status.late) == (world.topics.input("counted").group, 0)
    assert status.spout is not None
    assert status.spout.emitted == 3
    assert Counter(seen.read_text().split()) == {"emit": 5, "ack": 2, "execute": 2, "fail:ValueError": 1}

    port = free_port()
    spout.serve_metrics(world.spark, port)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode().splitlines()
    labels = f'group="{status.group}",operator="keep",source="spark",stream="default"'
    assert f"windhover_stream_acked_total{{{labels}}} 3.0" in metrics
    series = {line.partition("{")[0] for line in metrics}
    of_panels = {name for each in expressions() for name in metrics_named(each)}
    assert {name for name in of_panels if name.startswith("windhover_stream_")} <= series
    assert f'windhover_stream_late_total{{group="{status.group}"}} 0.0' in metrics
    assert f'windhover_stream_roots_emitted_total{{group="{status.group}"}} 3.0' in metrics


@pytest.mark.parametrize("name", ["noop", "bare"])
def test_a_tracked_stream_that_is_written_past_the_sink_stops_its_query(
    world: StreamWorld, name: str
) -> None:
    """Else nothing of it would ever be acked, and all of it would come again until it is dead letters."""
    world.produce(name, "a b", "c")
    writer = world.read(name).transform(spout.bolt(NoOrigin(), name="split")).writeStream
    writer = (
        writer.format("noop") if name == "noop" else writer.foreachBatch(lambda batch, _: batch.collect())
    )
    query = writer.option("checkpointLocation", str(world.folder / name)).start()
    group = world.topics.input(name).group
    says = rf"group {group}: .*write it with foreachBatch\(spout\.sink\(write\)\)"
    with pytest.raises(StreamingQueryException, match=says):
        assert query.awaitTermination(DEADLINE_S), query.stop()
    assert world.published(name).said == 0


def test_a_sink_that_skips_a_batch_fails_its_roots_unless_it_is_deterministic(world: StreamWorld) -> None:
    """It says so, or evaluates nothing; and two actions evaluate the bolts twice and are published once."""

    manners = ["evaluates nothing"]

    def write(batch: DataFrame, batch_id: int) -> None:
        if manners[-1] == "evaluates nothing":
            return  # Spark has read the batch by itself, for the shuffle
        words = batch.count()
        if manners[-1] == "says so" and words:
            spout.skipped(batch_id)
        else:
            assert len(batch.collect()) == words

    frame = (
        world.read("skipped")
        .transform(spout.bolt(NoOrigin(), name="split"))
        .transform(spout.bolt(Keep(), name="keep", grouping=spout.fields("word")))
    )
    with world.running("skipped", frame, write) as query:
        world.produce("skipped", "a b", "c")
        world.wait_for("skipped", 2, query)
        manners.append("says so")
        world.produce("skipped", "d", "e f")
        world.wait_for("skipped", 4, query)
        manners.append("evaluates twice")
        world.produce("skipped", "g", "h")
        found = world.wait_for("skipped", 6, query)
    assert {error for _, error, _ in found.failed.values()} == {"BATCH_SKIPPED"}
    assert (found.acked, sorted(found.failed)) == ({4, 5}, [0, 1, 2, 3])


def test_a_bolt_that_lost_the_hidden_column_is_refused_when_it_is_attached(world: StreamWorld) -> None:
    rows = world.read("chain")
    with pytest.raises(UsageError, match="dropped the hidden column"):
        rows.select("value").transform(spout.bolt(NoOrigin()))
    with pytest.raises(UsageError, match="two bolts are called"):
        rows.transform(spout.bolt(Keep())).transform(spout.bolt(Keep()))


def test_bolts_apply_to_plain_dataframes(spark: SparkSession) -> None:
    """Nothing is tracked there: an exception ends the job."""
    lines = spark.createDataFrame([(b"a b",), (b"c",)], "value binary")
    words = lines.transform(spout.bolt(NoOrigin())).transform(spout.bolt(Keep()))
    assert sorted(row.word for row in words.collect()) == ["a", "b", "c"]


def test_a_stream_is_not_ours_because_something_in_it_is_called_windhover(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("value AS windhover", "'windhover' AS word")
    assert rows.transform(spout.bolt(Keep())).isStreaming


def test_a_frame_is_remembered_beside_it_and_no_longer_than_it_lives(spark: SparkSession) -> None:
    plain = spark.createDataFrame([(b"a b",)], "value binary")
    words = plain.transform(spout.bolt(NoOrigin()))
    assert not [name for each in (words, spark.sparkContext) for name in vars(each) if "windhover" in name]
    node = node_of(words)
    assert node is not None
    assert node.names == ("NoOrigin",)
    assert node_of(words.select("word")) is None
    assert node_of(words.transform(spout.bolt(Keep()))) is not None
    last = weakref.ref(words)
    del words
    gc.collect()
    assert last() is None
