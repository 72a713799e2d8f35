"""Publishes the batches of queries that write to Spark's own sinks, once Spark has committed them.

A thread of its own follows each run of a query. It does not listen for Spark's events: all
listeners of a session share one queue, in which a slow one holds up the others, and which drops
events when it is full. The thread asks instead:

1. Tasks of the next batch have reported: Spark's last progress, every `REPORTED_EVERY_S`. It is in memory,
   and has a batch only behind its entry in the commit log.
2. Every `COMMITTED_EVERY_S`: whether the commit log has the batch that Spark has planned last. That answers
   where no progress is remembered, and behind a query that was stopped before it could report
   its last batch. Until Spark has committed the batch, this costs one look at the checkpoint's
   store.
3. The run has ended: the same once more, then nobody follows it.

Nobody sees what a thread raises. So the planning process hears of it: it waits for the
publication of this batch before it plans the next one, and fails the query with that error.

A sink that has written a batch before (files, memory or Delta, after a crash before Spark's
commit log) does not evaluate it again. The reports of the run that wrote the rows are lost, so
its roots are failed, as by `spout.skipped`.

Source: docs/design/protocol.md, section 5.2 ("For sinks without foreachBatch").
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import InheritableThread

from acker.errors import TrackingError
from spout.publishing import publish
from spout.publishing.publish import BatchLane
from spout.sinks.batch_end import BatchEnd
from spout.sinks.dropped_rows import dropped_rows
from spout.spark.private import (
    JavaObject,
    first_reported_batch,
    has_committed,
    java_query,
    last_planned_batch,
    last_reported_batch,
)
from spout.spark.threads import leave_sigint_to_the_main_thread
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import logged
from spout.streaming.options import plan_between

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOGGER = logging.getLogger("windhover.spout")

REPORTED_EVERY_S = 0.01
"""How often Spark's last progress is asked for while a batch is about to end; two calls to the
JVM."""

COMMITTED_EVERY_S = 0.2
"""How often the commit log is asked; on an object store that is a request of some 20 ms."""

FINISHING_S = 10.0
"""How long a start waits for what an ended run of its group has still to publish."""


class SparkBatches(Protocol):
    """What Spark says of the batches of one run of a query, by their ids."""

    def first_reported(self) -> int | None:
        """Return the oldest batch of which a progress is remembered; None: there is none."""

    def last_reported(self) -> int | None:
        """Return the newest batch of which a progress is remembered: Spark has committed it."""

    def last_planned(self) -> int | None:
        """Return the batch that runs, or ran last; None: none was planned yet."""

    def is_committed(self, batch: int) -> bool:
        """Return whether the commit log has a batch; False also if it cannot be read now."""


class CommittedBatches:
    """Finds the batches of a run of a query that Spark has committed; returns each once, in order.

    Attributes:
        next_batch: the lowest one that was not returned yet; None: the run has planned none.
    """

    def __init__(self, batches: SparkBatches) -> None:
        self._batches = batches
        self.next_batch: int | None = None

    def take_reported(self) -> range:
        """Return the batches of which Spark has reported the progress since the last call."""
        self._find_first_batch()
        if self.next_batch is None:
            return range(0)
        return self._take_up_to(self._batches.last_reported())

    def take_committed(self) -> range:
        """Return the batches that Spark has committed since the last call, by progress or log."""
        self._find_first_batch()
        if self.next_batch is None:
            return range(0)
        planned = self._batches.last_planned()
        last_batch = self._batches.last_reported()
        if planned is not None and (last_batch is None or last_batch < planned):
            # Spark runs one batch at a time: where batch 7 is planned, batch 6 is committed
            last_batch = planned if self._batches.is_committed(planned) else planned - 1
        return self._take_up_to(last_batch)

    def _find_first_batch(self) -> None:
        """Set `next_batch` to the first batch of the run, unless it is set or none is planned."""
        if self.next_batch is not None:
            return
        # in this order: a batch that is planned in between is later than the one that is reported
        planned = self._batches.last_planned()
        if planned is None:
            return
        first_batch = self._batches.first_reported()
        self.next_batch = planned if first_batch is None else min(first_batch, planned)

    def _take_up_to(self, last_batch: int | None) -> range:
        """Return the batches from `next_batch` to the last one, and move `next_batch` behind them.

        Empty: the last one is None, or was returned before.
        """
        if self.next_batch is None or last_batch is None or last_batch < self.next_batch:
            return range(0)
        batches = range(self.next_batch, last_batch + 1)
        self.next_batch = last_batch + 1
        return batches


@dataclass(frozen=True, slots=True)
class BatchesOfExecution:
    """What the execution behind a query says; it answers when the query has ended, too."""

    execution: JavaObject

    def first_reported(self) -> int | None:
        return first_reported_batch(self.execution)

    def last_reported(self) -> int | None:
        return last_reported_batch(self.execution)

    def last_planned(self) -> int | None:
        return last_planned_batch(self.execution)

    def is_committed(self, batch: int) -> bool:
        try:
            return has_committed(self.execution, batch)
        except Py4JJavaError as error:  # the store does not answer, or somebody has removed the checkpoint
            _LOGGER.debug("the commit log of batch %d cannot be read: %s", batch, error)
            return False


@dataclass(slots=True)
class FollowedRun:
    """A run of a query: a query that is started again has the same id, and another run.

    Attributes:
        stream: what it reads.
        hold_name_of_each_watermark: for each watermark of the query, the name of the `spout.hold`
        below it
            (`spout.held.held_plan`).
        has_ended_a_batch: whether a batch of this run was published, or had nothing to publish.
        thread: follows the run; None: it was not started yet.
    """

    query: StreamingQuery
    stream: Stream
    hold_name_of_each_watermark: tuple[str, ...] = ()
    has_ended_a_batch: bool = False
    thread: threading.Thread | None = field(default=None, repr=False)


class RunFollower:
    """Follows the queries that `spout.start` started in one application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        # by the run's id, of which a query has several
        self._run_by_id: dict[str, FollowedRun] = {}
        self._registry_lock = threading.Lock()

    @staticmethod
    def of(application: Application) -> RunFollower:
        """Return the follower of an application; the first call creates it."""
        follower = application.follower
        if not isinstance(follower, RunFollower):
            follower = application.follower = RunFollower(application)
        return follower

    def start(
        self,
        stream: Stream,
        begin: Callable[[], StreamingQuery],
        hold_name_of_each_watermark: tuple[str, ...] = (),
    ) -> StreamingQuery:
        """Start a query by calling `begin`, follow it in a thread of its own, and return it.

        `hold_name_of_each_watermark`: as in `FollowedRun`.
        """
        self._finish_ended(stream.group)
        run = self.begin_and_register(stream, begin, hold_name_of_each_watermark)
        # Spark's kind of thread: it gives its connection to the JVM back
        run.thread = InheritableThread(
            target=self._run, args=(run,), name=f"windhover-follows-{stream.group}", daemon=True
        )
        run.thread.start()
        return run.query

    def begin_and_register(
        self,
        stream: Stream,
        begin: Callable[[], StreamingQuery],
        hold_name_of_each_watermark: tuple[str, ...] = (),
    ) -> FollowedRun:
        """Start a query by calling `begin`, and keep its run until it is forgotten; return the run.

        It has the lock meanwhile. So if an older run of the stream ends now, it does not report
        that
        no thread follows the stream.
        """
        link = self._application.link(stream)
        with self._registry_lock:
            # None: no thread publishes the stream. Empty: a thread does. Else: why it cannot. It is
            # set before the query begins, since the first batch may come at once
            former_message = link.follower_failure
            link.set_follower_failure("")
            try:
                query = begin()
            except BaseException:
                # a run that was started before may be followed
                link.set_follower_failure(former_message)
                raise
            run = FollowedRun(query, stream, hold_name_of_each_watermark)
            self._run_by_id[query.runId] = run
            self._application.started[query.id] = query
            stream.queries.add(query.id)
        return run

    def publish(self, run: FollowedRun, batches: range) -> None:
        """Publish batches that Spark has committed, up to the first that cannot be published.

        The planning process gets a message about that one, and ends the query; the records of
        the batches from there on come again.
        """
        for batch in batches:
            try:
                self._publish_batch(run, batch)
            except Exception as error:  # noqa: BLE001 - a thread's top: nobody would see it
                self._fail(run.stream, batch, error)
                return

    def forget_run(self, run: FollowedRun) -> None:
        """Forget a run that has ended, and what its tasks reported of a batch that failed."""
        query = run.query
        with self._registry_lock:
            self._run_by_id.pop(query.runId, None)
            last_run = self._application.started.get(query.id)
            # not where the query was started again: what its tasks report now is of the new run
            if last_run is not None and last_run.runId == query.runId:
                del self._application.started[query.id]
                self._application.ledger.forget_all(query.id)
            # nobody follows the stream any more, which None says
            if run.stream.id not in {followed.stream.id for followed in self._run_by_id.values()}:
                self._application.link(run.stream).set_follower_failure(None)

    def _finish_ended(self, group: str) -> None:
        """Wait until runs of a group that have ended publish their last batch, before another takes over."""
        for run in tuple(self._run_by_id.values()):
            if run.stream.group == group and run.thread is not None and not run.query.isActive:
                run.thread.join(FINISHING_S)

    def _run(self, run: FollowedRun) -> None:
        """Publish the batches of a run until it ends, then forget it.

        It is a thread's top, and raises nothing. If Spark does not answer, the planning process
        gets a message, and ends the query.
        """
        leave_sigint_to_the_main_thread()
        try:
            for batches in self.committed_batches(run):
                self.publish(run, batches)
        except (Py4JNetworkError, ConnectionError):
            return  # the JVM has ended, and all of its queries: nobody is left to hear of it
        except Py4JError as error:
            message = (
                f"Spark does not say which batches of group {run.stream.group} it has committed"
                f" ({error}); what is not published comes again when the query is started again"
            )
            _LOGGER.error("%s", message)
            self._application.link(run.stream).set_follower_failure(message)
            return
        self.forget_run(run)

    def committed_batches(self, run: FollowedRun) -> Iterator[range]:
        """Yield the batches of a run that Spark has committed, as soon as that is seen.

        Each is yielded once, until the run has ended; a range may be empty.
        """
        committed = CommittedBatches(BatchesOfExecution(java_query(run.query)))
        ledger = self._application.ledger
        is_active = True
        while is_active:
            # asked first: what was committed before the run ended is seen below
            is_active = run.query.isActive
            # by the commit log: every `COMMITTED_EVERY_S`, and once more when the run has ended
            yield committed.take_committed()
            ask_log_at_s = time.monotonic() + COMMITTED_EVERY_S
            while is_active and time.monotonic() < ask_log_at_s:
                time.sleep(REPORTED_EVERY_S)
                if ledger.has_reports(run.query.id, since=committed.next_batch or 0):
                    # by Spark's progress: tasks of the next batch have reported
                    yield committed.take_reported()

    def _publish_batch(self, run: FollowedRun, batch: int) -> None:
        """Settle and publish one batch that Spark has committed, by the reports of its tasks.

        Do nothing if a `spout.sink` gets the batches of this run: it publishes them itself.
        """
        if run.query.runId in self._application.sunk:
            return
        query_batch = BatchLane(run.query.id, batch)
        reports = self._application.reports(*query_batch)  # what the bolts did, task by task
        batch_end = BatchEnd(self._application, query_batch)
        stream = batch_end.record_and_find_stream(reports)
        if stream is None:
            self._publish_unread(run, batch_end)
        else:
            # Spark plans no next batch before this one is published, so the counts of its last
            # batch are of this one
            dropped = dropped_rows(java_query(run.query), run.hold_name_of_each_watermark)
            batch_end.publish(stream, batch_end.settle(stream, reports), dropped)
        self._application.ledger.forget(*query_batch)
        run.has_ended_a_batch = True

    def _publish_unread(self, run: FollowedRun, batch_end: BatchEnd) -> None:
        """Publish a batch of which no tracked task has reported: the sink may have written it before.

        Its records fail, and come again; of a batch without records there is nothing to publish.
        Raises `TrackingError`: the sink cannot have written it before, so the query drops what it
        reads.
        """
        # what Spark's log says of the batch; None: the query reads no tracked stream
        batch = logged(self._application, batch_end.query_batch)
        if batch is None or batch.emitted_nothing:
            return
        # only the first batch of a run may have run before, in the run that was stopped or killed
        if run.has_ended_a_batch:
            raise TrackingError(
                "none of its records was read: the query drops its source unread (limit(0), a"
                " condition that is never true); take that out"
            )
        plan = plan_between(batch.start, batch.end, run.stream.group, run.stream.partitions)
        batch_end.publish(run.stream, publish.skipped_outcome(plan))

    def _fail(self, stream: Stream, batch: int, error: Exception) -> None:
        """Log that a batch could not be published, and tell the planning process, which ends the query."""
        message = (
            f"batch {batch} of group {stream.group} was written, and could not be published"
            f" ({type(error).__name__}: {error}); its records come again"
        )
        _LOGGER.error("%s", message)
        self._application.link(stream).set_follower_failure(message)
