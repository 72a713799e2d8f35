"""Spark's own joins of two topics in a real Spark: both sides read one stream, and its rows ack both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import spout
from acker.config.topics import load_topics
from acker.errors import UsageError
from acker.wire.causes import LATE
from spout.held.holding import _rounded_up_ms
from spout.tuples.anchor_columns import ANCHORS
from spout.tuples.columns import ANCHOR
from tests.support.bolts.sample_bolts import Pays
from tests.support.brokers import Broker
from tests.support.worlds.stream_worlds import (
    DEADLINE_S,
    VerdictWorld,
    config_of,
    read_held,
    running,
    serving,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

PAIRS = ("inner", "outer", "again", "down", "lost", "many", "both", "retried", "refused", "other")
"""Each is a group with two topics: what was bought, and what was paid."""

OUT = "bought string, paid string"
WITHIN_A_MINUTE = (
    "bought = paid AND paid_at >= bought_at - INTERVAL 1 MINUTE AND paid_at <= bought_at + INTERVAL 1 MINUTE"
)
ROWS = ("bought", "paid", "coalesce(int(bought_copy), 0) + coalesce(int(paid_copy), 0) AS copies", ANCHOR)
INPUT = (
    '  {name}-{side}: {{{{id: {id}, topic: "{{prefix}}{name}-{side}", group: "{{prefix}}{name}",'
    " partitions: 2, timeout: 300s, retry: {{{{initial: 100ms, attempts: 2}}}}}}}}"
)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("joins")
    named = [(name, side) for name in PAIRS for side in ("bought", "paid")]
    inputs = [INPUT.format(id=number, name=name, side=side) for number, (name, side) in enumerate(named, 1)]
    config = config_of(folder, broker, (), *inputs)
    made = VerdictWorld(load_topics(config, {}), spark, folder)
    with serving(config, "acker", "replay"):
        yield made
    made.close()


def lines_of(world: VerdictWorld, name: str) -> DataFrame:
    """Read both topics of a pair: lines, "10:00:03 id"; a copy's topic has the name of its own in it."""
    parts = "split(CAST(value AS STRING), ' ')"
    return read_held(world, f"{name}-bought", f"{name}-paid").selectExpr(
        f"contains(topic, '{name}-paid') AS is_payment",
        f"to_timestamp(concat('2026-11-21T', {parts}[0])) AS at",
        f"{parts}[1] AS id",
        "endswith(topic, '.replay') AS is_copy",
        ANCHOR,
    )


def side(lines: DataFrame, name: str, condition: str) -> DataFrame:
    """Hold what belongs to a side."""
    rows = lines.filter(condition).selectExpr(
        f"at AS {name}_at", f"id AS {name}", f"is_copy AS {name}_copy", ANCHOR
    )
    return rows.transform(spout.hold(f"{name}_at", late="fail", name=name))


def watched(rows: DataFrame, name: str) -> DataFrame:
    """Let a watermark pass what is older than ten seconds."""
    return rows.withWatermark(f"{name}_at", "10 seconds")


def pairs(world: VerdictWorld, name: str, how: str = "inner") -> DataFrame:
    """Join purchases with what was paid for them within a minute."""
    lines = lines_of(world, name)
    bought = watched(side(lines, "bought", "NOT is_payment AND id <> 'nothing'"), "bought")
    paid = watched(side(lines, "paid", "is_payment"), "paid")
    rows = bought.join(paid, sql.expr(WITHIN_A_MINUTE), how)
    rows = rows.withColumn("anchors", spout.join_anchors(bought, paid)).drop(ANCHOR)
    return rows.withColumnRenamed("anchors", ANCHOR).selectExpr(*ROWS).transform(spout.ack_anchors(Pays()))


def verdicts(world: VerdictWorld, name: str, *, replays: bool = False) -> dict[tuple[str, int, int], str]:
    """Return what became of the records of a pair, or of their copies, by side, partition and offset."""
    return {
        (side, *place): why
        for side in ("bought", "paid")
        for place, why in world.verdicts(f"{name}-{side}", replays=replays).items()
    }


