"""The pipelines of the benchmarks in Spark, by who reads the topic, tracked or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.errors import CheckFailed
from benchmarks.streams.contest import Contest, How, read_records
from benchmarks.streams.exact_stores import exact_kafka, exact_postgres
from spout.bolts.bolts import ArrowBolt, BatchCollector


def split(sentences: pa.Array) -> pa.Array:
    """Return the words of each sentence, as a list."""
    return pc.split_pattern(pc.cast(sentences, pa.string()), " ")


def count(words: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    """Return each distinct word with its count, and the row that holds it first."""
    encoded = words.dictionary_encode()
    counts = pc.value_counts(encoded.indices)
    first = pc.index_in(counts.field("values"), encoded.indices)
    return [encoded.dictionary, counts.field("counts")], first


class SplitSentence(ArrowBolt):
    """Split each sentence at blanks."""

    output = "word string"
    fields = ("value",)

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit one row for each word."""
        words = split(batch.column("value"))
        collector.emit([pc.list_flatten(words)], pc.list_parent_indices(words))


class CountWord(ArrowBolt):
    """Count the words of a batch of rows; a word is always at home in the same task."""

    output = "word string, count long"
    fields = ("word",)

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit each distinct word with its count, anchored on the first row that holds it."""
        collector.emit(*count(batch.column("word")))


def split_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do in ``mapInArrow`` what `SplitSentence` does."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.list_flatten(split(batch.column("value")))], names=["word"])


def count_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do in ``mapInArrow`` what `CountWord` does."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(count(batch.column("word"))[0], names=["word", "count"])


def _words(contest: Contest) -> DataFrame:
    lines = read_records(contest)
    if contest.how is How.CONNECTOR:
        return lines.select("value").mapInArrow(split_batches, SplitSentence.output)
    return lines.transform(spout.bolt(SplitSentence(), name="split"))


def discard(batch: DataFrame, _batch_id: int) -> None:
    """Compute a micro-batch, and write it nowhere."""
    batch.write.format("noop").mode("overwrite").save()


def _start(rows: DataFrame, contest: Contest, mode: str) -> StreamingQuery:
    write = discard if contest.how is How.CONNECTOR else spout.sink(discard)
    return (
        rows.writeStream.foreachBatch(write)
        .outputMode(mode)
        .option("checkpointLocation", str(contest.checkpoint))
        .start()
    )


def read(contest: Contest) -> StreamingQuery:
    """Read, and nothing else: the values go to the sink."""
    return _start(read_records(contest).select("value"), contest, "append")


def split_alone(contest: Contest) -> StreamingQuery:
    """Split in a bolt; the words go to the sink."""
    return _start(_words(contest), contest, "append")


def narrow(contest: Contest) -> StreamingQuery:
    """Split in a bolt, then Spark's own ``groupBy(word).count()``."""
    words = _words(contest)
    return _start(words.groupBy("word").count(), contest, "update")


def grouped(contest: Contest) -> StreamingQuery:
    """Split in a bolt, then count in a second Python bolt behind a fields grouping."""
    words = _words(contest)
    if contest.how is How.CONNECTOR:
        counts = words.repartition("word").mapInArrow(count_batches, CountWord.output)
    else:
        counts = words.transform(spout.bolt(CountWord(), name="count", grouping=spout.fields("word")))
    return _start(counts, contest, "append")


def topology(contest: Contest) -> StreamingQuery:
    """Do as `grouped` does, as a topology in a straight line; untracked, it is the same on a DataFrame."""
    if contest.how is not How.TRACKED:
        return grouped(contest)
    builder = spout.TopologyBuilder()
    builder.set_spout(
        "lines",
        contest.topics,
        contest.input_name,
        maxOffsetsPerTrigger=contest.batch_records,
        startingOffsets="earliest",
    )
    builder.set_bolt("split", SplitSentence()).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", CountWord()).fields_grouping("split", "word")
    query = builder.submit(contest.spark, sink=discard, checkpoint=contest.checkpoint).query
    if query is None:
        raise CheckFailed("the topology was submitted, and has no query")
    return query


def shuffled(contest: Contest) -> StreamingQuery:
    """Split in a bolt; Spark shuffles every word to the sink, which tells which of them were read."""
    words = _words(contest)
    return _start(words.repartition("word"), contest, "append")


