"""What the tracked streams of an application say of themselves, as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from spout.metrics import serve
from spout.status import PlannerStatus
from spout.tuple_metrics import Labels, root_metrics, tuple_metrics

if TYPE_CHECKING:
    from spout.streams import StreamStatus

_PREFIX: Final = "windhover_stream"


class StreamCollector(Collector):
    """Asks for the statuses, one for each group, when it is scraped."""

    def __init__(self, statuses: Callable[[], Sequence[StreamStatus]]) -> None:
        """Tell what `statuses` returns."""
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        """Yield the counters of tuples by group, component and stream, then those of roots."""
        statuses = self._statuses()
        yield from tuple_metrics(_PREFIX, {(each.group,): each.counts for each in statuses}, ["group"])
        late = CounterMetricFamily(f"{_PREFIX}_late", "tuples that a watermark dropped", labels=["group"])
        for each in statuses:
            late.add_metric([each.group], each.late)
        yield late
        planners: dict[Labels, PlannerStatus] = {
            (each.group,): each.spout for each in statuses if each.spout is not None
        }
        yield from root_metrics(_PREFIX, planners, ["group"])


def serve_streams(statuses: Callable[[], Sequence[StreamStatus]], port: int | str) -> None:
    """Serve the metrics of streams over HTTP, on a thread of the library's own.

    Raises:
        UsageError: the port is in use, or no port; see `spout.metrics.address_of`.
    """
    serve(StreamCollector(statuses), port)