def pending(rows: DataFrame) -> int | None:
    """Return how many roots the planning process holds pending."""
    planner = spout.stream_status(rows).spout
    return None if planner is None else planner.pending


def written(world: VerdictWorld, name: str) -> set[tuple[object, ...]]:
    """Return the rows in the files of a pair; some have a null, and no order."""
    rows = world.spark.read.schema(OUT).parquet(str(world.folder / f"{name}-out"))
    return {tuple(row) for row in rows.collect()}


def published(world: VerdictWorld, name: str) -> set[int]:
    """Return the lines of a pair of which it was published that they stay open."""
    return world.published(f"{name}-bought").open


def test_a_row_of_an_inner_join_acks_both_sides_and_nothing_stays_open(world: VerdictWorld) -> None:
    """S29, S31, P52: within one batch and across two; what neither side takes is acked with its batch."""
    world.produce("inner-bought", "10:00:01 a", "10:00:02 b", "10:00:02 nothing")
    world.produce("inner-paid", "10:00:03 a")
    rows = pairs(world, "inner")
    now = [("bought", 0, 0), ("bought", 0, 1), ("paid", 0, 0)]
    with running(world, "inner", rows) as query:
        wait_for(query, lambda: verdicts(world, "inner") == dict.fromkeys(now, "ACKED"))
        world.produce("inner-paid", "10:00:05 b")
        then = [*now, ("bought", 1, 0), ("paid", 0, 1)]
        wait_for(query, lambda: verdicts(world, "inner") == dict.fromkeys(then, "ACKED"))
        wait_for(query, lambda: pending(rows) == 0)
    assert world.written("inner", OUT) == [("a", "a"), ("b", "b")]
    assert spout.stream_status(rows).count("emitted", "spout") == 5, "both sides read them"


def test_the_bolt_decides_about_the_side_of_an_outer_join_that_found_no_other(world: VerdictWorld) -> None:
    """S29, S86: a watermark lets them go; a purchase fails by name, and is too late when it comes again."""
    world.produce("outer-bought", "10:00:01 unpaid", "10:00:02 a")
    world.produce("outer-paid", "10:00:03 gift", "10:00:03 a")
    rows = pairs(world, "outer", "full_outer")
    with running(world, "outer", rows) as query:
        wait_for(query, lambda: len(verdicts(world, "outer")) == 2)
        world.produce("outer-bought", "10:10:00 z")
        world.produce("outer-paid", "10:10:00 z")
        wait_for(query, lambda: verdicts(world, "outer", replays=True))
        wait_for(query, lambda: pending(rows) == 0)
    found = verdicts(world, "outer")
    assert found.pop(("bought", 0, 0)) == "Pays: a purchase without a payment"
    assert set(found.values()) == {"ACKED"}
    assert len(found) == 5
    assert verdicts(world, "outer", replays=True) == {("bought", 0, 0): f"bought: {LATE}"}
    assert written(world, "outer") == {("a", "a"), ("z", "z"), (None, "gift")}


def test_a_row_that_fails_replays_both_sides_and_both_are_acked_when_they_come_again(
    world: VerdictWorld,
) -> None:
    """S29, S78: the copies meet each other, and what the state has of the first attempt."""
    world.produce("again-bought", "10:00:01 flaky")
    world.produce("again-paid", "10:00:02 flaky")
    rows = pairs(world, "again")
    both = [("bought", 0, 0), ("paid", 0, 0)]
    with running(world, "again", rows) as query:
        wait_for(query, lambda: verdicts(world, "again", replays=True) == dict.fromkeys(both, "ACKED"))
        wait_for(query, lambda: pending(rows) == 0)
    assert verdicts(world, "again") == dict.fromkeys(both, "Pays: ValueError")
    assert set(world.written("again", OUT)) == {("flaky", "flaky")}


