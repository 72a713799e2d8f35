"""Counts of tuples and of roots as metrics of Prometheus, for topologies and for streams; pure.

Counters of tuples carry the component and the stream; those of what a bolt received, the component that
emitted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from spout.planner.status import PlannerStatus
from spout.tuples.counts import Counts, What

Labels = tuple[str, ...]
"""Values of the labels that tell one topology or stream from another; none where there is one."""

_TIMED: Final = {What.EXECUTED: "execute", What.ACKED: "process", What.FAILED: "fail"}
"""What has a time, and the name of its metric."""

_RISING: Final = ("batches", "emitted", "replayed", "acked", "absent", "failed", "timed_out", "abandoned",
                  "late", "held")  # fmt: skip
_LEVELS: Final = ("pending", "oldest_pending_ms")


class WorkStatus(Protocol):
    """What the status of a topology and that of a stream have in common."""

    @property
    def spout(self) -> PlannerStatus | None:
        """What the planning process says of its roots; None before it runs."""

    @property
    def counts(self) -> Counts:
        """What the components did."""


def status_metrics(
    prefix: str, every: Mapping[Labels, WorkStatus], own: Metric, names: Sequence[str] = ()
) -> Iterator[Metric]:
    """Yield the counters of tuples by component and stream, then those of roots.

    Args:
        prefix: what the metrics' names begin with.
        every: the statuses, by the values of the labels.
        own: what only a topology has, or only a stream.
        names: the labels.
    """
    yield from _tuple_metrics(prefix, {of: each.counts for of, each in every.items()}, names)
    yield own
    spouts = {of: each.spout for of, each in every.items() if each.spout is not None}
    yield from root_metrics(prefix, spouts, names)


def _tuple_metrics(prefix: str, every: Mapping[Labels, Counts], names: Sequence[str]) -> Iterator[Metric]:
    """Yield a metric for each thing that is counted, and for those that take time another one."""
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
    """Yield what planning processes say of their roots, by the values of the labels."""
    told = {of: asdict(status) for of, status in every.items()}
    for kind, fields in ((GaugeMetricFamily, _LEVELS), (CounterMetricFamily, _RISING)):
        for field in fields:
            metric = kind(f"{prefix}_roots_{field}", f"{field} of the spout", labels=list(names))
            for of, status in told.items():
                metric.add_metric(list(of), status[field])
            if told:
                yield metric
    yield from _order_metrics(prefix, every, names)


def _order_metrics(
    prefix: str, every: Mapping[Labels, PlannerStatus], names: Sequence[str]
) -> Iterator[Metric]:
    """Yield how many records of each ordered partition are held now, and which partitions wait."""
    labels = [*names, "partition"]
    held = GaugeMetricFamily(f"{prefix}_held_now", "records held by partition", labels=labels)
    waits = GaugeMetricFamily(f"{prefix}_waits", "1: the partition waits", labels=labels)
    for of, status in every.items():
        for partition, count in status.held_now.items():
            held.add_metric([*of, partition], count)
            waits.add_metric([*of, partition], partition in status.waits)
    if every:
        yield from (held, waits)
