"""The sink's wrapper: run the user's function, then publish the acks and fails of the batch.

A batch may run several times; only the run whose rows the sink keeps is published. After a
crash before Spark's commit log, the batch runs again under the same id, and the ackers
recognise its records.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from typing import NamedTuple

from pyspark import SparkContext
from pyspark.sql import DataFrame

from acker.errors import TrackingError, UsageError
from spout.bolts.bolts import check_runs
from spout.exactly_once.store import refuse_exact
from spout.held.held_plan import hold_name_of_each_watermark, refuse_query
from spout.link.planner_link import PlannerLink
from spout.planning.plan import BatchPlan
from spout.publishing import publish
from spout.publishing.publish import BatchLane
from spout.publishing.report_accumulator import QUERY_PROPERTY, RUN_PROPERTY
from spout.publishing.watermarks import NOTHING_DROPPED, Dropped
from spout.sinks.batch_end import BatchEnd
from spout.sinks.drain import Drain
from spout.sinks.dropped_rows import dropped_rows
from spout.spark.private import jobs_of, partition_count_of
from spout.streaming.application import Application
from spout.streaming.batch_log import logged
from spout.streaming.query_plan import (
    crosses_stages,
    execution_of_running_query,
    may_shuffle,
    stays,
)
from spout.streaming.unfit_rules import log_unfit_rules_of
from spout.tuples.columns import ANCHOR

WriteBatch = Callable[[DataFrame, int], object]
"""Writes one micro-batch: gets its rows and its id."""

_CURE = "nothing may be acked; let the sink write all rows, or say spout.skipped(batch_id) if it had before"

_SKIPPED: ContextVar[set[int] | None] = ContextVar("windhover_skipped", default=None)


def skipped(batch_id: int) -> None:
    """Declare, within a sink's function, that it skips a batch because it has written it before.

    >>> written = set()
    >>> def write(batch, batch_id):
    ...     if batch_id in written:
    ...         return spout.skipped(batch_id)
    ...     print(sorted(row.word for row in batch.collect()))
    ...     written.add(batch_id)
    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence()))
    >>> writer = words.writeStream.option("checkpointLocation", folder)
    >>> query = writer.foreachBatch(spout.sink(write)).start()
    >>> spout.run_once(query)
    ['hawk', 'hawk', 'hovers', 'the', 'the', 'waits']
    True

    The roots of the batch are failed, and so replayed, since their bolts may have emitted
    something else this time; with ``deterministic=True`` the sink promises that they did not. A
    fresh checkpoint counts its batches from 0 again, so keep its query's id beside the batch's:
    ``batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")``. A batch that
    this query cannot have written before is failed and replayed in any case.

    Raises `UsageError` if it was not called within the function of a `spout.sink`.
    """
    batches = _SKIPPED.get()
    if batches is None:
        raise UsageError("spout.skipped(batch_id) is called within the function that spout.sink was given")
    batches.add(batch_id)


class RunPlan(NamedTuple):
    """What the plan of a run of a query shows.

    Attributes:
        may_shuffle: whether Spark may shuffle rows behind the last bolt.
        hold_name_of_each_watermark: for each watermark of the query, the name of the `spout.hold`
        below it
            (`spout.held.held_plan`).
    """

    may_shuffle: bool = False
    hold_name_of_each_watermark: tuple[str, ...] = ()


class WriteResult(NamedTuple):
    """What a function has done with a batch.

    Attributes:
        has_skipped: whether it has written nothing, since it had written the batch before.
        dropped: which rows Spark has dropped, since they came too late.
    """

    has_skipped: bool
    dropped: Dropped


class Sink:
    """What `foreachBatch` calls; `spout.sink` returns one.

    >>> def write(batch, batch_id):
    ...     batch.write.mode("append").saveAsTable("words")
    >>> isinstance(spout.sink(write), spout.Sink)
    True
    """

    def __init__(self, write: WriteBatch, *, deterministic: bool = False) -> None:
        refuse_exact(write, "spout.sink")
        check_runs(f"the sink's function {getattr(write, '__name__', write)}", write)
        self._write = write
        self._is_deterministic = deterministic
        # by the run's id: a query may change between two runs
        self._plan_by_run: dict[str, RunPlan] = {}

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch and publish it.

        Raises:
            TrackingError: the batch was not evaluated to its end, so nothing of it may be acked.
            UsageError: `limit` is applied to a tracked stream, two operators of the query have
                the same name, or nothing acks the rows of `spout.hold`.
            Unreachable: Kafka does not answer; the query stops, and runs the batch again when
                restarted.
        """
        context = rows.sparkSession.sparkContext
        query_batch = BatchLane(context.getLocalProperty(QUERY_PROPERTY) or "", batch_id)
        run_id = context.getLocalProperty(RUN_PROPERTY) or ""
        batch_end = BatchEnd(Application.of(rows.sparkSession), query_batch)
        with ExitStack() as stack:
            # however it ends: the next run of the batch counts nothing of this one
            stack.callback(batch_end.application.ledger.forget, *query_batch)
            # 1. look at the plan, once for each run; without a name somebody calls the sink outside
            # of a query, and there is no plan
            if query_batch.name and run_id not in self._plan_by_run:
                execution = execution_of_running_query(rows.sparkSession, query_batch.name)
                plan = execution.analyzedPlan()
                refuse_query(plan)
                log_unfit_rules_of(plan, batch_end.application)
                self._plan_by_run[run_id] = RunPlan(
                    may_shuffle(plan),
                    hold_name_of_each_watermark(plan),
                )
            run_plan = self._plan_by_run.get(run_id, RunPlan())
            # batches of this run are published here, and nowhere else
            batch_end.application.sunk.add(run_id)  # else the follower would publish them, too
            # 2. write. Behind a shuffle the bolts' reports do not tell which rows are read; a drain
            # does
            drain: Drain | None = None
            if run_plan.may_shuffle:
                drain = self._drain_if_shuffled(batch_end, rows)
            if drain is not None:
                stack.callback(drain.forget)
            write_result = self._write_batch(batch_end, rows, run_plan, drain)
            # 3. publish
            self._publish(batch_end, rows, write_result)

    def _write_batch(
        self, batch_end: BatchEnd, rows: DataFrame, run_plan: RunPlan, drain: Drain | None
    ) -> WriteResult:
        """Call the user's function with a batch; return what it has done.

        `drain`: reports which rows the function reads; None: the reports of the bolts show that.

        Raises `TrackingError`: it has read a part of the rows.
        """
        application = batch_end.application
        query_batch = batch_end.query_batch
        # 1. call it. Before a shuffle of its own Spark has evaluated the stages by itself, so that
        # reports may be there already.
        earlier_report_count = application.ledger.count(*query_batch)
        context = rows.sparkSession.sparkContext
        run_id = context.getLocalProperty(RUN_PROPERTY) or ""
        jobs_before = _jobs_of_run(context, run_id)
        has_skipped = self._call(rows, drain, query_batch.seq)
        # 2. read the counts of dropped rows now: what is evaluated below, to find what was not
        # read,
        # would be counted, too
        dropped = NOTHING_DROPPED
        if run_plan.hold_name_of_each_watermark:
            execution = execution_of_running_query(rows.sparkSession, query_batch.name)
            dropped = dropped_rows(execution, run_plan.hold_name_of_each_watermark)
        if has_skipped:
            return WriteResult(has_skipped=True, dropped=dropped)
        # 3. it has written, if tasks have reported meanwhile, or there is nothing to read
        written = WriteResult(has_skipped=False, dropped=dropped)
        have_bolts_reported = application.ledger.count(*query_batch) > earlier_report_count
        if drain is None and have_bolts_reported:
            return written
        if application.reports(*query_batch).nothing_to_publish:
            return written
        has_run_jobs = _jobs_of_run(context, run_id) != jobs_before
        if drain is not None:
            has_read_all = _has_read_all(drain, rows, query_batch.seq, has_run_jobs=has_run_jobs)
            if has_read_all:
                return written
        batch = logged(application, query_batch)
        if batch is None or batch.emitted_nothing:
            return written
        # 4. it has read nothing, or not to the end, of a batch that has records
        if has_run_jobs:
            raise TrackingError(
                f"batch {query_batch.seq} was evaluated in part only (take, limit, first, show): {_CURE}"
            )
        # it has run nothing, so it has read nothing: as if it had called `skipped`
        return WriteResult(has_skipped=True, dropped=dropped)

    def _call(self, rows: DataFrame, drain: Drain | None, batch_id: int) -> bool:
        """Call the user's function with a batch; return whether it called `skipped` for that.

        `drain` reports which of the rows it reads; None: the rows need none.
        """
        # the drain first: it knows rows that are as foreachBatch gives them
        visible = rows if drain is None else drain.with_drain(rows)
        if ANCHOR in visible.columns:
            visible = visible.drop(ANCHOR)
        skipped_batches: set[int] = set()
        token = _SKIPPED.set(skipped_batches)
        try:
            self._write(visible, batch_id)
        finally:
            _SKIPPED.reset(token)
        return batch_id in skipped_batches

    def _drain_if_shuffled(self, batch_end: BatchEnd, rows: DataFrame) -> Drain | None:
        """Return a drain for a batch that Spark shuffled behind the last bolt; None: it did not.

        A drain is an operator behind the rows, whose tasks report which partitions were read to
        their end. Raises `TrackingError`: the batch was shuffled again before this sink got it.
        """
        execution = execution_of_running_query(rows.sparkSession, batch_end.query_batch.name)
        if not crosses_stages(execution.lastExecution().executedPlan()):
            return None
        if not stays(rows):  # the partitions of a batch are not fixed where it is shuffled again
            raise TrackingError(
                f"batch {batch_end.batch_id} was shuffled by its query and again before spout.sink"
                " got it, where nobody can tell what was read: shuffle it within the function"
                " that spout.sink was given"
            )
        return Drain(batch_end.application.ledger, *batch_end.query_batch)

    def _publish(self, batch_end: BatchEnd, rows: DataFrame, write_result: WriteResult) -> None:
        """Publish what became of a batch that the function has written or skipped.

        The roots of a batch that it skipped fail, unless the bolts emit the same as before.
        """
        has_skipped = write_result.has_skipped
        # 1. what tasks have reported. A batch that was skipped must be evaluated for it, if its
        # bolts are to count, or if nobody knows its plan.
        reports = batch_end.application.reports(*batch_end.query_batch)
        if has_skipped and (self._is_deterministic or reports.plan is None):
            # Evaluate it without writing it. What has arrived is kept: stages before a shuffle
            # do not run again.
            if partition_count_of(rows):
                rows.write.format("noop").mode("overwrite").save()
            reports = batch_end.application.reports(*batch_end.query_batch)
        stream = batch_end.record_and_find_stream(reports)
        if stream is None:
            return
        # 2. the outcome: roots of a batch that was skipped fail, unless the bolts emit the same
        plan = reports.plan
        link = batch_end.application.link(stream)
        if has_skipped and plan is not None and not self._emits_the_same(link, plan):
            batch_end.publish(stream, publish.skipped_outcome(plan, reports.absent))
        else:
            batch_end.publish(stream, batch_end.settle(stream, reports), write_result.dropped)

    def _emits_the_same(self, link: PlannerLink, plan: BatchPlan) -> bool:
        """Return whether the bolts emit what they did when the sink wrote this batch.

        False also for a batch that this run has planned itself: what the sink has under its id is
        of another query, or of a later state of the checkpoint.
        """
        return self._is_deterministic and link.runs_again(plan)


