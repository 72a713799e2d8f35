# pyright: strict, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# (what is off is for pyarrow, which ships no types)
"""User code over the whole public API, for the type checkers; it is never run.

`tests/unit/test_api_types.py` lets mypy and pyright read it, strictly, and sees that no public name is left
out. Where a user would rely on a type it is asserted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import Topics
from acker.errors import TupleError, Unreachable, WindhoverError
from acker.identity import Root

# -- bolts


class Split(spout.BasicBolt):
    output = "word string, place string"

    def prepare(self, context: spout.BoltContext) -> None:
        self.name = context.name
        context.add_hook(Slow(100.0))

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        message_id = assert_type(tuple.message_id, spout.MessageId)
        words: list[str] = tuple["value"].decode().split()
        if not words:
            collector.report_error("an empty line")
            raise spout.FailTuple("no words")
        for ordinal, word in enumerate(words):
            collector.emit((word, f"{message_id.origin}#{ordinal}"))

    def cleanup(self) -> None:
        del self.name


def try_split() -> None:
    rows: list[tuple[str, str]] = []
    Split().execute(spout.tuple_of({"value": b"the hawk"}, origin="a/0@1"), spout.BasicCollector(rows.append))


class Parse(spout.BasicBolt):
    def declare(self, declarer: spout.OutputDeclarer) -> None:
        declarer.declare("id int, total double")
        declarer.declare("why string", stream="errors")
        declarer.declare("id int", stream="rows", direct=True)

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        try:
            found: dict[str, Any] = json.loads(tuple.value(1))
        except ValueError as error:
            raise spout.Undecodable("no JSON") from error
        if "id" not in found:
            raise spout.RejectTuple("no id")
        collector.emit((found["id"], found["total"]))
        collector.emit(("cheap",), stream="errors")
        collector.emit_direct(0, (found["id"],), stream="rows")


class Join(spout.Bolt):
    output = "left string, right string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        self.collector = collector
        self.tasks: Mapping[str, int] = context.tasks
        self.held: dict[str, spout.Tuple] = {}

    def execute(self, tuple: spout.Tuple) -> None:
        key = str(tuple["key"])
        other = self.held.pop(key, None)
        if other is None:
            self.held[key] = tuple
            self.collector.reset_timeout(tuple)
            return
        self.collector.emit([other["value"], tuple["value"]], anchors=[other, tuple])
        self.collector.ack(other)
        self.collector.ack(tuple)

    def cleanup(self) -> None:
        for tuple in self.held.values():
            self.collector.fail(tuple, ValueError("alone"))
            self.collector.report_error(f"{tuple.source_component}/{tuple.source_stream}: {tuple.fields}")


class Upper(spout.ArrowBolt):
    output = "word string"
    fields = ("word",)

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        words: pa.Array = pc.call_function("utf8_upper", [batch.column("word")])
        collector.emit([words], parents=pa.array(range(batch.num_rows)))
        collector.fail(0, "no word")


def try_upper() -> None:
    collector = spout.BatchCollector("upper", rows=2)
    Upper().execute(pa.record_batch({"word": ["hawk", "waits"]}), collector)
    words: list[list[str]] = [column.to_pylist() for column in collector.columns[0]]
    assert words == [["HAWK", "WAITS"]]
    assert collector.parents[0].tolist() == [0, 1]
    assert_type([(row, cause.message) for row, cause in collector.failures], list[tuple[int, str]])


class Sessions(spout.KeyedBolt):
    output = "user string, actions int"
    tick_ms = 60_000

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        if held[-1]["action"] == "leave":
            collector.emit((*key, len(held)))
            collector.ack(*held)
        elif len(held) > 1_000:
            collector.fail(held[0], "too many")
        collector.reset_timeout(*collector.held)
        assert_type(held[0].root, Root | None)
        assert_type(collector.held, list[spout.KeyedTuple])


class Slow(spout.TaskHook):
    def __init__(self, limit_ms: float) -> None:
        self.limit_ms = limit_ms

    def emit(self, info: spout.EmitInfo) -> None:
        print(info.stream, info.deliveries, list(info.values))

    def execute(self, info: spout.ExecuteInfo) -> None:
        if info.latency_ms > self.limit_ms:
            print(info.tuple.message_id.origin)

    def ack(self, info: spout.AckInfo) -> None:
        print(assert_type(info.latency_ms, float))

    def fail(self, info: spout.FailInfo) -> None:
        print(info.cause.operator, info.cause.error, info.cause.message)
        print(assert_type(spout.traceparent(info.tuple), str))


def is_traced(context: spout.BoltContext) -> bool:
    hook = spout.TraceHook()
    hook.prepare(context)
    return assert_type(hook.is_tracing, bool)


# -- DataFrames


def word_counts(spark: SparkSession, topics: Topics, folder: Path) -> StreamingQuery:
    lines = assert_type(
        spout.read_stream(
            spark,
            topics,
            ["sentences", "more"],
            startingOffsets="earliest",
            maxOffsetsPerTrigger=100_000,
            minPartitions=8,
            includeHeaders=True,
            failOnDataLoss=False,
            tracked=True,
            tracked_when=lambda tuple: tuple["value"] != b"debug",
            take_over=True,
            status_path=folder / "status.json",
        ),
        DataFrame,
    )
    words = (
        lines.transform(spout.fail_when(sql.col("value").isNull(), "no line"))
        .transform(spout.fail_when("length(value) > 1000", "too long", name="long"))
        .transform(spout.bolt(Split(), name="split", anchored=True))
        .transform(spout.bolt(Upper(), grouping=spout.fields("word", partitions=4)))
        .transform(spout.bolt(Join(), grouping=spout.shuffle(4)))
    )
    grouping: spout.Grouping = spout.shuffle()
    words = words.transform(spout.bolt(Parse(), grouping=grouping))
    seen: set[int] = set()

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id in seen:
            spout.skipped(batch_id)
        seen.add(batch_id)
        batch.write.mode("append").parquet(str(folder / "words"))

    sink: spout.Sink = spout.sink(write, deterministic=True)
    return words.writeStream.foreachBatch(sink).start()


class OwnStore:
    """A store of a user."""

    last_batch: spout.LastBatch | None = None

    def open(self, group: str, epoch_min: int) -> spout.StoreGrant:
        return spout.StoreGrant(epoch_min, self.last_batch)

    def commit(self, key: spout.BatchKey, rows: pa.Table, publication: bytes) -> None:
        self.last_batch = spout.LastBatch(key, publication)


def exact_sinks(words: DataFrame, topics: Topics, folder: Path) -> StreamingQuery:
    stores: list[spout.Store] = [
        spout.SQLiteStore(folder / "words.sqlite", "words"),
        spout.KafkaStore(topics, "words", key="word", value="json"),
        spout.PostgresStore("dbname=words", "words"),
        OwnStore(),
    ]
    sink: spout.ExactSink = spout.exact_sink(stores[0], words)
    return words.writeStream.foreachBatch(sink).start()


def any_sink(words: DataFrame, folder: Path) -> list[StreamingQuery]:
    files = words.writeStream.format("parquet").option("path", str(folder))
    return [
        assert_type(spout.start(files), StreamingQuery),
        spout.start(words.writeStream.outputMode("append"), table="words"),
    ]


def until_all_is_done(query: StreamingQuery) -> bool:
    return assert_type(spout.run_once(query), bool)


def held(spark: SparkSession, topics: Topics) -> tuple[DataFrame, DataFrame]:
    lines = spout.read_stream(spark, topics, "clicks", delayed_acks=True)
    minute = sql.window("timestamp", "1 minute")
    counts = (
        lines.transform(spout.hold(until=minute.end, late="fail", name="minute"))
        .withWatermark("timestamp", "10 seconds")
        .groupBy(minute, "key")
        .agg(sql.count("*").alias("n"), spout.collect_anchors())
        .transform(spout.ack_anchors(Upper(), name="done"))
    )
    left, right = (
        lines.transform(spout.hold("timestamp", late="ack", name=name)) for name in ("left", "right")
    )
    both = left.join(right, left["key"] == right["key"], "left_outer")
    assert_type(
        both.select("value", spout.join_anchors(left, right)).transform(spout.ack_anchors()), DataFrame
    )
    each = lines.transform(spout.hold(None))
    sessions = each.transform(spout.keyed(Sessions(), by=["key"], name="sessions"))
    return counts, sessions


# -- topologies


def topology(spark: SparkSession, folder: Path) -> spout.TopologyStatus:
    topics = assert_type(spout.load("topics.yaml", {"KAFKA_BOOTSTRAP": "127.0.0.1:9092"}), Topics)

    def write(batch: DataFrame, batch_id: int) -> None:
        print(batch_id, batch.count())

    builder = spout.TopologyBuilder()
    builder.set_spout("lines", topics, "sentences", startingOffsets="latest")
    builder.add_hook(Slow(limit_ms=10))
    builder.set_bolt("split", Split()).shuffle_grouping("lines").local_or_shuffle_grouping("lines")
    declarer: spout.BoltDeclarer = builder.set_bolt("join", Join(), parallelism=2)
    declarer.fields_grouping("split", "word").partial_key_grouping("split", "word", "place")
    declarer.all_grouping("lines").global_grouping("lines").none_grouping("lines")
    builder.set_bolt("parse", Parse()).direct_grouping("join", stream="rows")
    print(builder.explain(cores=4, sink=write))
    running: spout.SubmittedTopology = builder.submit(
        spark,
        sink={"join": write, ("parse", "errors"): write},
        checkpoint=folder,
        name="words",
        trigger={"processingTime": "1 second"},
        active=False,
        deterministic=False,
        metrics_port=9_100,
    )
    running.resume()
    running.pause()
    if not assert_type(running.await_termination(10), bool):
        running.kill()
    status = running.status()
    print(status.state, status.error, status.count("acked", "split", "lines"), running.explain())
    if status.spout is not None:
        print(assert_type(status.spout.pending, int))
    for counted, measure in status.counts.items():
        print(counted.what, counted.component, counted.stream, measure.tuples, measure.mean_ms)
    return running.stop(timeout_s=30)


# -- without Spark


def clients(topics: Topics) -> int:
    done = 0
    with spout.KafkaSpout(topics, ["sentences"]) as lines:
        worker: spout.Client = lines.client("worker", max_open=100, auto_abort_ms=5_000)
        with worker:
            items = assert_type(worker.open(10, wait_ms=1_000), spout.Items)
            for item in items:
                print(assert_type(item, spout.Item)["value"], item.message_id.attempt, item.is_open)
            values: list[Any] = items.column("value")
            parts = assert_type(worker.split(items[0], len(values)), list[spout.Part])
            try:
                done += worker.confirm(parts) + worker.confirm(items[1:], wait_ms=1_000)
            except (TupleError, Unreachable) as error:
                done += worker.abort(items) + worker.fail(items[0], error)
            except WindhoverError as error:
                raise SystemExit(error.exit_code) from error
            done += worker.confirm_oldest(2) + worker.open_count() + worker.open_total()
            peeked = worker.peek()
            if peeked is not None:
                print(peeked["key"])
        found = lines.next_tuple(wait_ms=100)
        if found is not None:
            root = assert_type(found.message_id.root, Root)
            assert_type(lines.ack(found.message_id) or lines.fail(root, "busy"), bool)
        lines.deactivate()
        lines.activate()
        print(lines.status().group.acked, lines.status().waiting)
    return done


# -- status, metrics, plans


def told(spark: SparkSession, words: DataFrame) -> int:
    spout.serve_metrics(spark, port=9_101)
    words.transform(spout.bolt(Split(), hooks=[Slow(10)]))
    words.transform(spout.ack_anchors(Upper(), hooks=[Slow(10)]))
    status: spout.StreamStatus = spout.stream_status(words)
    for error in status.errors:
        print(error.operator, error.message)
    pending = 0 if status.spout is None else status.spout.pending
    return pending + status.late + status.count("failed", "split", source="spout")
