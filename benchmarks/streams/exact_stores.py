"""The pipelines that write exactly once, and the same rows written at least once by what Spark users have.

- *exact-kafka*: tracked, `exact_sink` and a `KafkaStore`; else Spark's own Kafka sink.
- *exact-postgres*: tracked, `exact_sink` and a `PostgresStore`; else each task of a `foreachBatch` copies its
  rows by a connection of its own.

A row is the value of a record, so there are as many as records. A topic or table is made for each query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import spout
from benchmarks.streams.contest import Contest, How, read_records
from benchmarks.world import PARTITIONS
from spout.bolts.bolts import ArrowBolt, BatchCollector

CREATED_S_MAX = 30.0
"""So long the creation of a topic may take."""


class PassValue(ArrowBolt):
    """Emit the value of each record."""

    output = "value binary"
    fields = ("value",)

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit a row for each row."""
        collector.emit([batch.column("value")], pa.array(range(batch.num_rows), pa.int64()))


def pass_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do in ``mapInArrow`` what `PassValue` does."""
    yield from batches


def exact_kafka(contest: Contest) -> StreamingQuery:
    """Write the values into a topic."""
    topic = _new_topic(contest)
    rows = _rows(contest)
    if contest.how is How.TRACKED:
        return _start_exact(contest, rows, spout.KafkaStore(contest.topics, topic, value="value"))
    writer = rows.writeStream.format("kafka").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", _bootstrap(contest))
    # as ours, which compresses by lz4 unless topics.yaml says something else
    writer = writer.option("kafka.compression.type", "lz4")
    return writer.option("checkpointLocation", str(contest.checkpoint)).start()


def exact_postgres(contest: Contest) -> StreamingQuery:
    """Write the values into a table."""
    table = _new_table(contest)
    rows = _rows(contest)
    if contest.how is How.TRACKED:
        return _start_exact(contest, rows, spout.PostgresStore(contest.database, table))
    dsn = contest.database

    def copy_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        statement = sql.SQL("COPY {} (value) FROM STDIN").format(sql.Identifier(table))
        with (
            psycopg.connect(dsn) as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for batch in batches:
                for value in batch.column("value").to_pylist():
                    copy.write_row((value,))
        yield from ()

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.mapInArrow(copy_rows, "value binary").collect()

    writer = rows.writeStream.foreachBatch(write if contest.how is How.CONNECTOR else spout.sink(write))
    return writer.option("checkpointLocation", str(contest.checkpoint)).start()


def _rows(contest: Contest) -> DataFrame:
    lines = read_records(contest)
    if contest.how is How.CONNECTOR:
        return lines.select("value").mapInArrow(pass_batches, PassValue.output)
    # rows of an untracked stream need not name their records
    return lines.transform(spout.bolt(PassValue(), name="pass", anchored=contest.how is How.TRACKED))


def _start_exact(contest: Contest, rows: DataFrame, store: spout.Store) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(spout.exact_sink(store, rows))
    return writer.option("checkpointLocation", str(contest.checkpoint)).start()


def _name(contest: Contest) -> str:
    """Return the name of the topic or table of a query; if the query is started again, it is the same."""
    return f"rows-{contest.checkpoint.name}"


def _bootstrap(contest: Contest) -> str:
    return str(contest.topics.kafka["bootstrap.servers"])


def _new_topic(contest: Contest) -> str:
    topic = _name(contest)
    admin = AdminClient({"bootstrap.servers": _bootstrap(contest)})
    if topic not in admin.list_topics(timeout=CREATED_S_MAX).topics:
        for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            created.result(CREATED_S_MAX)
    return topic


def _new_table(contest: Contest) -> str:
    table = _name(contest)
    with psycopg.connect(contest.database) as connection:
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} (value bytea)").format(sql.Identifier(table))
        )
    return table


@contextmanager
def database_of(pipelines: Iterable[str]) -> Iterator[str]:
    """Run a PostgreSQL if one of the pipelines writes into it; yield its connection string, or nothing.

    Its CPU seconds do not count: it is no child of ours.
    """
    if "exact-postgres" not in pipelines:
        yield ""
        return
    from tests.support.servers.postgres import postgres

    with postgres() as dsn:
        yield dsn
