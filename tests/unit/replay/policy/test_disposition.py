"""What becomes of a lost root."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acker.wire.verdict import Verdict
from replay.policy.disposition import (
    DEFAULT_RULES,
    Action,
    Backoff,
    DeadReason,
    Disposition,
    GiveUp,
    LostEmission,
    Policy,
    Replay,
    Rule,
    dispose,
)

DOCS = Path(__file__).resolve().parents[4] / "docs"
POLICY = Policy(attempts=4, max_abandoned=2, backoff=Backoff(1_000, 2, 10_000))
NOW_MS = 50_000


def decide(reason: Verdict, attempt: int, abandoned: int = 0, policy: Policy = POLICY) -> Disposition:
    return dispose(policy, LostEmission(reason, attempt, abandoned), NOW_MS, 0.0)


def of_cause(policy: Policy, error: str, operator: str = "split", attempt: int = 1) -> Disposition:
    lost = LostEmission(Verdict.FAILED, attempt, operator=operator, error=error)
    return dispose(policy, lost, NOW_MS, 0.0)


@pytest.mark.parametrize("reason", [Verdict.FAILED, Verdict.TIMED_OUT])
def test_attempts_include_the_first_emission(reason: Verdict) -> None:
    """P34, S109"""
    assert [decide(reason, attempt) for attempt in (1, 2, 3)] == [
        Replay(NOW_MS + 1_000),
        Replay(NOW_MS + 2_000),
        Replay(NOW_MS + 4_000),
    ]
    assert decide(reason, 4) == GiveUp(DeadReason.ATTEMPTS)
    assert decide(reason, 5) == GiveUp(DeadReason.ATTEMPTS)


def test_with_one_attempt_every_failure_is_final() -> None:
    """S112"""
    once = Policy(1, 2, POLICY.backoff)
    assert decide(Verdict.FAILED, 1, policy=once) == GiveUp(DeadReason.ATTEMPTS)


def test_the_first_abandonment_waits_for_nothing_and_later_ones_do() -> None:
    """Rule 9"""
    assert decide(Verdict.ABANDONED, 1, 1) == Replay(NOW_MS)
    assert decide(Verdict.ABANDONED, 9, 1) == Replay(NOW_MS)
    assert decide(Verdict.ABANDONED, 2, 2) == Replay(NOW_MS + 1_000)
    assert decide(Verdict.ABANDONED, 3, 3) == GiveUp(DeadReason.ABANDONED)


def test_max_abandoned_of_zero_puts_nothing_back() -> None:
    never = Policy(4, 0, POLICY.backoff)
    assert decide(Verdict.ABANDONED, 1, 1, never) == GiveUp(DeadReason.ABANDONED)


def test_abandoned_emissions_use_up_no_attempts() -> None:
    assert decide(Verdict.FAILED, 3, 2) == Replay(NOW_MS + 1_000)
    assert decide(Verdict.FAILED, 6, 2) == GiveUp(DeadReason.ATTEMPTS)


@pytest.mark.parametrize(("attempt", "abandoned"), [(0, 0), (-1, 0), (1, -1)])
def test_counters_that_cannot_be_are_refused(attempt: int, abandoned: int) -> None:
    """S113"""
    with pytest.raises(ValueError, match="count from"):
        decide(Verdict.FAILED, attempt, abandoned)


@pytest.mark.parametrize("count", ["abandoned", "timed_out", "blocked"])
def test_a_count_below_0_is_refused(count: str) -> None:
    """S113; 0 is none, and any other number is fine."""
    for number in (0, 1):
        assert isinstance(
            dispose(POLICY, LostEmission(Verdict.FAILED, 2, **{count: number}), NOW_MS, 0.0), Replay
        )
    with pytest.raises(ValueError, match="count from"):
        dispose(POLICY, LostEmission(Verdict.FAILED, 2, **{count: -1}), NOW_MS, 0.0)


@pytest.mark.parametrize("count", ["abandoned", "timed_out", "blocked"])
def test_a_failure_counts_though_headers_claim_that_every_emission_was_free(count: str) -> None:
    """Anybody may write to a replay topic."""
    free = replace(POLICY, attempts=1, count_timed_out=False)
    lost = LostEmission(Verdict.FAILED, 2, **{count: 2})
    assert dispose(free, lost, NOW_MS, 0.0) == GiveUp(DeadReason.ATTEMPTS)
    assert dispose(replace(free, attempts=2), lost, NOW_MS, 0.0) == Replay(
        NOW_MS + 1_000 * (1 + (count == "timed_out"))
    )


FINAL = replace(
    POLICY,
    rules=(
        Rule("LookupError", "count", Action.RETRY),
        Rule("LookupError", None, Action.DEAD_LETTER),
        Rule("OrderError", None, Action.DROP),
        Rule(None, "audit", Action.DROP),
    ),
)


def test_a_cause_that_a_rule_calls_final_ends_all_attempts_at_once() -> None:
    """P27, P31, P36: the class itself, its subclasses of Python's own, and those that the bolt told of."""
    final = GiveUp(DeadReason.CAUSE)
    assert of_cause(FINAL, "LookupError") == of_cause(FINAL, "KeyError") == final
    assert of_cause(FINAL, "NoSuchCity(CityError, LookupError)") == final
    assert of_cause(FINAL, "ValueError") == of_cause(FINAL, "NoSuchCity") == Replay(NOW_MS + 1_000)


