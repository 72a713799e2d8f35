"""A rule of `causes` that has attempts and waits of its own, from the file to what becomes of a root."""

from __future__ import annotations

import pytest

from acker.config.topics import Input, parse
from acker.errors import ConfigError
from acker.provisioning.topic_times import longest_need_ms
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason, Disposition, GiveUp, LostEmission, Replay, dispose
from replay.worker.worker import policy_of

NOW_MS = 1_000_000


def source(retry: str) -> Input:
    text = f"inputs: {{s: {{id: 1, group: g, timeout: 30s, retry: {{{retry}}}}}}}"
    return parse(text, file="topics.yaml", environ={}).inputs["s"]


def waits(retry: str, error: str, reason: Verdict = Verdict.FAILED, operator: str = "b") -> list[int | str]:
    """Return the waits in ms between the emissions of a record that always fails so, and why it ends."""
    policy = policy_of(source(f"jitter: 0, {retry}"))
    found: list[int | str] = []
    for attempt in range(1, 100):
        lost = LostEmission(reason, attempt, operator=operator, error=error)
        disposition: Disposition = dispose(policy, lost, NOW_MS, 0.0)
        if isinstance(disposition, GiveUp):
            return [*found, disposition.reason.value]
        found.append(disposition.due_ms - NOW_MS)
    return found


RULES = """
    attempts: 3, initial: 1s, multiplier: 2, max: 5m, causes: [
      {error: ConnectionError, then: retry, attempts: 5, initial: 10s, max: 30s},
      {error: RateLimited, then: retry, delays: [1m, 2m]},
      {error: KeyError, operator: parse, then: retry, attempts: 1},
      {error: TimeoutError, then: retry, attempts: 4},
      {error: OSError, then: retry, multiplier: 1},
      {error: ValueError, then: dead_letter}]
"""


@pytest.mark.parametrize(
    ("error", "operator", "expected"),
    [
        ("ConnectionError", "b", [10_000, 20_000, 30_000, 30_000, "ATTEMPTS"]),
        ("ConnectionResetError", "b", [10_000, 20_000, 30_000, 30_000, "ATTEMPTS"]),
        ("RateLimited", "b", [60_000, 120_000, "ATTEMPTS"]),
        ("KeyError", "parse", ["ATTEMPTS"]),
        ("KeyError", "b", [1_000, 2_000, "ATTEMPTS"]),
        ("TimeoutError", "b", [1_000, 2_000, 4_000, "ATTEMPTS"]),
        ("FileNotFoundError", "b", [1_000, 1_000, "ATTEMPTS"]),
        ("ValueError", "b", ["CAUSE"]),
        ("RejectTuple", "b", ["CAUSE"]),
        ("ArithmeticError", "b", [1_000, 2_000, "ATTEMPTS"]),
        ("", "b", [1_000, 2_000, "ATTEMPTS"]),
    ],
)
def test_a_cause_has_the_attempts_and_waits_of_its_rule(
    error: str, operator: str, expected: list[int | str]
) -> None:
    """D1601. What the rule leaves out is the input's."""
    assert waits(RULES, error, operator=operator) == expected


@pytest.mark.parametrize("reason", [Verdict.TIMED_OUT])
def test_what_has_no_cause_has_the_inputs_schedule(reason: Verdict) -> None:
    """D1602. No rule fits it, whatever the name of an error before it was."""
    assert waits(RULES, "ConnectionError", reason) == [1_000, 2_000, "ATTEMPTS"]


def test_a_rules_formula_stands_in_place_of_the_inputs_list() -> None:
    """D1601, where the input has `delays`."""
    listed = (
        "attempts: 3, delays: [7s], causes: [{error: A, then: retry, initial: 3s}, {error: B, then: retry}]"
    )
    assert waits(listed, "A") == [3_000, 6_000, "ATTEMPTS"]
    assert waits(listed, "B") == [7_000, 7_000, "ATTEMPTS"]


def test_the_rule_of_the_last_failure_decides_and_every_emission_counts() -> None:
    """D1603. A record that failed twice otherwise has three attempts left of five."""
    policy = policy_of(source(RULES))
    third = LostEmission(Verdict.FAILED, 3, operator="b", error="ConnectionError")
    assert isinstance(dispose(policy, third, NOW_MS, 0.0), Replay)
    other = LostEmission(Verdict.FAILED, 3, operator="b", error="ArithmeticError")
    assert dispose(policy, other, NOW_MS, 0.0) == GiveUp(DeadReason.ATTEMPTS)


def test_the_time_limit_holds_for_every_rule() -> None:
    policy = policy_of(source("time_limit: 10s, causes: [{error: A, then: retry, attempts: 100}]"))
    late = LostEmission(Verdict.FAILED, 2, lived_ms=10_000, operator="b", error="A")
    assert dispose(policy, late, NOW_MS, 0.0) == GiveUp(DeadReason.TIME_LIMIT)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("{error: A, then: dead_letter, attempts: 3}", "has attempts beside then: dead_letter"),
        ("{error: A, then: drop, initial: 3s, delays: [1s]}", "has initial, delays beside then: drop"),
        ("{error: A, then: retry, delays: [1s], max: 3s}", "rule 0 in causes that has delays beside max"),
        ("{error: A, then: retry, delays: []}", "rule 0 in causes that has 0 waits"),
        (
            "{error: A, then: retry, delays: [0s, 0s, 0s, 0s, 0s, 0s, 0s, 0s, 0s, 0s]}",
            "10 attempts leave room for 9",
        ),
        ("{error: A, then: retry, delays: [1s, 1s], attempts: 2}", "2 attempts leave room for 1"),
        ("{error: A, then: retry, max: 500ms}", "has max 500ms below initial 1s; give both"),
        ("{error: A, then: retry, initial: 10m}", "has max 5m below initial 10m; give both"),
        (
            "{error: A, then: retry, attempts: 0}",
            "causes.0.attempts = 0: is too low; give a whole number, 1 to",
        ),
        (
            "{error: A, then: retry, initial: 2d}",
            "causes.0.initial = '2d': is too high; give a duration, 0 to 1d",
        ),
        ("{error: A, then: retry, initial: 5}", "causes.0.initial = 5: has no unit"),
        (
            "{error: A, then: retry, multiplier: 0.5}",
            "causes.0.multiplier = 0.5: is too low; give a number, 1 to",
        ),
        ("{error: A, then: retry, delays: [8d]}", "is too high"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(rule: str, says: str) -> None:
    """D1604."""
    with pytest.raises(ConfigError) as refused:
        source(f"causes: [{rule}]")
    assert says in str(refused.value)


def test_the_longest_rule_says_how_long_a_record_may_be_needed() -> None:
    """D1605. What the retention of topics is compared with."""
    short = longest_need_ms(source("attempts: 2, initial: 1s, max: 1s"))
    long = longest_need_ms(
        source(
            "attempts: 2, initial: 1s, max: 1s, causes: [{error: A, then: retry, attempts: 10, delays: [1h]}]"
        )
    )
    assert short is not None
    assert long is not None
    assert long - short >= 9 * 3_600_000
