"""Ackers and replay workers as metrics of Prometheus, and what the metrics of all parts share.

Names have base units and Prometheus' suffixes. A value that is unknown, or of something that is
not there, is no sample: never 0. No label is a root, a key or a message, so the number of
samples is bounded.

Source: docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any, Final, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.identity import is_replay, offset_of, partition_of
from acker.ledger.output import AckerStatus
from acker.ledger.tally import BOUNDS_MS, REASONS, InputTally, SlowRoot
from acker.notation import show_text
from replay.worker.report import ReplayStatus
from spout.distribution import installed_version

Key = TypeVar("Key", bound=tuple[str, ...])
"""Values of labels, in the order of the labels."""

ACKER_GAUGES: Final = {
    "partitions": "acker partitions that this process owns",
    "assigned": "partitions that the group has assigned to it; those above partitions are being restored",
    "open_roots": "roots without a verdict",
    "ranges": "emitted ranges that have them",
    "never_expiring": "open roots whose timeout is 0",
    "sessions": "sessions that own a group",
    "pending": "ticks and takes that do not count yet",
}
"""Fields of an acker's status that rise and fall, with their help; of a collection its size is
the value."""

ACKER_COUNTERS: Final = {
    "initialised": "roots that were announced",
    "ignored": "announced positions that were announced before",
    "refused": "positions and ticks of a session that does not own its group",
    "folded": "contributions that counted",
    "late": "contributions and fails for roots that had their verdict already",
    "above": "contributions and fails for positions that were never announced",
    "repeated_records": "records that came again",
    "nondeterministic_records": "records that came again with another content",
    "quarantined_records": "records that no acker can apply",
    "undecodable_records": "records of the verdict topic that a restart passed over",
    "refused_takes": "sessions that did not get their group",
    "carried": "ranges that were moved into State with their values",
    "transactions": "transactions committed",
}
"""The counts of an acker that have no label, with their help."""

REPLAY_GAUGES: Final = {
    "partitions": "verdict partitions that this process owns",
    "assigned": "partitions that the group has assigned to it",
    "waiting": "roots that wait for their replay",
    "waiting_bytes": "their memory, estimated",
    "held_up": "waiting roots whose record cannot be read: a damaged batch, say",
}

REPLAY_COUNTERS: Final = {
    "lost": "lost roots that were taken over",
    "held": "roots that waited behind another one (ordering)",
    "without_payload": "dead letters without payload",
    "absent": "positions without a record",
    "undecodable": "unreadable records of the verdict and due topics",
    "aborted": "aborted transactions, whose work is done again",
    "fenced": "partitions that another worker took",
    "fetched_records": "records read for copies and dead letters",
    "fetched_bytes": "bytes of these records",
}

REPLAY_BY_INPUT: Final = {
    "replayed": "copies written",
    "dead_lettered": "dead letters written",
    "dropped": "records that a rule dropped",
}
"""Counters of a replay worker that have the label input."""

STANDS_TEXT: Final = "1: the partition does not go on: it has no leader, or nothing of it arrives"

EXEMPLAR_CHARACTERS_MAX: Final = 120
"""OpenMetrics allows 128, those of the label's name included."""


def flatten(status: Any) -> dict[str, Any]:
    """Return the values of a status and of its nested ones, by the names of their fields.

    A field with ``repr=False`` is left out.
    """
    values_by_field: dict[str, Any] = {}
    for field in fields(status):
        if not field.repr:
            continue
        value = getattr(status, field.name)
        if is_dataclass(value):
            values_by_field.update(flatten(value))
        else:
            values_by_field[field.name] = value
    return values_by_field


def label_values(names: Iterable[str]) -> list[str]:
    """Return names as values of labels, in the notation of `acker.notation`.

    An empty name stays empty.
    """
    return [show_text(name) if name else "" for name in names]


def gauge(name: str, text: str, samples: Mapping[Key, float], labels: Iterable[str]) -> Metric:
    """Return a gauge.

    Args:
        name: of the metric.
        text: its help.
        samples: its numbers, by the values of its labels.
        labels: their names, in the order of these values.
    """
    metric = GaugeMetricFamily(name, text, labels=list(labels))
    for values, number in samples.items():
        metric.add_metric(label_values(values), number)
    return metric


def counter(name: str, text: str, samples: Mapping[Key, float], labels: Iterable[str]) -> Metric:
    """Return a counter, whose name gets the suffix ``_total``; arguments as of `gauge`."""
    metric = CounterMetricFamily(name, text, labels=list(labels))
    for values, number in samples.items():
        metric.add_metric(label_values(values), number)
    return metric


