"""Delayed acks in a real Spark: a sink of ours, tuples that come too late, and what cannot be acked once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, window

import spout
from acker.errors import UsageError
from acker.wire.causes import LATE
from tests.support.bolts.sample_bolts import Address, Timed, place_in
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = pytest.mark.slow

INPUTS = ("windows", "updated", "named")


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker for them."""
    folder = tmp_path_factory.mktemp("delayed")
    config = config_of(folder, broker, INPUTS)
    with stream_world(spark, config, "acker") as made:
        yield made


def by_minute(world: StreamWorld, name: str, late: str = "ack") -> DataFrame:
    """Count the clicks of a minute, with their anchors."""
    lines = spout.read_stream(world.spark, world.topics, name, startingOffsets="earliest", delayed_acks=True)
    clicks = lines.selectExpr(
        "to_timestamp(split(CAST(value AS STRING), ' ')[0]) AS at",
        "split(CAST(value AS STRING), ' ')[1] AS page",
        "_windhover",
    )
    minute = window("at", "1 minute")
    clicks = clicks.transform(spout.fail_when("at IS NULL", "no time")).filter("page <> 'none'")
    clicks = clicks.transform(spout.fail_when("page IS NULL", "no page"))
    held = clicks.transform(spout.hold(until=minute.end, late=late)).withWatermark("at", "10 seconds")
    return held.groupBy(minute, "page").agg(count("*").alias("clicks"), spout.collect_anchors())


def at(time: str, page: str) -> str:
    """Write a click."""
    return f"2026-11-21T10:{time} {page}"


def test_a_window_that_is_evicted_in_a_batch_without_data_acks_or_fails_its_tuples(
    world: StreamWorld,
) -> None:
    """S29, S86: through a sink of ours; the first watermark passes both windows and then a late click."""
    world.produce("windows", at("00:01", "a"), at("00:02", "bad"), at("00:03", "a"), at("02:00", "c"))
    rows = by_minute(world, "windows", late="fail").transform(spout.ack_anchors(Address()))
    with world.running("windows", rows) as query:
        eventually(lambda: query.exception() or world.published("windows").failed, DEADLINE_S)
        found = world.wait_for("windows", 4, query)
        place = place_in(Address, 'raise KeyError("no address")')
        assert found.failed == {1: ("Address", "KeyError", f"'no address' ({place})")}
        assert world.rows["windows"] == [("a", 2)]
        world.produce("windows", at("00:04", "a"))
        eventually(lambda: query.exception() or len(world.published("windows").failed) == 2, DEADLINE_S)
    said = "a watermark of 2026-11-21T10:01:50Z dropped it"
    assert world.published("windows").failed[4] == ("hold", LATE, said)
    eventually(lambda: spout.stream_status(rows).late == 1)  # what was published is counted next
    status = spout.stream_status(rows)
    told = [status.count(what, "Address") for what in ("executed", "acked", "failed", "emitted")]
    assert told == [2, 1, 1, 1]


def test_rows_that_are_written_again_and_again_cannot_ack_their_tuples(world: StreamWorld) -> None:
    """In update mode each click would ack all clicks before it once more, and edges would cancel."""
    world.produce("updated", at("00:01", "a"), at("00:02", "b"))
    rows = by_minute(world, "updated").transform(spout.ack_anchors())
    query = spout.start(
        rows.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(world.folder / "updated"))
    )
    with pytest.raises(StreamingQueryException, match=r"output mode update writes a row .* again"):
        assert query.awaitTermination(DEADLINE_S), query.stop()
    assert world.published("updated").said == 0


def test_two_holds_of_one_name_stop_the_query_by_their_name(world: StreamWorld) -> None:
    """Rule 3: only one of them would count, and what the other holds would be acked with its batch."""
    lines = spout.read_stream(
        world.spark, world.topics, "named", startingOffsets="earliest", delayed_acks=True
    )
    world.produce("named", "a", "b")
    left, right = (
        lines.filter(f"value {sign} X'61'")
        .transform(spout.hold(None))
        .groupBy("value")
        .agg(count("*").alias("lines"), spout.collect_anchors())
        for sign in ("=", "<>")
    )
    rows = left.union(right).transform(spout.ack_anchors())
    says = "two operators of the query are called 'hold'.*name="
    with pytest.raises(UsageError, match=says):
        spout.start(rows.writeStream.format("noop").outputMode("update"))
    assert world.published("named").said == 0


def test_what_cannot_be_held_is_refused_when_it_is_built(world: StreamWorld) -> None:
    rows = world.read("updated")
    with pytest.raises(UsageError, match="delayed_acks=True"):
        rows.transform(spout.hold(until="timestamp", late="ack"))
    with pytest.raises(UsageError, match="ack or fail"):
        spout.hold(until="timestamp", late="drop")
    with pytest.raises(UsageError, match="carry no anchors"):
        rows.transform(spout.ack_anchors())
    with pytest.raises(UsageError, match=r"call it behind: \.withWatermark"):
        rows.withWatermark("timestamp", "1 minute").transform(spout.fail_when("value IS NULL", "empty"))


def test_a_bolt_may_emit_a_time(spark: SparkSession) -> None:
    """Spark's conversion to Arrow asks for a time zone, and ends with a bare assertion without one."""
    clicks = spark.createDataFrame([("2026-11-21T10:00:01",)], "text string")
    [row] = clicks.transform(spout.bolt(Timed())).collect()
    assert row.at.astimezone(UTC) == datetime(2026, 11, 21, 10, 0, 1, tzinfo=UTC)


def test_held_rows_of_a_plain_dataframe_are_aggregated_without_anchors(spark: SparkSession) -> None:
    """Nothing is tracked there: the same pipeline runs."""
    clicks = spark.sql("SELECT TIMESTAMP'2026-11-21 10:00:01' AS at, 'a' AS page")
    held = clicks.transform(spout.hold(until="at", late="ack"))
    counts = held.groupBy("page").agg(count("*").alias("n"), spout.collect_anchors())
    assert [tuple(row) for row in counts.transform(spout.ack_anchors()).collect()] == [("a", 1)]
