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
        lane: which batch it is: its `name` is the query's id, its `seq` the batch's. (A lane is a
            numbered sequence of messages to the ackers, which apply each number once.)
    """

    application: Application
    lane: BatchLane

    def find_stream(self, reports: BatchReports) -> Stream | None:
        """Return the one tracked stream of a batch.

        None: no task has reported, so nothing is published.

        This records the query with each stream that has reported, and how many cores Spark has by
        now. Raises `TrackingError`: there is no tracked stream, or several.
        """
        streams_by_id = self.application.streams
        own_ids = [stream_id for stream_id in reports.streams if stream_id in streams_by_id]
        reported = [streams_by_id[stream_id] for stream_id in own_ids]
        for stream in reported:
            stream.queries.add(self.lane.name)
        if reported:
            # executors may have come or gone during the batch
            self.application.tell_cores()
        if not reports.tasks:
            return None
        tracked = [stream for stream in reported if stream.tracked]
        if len(tracked) != 1:
            raise TrackingError(
                f"batch {self.lane.seq} reads {len(tracked)} tracked streams; a query publishes"
                " one: write the others in queries of their own, or read several inputs by one"
                " read_stream"
            )
        return tracked[0]

    def settle(self, stream: Stream, reports: BatchReports) -> BatchOutcome:
        """Log what the bolts raised or left open, and return the outcome of the batch.

        Raises `TrackingError` as `spout.publishing.settle` does, and where Spark repeats a batch
        whose bolts settle tuples of its state.
        """
        # 1. what bolts raised
        raised = first_of_each(error for report in reports.tasks for error in report.raised)
        stream.traceback_log.warn(raised, self.lane.seq)
        # 2. when the batch was: it counts only for what Spark's state holds, and for a batch
        # without a plan
        has_held = any(report.holds for report in reports.tasks)
        moment = None
        if has_held or reports.plan is None:
            batch = logged(self.application, self.lane)
            if batch is not None:
                moment = moment_of(stream, batch)
        # 3. the outcome
        if any(report.settles_held for report in reports.tasks):
            refuse_repeats(self.application, self.lane)
        outcome = settle(reports.tasks, stream.loose, self.application.tasks_of, moment)
        stream.left_open.warn(self.lane.name, reports.tasks, outcome, stream.inputs)
        return replace(outcome, raised=raised)

    def publish(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped = NOTHING_DROPPED) -> None:
        """Write the events of an outcome, durably; then add up its counts, and write to the
        planning process.

        `dropped`: which rows Spark dropped in the batch since they came too late.

        Raises `UsageError`: a store takes the rows of the stream, and this batch went past it.
        """
        if self.application.link(stream).has_store:
            raise UsageError(
                f"batch {self.lane.seq} went past the store that takes the rows of group"
                f" {stream.group}: write it with foreachBatch(spout.exact_sink(store, rows)) alone,"
                " or read the group by a read_stream of its own"
            )
        # 1. the events; a checkpoint that is reset has a new session, and counts its batches from 0
        # again: so the lane of these messages has the session's name, too
        self.log_losses(stream, outcome)
        session_lane = BatchLane(f"{self.lane.name}/{outcome.plan.session}", self.lane.seq)
        leave_sigint_to_the_main_thread()
        held_longer_ms_by_input = {input.id: input.held_longer_ms for input in stream.inputs}
        late_note = self._raise_watermarks(stream, outcome, dropped)
        publication = publication_of(outcome, session_lane, held_longer_ms_by_input, late_note)
        stream.publisher.publish(publication, outcome.plan.partitions)
        # 2. what came too late: events are of records, so rows that were dropped in a batch without
        # a record wait for a batch that has one
        if late_note is not None:
            stream.watermarks.unsaid_rows = 0 if publication.too_late else late_note.rows
            stream.too_late_log.report(stream.group, outcome.late_count, late_note, stream.inputs)
        # 3. counts, and the planning process
        stream.late += outcome.late_count
        stream.dropped += dropped.rows_beside(outcome.late_count)
        self.send_publication(stream, outcome)

    def send_publication(self, stream: Stream, outcome: BatchOutcome) -> None:
        """Add up the counts of a batch that is published, and write to the planning process."""
        stream.work.add(outcome.counts, outcome.errors, isolated_counts(outcome))
        self._log_isolated(stream, outcome)
        damaged = outcome.missing.damaged if outcome.stops_for_damage else ()
        link = self.application.link(stream)
        link.put_published(outcome.plan, not_acked(outcome), damaged, held_runs(outcome))

    def log_losses(self, stream: Stream, outcome: BatchOutcome) -> None:
        """Log what the read tasks could not read, and calls of bolts that passed only when made again."""
        lost_count = outcome.missing.lost_count
        if lost_count:
            _LOGGER.warning("records_left_the_log batch=%d records=%d", self.lane.seq, lost_count)
        for run in outcome.missing.damaged:
            _LOGGER.error(
                "%s place=%s/%s@%d to=%d batch=%d why=%r",
                unreadable_kind(run.why).event,
                run.topic,
                run.partition,
                run.start,
                run.end,
                self.lane.seq,
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
                self.lane.seq,
                run_places(call.runs, stream.inputs),
            )

    def _log_isolated(self, stream: Stream, outcome: BatchOutcome) -> None:
        """Log the records that killed or hung a process, of `LOGGED_MAX` at most."""
        for record in islice(isolated_records(outcome, stream.inputs), LOGGED_MAX):
            bolt, error, how = record.cause
            _LOGGER.error(
                "record_isolated record=%s bolt=%s error=%s how=%r batch=%d",
                record.place,
                UntrustedName(bolt),
                UntrustedName(error),
                how,
                self.lane.seq,
            )

    def _raise_watermarks(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped) -> LateNote | None:
        """Raise the stream's watermarks by a batch.

        Return what to report of rows that came too late.

        None: none came too late.
        """
        stream.watermarks.record_rises(outcome, dropped.watermarks)
        # those that `hold` knows of are in `late_count`; the others Spark dropped, here or in
        # batches before
        dropped_row_count = stream.watermarks.unsaid_rows + dropped.rows_beside(outcome.late_count)
        if not dropped_row_count and not outcome.late_count:
            return None
        batch = logged(self.application, self.lane)
        watermark_ms = 0 if batch is None else batch.watermark_before_ms
        now_ms = time.time_ns() // 1_000_000
        return LateNote(now_ms, watermark_ms, dropped_row_count, stream.watermarks.mover_to(watermark_ms))