def test_a_side_waits_in_the_checkpoint_for_the_other_one_while_the_query_is_down(
    world: VerdictWorld,
) -> None:
    """S31, P52: the same session goes on, so nothing is put back."""
    world.produce("down-bought", "10:00:01 a")
    with running(world, "down", pairs(world, "down")) as query:
        wait_for(query, lambda: published(world, "down") == {0})
    assert verdicts(world, "down") == {}
    world.produce("down-paid", "10:00:02 a")
    rows = pairs(world, "down")
    both = [("bought", 0, 0), ("paid", 0, 0)]
    with running(world, "down", rows) as query:
        wait_for(query, lambda: verdicts(world, "down") == dict.fromkeys(both, "ACKED"))
        wait_for(query, lambda: pending(rows) == 0)
    assert world.written("down", OUT) == [("a", "a")]
    assert world.copies("down-bought") == []


def test_a_side_whose_checkpoint_is_lost_is_put_back_and_meets_the_other_one(world: VerdictWorld) -> None:
    """Rule 9: nothing of it was acked, so the session that takes over abandons it, and it is replayed."""
    world.produce("lost-bought", "10:00:01 a")
    with running(world, "lost", pairs(world, "lost")) as query:
        wait_for(query, lambda: published(world, "lost") == {0})
    world.produce("lost-paid", "10:00:02 a")
    rows = pairs(world, "lost")
    with running(world, "found", rows) as query:
        wait_for(query, lambda: verdicts(world, "lost", replays=True) == {("bought", 0, 0): "ACKED"})
        wait_for(query, lambda: pending(rows) == 0)
    assert verdicts(world, "lost")["paid", 0, 0] == "ACKED"
    assert world.copies("lost-bought") == ["10:00:01 a"]
    assert world.written("found", OUT) == [("a", "a")]


def test_a_tuple_that_several_rows_have_is_acked_once_in_a_batch_and_by_its_first_row(
    world: VerdictWorld,
) -> None:
    """Rule 3: two equal edges would cancel, and the purchase would time out."""
    world.produce("many-bought", "10:00:01 a")
    world.produce("many-paid", "10:00:02 a", "10:00:03 a")
    rows = pairs(world, "many")
    first = [("bought", 0, 0), ("paid", 0, 0), ("paid", 1, 0)]
    with running(world, "many", rows) as query:
        wait_for(query, lambda: verdicts(world, "many") == dict.fromkeys(first, "ACKED"))
        world.produce("many-paid", "10:00:04 a")
        wait_for(query, lambda: verdicts(world, "many").get(("paid", 0, 1)) == "ACKED")
        wait_for(query, lambda: pending(rows) == 0)
    assert world.written("many", OUT) == [("a", "a")] * 3


def test_a_record_that_both_sides_take_is_done_when_both_are(world: VerdictWorld) -> None:
    """Rule 3: each is the other's earlier or later one, and each waits once more for one that never comes."""
    lines = lines_of(world, "both")
    bought, paid = (watched(side(lines, name, "true"), name) for name in ("bought", "paid"))
    condition = f"{WITHIN_A_MINUTE} AND paid_at > bought_at"
    joined = bought.join(paid, sql.expr(condition), "full_outer")
    # the anchors of both sides are found by their places
    rows = joined.select("bought", "paid", sql.lit(0).alias("copies"), bought[ANCHOR], paid[ANCHOR])
    rows = rows.transform(spout.ack_anchors(Pays()))
    world.produce("both-bought", "10:00:01 a", "10:00:02 a")
    with running(world, "both", rows) as query:
        wait_for(query, lambda: published(world, "both") == {0, 1})
        assert world.written("both", OUT) == [("a", "a")]
        assert verdicts(world, "both") == {}
        world.produce("both-bought", "10:10:00 z")
        done = [("bought", 0, 0), ("bought", 1, 0)]
        wait_for(query, lambda: verdicts(world, "both") == dict.fromkeys(done, "ACKED"))
    assert {("a", None), (None, "a")} <= written(world, "both")


