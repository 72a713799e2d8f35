"""The accumulator that brings the tasks' blobs to the driver, beside the data.

One for each SparkContext. Spark drops the updates of failed attempts. Values are builtins only, so that
reading one can never fail for want of an import.

`LedgerParam.addInPlace` must never raise: one exception there silently stops every accumulator of the
SparkContext. What goes wrong is recorded in the value, and `ReportLedger.read` raises it.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from acker.errors import TrackingError
from acker.untrusted import Untrusted, UntrustedName
from acker.wire.causes import error_class
from acker.wire.events import SourceRun
from spout.planning.plan import BatchPlan
from spout.publishing.blob import decode, encode
from spout.publishing.fold import Evaluated, TaskReport
from spout.runtime.logs import RECURRING_EVERY_S, OncePerKind
from spout.tuples.raised import Raised

_LOGGER = logging.getLogger("windhover.spout")

BATCHES_KEPT = 2
"""Batches of one query that are kept: the one that runs, and the one that may still be published."""

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
RUN_PROPERTY = "spark.jobGroup.id"

Added = tuple[int, int, int, str, bytes]
"""Stage, the task's attempt, partition, the stream's id, blob; an empty blob says: untracked."""
Batch = tuple[str, int]
Value = dict[Batch, dict[str, Added]]
_OUTSIDE: Batch = ("", -1)
"""Where tasks report that Spark runs for a thread which does not know its batch."""
_ERRORS: Batch = ("", -2)
_INHERIT: Final = (
    "start it as a pyspark.InheritableThread, or give a pool"
    " pyspark.inheritable_thread_target(batch.sparkSession)(f)"
)


class TaskName(NamedTuple):
    """A task of a batch: a repeated one has a higher `attempt`; `tries` of this very task went before."""

    query: str
    batch: int
    stage: int
    attempt: int
    partition: int
    tries: int = 0


def task_name() -> TaskName:
    """Name the task that runs in this process; outside a streaming query the batch is -1."""
    context = TaskContext.get()
    if context is None:
        return TaskName(*_OUTSIDE, 0, 0, 0)
    return TaskName(
        context.getLocalProperty(QUERY_PROPERTY) or "",
        int(context.getLocalProperty(BATCH_PROPERTY) or -1),
        context.stageId(),
        context.taskAttemptId(),
        context.partitionId(),
        context.attemptNumber(),
    )


class LedgerParam(AccumulatorParam[Value]):
    """Merges what tasks added and forgets old batches; with `has_executors` tasks have logs of their own."""

    def __init__(self, *, has_executors: bool = False) -> None:
        self.has_executors = has_executors

    def zero(self, value: Value) -> Value:
        return {}

    def addInPlace(self, value1: Value, value2: Value) -> Value:  # noqa: N802  (Spark's name)
        """Merge the second value into the first; never raise."""
        try:
            for batch, added in value2.items():
                value1.setdefault(batch, {}).update(added)
                for query, number in list(value1):
                    if query == batch[0] and number <= batch[1] - BATCHES_KEPT:
                        value1.pop((query, number), None)
        except Exception as error:  # noqa: BLE001  (raising here would stop every accumulator, silently)
            value1.setdefault(_ERRORS, {})[uuid.uuid4().hex] = (0, 0, 0, "", repr(error).encode())
        return value1


class TracebackLog:
    """Logs the tracebacks of one process, or of one stream: of each kind one a minute.

    An executor logs when a task reports, the driver what the tasks of a batch reported. Where both are one
    process (a local master), the driver alone does.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds = OncePerKind(clock)

    def tell(self, raised: Iterable[Raised], batch: int) -> None:
        """Log what was raised in a batch, unless its kind was logged within `RECURRING_EVERY_S`."""
        for each in raised:
            if self._kinds.left_out(each.kind) is None:
                continue
            _LOGGER.warning(
                "bolt_raised operator=%s error=%s place=%s batch=%d: tuples fail by it; it is traced once in"
                " %.0f s\n%s",
                UntrustedName(each.operator),
                UntrustedName(error_class(each.error)),
                Untrusted(each.place) or "none",
                batch,
                RECURRING_EVERY_S,
                each.text,
            )


OF_WORKER: Final = TracebackLog()
"""What this process of an executor has logged; Spark lets one process do task after task."""


