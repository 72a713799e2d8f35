"""Queries that write exactly once into a store, as users write them; judged by the store and the verdicts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import load_topics
from acker.errors import RowsChanged, Unreachable, UsageError
from spout.exactly_once import writer as exact_writer
from spout.exactly_once.sqlite_store import SQLiteStore
from spout.exactly_once.store import BatchKey
from spout.publishing.fold import TaskReport
from spout.sinks import exact_sink as exact_sinks
from spout.sinks.exact_sink import ExactSink, exact_sink
from spout.tuples.columns import ANCHOR
from spout.tuples.poison import WORKER_DIED
from tests.support.bolts.poison_bolts import Poisoned
from tests.support.bolts.sample_bolts import Pairs, Split, Upper
from tests.support.brokers import Broker
from tests.support.servers.postgres import postgres
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, VerdictWorld, config_of, serving, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

INPUTS = (
    "words", "sql", "grouped", "rich", "lost", "ran_twice", "past", "late",
    "refused", "held", "other", "linked", "chained", "tabled", "best_effort", "poisoned",
)  # fmt: skip


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the topics of all tests here, and run an acker for them."""
    config = config_of(tmp_path_factory.mktemp("exact"), broker, INPUTS)
    world = VerdictWorld(load_topics(config, {}), spark, config.parent)
    with serving(config, "acker"):
        yield world
    world.close()


