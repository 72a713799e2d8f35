"""The sink of a query that writes exactly once: rows, acks and the batch's key in one transaction.

Theory of operation
===================

1. `exact_sink` is called before the query starts. It refuses a query whose rows do not name the one
   record that they belong to. From then on a planning process asks before it takes the group, and
   the driver opens the store for it (`spout.exactly_once.writer`).
2. Spark calls the sink with a batch. One that an earlier start planned is passed over: the store
   has it, or its roots come again as copies.
3. The rows come to the driver in one pass, and with them the reports of its tasks. Spark takes
   from a task that it runs several times the rows and the report of the same run. That holds for
   the tasks whose rows come here; what a task before a shuffle wrote may be of another run than its
   report. So a batch in which a task reported twice does not count, and is evaluated again.
4. The writer commits the rows of the roots that are acked, the key and the publication.
5. The publication is sent. Then the planning process hears of it, and the session's clock goes on.

Whatever raises ends the run. The next start finds in the store what became of the batch.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from acker.errors import RowsChanged, TrackingError, Unreachable, UsageError
from spout.exactly_once.anchored_rows import rooted_rows
from spout.exactly_once.store import Store
from spout.exactly_once.writer import ExactWriter, settled_batch
from spout.held.held_plan import refuse_query
from spout.planning.plan import BatchPlan
from spout.publishing.publish import BatchLane
from spout.publishing.report_accumulator import QUERY_PROPERTY, RUN_PROPERTY
from spout.sinks.batch_end import BatchEnd
from spout.spark.private import is_exchange, logical_plan, nodes, planned_children
from spout.spark.threads import leave_sigint_to_the_main_thread
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import logged
from spout.streaming.frames import hidden_column, streams_behind
from spout.streaming.options import plan_between
from spout.streaming.query_plan import execution_of_running_query, may_shuffle
from spout.streaming.unfit_rules import log_unfit_rules_of
from spout.tuples.anchors import AnchorForm
from spout.tuples.columns import ANCHOR

_LOGGER = logging.getLogger("windhover.spout")

EVALUATIONS_MAX: Final = 3
"""A batch of which a part was evaluated twice is evaluated so often in all; then the run ends."""

BUSY_S_MAX: Final = 120.0
"""So long a start waits until the run before has ended its call to the store."""


class ExactSink:
    """What `foreachBatch` calls; `exact_sink` returns one.

    >>> callable(spout.ExactSink)
    True
    """

    is_exact: Final = True
    """By it `spout.exactly_once.store.refuse_exact` knows one."""

    def __init__(
        self,
        store: Store,
        stream: Stream,
        anchor_form: AnchorForm,
        owner: Application,
    ) -> None:
        """Prepare; the store is not opened before a query runs.

        Args:
            store: takes rows and publications.
            stream: the `read_stream` call whose rows it gets.
            anchor_form: the form of the hidden column.
            owner: the application that has the stream.
        """
        self._stream = stream
        self._anchor_form = anchor_form
        self._application = owner
        publisher = stream.publisher
        self._writer = ExactWriter(store, stream.group, publisher.topics, publisher.write)
        self._store_lock = threading.Lock()  # held by the thread that calls the store
        # by the epoch of a session: the id of the run of the query that first had a batch of it
        self._run_id_by_epoch: dict[int, str] = {}
        # by the id of a run whose plan was checked: whether Spark shuffles its rows
        self._has_shuffle_by_run: dict[str, bool] = {}

    def open(self, epoch_min: int) -> int:
        """Open the store for a start of the query.

        Return the epoch that the store grants to the session of this start, `epoch_min` or higher.

        Raises:
            Unreachable: store or broker do not answer, or the run before is still writing.
            WindhoverError: as the store raises it.
        """
        # the store or the publisher may start threads: Ctrl-C must still wake the main thread
        leave_sigint_to_the_main_thread()
        with self._store_locked():
            return self._writer.open(epoch_min)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, and publish it.

        Raises:
            RowsChanged: tasks of the batch ran twice, whenever it was evaluated.
            StoreFenced: a later start has opened the store.
            TrackingError: the batch cannot be settled, or a row does not belong to one record.
            Unreachable: store or broker do not answer; the next start finds out what counts.
            UsageError: the rows are not those that the sink was made for.
        """
        context = rows.sparkSession.sparkContext
        query_batch = BatchLane(context.getLocalProperty(QUERY_PROPERTY) or "", batch_id)
        run_id = context.getLocalProperty(RUN_PROPERTY) or ""
        batch_end = BatchEnd(self._application, query_batch)
        with ExitStack() as stack:
            # however it ends: the next run of the batch counts nothing of this one
            stack.callback(self._application.ledger.forget, *query_batch)
            # batches of this run are published here, and not by the follower of Spark's own sinks
            self._application.sunk.add(run_id)
            self._check_plan_of_run(rows, query_batch, run_id)
            batch = logged(self._application, query_batch)
            if batch is None:  # the query reads no tracked stream
                raise self._for_other_rows(batch_id)
            if batch.emitted_nothing:  # there is nothing to write or to publish
                return
            plan = plan_between(batch.start, batch.end, self._stream.group, self._stream.partitions)
            if self._accept_planned_batch(plan, run_id, batch_id):
                self._write(batch_end, rows, run_id)

    def _check_plan_of_run(self, rows: DataFrame, query_batch: BatchLane, run_id: str) -> None:
        """Check the plan of a run of the query, once for each run; record whether it has a shuffle.

        Raises `UsageError`: its rows cannot be written exactly once.
        """
        if run_id in self._has_shuffle_by_run:
            return
        if ANCHOR not in rows.columns:
            raise self._for_other_rows(query_batch.seq)
        execution = execution_of_running_query(rows.sparkSession, query_batch.name)
        refuse_mixed(execution.analyzedPlan())
        log_unfit_rules_of(execution.analyzedPlan(), self._application)
        planned_nodes = nodes(execution.lastExecution().executedPlan(), planned_children)
        self._has_shuffle_by_run[run_id] = any(map(is_exchange, planned_nodes))

    def _accept_planned_batch(self, plan: BatchPlan, run_id: str, batch_id: int) -> bool:
        """Return whether to write a batch: whether this start of the query has planned it.

        Of an earlier start it is passed over, and logged. The first run that has a batch of a
        session is recorded as the run of that session. Raises `TrackingError`: no store was opened
        for the process that planned it.
        """
        # a query that is started again in this process has the same sink, which may not have opened
        # its store anew yet; the run tells the two starts apart
        is_of_this_run = self._run_id_by_epoch.setdefault(plan.epoch, run_id) == run_id
        link = self._application.link(self._stream)
        if link.runs_again(plan) or not is_of_this_run:
            _LOGGER.info(
                "batch_of_an_earlier_start batch=%d group=%s: it is passed over; the store has"
                " it, or its records come again",
                batch_id,
                self._stream.group,
            )
            return False
        if not self._writer.is_own(plan.epoch):
            raise TrackingError(
                f"batch {batch_id} of group {self._stream.group} was planned by a session for which"
                " this sink has not opened its store: call spout.exact_sink before the query"
                " starts, and once for each start; let one query read the group"
            )
        return True

    def _write(self, batch_end: BatchEnd, rows: DataFrame, run_id: str) -> None:
        """Evaluate a batch, again where a task of it ran twice; commit and publish it."""
        ledger = self._application.ledger
        for evaluation in range(1, EVALUATIONS_MAX + 1):
            try:
                self._evaluate_and_commit(batch_end, rows)
            except RowsChanged as change:
                # Spark keeps what it wrote before a shuffle, so that would not be evaluated again
                if evaluation == EVALUATIONS_MAX or self._has_shuffle_by_run[run_id]:
                    raise
                _LOGGER.warning("batch_is_evaluated_again batch=%d: %s", batch_end.batch_id, change)
                ledger.forget(*batch_end.query_batch)
            else:
                return

    def _evaluate_and_commit(self, batch_end: BatchEnd, rows: DataFrame) -> None:
        """Evaluate a batch once, commit it, publish it, and tell the planning process.

        Raises `RowsChanged`: a task ran twice, and the rows may be of the other run.
        """
        # 1. evaluate it: the rows come here, and with them the reports of the tasks on what the
        # bolts did
        table = rows.toArrow()
        reports = self._application.reports(*batch_end.query_batch)
        if batch_end.record_and_find_stream(reports) is not self._stream or reports.plan is None:
            raise self._for_other_rows(batch_end.batch_id)
        # 2. settle it; this refuses tasks that ran twice before anything is settled
        settle = partial(batch_end.settle, self._stream, reports)
        batch = settled_batch(batch_end.query_batch, reports.tasks, settle)
        batch_end.log_losses(self._stream, batch.outcome)
        # 3. commit its rows, each with its root, and what is to be published; then publish that
        rows_with_roots = rooted_rows(table, self._anchor_form, batch.outcome.plan)
        leave_sigint_to_the_main_thread()
        with self._store_locked():
            publication = self._writer.commit(batch, rows_with_roots)
            self._stream.publisher.write(publication)
        batch_end.send_publication(self._stream, batch.outcome)

    @contextmanager
    def _store_locked(self) -> Iterator[None]:
        """Hold the store for this thread: a run that was stopped may still write.

        Raises `Unreachable`: another thread calls it, and does not come to an end.
        """
        if not self._store_lock.acquire(timeout=BUSY_S_MAX):
            raise Unreachable(
                f"another run of the query that writes group {self._stream.group} has been calling"
                f" the store for {BUSY_S_MAX:.0f} s; see whether the store answers, and start the"
                " query again"
            )
        try:
            yield
        finally:
            self._store_lock.release()

    def _for_other_rows(self, batch_id: int) -> UsageError:
        return UsageError(
            f"batch {batch_id} has other rows than those that spout.exact_sink(store, rows) was"
            " made for; make one for the rows whose writeStream gets it"
        )