def test_the_first_rule_that_fits_decides_and_may_ask_for_a_bolt() -> None:
    assert of_cause(FINAL, "KeyError", "count") == Replay(NOW_MS + 1_000)
    assert of_cause(FINAL, "KeyError", "audit") == GiveUp(DeadReason.CAUSE)
    assert of_cause(FINAL, "ValueError", "audit") == GiveUp(DeadReason.DROPPED)
    assert of_cause(FINAL, "NoSuchOrder(OrderError)") == GiveUp(DeadReason.DROPPED)


def test_a_rule_that_says_retry_leaves_the_policy_as_it_is() -> None:
    assert of_cause(FINAL, "KeyError", "count", attempt=4) == GiveUp(DeadReason.ATTEMPTS)


@pytest.mark.parametrize(
    "error",
    [
        "RejectTuple(FailTuple)",
        "Undecodable(RejectTuple, FailTuple)",
        "UnicodeDecodeError",
        "ModuleNotFoundError",
        "SyntaxError",
        "IndentationError",
        "TupleError(WindhoverError)",
        "MessageIdUnknown(TupleError, WindhoverError)",
    ],
)
def test_what_no_replay_can_help_is_given_up_at_once_unless_a_rule_says_otherwise(error: str) -> None:
    """S151, P46, D601"""
    assert of_cause(POLICY, error) == GiveUp(DeadReason.CAUSE)
    again = replace(POLICY, rules=(Rule(error.partition("(")[0], None, Action.RETRY),))
    assert of_cause(again, error) == Replay(NOW_MS + 1_000)


def test_the_docs_list_each_rule_of_our_own_and_each_reason_of_a_dead_letter() -> None:
    """The text of the setting is in `acker/config/retry_settings.py`, which may not import the rules."""
    settings = (DOCS / "reference/topics.md").read_text(encoding="utf-8")
    [_, causes] = settings.split("### `inputs.<name>.retry.causes`\n")
    causes, *_ = causes.split("\n#")
    assert [rule.error for rule in DEFAULT_RULES if str(rule.error) not in causes] == []
    reasons = (DOCS / "operate/dead-letters.md").read_text(encoding="utf-8")
    assert [reason for reason in DeadReason if f"\n| `{reason}` |" not in reasons] == []