class LossyStore(SQLiteStore):
    """A store whose answers are lost, as often as it is told."""

    lost_answers = 0

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Commit; nobody hears of it."""
        super().commit(key, rows, publication)
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unreachable("the answer of the store is lost")


def store_of(world: VerdictWorld, name: str, columns: str = "word TEXT") -> LossyStore:
    """Make a table in a file of its own."""
    path = world.folder / f"{name}.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE rows ({columns})")
    return LossyStore(path, "rows")


def stored(world: VerdictWorld, name: str, columns: str = "word") -> list[object]:
    """Return what the store has, ascending."""
    with closing(sqlite3.connect(world.folder / f"{name}.sqlite")) as connection:
        rows = connection.execute(f"SELECT {columns} FROM rows ORDER BY 1").fetchall()
    return [row[0] if len(row) == 1 else row for row in rows]


def words(world: VerdictWorld, name: str, **options: object) -> DataFrame:
    """Return the words of an input; ``bad`` fails its line."""
    bolt = spout.bolt(Split(), name="split", anchored=True, **options)  # type: ignore[arg-type]
    return world.read(name).transform(bolt)


@contextmanager
def running(
    world: VerdictWorld, name: str, rows: DataFrame, sink: ExactSink | Callable[[DataFrame, int], object]
) -> Iterator[StreamingQuery]:
    """Run a query as long as the context lasts."""
    writer = rows.writeStream.foreachBatch(sink).trigger(processingTime="200 milliseconds")
    query = writer.option("checkpointLocation", str(world.folder / name)).start()
    try:
        yield query
    finally:
        query.stop()


def test_rows_of_acked_records_are_in_the_store_and_none_of_those_that_failed(world: VerdictWorld) -> None:
    """D3201, across a stop and a start from the checkpoint; the hidden column does not reach the store."""
    store = store_of(world, "words")
    rows = words(world, "words").select("word", "_windhover")
    for lines, count in ((("a b", "c bad", "d"), 3), (("e", "bad f", "g"), 6)):
        world.produce("words", *lines)
        with running(world, "words", rows, exact_sink(store, rows)) as query:
            wait_for(query, lambda count=count: len(world.verdicts("words")) == count)
    assert stored(world, "words") == ["a", "b", "d", "e", "g"]
    verdicts = sorted(why.partition(":")[0] for why in world.verdicts("words").values())
    assert verdicts == ["ACKED"] * 4 + ["split"] * 2


def test_two_queries_in_a_row_write_once_through_a_topic_of_kafka(world: VerdictWorld) -> None:
    """D3210, across a stop and a start of the first; what is in its topic is an input of the second."""
    binary_words = words(world, "linked").select(sql.col("word").cast("binary").alias("word"), ANCHOR)
    topic = world.topics.input("chained").topic
    file_rows = words(world, "chained").select("word", ANCHOR)
    to_file = exact_sink(store_of(world, "chained"), file_rows)
    with running(world, "chained", file_rows, to_file) as second:
        for lines, count in ((("a b", "c bad", "d"), 3), (("e", "bad f", "g"), 5)):
            world.produce("linked", *lines)
            store = spout.KafkaStore(world.topics, topic, key="word", value="word")
            with running(world, "linked", binary_words, exact_sink(store, binary_words)):
                wait_for(second, lambda count=count: len(world.verdicts("chained")) == count)
            store.close()
    assert stored(world, "chained") == ["a", "b", "d", "e", "g"]
    assert set(world.verdicts("chained").values()) == {"ACKED"}


def test_rows_go_into_a_table_of_postgresql(world: VerdictWorld) -> None:
    """D3201 in PostgreSQL, across a stop and a start."""
    rows = words(world, "tabled").select("word", "ordinal", ANCHOR)
    with postgres() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE words (word text, ordinal int)")
        sink = exact_sink(spout.PostgresStore(dsn, "words"), rows)
        for lines, count in ((("a b", "c bad", "d"), 3), (("e", "bad f", "g"), 6)):
            world.produce("tabled", *lines)
            with running(world, "tabled", rows, sink) as query:
                wait_for(query, lambda count=count: len(world.verdicts("tabled")) == count)
        written = connection.execute("SELECT word, ordinal FROM words ORDER BY 1").fetchall()
    assert written == [("a", 0), ("b", 1), ("d", 0), ("e", 0), ("g", 0)]


def test_sparks_operators_that_keep_the_hidden_column_may_follow(world: VerdictWorld) -> None:
    """A line of which nothing is left is acked all the same."""
    rows = words(world, "sql").filter("word <> 'b'")
    rows = rows.select(sql.explode(sql.array(sql.upper("word"), "word")).alias("word"), "_windhover")
    store = store_of(world, "sql")
    world.produce("sql", "a b", "b", "c bad")
    with running(world, "sql", rows, exact_sink(store, rows)) as query:
        wait_for(query, lambda: len(world.verdicts("sql")) == 3)
    assert stored(world, "sql") == ["A", "a"]


def test_bolts_may_stand_behind_a_shuffle(world: VerdictWorld) -> None:
    """Of a line of which one word fails behind it, no word is written."""
    rows = world.read("grouped").transform(spout.bolt(Split(), name="first"))
    rows = rows.transform(spout.bolt(Upper(), grouping=spout.fields("word"), anchored=True))
    rows = rows.select("word", "_windhover")
    store = store_of(world, "grouped")
    world.produce("grouped", "a b c", "d worse", "e")
    with running(world, "grouped", rows, exact_sink(store, rows)) as query:
        wait_for(query, lambda: len(world.verdicts("grouped")) == 3)
    assert stored(world, "grouped") == ["A", "B", "C", "E"]


def test_rows_of_a_record_that_a_bolt_left_open_are_left_out(world: VerdictWorld) -> None:
    """D3201: a bolt that anchors and acks by hand; ``forget`` is never acked, though all its words are."""
    rows = world.read("rich").transform(spout.bolt(Pairs(), name="pairs", anchored=True))
    rows = rows.select("word", "_windhover")
    store = store_of(world, "rich")
    world.produce("rich", "a b", "c forget", "d")
    with running(world, "rich", rows, exact_sink(store, rows)) as query:
        wait_for(query, lambda: len(world.verdicts("rich")) == 2)
    assert stored(world, "rich") == ["a", "b", "d"]


def test_a_record_that_tracked_when_leaves_out_is_acked_with_its_batch_though_its_bolt_fails(
    world: VerdictWorld,
) -> None:
    """D3221: of what its bolt had emitted for it nothing is written."""
    lines = spout.read_stream(
        world.spark,
        world.topics,
        "best_effort",
        startingOffsets="earliest",
        tracked_when=lambda tuple: not tuple["value"].startswith(b"debug"),
    )
    rows = lines.transform(spout.bolt(Split(), name="split", anchored=True)).select("word", ANCHOR)
    store = store_of(world, "best_effort")
    world.produce("best_effort", "a b", "c bad", "debug1", "debug2 bad")
    with running(world, "best_effort", rows, exact_sink(store, rows)) as query:
        wait_for(query, lambda: len(world.verdicts("best_effort")) == 4)
    verdicts = world.verdicts("best_effort")
    assert {place for place, why in verdicts.items() if why != "ACKED"} == {(1, 0)}
    assert stored(world, "best_effort") == ["a", "b", "debug1"]


def test_a_record_that_ends_its_worker_fails_alone_where_tasks_are_tried_again(world: VerdictWorld) -> None:
    """D3218: the session of the tests tries them three times."""
    rows = world.read("poisoned").transform(spout.bolt(Poisoned(), name="poisoned", anchored=True))
    store = store_of(world, "poisoned", "value TEXT")
    world.produce("poisoned", "a", "b", "exit", "c", "d")
    with running(world, "poisoned", rows, exact_sink(store, rows)) as query:
        wait_for(query, lambda: len(world.verdicts("poisoned")) == 5)
    verdicts = world.verdicts("poisoned")
    assert {place: why for place, why in verdicts.items() if why != "ACKED"} == {
        (0, 1): f"poisoned: {WORKER_DIED}"
    }
    assert stored(world, "poisoned", "value") == ["a", "b", "c", "d"]


def test_a_run_ends_where_the_outcome_is_unknown_and_the_next_one_finds_it_in_the_store(
    world: VerdictWorld,
) -> None:
    """D3203: in one driver, with the same sink; what the store has is published, and not written again."""
    rows = words(world, "lost").select("word", "_windhover")
    store = store_of(world, "lost")
    sink = exact_sink(store, rows)
    store.lost_answers = 1
    world.produce("lost", "a b", "c bad", "d")
    with running(world, "lost", rows, sink) as query:
        eventually(query.exception, DEADLINE_S)
        assert "the answer of the store is lost" in str(query.exception())
    assert world.verdicts("lost") == {}
    world.produce("lost", "e")
    with running(world, "lost", rows, sink) as query:
        wait_for(query, lambda: len(world.verdicts("lost")) == 4)
    assert stored(world, "lost") == ["a", "b", "d", "e"]


@pytest.mark.parametrize("times", [exact_sinks.EVALUATIONS_MAX - 1, exact_sinks.EVALUATIONS_MAX])
def test_a_batch_of_which_a_task_ran_twice_is_evaluated_again_or_ends_the_run_by_name(
    times: int,
    world: VerdictWorld,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D3204."""
    name = "ran_twice" if times < exact_sinks.EVALUATIONS_MAX else "late"
    refuse = exact_writer.refuse_repeated_tasks
    left = [times]

    def refuse_some(reports: tuple[TaskReport, ...]) -> None:
        if left[0]:
            left[0] -= 1
            raise RowsChanged("a task reported twice")
        refuse(reports)

    monkeypatch.setattr(exact_writer, "refuse_repeated_tasks", refuse_some)
    rows = words(world, name).select("word", "_windhover")
    store = store_of(world, name)
    world.produce(name, "a b", "c bad")
    with running(world, name, rows, exact_sink(store, rows)) as query:
        if times < exact_sinks.EVALUATIONS_MAX:
            wait_for(query, lambda: len(world.verdicts(name)) == 2)
        else:
            eventually(query.exception, DEADLINE_S)
            assert "RowsChanged" in str(query.exception())
    again = caplog.text.count("batch_is_evaluated_again")
    assert again == exact_sinks.EVALUATIONS_MAX - 1
    assert stored(world, name) == (["a", "b"] if times < exact_sinks.EVALUATIONS_MAX else [])


