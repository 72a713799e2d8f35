"""Read from Spark's offset log what was planned for a micro-batch: its offsets, its watermark and its start.

It is read for batches without input records (Spark runs one to evict state after the watermark has moved) and
for batches with tuples that are held.

Source: docs/design/protocol.md, section 5.2; Spark's `OffsetSeqLog` and `OffsetSeqMetadata`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

from acker.errors import TrackingError
from spout.planning.journal import BEGINNING, Journal, batch_ranges, journal_of
from spout.publishing.publish import BatchLane
from spout.publishing.settle import Moment
from spout.spark.private import java_query, sequence
from spout.streaming.application import Application, Stream
from spout.streaming.options import plan_between

_APPEND = "Append"


class Logged(NamedTuple):
    """What the offset log has about a batch: the offsets before and behind it, and the watermark before it.

    `began_ms` is wall time.
    """

    start: Journal
    end: Journal
    watermark_before_ms: int
    began_ms: int = 0

    @property
    def emitted_nothing(self) -> bool:
        return not batch_ranges(self.start, self.end)

    @property
    def now(self) -> int:
        """The session clock when the batch began, in ms; it is the `touched_at` of its acks.

        A batch that emits nothing has no Init of its own. While roots are open, the session clock follows
        wall time and is never faster, so a timeout that is reset never counts from too early a time. While
        the query is down it stops: until the next Init, a timeout that is reset then ends later by that.
        """
        since_ms = self.end.at_ms if self.emitted_nothing else 0
        return self.end.now + (max(0, self.began_ms - since_ms) if since_ms else 0)


def logged(application: Application, lane: BatchLane) -> Logged | None:
    """Return what is logged about a batch of a running query; None when the query reads no tracked stream."""
    query = _running(application, lane.name)
    if query is None:
        return None
    log = query.offsetLog()
    end, _, began_ms = _entry(log, lane.seq)
    start, watermark_ms, _ = _entry(log, lane.seq - 1)
    return None if end is None else Logged(start or BEGINNING, end, watermark_ms, began_ms)


def moment_of(stream: Stream, found: Logged) -> Moment:
    """Return what `settle` needs from a batch's log entry."""
    plan = plan_between(found.start, found.end, stream.group, stream.partitions)
    return Moment(replace(plan, now=found.now), found.watermark_before_ms)


def refuse_repeats(application: Application, lane: BatchLane) -> None:
    """Raise `TrackingError` in output mode update or complete: an aggregate's anchors are acked once."""
    query = _running(application, lane.name)
    mode = _APPEND if query is None else str(query.outputMode())
    if mode != _APPEND:
        raise TrackingError(
            f"output mode {mode.lower()} writes a row of an aggregate again and again, and would ack its"
            ' anchors as often; delayed acks need outputMode("append")'
        )


def _running(application: Application, query: str) -> Any:
    """Find a query that `spout.start` started, or that runs in a session in which a stream was read."""
    if query in application.started:
        return java_query(application.started[query])
    for session in {id(each.session): each.session for each in application.all_streams()}.values():
        found = session.streams.get(query)
        if found is not None:
            return java_query(found)
    return None


def _entry(log: Any, batch: int) -> tuple[Journal | None, int, int]:
    """Read an entry: the tracked stream's offset (None without one), the batch's watermark and start."""
    entry = log.get(batch) if batch >= 0 else None
    if entry is None or entry.isEmpty():
        return None, 0, 0
    offsets, metadata = entry.get().offsets(), entry.get().metadataOpt()
    found = [batch_offset(one.get().json()) for one in sequence(offsets) if one.isDefined()]
    tracked = next((each for each in found if each is not None and each.session), None)
    if not metadata.isDefined():
        return tracked, 0, 0
    return tracked, int(metadata.get().batchWatermarkMs()), int(metadata.get().batchTimestampMs())


def batch_offset(reported: object) -> Journal | None:
    """Parse an offset of a source; None when there is none, or when another kind of source wrote it."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    return journal_of(value) if isinstance(value, dict) and "session" in value and "ranges" in value else None
