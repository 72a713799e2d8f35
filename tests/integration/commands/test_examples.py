"""The examples in a real Spark on a real broker, judged by what they wrote and by the verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import load_topics
from acker.provisioning.provision import create_topics
from acker.wire.causes import LATE
from examples.enrichment import visits
from examples.sessions import sessions
from examples.single_join import topology as single_join
from examples.sql_only import orders
from examples.stream_join import settlements
from examples.windowed_aggregation import clicks_by_minute
from spout.builder.submitted import SubmittedTopology
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, VerdictWorld, read_held, serving, wait_for

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[3] / "examples" / "topics.yaml"


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the examples' topics, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("examples")
    environ = {"KAFKA_BOOTSTRAP": broker.bootstrap, "PREFIX": f"{folder.name}-"}
    text = CONFIG.read_text(encoding="utf-8")
    for name in environ:
        default = "127.0.0.1:9092" if name == "KAFKA_BOOTSTRAP" else ""
        text = text.replace(f"${{{name}:-{default}}}", environ[name])
    # the world reads along in the ack topics, and on a slow machine a minute behind
    text = text.replace("acker:\n", "acker:\n  limits: {retention_interval: 1d}\n", 1)
    config = folder / "topics.yaml"
    config.write_text(text, encoding="utf-8")
    topics = load_topics(config, {})
    create_topics(topics)
    made = VerdictWorld(topics, spark, folder)
    with serving(config, "acker", "replay"):
        yield made
    made.close()


def test_clicks_are_acked_when_their_minute_is_written_across_a_restart(world: VerdictWorld) -> None:
    """S31, S81, S86, P52: what a window holds stays pending; what comes too late for it is acked at once."""
    rows = clicks_by_minute(read_held(world, "clicks"))
    out = "minute timestamp, page string, clicks bigint"
    at = "2026-11-21T10:0{}:{} {}".format
    world.produce("clicks", at(0, "01", "a"), at(0, "02", "a"), at(0, "03", "b"), "never c")
    query = world.start("clicks", rows, "parquet")
    wait_for(query, lambda: world.verdicts("clicks") == {(1, 1): "fail_when: no time: no time"})
    query.processAllAvailable()
    query.stop()
    assert world.written("clicks", out) == []

    rows = clicks_by_minute(read_held(world, "clicks"))
    world.produce("clicks", at(2, "00", "d"))  # the watermark passes the first minute
    query = world.start("clicks", rows, "parquet")
    wait_for(query, lambda: list(world.verdicts("clicks").values()).count("ACKED") == 3)
    assert [(page, clicks) for _, page, clicks in world.written("clicks", out)] == [("a", 2), ("b", 1)]

    world.produce("clicks", at(0, "04", "a"))  # too late for its minute
    wait_for(query, lambda: world.verdicts("clicks").get((0, 3)) == "ACKED")
    query.processAllAvailable()
    query.stop()
    assert [(page, clicks) for _, page, clicks in world.written("clicks", out)] == [("a", 2), ("b", 1)]
    assert (0, 2) not in world.verdicts("clicks"), "its minute is not over"


def test_a_keyed_bolt_holds_its_tuples_across_a_restart_until_it_acks_or_ticks(world: VerdictWorld) -> None:
    """S31, S81, P52: Storm's tick tuples; what it holds stands in Spark's state store."""
    world.produce("actions", "u1 enter", "u2 enter")
    query = world.start("actions", sessions(read_held(world, "actions")), "parquet")
    wait_for(query, lambda: world.published("actions").said == 2)
    query.stop()
    assert world.verdicts("actions") == {}

    world.produce("actions", "u1 leave", "u3 enter")
    rows = sessions(read_held(world, "actions"), quiet_ms=500)
    query = world.start("actions", rows, "parquet")
    acked = dict.fromkeys([(0, 0), (0, 1), (1, 1)], "ACKED")
    wait_for(query, lambda: world.verdicts("actions") == acked)
    query.stop()
    found = world.written("actions", "user string, actions string")
    assert found == [("u1", "enter leave"), ("u3", "enter")], "u2 may be quiet for half an hour"
    eventually(lambda: spout.stream_status(rows).count("acked", "Session") == 3)
    assert spout.stream_status(rows).count("emitted", "Session") == 2


def test_a_joined_row_acks_or_fails_the_tuples_of_both_topics(world: VerdictWorld) -> None:
    """S29, S31, P52: multi-anchoring; one without the other is failed by name, also when it comes again."""
    at = "2026-11-21T10:0{}:{} {}".format
    world.produce("purchases", at(0, "01", "p1 10"), at(0, "02", "p2 20"))
    world.produce("payments", at(0, "03", "p1 8"), at(2, "00", "p3 1"))  # the second one ends the minute
    lines = read_held(world, "purchases", "payments")
    query = world.start("settlement", settlements(lines), "parquet")
    wait_for(query, lambda: world.verdicts("purchases", replays=True))
    query.stop()
    assert world.written("settlement", "id string, amount double") == [("p1", 8.0)]
    assert world.verdicts("purchases") == {
        (0, 0): "ACKED",
        (1, 0): "Settle: a purchase without a payment, or a payment without a purchase",
    }
    assert world.verdicts("payments") == {(0, 0): "ACKED"}
    assert world.verdicts("purchases", replays=True) == {(1, 0): f"hold: {LATE}"}


def test_halves_of_two_streams_are_joined_across_a_restart_and_fail_when_their_time_is_over(
    world: VerdictWorld,
) -> None:
    """S29, S31, S81: Storm's SingleJoinExample. A held half knows its source, in a later session too."""
    joined: list[tuple[str, int]] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        joined.extend((row.gender, row.age) for row in batch.collect())

    def submit(timeout_ms: int) -> SubmittedTopology:
        return single_join(world.topics, timeout_ms).submit(
            world.spark,
            sink=write,
            checkpoint=world.folder / "single-join",
            trigger={"processingTime": "300 milliseconds"},
        )

    world.produce("genders", "0 male", "1 female")
    running = submit(3_600_000)
    eventually(lambda: running.status().count("executed", "join", "gender") == 2, DEADLINE_S)
    assert running.stop().state == "stopped"
    assert (joined, world.verdicts("genders")) == ([], {})

    world.produce("ages", "0 20", "1 21", "no age")
    world.produce("genders", "2 male")
    running = submit(5_000)
    eventually(lambda: sorted(joined) == [("female", 21), ("male", 20)], DEADLINE_S, told=running.status)
    late = "join: the other half did not come"
    eventually(lambda: late in world.verdicts("genders").values(), DEADLINE_S, told=running.status)
    assert world.verdicts("genders") == {(0, 0): "ACKED", (1, 0): "ACKED", (0, 1): late}
    eventually(lambda: len(world.verdicts("ages")) == 3)
    assert world.verdicts("ages") == {(0, 0): "ACKED", (1, 0): "ACKED", (0, 1): "age: ValueError"}

    world.produce("ages", "2 22")  # the failed half comes again, and again, until it meets this one
    eventually(lambda: ("male", 22) in joined, DEADLINE_S, told=running.status)
    # the rows are written before the batch is counted
    eventually(lambda: running.status().count("acked", "join", "age") == 3, DEADLINE_S, told=running.status)
    assert running.status().count("failed", "join", "gender") > 0
    running.stop()


