"""Queries that `spout.start` starts: Spark's own sinks, judged by the ack topics and by what was written."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spout
from acker.errors import UsageError
from spout.publishing.publish import Publication, Publisher
from tests.support.bolts.sample_bolts import NoOrigin, place_in
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

INPUTS = (
    "files",
    "counts",
    "distinct",
    "foreach",
    "failing",
    "skipping",
    "refused",
    "other",
    "within",
    "free",
    "left",
    "right",
    "console",
    "table",
    "delta",
    "shuffled",
    "mine",
    "theirs",
    "beside",
    "reference",
    "interrupted",
)
CRASHED = (
    '  crashed: {{id: 99, topic: "{prefix}crashed", group: "{prefix}crashed", partitions: 2, timeout: 4s,'
    " retry: {{attempts: 5}}}}"
    "\n"
    '  ruled: {{id: 98, topic: "{prefix}ruled", group: "{prefix}ruled", partitions: 2, retry: {{'
    " attempts: 5,"
    " causes: [{{operator: spilt, then: drop}}, {{operator: split, error: KeyError, then: drop}}]}}}}"
)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("sinks")
    config = config_of(folder, broker, INPUTS, CRASHED)
    with stream_world(spark, config, "acker", "replay") as made:
        yield made


def words(world: StreamWorld, name: str) -> DataFrame:
    """Read the words of an input; ``bad`` fails its line."""
    return world.read(name).transform(spout.bolt(NoOrigin(), name="split"))


def written(world: StreamWorld, name: str) -> list[str]:
    """Return the words that a query wrote to files."""
    rows = world.spark.read.schema("word string").parquet(str(world.folder / f"{name}-out"))
    return sorted(row.word for row in rows.collect())


def to_files(world: StreamWorld, name: str, rows: DataFrame) -> DataStreamWriter:
    """Write words to files."""
    out = str(world.folder / f"{name}-out")
    return rows.writeStream.format("parquet").option("path", out).option(*at(world, name))


def at(world: StreamWorld, name: str) -> tuple[str, str]:
    """Name the checkpoint of a query."""
    return "checkpointLocation", str(world.folder / name)


@contextmanager
def started(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Run a query as long as the context lasts."""
    query = spout.start(writer)
    try:
        yield query
    finally:
        query.stop()


def test_files_are_written_and_acked_across_a_restart(world: StreamWorld) -> None:
    """S53, S140: what fails fails by name; a stop and a start from the checkpoint go on behind it."""
    for said, lines in ((3, ("a b", "c bad", "d")), (5, ("e", "bad f"))):
        world.produce("files", *lines)
        with started(to_files(world, "files", words(world, "files"))) as query:
            found = world.wait_for("files", said, query)
    # the second time each partition goes on where the first ended: lines 0 and 2, then 4; line 1, then 3
    assert found.acked == {0, 2, 4}
    place = place_in(NoOrigin, 'raise ValueError("a bad word")')
    assert found.failed == dict.fromkeys((1, 3), ("split", "ValueError", f"a bad word ({place})"))
    assert written(world, "files") == ["a", "b", "d", "e"]


