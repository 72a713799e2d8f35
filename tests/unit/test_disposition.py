"""What becomes of a lost root."""

from __future__ import annotations

import pytest

from acker.events import Reason
from replay.backoff import Backoff
from replay.disposition import DeadLetter, DeadReason, Disposition, Policy, Replay, dispose

POLICY = Policy(attempts=4, max_abandoned=2, backoff=Backoff(1_000, 2, 10_000))
NOW_MS = 50_000


def decide(reason: Reason, attempt: int, abandoned: int = 0, policy: Policy = POLICY) -> Disposition:
    return dispose(policy, reason, attempt, abandoned, NOW_MS, 0.0)


@pytest.mark.parametrize("reason", [Reason.FAILED, Reason.TIMED_OUT])
def test_attempts_include_the_first_emission(reason: Reason) -> None:
    """P34, S109"""
    assert [decide(reason, attempt) for attempt in (1, 2, 3)] == [
        Replay(NOW_MS + 1_000),
        Replay(NOW_MS + 2_000),
        Replay(NOW_MS + 4_000),
    ]
    assert decide(reason, 4) == DeadLetter(DeadReason.ATTEMPTS)
    assert decide(reason, 5) == DeadLetter(DeadReason.ATTEMPTS)


def test_with_one_attempt_every_failure_is_final() -> None:
    """S112"""
    once = Policy(1, 2, POLICY.backoff)
    assert decide(Reason.FAILED, 1, policy=once) == DeadLetter(DeadReason.ATTEMPTS)


def test_the_first_abandonment_waits_for_nothing_and_later_ones_do() -> None:
    """Rule 9"""
    assert decide(Reason.ABANDONED, 1, 1) == Replay(NOW_MS)
    assert decide(Reason.ABANDONED, 9, 1) == Replay(NOW_MS)
    assert decide(Reason.ABANDONED, 2, 2) == Replay(NOW_MS + 1_000)
    assert decide(Reason.ABANDONED, 3, 3) == DeadLetter(DeadReason.ABANDONED)


def test_max_abandoned_of_zero_puts_nothing_back() -> None:
    never = Policy(4, 0, POLICY.backoff)
    assert decide(Reason.ABANDONED, 1, 1, never) == DeadLetter(DeadReason.ABANDONED)


def test_abandoned_emissions_use_up_no_attempts() -> None:
    assert decide(Reason.FAILED, 3, 2) == Replay(NOW_MS + 1_000)
    assert decide(Reason.FAILED, 6, 2) == DeadLetter(DeadReason.ATTEMPTS)


@pytest.mark.parametrize(("attempt", "abandoned"), [(0, 0), (-1, 0), (1, -1)])
def test_counters_that_cannot_be_are_refused(attempt: int, abandoned: int) -> None:
    """S113"""
    with pytest.raises(ValueError, match="count from"):
        decide(Reason.FAILED, attempt, abandoned)