def test_a_batch_that_goes_past_the_store_ends_the_query(world: VerdictWorld) -> None:
    """D3207: the rows would be acked by a publication that no store has."""
    rows = words(world, "past").select("word", "_windhover")
    exact_sink(store_of(world, "past"), rows)
    world.produce("past", "a")
    sink = spout.sink(lambda batch, _: batch.collect())
    with running(world, "past", rows, sink) as query:
        eventually(query.exception, DEADLINE_S)
        assert "went past the store" in str(query.exception())


Made = Callable[[VerdictWorld], DataFrame]

REFUSED: dict[str, tuple[Made, str]] = {
    "dropped": (lambda world: words(world, "refused").select("word"), "lack the hidden column"),
    "aggregate": (
        lambda world: words(world, "refused").groupBy("word").agg(sql.first(ANCHOR).alias(ANCHOR)),
        "lost what describes it|stands behind the last bolt",
    ),
    "duplicates": (lambda world: words(world, "refused").dropDuplicates(["word"]), "behind the last bolt"),
    "repartition": (lambda world: words(world, "refused").repartition(2), "behind the last bolt"),
    "limit": (lambda world: words(world, "refused").limit(2), "Limit stands behind a tracked stream"),
    "untracked": (
        lambda world: spout.read_stream(world.spark, world.topics, "refused", tracked=False),
        "of 0 tracked streams",
    ),
    "delayed": (
        lambda world: spout.read_stream(world.spark, world.topics, "held", delayed_acks=True),
        "holds tuples across batches",
    ),
    "two streams": (
        lambda world: words(world, "refused").union(words(world, "other")),
        "of 2 tracked streams",
    ),
    "no stream": (lambda world: world.spark.createDataFrame([("a",)], "word string"), "writes a stream"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_query_whose_rows_do_not_name_one_record_is_refused_before_it_starts(
    kind: str, world: VerdictWorld, tmp_path: Path
) -> None:
    """D3205."""
    make, message = REFUSED[kind]
    store = SQLiteStore(tmp_path / "none.sqlite", "rows")
    with pytest.raises(UsageError, match=message):
        exact_sink(store, make(world))


def test_a_table_that_is_missing_is_named_before_the_group_is_taken(world: VerdictWorld) -> None:
    """D3209."""
    rows = words(world, "other").select("word", "_windhover")
    path = world.folder / "no-table.sqlite"
    world.produce("other", "a")
    with running(world, "other", rows, exact_sink(SQLiteStore(path, "nowhere"), rows)) as query:
        eventually(query.exception, DEADLINE_S)
        assert isinstance(query.exception(), StreamingQueryException)
        assert "has no table nowhere" in str(query.exception())