@pytest.mark.parametrize("is_function", [False, True])
def test_a_rule_for_a_bolt_that_is_not_there_is_named_at_the_start(
    world: StreamWorld, caplog: pytest.LogCaptureFixture, is_function: bool
) -> None:
    """D1606, for `spout.start` and for `spout.sink`."""
    name = f"ruled-{is_function}"
    world.produce("ruled", "a")
    rows = world.read("ruled").transform(spout.bolt(NoOrigin(), name="split"))
    writer = to_files(world, name, rows)
    if is_function:
        function = spout.sink(lambda batch, _batch_id: batch.write.format("noop").mode("overwrite").save())
        writer = rows.writeStream.foreachBatch(function).option(*at(world, name))
    query = writer.start() if is_function else spout.start(writer)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    lines = [record.getMessage() for record in caplog.records if "rule_fits_nothing" in record.getMessage()]
    assert len(lines) == 1
    assert "causes.0: no bolt of the query is called spilt" in lines[0]
    assert "did you mean split?" in lines[0]


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_sparks_aggregates_are_acked_when_its_state_store_holds_them(world: StreamWorld, mode: str) -> None:
    """Each mode is a query of its own on the same group, one after the other: the second takes over."""
    world.produce("counts", "a b", "a")
    counts = words(world, "counts").groupBy("word").count()
    name = f"counts-{mode}"
    writer = counts.writeStream.format("memory").outputMode(mode).queryName(f"counts_{mode}")
    with started(writer.option(*at(world, name))) as query:
        said = 2 if mode == "complete" else 4
        found = world.wait_for("counts", said, query)
        assert len(found.acked) == said
        query.processAllAvailable()
        rows = world.spark.table(f"counts_{mode}").groupBy("word").max("count").collect()
    assert {tuple(row) for row in rows} == {("a", 2), ("b", 1)}


def test_a_duplicate_that_spark_drops_is_acked_too(world: StreamWorld) -> None:
    """Spark's state has what was seen, also in a batch before."""
    for said, lines in ((2, ("a b", "a")), (3, ("b c",))):
        world.produce("distinct", *lines)
        rows = words(world, "distinct").dropDuplicates(["word"])
        with started(to_files(world, "distinct", rows)) as query:
            found = world.wait_for("distinct", said, query)
    assert (found.acked, found.failed) == ({0, 1, 2}, {})
    assert written(world, "distinct") == ["a", "b", "c"]


def test_a_foreach_writer_is_acked_too(world: StreamWorld) -> None:
    out = world.folder / "foreach.txt"

    def put(row: object) -> None:
        with out.open("a") as file:
            file.write(f"{row.word}\n")  # type: ignore[attr-defined]

    world.produce("foreach", "a b", "bad")
    with started(words(world, "foreach").writeStream.foreach(put).option(*at(world, "foreach"))) as query:
        found = world.wait_for("foreach", 2, query)
    assert (found.acked, set(found.failed)) == ({0}, {1})
    assert sorted(out.read_text().split()) == ["a", "b"]


def test_the_console_is_a_sink_as_any_other(world: StreamWorld) -> None:
    world.produce("console", "a b", "bad")
    writer = words(world, "console").writeStream.format("console").option(*at(world, "console"))
    with started(writer) as query:
        found = world.wait_for("console", 2, query)
        query.processAllAvailable()
        assert query.lastProgress is not None
        assert "ConsoleTable" in query.lastProgress["sink"]["description"]
    assert (found.acked, set(found.failed)) == ({0}, {1})


def test_a_table_is_written_and_acked_across_a_restart(world: StreamWorld) -> None:
    """As `DataStreamWriter.toTable`, which makes the table when it is not there."""
    for said, lines in ((2, ("a b", "bad")), (4, ("c", "bad"))):
        world.produce("table", *lines)
        writer = words(world, "table").writeStream.format("parquet").option(*at(world, "table"))
        query = spout.start(writer, table="words_of_a_stream")
        try:
            found = world.wait_for("table", said, query)
            query.processAllAvailable()
        finally:
            query.stop()
    assert (found.acked, set(found.failed)) == ({0, 2}, {1, 3})
    rows = world.spark.table("words_of_a_stream").collect()
    world.spark.sql("DROP TABLE words_of_a_stream")
    assert sorted(row.word for row in rows) == ["a", "b", "c"]


