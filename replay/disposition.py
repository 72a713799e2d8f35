"""What becomes of a lost root: one pure function, the only place that gives up on a record.

Two counters bound a root's life. `attempts` counts the emissions that ended as FAILED or TIMED_OUT, the
first emission included. An ABANDONED emission is no fault of the record, its session was taken over, so it
uses up none of them; `max_abandoned` bounds how often a root is put back for that. A root comes back at
once after the first abandonment, and with back-off after each later one.

Source: DESIGN.md, section 3 rule 9 and section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from acker.events import Reason
from replay.backoff import Backoff, delay_ms


class DeadReason(StrEnum):
    """Why a record became a dead letter."""

    ATTEMPTS = "ATTEMPTS"
    """It was lost as often as `attempts` allows."""
    ABANDONED = "ABANDONED"
    """It was put back `max_abandoned` times and abandoned once more."""
    GONE = "GONE"
    """The log no longer holds it; the dead letter has no payload."""
    RECREATED = "RECREATED"
    """Its topic was deleted, or created again; the dead letter has no payload."""
    TOO_LARGE = "TOO_LARGE"
    """With its history it is larger than the replay topic takes."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When to give up, and how long to wait until then.

    Attributes:
        attempts: how often a root is tried, the first emission included; at least 1.
        max_abandoned: how often a root is put back after its session was taken over; at least 0.
        backoff: how long it waits.
    """

    attempts: int
    max_abandoned: int
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Replay:
    """Emit it again, not before `due_ms` (wall time)."""

    due_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Keep it as a dead letter."""

    reason: DeadReason


Disposition = Replay | DeadLetter


def dispose(
    policy: Policy, reason: Reason, attempt: int, abandoned: int, now_ms: int, jitter: float
) -> Disposition:
    """Decide what becomes of a lost root.

    Args:
        policy: of the root's input.
        reason: why this emission was lost.
        attempt: which emission was lost, from 1.
        abandoned: how many emissions were abandoned, this one included.
        now_ms: wall time of the decision; the back-off counts from here, so it is never early.
        jitter: a random number in [0, 1).

    Raises:
        ValueError: a counter is below what it can be.
    """
    if attempt < 1 or abandoned < 0:
        raise ValueError(f"attempt {attempt} and abandoned {abandoned} cannot be: they count from 1 and 0")
    if reason is Reason.ABANDONED:
        if abandoned > policy.max_abandoned:
            return DeadLetter(DeadReason.ABANDONED)
        if abandoned <= 1:
            return Replay(now_ms)
        return Replay(now_ms + delay_ms(policy.backoff, abandoned - 1, jitter))
    failures = max(1, attempt - abandoned)
    if failures >= policy.attempts:
        return DeadLetter(DeadReason.ATTEMPTS)
    return Replay(now_ms + delay_ms(policy.backoff, failures, jitter))
