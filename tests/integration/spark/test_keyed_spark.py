"""Keyed bolts in a real Spark on a real broker: what they hold for too long, and what they keep alive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import load_topics
from acker.identity import source_of
from acker.kafka.port import TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Init, Tick
from tests.support.bolts.keyed_bolts import Forgets, Saves, Shows, Waits
from tests.support.brokers import Broker
from tests.support.waiting import committed, eventually
from tests.support.worlds.stream_worlds import VerdictWorld, config_of, read_held, running, serving, wait_for

pytestmark = pytest.mark.slow

TIMEOUT_MS = 15_000
TIMED_OUT = ": "
"""How a verdict reads that no bolt has caused."""


def an_input(number: int, name: str, timeout_ms: int) -> str:
    """Write an input with a timeout of its own, which what a keyed bolt holds has, too."""
    return (
        f'  {name}: {{{{id: {number}, topic: "{{prefix}}{name}", group: "{{prefix}}{name}", partitions: 2,'
        f" timeout: {timeout_ms}ms, held_timeout: {timeout_ms}ms,"
        " retry: {{attempts: 5, initial: 100ms}}}}"
    )


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("keyed")
    inputs = [an_input(1, "forgotten", 5_000), an_input(2, "kept", TIMEOUT_MS)]
    inputs.append(an_input(3, "saved", 60_000))
    config = config_of(folder, broker, (), *inputs)
    made = VerdictWorld(load_topics(config, {}), spark, folder)
    with serving(config, "acker", "replay"):
        yield made
    made.close()


def keyed(world: VerdictWorld, name: str, bolt: spout.KeyedBolt) -> DataFrame:
    """Let a bolt hold lines, "word said", by word."""
    lines = read_held(world, name).selectExpr("split(CAST(value AS STRING), ' ') AS parts", "_windhover")
    words = lines.selectExpr("parts[0] AS word", "parts[1] AS said", "_windhover")
    return words.transform(spout.hold(None)).transform(spout.keyed(bolt, by="word"))


def open_ms(world: VerdictWorld, name: str, offset: int) -> int:
    """Return since when a record of partition 0 is emitted, by the clock of its session; -1: not yet."""
    given, names = world.topics.input(name), world.topics.ack_topics
    parts = [TopicPartition(names.init, n) for n in range(world.topics.acker.partitions)]
    events = [wire_codec().decode(record.value) for record in committed(world.log, parts)]
    mine = [each for each in events if isinstance(each, Init | Tick) and each.group == given.group]
    begun = [
        each.now
        for each in mine
        if isinstance(each, Init)
        if any(run.source == source_of(given.id, 0) and run.start <= offset < run.end for run in each.runs)
    ]
    return max(each.now for each in mine) - begun[0] if begun else -1


def test_a_record_whose_tuple_is_held_for_too_long_times_out_and_comes_again(world: VerdictWorld) -> None:
    """S17, S31, P52: its late ack changes nothing; the copy, another emission, is acked."""
    world.produce("forgotten", "hawk waits")
    rows = keyed(world, "forgotten", Forgets())
    with running(world, "forgotten", rows) as query:
        wait_for(query, lambda: "ACKED" in world.verdicts("forgotten", replays=True).values())
        eventually(lambda: spout.stream_status(rows).count("acked", "Forgets") >= 2)
    assert world.verdicts("forgotten") == {(0, 0): TIMED_OUT}
    assert set(world.copies("forgotten")) == {"hawk waits"}
    found = world.written("forgotten", "word string, copies string")
    assert found[0] == ("hawk", "False True")


def test_a_timeout_that_is_reset_in_a_quiet_stream_never_comes(world: VerdictWorld) -> None:
    """S16, S62: nothing is read meanwhile, so no Init tells the time; the root is acked long after it."""
    world.produce("kept", "first go")
    rows = keyed(world, "kept", Waits())
    with running(world, "kept", rows) as query:
        # The first batch of a cold Spark may take longer than any timeout; the next ones do not.
        wait_for(query, lambda: "ACKED" in spread(world, "kept").values())
        world.produce("kept", "kite waits")
        wait_for(query, lambda: open_ms(world, "kept", 1) > 3 * TIMEOUT_MS // 2)
        assert (0, 1) not in world.verdicts("kept")
        world.produce("kept", "kite go")
        wait_for(query, lambda: {(0, 1), (0, 2)} <= world.verdicts("kept").keys())
        eventually(lambda: spout.stream_status(rows).count("acked", "Waits") >= 3)
    assert [world.verdicts("kept")[0, offset] for offset in (1, 2)] == ["ACKED", "ACKED"]
    assert "kite waits" not in world.copies("kept")
    assert ("kite", "2") in world.written("kept", "word string, tuples string")
    status = spout.stream_status(rows)
    assert status.count("executed", "Waits") == status.count("acked", "Waits")


def test_a_keyed_bolt_that_stops_ends_the_query_and_goes_on_with_what_it_held(world: VerdictWorld) -> None:
    """S84: no record is failed; started again from its checkpoint the query runs the same batch."""
    place = world.folder / "place"
    rows = keyed(world, "saved", Saves())
    world.produce("saved", "kite held")
    with running(world, "saved", rows) as query:
        wait_for(query, lambda: spout.stream_status(rows).count("executed", "Saves") == 1)
        world.produce("saved", f"kite {place}")
        eventually(lambda: not query.isActive)
        assert "bolt 'Saves' stops on FileNotFoundError" in str(query.exception())
    assert world.verdicts("saved") == {}
    place.touch()
    with running(world, "saved", keyed(world, "saved", Saves())) as query:
        wait_for(query, lambda: len(world.verdicts("saved")) == 2)
    assert world.verdicts("saved") == {(0, 0): "ACKED", (0, 1): "ACKED"}
    assert world.written("saved", "word string, tuples string") == [("kite", "2")]


def test_whole_numbers_stay_whole_beside_nulls(spark: SparkSession, tmp_path: Path) -> None:
    """pandas has no null among integers, and makes floats of them: 2 ** 60 + 1 would be another number."""
    anchor = "CAST(NULL AS struct<source:bigint,position:bigint,edge:bigint>) AS _windhover"
    numbers = [(1, 2**60 + 1), (1, None), (None, 2**60 + 1), (None, None)]
    schema, folder = "k bigint, n bigint", str(tmp_path / "numbers")
    spark.createDataFrame(numbers, schema).coalesce(1).write.parquet(folder)
    rows = spark.readStream.schema(schema).parquet(folder).selectExpr("*", anchor)
    shown: list[str] = []
    written = rows.transform(spout.keyed(Shows(), by="k")).writeStream.trigger(availableNow=True)
    query = (
        written.foreachBatch(lambda batch, _: shown.extend(row.shown for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(shown) == [f"{key}: [None, {2**60 + 1}]" for key in (1, None)]


def spread(world: VerdictWorld, name: str) -> dict[tuple[bool, int, int], str]:
    """Return what became of records and of their copies."""
    return {
        (replays, *place): why
        for replays in (False, True)
        for place, why in world.verdicts(name, replays=replays).items()
    }