def test_a_sink_that_is_not_installed_is_told_by_name_and_leaves_the_group_free(world: StreamWorld) -> None:
    """Delta, where its jars are not there: no query runs, and another one may read the group at once."""
    world.produce("delta", "a", "b")
    writer = words(world, "delta").writeStream.format("delta").option(*at(world, "delta"))
    says = r"DATA_SOURCE_NOT_FOUND\] .*delta.*: give Spark the sink's jars .*, made for Spark 4"
    with pytest.raises(UsageError, match=says):
        spout.start(writer.option("path", str(world.folder / "delta-out")))
    with started(to_files(world, "delta", words(world, "delta"))) as query:
        assert world.wait_for("delta", 2, query).acked == {0, 1}


def test_what_spark_shuffles_behind_the_last_bolt_is_acked_when_it_is_written(world: StreamWorld) -> None:
    """A join with a table that is not broadcast; what it leaves out is acked with the batch."""
    world.produce("shuffled", "a hawk", "it hovers", "bad", "nobody knows this")
    kinds = world.spark.createDataFrame([("hawk", "bird"), ("it", "pronoun")], "word string, kind string")
    rows = words(world, "shuffled").join(kinds.hint("merge"), "word").select("word")
    with started(to_files(world, "shuffled", rows)) as query:
        found = world.wait_for("shuffled", 4, query)
    assert (found.acked, set(found.failed)) == ({0, 1, 3}, {2})
    assert written(world, "shuffled") == ["hawk", "it"]


def test_several_queries_are_published_beside_each_other(world: StreamWorld) -> None:
    """One listener of the session serves them all, each by its own stream."""
    for name in ("left", "right"):
        world.produce(name, "a", f"{name} bad")
    with (
        started(to_files(world, "left", words(world, "left"))) as left,
        started(to_files(world, "right", words(world, "right"))) as right,
    ):
        for name, query in (("left", left), ("right", right)):
            found = world.wait_for(name, 2, query)
            assert (found.acked, set(found.failed)) == ({0}, {1})


def test_a_sink_of_ours_within_is_published_once(world: StreamWorld) -> None:
    """The listener comes behind it, often after the next batch, and says nothing."""
    world.produce("within", "a", "bad")
    kept: list[str] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        kept.extend(row.word for row in batch.collect())

    writer = words(world, "within").writeStream.foreachBatch(spout.sink(write))
    with started(writer.option(*at(world, "within"))) as query:
        assert len(world.wait_for("within", 2, query).acked) == 1
        world.produce("within", "b", "bad")
        found = world.wait_for("within", 4, query)
    assert (found.acked, sorted(found.failed), kept) == ({0, 2}, [1, 3], ["a", "b"])


def test_what_cannot_be_published_stops_the_query_with_the_reason(world: StreamWorld) -> None:
    """Spark swallows what its listeners raise; the planning process raises it in their place."""
    world.produce("failing", "a b", "c")
    lines = world.read("failing")
    twice = lines.union(lines).transform(spout.bolt(NoOrigin(), name="split"))
    query = spout.start(to_files(world, "failing", twice))
    with pytest.raises(StreamingQueryException, match=r"could not be published .*received a root twice"):
        assert query.awaitTermination(DEADLINE_S), query.stop()
    assert world.published("failing").said == 0


def test_a_batch_that_the_sink_had_written_before_fails_its_roots(world: StreamWorld) -> None:
    """A crash between the file sink's log and Spark's own: nothing of the batch is evaluated again."""
    world.produce("skipping", "a", "b")
    with started(to_files(world, "skipping", words(world, "skipping"))) as query:
        world.wait_for("skipping", 2, query)
        query.processAllAvailable()
    commits = world.folder / "skipping" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    with started(to_files(world, "skipping", words(world, "skipping"))) as query:
        eventually(lambda: len(world.published("skipping").failed) == 2, DEADLINE_S)
        world.produce("skipping", "c", "d")
        found = world.wait_for("skipping", 6, query)
    assert {error for _, error, _ in found.failed.values()} == {"BATCH_SKIPPED"}
    assert found.acked == {0, 1, 2, 3}, "the contributions of the first run stand, and came first"


