"""The accumulator that brings the tasks' reports to the driver, beside the data.

A report travels as a *blob*, the bytes of `spout.publishing.blob`. The accumulator and what reads
it on the driver are called the *ledger* here; it has nothing to do with an acker's.

One for each SparkContext. Spark drops the updates of failed attempts. Values are builtins only, so
that reading one can never fail for want of an import.

`LedgerParam.addInPlace` must never raise: one exception there silently stops every accumulator of
the SparkContext. What goes wrong is recorded in the value, and `ReportLedger.read` raises it.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from acker.errors import TrackingError
from acker.root_sets.root_set import RootSet
from acker.untrusted import Untrusted, UntrustedName
from acker.wire.causes import error_class
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskId, TaskReport
from spout.runtime.logs import RECURRING_EVERY_S, OncePerKind
from spout.tuples.raised import Raised

_LOGGER = logging.getLogger("windhover.spout")

BATCHES_KEPT = 2
"""Batches of one query that are kept: the one that runs, and the one that may still be published."""

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
RUN_PROPERTY = "spark.jobGroup.id"

SentReport = tuple[str, bytes]
"""The stream's id, and the report as `encode` wrote it; or `_UNTRACKED`."""

_UNTRACKED: Final = b""
"""In the place of a report: the stream was read untracked."""

Batch = tuple[str, int]
"""A query's id, and the number of one of its batches."""

Value = dict[Batch, dict[str, SentReport]]
"""The accumulator's value: by batch, and by a random name of each report."""

_BATCH_OF_THREADS: Batch = ("", -1)
"""Where tasks report that Spark runs for a thread which does not know its batch."""

_MERGE_ERRORS: Batch = ("", -2)
"""Where a merge writes why it failed: in the place of a report the text, in bytes."""

_INHERIT: Final = (
    "start it as a pyspark.InheritableThread, or give a pool"
    " pyspark.inheritable_thread_target(batch.sparkSession)(f)"
)


class TaskName(NamedTuple):
    """Spark's name of a task of a batch.

    Attributes:
        query, batch: the query's id, and the number of the batch; "" and -1: the task runs outside
            of a streaming query, or for a thread that does not know its batch.
        attempt: unique in the SparkContext; a repeated task has a higher one.
        tries: how many attempts of this very task went before.
    """

    query: str
    batch: int
    stage: int
    attempt: int
    partition: int
    tries: int = 0

    @property
    def id(self) -> TaskId:
        """The part of the name that a report has."""
        return TaskId(self.stage, self.attempt, self.partition)


def task_name() -> TaskName:
    """Return the name of the task that runs in this process."""
    context = TaskContext.get()
    if context is None:
        query, batch = _BATCH_OF_THREADS
        return TaskName(query, batch, stage=0, attempt=0, partition=0)
    return TaskName(
        context.getLocalProperty(QUERY_PROPERTY) or "",
        int(context.getLocalProperty(BATCH_PROPERTY) or -1),
        context.stageId(),
        context.taskAttemptId(),
        context.partitionId(),
        context.attemptNumber(),
    )


class LedgerParam(AccumulatorParam[Value]):
    """Merges what tasks added, and forgets old batches.

    Attributes:
        has_executors: whether tasks run in other processes than the driver, with logs of their own.
    """

    def __init__(self, *, has_executors: bool = False) -> None:
        self.has_executors = has_executors

    def zero(self, value: Value) -> Value:
        return {}

    def addInPlace(self, value1: Value, value2: Value) -> Value:  # noqa: N802  (Spark's name)
        """Merge the second value into the first; never raise."""
        try:
            for (query, batch), reports in value2.items():
                value1.setdefault((query, batch), {}).update(reports)
                # with 2 kept, batch 7 makes room: 5 and those before it go
                for other_query, other_batch in list(value1):
                    if other_query == query and other_batch <= batch - BATCHES_KEPT:
                        value1.pop((other_query, other_batch), None)
        except Exception as error:  # noqa: BLE001  (raising here would stop every accumulator, silently)
            value1.setdefault(_MERGE_ERRORS, {})[uuid.uuid4().hex] = "", repr(error).encode()
        return value1


