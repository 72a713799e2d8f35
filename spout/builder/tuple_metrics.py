"""Counts of tuples and of roots as metrics of Prometheus, for topologies and for streams; pure.

Counters of tuples have the labels component and stream; those of received tuples also have the component that
emitted them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from spout.planner.mailbox import PlannerStatus
from spout.tuples.counts import Counts, What

Labels = tuple[str, ...]
"""Values of the labels that identify a topology or stream; empty if there is only one."""

_TIMED: Final = {What.EXECUTED: "execute", What.ACKED: "process", What.FAILED: "fail"}
"""The kinds of work that are timed, with the names of their time metrics."""

_RISING: Final = ("batches", "emitted", "replayed", "acked", "absent", "failed", "timed_out", "abandoned",
                  "late", "held")  # fmt: skip
_LEVELS: Final = ("pending", "oldest_pending_ms")


class WorkStatus(Protocol):
    """What the status of a topology and the status of a stream have in common."""

    @property
    def spout(self) -> PlannerStatus | None:
        """The planning process's counts of roots; None before it runs."""

    @property
    def counts(self) -> Counts:
        """Counts of the components' work."""


def status_metrics(
    prefix: str, every: Mapping[Labels, WorkStatus], own: Metric, names: Sequence[str] = ()
) -> Iterator[Metric]:
    """Yield the counters of tuples by component and stream, then those of roots.

    Args:
        prefix: of all names of metrics.
        every: the statuses, by the values of the labels.
        own: a metric that only topologies have, or only streams.
        names: the names of the labels.
    """
    yield from _tuple_metrics(prefix, {of: each.counts for of, each in every.items()}, names)
    yield own
    spouts = {of: each.spout for of, each in every.items() if each.spout is not None}
    yield from root_metrics(prefix, spouts, names)


def _tuple_metrics(prefix: str, every: Mapping[Labels, Counts], names: Sequence[str]) -> Iterator[Metric]:
    """Yield a counter for each kind of work, and a counter of time for the kinds that are timed."""
    for what in What:
        sent = what in (What.EMITTED, What.TRANSFERRED)
        labels = [*names, "component", "stream"] if sent else [*names, "component", "source", "stream"]
        tuples = CounterMetricFamily(f"{prefix}_{what}", f"tuples {what}", labels=labels)
        timed = _TIMED.get(what, "")
        seconds = CounterMetricFamily(f"{prefix}_{timed}_seconds", f"time of tuples {what}", labels=labels)
        for of, counts in every.items():
            for (kind, component, stream), measure in counts.items():
                if kind is not what:
                    continue
                origin = () if sent else (stream.component,)
                values = [*of, component, *origin, stream.stream]
                tuples.add_metric(values, measure.tuples)
                seconds.add_metric(values, measure.total_ns / 1_000_000_000)
        yield tuples
        if timed:
            yield seconds


def root_metrics(
    prefix: str, every: Mapping[Labels, PlannerStatus], names: Sequence[str] = ()
) -> Iterator[Metric]:
    """Yield the planning processes' counts of roots, by the values of the labels."""
    statuses = {of: asdict(status) for of, status in every.items()}
    for kind, fields in ((GaugeMetricFamily, _LEVELS), (CounterMetricFamily, _RISING)):
        for field in fields:
            metric = kind(f"{prefix}_roots_{field}", f"{field} of the spout", labels=list(names))
            for of, status in statuses.items():
                metric.add_metric(list(of), status[field])
            if statuses:
                yield metric
    yield from _order_metrics(prefix, every, names)


def _order_metrics(
    prefix: str, every: Mapping[Labels, PlannerStatus], names: Sequence[str]
) -> Iterator[Metric]:
    """Yield how many records of each ordered partition are blocked now, and which partitions wait."""
    labels = [*names, "partition"]
    held = GaugeMetricFamily(f"{prefix}_held_now", "records held by partition", labels=labels)
    waits = GaugeMetricFamily(f"{prefix}_waits", "1: the partition waits", labels=labels)
    for of, status in every.items():
        for partition, count in status.held_now.items():
            held.add_metric([*of, partition], count)
            waits.add_metric([*of, partition], partition in status.waits)
    if every:
        yield from (held, waits)
