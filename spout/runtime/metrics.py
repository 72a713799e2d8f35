"""The status of a service as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

GAUGES: Final = frozenset(
    {"partitions", "assigned", "open_roots", "ranges", "never_expiring", "sessions", "pending", "waiting",
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
