"""`spout.run_once`: end a running query when all that its inputs have now is done.

Spark's own trigger for that, `availableNow`, plans one batch alone before Spark 4.2. So this works
from the driver, on every version:

1. The driver requests the end over its link. The planning process reads where the inputs end now,
   and plans no record behind that; replays go on.
2. It reports when no root is pending or due: all is settled, and the offsets are committed.
3. Spark runs the batches without records that a watermark still wants, and commits them.
4. The driver stops the query.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from acker.errors import UsageError
from acker.waits import LongWait
from spout.builder.submitted import SubmittedTopology
from spout.link.planner_link import PlannerLink
from spout.spark.private import java_query, nodes, ticks, trigger_of
from spout.streaming.application import link_of
from spout.streaming.query_plan import stream_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOGGER = logging.getLogger("windhover.spout")

POLL_S: Final = 0.05
"""How often the driver looks whether the query has ended, or has nothing left to do."""

_AVAILABLE_NOW: Final = "AvailableNowTrigger"
_ONE_BATCH: Final = "OneTimeTrigger"


def run_once(query: StreamingQuery | SubmittedTopology, *, timeout_s: float | None = None) -> bool:
    """End a running query when all that its inputs have now is done; return whether it was.

    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence()))
    >>> files = words.writeStream.format("parquet").option("path", f"{folder}/words")
    >>> query = spout.start(files.option("checkpointLocation", f"{folder}/checkpoint"))
    >>> spout.run_once(query)
    True
    >>> sorted(row.word for row in spark.read.parquet(f"{folder}/words").collect())
    ['hawk', 'hawk', 'hovers', 'the', 'the', 'waits']

    It does what the trigger `availableNow` does, which needs Spark 4.2, on every version. Records
    that come after the call are not read. The query ends when each record before is acked or a dead
    letter, and Spark has committed its batches. Tuples that Spark's state holds stay there, and
    the next start from the checkpoint goes on with them.

    It returns when the query has ended; also where this call is interrupted, the query is
    stopped. Start it with `spout.start`, with `spout.sink` and `foreachBatch`, or by
    `TopologyBuilder.submit`; leave the trigger out, or take a short interval. A query with the
    trigger `availableNow` ends by itself: the call waits for that.

    Args:
        query: a query that reads one tracked stream, or a topology that was submitted.
        timeout_s: the query is stopped after this time at the latest; the next start from its
            checkpoint goes on. None: there is no limit.

    Returns:
        True: all is done, or the query had the trigger `availableNow` and has ended.
        False: the time was over, or somebody stopped the query, before all was done.

    Raises:
        UsageError: the query reads no tracked stream of this application, has the trigger `once`,
            or a keyed bolt that ticks; or its topology is paused, or was never active.
        pyspark.errors.StreamingQueryException: it failed. So it does where only an operator can go
            on, as with `availableNow`: an input is paused, or no acker runs.
    """
    if isinstance(query, SubmittedTopology):
        query = _query_of_topology(query)
    # the driver's link to the planning process of the query
    link = _link_of_query(query)
    with _stopped_at_deadline(query, timeout_s) as is_over:
        if trigger_of(query) == _AVAILABLE_NOW:  # it ends by itself
            try:
                query.awaitTermination()
            finally:
                query.stop()
            return not is_over.is_set()
        link.request_end()
        try:
            _wait_until_drained(query, link)
            # returns when Spark has found that no further batch is due, not even one without
            # records
            query.processAllAvailable()
            is_done = query.isActive and link.is_drained
        finally:
            link.drop_request()
            query.stop()
    query.awaitTermination()  # raises what has ended it
    return is_done


@contextmanager
def _stopped_at_deadline(
    query: StreamingQuery,
    timeout_s: float | None,
) -> Iterator[threading.Event]:
    """Stop the query if this context lasts longer than a time, and set the event then.

    `timeout_s` None: never.
    """
    is_over = threading.Event()

    def stop() -> None:
        is_over.set()
        query.stop()

    if timeout_s is None:
        yield is_over
        return
    # Spark's own waits cannot be given a deadline; each ends when the query does
    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


def _query_of_topology(topology: SubmittedTopology) -> StreamingQuery:
    """Return Spark's query of a topology; raise `UsageError` if it was not active yet."""
    if topology.query is None:
        raise UsageError("it was submitted with active=False, so there would be no end: resume it first")
    return topology.query


def _link_of_query(query: StreamingQuery) -> PlannerLink:
    """Return the driver's link to the planning process of the stream that a query reads.

    Raises `UsageError`: it reads no tracked stream of this application, or several; or it would
    not end, or before all is done.
    """
    plan_nodes = list(nodes(java_query(query).analyzedPlan()))
    stream_ids = {stream_id for stream_id in map(stream_of, plan_nodes) if stream_id}
    link = link_of(stream_ids.pop()) if len(stream_ids) == 1 else None
    if link is None:
        raise UsageError(
            "spout.run_once ends a query that reads one tracked stream of this application, and"
            " this one does not: end it by query.stop()"
        )
    if trigger_of(query) == _ONE_BATCH:
        raise UsageError(
            f"group {link.group}: trigger(once=True) runs a single batch, and spout.run_once as"
            " many as it takes: leave the trigger out"
        )
    if link.is_inactive:
        raise UsageError(
            f"group {link.group}: the topology is paused, so there would be no end: resume it first"
        )
    if any(map(ticks, plan_nodes)):
        raise UsageError(
            f"group {link.group}: the query has a KeyedBolt that ticks, so there is always a batch"
            " to come: end it by query.stop(), or let the bolt ack in execute, without ticks"
        )
    return link


def _wait_until_drained(query: StreamingQuery, link: PlannerLink) -> None:
    """Wait until nothing is left to do, or the query has ended; log it each minute."""
    wait = LongWait()
    while query.isActive and not link.is_drained:
        time.sleep(POLL_S)
        waited_ms = wait.record_wait("end", int(time.monotonic() * 1000))
        if waited_ms is not None:
            _LOGGER.warning(
                "waits_for_its_end group=%s waited_s=%d: records are read, or roots have no"
                " verdict yet, or the topology is paused; see the log of the query, and"
                " `windhover status`",
                link.group,
                waited_ms // 1000,
            )