def test_a_task_of_one_side_that_is_tried_again_counts_once(world: VerdictWorld) -> None:
    """Rule 3: each side's first attempt has held its rows when it dies."""
    lines = lines_of(world, "retried")
    bought, paid = (
        watched(first_fails(side(lines, name, condition)), name)
        for name, condition in (("bought", "NOT is_payment"), ("paid", "is_payment"))
    )
    joined = bought.join(paid, sql.expr(WITHIN_A_MINUTE)).drop("bought_copy", "paid_copy")
    rows = joined.withColumn("copies", sql.lit(0)).transform(spout.ack_anchors(Pays()))
    world.produce("retried-bought", "10:00:01 a", "10:00:01 b")
    world.produce("retried-paid", "10:00:02 a")
    with running(world, "retried", rows) as query:
        wait_for(query, lambda: len(verdicts(world, "retried")) == 2)
        world.produce("retried-paid", "10:00:03 b")
        wait_for(query, lambda: len(verdicts(world, "retried")) == 4)
        wait_for(query, lambda: pending(rows) == 0)
    assert set(verdicts(world, "retried").values()) == {"ACKED"}


def first_fails(rows: DataFrame) -> DataFrame:
    """Let the first attempt of each task fail behind its last row."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and not context.attemptNumber():
            raise RuntimeError("the first attempt of a task")

    return rows.mapInArrow(run, rows.schema)


def joined_sides(world: VerdictWorld) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Return two sides that are held, and their join."""
    lines = lines_of(world, "refused")
    bought = watched(side(lines, "bought", "NOT is_payment"), "bought")
    paid = watched(side(lines, "paid", "is_payment"), "paid")
    return bought, paid, bought.join(paid, sql.expr(WITHIN_A_MINUTE))


def test_what_would_leave_a_side_open_or_ack_it_early_is_refused_by_name(world: VerdictWorld) -> None:
    """Rules 3 and 5: before anything runs, with the way out."""
    bought, paid, joined = joined_sides(world)
    with pytest.raises(UsageError, match=r"'Pays': the anchors of 'paid' do not reach.*join_anchors"):
        joined.select("bought", "paid", bought[ANCHOR]).transform(spout.ack_anchors(Pays()))
    with pytest.raises(UsageError, match=r"the anchors of 'paid' do not reach"):
        bought.join(paid, sql.expr(WITHIN_A_MINUTE), "left_semi").transform(spout.ack_anchors())
    for rows in (joined.drop(ANCHOR), joined.select("bought", spout.join_anchors(bought, paid))):
        with pytest.raises(UsageError, match=r"nothing acks what 'bought' and 'paid' hold.*ack_anchors"):
            world.start("refused", rows, "parquet")
    again = bought.selectExpr("bought_at AS paid_at", "bought AS paid", ANCHOR)
    twice = bought.join(again, sql.expr(WITHIN_A_MINUTE)).transform(spout.ack_anchors())
    with pytest.raises(UsageError, match=r"two branches stand behind one spout\.hold \('bought'\)"):
        world.start("refused", twice, "parquet")
    lines = lines_of(world, "refused")
    sides = side(lines, "bought", "NOT is_payment"), watched(side(lines, "paid", "is_payment"), "paid")
    half = sides[0].join(sides[1], sql.expr(WITHIN_A_MINUTE)).transform(spout.ack_anchors())
    with pytest.raises(UsageError, match=r"'bought': spout\.hold\(until=\.\.\.\) without a watermark"):
        world.start("refused", half, "parquet")
    left, right = bought.withColumnRenamed("bought", "id"), paid.withColumnRenamed("paid", "id")
    both = left.join(right, left["id"] == right["id"])
    with pytest.raises(UsageError, match="two columns called 'id'"):
        both.transform(spout.ack_anchors(Pays()))


def test_a_bolt_among_held_rows_is_refused(world: VerdictWorld) -> None:
    """It would have anchors that it cannot work on; the way out is what acks them."""
    bought, _, joined = joined_sides(world)
    for rows in (bought, joined):
        with pytest.raises(UsageError, match=r"'Pays' stands behind spout\.hold.*ack_anchors\(bolt\)"):
            rows.transform(spout.bolt(Pays()))


