"""`spout.start`: write a tracked stream to any of Spark's sinks.

Source: docs/design/protocol.md, section 5.2 ("For sinks without foreachBatch").
"""

from __future__ import annotations

from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, UnsupportedOperationException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import UsageError
from spout.held.held_plan import hold_name_of_each_watermark, refuse_query
from spout.sinks.follower import RunFollower
from spout.spark.private import logical_plan, rows_of, trigger_of
from spout.streaming.application import Application
from spout.streaming.frames import streams_behind
from spout.streaming.unfit_rules import log_unfit_rules_of
from spout.tuples.columns import ANCHOR

_NOT_MICRO_BATCHES = frozenset({"ContinuousTrigger", "RealTimeTrigger"})
_REAL_TIME = "STREAMING_REAL_TIME_MODE"
_NO_SUCH_SINK = "DATA_SOURCE_NOT_FOUND"
_MICRO_BATCHES = (
    "a tracked stream runs in micro-batches, since Spark has no Python sources in continuous"
    ' and real-time mode; use trigger(processingTime="100 milliseconds"), or leave the trigger out'
)


def start(writer: DataStreamWriter, *, table: str | None = None) -> StreamingQuery:
    """Start a query that writes a tracked stream to any of Spark's sinks.

    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence()))
    >>> files = words.writeStream.format("parquet").option("path", f"{folder}/words")
    >>> query = spout.start(files.option("checkpointLocation", f"{folder}/checkpoint"))
    >>> spout.run_once(query)
    True
    >>> sorted(row.word for row in spark.read.parquet(f"{folder}/words").collect())
    ['hawk', 'hawk', 'hovers', 'the', 'the', 'waits']

    The acks and fails of a batch are published when Spark has committed the batch: then its
    rows are in the sink, or an aggregate or a join has them in Spark's state store. A crash
    between Spark's commit and this publication costs replays of that batch, never records. The
    next batch is planned after this one is published. If it cannot be published, the query
    fails with the reason.

    Args:
        writer: what `writeStream` returned, with format, options, trigger and output mode; not
            started.
        table: name of the table to write to, as `DataStreamWriter.toTable`; None: the writer's
            own sink.

    Raises:
        UsageError: the rows still have the hidden column, several tracked streams are read, a
            running query reads the group, `limit` is applied to the stream, two operators have
            the same name, nothing acks the rows of `spout.hold`, the trigger is continuous or
            real-time, or Spark has no such sink.
    """
    rows = rows_of(writer)
    session = rows.sparkSession
    begin = writer.start if table is None else partial(writer.toTable, table)
    streams = streams_behind(rows)
    if not streams:
        return begin()
    if len(streams) > 1:
        groups = ", ".join(sorted(stream.group for stream in streams))
        raise UsageError(
            f"the query reads {len(streams)} tracked streams (groups {groups}); a query"
            " publishes one: read several inputs of a group by one read_stream, or the others"
            " with tracked=False"
        )
    stream = streams[0]
    application = Application.of(session)
    application.refuse_second(stream.group)
    plan = logical_plan(rows)
    refuse_query(plan)
    log_unfit_rules_of(plan, application)
    if ANCHOR in rows.columns:
        raise UsageError(
            f"the hidden column {ANCHOR!r} would be written too; take it out before:"
            f' rows.drop("{ANCHOR}").writeStream'
        )
    try:
        query = RunFollower.of(application).start(stream, begin, hold_name_of_each_watermark(plan))
    except PySparkException as error:
        is_real_time = (error.getCondition() or "").startswith(_REAL_TIME)
        if not is_real_time and not isinstance(error, UnsupportedOperationException):
            raise
        raise UsageError(f"Spark refuses the query ({error}); {_MICRO_BATCHES}") from error
    except Py4JJavaError as error:
        text = str(error.java_exception.getMessage())
        if _NO_SUCH_SINK not in text:
            raise
        raise UsageError(
            f"{text.strip()}: give Spark the sink's jars when it starts (spark.jars, or"
            f" spark.jars.packages), made for Spark {session.version}"
        ) from error
    # only a query that was started tells its trigger
    trigger = trigger_of(query)
    if trigger in _NOT_MICRO_BATCHES:
        query.stop()
        raise UsageError(f"{trigger}: {_MICRO_BATCHES}")
    return query
