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
    # listed delays, of which the last one holds for all further waits
    if retry.delays:
        listed_ms = sum(retry.delays[:wait_count])
        further_ms = max(0, wait_count - len(retry.delays)) * retry.delays[-1]
        return math.ceil((listed_ms + further_ms) * (1 + retry.jitter))
    # delays that grow by a factor, up to the longest
    total_ms, delay_ms = 0.0, float(min(retry.initial_ms, retry.max_ms))
    for waits_left in range(wait_count, 0, -1):
        next_delay_ms = min(delay_ms * retry.multiplier, retry.max_ms)
        if next_delay_ms == delay_ms:  # from here on all are alike, and there may be a million
            total_ms += waits_left * delay_ms
            break
        total_ms += delay_ms
        delay_ms = next_delay_ms
    return math.ceil(total_ms * (1 + retry.jitter))


def longest_need_ms(input: Input) -> int | None:
    """Return for how long a record may be needed from its emission on, in ms; None: there is no end to it.

    That is the worst case: it times out at every attempt, and each back-off is as long as it may
    be. While a session is down no time passes for its records, so that is not counted.
    """
    retry, timeout_ms = input.retry, input.timeout_ms
    if not timeout_ms:
        return None
    # 1. by the number of attempts. Where takeovers do not count as attempts, its session may be
    # taken over `max_abandoned` times besides, each at the end of the timeout; all but the first
    # with a back-off.
    attempts_ms = retry.attempts_max * timeout_ms + backoff_horizon_ms(retry)
    if not retry.count_abandoned:
        takeover_waits = max(0, retry.max_abandoned - 1)
        attempts_ms += retry.max_abandoned * timeout_ms + _waits_ms(retry, takeover_waits)
    if not retry.time_limit_ms:
        return attempts_ms
    # 2. by the time limit: the last attempt, and each takeover, begins behind the longest wait that
    # began just before the limit
    longest_wait_ms = max(_longest_wait_ms(schedule) for schedule in retry.schedules)
    last_attempts = 1 + retry.max_abandoned
    time_limited_ms = retry.time_limit_ms + last_attempts * (longest_wait_ms + timeout_ms)
    # an attempt that timed out may not count as one: then only the time ends it
    return min(attempts_ms, time_limited_ms) if retry.count_timed_out else time_limited_ms


def _longest_wait_ms(schedule: RetrySchedule) -> int:
    """Return the longest wait of a schedule, with all of its jitter, in ms."""
    longest_delay_ms = max(schedule.delays or (schedule.max_ms,))
    return math.ceil(longest_delay_ms * (1 + schedule.jitter))


def rounded_up_ms(duration_ms: int) -> int:
    """Round a duration up to whole seconds, in ms."""
    return math.ceil(duration_ms / 1000) * 1000


def long_retention_findings(topics: Topics) -> Iterator[Finding]:
    """Yield a warning for each tracked input that may need records longer than Kafka's default.

    A need of None is one without end.
    """
    for input in topics.inputs.values():
        need_ms = longest_need_ms(input)
        if input.tracked and (need_ms is None or need_ms > KAFKA_DEFAULT_MS):
            least_retention = "-1" if need_ms is None else f"above {rounded_up_ms(need_ms)}, or -1"
            text = (
                f"input {input.name} {_need_text(input, need_ms)}, and Kafka keeps records for"
                f" {duration_text(KAFKA_DEFAULT_MS)} where a topic does not say: set its {RETENTION}"
                f" {least_retention}; `windhover topics check` looks whether it is so"
            )
            yield Finding(input.topic, Level.WARNING, text)


def short_retention(topics: Topics, infos: Mapping[str, TopicInfo]) -> Iterator[Finding]:
    """Yield a warning for each tracked input whose topic may delete records that are still needed."""
    for input in topics.inputs.values():
        info = infos.get(input.topic)
        if not input.tracked or info is None:
            continue
        if "delete" not in info.settings.get("cleanup.policy", "delete"):
            continue  # it is only compacted
        need_ms = longest_need_ms(input)
        # by time; a negative retention is none
        kept_ms = int(info.settings.get(RETENTION, "-1"))
        is_short = need_ms is None or kept_ms < need_ms
        if kept_ms >= 0 and is_short:
            least_ms = -1 if need_ms is None else rounded_up_ms(need_ms)
            text = _short_retention_text(input, kept_ms, need_ms)
            yield Finding(input.topic, Level.WARNING, text, f"{RETENTION}={least_ms}")
        # by size: how long that lasts depends on what is written
        kept_bytes = info.settings.get(RETENTION_BYTES, "-1")
        if int(kept_bytes) >= 0:
            text = (
                f"has {RETENTION_BYTES}={kept_bytes}, and input {input.name}"
                f" {_need_text(input, need_ms)}: when more than that comes meanwhile, one that is"
                " deleted before it is copied becomes a dead letter without payload; set"
                f" {RETENTION_BYTES}=-1, or leave room for what comes in that time"
            )
            yield Finding(input.topic, Level.WARNING, text, f"{RETENTION_BYTES}=-1")


def _short_retention_text(input: Input, kept_ms: int, need_ms: int | None) -> str:
    """Return the warning of a topic that deletes records which an input may still need.

    Args:
        kept_ms: for how long the topic keeps a record.
        need_ms: for how long the input may need one, longer than that; None: without end.
    """
    retention_text = f"has {RETENTION}={kept_ms} ({duration_text(kept_ms)}), and input {input.name}"
    if need_ms is None:
        return (
            f"{retention_text} has timeout: 0: an open record is needed without end; set {RETENTION}=-1,"
            " or a timeout"
        )
    return (
        f"{retention_text} {_need_text(input, need_ms)}: one that is deleted before it is copied"
        f" becomes a dead letter without payload; set {RETENTION} above"
        f" {rounded_up_ms(need_ms)}, or lower timeout or retry"
    )


def _need_text(input: Input, need_ms: int | None) -> str:
    """Return for how long an input may need a record, and why, in words that follow its name."""
    if need_ms is None:
        return "may need a record without end (timeout: 0)"
    retry, timeout_text = input.retry, duration_text(input.timeout_ms)
    # if takeovers use up attempts, `attempts_max` has them already
    further_takeovers = 0 if retry.count_abandoned else retry.max_abandoned
    takeovers_text = ""
    if further_takeovers:
        noun = "takeover" if further_takeovers == 1 else "takeovers"
        takeovers_text = f", {further_takeovers} {noun}"
    return (
        f"may need a record for {duration_text(rounded_up_ms(need_ms))} ({retry.attempts_max} attempts of"
        f" {timeout_text}{takeovers_text} and their back-off)"
    )