def test_a_side_that_is_not_held_is_refused(world: VerdictWorld) -> None:
    lines = lines_of(world, "refused")
    bought, paid = side(lines, "bought", "NOT is_payment"), lines.filter("is_payment")
    with pytest.raises(UsageError, match=r"the side with the columns is_payment.* is not held"):
        spout.join_anchors(bought, paid)
    with pytest.raises(UsageError, match="carry no anchors that Spark's state may keep"):
        bought.join(paid, sql.expr("bought = id")).transform(spout.ack_anchors())
    with pytest.raises(UsageError, match=r"join_anchors\(left, right\)"):
        spout.join_anchors()
    joined = bought.join(side(lines, "paid", "is_payment"), sql.expr("bought = paid"))
    with pytest.raises(UsageError, match="several columns of anchors"):
        spout.join_anchors(joined)


def test_two_groups_and_two_sources_of_one_stream_are_refused(world: VerdictWorld) -> None:
    """A query publishes one stream; two planning processes of one group would end each other."""
    bought = side(lines_of(world, "refused"), "bought", "NOT is_payment")
    paid = side(lines_of(world, "other"), "paid", "is_payment")
    rows = bought.join(paid, sql.expr("bought = paid")).select(
        bought["bought"], spout.join_anchors(bought, paid)
    )
    with pytest.raises(UsageError, match=r"reads 2 tracked streams \(groups .*other, .*refused\)"):
        world.start("refused", rows.transform(spout.ack_anchors()), "parquet")
    lines = read_held(world, "refused-bought", "refused-paid")
    itself = lines.alias("a").join(lines.alias("b"), sql.expr("a.key = b.key")).select("a.key")
    with pytest.raises(UsageError, match="one read_stream would be read more than once: by two sources"):
        world.start("refused", itself, "parquet")


def test_a_sink_of_ours_refuses_what_nothing_acks_before_its_first_batch_is_written(
    world: VerdictWorld,
) -> None:
    _, _, joined = joined_sides(world)
    world.produce("refused-bought", "10:00:01 a")
    says = "nothing acks what 'bought' and 'paid' hold"
    stops = pytest.raises(StreamingQueryException, match=says)
    with world.running("refused", joined.drop(ANCHOR)) as query, stops:
        query.awaitTermination(DEADLINE_S)
    assert world.rows["refused"] == []
    assert world.published("refused-bought").said == 0


def test_a_time_is_rounded_up_so_that_no_tuple_counts_as_dropped_before_spark_drops_it(
    spark: SparkSession,
) -> None:
    """Rule 3: Spark compares microseconds with a watermark in ms."""
    texts = ("2026-11-21 10:00:00.001", "2026-11-21 10:00:00.001001", "1969-12-31 23:59:59.9985", None)
    rows = spark.createDataFrame([(text,) for text in texts], "text string")
    found = rows.select(_rounded_up_ms(sql.expr("try_to_timestamp(text || '+00:00')"))).collect()
    whole = int(datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp()) * 1_000
    assert [row[0] for row in found] == [whole + 1, whole + 2, -1, None]


def test_the_anchors_of_branches_that_a_union_brings_together_are_found(world: VerdictWorld) -> None:
    """Each branch has an aggregate of its own; what Spark calls their column is that of the first."""
    lines = lines_of(world, "other")
    left, right = (
        side(lines, name, condition).groupBy(sql.col(name).alias("id")).agg(spout.collect_anchors())
        for name, condition in (("bought", "NOT is_payment"), ("paid", "is_payment"))
    )
    assert left.union(right).transform(spout.ack_anchors()).columns == ["id"]
    emptied = right.withColumn(ANCHOR, sql.array().cast(ANCHORS))
    with pytest.raises(UsageError, match="the anchors of 'paid' do not reach"):
        left.union(emptied).transform(spout.ack_anchors())


def test_sides_of_plain_dataframes_are_joined_without_anchors(spark: SparkSession) -> None:
    """Nothing is tracked there: the same pipeline runs."""
    bought = spark.sql("SELECT 'a' AS bought").transform(spout.hold(None, name="bought"))
    paid = spark.sql("SELECT 'b' AS paid").transform(spout.hold(None, name="paid"))
    rows = bought.join(paid, sql.expr("bought = paid"), "left_outer")
    rows = rows.select("bought", "paid", spout.join_anchors(bought, paid)).transform(spout.ack_anchors())
    assert [tuple(row) for row in rows.collect()] == [("a", None)]
