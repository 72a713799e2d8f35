"""A sink that has written a batch before, and skips it when the query is started again, on a real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from spout.planning_process.status import PlannerStatus
from spout.publishing.publish import BATCH_SKIPPED
from spout.streaming.application import Application
from tests.support.bolts.sample_bolts import Keep, NoOrigin
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = pytest.mark.slow

LINES = ("a b", "c", "d e f", "g")
WORDS = ["a", "b", "c", "d", "e", "f", "g"]
KINDS = ("narrow", "grouped")
INPUTS = tuple(f"{kind}-{manner}" for kind in KINDS for manner in ("same", "ahead", "other", "fresh"))


class Table:
    """A sink that knows which batches it has written; behind the first it fails, before it is published."""

    def __init__(self) -> None:
        """Begin empty."""
        self.words: list[str] = []
        self.skipped: list[int] = []
        self.written: set[int] = set()

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it was written before."""
        if batch_id in self.written:
            self.skipped.append(batch_id)
            spout.skipped(batch_id)
            return
        self.words += [row.word for row in batch.collect()]
        self.written.add(batch_id)
        if batch_id == 0:
            raise ConnectionError("the sink has written, and is away")


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("skipped")
    config = config_of(folder, broker, INPUTS)
    with stream_world(spark, config, "acker", "replay") as made:
        yield made


def words(world: StreamWorld, name: str) -> DataFrame:
    """Read the words of an input, by one bolt, or by one more behind a shuffle."""
    rows = world.read(name).transform(spout.bolt(NoOrigin(), name="split"))
    if name.startswith("narrow"):
        return rows
    return rows.transform(spout.bolt(Keep(), name="keep", grouping=spout.fields("word")))


@contextmanager
def running(
    world: StreamWorld, name: str, rows: DataFrame, table: Table, *, deterministic: bool
) -> Iterator[StreamingQuery]:
    """Run a query into a table as long as the context lasts."""
    writer = rows.writeStream.foreachBatch(spout.sink(table.write, deterministic=deterministic))
    query = writer.option("checkpointLocation", str(Path(world.folder, name))).start()
    try:
        yield query
    finally:
        query.stop()


def settled(world: StreamWorld, name: str, rows: DataFrame) -> None:
    """Wait until nothing is pending and every line is committed.

    Verdicts that were given before a process had taken its group count for none of its sums.
    """
    topic = world.topics.input(name).topic

    def status() -> PlannerStatus | None:
        return spout.stream_status(rows).spout

    def enough() -> bool:
        found = status()
        if found is None or found.pending:
            return False
        mine = (at for place, at in found.committed.items() if place.rpartition("/")[0] == topic)
        return sum(mine) == len(LINES)

    eventually(enough, DEADLINE_S, told=status)


def written_and_not_published(
    world: StreamWorld, name: str, rows: DataFrame, *, deterministic: bool
) -> Table:
    """Run a query until its sink has written batch 0 and failed."""
    table = Table()
    world.produce(name, *LINES)
    fails = pytest.raises(StreamingQueryException, match="the sink has written, and is away")
    with running(world, name, rows, table, deterministic=deterministic) as query, fails:
        assert query.awaitTermination(DEADLINE_S)
    assert sorted(table.words) == WORDS
    assert world.published(name).said == 0
    return table


def planned_by_a_clock_ahead(world: StreamWorld, name: str) -> None:
    """Let another machine, whose clock is an hour ahead, have planned batch 0; this one has run no query."""
    entry = Path(world.folder, name, "offsets", "0")
    version, metadata, *offsets = entry.read_text(encoding="utf-8").splitlines()
    found = json.loads(metadata)
    found["batchTimestampMs"] += 3_600_000
    entry.write_text("\n".join([version, json.dumps(found), *offsets]), encoding="utf-8")
    entry.with_name(".0.crc").unlink(missing_ok=True)
    Application.of(world.spark).sunk.clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("manner", ["same", "ahead"])
def test_a_deterministic_batch_that_is_skipped_is_acked_by_what_its_bolts_do_again(
    world: StreamWorld, kind: str, manner: str
) -> None:
    """The rows of its first run stand; nothing is written twice, and nothing is replayed.

    Who planned a batch is known from the run, and from no clock: it may be `ahead` of this machine's.
    """
    name = f"{kind}-{manner}"
    rows = words(world, name)
    table = written_and_not_published(world, name, rows, deterministic=True)
    if manner == "ahead":
        planned_by_a_clock_ahead(world, name)
    with running(world, name, rows, table, deterministic=True) as query:
        found = world.wait_for(name, len(LINES), query)
        settled(world, name, rows)
    assert table.skipped == [0]
    assert (found.acked, found.failed, found.open) == ({0, 1, 2, 3}, {}, set())
    assert world.copies(name) == []
    assert sorted(table.words) == WORDS
    assert spout.stream_status(rows).count("executed", "split") == len(LINES)


@pytest.mark.parametrize("kind", KINDS)
def test_any_other_batch_that_is_skipped_is_failed_and_replayed(world: StreamWorld, kind: str) -> None:
    """Its bolts may have done something else this time: what was written and what would be acked differ."""
    name = f"{kind}-other"
    rows = words(world, name)
    table = written_and_not_published(world, name, rows, deterministic=False)
    with running(world, name, rows, table, deterministic=False) as query:
        found = world.wait_for(name, len(LINES), query)
        settled(world, name, rows)
        eventually(lambda: len(table.words) == 2 * len(WORDS), DEADLINE_S, told=lambda: table.words)
    assert table.skipped == [0]
    assert (found.acked, set(found.failed)) == (set(), {0, 1, 2, 3})
    assert {error for _, error, _ in found.failed.values()} == {BATCH_SKIPPED}
    assert sorted(world.copies(name)) == sorted(LINES)
    assert sorted(table.words) == sorted(WORDS * 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_a_fresh_checkpoint_is_not_acked_because_an_older_one_had_its_id(
    world: StreamWorld, kind: str
) -> None:
    """A sink that keeps batch ids alone skips what nobody has written: it is replayed until it is."""
    name = f"{kind}-fresh"
    rows = words(world, name)
    table = Table()
    table.written |= {0}
    world.produce(name, *LINES)
    with running(world, name, rows, table, deterministic=True) as query:
        found = world.wait_for(name, len(LINES), query)
        # first: what was acked unwritten never comes
        assert (table.skipped, found.acked, set(found.failed)) == ([0], set(), {0, 1, 2, 3})
        eventually(lambda: sorted(table.words) == WORDS, DEADLINE_S, told=lambda: table.words)
