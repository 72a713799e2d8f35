"""Whether a source topic keeps its records for as long as they may be needed; pure.

A record is needed until it is copied for the first time; what is asked for is its whole life, until its last
attempt has ended, so that there is room for a spout or a replay worker that is down for a while, and whoever
reads a dead letter still finds the record. What waits to be read at all comes on top, and is not counted.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from acker.log import TopicInfo
from acker.settings import Input, Retry
from acker.topic_specs import Finding, Level
from acker.topics import Topics
from acker.units import duration_text

RETENTION = "retention.ms"


def backoff_horizon_ms(retry: Retry) -> int:
    """Return the sum of all waits between the attempts of one record, with all of their jitter, in ms."""
    total, delay = 0.0, float(min(retry.initial_ms, retry.max_ms))
    for left in range(retry.attempts - 1, 0, -1):
        following = min(delay * retry.multiplier, retry.max_ms)
        if following == delay:
            total += left * delay
            break
        total += delay
        delay = following
    return math.ceil(total * (1 + retry.jitter))


def longest_need_ms(source: Input) -> int | None:
    """Return for how long a record may be needed from its emission on, in ms; None: there is no end to it.

    It times out at every attempt, and waits as long as it may between them.
    """
    if not source.timeout_ms:
        return None
    return source.retry.attempts * source.timeout_ms + backoff_horizon_ms(source.retry)


def short_retention(topics: Topics, found: Mapping[str, TopicInfo]) -> Iterator[Finding]:
    """Yield a warning for each tracked input whose topic may delete records that are still needed.

    Args:
        topics: the file.
        found: what the broker has.
    """
    for each in topics.inputs.values():
        info = found.get(each.topic)
        if each.tracked and info is not None:
            kept_ms = int(info.settings.get(RETENTION, "-1"))
            need_ms = longest_need_ms(each)
            deletes = "delete" in info.settings.get("cleanup.policy", "delete")
            if deletes and kept_ms >= 0 and (need_ms is None or kept_ms < need_ms):
                yield Finding(each.topic, Level.WARNING, _text(each, kept_ms, need_ms))


def _text(source: Input, kept_ms: int, need_ms: int | None) -> str:
    has = f"has {RETENTION}={kept_ms} ({duration_text(kept_ms)}), and input {source.name}"
    if need_ms is None:
        return f"{has} has timeout: 0: an open record is needed without end; set {RETENTION}=-1, or a timeout"
    need_s = math.ceil(need_ms / 1000)
    return (
        f"{has} may need a record for {duration_text(need_s * 1000)} ({source.retry.attempts} attempts of"
        f" {duration_text(source.timeout_ms)} and their back-off): one that is deleted before it is copied"
        f" becomes a dead letter without payload; set {RETENTION} above {need_s * 1000}, or lower timeout or"
        " retry"
    )
