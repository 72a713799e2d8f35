"""Records that kill or hang their worker, on Spark: they alone fail, come back, and die by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import Topics, load_topics
from acker.errors import UsageError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Record, TopicPartition
from spout.builder.topology import TopologyBuilder
from spout.inspect.failures import FailureLog
from spout.inspect.trail import EvidenceReader
from spout.isolation.safety import IDLE_KILLS, IDLE_LIMITS
from spout.tuples.poison import HUNG, WORKER_DIED
from tests.support.bolts.poison_bolts import (
    Decode,
    HangsOnce,
    HangsTogether,
    Poisoned,
    PoisonedBatch,
    PoisonedRich,
    WhereAmI,
)
from tests.support.brokers import Broker
from tests.support.waiting import committed, eventually
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving

pytestmark = pytest.mark.slow

DEADLINE_S = 240.0
INPUT = (
    '  NAME: {{id: ID, topic: "{prefix}NAME", group: "{prefix}NAME", partitions: 2, timeout: 300s,'
    " bolt_timeout: LIMIT, retry: {{attempts: 2, initial: 100ms}}, dead_letter: {{max_ratio: 1}}}}"
)
INPUTS = ("read", "batch", "shuffled", "rich", "topology", "slow", "again", "cast", "together", "once")
LINES = 300
POISON = {40: "exit", 77: "crash", 191: "hang"}
CAUSES = {
    "exit": (WORKER_DIED, "exit status 3"),
    "crash": (WORKER_DIED, "SIGSEGV"),
    "hang": (HUNG, "took longer than bolt_timeout, 2s"),
}
"""A copy of a record that hung may wait for a second attempt of its task; twice the limit each."""


class World:
    """Topics with a running acker and a replay worker, the one Spark, and what its queries wrote."""

    def __init__(self, topics: Topics, spark: SparkSession, folder: Path) -> None:
        self.topics = topics
        self.spark = spark
        self.folder = folder
        self.log = KafkaLog(topics.kafka)
        self.rows: list[str] = []

    def produce(self, name: str, lines: Sequence[str]) -> None:
        """Write lines, half of them to each partition."""
        produce_lines(self.log, self.topics.input(name).topic, lines)

    def read(self, name: str) -> DataFrame:
        """Read an input from its beginning."""
        return spout.read_stream(self.spark, self.topics, name, startingOffsets="earliest")

    def collect(self, batch: DataFrame, _batch_id: int) -> None:
        """Be the sink."""
        self.rows.extend(row[0] for row in batch.collect())

    @contextmanager
    def running(
        self, name: str, frame: DataFrame, write: Callable[[DataFrame, int], object] | None = None
    ) -> Iterator[StreamingQuery]:
        """Run a query as long as the context lasts; without a `write` its rows are collected."""
        query = (
            frame.writeStream.foreachBatch(spout.sink(write or self.collect))
            .option("checkpointLocation", str(self.folder / name))
            .start()
        )
        try:
            yield query
        finally:
            query.stop()

    def dead_letters(self, name: str) -> list[Record]:
        """Return the dead letters of an input."""
        topic = self.topics.input(name).dead_letter.topic
        return committed(self.log, [TopicPartition(topic, number) for number in range(2)])


@pytest.fixture(scope="module")
def services(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("isolation")
    inputs = [
        INPUT.replace("NAME", name).replace("ID", str(n)).replace("LIMIT", "6s" if name == "slow" else "2s")
        for n, name in enumerate(INPUTS, 1)
    ]
    config = config_of(folder, broker, (), *inputs)
    made = World(load_topics(config, {}), spark, folder)
    with serving(config, "acker", "replay"):
        yield made
    made.log.close()


@pytest.fixture
def world(services: World) -> World:
    """Begin with nothing written."""
    services.rows.clear()
    return services


def lines() -> list[str]:
    """Return what is written: all good but for three."""
    return [POISON.get(number, f"line-{number}") for number in range(LINES)]


def wait_for_letters(world: World, name: str, alive: Callable[[], object]) -> None:
    """Wait until the three are dead, and all others came out; nothing else died."""
    good = {line for line in lines() if line not in CAUSES}

    def done() -> bool:
        assert alive(), "the query has ended"
        return good <= set(world.rows) and len(world.dead_letters(name)) >= len(POISON)

    eventually(done, DEADLINE_S)
    letters = {(record.value or b"").decode(): dict(record.headers) for record in world.dead_letters(name)}
    assert letters.keys() == CAUSES.keys()
    for line, headers in letters.items():
        error, message = CAUSES[line]
        said = {key: (value or b"").decode() for key, value in headers.items()}
        assert error in said["windhover.cause"]
        assert message in said["windhover.cause"]
        assert said["windhover.operator"] == "Poisoned"
        assert said["windhover.attempt"] == "2"


def still_works(world: World, name: str) -> None:
    """See that the same query goes on."""
    world.produce(name, ["after"])
    eventually(lambda: "after" in world.rows, DEADLINE_S)


def test_in_the_read_task_what_kills_or_hangs_fails_alone(world: World) -> None:
    world.produce("read", lines())
    rows = world.read("read").transform(spout.bolt(Poisoned()))
    with world.running("read", rows) as query:
        wait_for_letters(world, "read", lambda: query.isActive)
        still_works(world, "read")
        assert query.exception() is None


def test_in_an_arrow_bolt_the_row_is_found(world: World) -> None:
    world.produce("batch", lines())
    rows = world.read("batch").transform(spout.bolt(PoisonedBatch(), name="Poisoned"))
    with world.running("batch", rows) as query:
        wait_for_letters(world, "batch", lambda: query.isActive)
        still_works(world, "batch")


def test_a_call_that_hangs_for_many_rows_and_passes_for_few_is_named_in_the_drivers_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """D1405: in a process of its own the call is divided; no record fails, and the smallest call is named."""
    written = [f"line-{number}" for number in range(6)]
    world.produce("together", written)
    rows = world.read("together").transform(spout.bolt(HangsTogether(2), name="Together"))
    with caplog.at_level("WARNING", "windhover.spout"), world.running("together", rows) as query:
        eventually(lambda: len(world.rows) >= len(written) or query.exception(), DEADLINE_S)
        assert query.exception() is None
        eventually(lambda: any("call_passed_again" in line for line in caplog.messages), DEADLINE_S)
    assert sorted(world.rows) == written
    named = [line for line in caplog.messages if line.startswith("call_passed_again")]
    for line in named:
        assert f"bolt=Together error={HUNG} how='took longer than bolt_timeout, 2s'" in line
        assert "together/" in line.partition("records=")[2]
    assert not world.dead_letters("together")


def test_a_hang_that_does_not_come_back_names_its_record(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D1410, D1412: the second attempt of the task is isolated, and passes: no record fails."""
    written = [f"line-{number}" for number in range(6)]
    world.produce("once", written)
    bolt = HangsOnce("line-3", str(tmp_path / "hung"))
    rows = world.read("once").transform(spout.bolt(bolt, name="Once"))
    with caplog.at_level("WARNING", "windhover.spout"), world.running("once", rows) as query:
        eventually(lambda: len(world.rows) >= len(written) or query.exception(), DEADLINE_S)
        assert query.exception() is None
        eventually(lambda: any("call_passed_again" in line for line in caplog.messages), DEADLINE_S)
        inputs = [world.topics.input("once")]

        def passed() -> list[tuple[str, str, int, str]]:
            with closing(FailureLog(world.log, world.topics, inputs, 0)) as log:
                list(log.read_all())
                keys = ("operator", "cause", "passed", "last_record")
                return [tuple(row[key] for key in keys) for row in log.rows(0)]

        eventually(passed, DEADLINE_S)
    assert sorted(world.rows) == written
    (line,) = [line for line in caplog.messages if line.startswith("call_passed_again")]
    assert f"bolt=Once error={HUNG} how='took longer than bolt_timeout, 2s'" in line
    place = line.partition("records=")[2].partition(":")[0]
    assert passed() == [("Once", HUNG, 1, place)]
    (here,) = EvidenceReader(world.log, world.topics).records_at(place)
    evidence = EvidenceReader(world.log, world.topics).read_evidence(here)
    assert isinstance(evidence.record, Record)
    assert evidence.record.value == b"line-3"
    assert [call.operator for call in evidence.emissions[-1].passed] == ["Once"]
    assert not world.dead_letters("once")


