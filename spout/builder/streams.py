"""What a tracked stream says of itself: its bolts' work, its roots, and what came too late.

Source: docs/design/protocol.md, section 5.2; Storm's metrics of a bolt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from pyspark.sql import DataFrame, SparkSession

from acker.errors import UsageError
from spout.builder.tuple_metrics import Labels, status_metrics
from spout.planner.status import PlannerStatus, read_status
from spout.runtime.metrics import Scraped, serve
from spout.streaming.application import Application, Stream
from spout.streaming.query_plan import streams_read
from spout.tuples.collector import Cause
from spout.tuples.counts import Counts, What, added, count_of


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A tracked stream as it is now; `spout.stream_status` returns it.

    >>> status = spout.StreamStatus("word-count", spout=None, counts={})
    >>> status.count("acked", "split"), status.late
    (0, 0)

    Attributes:
        group: the group that is read.
        spout: what the planning process says of pending, acked and failed roots; None before it runs.
        counts: what the bolts did in published batches, with the time that it took, by what, component and
            stream: ``emitted``, ``transferred`` (to a next bolt, directly), ``executed``, ``acked``,
            ``failed``. The component that emits a topic's records is ``spout``; rows that came through
            Spark's own operators are of the stream ``spark``.
        errors: the last errors that bolts reported by ``report_error``, the newest last.
        late: tuples that a watermark dropped, of those that `spout.hold` holds.
    """

    group: str
    spout: PlannerStatus | None
    counts: Counts
    errors: tuple[Cause, ...] = ()
    late: int = 0

    def count(self, what: What | str, component: str, source: str | None = None) -> int:
        """Add up what a component did: ``emitted``, ``transferred``, ``executed``, ``acked`` or ``failed``.

        Args:
            what: of these five.
            component: name of a bolt, or ``spout``.
            source: only what concerns the tuples of this component; None: all.
        """
        return count_of(self.counts, what, component, source)


_PREFIX: Final = "windhover_stream"


def stream_metrics(statuses: Iterable[StreamStatus]) -> Iterator[Metric]:
    """Yield the metrics of streams, one status for each group."""
    every: dict[Labels, StreamStatus] = {(each.group,): each for each in statuses}
    late = CounterMetricFamily(f"{_PREFIX}_late", "tuples that a watermark dropped", labels=["group"])
    for of, each in every.items():
        late.add_metric(of, each.late)
    yield from status_metrics(_PREFIX, every, late, ["group"])


def stream_status(rows: DataFrame) -> StreamStatus:
    """Return what a tracked stream has done so far, in this application.

    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> words = lines.transform(spout.bolt(SplitSentence(), name="split"))
    >>> files = words.writeStream.format("parquet").option("path", f"{folder}/words")
    >>> files = files.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    >>> spout.start(files).awaitTermination()
    >>> status = spout.stream_status(words)
    >>> status.count("acked", "split"), status.count("emitted", "split"), status.late
    (2, 6, 0)

    Args:
        rows: what `read_stream` returned, or any DataFrame that was made of it.

    Raises:
        UsageError: the rows come from no tracked `read_stream`, or from several.
    """
    known = Application.of(rows.sparkSession).streams
    found = [known[each] for each in streams_read(rows) if each in known]
    if len(found) != 1:
        raise UsageError(
            f"these rows come from {len(found)} tracked streams; ask for the status of what one read_stream"
            " returned"
        )
    return _status_of(found[0])


def serve_metrics(spark: SparkSession, port: int | str) -> None:
    """Serve the metrics of all tracked streams of an application to Prometheus, until the driver ends.

    >>> from urllib.request import urlopen
    >>> spout.serve_metrics(spark, port)
    >>> with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
    ...     "windhover_stream_executed" in answer.read().decode()
    True

    Counters of tuples have the group, the component and the stream; those of what a bolt received, the
    component that emitted it. A group that is read again goes on counting.

    Args:
        spark: the session.
        port: 1 to 65,535; or an address with one, ``"127.0.0.1:9100"``, where not all shall reach it.

    Raises:
        UsageError: the port is in use, or it is no address of this machine; or the session is one of Spark
            Connect.
    """
    application = Application.of(spark)
    serve(Scraped(lambda: stream_metrics(statuses(application))), port)


def statuses(application: Application) -> list[StreamStatus]:
    """Return one status for each group: what all streams of it did, and the latest one's planning process."""
    by_group: dict[str, list[Stream]] = {}
    for stream in list(application.streams.values()):
        if stream.tracked:
            by_group.setdefault(stream.group, []).append(stream)
    return [
        StreamStatus(
            group,
            _planner(streams[-1]),
            added(stream.work.counts for stream in streams),
            (),
            sum(stream.late for stream in streams),
        )
        for group, streams in by_group.items()
    ]


def _status_of(stream: Stream) -> StreamStatus:
    return StreamStatus(stream.group, _planner(stream), stream.work.counts, stream.work.errors, stream.late)


def _planner(stream: Stream) -> PlannerStatus | None:
    return None if stream.status_path is None else read_status(stream.status_path)