def test_a_crash_between_sparks_commit_and_its_report_costs_replays_only(world: StreamWorld) -> None:
    """Nobody publishes the first batch; its records time out and come again to the query that goes on."""
    world.produce("crashed", "a", "b")
    query = to_files(world, "crashed", words(world, "crashed")).trigger(once=True).start()
    assert query.awaitTermination(DEADLINE_S), query.stop()
    assert world.published("crashed").said == 0
    world.produce("crashed", "c", "d")
    with started(to_files(world, "crashed", words(world, "crashed"))) as query:

        def is_whole() -> bool:
            """All that was emitted is written, once for each time: copies too; a stall makes more."""
            if error := query.exception():
                raise error
            again = world.copies("crashed")
            return {"a", "b"} <= set(again) and written(world, "crashed") == sorted([*"abcd", *again])

        eventually(is_whole, DEADLINE_S)


def read_two(world: StreamWorld) -> DataFrame:
    """Read two groups by one query."""
    return world.read("refused").select("value").union(world.read("other").select("value"))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda world: world.read("refused").writeStream, r'rows\.drop\("_windhover"\)'),
        (lambda world: words(world, "refused").limit(3).writeStream, "GlobalLimit stands behind a tracked"),
        (lambda world: read_two(world).writeStream, "reads 2 tracked streams"),
        (
            lambda world: words(world, "refused").writeStream.trigger(continuous="1 second"),
            "does not support continuous processing.*; a tracked stream runs in micro-batches",
        ),
        (
            lambda world: words(world, "refused").writeStream.trigger(realTime="5 minutes"),
            "REAL_TIME_MODE.*; a tracked stream runs in micro-batches",
        ),
    ],
)
def test_what_cannot_be_tracked_is_refused_by_name(
    world: StreamWorld, build: Callable[[StreamWorld], DataStreamWriter], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        spout.start(build(world).format("noop").option(*at(world, "refused")))


def test_a_second_query_of_a_group_is_refused_while_the_first_runs(world: StreamWorld) -> None:
    """Also when both streams were read before either query was started."""
    one, two = words(world, "other"), words(world, "other")
    with started(to_files(world, "other", one)):
        with pytest.raises(UsageError, match="is read by a query of this application already"):
            spout.start(to_files(world, "other-two", two))
        with pytest.raises(UsageError, match="is read by a query of this application already"):
            words(world, "other")


def test_a_query_of_another_session_of_the_spark_context_is_seen(world: StreamWorld) -> None:
    """Each session has a list of queries of its own."""
    other = StreamWorld(world.topics, world.spark.newSession(), world.folder)
    with closing(other), started(to_files(world, "other-first", words(world, "other"))):
        assert not other.spark.streams.active
        with pytest.raises(UsageError, match="is read by a query of this application already"):
            other.read("other")


def test_sessions_of_one_application_read_streams_beside_each_other(
    world: StreamWorld, tmp_path: Path
) -> None:
    """Spark lets one session of a context register a data source's name: each has names of its own."""
    world.produce("mine", "a b", "bad")
    world.produce("theirs", "c d", "bad", "e")
    other = StreamWorld(world.topics, world.spark.newSession(), world.folder)
    mine, theirs = words(world, "mine"), words(other, "theirs")
    with pytest.raises(UsageError, match="operators that dropped the hidden column"):
        theirs.selectExpr("upper(word) AS value").transform(spout.bolt(NoOrigin(), name="lost"))
    with closing(other), started(to_files(world, "mine", mine)) as one:
        with started(to_files(other, "theirs", theirs)) as two:
            found = other.wait_for("theirs", 3, two)
        assert (found.acked, set(found.failed)) == ({0, 2}, {1})
        found = world.wait_for("mine", 2, one)
    assert (found.acked, set(found.failed)) == ({0}, {1})
    untracked = (
        spout.read_stream(other.spark, other.topics, "theirs", tracked=False, startingOffsets="earliest")
        .select("value")
        .writeStream.format("parquet")
        .trigger(availableNow=True)
    )
    query = spout.start(untracked.option("path", str(tmp_path / "out")).option(*at(other, "theirs-free")))
    assert query.awaitTermination(DEADLINE_S), query.stop()
    assert other.spark.read.parquet(str(tmp_path / "out")).count() == 3


def test_records_that_a_predicate_leaves_out_are_best_effort(world: StreamWorld) -> None:
    """S52: one of two lines that fail is not tracked, and so acked with its batch."""
    world.produce("free", "a b", "bad debug", "bad")
    rows = spout.read_stream(
        world.spark,
        world.topics,
        "free",
        startingOffsets="earliest",
        tracked_when=lambda tuple: b"debug" not in tuple["value"],
    )
    with started(to_files(world, "free", rows.transform(spout.bolt(NoOrigin(), name="split")))) as query:
        found = world.wait_for("free", 3, query)
    assert (found.acked, set(found.failed)) == ({0, 1}, {2})


def test_a_tracked_stream_is_published_batch_by_batch_beside_one_that_was_or_is_untracked(
    world: StreamWorld,
) -> None:
    """S53: a query of one application on one checkpoint, without tracking at first; what it reads beside."""
    world.produce("beside", "a")
    world.produce("reference", "x")
    rows: list[str] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        rows.extend(row.word for row in batch.collect())

    def read(name: str) -> DataFrame:
        untracked = spout.read_stream(
            world.spark, world.topics, name, tracked=False, startingOffsets="earliest"
        )
        return untracked.selectExpr("CAST(value AS string) AS word")

    def wait_for_row(query: StreamingQuery, word: str) -> None:
        eventually(lambda: query.exception() or word in rows, DEADLINE_S)

    with world.running("beside", read("reference").union(read("beside")), write) as query:
        wait_for_row(query, "a")
        wait_for_row(query, "x")
    both = read("reference").union(words(world, "beside").select("word"))
    for said, line in enumerate(("b", "bad", "c d"), 1):
        world.produce("beside", line)
        with world.running("beside", both, write) as query:
            found = world.wait_for("beside", said, query)
            world.produce("reference", f"y{said}")
            wait_for_row(query, f"y{said}")
    assert (len(found.acked), len(found.failed)) == (2, 1)
    assert sorted(set(rows)) == ["a", "b", "c", "d", "x", "y1", "y2", "y3"]


def test_a_stream_without_tracking_is_started_as_it_is(world: StreamWorld, tmp_path: Path) -> None:
    """S53, S79: `tracked=False` is best effort; nothing is published."""
    world.produce("refused", "a")
    rows = spout.read_stream(world.spark, world.topics, "refused", tracked=False, startingOffsets="earliest")
    lines = rows.select("value").writeStream.format("parquet").trigger(availableNow=True)
    query = spout.start(lines.option("path", str(tmp_path / "out")).option(*at(world, "untracked")))
    assert query.awaitTermination(DEADLINE_S), query.stop()
    assert world.spark.read.parquet(str(tmp_path / "out")).count() == 1
    assert world.published("refused").said == 0


def test_the_threads_that_publish_leave_ctrl_c_to_the_main_thread(
    world: StreamWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls two: one for its own sinks, one for `foreachBatch`."""
    blocked: list[bool] = []
    publish = Publisher.publish

    def noted(self: Publisher, publication: Publication, partitions: int) -> None:
        blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        publish(self, publication, partitions)

    monkeypatch.setattr(Publisher, "publish", noted)
    world.produce("interrupted", "a")
    with started(to_files(world, "interrupted", words(world, "interrupted"))) as query:
        world.wait_for("interrupted", 1, query)
    assert blocked == [True]
    world.produce("interrupted", "b")
    with world.running("interrupted", words(world, "interrupted")) as query:
        world.wait_for("interrupted", 2, query)
    assert blocked == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
