"""What was planned for a micro-batch, from Spark's offset log: offsets, watermark and start.

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
    """What the offset log has about a batch.

    `start` and `end` are the offsets before and behind it. `began_ms` is when Spark began it,
    in wall time.
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
        # from the plan of the offset to the batch; negative where the wall clock was set back
        elapsed_ms = max(0, self.began_ms - self.end.at_ms)
        return self.end.now + elapsed_ms


def logged(application: Application, batch: BatchLane) -> Logged | None:
    """Return what the offset log has about a batch of a running query.

    `batch` has the query's id as `name`, and the micro-batch's id as `seq`. None: there is no
    such query, the log has no such batch, or the query reads no tracked stream.
    """
    query = _java_query_of(application, batch.name)
    if query is None:
        return None
    offset_log = query.offsetLog()
    entry = _read_entry(offset_log, batch.seq)
    if entry.offset is None:
        return None
    entry_before = _read_entry(offset_log, batch.seq - 1)
    start = entry_before.offset or BEGINNING
    return Logged(start, entry.offset, entry_before.watermark_ms, entry.began_ms)


def moment_of(stream: Stream, batch: Logged) -> Moment:
    """Return what `settle` needs from a batch's log entry."""
    plan = plan_between(batch.start, batch.end, stream.group, stream.partitions)
    return Moment(replace(plan, now=batch.now), batch.watermark_before_ms)


def refuse_repeats(application: Application, batch: BatchLane) -> None:
    """Raise `TrackingError` if the query of a batch has output mode update or complete.

    In these a row of an aggregate is written again and again, and each time its anchors would be
    acked, while the guarantee allows that once.
    """
    query = _java_query_of(application, batch.name)
    mode = _APPEND if query is None else str(query.outputMode())
    if mode != _APPEND:
        raise TrackingError(
            f"output mode {mode.lower()} writes a row of an aggregate again and again, and"
            ' would ack its anchors as often; delayed acks need outputMode("append")'
        )


def _java_query_of(application: Application, query_id: str) -> Any:
    """Return the Java object of a query that runs in this application.

    None: `spout.start` has not started it, and no session that read a stream has it.
    """
    if query_id in application.started:
        return java_query(application.started[query_id])
    # several streams may be of one session
    sessions = {id(stream.session): stream.session for stream in application.all_streams()}
    for session in sessions.values():
        query = session.streams.get(query_id)
        if query is not None:
            return java_query(query)
    return None


class _Entry(NamedTuple):
    """What an entry of the offset log has about a batch.

    `offset` is behind the batch, of the tracked stream; None: the log has no such entry, or the
    entry no tracked stream. `began_ms` is wall time.
    """

    offset: Journal | None
    watermark_ms: int = 0
    began_ms: int = 0


def _read_entry(offset_log: Any, batch_id: int) -> _Entry:
    """Read the entry of a micro-batch; where the log has none, its `offset` is None."""
    # the batch before the first one has the id -1
    java_entry = offset_log.get(batch_id) if batch_id >= 0 else None
    if java_entry is None or java_entry.isEmpty():
        return _Entry(offset=None)
    tracked_offset: Journal | None = None  # None: the query reads no tracked stream
    for java_offset in sequence(java_entry.get().offsets()):
        offset = batch_offset(java_offset.get().json()) if java_offset.isDefined() else None
        if offset is not None and offset.session:
            # a query has one tracked stream; offsets of untracked ones have no session
            tracked_offset = offset
            break
    metadata = batch_metadata(java_entry.get())
    if not metadata.isDefined():  # they are optional in Spark's log
        return _Entry(tracked_offset)
    watermark_ms = int(metadata.get().batchWatermarkMs())
    began_ms = int(metadata.get().batchTimestampMs())
    return _Entry(tracked_offset, watermark_ms, began_ms)


def batch_offset(reported: object) -> Journal | None:
    """Return an offset of this source, from its JSON, or from JSON that was read already.

    None: `reported` is no offset, or one of another kind of source.
    """
    value = json.loads(reported) if isinstance(reported, str) else reported
    if isinstance(value, dict) and "session" in value and "ranges" in value:
        return journal_of(value)
    return None
