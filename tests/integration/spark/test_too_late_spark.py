"""What Spark drops in silence, since a watermark has passed it, in a real Spark on a real broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import load_topics
from acker.kafka.port import Outgoing
from spout.inspect.diagnosis import explained
from spout.inspect.overview import Overview, late_notes
from spout.inspect.trail import EvidenceReader
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import (
    DEADLINE_S,
    VerdictWorld,
    config_of,
    read_held,
    running,
    serving,
    wait_for,
)

pytestmark = pytest.mark.slow

NOW_MS = 1_795_000_000_000
AHEAD_MS = NOW_MS * 1_000
"""The same time in microseconds, which somebody took for milliseconds."""

ORDERS = 100
KINDS = ("counted-sink", "counted-files", "distinct-sink", "distinct-files", "distinct-text-files")
HELD = "held-files"
CURED = "cured-files"


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the topics of all tests here, and run an acker for them."""
    folder = tmp_path_factory.mktemp("too-late")
    # made before the others, which would take the broker's limit: an hour ahead
    # the orders are of a fixed day: a broker deletes what is older than a week
    settings = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}
    names = [f"{folder.name}-{name}" for name in (*KINDS, HELD, CURED)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, 2, 1, config=settings) for name in names]).values():
        future.result()
    config = config_of(folder, broker, [*KINDS, HELD, CURED])
    made = VerdictWorld(load_topics(config, {}), spark, folder)
    with serving(config, "acker"):
        yield made
    made.close()


def produce(world: VerdictWorld, name: str, times_ms: list[int], partition: int) -> None:
    """Write an order for each time: the record is dated so, and its value is that time."""
    producer = world.log.producer()
    topic = world.topics.input(name).topic
    for time_ms in times_ms:
        value = str(time_ms).encode()
        producer.send(Outgoing(topic, partition, value, timestamp_ms=time_ms))
    producer.flush(30_000)
    producer.close()


def orders(world: VerdictWorld, name: str) -> DataFrame:
    """Read orders with the time at which each was placed: that of its record, or what its text says."""
    text = "CAST(value AS STRING)"
    at = f"timestamp_millis(CAST({text} AS BIGINT))" if "text" in name else "timestamp"
    columns = [f"{at} AS placed_at", f"{text} AS number"]
    if name == HELD:
        minute = sql.window("placed_at", "1 minute")
        rows = read_held(world, name).selectExpr(*columns, "_windhover")
        return rows.transform(spout.hold(minute.end, late="ack"))
    return world.read(name).selectExpr(*columns, "_windhover")


def result(world: VerdictWorld, name: str) -> DataFrame:
    """Let Spark's own operators, which know nothing of anchors, drop what is too late."""
    rows = orders(world, name).withWatermark("placed_at", "10 seconds")
    if name.startswith("distinct"):
        return rows.select("placed_at", "number").dropDuplicatesWithinWatermark(["number"])
    minute = sql.window("placed_at", "1 minute")
    if name == HELD:
        counts = rows.groupBy(minute, "number").agg(sql.count("*").alias("orders"), spout.collect_anchors())
        return counts.select("number", "orders", "_windhover").transform(spout.ack_anchors())
    return rows.groupBy(minute, "number").agg(sql.count("*").alias("orders")).select("number", "orders")


def run(world: VerdictWorld, name: str, rows: DataFrame) -> AbstractContextManager[StreamingQuery]:
    """Write rows to files, or by a sink of ours; Python has no datetime for what the first order has."""
    if not name.endswith("sink"):
        return running(world, name, rows)
    return world.running(name, rows, lambda batch, _: batch.write.format("noop").mode("append").save())


def acked(world: VerdictWorld, name: str) -> int:
    return list(world.verdicts(name).values()).count("ACKED")


def snapshot_says(world: VerdictWorld, name: str) -> list[str]:
    with closing(Overview(world.log, world.topics)) as overview:
        snapshot = overview.snapshot(NOW_MS)
    group = f"group {world.topics.input(name).group}:"
    return [line for line in late_notes(snapshot, world.topics) if line.startswith(group)]