def exact(contest: Contest) -> StreamingQuery:
    """Do as `narrow` does, into a table that takes each batch once, by its id, in one transaction."""
    words = _words(contest)
    table = _Table(contest.checkpoint.with_name(f"{contest.checkpoint.name}.sqlite"))
    write = spout.sink(table.write, deterministic=True)
    writer = words.groupBy("word").count().writeStream.foreachBatch(write).outputMode("update")
    return writer.option("checkpointLocation", str(contest.checkpoint)).start()


class _Table:
    """Words and their counts, with the id of the batch that was written last."""

    def __init__(self, path: Path) -> None:
        # foreachBatch runs on a thread of Spark's; one batch at a time, so one connection serves
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, count INTEGER)")
        self._db.execute("CREATE TABLE IF NOT EXISTS batches (id INTEGER PRIMARY KEY)")

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch unless it stands there."""
        with self._db:
            if self._db.execute("INSERT OR IGNORE INTO batches VALUES (?)", (batch_id,)).rowcount:
                rows = batch.toArrow().to_pylist()
                self._db.executemany("INSERT OR REPLACE INTO words VALUES (:word, :count)", rows)


def start(contest: Contest) -> StreamingQuery:
    """Do as `narrow` does, into a sink of Spark's own: published when Spark has committed the batch."""
    words = _words(contest)
    writer = words.groupBy("word").count().writeStream.format("noop").outputMode("update")
    return spout.start(writer.option("checkpointLocation", str(contest.checkpoint)))


def delayed(contest: Contest) -> StreamingQuery:
    """Count the sentences of two seconds by their first letters; acked when that row is written."""
    window, tracked = sql.window("timestamp", "2 seconds"), contest.how is How.TRACKED
    lines = read_records(contest, delayed_acks=tracked)
    held = lines.transform(spout.hold(until=window.end, late="ack")) if tracked else lines
    letters = sql.substring("value", 1, 3).alias("letters")
    groups = held.withWatermark("timestamp", "5 seconds").groupBy(window, letters)
    count = sql.count("*").alias("count")
    if tracked:
        rows = groups.agg(count, spout.collect_anchors()).transform(spout.ack_anchors())
    else:
        rows = groups.agg(count)
    writer = rows.writeStream.format("noop").outputMode("append")
    return spout.start(writer.option("checkpointLocation", str(contest.checkpoint)))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline of the benchmark.

    Attributes:
        start: starts a query.
        aim: the share of the untracked throughput that the tracked one is to reach; 0: none is set.
        holds: whether roots stay open until a watermark has passed their window.
        connector: whether Spark's own Kafka connector is a contestant too.
        connector_aim: the same share of the connector's throughput; 0: none is set.
        batch_records: what a micro-batch has at most; None: as many as the command says.
        restarts: whether each round also measures a restart.
    """

    start: Callable[[Contest], StreamingQuery]
    aim: float = 0.0
    holds: bool = False
    connector: bool = False
    connector_aim: float = 1.1
    batch_records: int | None = None
    restarts: bool = False


EXACT_BATCH_RECORDS = 1 << 18
"""All rows of a batch come to the driver, so it has fewer than others: two blocks of each partition."""

WORDS_PER_SENTENCE = 10


def _exact(start: Callable[[Contest], StreamingQuery]) -> Pipeline:
    return Pipeline(
        start,
        aim=0.70,
        connector=True,
        connector_aim=0.0,
        batch_records=EXACT_BATCH_RECORDS,
        restarts=True,
    )


PIPELINES: dict[str, Pipeline] = {
    "read": Pipeline(read, connector=True),
    "split": Pipeline(split_alone, connector=True),
    "narrow": Pipeline(narrow, aim=0.90, connector=True),
    "grouped": Pipeline(grouped, aim=0.75, connector=True),
    "topology": Pipeline(topology),
    "shuffled": Pipeline(shuffled),
    "exact": Pipeline(exact),
    "start": Pipeline(start),
    "delayed": Pipeline(delayed, holds=True),
    "exact-kafka": _exact(exact_kafka),
    "exact-postgres": _exact(exact_postgres),
}
"""By name."""