def test_orders_go_through_spark_sql_alone_and_what_is_none_is_failed_by_name(world: VerdictWorld) -> None:
    """S90: without a bolt; what a filter drops is done, what the condition names is replayed."""
    lines = [json.dumps({"id": n, "total": 5.0 * n}) for n in range(4)]
    world.produce("orders", *lines, "no order")
    query = world.start("orders", orders(world.read("orders")), "parquet")
    twice = ["fail_when: no order: no order"] * 2
    wait_for(query, lambda: list(world.verdicts("orders", replays=True).values()) == twice)
    query.processAllAvailable()
    query.stop()
    assert world.written("orders", "id int, total double") == [(2, 10.0), (3, 15.0)]
    verdicts = world.verdicts("orders")
    assert verdicts.pop((0, 2)) == "fail_when: no order: no order"
    assert verdicts == dict.fromkeys([(0, 0), (1, 0), (0, 1), (1, 1)], "ACKED")


def test_an_unreliable_service_costs_replays_of_single_visits(world: VerdictWorld) -> None:
    """S90, S117: 5 % of the calls fail, each for its own visit; in the end all are written."""
    world.produce("visits", *(f"user{n} 10.0.{n // 200}.{n % 200}" for n in range(400)))
    query = world.start("visits", visits(world.read("visits")), "json")

    def origins() -> set[str]:
        rows = world.spark.read.schema("visit string, origin string").json(str(world.folder / "visits-out"))
        return {row.origin for row in rows.collect()}

    wait_for(query, lambda: len(origins()) == 400)
    query.stop()
    lost = [why for why in world.verdicts("visits").values() if why != "ACKED"]
    assert set(lost) == {"LookUp: ConnectionError"}
    assert 4 <= len(lost) <= 50
