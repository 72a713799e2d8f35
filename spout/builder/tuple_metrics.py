"""Counts of tuples and of roots as metrics of Prometheus, for topologies, streams and `KafkaSpout`; pure.

Counters of tuples have the labels operator and stream; those of received tuples also have the component that
emitted them.

Source: docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from spout.planning_process.status import PlannerStatus
from spout.runtime.metrics import STANDS_TEXT, counter, gauge, label_values, place_labels
from spout.tuples.counts import TIME_BOUNDS_NS, Counts, Measure, What

Group = tuple[str]
"""The group that a topology or stream reads, as the values of labels."""

STALE_MS: Final = 30_000
"""A planning process writes its status four times a second; an older one says nothing about now."""

_TIMED: Final = {What.EXECUTED: "execute", What.ACKED: "process", What.FAILED: "fail"}
"""The kinds of work that are timed, with the names of their time metrics."""

ROOT_COUNTERS: Final = {
    "batches": "micro-batches planned",
    "emitted": "roots emitted, copies included",
    "replayed": "copies emitted",
    "acked": "roots acked",
    "absent": "positions without a record",
    "failed": "roots failed",
    "timed_out": "roots timed out",
    "abandoned": "roots abandoned by a takeover",
    "late": "verdicts for roots that were settled before",
    "held": "roots blocked behind a record that waits (ordering)",
    "lost_from_log": "records that left the log before they were read",
    "commit_failures": "commits of the group that failed",
}
"""What a planning process counts, with the help of each."""


def tuple_metrics(prefix: str, every: Mapping[Group, Counts]) -> Iterator[Metric]:
    """Yield a counter for each kind of work, one of time for the kinds that are timed, and the times."""
    for what in What:
        sent = what in (What.EMITTED, What.TRANSFERRED)
        labels = ["group", "operator", *([] if sent else ["source"]), "stream"]
        tuples = CounterMetricFamily(f"{prefix}_{what}", f"tuples {what}", labels=labels)
        timed = _TIMED.get(what, "")
        seconds = CounterMetricFamily(f"{prefix}_{timed}_seconds", f"time of tuples {what}", labels=labels)
        for of, counts in every.items():
            for (kind, operator, stream), measure in counts.items():
                if kind is not what:
                    continue
                origin = () if sent else (stream.component,)
                values = label_values([*of, operator, *origin, stream.stream])
                tuples.add_metric(values, measure.tuples)
                seconds.add_metric(values, measure.total_ns / 1_000_000_000)
        yield tuples
        if timed:
            yield seconds
    yield _times(prefix, every)


def _times(prefix: str, every: Mapping[Group, Counts]) -> Metric:
    """Return the histogram of how long executed tuples took."""
    text = (
        "time of a tuple within execute; a bolt's rows are timed together, so each tuple counts with the mean"
        " of the rows that were timed with it"
    )
    name = f"{prefix}_execute_per_tuple_seconds"
    found = HistogramMetricFamily(name, text, labels=["group", "operator", "source", "stream"])
    for of, counts in every.items():
        for (what, operator, stream), measure in counts.items():
            if what is What.EXECUTED:
                values = label_values([*of, operator, stream.component, stream.stream])
                found.add_metric(values, _classes(measure), measure.total_ns / 1_000_000_000)
    return found


def _classes(measure: Measure) -> list[tuple[str, float]]:
    """Return the cumulated classes of a histogram, by their upper bounds, s."""
    times = dict(measure.times)
    bounds = [*(str(each / 1_000_000_000) for each in TIME_BOUNDS_NS), "+Inf"]
    return list(zip(bounds, accumulate(times.get(at, 0) for at in range(len(bounds))), strict=True))


def is_alive(status: PlannerStatus, now_ms: int) -> bool:
    """Return whether a planning process has taken its group, and has written its status lately.

    One of the future was written before the clock was set back; a process that lives writes another at once.
    """
    has_taken = bool(status.session) or status.state == "running"
    return has_taken and abs(now_ms - status.wall) < STALE_MS


def root_metrics(prefix: str, every: Mapping[Group, PlannerStatus | None], now_ms: int) -> Iterator[Metric]:
    """Yield the planning processes' counts of roots, of those that took their group and are alive."""
    names = ["group"]
    alive = {of: each for of, each in every.items() if each is not None and is_alive(each, now_ms)}
    pending = {of: float(each.pending) for of, each in alive.items()}
    yield gauge(f"{prefix}_roots_pending", "roots without a verdict", pending, names)
    oldest = {of: each.oldest_pending_ms / 1_000 for of, each in alive.items()}
    text = "age of the oldest root without a verdict; 0: there is none"
    yield gauge(f"{prefix}_roots_oldest_pending_age_seconds", text, oldest, names)
    for field, text in ROOT_COUNTERS.items():
        counts = {of: float(getattr(each, field)) for of, each in alive.items()}
        yield counter(f"{prefix}_roots_{field}", text, counts, names)
    hits = {(*of, "max_spout_pending"): float(each.limit_hits) for of, each in alive.items()}
    text = "batches that were chosen while a limit held them back"
    yield counter(f"{prefix}_limit_hits", text, hits, [*names, "limit"])
    labels = [*names, "topic", "partition"]
    blocked, waits = dict[tuple[str, ...], float](), dict[tuple[str, ...], float]()
    for of, each in alive.items():
        for place, count in each.held_now.items():
            topic, _, partition = place.rpartition("/")
            blocked[*of, topic, partition] = count
            waits[*of, topic, partition] = place in each.waits
    yield gauge(f"{prefix}_held_now", "records that wait behind another one (ordering)", blocked, labels)
    yield gauge(f"{prefix}_waits", "1: the partition waits (ordering)", waits, labels)
    stands: dict[tuple[str, ...], float] = {}
    for of, each in alive.items():
        stands |= {(*of, *place_labels(place)): 1.0 for place in each.stands}
    yield gauge(f"{prefix}_stands", STANDS_TEXT, stands, labels)