def sink(write: WriteBatch, *, deterministic: bool = False) -> Sink:
    """Return the function for `foreachBatch`, made from a function that writes a batch.

    >>> def write(batch, batch_id):
    ...     print(sorted(row.word for row in batch.collect()))
    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence()))
    >>> writer = words.writeStream.option("checkpointLocation", folder)
    >>> query = writer.foreachBatch(spout.sink(write)).start()
    >>> spout.run_once(query)
    ['hawk', 'hawk', 'hovers', 'the', 'the', 'waits']
    True

    The function gets the batch's rows, without the hidden column, and the batch's id. After it
    has returned, the acks and fails of the bolts are published. On a tracked stream the
    function must write all rows of a batch, and either append them or upsert them by row
    identity (the record's origin and the bolt's own ordinal, emitted as fields).

    Args:
        write: called once for each micro-batch, and again with the same id after a crash.
        deterministic: whether the bolts emit the same when a batch is run again; see `skipped`.
    """
    return Sink(write, deterministic=deterministic)


def _has_read_all(
    drain: Drain,
    rows: DataFrame,
    batch_id: int,
    *,
    has_run_jobs: bool,
) -> bool:
    """Return whether a function has read all rows of a batch; False: it has read none.

    Raises `TrackingError`: it has read some.

    Args:
        drain: has reports of the partitions that were read to their end.
        has_run_jobs: whether the function has run a Spark job.
    """
    has_read_nothing = not has_run_jobs and not drain.ended_partitions
    # a batch without partitions has no rows: a function that has read nothing has read all of them
    if has_read_nothing and partition_count_of(rows):
        return False
    unread = drain.find_unread(rows)
    if unread.unread_count:
        raise TrackingError(
            f"batch {batch_id} was evaluated in part only (take, limit, first, show):"
            f" {unread.unread_count} of the {unread.partition_count} partitions behind its last"
            f" shuffle were not read to their end: {_CURE}"
        )
    return True


def _jobs_of_run(context: SparkContext, run_id: str) -> tuple[int, ...]:
    """Return what changes when a run of a query runs a job: count, first and last id of its jobs.

    Empty: there is none yet. Spark forgets old jobs, so that their count alone may stay the same.
    """
    job_ids = jobs_of(context, run_id or None)
    if not len(job_ids):
        return ()
    return len(job_ids), job_ids[0], job_ids[len(job_ids) - 1]