@pytest.mark.parametrize(("name", "last"), [("shuffled", Poisoned), ("rich", PoisonedRich)])
def test_behind_a_shuffle_what_kills_or_hangs_fails_alone(
    world: World, name: str, last: type[spout.BasicBolt | spout.Bolt]
) -> None:
    world.produce(name, lines())
    rows = world.read(name).transform(spout.bolt(Decode()))
    rows = rows.transform(spout.bolt(last(), grouping=spout.fields("value"), name="Poisoned"))
    with world.running(name, rows) as query:
        wait_for_letters(world, name, lambda: query.isActive)
        still_works(world, name)


def test_in_a_topology_what_kills_or_hangs_fails_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.produce("topology", lines())
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, "topology", startingOffsets="earliest")
    builder.set_bolt("decode", Decode()).shuffle_grouping("lines")
    builder.set_bolt("Poisoned", Poisoned(), 2).fields_grouping("decode", "value")
    running = builder.submit(world.spark, sink=world.collect)
    try:
        wait_for_letters(world, "topology", lambda: running.status().state == "active")
        still_works(world, "topology")
        assert running.status().isolated == {WORKER_DIED: 4, HUNG: 2}
        isolated = [
            record.getMessage() for record in caplog.records if record.msg.startswith("record_isolated")
        ]
        assert len(isolated) == 6
        assert all("bolt=Poisoned error=" in line for line in isolated)
    finally:
        running.kill()


