"""What Spark's offset log says of a micro-batch: its plan, and the watermark at which tuples came too late.

Spark writes the log before a batch runs. It is asked for batches in which nothing was read (a watermark moved
on, and Spark evicts state), and for those that hold tuples.

Source: docs/design/protocol.md, section 5.2; Spark's `OffsetSeqLog` and `OffsetSeqMetadata`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

from acker.errors import TrackingError
from spout.planning.journal import BEGINNING, Journal, batch_ranges, journal_of
from spout.planning.plan import BatchPlan
from spout.publishing.publish import Lane
from spout.publishing.settle import Moment
from spout.spark.private import java_query
from spout.streaming.application import Application, Stream

_APPEND = "Append"


class Logged(NamedTuple):
    """What is logged of a batch.

    Attributes:
        start: the offset before it.
        end: the offset behind it.
        watermark_before_ms: the watermark of the batch before.
        began_ms: when it began, wall time; the same when it runs again.
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
        """The session clock when the batch began, ms: what `Acks.touched_at` says.

        A batch that emits nothing has no Init of its own. Since the last one the clock went on with wall
        time, as roots are open, and never faster: what is reset counts from no earlier time. It stood still
        while the query was down, so until the next Init a timeout that is reset ends later by so long.
        """
        since_ms = self.end.at_ms if self.emitted_nothing else 0
        return self.end.now + (max(0, self.began_ms - since_ms) if since_ms else 0)


def logged(application: Application, lane: Lane) -> Logged | None:
    """Return what is logged of a batch of a running query; None when no tracked stream is read in it."""
    query = _running(application, lane.name)
    if query is None:
        return None
    log = query.offsetLog()
    end, _, began_ms = _entry(log, lane.seq)
    start, watermark_ms, _ = _entry(log, lane.seq - 1)
    return None if end is None else Logged(start or BEGINNING, end, watermark_ms, began_ms)


def moment_of(stream: Stream, found: Logged) -> Moment:
    """Return what settling needs of a batch's log."""
    ranges = batch_ranges(found.start, found.end)
    return Moment(replace(plan_of(stream, found.end, ranges), now=found.now), found.watermark_before_ms)


def plan_of(stream: Stream, end: Journal, ranges: Any = None) -> BatchPlan:
    """Return the plan of a batch as its journal has it; `ranges` None: those of the journal."""
    return BatchPlan(
        group=stream.group, session=end.session, epoch=end.epoch, partitions=stream.partitions,
        now=end.now, timeout_ms=0, tracked=True, ranges=end.ranges if ranges is None else ranges,
    )  # fmt: skip


def refuse_repeats(application: Application, lane: Lane) -> None:
    """See that a query writes each row of an aggregate once, so that its anchors are acked once.

    Raises:
        TrackingError: its output mode is update or complete.
    """
    query = _running(application, lane.name)
    mode = _APPEND if query is None else str(query.outputMode())
    if mode != _APPEND:
        raise TrackingError(
            f"output mode {mode.lower()} writes a row of an aggregate again and again, and would ack its"
            ' anchors as often; delayed acks need outputMode("append")'
        )


def _running(application: Application, query: str) -> Any:
    """Find a query: one that `spout.start` started, or that runs in a session whose streams are read.

    None: it was stopped, or reads no tracked stream.
    """
    if query in application.started:
        return java_query(application.started[query])
    for session in {id(each.session): each.session for each in application.streams.values()}.values():
        found = session.streams.get(query)
        if found is not None:
            return java_query(found)
    return None


def _entry(log: Any, batch: int) -> tuple[Journal | None, int, int]:
    """Read one entry: the offset of the tracked stream, if there is one, the batch's watermark and time."""
    entry = log.get(batch) if batch >= 0 else None
    if entry is None or entry.isEmpty():
        return None, 0, 0
    offsets, metadata = entry.get().offsets(), entry.get().metadataOpt()
    options = [offsets.apply(place) for place in range(offsets.size())]
    found = [offset_of(one.get().json()) for one in options if one.isDefined()]
    tracked = next((each for each in found if each is not None and each.session), None)
    if not metadata.isDefined():
        return tracked, 0, 0
    return tracked, int(metadata.get().batchWatermarkMs()), int(metadata.get().batchTimestampMs())


def offset_of(reported: object) -> Journal | None:
    """Read an offset of a source; None when there is none, or it is of another kind of source."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    return journal_of(value) if isinstance(value, dict) and "session" in value and "ranges" in value else None
