"""Source topics that delete records before they are done with."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from acker.config.settings import Input, Retry
from acker.config.topics import parse
from acker.kafka.port import TopicInfo
from acker.provisioning.topic_specs import Finding, Level
from acker.provisioning.topic_times import (
    backoff_horizon_ms,
    long_retention_findings,
    longest_need_ms,
    short_retention,
)
from acker.wire.verdict import Verdict
from replay.policy.disposition import Backoff, LostEmission, Policy, Replay, delay_ms, dispose

NEARLY_ONE = 1 - 2**-53
"""The largest number that a generator of [0, 1) draws."""


@given(
    st.integers(1, 60),
    st.integers(0, 10_000),
    st.floats(1, 100),
    st.integers(0, 10_000_000),
    st.floats(0, 1),
)
def test_the_horizon_is_the_longest_that_all_waits_together_can_last(
    attempts: int, initial_ms: int, multiplier: float, more_ms: int, jitter: float
) -> None:
    """As the replay worker draws them: one for each attempt but the last."""
    retry = Retry(
        attempts=attempts,
        initial_ms=initial_ms,
        multiplier=multiplier,
        max_ms=initial_ms + more_ms,
        jitter=jitter,
    )
    backoff = Backoff(retry.initial_ms, retry.multiplier, retry.max_ms, retry.jitter)
    longest_ms = sum(delay_ms(backoff, failures, NEARLY_ONE) for failures in range(1, attempts))
    assert longest_ms - attempts <= backoff_horizon_ms(retry) <= longest_ms + 1


def test_a_million_attempts_are_summed_without_counting_them() -> None:
    """S114: and the power does not overflow."""
    retry = Retry(attempts=1_000_000, initial_ms=1, max_ms=1_000, jitter=0.0)
    assert backoff_horizon_ms(retry) == 1_023 + (999_999 - 10) * 1_000


def test_a_record_may_be_needed_for_all_of_its_attempts_and_the_waits_between_them() -> None:
    """Three attempts of 10 s, after waits of 1 s and 2 s with a fifth of jitter."""
    source = Input(name="a", id=1, group="g", timeout_ms=10_000, retry=Retry(attempts=3, max_abandoned=0))
    assert longest_need_ms(source) == 3 * 10_000 + 3_600
    assert longest_need_ms(source.model_copy(update={"timeout_ms": 0})) is None


def test_takeovers_come_on_top_unless_they_are_attempts() -> None:
    """Three more, the first of which waits for nothing, as the replay worker decides."""
    retry = Retry(attempts=2, max_abandoned=3, jitter=0.0)
    source = Input(name="a", id=1, group="g", timeout_ms=10_000, retry=retry)
    policy = Policy(2, 3, Backoff(retry.initial_ms, retry.multiplier, retry.max_ms, retry.jitter))
    waits_ms, lost = 0, LostEmission(Verdict.ABANDONED, 1, 1)
    for reason in [Verdict.ABANDONED] * 3 + [Verdict.TIMED_OUT]:
        decided = dispose(policy, replace(lost, reason=reason), 0, 0.0)
        assert isinstance(decided, Replay)
        waits_ms += decided.due_ms
        following = lost.abandoned + (lost.abandoned < 3)
        lost = replace(lost, attempt=lost.attempt + 1, abandoned=following)
    assert longest_need_ms(source) == 5 * 10_000 + waits_ms == 54_000
    counted = retry.model_copy(update={"count_abandoned": True})
    assert longest_need_ms(source.model_copy(update={"retry": counted})) == 2 * 10_000 + 1_000


def test_a_list_of_waits_is_summed_and_its_last_one_is_repeated() -> None:
    """As the replay worker takes them: five attempts, four waits."""
    retry = Retry(attempts=5, delays=(1_000, 7_000), jitter=0.5)
    assert backoff_horizon_ms(retry) == (1_000 + 3 * 7_000) * 1.5


def test_with_a_time_limit_the_last_attempt_lies_behind_the_longest_wait_begun_before_it() -> None:
    retry = Retry(attempts=100, max_ms=60_000, jitter=0.5, time_limit_ms=600_000)
    source = Input(name="a", id=1, group="g", timeout_ms=10_000, retry=retry)
    assert longest_need_ms(source) == 600_000 + (1 + 5) * (90_000 + 10_000)
    few = source.model_copy(update={"retry": retry.model_copy(update={"attempts": 2, "max_abandoned": 0})})
    assert longest_need_ms(few) == 2 * 10_000 + 1_500
    free = few.retry.model_copy(update={"count_timed_out": False})
    assert longest_need_ms(few.model_copy(update={"retry": free})) == 700_000


def findings(inputs: str, **settings: str) -> list[Finding]:
    """Hold inputs of topic ``lines`` against what the broker says of it."""
    topics = parse(f"inputs: {{{inputs}}}", file="topics.yaml", environ={})
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return list(short_retention(topics, {"lines": TopicInfo("lines", "id", 1, 1, named)}))


A = "a: {id: 1, group: g, topic: lines, timeout: 10s, retry: {attempts: 3, max_abandoned: 0}}"
NEVER = "b: {id: 2, group: h, topic: lines, timeout: 0}"
UNTRACKED = "c: {id: 3, group: i, topic: lines, timeout: 7d, ackers: 0}"


def test_a_retention_below_the_longest_need_is_a_warning_that_names_both_and_the_cure() -> None:
    (finding,) = findings(A, retention_ms="33599")
    assert (finding.topic, finding.level) == ("lines", Level.WARNING)
    assert finding.text.startswith(
        "has retention.ms=33599 (33599ms), and input a may need a record for 34s (3 a"
    )
    assert "set retention.ms above 34000, or lower timeout or retry" in finding.text
    assert findings(A, retention_ms="33600") == []


def test_what_is_kept_for_ever_or_is_not_tracked_or_is_only_compacted_is_no_finding() -> None:
    """Compaction has a warning of its own; a topic that does not exist is told as missing."""
    assert findings(A, retention_ms="-1") == findings(A) == []
    assert findings(UNTRACKED, retention_ms="1") == []
    assert findings(A, retention_ms="1", cleanup_policy="compact") == []
    assert findings("a: {id: 1, group: g}", retention_ms="1") == []


def test_a_limit_of_bytes_is_a_warning_that_says_for_how_long_they_have_to_last() -> None:
    (finding,) = findings(A, retention_bytes="1000", retention_ms="-1")
    assert (finding.topic, finding.level) == ("lines", Level.WARNING)
    assert finding.text.startswith("has retention.bytes=1000, and input a may need a record for 34s (3 atte")
    assert "set retention.bytes=-1" in finding.text
    assert findings(A, retention_bytes="-1") == findings(UNTRACKED, retention_bytes="1") == []
    assert findings(A, retention_bytes="1", cleanup_policy="compact") == []


def test_without_a_broker_a_need_beyond_kafkas_default_is_a_warning() -> None:
    """Which `windhover validate` prints: the topic may not say how long it keeps its records."""

    def warned(inputs: str) -> list[str]:
        topics = parse(f"inputs: {{{inputs}}}", file="topics.yaml", environ={})
        return [finding.text for finding in long_retention_findings(topics)]

    slow = "a: {id: 1, group: g, timeout: 2d, retry: {attempts: 3, max_abandoned: 1}}"
    (long,) = warned(slow)
    assert "input a may need a record for 8d" not in long  # the waits between the attempts come on top
    assert "(3 attempts of 2d, 1 takeover and their back-off)" in long
    assert "set its retention.ms above 691204000, or -1" in long
    (ever,) = warned(NEVER)
    assert "input b may need a record without end (timeout: 0)" in ever
    assert warned(A) == warned(UNTRACKED) == []


def test_each_input_of_a_topic_is_looked_at_and_one_that_never_times_out_needs_its_records_for_ever() -> None:
    first, second = findings(f"{A}, {NEVER}", retention_ms="5", cleanup_policy="compact,delete")
    assert "input a may need" in first.text
    assert "input b has timeout: 0" in second.text
    assert "set retention.ms=-1" in second.text