class TracebackLog:
    """Logs the tracebacks of one process, or of one stream: of each kind one a minute.

    An executor logs when a task reports, the driver what the tasks of a batch reported. Where both
    are one process (a local master), the driver alone does.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds = OncePerKind(clock)

    def warn(self, raised: Iterable[Raised], batch: int) -> None:
        """Log what was raised in a batch, unless its kind was logged within `RECURRING_EVERY_S`."""
        for exception in raised:
            if self._kinds.record_event(exception.kind) is None:  # logged a short time ago
                continue
            _LOGGER.warning(
                "bolt_raised operator=%s error=%s place=%s batch=%d: tuples fail by it; it is traced once in"
                " %.0f s\n%s",
                UntrustedName(exception.operator),
                UntrustedName(error_class(exception.error)),
                Untrusted(exception.place) or "none",
                batch,
                RECURRING_EVERY_S,
                exception.text,
            )


LOG_OF_WORKER: Final = TracebackLog()
"""What this process of an executor has logged; Spark lets one process do task after task."""


def add_report(accumulator: Accumulator[Value], stream: str, report: TaskReport | None) -> None:
    """Send the report of the task that runs in this process to the driver; log what its bolts
    raised.

    Args:
        accumulator: the ledger's, as a task has it.
        stream: the id of the stream that is read.
        report: without the task's name; None: the stream is read untracked.
    """
    task = task_name()
    param = accumulator.accum_param
    # a local master's driver logs in the same process
    logs_here = isinstance(param, LedgerParam) and param.has_executors
    if report is None:
        blob = _UNTRACKED
    else:
        if logs_here:
            LOG_OF_WORKER.warn(report.raised, task.batch)
        blob = encode(replace(report, task=task.id))
    # named at random, since a task may report several times
    report_name = uuid.uuid4().hex
    accumulator.add({(task.query, task.batch): {report_name: (stream, blob)}})


def is_local(master: str) -> bool:
    """Return whether a master, as ``local[4]``, lets driver and tasks share one process, and so one log."""
    return re.match(r"local(\[|\Z)", master) is not None


class BatchReports(NamedTuple):
    """What arrived for one batch.

    Attributes:
        streams: the ids of the streams that were read.
        tasks: the reports of all streams that were read tracked.
        has_untracked: whether a stream was read untracked.
    """

    streams: frozenset[str]
    tasks: tuple[TaskReport, ...]
    has_untracked: bool

    @property
    def plan(self) -> BatchPlan | None:
        """The plan of the batch; None: no read task of a tracked stream has reported."""
        return next((report.plan for report in self.tasks if report.plan is not None), None)

    @property
    def absent(self) -> RootSet:
        """Positions for which the log holds no record, by any evaluation: between two, records may
        have left the log."""
        return RootSet.union_of(report.missing.absent for report in self.tasks)

    @property
    def nothing_to_publish(self) -> bool:
        """Whether all that was read, was read untracked."""
        return self.has_untracked and not self.tasks


class ReportLedger:
    """The driver's end of the accumulator."""

    def __init__(self, context: SparkContext) -> None:
        param = LedgerParam(has_executors=not is_local(context.master or ""))
        self.accumulator: Accumulator[Value] = context.accumulator({}, param)
        # ids of streams whose rows a thread read that does not know its batch
        self._streams_of_threads: set[str] = set()

    def read(self, query: str, batch: int, without: Collection[str] = ()) -> BatchReports:
        """Return what tasks reported of a batch, without some streams, by their ids.

        A problem is raised once, here or by the read of another batch; then it is forgotten, and
        the batch can be evaluated anew.

        Raises `TrackingError`: a merge failed; or rows of one of its streams were read by a thread
        of which Spark does not know the batch, so that nobody can tell which records that failed
        and left open.
        """
        self._discard_reports_of_threads()
        self._raise_failed_merge()
        # a copy: tasks that are late add to it meanwhile
        all_sent = list(self.accumulator.value.get((query, batch), {}).values())
        sent = [(stream, blob) for stream, blob in all_sent if stream not in without]
        streams = frozenset(stream for stream, _ in sent)
        self._raise_read_by_threads(streams, batch)
        # bolts may have reported all the same of a stream whose read tasks say that it is untracked
        untracked = {stream for stream, blob in sent if blob == _UNTRACKED}
        tasks = tuple(decode(blob) for stream, blob in sent if stream not in untracked)
        return BatchReports(streams, tasks, has_untracked=bool(untracked))

    def _raise_read_by_threads(self, streams: frozenset[str], batch: int) -> None:
        """Raise `TrackingError`, once, if a thread that does not know its batch read one of these streams."""
        read_by_threads = self._streams_of_threads & streams
        if not read_by_threads:
            return
        # raised once: the batch runs again, perhaps without the thread
        self._streams_of_threads -= read_by_threads
        raise TrackingError(
            f"a thread of the sink's function evaluated rows of batch {batch}, or of one before it, and"
            f" Spark did not tell the tasks which: what failed there would be acked; {_INHERIT}"
        )

    def _discard_reports_of_threads(self) -> None:
        """Discard what tasks reported for a thread that does not know its batch, and log that.

        The ids of the streams are kept: `read` refuses their batches.
        """
        reports_of_threads = self.accumulator.value.pop(_BATCH_OF_THREADS, None)
        if not reports_of_threads:
            return
        self._streams_of_threads |= {stream for stream, _ in reports_of_threads.values()}
        _LOGGER.warning(
            "reports_without_batch: a sink's function evaluates tracked rows in a thread of its own; what"
            " its tasks report is lost, so %s",
            _INHERIT,
        )

    def _raise_failed_merge(self) -> None:
        """Raise `TrackingError`, once, if a report could not be merged since the last call."""
        errors_by_name = self.accumulator.value.pop(_MERGE_ERRORS, None)
        if not errors_by_name:
            return
        _stream, first_error = next(iter(errors_by_name.values()))  # no stream, and the text in bytes
        raise TrackingError(
            f"a task's report could not be merged, so the batch is not published: {first_error.decode()}"
        )

    def streams(self, query: str, batch: int) -> frozenset[str]:
        """Return the ids of the streams of which tasks reported in a batch."""
        return frozenset(stream for stream, _ in self.accumulator.value.get((query, batch), {}).values())

    def has_reports(self, query: str, since: int) -> bool:
        """Return whether tasks have reported of a batch of a query, `since` an id of its batches."""
        batches = tuple(self.accumulator.value)  # a copy: tasks of other batches add to it meanwhile
        return any(name == query and batch >= since for name, batch in batches)

    def count(self, query: str, batch: int) -> int:
        """Return how many reports of a batch have arrived."""
        return len(self.accumulator.value.get((query, batch), {}))

    def forget(self, query: str, batch: int) -> None:
        """Forget a batch: it was published, or is about to be evaluated anew."""
        self.accumulator.value.pop((query, batch), None)

    def forget_all(self, query: str) -> None:
        """Forget the batches of a query that has ended."""
        # a copy: tasks of other queries may add to it meanwhile
        for other_query, batch in list(self.accumulator.value):
            if other_query == query:
                self.accumulator.value.pop((query, batch), None)
