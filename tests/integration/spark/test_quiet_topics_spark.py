"""Topics that go quiet while Spark's state holds their records, in a real Spark on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import spout
from acker.config.topics import load_topics
from acker.kafka.port import TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Init, Tick
from spout.tuples.columns import ANCHOR
from tests.support.bolts.keyed_bolts import Counts
from tests.support.brokers import Broker
from tests.support.ended_queries import run_to_end
from tests.support.waiting import committed, eventually
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

TIMEOUT_MS = 6_000
QUIET_MS = 5 * TIMEOUT_MS // 2
"""By the clock of the session: without an end of their own, records would have come again twice."""

KINDS = ("window", "join", "keyed")
INPUT = (
    '  {name}: {{{{id: {id}, topic: "{{prefix}}{name}", group: "{{prefix}}{group}", partitions: 2,'
    " timeout: {timeout}ms, retry: {{{{attempts: 5, initial: 100ms}}}}}}}}"
)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("quiet")
    names = [
        ("window", "window"),
        ("join", "join"),
        ("join-paid", "join"),
        ("keyed", "keyed"),
        ("now", "now"),
    ]
    inputs = [
        INPUT.format(id=number, name=name, group=group, timeout=TIMEOUT_MS)
        for number, (name, group) in enumerate(names, 1)
    ]
    config = config_of(folder, broker, (), *inputs)
    made = VerdictWorld(load_topics(config, {}), spark, folder)
    with serving(config, "acker", "replay"):
        yield made
    made.close()


def clicks(lines: DataFrame) -> DataFrame:
    """Read lines, "10:00:03 page"."""
    parts = "split(CAST(value AS STRING), ' ')"
    return lines.selectExpr(
        "contains(topic, 'join-paid') AS is_payment",
        f"to_timestamp(concat('2026-11-21T', {parts}[0])) AS at",
        f"{parts}[1] AS page",
        ANCHOR,
    )


def by_minute(world: VerdictWorld, name: str) -> DataFrame:
    """Count the clicks of a minute."""
    minute = sql.window("at", "1 minute")
    held = clicks(read_held(world, name)).transform(spout.hold(minute.end, late="fail"))
    counts = held.withWatermark("at", "10 seconds").groupBy(minute, "page")
    rows = counts.agg(sql.count("*").alias("clicks"), spout.collect_anchors())
    return rows.selectExpr("page", "CAST(clicks AS STRING) AS clicks", ANCHOR).transform(spout.ack_anchors())


def joined(world: VerdictWorld, name: str) -> DataFrame:
    """Join what was bought with what was paid for it; of the latter there is nothing for long."""
    lines = clicks(read_held(world, name, f"{name}-paid"))
    bought, paid = (
        lines.filter(condition)
        .selectExpr(f"at AS {side}_at", f"page AS {side}", ANCHOR)
        .transform(spout.hold(f"{side}_at", late="fail", name=side))
        .withWatermark(f"{side}_at", "10 seconds")
        for side, condition in (("bought", "NOT is_payment"), ("paid", "is_payment"))
    )
    within = "bought = paid AND paid_at BETWEEN bought_at AND bought_at + INTERVAL 1 HOUR"
    rows = bought.join(paid, sql.expr(within), "left_outer")
    rows = rows.select("bought", "paid", spout.join_anchors(bought, paid))
    return rows.transform(spout.ack_anchors())


def keyed(world: VerdictWorld, name: str) -> DataFrame:
    """Let a bolt hold the clicks of a page until one says that it is over; it resets no timeout."""
    lines = clicks(read_held(world, name)).selectExpr("page AS word", "date_format(at, 'ss') AS said", ANCHOR)
    return lines.transform(spout.hold(None)).transform(spout.keyed(Counts(), by="word"))


QUERIES: dict[str, Callable[[VerdictWorld, str], DataFrame]] = {
    "window": by_minute,
    "join": joined,
    "keyed": keyed,
}
BEGIN = ("10:00:01 a", "10:00:02 a")
END = {
    "window": ("window", ["10:05:00 b", "10:05:00 b"]),
    "join": ("join-paid", ["10:00:03 a"]),
    "keyed": ("keyed", ["10:05:59 a"]),
}
WRITTEN = {
    "window": ("page string, clicks string", [("a", "2")]),
    "join": ("bought string, paid string", [("a", "a"), ("a", "a")]),
    "keyed": ("word string, tuples string", [("a", "3")]),
}
"""As many as there were, and not once more for each time that a copy came."""


def quiet_ms(world: VerdictWorld, name: str) -> int:
    """Return since when, by the clock of its session, the last record of a group is emitted; -1: none is."""
    group, names = world.topics.input(name).group, world.topics.ack_topics
    parts = [TopicPartition(names.init, n) for n in range(world.topics.acker.partitions)]
    events = [wire_codec().decode(record.value) for record in committed(world.log, parts)]
    mine = [each for each in events if isinstance(each, Init | Tick) and each.group == group]
    emitted = [each.now for each in mine if isinstance(each, Init)]
    return max(each.now for each in mine) - max(emitted) if emitted else -1


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_may_be_quiet_for_longer_than_the_timeout_while_spark_holds_its_records(
    world: VerdictWorld, kind: str
) -> None:
    """O1401: over a restart as well. Two clicks were six in the window, and nobody had made a mistake."""
    world.produce(kind, *BEGIN)
    with running(world, kind, QUERIES[kind](world, kind)) as query:
        wait_for(query, lambda: quiet_ms(world, kind) > QUIET_MS)
    begun_ms = quiet_ms(world, kind)
    with running(world, kind, QUERIES[kind](world, kind)) as query:
        wait_for(query, lambda: quiet_ms(world, kind) > begun_ms + TIMEOUT_MS)
        assert world.copies(kind) == []
        assert world.verdicts(kind) == {}
        topic, lines = END[kind]
        world.produce(topic, *lines)
        wait_for(query, lambda: {(0, 0), (1, 0)} <= world.verdicts(kind).keys())
    assert [world.verdicts(kind)[place] for place in ((0, 0), (1, 0))] == ["ACKED", "ACKED"]
    assert world.copies(kind) == []
    schema, rows = WRITTEN[kind]
    assert world.written(kind, schema) == rows


def test_a_query_that_ends_by_itself_leaves_its_last_window_to_its_next_start(world: VerdictWorld) -> None:
    """O1404: by the trigger or by run_once; Spark's last batch closes what the watermark has passed."""
    name, found = "now", list[tuple[object, ...]]()

    def run() -> None:
        rows = by_minute(world, name)
        sink = spout.sink(lambda batch, _: found.extend(map(tuple, batch.collect())))
        writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(world.folder / name))
        assert run_to_end(writer, DEADLINE_S)

    world.produce(name, "10:00:01 a", "10:00:02 a", "10:02:00 b")
    run()
    assert found == [("a", "2")]
    world.produce(name, "10:05:00 c", "10:02:01 b")
    run()
    assert sorted(found) == [("a", "2"), ("b", "2")]
    done = {(0, 0): "ACKED", (1, 0): "ACKED", (0, 1): "ACKED", (1, 1): "ACKED"}
    eventually(lambda: world.verdicts(name) == done, DEADLINE_S)
    assert world.copies(name) == []
