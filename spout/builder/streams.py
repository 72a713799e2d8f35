"""The status of a tracked stream: its bolts' work, its roots, and the tuples that came too late.

Source: docs/design/protocol.md, section 5.2; Storm's metrics of a bolt.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import Metric
from pyspark.sql import DataFrame, SparkSession

from acker.errors import UsageError
from spout.builder.tuple_metrics import root_metrics, tuple_metrics
from spout.planning_process.status import PlannerStatus, read_status
from spout.runtime.endpoints import serve
from spout.runtime.metrics import Scraped, counter
from spout.streaming.application import Application, Stream
from spout.streaming.frames import streams_behind
from spout.tuples.counts import Counts, What, count_of, sum_of_counts
from spout.tuples.failures import Cause


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A tracked stream as it is now; `spout.stream_status` returns it.

    >>> status = spout.StreamStatus("word-count", spout=None, counts={})
    >>> status.count("acked", "split"), status.late
    (0, 0)

    Attributes:
        group: the group that it reads.
        spout: the planning process's counts of pending, acked and failed roots; None before it
            runs.
        counts: counts and times of the bolts' work in published batches, by kind, component and
            stream; the kinds are ``emitted``, ``transferred`` (directly to a next bolt),
            ``executed``, ``acked``, ``failed``. The component that emits a topic's records is
            ``spout``; rows that came through Spark's own operators have the stream ``spark``.
        errors: the last errors that bolts reported by ``report_error``, the newest last.
        late: how many of the tuples that `spout.hold` keeps in Spark's state a watermark has
            dropped.
        dropped: how many other rows a watermark has dropped, as Spark counts them: an aggregate
            counts what it has summed up by then as one. They are in no window, and their
            records count as done.
    """

    group: str
    spout: PlannerStatus | None
    counts: Counts
    errors: tuple[Cause, ...] = ()
    late: int = 0
    dropped: int = 0

    def count(self, what: What | str, component: str, source: str | None = None) -> int:
        """Return how many tuples of a component are counted.

        Args:
            what: ``emitted``, ``transferred``, ``executed``, ``acked`` or ``failed``.
            component: name of a bolt, or ``spout``.
            source: count only tuples that this component emitted; None: all.
        """
        return count_of(self.counts, what, component, source)


_PREFIX: Final = "windhover_stream"


def stream_metrics(statuses: Iterable[StreamStatus], now_ms: int) -> Iterator[Metric]:
    """Yield the metrics of streams, one status for each group; `now_ms` is wall time."""
    # by the values of the labels, here of the label "group" alone
    status_by_group = {(status.group,): status for status in statuses}
    counts_by_group = {group: status.counts for group, status in status_by_group.items()}
    yield from tuple_metrics(_PREFIX, counts_by_group)
    late_tuples = {group: status.late for group, status in status_by_group.items()}
    text = "tuples that hold keeps and a watermark dropped"
    yield counter(f"{_PREFIX}_late", text, late_tuples, ["group"])
    dropped_rows = {group: status.dropped for group, status in status_by_group.items()}
    text = "other rows that a watermark dropped, as Spark counts them"
    yield counter(f"{_PREFIX}_dropped_rows", text, dropped_rows, ["group"])
    planners_by_group = {group: status.spout for group, status in status_by_group.items()}
    yield from root_metrics(_PREFIX, planners_by_group, now_ms)


def stream_status(rows: DataFrame) -> StreamStatus:
    """Return the status of a tracked stream, with its counts so far in this application.

    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence(), name="split"))
    >>> files = words.writeStream.format("parquet").option("path", f"{folder}/words")
    >>> files = files.option("checkpointLocation", f"{folder}/checkpoint")
    >>> spout.run_once(spout.start(files))
    True
    >>> status = spout.stream_status(words)
    >>> status.count("acked", "split"), status.count("emitted", "split"), status.late
    (2, 6, 0)

    Args:
        rows: the DataFrame that `read_stream` returned, or any that was derived from it.

    Raises:
        UsageError: the rows come from no tracked `read_stream`, or from several.
    """
    streams = streams_behind(rows)
    if len(streams) != 1:
        raise UsageError(
            f"these rows come from {len(streams)} tracked streams; ask for the status of what one"
            " read_stream returned"
        )
    stream = streams[0]
    return StreamStatus(
        group=stream.group,
        spout=_planner_status(stream),
        counts=stream.work.counts,
        errors=stream.work.errors,
        late=stream.late,
        dropped=stream.dropped,
    )


def serve_metrics(spark: SparkSession, port: int | str, allow_hosts: Sequence[str] = ()) -> None:
    """Serve the metrics of all tracked streams of an application to Prometheus.

    They are served until the driver ends.

    >>> from urllib.request import urlopen
    >>> spout.serve_metrics(spark, port)
    >>> with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
    ...     "windhover_stream_executed" in answer.read().decode()
    True

    Counters of tuples have the labels group, operator and stream; those of received tuples also
    have the component that emitted them. If a group is read again, its counters go on.

    Args:
        spark: the session.
        port: 1 to 65,535; or an address with a port, such as ``"127.0.0.1:9100"``, to limit who
            can reach it.
        allow_hosts: names of this machine by which others ask for the metrics; its own name,
            ``localhost`` and addresses in numbers need none.

    Raises:
        UsageError: the port is in use, the address is not of this machine, a host to allow is
            none, or the session is one of Spark Connect.
    """
    application = Application.of(spark)

    def collect() -> Iterator[Metric]:
        now_ms = time.time_ns() // 1_000_000
        return stream_metrics(status_of_each_group(application), now_ms)

    serve(Scraped(collect), port, allow_hosts=allow_hosts)


def status_of_each_group(application: Application) -> list[StreamStatus]:
    """Return a status for each group of the tracked streams, for metrics.

    Counts are those of all streams of the group; the status of the planning process is that of the
    newest stream.
    """
    streams_by_group: dict[str, list[Stream]] = {}  # in the order in which they were made
    for stream in application.all_streams():
        if stream.tracked:
            streams_by_group.setdefault(stream.group, []).append(stream)
    statuses_of_groups: list[StreamStatus] = []
    for group, streams in streams_by_group.items():
        status = StreamStatus(
            group=group,
            spout=_planner_status(streams[-1]),
            counts=sum_of_counts(stream.work.counts for stream in streams),
            errors=(),  # no metric shows them
            late=sum(stream.late for stream in streams),
            dropped=sum(stream.dropped for stream in streams),
        )
        statuses_of_groups.append(status)
    return statuses_of_groups


def _planner_status(stream: Stream) -> PlannerStatus | None:
    """Return what a stream's planning process wrote last; None: it has not run yet."""
    return None if stream.status_path is None else read_status(stream.status_path)
