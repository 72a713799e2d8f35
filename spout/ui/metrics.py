"""The figures of an installation as metrics of Prometheus, from the snapshot that the pages show; pure.

So `/metrics`, the pages, their JSON and ``windhover status`` cannot disagree. What is unknown has no sample,
and `windhover_view_up` is 0 and says why.

Source: docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from prometheus_client import Metric

from acker.config.topics import Topics
from spout.inspect.overview import Snapshot
from spout.inspect.readings import PartitionState, Reading, SourceProgress, joined, late_counts
from spout.inspect.summary import InputSummary, summaries
from spout.runtime.metrics import STANDS_TEXT, Key, counter, gauge, place_labels
from spout.ui.attention import needed_offset
from spout.ui.machinery import Machinery, machinery_of
from spout.ui.watch import LatestState

STALE_MS: Final = 60_000
"""A snapshot that is older says nothing about now: what reads it hangs."""

Number = TypeVar("Number", bound=float)
Samples = dict[tuple[str, ...], float]

INPUT: Final = ("input", "group")
PARTITION: Final = (*INPUT, "topic", "partition")


def view_metrics(latest: LatestState, topics: Topics, now_ms: int) -> Iterator[Metric]:
    """Yield the metrics of the latest snapshot; `now_ms` is wall time."""
    snapshot = latest.snapshot
    reason = _why_down(latest, now_ms)
    text = "1: the last reading found every value; 0: it did not, for this reason"
    yield gauge("windhover_view_up", text, {(reason,): float(not reason)}, ["reason"])
    if not latest.number:
        return
    name = "windhover_view_updated_timestamp_seconds"
    yield gauge(name, "wall time of the last reading", {(): snapshot.at_ms / 1_000}, ())
    if reason == "stale":
        return
    for name, text, read in _FIGURES:
        samples: Samples = {}
        for state in snapshot.partitions:
            value = read(state).value
            if value is not None:
                partition = "" if state.partition is None else str(state.partition)
                topic = topics.inputs[state.input].topic
                samples[state.input, state.group, topic, partition] = value
        yield gauge(f"windhover_{name}", text, samples, PARTITION)
    yield from _of_groups(snapshot)
    yield from _of_inputs(summaries(snapshot, topics))
    stands = {place_labels(place): 1.0 for place in snapshot.leaderless}
    yield gauge("windhover_partition_stands", STANDS_TEXT, stands, ["topic", "partition"])
    yield from _of_machinery(machinery_of(snapshot))


def _why_down(latest: LatestState, now_ms: int) -> str:
    """Return why the view lacks something, as one of a few words; empty: it lacks nothing."""
    snapshot = latest.snapshot
    reasons = (
        ("starting", not latest.number),
        ("stale", abs(now_ms - snapshot.at_ms) >= STALE_MS),
        ("broker_away", snapshot.broker_error is not None),
        ("not_authorized", snapshot.refused is not None),
        ("topic_missing", bool(snapshot.missing)),
        ("no_acker_state", any(each.unknown for each in snapshot.views)),
        (
            "unreadable",
            any(row["unknown"] for row in snapshot.rows()) or any(each.unknown for each in snapshot.ends),
        ),
    )
    return next((reason for reason, is_so in reasons if is_so), "")


def _seconds(reading: Reading[int]) -> Reading[float]:
    return reading.then(lambda ms: ms / 1_000)


def _blocking_age_s(state: PartitionState) -> Reading[float]:
    return state.progress.then(
        lambda each: (
            None
            if each.blocking is None or each.blocking.in_state
            else max(0, state.now_ms - each.blocking.emitted_ms) / 1_000
        )
    )


def _deadline_s(state: PartitionState) -> Reading[float]:
    """Return the wall time at which the next root times out; without a query the clock stands still."""

    def nearest(lives: bool, *both: SourceProgress) -> float | None:
        times_ms = [each.deadline_ms for one in both for each in one.ranges if each.deadline_ms is not None]
        return min(times_ms) / 1_000 if lives and times_ms else None

    return joined(nearest, state.query_lives, state.progress, state.copies)


def _headroom(state: PartitionState) -> Reading[float]:
    """Return the share of the log before the first record that somebody has to read yet.

    Where nothing was ever deleted there is none: then nobody knows how long the log may become.
    """

    def share(start: int, end: int, *_: object) -> float | None:
        needed = needed_offset(state)
        if not start or needed is None or needed >= end:
            return None
        return (needed - start) / max(1, end - start)

    return joined(share, state.start, state.end, state.progress, state.due_at)


_FIGURES: Final[list[tuple[str, str, Callable[[PartitionState], Reading[float]]]]] = [
    ("pending_roots", "roots without a verdict", lambda each: each.pending),
    (
        "oldest_pending_age_seconds",
        "age of the oldest root without a verdict that Spark's state does not hold; 0: there is none",
        lambda each: _seconds(each.oldest_ms),
    ),
    ("in_state_roots", "roots without a verdict that Spark's state holds", lambda each: each.in_state),
    ("nearest_deadline_timestamp_seconds", "when the next pending root times out, wall time", _deadline_s),
    ("not_done_records", "records that are not done, at most", lambda each: each.lag),
    (
        "due_roots",
        "lost roots that wait for their replay, or to become dead letters",
        lambda each: each.replays_due,
    ),
    (
        "blocked_records",
        "records that wait behind another one (ordering)",
        lambda each: each.held,
    ),
    ("dead_letters", "dead letters that nobody has handled", lambda each: each.dead_letters),
    (
        "newest_dead_letter_timestamp_seconds",
        "when the newest of them died, wall time",
        lambda each: each.dead_at.then(
            lambda dead: int(dead.died_ms.max()) / 1_000 if len(dead.died_ms) else None
        ),
    ),
    ("committed_offset", "the offset that the group has committed", lambda each: each.committed),
    ("end_offset", "the offset at which the log ends", lambda each: each.end),
    (
        "blocking_age_seconds",
        "age of the root at the offset that blocks the commit, if Spark's state does not hold it",
        _blocking_age_s,
    ),
    (
        "log_headroom_ratio",
        "share of the log before the first record that is not done; below 0: retention has deleted it",
        _headroom,
    ),
    (
        "replays_stopped",
        "1: replays of the partition are paused or put aside",
        lambda each: each.replays_wait.then(lambda why: float(bool(why))),
    ),
]


def _of_groups(snapshot: Snapshot) -> Iterator[Metric]:
    groups = dict.fromkeys(state.group for state in snapshot.partitions)
    counts = {(group,): late_counts(snapshot.views, group) for group in groups}
    roots = _found({of: reading.then(lambda late: late.roots) for of, reading in counts.items()})
    text = "records that came too late for their windows, as far back as the ackers know"
    yield counter("windhover_too_late_roots", text, roots, ["group"])
    rows = _found({of: reading.then(lambda late: late.rows) for of, reading in counts.items()})
    text = "rows that a watermark dropped, and of which nobody knows the records"
    yield counter("windhover_dropped_rows", text, rows, ["group"])


def _of_inputs(every: list[InputSummary]) -> Iterator[Metric]:
    limits = {(each.name, each.group): float(each.pending_max) for each in every}
    yield gauge("windhover_pending_roots_limit", "max_spout_pending of the input", limits, INPUT)
    stopped = {(one.name, one.group): float(bool(one.stopped)) for one in every}
    yield gauge("windhover_input_stopped", "1: the input is stopped on purpose", stopped, INPUT)
    timeouts = {(each.name, each.group): each.timeout_ms / 1_000 for each in every if each.timeout_ms}
    yield gauge("windhover_timeout_seconds", "timeout of the input; none: it has none", timeouts, INPUT)


def _of_machinery(machinery: Machinery) -> Iterator[Metric]:
    # without the value the alert on it is silent, which is right where nobody is to live
    lives = {(owner.group,): owner.query_lives for owner in machinery.owners if not owner.stopped}
    text = "1: a query or KafkaSpout of the group lives; absent: it is stopped on purpose"
    yield gauge("windhover_session_up", text, _found(lives), ["group"])
    epochs = {(each.group,): each.epoch for each in machinery.owners}
    yield gauge("windhover_session_epoch", "rises with each takeover of the group", _found(epochs), ["group"])
    counts = {
        "ackers": ("members of the ackers' group", machinery.ackers),
        "replay_workers": ("members of the replay workers' group", machinery.replay_workers),
        "untaken_roots": ("lost roots that no replay worker has taken over", machinery.not_taken_over),
    }
    for name, (text, reading) in counts.items():
        yield gauge(f"windhover_{name}", text, _found({(): reading}), ())
    numbered = {(str(each.partition),): each for each in machinery.partitions}
    lag = {of: each.unsaved for of, each in numbered.items()}
    text = "records of _ack_init and _ack_ack behind the State of an acker partition"
    yield gauge("windhover_acker_lag_records", text, _found(lag), ["partition"])
    ages = {of: _seconds(each.state_age_ms) for of, each in numbered.items()}
    text = "age of the State of an acker partition"
    yield gauge("windhover_acker_state_age_seconds", text, _found(ages), ["partition"])


def _found(readings: Mapping[Key, Reading[Number]]) -> dict[Key, float]:
    return {of: float(each.value) for of, each in readings.items() if each.value is not None}
