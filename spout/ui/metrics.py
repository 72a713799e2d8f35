"""An installation as metrics of Prometheus, from the snapshot that the pages show; pure.

So `/metrics`, the pages, their JSON and ``windhover status`` cannot disagree. What is unknown
has no sample, and `windhover_view_up` is 0 and says why.

Source: docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from prometheus_client import Metric

from acker.config.topics import Topics
from spout.inspect.overview import Snapshot
from spout.inspect.readings import (
    DeadRecords,
    PartitionState,
    Reading,
    SourceProgress,
    joined,
    too_late_counts,
)
from spout.inspect.summary import InputSummary, summaries
from spout.runtime.metrics import STANDS_TEXT, Key, counter, gauge, place_labels
from spout.ui.attention import needed_offset
from spout.ui.machinery import Machinery, machinery_of
from spout.ui.watch import LatestState

STALE_MS: Final = 60_000
"""A snapshot that is older says nothing about now: what reads it hangs."""

Number = TypeVar("Number", bound=float)
Samples = dict[tuple[str, ...], float]
"""Values by the values of their labels."""

INPUT: Final = ("input", "group")
PARTITION: Final = (*INPUT, "topic", "partition")


def view_metrics(latest: LatestState, topics: Topics, now_ms: int) -> Iterator[Metric]:
    """Yield the metrics of the latest snapshot; `now_ms` is wall time."""
    snapshot = latest.snapshot
    reason = _why_down(latest, now_ms)  # empty: nothing is missing
    text = "1: the last reading found every value; 0: it did not, for this reason"
    yield gauge("windhover_view_up", text, {(reason,): float(not reason)}, ["reason"])
    if not latest.reading_number:
        return  # nothing was read yet
    name = "windhover_view_updated_timestamp_seconds"
    yield gauge(name, "wall time of the last reading", {(): snapshot.at_ms / 1_000}, ())
    if reason == "stale":
        return  # a scrape would date old figures as if they were of now
    for name, text, read in _FIGURES_OF_PARTITION:
        samples: Samples = {}
        for state in snapshot.partitions:
            value = read(state).value
            if value is not None:
                partition = "" if state.partition is None else str(state.partition)
                topic = topics.inputs[state.input].topic
                samples[state.input, state.group, topic, partition] = value
        yield gauge(f"windhover_{name}", text, samples, PARTITION)
    yield from _metrics_of_groups(snapshot)
    yield from _metrics_of_inputs(summaries(snapshot, topics))
    stands = {place_labels(place): 1.0 for place in snapshot.leaderless}
    yield gauge("windhover_partition_stands", STANDS_TEXT, stands, ["topic", "partition"])
    yield from _metrics_of_machinery(machinery_of(snapshot))


def _why_down(latest: LatestState, now_ms: int) -> str:
    """Return why the view lacks something, as one of a few words; empty: it lacks nothing."""
    snapshot = latest.snapshot
    has_unknown_rows = any(row["unknown"] for row in snapshot.rows())
    has_unknown_ends = any(end.unknown for end in snapshot.ends)
    # the first that is true is the reason: the reasons below it mostly follow from it
    reasons = (
        ("starting", not latest.reading_number),
        ("stale", abs(now_ms - snapshot.at_ms) >= STALE_MS),
        ("broker_away", snapshot.broker_error is not None),
        ("not_authorized", snapshot.refused is not None),
        ("topic_missing", bool(snapshot.missing)),
        ("no_acker_state", any(view.unknown for view in snapshot.views)),
        ("unreadable", has_unknown_rows or has_unknown_ends),
    )
    return next((reason for reason, is_true in reasons if is_true), "")


def _seconds(reading: Reading[int]) -> Reading[float]:
    """Return a time in seconds, as Prometheus has times; the reading is in ms."""
    return reading.then(lambda ms: ms / 1_000)


def _blocking_age_s(state: PartitionState) -> Reading[float]:
    """Return the age of the root that blocks the commit; None: none, or Spark's state holds it."""

    def age_s(progress: SourceProgress) -> float | None:
        blocking = progress.blocking
        if blocking is None or blocking.in_state:
            return None
        return max(0, state.now_ms - blocking.emitted_ms) / 1_000

    return state.progress.then(age_s)


def _deadline_s(state: PartitionState) -> Reading[float]:
    """Return the wall time at which the next root times out; None: none does.

    Without a query none times out, since the clock of its session stands still.
    """

    def nearest_s(query_lives: bool, records: SourceProgress, copies: SourceProgress) -> float | None:
        all_deadlines_ms = [item.deadline_ms for item in (*records.ranges, *copies.ranges)]
        deadlines_ms = [deadline_ms for deadline_ms in all_deadlines_ms if deadline_ms is not None]
        return min(deadlines_ms) / 1_000 if query_lives and deadlines_ms else None

    return joined(nearest_s, state.query_lives, state.progress, state.copies)


def _headroom(state: PartitionState) -> Reading[float]:
    """Return the share of the log that is before the first record that somebody still has to read.

    If 1500 is the first of a log [1000, 3000), it is 0.25; below 0: retention has deleted the
    record. None: nobody has to read any; or the log begins at 0, so nobody knows how long it may
    become before retention deletes from it.
    """

    # `needed_offset` reads progress and due_at: if one of them is unknown, so is the share
    def share(start: int, end: int, _progress: object, _due_at: object) -> float | None:
        needed = needed_offset(state)
        if not start or needed is None or needed >= end:
            return None
        return (needed - start) / max(1, end - start)

    return joined(share, state.start, state.end, state.progress, state.due_at)


