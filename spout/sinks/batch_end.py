"""The end of a micro-batch, whichever of sink and follower sees it: its reports are settled and published.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from itertools import islice

from acker.errors import TrackingError, UsageError, unreadable_kind
from acker.untrusted import UntrustedName
from replay.records.places import run_places
from spout.publishing.batch_warnings import LOGGED_MAX, isolated_counts, isolated_records
from spout.publishing.fold import BatchOutcome, LateNote
from spout.publishing.publish import BatchLane, held_runs, not_acked, publication_of
from spout.publishing.report_accumulator import BatchReports
from spout.publishing.settle import settle
from spout.publishing.watermarks import NOTHING_DROPPED, Dropped
from spout.spark.threads import leave_sigint_to_the_main_thread
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import logged, moment_of, refuse_repeats
from spout.tuples.raised import first_of_each

_LOGGER = logging.getLogger("windhover.spout")


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """A batch of a query that has ended.

    Attributes:
        query_batch: which batch it is: its `name` is the query's id, its `seq` the batch's.
    """

    application: Application
    query_batch: BatchLane

    @property
    def batch_id(self) -> int:
        """Return the micro-batch's id."""
        return self.query_batch.seq

    def record_and_find_stream(self, reports: BatchReports) -> Stream | None:
        """Return the one tracked stream of a batch; record the query with each stream it reads.

        None: no task has reported, so nothing is published. The planning processes also get to
        know how many cores Spark has by now. Raises `TrackingError`: there is no tracked stream,
        or several.
        """
        # 1. record; a stream of another application may have reported, too
        streams_by_id = self.application.streams
        read_streams = [streams_by_id[id] for id in reports.streams if id in streams_by_id]
        for stream in read_streams:
            stream.queries.add(self.query_batch.name)
        if read_streams:
            # executors may have come or gone during the batch
            self.application.tell_cores()
        # 2. find
        if not reports.tasks:
            return None
        tracked = [stream for stream in read_streams if stream.tracked]
        if len(tracked) != 1:
            raise TrackingError(
                f"batch {self.batch_id} reads {len(tracked)} tracked streams; a query publishes"
                " one: write the others in queries of their own, or read several inputs by one"
                " read_stream"
            )
        return tracked[0]

    def settle(self, stream: Stream, reports: BatchReports) -> BatchOutcome:
        """Log what the bolts raised or left open, and return the outcome of the batch.

        Raises `TrackingError` as `spout.publishing.settle` does, and where Spark repeats a batch
        whose bolts settle tuples of its state.
        """
        # 1. what bolts raised, the first of each kind
        raised = first_of_each(error for report in reports.tasks for error in report.raised)
        stream.traceback_log.warn(raised, self.batch_id)
        # 2. the batch's plan, clock and watermark by Spark's log: they count only for what Spark's
        # state holds, and for a batch without a plan
        has_held = any(report.holds for report in reports.tasks)
        moment = None  # not needed, or not in the log
        if has_held or reports.plan is None:
            batch = logged(self.application, self.query_batch)
            if batch is not None:
                moment = moment_of(stream, batch)
        # 3. the outcome, by the reports of all tasks; of the bolts behind Spark's own operators
        # (`stream.names_behind_spark`) there must be some
        if any(report.settles_held for report in reports.tasks):
            refuse_repeats(self.application, self.query_batch)
        outcome = settle(
            reports.tasks,
            stream.names_behind_spark,
            self.application.tasks_of,
            moment,
        )
        stream.left_open.warn(self.query_batch.name, reports.tasks, outcome, stream.inputs)
        return replace(outcome, raised=raised)

    def publish(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped = NOTHING_DROPPED) -> None:
        """Write the events of an outcome, durably; then count, and tell the planning process.

        `dropped`: which rows Spark dropped in the batch since they came too late.

        Raises `UsageError`: a store takes the rows of the stream, and this batch went past it.
        """
        if self.application.link(stream).has_store:
            raise UsageError(
                f"batch {self.batch_id} went past the store that takes the rows of group"
                f" {stream.group}: write it with foreachBatch(spout.exact_sink(store, rows)) alone,"
                " or read the group by a read_stream of its own"
            )
        # 1. the events. They are numbered by the batch's id, in a sequence (a *lane*) in which an
        # acker takes each number once. A checkpoint that is reset has a new session, and counts
        # its batches from 0 again: so the sequence has the session's name, too.
        self.log_losses(stream, outcome)
        session_lane = BatchLane(f"{self.query_batch.name}/{outcome.plan.session}", self.batch_id)
        # the publisher starts threads of Kafka's client: Ctrl-C must still wake the main thread
        leave_sigint_to_the_main_thread()
        held_longer_ms_by_input = {input.id: input.held_longer_ms for input in stream.inputs}
        # None: nothing came too late
        late_note = self._raise_watermarks(stream, outcome, dropped)
        publication = publication_of(outcome, session_lane, held_longer_ms_by_input, late_note)
        stream.publisher.publish(publication, outcome.plan.partitions)
        # 2. what came too late: events are of records, so rows that were dropped in a batch without
        # a record wait (`unpublished_row_count`) for a batch that has one
        if late_note is not None:
            waiting_row_count = 0 if publication.too_late else late_note.row_count
            stream.watermarks.unpublished_row_count = waiting_row_count
            stream.too_late_log.report(stream.group, outcome.late_count, late_note, stream.inputs)
        # 3. counts, and the planning process
        stream.late += outcome.late_count
        stream.dropped += dropped.rows_without_record(outcome.late_count)
        self.send_publication(stream, outcome)

    def send_publication(self, stream: Stream, outcome: BatchOutcome) -> None:
        """Add up the counts of a batch that is published, and write to the planning process."""
        stream.work.add(outcome.counts, outcome.errors, isolated_counts(outcome))
        self._log_isolated(stream, outcome)
        damaged = outcome.missing.damaged if outcome.stops_for_damage else ()
        link = self.application.link(stream)
        link.put_published(outcome.plan, not_acked(outcome), damaged, held_runs(outcome))

    def log_losses(self, stream: Stream, outcome: BatchOutcome) -> None:
        """Log what could not be read, and calls of bolts that passed only when made again."""
        lost_count = outcome.missing.lost_count
        if lost_count:
            _LOGGER.warning("records_left_the_log batch=%d records=%d", self.batch_id, lost_count)
        for run in outcome.missing.damaged:
            _LOGGER.error(
                "%s place=%s/%s@%d to=%d batch=%d why=%r",
                unreadable_kind(run.why).event,
                run.topic,
                run.partition,
                run.start,
                run.end,
                self.batch_id,
                run.why,
            )
        for call in islice(outcome.passed, LOGGED_MAX):
            _LOGGER.warning(
                "call_passed_again bolt=%s error=%s how=%r batch=%d records=%s: a call of the"
                " bolt for these records ended so, and passed when it was made again for fewer"
                " of them; none fails for it",
                UntrustedName(call.bolt),
                UntrustedName(call.error),
                call.explanation,
                self.batch_id,
                run_places(call.runs, stream.inputs),
            )

    def _log_isolated(self, stream: Stream, outcome: BatchOutcome) -> None:
        """Log the records that killed or hung a process, `LOGGED_MAX` of them at most."""
        for record in islice(isolated_records(outcome, stream.inputs), LOGGED_MAX):
            bolt, error, message = record.cause
            _LOGGER.error(
                "record_isolated record=%s bolt=%s error=%s how=%r batch=%d",
                record.place,
                UntrustedName(bolt),
                UntrustedName(error),
                message,
                self.batch_id,
            )

    def _raise_watermarks(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped) -> LateNote | None:
        """Raise the stream's watermarks by a batch; return what to report of rows that came too late.

        None: none came too late.
        """
        stream.watermarks.record_rises(outcome, dropped.watermarks)
        # rows that Spark dropped: in batches before, of which nothing was reported yet, and in this
        # one, beside those that `hold` has counted in `late_count`
        dropped_row_count = stream.watermarks.unpublished_row_count + dropped.rows_without_record(
            outcome.late_count
        )
        if not dropped_row_count and not outcome.late_count:
            return None
        batch = logged(self.application, self.query_batch)
        # 0: Spark's log does not have the batch, so nobody knows it
        watermark_ms = 0 if batch is None else batch.watermark_before_ms
        return LateNote(
            wall_ms=time.time_ns() // 1_000_000,
            watermark_ms=watermark_ms,
            row_count=dropped_row_count,
            mover=stream.watermarks.mover_to(watermark_ms),
        )
