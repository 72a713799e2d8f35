"""The end of a micro-batch, whichever of sink and follower sees it: its reports are settled and published.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from itertools import islice

from acker.errors import TrackingError, unreadable_kind
from acker.untrusted import UntrustedName
from replay.records.places import run_places
from spout.publishing.batch_warnings import LOGGED_MAX, counted, isolated_records
from spout.publishing.fold import BatchOutcome, LateNote
from spout.publishing.publish import BatchLane, held_runs, not_acked, publication_of
from spout.publishing.report_accumulator import Reports
from spout.publishing.settle import settle
from spout.publishing.watermarks import NOTHING_DROPPED, Dropped
from spout.spark.threads import leave_sigint_to_the_main_thread
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import logged, moment_of, refuse_repeats
from spout.tuples.raised import first_of_each

_LOGGER = logging.getLogger("windhover.spout")


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """A batch of a query that has ended; the name of `lane` is the query's id."""

    application: Application
    lane: BatchLane

    def stream(self, reports: Reports) -> Stream | None:
        """Return and remember the one tracked stream of a batch; None if there is nothing to publish."""
        tracked = self.application.streams
        streams = [tracked[name] for name in reports.streams if name in tracked]
        for stream in streams:
            stream.queries.add(self.lane.name)
        if streams:
            self.application.tell_cores()
        if not reports.evaluations:
            return None
        streams = [stream for stream in streams if stream.tracked]
        if len(streams) != 1:
            raise TrackingError(
                f"batch {self.lane.seq} reads {len(streams)} tracked streams; a query publishes one: write"
                " the others in queries of their own, or read several inputs by one read_stream"
            )
        return streams[0]

    def settle(self, stream: Stream, reports: Reports) -> BatchOutcome:
        """Log what the bolts raised, and compute the outcome of the batch by `spout.publishing.settle`."""
        raised = first_of_each(each for one in reports.evaluations for each in one.report.raised)
        stream.traceback_log.tell(raised, self.lane.seq)
        holds = any(each.report.holds for each in reports.evaluations)
        moment = None
        if holds or reports.plan is None:
            found = logged(self.application, self.lane)
            moment = None if found is None else moment_of(stream, found)
        if any(each.report.settles_held for each in reports.evaluations):
            refuse_repeats(self.application, self.lane)
        outcome = settle(reports.evaluations, stream.loose, self.application.tasks_of, moment)
        stream.left_open.warn(self.lane.name, reports.evaluations, outcome, stream.inputs)
        return replace(outcome, raised=raised)

    def publish(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped = NOTHING_DROPPED) -> None:
        """Write the events of an outcome, add up its counts, and write to the planning process.

        `dropped`: what Spark counted of the batch.
        """
        if outcome.lost:
            _LOGGER.warning("records_left_the_log batch=%d records=%d", self.lane.seq, outcome.lost)
        for run in outcome.damaged:
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
                "call_passed_again bolt=%s error=%s how=%r batch=%d records=%s: a call of the bolt for these"
                " records ended so, and passed when it was made again for fewer of them; none fails for it",
                UntrustedName(call.bolt),
                UntrustedName(call.error),
                call.how,
                self.lane.seq,
                run_places(call.runs, stream.inputs),
            )
        named = BatchLane(f"{self.lane.name}/{outcome.plan.session}", self.lane.seq)
        leave_sigint_to_the_main_thread()
        longer_ms = {one.id: one.held_longer_ms for one in stream.inputs}
        late = self._late(stream, outcome, dropped)
        publication = publication_of(outcome, named, longer_ms, late)
        stream.publisher.publish(publication, outcome.plan.partitions)
        if late is not None:
            stream.watermarks.unsaid_rows = 0 if publication.too_late else late.rows
            stream.too_late_log.report(stream.group, outcome.late, late, stream.inputs)
        stream.late += outcome.late
        stream.dropped += dropped.rows_beside(outcome.late)
        stream.work.add(outcome.counts, outcome.errors, counted(outcome))
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
        damaged = outcome.damaged if outcome.stops_for_damage else ()
        link = self.application.link(stream)
        link.put_published(outcome.plan, not_acked(outcome), damaged, held_runs(outcome))

    def _late(self, stream: Stream, outcome: BatchOutcome, dropped: Dropped) -> LateNote | None:
        """Return what to say of a watermark; None: nothing came too late."""
        stream.watermarks.rise(outcome, dropped.watermarks)
        rows = stream.watermarks.unsaid_rows + dropped.rows_beside(outcome.late)
        if not (rows or outcome.late):
            return None
        found = logged(self.application, self.lane)
        watermark_ms = 0 if found is None else found.watermark_before_ms
        now_ms = time.time_ns() // 1_000_000
        return LateNote(now_ms, watermark_ms, rows, stream.watermarks.mover(watermark_ms))