def test_a_rule_for_every_exception_fits_none_of_the_causes_that_are_no_exceptions() -> None:
    """Records of a batch that its sink had written before are as good as they were."""
    strict = replace(POLICY, rules=(Rule("Exception", None, Action.DEAD_LETTER),))
    assert of_cause(strict, "OSError") == of_cause(strict, "") == GiveUp(DeadReason.CAUSE)
    assert of_cause(strict, "BATCH_SKIPPED", "sink") == Replay(NOW_MS + 1_000)
    named = replace(POLICY, rules=(Rule("BATCH_SKIPPED", None, Action.DEAD_LETTER),))
    assert of_cause(named, "BATCH_SKIPPED", "sink") == GiveUp(DeadReason.CAUSE)


@pytest.mark.parametrize("reason", [Verdict.TIMED_OUT, Verdict.ABANDONED])
def test_rules_are_for_failures_alone(reason: Verdict) -> None:
    all_final = replace(POLICY, rules=(Rule("Exception", None, Action.DEAD_LETTER),))
    assert isinstance(decide(reason, 1, 1, all_final), Replay)


HOUR_MS = 3_600_000
WITHIN_AN_HOUR = replace(POLICY, attempts=1_000, time_limit_ms=HOUR_MS)


@pytest.mark.parametrize("reason", [Verdict.FAILED, Verdict.TIMED_OUT])
def test_the_next_loss_behind_the_time_limit_is_the_last(reason: Verdict) -> None:
    """P36"""
    within = LostEmission(reason, 9, lived_ms=HOUR_MS - 1)
    assert isinstance(dispose(WITHIN_AN_HOUR, within, NOW_MS, 0.0), Replay)
    behind = replace(within, lived_ms=HOUR_MS)
    assert dispose(WITHIN_AN_HOUR, behind, NOW_MS, 0.0) == GiveUp(DeadReason.TIME_LIMIT)
    assert isinstance(dispose(replace(WITHIN_AN_HOUR, time_limit_ms=0), behind, NOW_MS, 0.0), Replay)


def test_a_takeover_behind_the_time_limit_puts_back_all_the_same() -> None:
    """The record is not at fault; max_abandoned ends it."""
    lost = LostEmission(Verdict.ABANDONED, 1, 1, lived_ms=2 * HOUR_MS)
    assert dispose(WITHIN_AN_HOUR, lost, NOW_MS, 0.0) == Replay(NOW_MS)


def test_timeouts_use_up_attempts_or_do_not() -> None:
    free = replace(POLICY, attempts=2, count_timed_out=False, time_limit_ms=HOUR_MS)
    third = LostEmission(Verdict.TIMED_OUT, 3, timed_out=3)
    assert dispose(free, third, NOW_MS, 0.0) == Replay(NOW_MS + 4_000)
    assert dispose(replace(free, attempts=1), third, NOW_MS, 0.0) == Replay(NOW_MS + 4_000)
    assert dispose(replace(free, count_timed_out=True), third, NOW_MS, 0.0) == GiveUp(DeadReason.ATTEMPTS)
    first_failure = LostEmission(Verdict.FAILED, 4, timed_out=3)
    assert isinstance(dispose(free, first_failure, NOW_MS, 0.0), Replay)
    assert dispose(free, replace(first_failure, attempt=5), NOW_MS, 0.0) == GiveUp(DeadReason.ATTEMPTS)


def test_takeovers_use_up_attempts_where_the_policy_says_so() -> None:
    counted = replace(POLICY, max_abandoned=100, count_abandoned=True)
    assert decide(Verdict.ABANDONED, 3, 3, counted) == Replay(NOW_MS + 2_000)
    assert decide(Verdict.ABANDONED, 4, 4, counted) == GiveUp(DeadReason.ATTEMPTS)
    assert decide(Verdict.FAILED, 4, 3, counted) == GiveUp(DeadReason.ATTEMPTS)
    assert isinstance(decide(Verdict.FAILED, 4, 3, replace(counted, count_abandoned=False)), Replay)