def add(accumulator: Accumulator[Value], stream: str, report: TaskReport | None) -> None:
    """Add a task's report to the ledger, and log what it raised; None says that the task is not tracked."""
    name = task_name()
    param = accumulator.accum_param
    if report is not None and report.raised and isinstance(param, LedgerParam) and param.has_executors:
        OF_WORKER.tell(report.raised, name.batch)
    blob = b"" if report is None else encode(report)
    added: Added = (name.stage, name.attempt, name.partition, stream, blob)
    accumulator.add({(name.query, name.batch): {uuid.uuid4().hex: added}})


def is_local(master: str) -> bool:
    """Tell whether a master, as ``local[4]``, lets driver and tasks share one process, and so one log."""
    return re.match(r"local(\[|\Z)", master) is not None


class Reports(NamedTuple):
    """What arrived for one batch: the streams that were read, the reports, and whether some are untracked."""

    streams: frozenset[str]
    evaluations: tuple[Evaluated, ...]
    untracked: bool

    @property
    def plan(self) -> BatchPlan | None:
        return next((each.report.plan for each in self.evaluations if each.report.plan is not None), None)

    @property
    def absent(self) -> frozenset[SourceRun]:
        """Positions for which the log holds no record."""
        return frozenset(run for each in self.evaluations for run in each.report.absent)

    @property
    def nothing_to_publish(self) -> bool:
        """Whether all that was read, was read untracked."""
        return self.untracked and not self.evaluations


class ReportLedger:
    """The driver's end of the accumulator."""

    def __init__(self, context: SparkContext) -> None:
        param = LedgerParam(has_executors=not is_local(context.master or ""))
        self.accumulator: Accumulator[Value] = context.accumulator({}, param)
        self._outside: set[str] = set()  # streams of which a thread that does not know its batch read rows

    def read(self, query: str, batch: int, without: Collection[str] = ()) -> Reports:
        """Return what tasks added for a batch without some streams.

        Raises `TrackingError`: a merge failed; or rows of one of its streams were read by a thread of which
        Spark does not know the batch, so that nobody can tell which records that failed and left open.
        """
        value = self.accumulator.value
        if outside := value.pop(_OUTSIDE, None):
            self._outside |= {stream for *_, stream, _ in outside.values()}
            _LOGGER.warning(
                "reports_without_batch: a sink's function evaluates tracked rows in a thread of its own; what"
                " its tasks report is lost, so %s",
                _INHERIT,
            )
        wrong = value.pop(_ERRORS, None)
        if wrong:
            first = next(iter(wrong.values()))[4].decode()
            raise TrackingError(
                f"a task's report could not be merged, so the batch is not published: {first}"
            )
        # a copy: tasks that are late add to it meanwhile
        added = [each for each in list(value.get((query, batch), {}).values()) if each[3] not in without]
        if own := self._outside.intersection(stream for *_, stream, _ in added):
            self._outside -= own
            raise TrackingError(
                f"a thread of the sink's function evaluated rows of batch {batch}, or of one before it, and"
                f" Spark did not tell the tasks which: what failed there would be acked; {_INHERIT}"
            )
        free = {stream for *_, stream, blob in added if not blob}  # its bolts may have reported all the same
        reports = [each for each in added if each[3] not in free]
        return Reports(
            frozenset(stream for *_, stream, _ in added),
            tuple(Evaluated(stage, tries, part, decode(blob)) for stage, tries, part, _, blob in reports),
            bool(free),
        )

    def streams(self, query: str, batch: int) -> frozenset[str]:
        return frozenset(stream for *_, stream, _ in self.accumulator.value.get((query, batch), {}).values())

    def has_reports(self, query: str, since: int) -> bool:
        """Return whether tasks have reported of a batch of a query, `since` an id of its batches."""
        batches = tuple(self.accumulator.value)  # a copy: tasks of other batches add to it meanwhile
        return any(name == query and batch >= since for name, batch in batches)

    def count(self, query: str, batch: int) -> int:
        return len(self.accumulator.value.get((query, batch), {}))

    def forget(self, query: str, batch: int) -> None:
        """Forget a batch: it was published, or is about to be evaluated anew."""
        self.accumulator.value.pop((query, batch), None)

    def forget_all(self, query: str) -> None:
        """Forget the batches of a query that has ended."""
        for batch in list(self.accumulator.value):  # tasks of other queries may add to it meanwhile
            if batch[0] == query:
                self.accumulator.value.pop(batch, None)
