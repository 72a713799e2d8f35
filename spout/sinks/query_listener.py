"""Publishes the batches of queries that write to Spark's own sinks, when Spark reports them committed.

Spark would only log an error of the listener. So it is written to the stream's file, and the planning
process, which waits for the mark of this batch before it plans the next one, fails the query with it
(`spout.planner.mailbox`).

A sink that has written a batch before (files, memory or Delta, after a crash before Spark's commit log) does
not evaluate it again. The reports of the run that wrote the rows are lost, so its roots are failed, as by
`spout.skipped`.

Source: docs/design/protocol.md, section 5.2 ("For sinks without foreachBatch").
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from acker.errors import TrackingError
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.publishing import publish
from spout.publishing.publish import BatchLane
from spout.sinks.batch_end import BatchEnd
from spout.sinks.dropped_rows import dropped_rows
from spout.spark.private import java_query, session_uuid
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import batch_offset
from spout.streaming.options import plan_between

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

_LOGGER = logging.getLogger("windhover.spout")


@dataclass(slots=True)
class Followed:
    """A run of a query, the stream that it reads, and whether it has ended a batch with records.

    `holds` are those of `watermark_holds`.
    """

    stream: Stream
    holds: tuple[str, ...] = ()
    has_ended_a_batch: bool = False


class QueryListener(StreamingQueryListener):
    """Follows the queries that `spout.start` started in one Spark session."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._followed: dict[str, Followed] = {}
        self._starting = threading.Lock()

    @staticmethod
    def of(session: SparkSession) -> QueryListener:
        """Return the listener of a session; the first call creates it, since Spark keeps them by session."""
        application = Application.of(session)
        key = session_uuid(session)
        found = application.listeners.get(key)
        if not isinstance(found, QueryListener):
            found = application.listeners[key] = QueryListener(application)
            session.streams.addListener(found)
        return found

    def start(
        self, stream: Stream, begin: Callable[[], StreamingQuery], holds: tuple[str, ...] = ()
    ) -> StreamingQuery:
        """Start a query and follow it; its first progress event waits for the lock until it is registered.

        `holds` are those of `watermark_holds`.
        """
        mailbox = self._application.mailbox(stream)
        with self._starting:
            mailbox.put_listener()
            try:
                query = begin()
            except BaseException:
                mailbox.drop_listener()
                raise
            self._followed[query.runId] = Followed(stream, holds)
            self._application.started[query.id] = query
            stream.queries.add(query.id)
        return query

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Spark calls this within `start`, which has the lock."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no batch has ended."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Publish a batch that Spark has committed."""
        with self._starting:
            followed = self._followed.get(str(event.progress.runId))
        if followed is None:
            return
        progress = json.loads(event.progress.json)
        try:
            self._ended(followed, progress)
        except Exception as error:  # noqa: BLE001 - a callback's top: Spark would swallow it
            self._fail(followed.stream, progress["batchId"], error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget a run, and the reports of a batch that failed; its last batch was reported before."""
        with self._starting:
            ended = self._followed.pop(str(event.runId), None)
            last = self._application.started.get(str(event.id))
            if last is not None and last.runId == str(event.runId):
                del self._application.started[str(event.id)]
                self._application.ledger.forget_all(str(event.id))
            if ended is not None and ended.stream.id not in {f.stream.id for f in self._followed.values()}:
                self._application.mailbox(ended.stream).drop_listener()

    def _ended(self, followed: Followed, progress: dict[str, Any]) -> None:
        if progress["runId"] in self._application.sunk:
            return  # a spout.sink within the query has published it
        lane = BatchLane(progress["id"], progress["batchId"])
        reports = self._application.reports(*lane)
        journal = batch_journal(progress)
        end = BatchEnd(self._application, lane)
        stream = end.stream(reports)
        if stream is not None:
            # Spark plans no next batch before this one is published, so its last one is this
            started = self._application.started[lane.name]
            dropped = dropped_rows(java_query(started), followed.holds)
            end.publish(stream, end.settle(stream, reports), dropped)
        elif journal is not None and followed.has_ended_a_batch:
            raise TrackingError(
                "none of its records was read: the query drops its source unread (limit(0), a condition that"
                " is never true); take that out"
            )
        elif journal is not None:  # the sink had written it before
            plan = plan_between(BEGINNING, journal, followed.stream.group, followed.stream.partitions)
            end.publish(followed.stream, publish.skipped_outcome(plan))
        if journal is not None:
            self._application.ledger.forget(*lane)
            followed.has_ended_a_batch = True

    def _fail(self, stream: Stream, batch: int, error: Exception) -> None:
        message = (
            f"batch {batch} of group {stream.group} was written, and could not be published"
            f" ({type(error).__name__}: {error}); its records come again"
        )
        _LOGGER.error("%s", message)
        self._application.mailbox(stream).put_listener(message)


def batch_journal(progress: dict[str, Any]) -> Journal | None:
    """Return the offset behind a batch from its progress event; None when it emitted nothing tracked."""
    for source in progress["sources"]:
        start, end = (batch_offset(source[name]) for name in ("startOffset", "endOffset"))
        if end is not None and end.session and batch_ranges(start or BEGINNING, end):
            return end
    return None