def _newest_death_s(state: PartitionState) -> Reading[float]:
    """Return the wall time in s at which the newest dead letter died; None: there is none."""

    def newest_s(dead: DeadRecords) -> float | None:
        return int(dead.died_ms.max()) / 1_000 if len(dead.died_ms) else None

    return state.dead_at.then(newest_s)


_FIGURES_OF_PARTITION: Final[list[tuple[str, str, Callable[[PartitionState], Reading[float]]]]] = [
    # name without "windhover_", help text, and what reads it from a partition
    ("pending_roots", "roots without a verdict", lambda state: state.pending),
    (
        "oldest_pending_age_seconds",
        "age of the oldest root without a verdict that Spark's state does not hold; 0: there is none",
        lambda state: _seconds(state.oldest_ms),
    ),
    ("in_state_roots", "roots without a verdict that Spark's state holds", lambda state: state.in_state),
    ("nearest_deadline_timestamp_seconds", "when the next pending root times out, wall time", _deadline_s),
    ("not_done_records", "records that are not done, at most", lambda state: state.lag),
    (
        "due_roots",
        "lost roots that wait for their replay, or to become dead letters",
        lambda state: state.replays_due,
    ),
    (
        "blocked_records",
        "records that wait behind another one (ordering)",
        lambda state: state.held,
    ),
    ("dead_letters", "dead letters that nobody has handled", lambda state: state.dead_letters),
    (
        "newest_dead_letter_timestamp_seconds",
        "when the newest of them died, wall time",
        _newest_death_s,
    ),
    ("committed_offset", "the offset that the group has committed", lambda state: state.committed),
    ("end_offset", "the offset at which the log ends", lambda state: state.end),
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
        lambda state: state.replays_wait.then(lambda why: float(bool(why))),
    ),
]


def _metrics_of_groups(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield by group how many records and rows came too late for their windows."""
    roots: dict[tuple[str, ...], Reading[int]] = {}
    rows: dict[tuple[str, ...], Reading[int]] = {}
    for group in dict.fromkeys(state.group for state in snapshot.partitions):
        counts = too_late_counts(snapshot.views, group)
        roots[group,] = counts.then(lambda late: late.roots)
        rows[group,] = counts.then(lambda late: late.rows)
    text = "records that came too late for their windows, as far back as the ackers know"
    yield counter("windhover_too_late_roots", text, _samples_of(roots), ["group"])
    text = "rows that a watermark dropped, and of which nobody knows the records"
    yield counter("windhover_dropped_rows", text, _samples_of(rows), ["group"])


def _metrics_of_inputs(inputs: list[InputSummary]) -> Iterator[Metric]:
    """Yield what topics.yaml says of each input."""
    limits: Samples = {}
    stopped: Samples = {}
    timeouts: Samples = {}
    for input in inputs:
        labels = input.name, input.group
        limits[labels] = float(input.pending_max)
        stopped[labels] = float(bool(input.stopped))
        if input.timeout_ms:
            timeouts[labels] = input.timeout_ms / 1_000
    yield gauge("windhover_pending_roots_limit", "max_spout_pending of the input", limits, INPUT)
    yield gauge("windhover_input_stopped", "1: the input is stopped on purpose", stopped, INPUT)
    yield gauge("windhover_timeout_seconds", "timeout of the input; none: it has none", timeouts, INPUT)


def _metrics_of_machinery(machinery: Machinery) -> Iterator[Metric]:
    """Yield what sessions, ackers and replay workers have."""
    # a group that is stopped on purpose has no sample, so that no alert on it fires
    lives = {(owner.group,): owner.query_lives for owner in machinery.owners if not owner.stopped}
    text = "1: a query or KafkaSpout of the group lives; absent: it is stopped on purpose"
    yield gauge("windhover_session_up", text, _samples_of(lives), ["group"])
    epochs = {(owner.group,): owner.epoch for owner in machinery.owners}
    text = "rises with each takeover of the group"
    yield gauge("windhover_session_epoch", text, _samples_of(epochs), ["group"])
    counts = {
        "ackers": ("members of the ackers' group", machinery.ackers),
        "replay_workers": ("members of the replay workers' group", machinery.replay_workers),
        "untaken_roots": ("lost roots that no replay worker has taken over", machinery.not_taken_over),
    }
    for name, (text, reading) in counts.items():
        yield gauge(f"windhover_{name}", text, _samples_of({(): reading}), ())
    partitions = {(str(acker.partition),): acker for acker in machinery.partitions}
    lags = {labels: acker.unsaved for labels, acker in partitions.items()}
    text = "records of _ack_init and _ack_ack behind the State of an acker partition"
    yield gauge("windhover_acker_lag_records", text, _samples_of(lags), ["partition"])
    ages = {labels: _seconds(acker.state_age_ms) for labels, acker in partitions.items()}
    text = "age of the State of an acker partition"
    yield gauge("windhover_acker_state_age_seconds", text, _samples_of(ages), ["partition"])


def _samples_of(readings: Mapping[Key, Reading[Number]]) -> dict[Key, float]:
    """Return the known values by their labels; an unknown value has no sample."""
    samples = {}
    for labels, reading in readings.items():
        if reading.value is not None:
            samples[labels] = float(reading.value)
    return samples
