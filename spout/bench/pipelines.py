"""The two pipelines of ``windhover bench tracking``, each tracked or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.topics import Topics
from spout.bolts import ArrowBolt, BatchCollector


class SplitSentence(ArrowBolt):
    """Split each sentence at blanks."""

    output = "word string"
    fields = ("value",)

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit one row for each word."""
        words = pc.split_pattern(pc.cast(batch.column("value"), pa.string()), " ")
        collector.emit([pc.list_flatten(words)], pc.list_parent_indices(words))


class CountWord(ArrowBolt):
    """Count the words of a batch of rows; a word is always at home in the same task."""

    output = "word string, count long"
    fields = ("word",)

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit each distinct word with its count, anchored on the first row that holds it."""
        encoded = batch.column("word").dictionary_encode()
        counts = pc.value_counts(encoded.indices)
        first = pc.index_in(counts.field("values"), encoded.indices)
        collector.emit([encoded.dictionary, counts.field("counts")], first)


@dataclass(frozen=True, slots=True)
class Contest:
    """What a query of the benchmark reads, and how."""

    spark: SparkSession
    topics: Topics
    input_name: str
    tracked: bool
    checkpoint: Path
    batch_records: int
    status: Path | None = None


def _read(contest: Contest) -> DataFrame:
    return spout.read_stream(
        contest.spark,
        contest.topics,
        contest.input_name,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=contest.batch_records,
        tracked=contest.tracked,
        status_path=contest.status,
    )


def _discard(batch: DataFrame, _batch_id: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def _start(rows: DataFrame, contest: Contest, mode: str) -> StreamingQuery:
    return (
        rows.writeStream.foreachBatch(spout.sink(_discard))
        .outputMode(mode)
        .option("checkpointLocation", str(contest.checkpoint))
        .start()
    )


def narrow(contest: Contest) -> StreamingQuery:
    """Split in a bolt, then Spark's own ``groupBy(word).count()``."""
    words = _read(contest).transform(spout.bolt(SplitSentence(), name="split"))
    return _start(words.groupBy("word").count(), contest, "update")


def grouped(contest: Contest) -> StreamingQuery:
    """Split in a bolt, then count in a second Python bolt behind a fields grouping."""
    words = _read(contest).transform(spout.bolt(SplitSentence(), name="split"))
    counts = words.transform(spout.bolt(CountWord(), name="count", grouping=spout.fields("word")))
    return _start(counts, contest, "append")


PIPELINES: dict[str, Callable[[Contest], StreamingQuery]] = {"narrow": narrow, "grouped": grouped}
"""Name of a pipeline to what starts it."""
