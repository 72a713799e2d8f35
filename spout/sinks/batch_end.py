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

    The name of `lane` is the query's id, its `seq` the batch's.
    """

    application: Application
    lane: BatchLane

    def stream(self, reports: BatchReports) -> Stream | None:
        """Find the one tracked stream of a batch; None if there is nothing to publish.

        The streams that have reported remember the query as theirs.
        """
        streams_by_id = self.application.streams
        reported = [streams_by_id[name] for name in reports.streams if name in streams_by_id]
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
        """Log what the bolts raised, and compute the outcome of the batch by `spout.publishing.settle`."""
        raised = first_of_each(error for report in reports.tasks for error in report.raised)
        stream.traceback_log.warn(raised, self.lane.seq)
        has_held = any(report.holds for report in reports.tasks)
        moment = None
        if has_held or reports.plan is None:
            batch = logged(self.application, self.lane)
            moment = None if batch is None else moment_of(stream, batch)
        if any(report.settles_held for report in reports.tasks):
            refuse_repeats(self.application, self.lane)
        outcome = settle(reports.tasks, stream.loose, self.application.tasks_of, moment)
        stream.left_open.warn(self.lane.name, reports.tasks, outcome, stream.inputs)
        return replace(outcome, raised=raised)

    def publish(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped = NOTHING_DROPPED) -> None:
        """Write the events of an outcome, add up its counts, and write to the planning process.

        `dropped`: what Spark counted of the batch.

        Raises `UsageError`: a store takes the rows of the stream, and this batch went past it.
        """
        if self.application.link(stream).has_store:
            raise UsageError(
                f"batch {self.lane.seq} went past the store that takes the rows of group"
                f" {stream.group}: write it with foreachBatch(spout.exact_sink(store, rows)) alone,"
                " or read the group by a read_stream of its own"
            )
        self.log_losses(stream, outcome)
        # a checkpoint that is reset has a new session, and counts its batches from 0 again
        session_lane = BatchLane(f"{self.lane.name}/{outcome.plan.session}", self.lane.seq)
        leave_sigint_to_the_main_thread()
        held_longer_ms_by_input = {input.id: input.held_longer_ms for input in stream.inputs}
        late_note = self._late_note(stream, outcome, dropped)
        publication = publication_of(outcome, session_lane, held_longer_ms_by_input, late_note)
        stream.publisher.publish(publication, outcome.plan.partitions)
        if late_note is not None:
            # rows without a record to say it by wait for a batch that has one
            stream.watermarks.unsaid_rows = 0 if publication.too_late else late_note.rows
            stream.too_late_log.report(stream.group, outcome.late_count, late_note, stream.inputs)
        stream.late += outcome.late_count
        stream.dropped += dropped.rows_beside(outcome.late_count)
        self.note_published(stream, outcome)

    def note_published(self, stream: Stream, outcome: BatchOutcome) -> None:
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
                call.how,
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

    def _late_note(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped) -> LateNote | None:
        """Raise the stream's watermarks.

        Return what to report of one, or None: nothing came too late.
        """
        stream.watermarks.record_rises(outcome, dropped.watermarks)
        rows = stream.watermarks.unsaid_rows + dropped.rows_beside(outcome.late_count)
        if not rows and not outcome.late_count:
            return None
        batch = logged(self.application, self.lane)
        watermark_ms = 0 if batch is None else batch.watermark_before_ms
        now_ms = time.time_ns() // 1_000_000
        return LateNote(now_ms, watermark_ms, rows, stream.watermarks.mover_to(watermark_ms))
