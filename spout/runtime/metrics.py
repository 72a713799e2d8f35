"""The status of a service as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from acker.errors import UsageError

EVERY_ADDRESS: Final = "0.0.0.0"
PORT_MAX: Final = 65_535
GAUGES: Final = frozenset(
    {"partitions", "open_roots", "ranges", "never_expiring", "sessions", "pending", "waiting",
     "waiting_bytes", "next_due_ms", "aside", "aside_by_input", "paused"}
)  # fmt: skip
"""Fields that rise and fall; all others only rise."""


def flatten(status: Any) -> dict[str, Any]:
    """Return the fields of a status, with those of nested values, as one flat mapping."""
    flat: dict[str, Any] = {}
    for field in fields(status):
        value = getattr(status, field.name)
        flat.update(flatten(value) if is_dataclass(value) else {field.name: value})
    return flat


class Scraped(Collector):
    """Computes metrics at each scrape."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics()


class StatusCollector(Collector):
    """Serves the latest status; the loop updates it, so that no scrape touches a service."""

    def __init__(self, part: str, age_s: Callable[[], float] | None = None) -> None:
        """Begin without a status; `part`, acker or replay, is a part of every metric's name.

        `age_s` returns the seconds since the last step ended, on the serving thread: it grows in a step.
        """
        self._part = part
        self._age_s = age_s
        self._flat: Mapping[str, Any] = {}

    def update(self, status: Any) -> None:
        """Keep a status, a dataclass, for the next scrapes."""
        self._flat = flatten(status)

    def collect(self) -> Iterator[Metric]:
        """Yield a metric for each number of the status; for a collection, the number of its members."""
        if self._age_s is not None:
            name = f"windhover_{self._part}_last_step_age_seconds"
            yield GaugeMetricFamily(name, "seconds since the last step ended", value=self._age_s())
        for name, value in self._flat.items():
            kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            full = f"windhover_{self._part}_{name}"
            text = f"{name} of the {self._part}'s status"
            if isinstance(value, Mapping):
                metric = kind(full, text, labels=["input"])
                for label, number in value.items():
                    metric.add_metric([str(label)], number)
                yield metric
            elif isinstance(value, tuple | list | frozenset):
                yield kind(full, text, value=len(value))
            elif isinstance(value, int | float):
                yield kind(full, text, value=value)


def address_of(address: int | str) -> tuple[str, int]:
    """Parse the value of ``--metrics-port`` to host and port; a port alone means all addresses.

    >>> address_of("[::1]:9100"), address_of(9100)
    (('::1', 9100), ('0.0.0.0', 9100))

    Raises `UsageError`: it is no port, and no address with a port.
    """
    host, colon, port = str(address).rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host != bare
    if (colon and not bare) or (":" in bare) != is_bracketed or not port.isdecimal():
        port = ""
    if not port or not 1 <= int(port) <= PORT_MAX:
        raise UsageError(
            f"--metrics-port {address}: it is a port from 1 to {PORT_MAX}, or an address with one: 9100,"
            " 127.0.0.1:9100, [::1]:9100"
        )
    return bare or EVERY_ADDRESS, int(port)


def serve(collector: Collector, address: int | str) -> None:
    """Serve a collector's metrics over HTTP on a thread; `UsageError`: `address_of`, or it is in use."""
    host, port = address_of(address)
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UsageError(
            f"--metrics-port {address}: {error.strerror}; give another port, or an address of this machine"
        ) from error
