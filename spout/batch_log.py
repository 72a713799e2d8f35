"""What Spark's offset log says of a micro-batch: its plan, and the watermark at which tuples came too late.

Spark writes the log before a batch runs. It is asked for batches in which nothing was read (a watermark moved
on, and Spark evicts state), and for those that hold tuples.

Source: DESIGN.md, section 5.2; Spark's `OffsetSeqLog` and `OffsetSeqMetadata`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from acker.errors import TrackingError
from spout.application import Application, Stream
from spout.journal import BEGINNING, Journal, batch_ranges, journal_of
from spout.plan import BatchPlan
from spout.publish import Lane
from spout.settle import Moment

_APPEND = "Append"


class Logged(NamedTuple):
    """The offset behind a batch and the one before it, and the watermark of the batch before, ms."""

    start: Journal
    end: Journal
    watermark_before_ms: int

    @property
    def emitted_nothing(self) -> bool:
        """Whether the batch has no positions."""
        return not batch_ranges(self.start, self.end)


def logged(application: Application, lane: Lane) -> Logged | None:
    """Return what is logged of a batch of a running query; None when no tracked stream is read in it."""
    query = _running(application, lane.name)
    if query is None:
        return None
    log = query.offsetLog()
    end, _ = _entry(log, lane.seq)
    start, watermark_ms = _entry(log, lane.seq - 1)
    return None if end is None else Logged(start or BEGINNING, end, watermark_ms)


def moment_of(stream: Stream, found: Logged) -> Moment:
    """Return what settling needs of a batch's log."""
    ranges = batch_ranges(found.start, found.end)
    return Moment(plan_of(stream, found.end, ranges), found.watermark_before_ms)


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
        return application.started[query]._jsq.streamingQuery()
    for session in {id(each.session): each.session for each in application.streams.values()}.values():
        found = session.streams.get(query)
        if found is not None:
            return found._jsq.streamingQuery()
    return None


def _entry(log: Any, batch: int) -> tuple[Journal | None, int]:
    """Read one entry: the offset of the tracked stream, if there is one, and the batch's watermark."""
    entry = log.get(batch) if batch >= 0 else None
    if entry is None or entry.isEmpty():
        return None, 0
    offsets, metadata = entry.get().offsets(), entry.get().metadataOpt()
    options = [offsets.apply(place) for place in range(offsets.size())]
    found = [offset_of(one.get().json()) for one in options if one.isDefined()]
    watermark_ms = int(metadata.get().batchWatermarkMs()) if metadata.isDefined() else 0
    return next((each for each in found if each is not None and each.session), None), watermark_ms


def offset_of(reported: object) -> Journal | None:
    """Read an offset of a source; None when there is none, or it is of another kind of source."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    return journal_of(value) if isinstance(value, dict) and "session" in value and "ranges" in value else None
