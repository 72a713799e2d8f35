"""Whether a source topic keeps its records for as long as they may be needed; pure.

A record is needed until it is copied for the first time; what is asked for is its whole life, until its last
attempt has ended, so that there is room for a spout or a replay worker that is down for a while, and whoever
reads a dead letter still finds the record. What waits to be read at all comes on top, and is not counted.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from acker.config.retry_settings import Retry, RetrySchedule
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.kafka.port import TopicInfo
from acker.provisioning.topic_specs import Finding, Level
from acker.units import UNITS_MS, duration_text

RETENTION = "retention.ms"
RETENTION_BYTES = "retention.bytes"

KAFKA_DEFAULT_MS = UNITS_MS["d"] * 7
"""For so long a topic keeps its records that nobody said anything about (``log.retention.hours``)."""


def backoff_horizon_ms(retry: Retry) -> int:
    """Return the sum of all waits between the attempts of one record, with all of their jitter, in ms.

    Where rules have schedules of their own: the longest that there is.
    """
    return _waits_ms(retry, retry.attempts_max - 1)


def _waits_ms(retry: Retry, count: int) -> int:
    """Return the sum of the first `count` waits of the schedule by which it is longest, in ms."""
    return max(_schedule_waits_ms(schedule, count) for schedule in retry.schedules)


def _schedule_waits_ms(retry: RetrySchedule, wait_count: int) -> int:
    """Return the sum of the first `wait_count` waits of a schedule, with all of their jitter, in ms."""
    if retry.delays:
        listed_ms = retry.delays[:wait_count]
        repeated = max(0, wait_count - len(retry.delays))
        return math.ceil((sum(listed_ms) + repeated * retry.delays[-1]) * (1 + retry.jitter))
    total_ms, delay_ms = 0.0, float(min(retry.initial_ms, retry.max_ms))
    for waits_left in range(wait_count, 0, -1):
        next_delay_ms = min(delay_ms * retry.multiplier, retry.max_ms)
        if next_delay_ms == delay_ms:  # from here on all are alike, and there may be a million
            total_ms += waits_left * delay_ms
            break
        total_ms += delay_ms
        delay_ms = next_delay_ms
    return math.ceil(total_ms * (1 + retry.jitter))


def longest_need_ms(source: Input) -> int | None:
    """Return for how long a record may be needed from its emission on, in ms; None: there is no end to it.

    It times out at every attempt, and waits as long as it may between them. With a time limit its last
    attempt is the one behind the longest wait that began before that. Beside its attempts its session is
    taken over as often as it may, each time at the end of the timeout; only the first of these waits for
    nothing. While a session is down no time passes for its records, so that is not counted.
    """
    retry, timeout_ms = source.retry, source.timeout_ms
    if not timeout_ms:
        return None
    by_attempts = retry.attempts_max * timeout_ms + backoff_horizon_ms(retry)
    if not retry.count_abandoned:
        by_attempts += retry.max_abandoned * timeout_ms + _waits_ms(retry, max(0, retry.max_abandoned - 1))
    if not retry.time_limit_ms:
        return by_attempts
    longest_ms = max(
        math.ceil(max(schedule.delays or (schedule.max_ms,)) * (1 + schedule.jitter))
        for schedule in retry.schedules
    )
    by_time = retry.time_limit_ms + (1 + retry.max_abandoned) * (longest_ms + timeout_ms)
    return min(by_attempts, by_time) if retry.count_timed_out else by_time


def in_seconds_ms(duration_ms: int) -> int:
    """Round a duration up to whole seconds, in ms."""
    return math.ceil(duration_ms / 1000) * 1000


def long_needs(topics: Topics) -> Iterator[Finding]:
    """Yield a warning for each tracked input that may need a record for longer than Kafka's default."""
    for source in topics.inputs.values():
        need_ms = longest_need_ms(source)
        if source.tracked and (need_ms is None or need_ms > KAFKA_DEFAULT_MS):
            least = "-1" if need_ms is None else f"above {in_seconds_ms(need_ms)}, or -1"
            text = (
                f"input {source.name} {_need(source, need_ms)}, and Kafka keeps records for"
                f" {duration_text(KAFKA_DEFAULT_MS)} where a topic does not say: set its {RETENTION} {least};"
                " `windhover topics check` looks whether it is so"
            )
            yield Finding(source.topic, Level.WARNING, text)


def short_retention(topics: Topics, infos: Mapping[str, TopicInfo]) -> Iterator[Finding]:
    """Yield a warning for each tracked input whose topic may delete records that are still needed."""
    for source in topics.inputs.values():
        info = infos.get(source.topic)
        if source.tracked and info is not None:
            kept_ms = int(info.settings.get(RETENTION, "-1"))
            need_ms = longest_need_ms(source)
            deletes = "delete" in info.settings.get("cleanup.policy", "delete")
            if deletes and kept_ms >= 0 and (need_ms is None or kept_ms < need_ms):
                least = -1 if need_ms is None else in_seconds_ms(need_ms)
                text, setting = _text(source, kept_ms, need_ms), f"{RETENTION}={least}"
                yield Finding(source.topic, Level.WARNING, text, setting)
            if deletes and int(info.settings.get(RETENTION_BYTES, "-1")) >= 0:
                text = (
                    f"has {RETENTION_BYTES}={info.settings[RETENTION_BYTES]}, and input {source.name}"
                    f" {_need(source, need_ms)}: when more than that comes meanwhile, one that is deleted"
                    f" before it is copied becomes a dead letter without payload; set {RETENTION_BYTES}=-1,"
                    " or leave room for what comes in that time"
                )
                yield Finding(source.topic, Level.WARNING, text, f"{RETENTION_BYTES}=-1")


def _text(source: Input, kept_ms: int, need_ms: int | None) -> str:
    """Return the warning of a topic that deletes records which an input may still need.

    `need_ms` None: it may need them without end.
    """
    retention_text = f"has {RETENTION}={kept_ms} ({duration_text(kept_ms)}), and input {source.name}"
    if need_ms is None:
        return (
            f"{retention_text} has timeout: 0: an open record is needed without end; set {RETENTION}=-1,"
            " or a timeout"
        )
    return (
        f"{retention_text} {_need(source, need_ms)}: one that is deleted before it is copied becomes a dead"
        f" letter without payload; set {RETENTION} above {in_seconds_ms(need_ms)}, or lower timeout or retry"
    )


def _need(source: Input, need_ms: int | None) -> str:
    """Return for how long an input may need a record, and why, in words that follow its name."""
    if need_ms is None:
        return "may need a record without end (timeout: 0)"
    retry, timeout_text = source.retry, duration_text(source.timeout_ms)
    # takeovers that count as attempts are among these
    takeovers = 0 if retry.count_abandoned else retry.max_abandoned
    takeovers_text = ""
    if takeovers:
        takeovers_text = f", {takeovers} takeover" if takeovers == 1 else f", {takeovers} takeovers"
    return (
        f"may need a record for {duration_text(in_seconds_ms(need_ms))} ({retry.attempts_max} attempts of"
        f" {timeout_text}{takeovers_text} and their back-off)"
    )
