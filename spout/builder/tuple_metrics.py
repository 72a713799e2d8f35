"""Counts of tuples and of roots as metrics of Prometheus; pure.

They are those of a topology, of a stream, or of a `KafkaSpout`.

Counters of tuples have the labels operator and stream; those of received tuples also have the
component that emitted them.

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

_TIME_NAMES: Final = {What.EXECUTED: "execute", What.ACKED: "process", What.FAILED: "fail"}
"""By the kind of work, if it is timed: what its time metric is called."""

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


def tuple_metrics(prefix: str, counts_by_group: Mapping[Group, Counts]) -> Iterator[Metric]:
    """Yield a counter for each kind of work, one of time for those that are timed, and a
    histogram.
    """
    for work in What:
        yield from _work_metrics(prefix, work, counts_by_group)
    yield _execute_times(prefix, counts_by_group)


def _work_metrics(
    prefix: str,
    work: What,
    counts_by_group: Mapping[Group, Counts],
) -> Iterator[Metric]:
    """Yield the counter of tuples of one kind of work, and of their time if it is timed."""
    # A sent tuple is of the operator's own stream. A received one is of another component, which
    # has a label of its own.
    is_sent = work in (What.EMITTED, What.TRANSFERRED)
    source_label = [] if is_sent else ["source"]
    labels = ["group", "operator", *source_label, "stream"]
    tuples = CounterMetricFamily(f"{prefix}_{work}", f"tuples {work}", labels=labels)
    time_name = _TIME_NAMES.get(work)  # None: it is not timed
    seconds_name = f"{prefix}_{time_name}_seconds"
    seconds = CounterMetricFamily(seconds_name, f"time of tuples {work}", labels=labels)
    for group, counts in counts_by_group.items():
        for counted, measure in counts.items():
            if counted.what is not work:
                continue
            stream = counted.stream
            source_value = [] if is_sent else [stream.component]
            values = label_values([*group, counted.component, *source_value, stream.stream])
            tuples.add_metric(values, measure.tuples)
            seconds.add_metric(values, measure.total_ns / 1_000_000_000)
    yield tuples
    if time_name is not None:
        yield seconds


def _execute_times(prefix: str, counts_by_group: Mapping[Group, Counts]) -> Metric:
    """Return the histogram of how long executed tuples took."""
    text = (
        "time of a tuple within execute; a bolt's rows are timed together, so each tuple counts"
        " with the mean of the rows that were timed with it"
    )
    name = f"{prefix}_execute_per_tuple_seconds"
    labels = ["group", "operator", "source", "stream"]
    histogram = HistogramMetricFamily(name, text, labels=labels)
    for group, counts in counts_by_group.items():
        for counted, measure in counts.items():
            if counted.what is What.EXECUTED:
                producer, stream = counted.stream
                values = label_values([*group, counted.component, producer, stream])
                total_s = measure.total_ns / 1_000_000_000
                histogram.add_metric(values, _cumulative_buckets(measure), total_s)
    return histogram


def _cumulative_buckets(measure: Measure) -> list[tuple[str, float]]:
    """Return the buckets of a histogram: their upper bounds in s, and how many tuples are below
    each.
    """
    bounds_s = [*(str(bound_ns / 1_000_000_000) for bound_ns in TIME_BOUNDS_NS), "+Inf"]
    tuples_by_bucket = dict(measure.times)  # without the empty ones
    tuple_counts = [tuples_by_bucket.get(bucket, 0) for bucket in range(len(bounds_s))]
    return list(zip(bounds_s, accumulate(tuple_counts), strict=True))


def is_alive(status: PlannerStatus, now_ms: int) -> bool:
    """Return whether a planning process has taken its group, and has written its status lately.

    `status.wall` and `now_ms` are wall time, ms. A status of the future was written before the
    clock was set back; a process that lives writes another at once.
    """
    # by its session, which a process that failed later still has in its status
    has_taken_group = bool(status.session) or status.state == "running"
    return has_taken_group and abs(now_ms - status.wall) < STALE_MS


def root_metrics(
    prefix: str, statuses_by_group: Mapping[Group, PlannerStatus | None], now_ms: int
) -> Iterator[Metric]:
    """Yield the counts of roots of planning processes.

    Left out are those that have not taken their group, or are not alive (`is_alive`), or have
    written no status yet (None). `now_ms` is wall time.
    """
    labels = ["group"]
    status_by_group = {
        group: status
        for group, status in statuses_by_group.items()
        if status is not None and is_alive(status, now_ms)
    }
    pending_roots = {group: float(status.pending) for group, status in status_by_group.items()}
    yield gauge(f"{prefix}_roots_pending", "roots without a verdict", pending_roots, labels)
    oldest_age_s: dict[Group, float] = {}
    for group, status in status_by_group.items():
        oldest_age_s[group] = status.oldest_pending_ms / 1_000
    text = "age of the oldest root without a verdict; 0: there is none"
    yield gauge(f"{prefix}_roots_oldest_pending_age_seconds", text, oldest_age_s, labels)
    for field, text in ROOT_COUNTERS.items():
        counts = {group: float(getattr(status, field)) for group, status in status_by_group.items()}
        yield counter(f"{prefix}_roots_{field}", text, counts, labels)
    limit_hits: dict[tuple[str, ...], float] = {}
    for group, status in status_by_group.items():
        limit_hits[*group, "max_spout_pending"] = status.limit_hits
    text = "batches that were chosen while a limit held them back"
    yield counter(f"{prefix}_limit_hits", text, limit_hits, [*labels, "limit"])
    yield from _partition_metrics(prefix, status_by_group)


def _partition_metrics(
    prefix: str,
    status_by_group: Mapping[Group, PlannerStatus],
) -> Iterator[Metric]:
    """Yield how many records are blocked in each partition, which partitions wait, and which do not
    go on.
    """
    labels = ["group", "topic", "partition"]
    # by the values of the labels
    blocked_records: dict[tuple[str, ...], float] = {}
    is_waiting: dict[tuple[str, ...], float] = {}
    does_not_go_on: dict[tuple[str, ...], float] = {}
    for group, status in status_by_group.items():
        # partitions are named ``topic/partition`` here, in each of the three
        for partition, blocked_count in status.held_now.items():
            values = (*group, *place_labels(partition))
            blocked_records[values] = blocked_count
            is_waiting[values] = partition in status.waits
        for partition in status.stands:
            does_not_go_on[*group, *place_labels(partition)] = 1.0
    text = "records that wait behind another one (ordering)"
    yield gauge(f"{prefix}_held_now", text, blocked_records, labels)
    yield gauge(f"{prefix}_waits", "1: the partition waits (ordering)", is_waiting, labels)
    yield gauge(f"{prefix}_stands", STANDS_TEXT, does_not_go_on, labels)