def test_records_that_are_merely_slow_are_left_alone(world: World) -> None:
    """Each takes a twelfth of the limit; those of a partition take longer than it together."""
    world.produce("slow", ["slow"] * 28)
    rows = world.read("slow").transform(spout.bolt(Poisoned()))
    with world.running("slow", rows) as query:
        eventually(lambda: len(world.rows) >= 28 or query.exception(), DEADLINE_S)
        assert query.exception() is None
    assert world.rows == ["slow in attempt 0"] * 28
    assert not world.dead_letters("slow")


def test_a_batch_that_is_run_again_after_its_query_had_ended_is_isolated(world: World) -> None:
    """As on a master that tries tasks once, where a record that kills its worker ends the query."""

    def breaks(batch: DataFrame, _batch_id: int) -> None:
        world.collect(batch, 0)
        raise OSError("the sink is away")

    def frame() -> DataFrame:
        rows = world.read("again").transform(spout.bolt(WhereAmI(), name="first"))
        return rows.transform(spout.bolt(WhereAmI(), grouping=spout.fields("value"), name="second"))

    world.produce("again", ["a", "b"])
    with world.running("again", frame(), breaks) as query:
        eventually(lambda: query.exception() is not None, DEADLINE_S)
    assert sorted(world.rows) == ["a worker worker", "b worker worker"]
    world.rows.clear()
    with world.running("again", frame()) as query:
        eventually(lambda: len(world.rows) >= 2 or query.exception(), DEADLINE_S)
        assert sorted(world.rows) == ["a child child", "b child child"]
        world.produce("again", ["c"])
        eventually(lambda: len(world.rows) >= 3 or query.exception(), DEADLINE_S)
        assert world.rows[2:] == ["c worker worker"]


def test_a_limit_of_spark_s_that_ends_workers_before_bolt_timeout_is_refused(world: World) -> None:
    """D2405: 49 of 50 rows pass without it; with it the query ended at each start."""
    settings = {IDLE_LIMITS[0]: "2", IDLE_KILLS[0]: "true"}
    try:
        for name, value in settings.items():
            world.spark.conf.set(name, value)
        with pytest.raises(UsageError, match=r"bolt_timeout is 2s, and Spark ends .* for 2s"):
            world.read("read")
    finally:
        for name in settings:
            world.spark.conf.unset(name)
    assert world.read("read").isStreaming


def test_a_malformed_value_in_a_cast_ends_the_query_and_by_try_cast_its_record_alone(world: World) -> None:
    """D2404: Spark's expressions know no record; a null does, by `fail_when`."""
    world.produce("cast", ["1", "2", "three", "4"])
    rows = world.read("cast").selectExpr("CAST(value AS string) AS text", "_windhover")
    with (
        world.running("cast", rows.selectExpr("CAST(text AS int)", "_windhover")) as query,
        pytest.raises(StreamingQueryException, match="CAST_INVALID_INPUT"),
    ):
        query.awaitTermination(int(DEADLINE_S))
    assert world.dead_letters("cast") == []
    sound = rows.selectExpr("TRY_CAST(text AS int) AS number", "_windhover").transform(
        spout.fail_when("number IS NULL", "no number")
    )
    with world.running("cast", sound):
        eventually(lambda: len(world.dead_letters("cast")) == 1, DEADLINE_S)
    assert {"1", "2", "4"} <= {str(row) for row in world.rows}
    (letter,) = world.dead_letters("cast")
    assert letter.value == b"three"