def place_labels(place: str) -> tuple[str, str]:
    """Return the values of the labels topic and partition of a ``topic/partition``."""
    topic, _, partition = place.rpartition("/")
    return topic, partition


def build_info() -> Metric:
    """Return the metric whose label is the version of Windhover; its value is 1."""
    return gauge(
        "windhover_build_info",
        "the version of Windhover; always 1",
        {(installed_version(),): 1},
        ["version"],
    )


class Scraped(Collector):
    """Computes metrics at each scrape."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of now."""
        return self._metrics()


class StatusCollector(Collector):
    """Serves the latest status; the loop updates it, so that no scrape touches a service."""

    def __init__(
        self,
        part: str,
        metrics: Callable[[Any], Iterable[Metric]],
        age_s: Callable[[], float] | None = None,
    ) -> None:
        """Begin without a status.

        Args:
            part: acker or replay.
            metrics: yields the metrics of a status.
            age_s: returns the seconds since the last step of the part ended; None: there is no
                metric of that.
        """
        self._part = part
        self._metrics_of = metrics
        self._step_age_s = age_s
        self._status: Any = None

    def update(self, status: Any) -> None:
        """Keep a new status, which the next scrape reads."""
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the age of the last step, and the metrics of the latest status if there is one."""
        if self._step_age_s is not None:
            name = f"windhover_{self._part}_last_step_age_seconds"
            yield gauge(name, "seconds since the last step ended", {(): self._step_age_s()}, ())
        if self._status is not None:
            yield from self._metrics_of(self._status)


def acker_metrics(status: AckerStatus, topics: Topics) -> Iterator[Metric]:
    """Yield the metrics of an acker; `topics` has the names of its inputs."""
    values_by_field = flatten(status)
    yield from _without_labels("windhover_acker", values_by_field, ACKER_GAUGES, ACKER_COUNTERS)
    yield SummaryMetricFamily(
        "windhover_acker_restore_seconds",
        "how long partitions waited to be restored, from their assignment on",
        status.restored,
        status.restored_ms / 1_000,
    )
    yield _standing_partitions("windhover_acker", status.standing)
    inputs = {input.id: input for input in topics.inputs.values() if input.tracked}
    # an input without a verdict yet has zeros, so that its counters begin there
    tallies = {input_id: InputTally() for input_id in inputs} | status.verdicts.inputs
    yield from _verdict_metrics(tallies, inputs)
    yield from _too_late_metrics(status)
    yield _completion_times(tallies, inputs)


def _verdict_metrics(
    tallies: Mapping[int, InputTally],
    inputs: Mapping[int, Input],
) -> Iterator[Metric]:
    """Yield the counts of verdicts, and of failures by their causes.

    `tallies` and `inputs` are by the id of the input.
    """
    verdicts: dict[tuple[str, ...], float] = {}
    failures: dict[tuple[str, ...], float] = {}
    for input_id, tally in tallies.items():
        names = _input_and_group(input_id, inputs)
        for reason in REASONS:
            verdicts[*names, reason.lower()] = tally.verdicts[reason]
        for cause, count in tally.failures.items():
            failures[*names, *cause] = count
    text = "roots by verdict"
    yield counter("windhover_acker_verdicts", text, verdicts, ["input", "group", "reason"])
    text = "failed roots by operator and error class"
    labels = ["input", "group", "operator", "cause"]
    yield counter("windhover_acker_failures", text, failures, labels)


def _too_late_metrics(status: AckerStatus) -> Iterator[Metric]:
    """Yield by group how many roots and rows came too late for their window."""
    counts_by_group = status.verdicts.too_late
    text = "roots of which a tuple came too late for its window (hold)"
    roots = {(group,): float(counts.roots) for group, counts in counts_by_group.items()}
    yield counter("windhover_acker_too_late_roots", text, roots, ["group"])
    text = "rows that a watermark dropped, and of which nobody knows the records"
    rows = {(group,): float(counts.rows) for group, counts in counts_by_group.items()}
    yield counter("windhover_acker_dropped_rows", text, rows, ["group"])


def _completion_times(tallies: Mapping[int, InputTally], inputs: Mapping[int, Input]) -> Metric:
    """Return the histogram of how long acked records took.

    `tallies` and `inputs` are by the input's id.
    """
    histogram = HistogramMetricFamily(
        "windhover_acker_completion_seconds",
        "from the first emission of acked records to their verdict, over all attempts",
        labels=["input", "group"],
    )
    for input_id, tally in tallies.items():
        labels = label_values(_input_and_group(input_id, inputs))
        buckets = _cumulative_buckets(tally, inputs.get(input_id))
        total_s = tally.took_total_ms / 1_000
        histogram.add_metric(labels, buckets, total_s)
    return histogram


def replay_metrics(status: ReplayStatus) -> Iterator[Metric]:
    """Yield the metrics of a replay worker."""
    values_by_field = flatten(status)
    yield from _without_labels("windhover_replay", values_by_field, REPLAY_GAUGES, REPLAY_COUNTERS)
    if status.next_due_ms is not None:
        name = "windhover_replay_next_due_timestamp_seconds"
        yield gauge(name, "wall time of the next replay", {(): status.next_due_ms / 1_000}, ())
    # each input is in `breaker_used`: one of which nothing was written has a 0
    zeros = dict.fromkeys(status.breaker_used, 0)
    for name, text in REPLAY_BY_INPUT.items():
        counts = _by_input(zeros | values_by_field[f"{name}_by_input"])
        yield counter(f"windhover_replay_{name}", text, counts, ["input"])
    text = "waiting roots whose input cannot go on, or whose copy or dead letter is refused"
    roots_put_aside = _by_input(zeros | dict(status.aside_by_input))
    yield gauge("windhover_replay_aside", text, roots_put_aside, ["input"])
    inputs = {*status.breaker_used, *status.paused}
    is_paused = {(name,): float(name in status.paused) for name in inputs}
    text = "1: the breaker has paused the input"
    yield gauge("windhover_replay_paused", text, is_paused, ["input"])
    text = "share of its dead letters in a row, or in its window, that the breaker has seen; 1 opens it"
    used_ratios = _by_input(status.breaker_used)
    yield gauge("windhover_replay_breaker_used_ratio", text, used_ratios, ["input"])
    limit_hits = {("waiting_max",): float(status.waiting_full)}
    text = "steps that a limit held up"
    yield counter("windhover_replay_limit_hits", text, limit_hits, ["limit"])


def _standing_partitions(prefix: str, standing: Iterable[str]) -> Metric:
    """Return the metric of partitions that do not go on (``topic/partition``).

    Others have no sample.
    """
    samples = {place_labels(place): 1.0 for place in standing}
    return gauge(f"{prefix}_stands", STANDS_TEXT, samples, ["topic", "partition"])


def _without_labels(
    prefix: str,
    values_by_field: Mapping[str, Any],
    gauges: Mapping[str, str],
    counters: Mapping[str, str],
) -> Iterator[Metric]:
    """Yield metrics without labels for some fields of a status.

    `gauges` and `counters` have the names of these fields, with their help. If a field is a
    collection, its size is the value.
    """
    for name, text in gauges.items():
        value = values_by_field[name]
        number = value if isinstance(value, int | float) else len(value)
        yield gauge(f"{prefix}_{name}", text, samples={(): number}, labels=())
    for name, text in counters.items():
        yield counter(f"{prefix}_{name}", text, samples={(): values_by_field[name]}, labels=())


def _by_input(numbers: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """Return numbers by the values of the label input."""
    return {(name,): number for name, number in numbers.items()}


def _input_and_group(input_id: int, inputs: Mapping[int, Input]) -> tuple[str, str]:
    """Return the name of an input and its group; of one that topics.yaml lacks, its id and "".

    `inputs` has those of topics.yaml by id.
    """
    configured_input = inputs.get(input_id)
    if configured_input is None:
        return f"id {input_id}", ""
    return configured_input.name, configured_input.group


def _cumulative_buckets(tally: InputTally, configured_input: Input | None) -> list[Any]:
    """Return the buckets of a histogram: upper bound in s, roots below it, and its last root as the
    exemplar.

    `configured_input` None: topics.yaml lacks the input, so the roots have no names.
    """
    bounds_s = [*(str(bound_ms / 1_000) for bound_ms in BOUNDS_MS), "+Inf"]
    roots_below = accumulate(tally.took_counts)
    buckets: list[Any] = []
    for bound_s, root_count, last_root in zip(bounds_s, roots_below, tally.slow_roots, strict=True):
        exemplar = None
        if last_root is not None and configured_input is not None:
            exemplar = _exemplar(last_root, configured_input)
        buckets.append((bound_s, root_count, exemplar))
    return buckets


def _exemplar(acked: SlowRoot, configured_input: Input) -> Exemplar | None:
    """Return an exemplar with the name of an acked root, as `windhover inspect` takes it.

    None: the name is too long.
    """
    source, position = acked.root
    topic = configured_input.replay_topic if is_replay(source) else configured_input.name
    root_name = f"{topic}/{partition_of(source)}@{offset_of(position)}"
    if len(root_name) > EXEMPLAR_CHARACTERS_MAX:
        return None
    return Exemplar({"root": root_name}, acked.took_ms / 1_000, acked.at_ms / 1_000)
