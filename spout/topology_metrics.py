"""What a running topology says of itself, as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from spout.metrics import serve
from spout.tuple_metrics import root_metrics, tuple_metrics

if TYPE_CHECKING:
    from spout.submitted import TopologyStatus

_PREFIX: Final = "windhover_topology"


class TopologyCollector(Collector):
    """Asks for the status when it is scraped."""

    def __init__(self, status: Callable[[], TopologyStatus]) -> None:
        """Tell what `status` returns."""
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the counters of tuples by component and stream, then those of roots."""
        status = self._status()
        yield from tuple_metrics(_PREFIX, {(): status.counts})
        isolated = CounterMetricFamily(f"{_PREFIX}_isolated", "records that ended a worker", labels=["error"])
        for error, records in status.isolated.items():
            isolated.add_metric([error], records)
        yield isolated
        yield from root_metrics(_PREFIX, {} if status.spout is None else {(): status.spout})


def serve_topology(status: Callable[[], TopologyStatus], port: int | str) -> None:
    """Serve a topology's metrics over HTTP, on a thread of the library's own.

    Raises:
        UsageError: the port is in use, or no port; see `spout.metrics.address_of`.
    """
    serve(TopologyCollector(status), port)