def story(world: VerdictWorld, place: str) -> dict[str, object]:
    trail = EvidenceReader(world.log, world.topics)
    [here] = trail.records_at(place)
    evidence = trail.read_evidence(here)
    return explained(evidence, trail.circumstances(here, evidence, NOW_MS), NOW_MS)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return what was logged of what came too late."""
    caplog.set_level(logging.WARNING, "windhover.spout")
    return lambda: [line for line in map(str, caplog.messages) if line.startswith("too_late")]


@pytest.mark.parametrize("name", KINDS)
def test_rows_that_spark_drops_without_a_hold_are_counted_and_what_moved_the_watermark_is_named(
    world: VerdictWorld, logged: Callable[[], list[str]], name: str
) -> None:
    """O1507: one order has a time in microseconds. All others were acked, and nobody said a word."""
    topic = world.topics.input(name).topic
    rows = result(world, name)
    produce(world, name, [AHEAD_MS], partition=0)
    with run(world, name, rows) as query:
        wait_for(query, lambda: acked(world, name) == 1)
        wait_for(query, lambda: _watermark_is_ahead(query))
        produce(world, name, [NOW_MS + number for number in range(ORDERS)], partition=1)
        wait_for(query, lambda: acked(world, name) == 1 + ORDERS)
        eventually(lambda: spout.stream_status(rows).dropped == ORDERS, DEADLINE_S)
        assert spout.stream_status(rows).late == 0
    said = sum(int(line.partition(" rows=")[2].split()[0]) for line in logged())
    assert 0 < said <= ORDERS, "the rest of a minute is not logged yet"
    moved_by = f"moved_by={topic}/0@0 (event time {AHEAD_MS} ms after 1970; as microseconds it is 2026-"
    assert moved_by in logged()[0]

    eventually(lambda: snapshot_says(world, name), DEADLINE_S)
    [line] = snapshot_says(world, name)
    assert f"Spark dropped {ORDERS} rows that came too late" in line
    told = story(world, f"{topic}/1@7")
    assert told["now"] == "done, or too late: Spark dropped rows of its batch"
    assert told["next"] == f"windhover inspect {topic}/0@0"
    assert story(world, f"{topic}/0@0")["now"] == "done: fully processed"


def test_records_that_are_too_late_for_a_hold_are_named_one_by_one(
    world: VerdictWorld, logged: Callable[[], list[str]]
) -> None:
    """O1505: inspect said DONE of each of them."""
    topic = world.topics.input(HELD).topic
    rows = result(world, HELD)
    produce(world, HELD, [AHEAD_MS], partition=0)
    with running(world, HELD, rows) as query:
        wait_for(query, lambda: _watermark_is_ahead(query))
        produce(world, HELD, [NOW_MS + number for number in range(ORDERS)], partition=1)
        wait_for(query, lambda: acked(world, HELD) == ORDERS)
        eventually(lambda: spout.stream_status(rows).late == ORDERS, DEADLINE_S)
        assert spout.stream_status(rows).dropped == 0
    assert f"moved_by={topic}/0@0 (event time" in logged()[0]
    eventually(lambda: snapshot_says(world, HELD), DEADLINE_S)
    [line] = snapshot_says(world, HELD)
    assert f"{ORDERS} records came too late for their windows" in line
    told = story(world, f"{topic}/1@7")
    assert (told["situation"], told["next"]) == ("TOO_LATE", f"windhover inspect {topic}/0@0")


def test_an_order_of_the_future_that_fails_before_the_watermark_moves_none(
    world: VerdictWorld, logged: Callable[[], list[str]]
) -> None:
    """O1509: the cure of the page. It becomes a dead letter in the end, and the others are counted."""
    ahead = spout.fail_when("placed_at > current_timestamp() + INTERVAL 1 HOUR", "dated ahead")
    rows = orders(world, CURED).transform(ahead).withWatermark("placed_at", "10 seconds")
    counts = rows.groupBy(sql.window("placed_at", "1 minute")).agg(sql.count("*").alias("orders"))
    counts = counts.select("orders")
    produce(world, CURED, [AHEAD_MS], partition=0)
    with running(world, CURED, counts) as query:
        wait_for(query, lambda: world.verdicts(CURED))
        assert acked(world, CURED) == 0
        produce(world, CURED, [NOW_MS + number for number in range(ORDERS)], partition=1)
        wait_for(query, lambda: acked(world, CURED) == ORDERS)
        produce(world, CURED, [NOW_MS + 120_000], partition=1)  # it closes the minute of the others
        wait_for(query, lambda: world.written(CURED, "orders bigint") == [(ORDERS,)])
        assert spout.stream_status(counts).dropped == 0
    assert logged() == []


def _watermark_is_ahead(query: StreamingQuery) -> bool:
    """Return whether a batch has run with the watermark that the first order has moved."""
    progress = query.lastProgress
    watermark = "1970" if progress is None else progress.eventTime.get("watermark", "1970")
    return not watermark.startswith("1970")
