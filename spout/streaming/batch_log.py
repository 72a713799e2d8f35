"""Read from Spark's offset log what was planned for a micro-batch: its offsets, its watermark and its start.

It is read for batches without input records (Spark runs one to evict state after the watermark
has moved) and for batches with tuples that are held. A batch is named by its `BatchLane`: the
query's id, and the micro-batch's id as its number `seq`.

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
from spout.spark.renamed import batch_metadata
from spout.streaming.application import Application, Stream
from spout.streaming.options import plan_between

_APPEND = "Append"


class Logged(NamedTuple):
    """What the offset log has about a batch: the offsets before and behind it, and the watermark before it.

    `began_ms` is when Spark began it, in wall time.
    """

    start: Journal
    end: Journal
    watermark_before_ms: int
    began_ms: int = 0

    @property
    def emitted_nothing(self) -> bool:
        """Whether the batch has no positions."""
        return not batch_ranges(self.start, self.end)

    @property
    def now(self) -> int:
        """The session clock when the batch began, in ms; it is the `touched_at` of its acks.

        A batch that emits nothing has no Init of its own, so its clock is computed from wall time.
        While roots are open, the session clock follows wall time and is never faster, so a timeout
        that is reset never counts from too early a time. While the query is down the clock stops:
        until the next Init, a timeout that is reset ends later by as much.
        """
        # at_ms 0: an older version wrote the offset, without its wall time
        if not self.emitted_nothing or not self.end.at_ms:
            return self.end.now
        # since the offset was planned; negative where the wall clock was set back
        waited_ms = max(0, self.began_ms - self.end.at_ms)
        return self.end.now + waited_ms


def logged(application: Application, lane: BatchLane) -> Logged | None:
    """Read from the offset log what is logged about a batch of a running query.

    None: there is no such query, or it reads no tracked stream.
    """
    query = _running(application, lane.name)
    if query is None:
        return None
    log = query.offsetLog()
    entry = _entry(log, lane.seq)
    if entry.offset is None:
        return None
    entry_before = _entry(log, lane.seq - 1)
    start = entry_before.offset or BEGINNING
    return Logged(start, entry.offset, entry_before.watermark_ms, entry.began_ms)


def moment_of(stream: Stream, batch: Logged) -> Moment:
    """Return what `settle` needs from a batch's log entry."""
    plan = plan_between(batch.start, batch.end, stream.group, stream.partitions)
    return Moment(replace(plan, now=batch.now), batch.watermark_before_ms)


def refuse_repeats(application: Application, lane: BatchLane) -> None:
    """Raise `TrackingError` in output mode update or complete: an aggregate's anchors are acked once."""
    query = _running(application, lane.name)
    mode = _APPEND if query is None else str(query.outputMode())
    if mode != _APPEND:
        raise TrackingError(
            f"output mode {mode.lower()} writes a row of an aggregate again and again, and"
            ' would ack its anchors as often; delayed acks need outputMode("append")'
        )


def _running(application: Application, query_id: str) -> Any:
    """Return the Java side of a query that `spout.start` started, or that runs where a stream was read.

    None: no session in which a stream was read has such a query.
    """
    if query_id in application.started:
        return java_query(application.started[query_id])
    sessions = {id(stream.session): stream.session for stream in application.all_streams()}
    for session in sessions.values():
        query = session.streams.get(query_id)
        if query is not None:
            return java_query(query)
    return None


class _Entry(NamedTuple):
    """An entry of the offset log: of a batch the offset behind it, its watermark, and its start in wall time.

    `offset` is the tracked stream's; None: there is no entry, or no tracked stream in it.
    """

    offset: Journal | None
    watermark_ms: int = 0
    began_ms: int = 0


def _entry(log: Any, batch: int) -> _Entry:
    """Read the entry of a batch; of one that the log does not have, `offset` is None."""
    entry = log.get(batch) if batch >= 0 else None
    if entry is None or entry.isEmpty():
        return _Entry(None)
    tracked_offset: Journal | None = None
    for reported in sequence(entry.get().offsets()):
        offset = batch_offset(reported.get().json()) if reported.isDefined() else None
        if offset is not None and offset.session:
            # a query has one tracked stream; offsets of untracked ones have no session
            tracked_offset = offset
            break
    metadata = batch_metadata(entry.get())
    if not metadata.isDefined():
        return _Entry(tracked_offset)
    watermark_ms = int(metadata.get().batchWatermarkMs())
    began_ms = int(metadata.get().batchTimestampMs())
    return _Entry(tracked_offset, watermark_ms, began_ms)


def batch_offset(reported: object) -> Journal | None:
    """Parse an offset of a source; None: there is none, or another kind of source wrote it."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    if isinstance(value, dict) and "session" in value and "ranges" in value:
        return journal_of(value)
    return None