def exact_sink(store: Store, rows: DataFrame) -> ExactSink:
    """Return the function for `foreachBatch` that writes rows into a store exactly once.

    Rows, and what is acked and failed for them, are one transaction of the store. So of each record
    that is acked the store has the rows of one evaluation, once; of a dead letter it has none.

    >>> import sqlite3
    >>> connection = sqlite3.connect(f"{folder}/words.sqlite")
    >>> _ = connection.execute("CREATE TABLE words (word TEXT)")
    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence(), anchored=True))
    >>> sink = spout.exact_sink(spout.SQLiteStore(f"{folder}/words.sqlite", "words"), words)
    >>> writer = words.writeStream.foreachBatch(sink)
    >>> query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    >>> spout.run_once(query)
    True
    >>> sorted(word for word, in connection.execute("SELECT word FROM words"))
    ['hawk', 'hawk', 'hovers', 'the', 'the', 'waits']
    >>> connection.close()

    Args:
        store: takes the rows, without the hidden column.
        rows: the rows that are written, with the hidden column: of ``bolt(..., anchored=True)``,
            and of Spark's operators that keep it. Call it before the query starts.

    Raises:
        UsageError: the rows are no stream, or of several tracked streams or none; the hidden column
            was dropped; rows of several records are mixed, or wait for a later batch.
    """
    if not rows.isStreaming:
        raise UsageError("spout.exact_sink writes a stream: give it the rows that are written")
    streams = streams_behind(rows)
    if len(streams) != 1:
        groups = ", ".join(sorted(stream.group for stream in streams)) or "none"
        raise UsageError(
            f"the rows are of {len(streams)} tracked streams (groups: {groups}), and a store takes"
            " those of one: read several inputs of a group by one read_stream, others with"
            " tracked=False, and what is to be written exactly once not with tracked=False"
        )
    if ANCHOR not in rows.columns:
        raise UsageError(
            f"the rows lack the hidden column {ANCHOR!r}, so nobody knows which record they belong"
            " to: make the last bolt with spout.bolt(..., anchored=True), and select the column"
            " behind it"
            f' (.select("word", "{ANCHOR}")); it does not reach the store'
        )
    stream, anchor_form, _ = hidden_column(rows, "exact_sink")
    if anchor_form is AnchorForm.WIDE or stream.root_form is AnchorForm.WIDE:
        raise UsageError(
            "a stream with delayed_acks=True holds tuples across batches, so the rows of one"
            " record are in several of them, and no transaction has them all: read it without"
            " delayed_acks, or write it with spout.sink, by an upsert"
        )
    plan = logical_plan(rows)
    refuse_query(plan)
    refuse_mixed(plan)
    application = Application.of(rows.sparkSession)
    sink = ExactSink(store, stream, anchor_form, application)
    application.link(stream).expect_store(sink.open)
    return sink


def refuse_mixed(plan: object) -> None:
    """Raise `UsageError` if a query may mix rows of several records behind its last bolt.

    `plan`: its logical plan. Spark may shuffle there, which all operators with a state do.
    """
    if may_shuffle(plan):
        raise UsageError(
            "an aggregate, a join, a union, a sort, dropDuplicates or a repartition stands behind"
            " the last bolt: there rows of several records are mixed, or Spark evaluates them"
            " apart from their bolts. Let a bolt do it, shuffle before a bolt (spout.bolt(...,"
            " grouping=spout.fields(...))), or write the query with spout.sink"
        )
