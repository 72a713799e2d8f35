"""What becomes of a lost root: one pure function, the only place that gives up on a record.

In this order:

0. One that was held (cause ``HELD``: a record before it waits, and no bolt has seen it) is no failure. It
   comes back at the next multiple of `hold_ms`, so that all that are held together come back together.
1. A failed root whose cause a rule calls final is given up at once (`replay.policy.causes`).
2. One that fails or times out when its first emission is further back than `time_limit_ms` is given up.
3. An abandoned one is put back `max_abandoned` times: that its session was taken over is no fault of the
   record. It comes back at once after the first time, and with back-off after each later one.
4. `attempts` counts the emissions that were lost, the first emission included: those that failed, those that
   timed out unless `count_timed_out` is off, those that were abandoned only if `count_abandoned` is on,
   those that were held never.

What is not given up is replayed, not before its back-off is over.

Source: docs/design/protocol.md, section 3 rule 9 and section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from acker.wire.causes import HELD
from acker.wire.events import Reason
from replay.policy.backoff import Backoff, delay_ms
from replay.policy.causes import Action, Rule, action_of


class DeadReason(StrEnum):
    """Why a record became a dead letter."""

    ATTEMPTS = "ATTEMPTS"
    """It was lost as often as `attempts` allows."""
    ABANDONED = "ABANDONED"
    """It was put back `max_abandoned` times and abandoned once more."""
    CAUSE = "CAUSE"
    """It failed by a cause that is final: a rule of `causes` says so."""
    TIME_LIMIT = "TIME_LIMIT"
    """It was lost when its first emission was further back than `time_limit`."""
    DROPPED = "DROPPED"
    """A rule of `causes` drops what failed so; the dead letter has no payload."""
    GONE = "GONE"
    """The log no longer holds it; the dead letter has no payload."""
    RECREATED = "RECREATED"
    """Its topic was deleted, or created again; the dead letter has no payload."""
    TOO_LARGE = "TOO_LARGE"
    """With its history it is larger than the replay topic takes."""
    UNREADABLE = "UNREADABLE"
    """Somebody else wrote over what was known of it; the dead letter has no payload."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When to give up, and how long to wait until then.

    Attributes:
        attempts: how often a root is tried, the first emission included; at least 1.
        max_abandoned: how often a root is put back after its session was taken over; at least 0.
        backoff: how long it waits.
        time_limit_ms: from the first emission on; 0: none.
        count_timed_out: whether an emission that timed out uses up an attempt. If not, `time_limit_ms` ends
            what always times out.
        count_abandoned: whether an abandoned one does.
        rules: what to do by cause.
        hold_ms: how often a held one comes back; at least 1.
    """

    attempts: int
    max_abandoned: int
    backoff: Backoff
    time_limit_ms: int = 0
    count_timed_out: bool = True
    count_abandoned: bool = False
    rules: tuple[Rule, ...] = ()
    hold_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class LostEmission:
    """What is known of an emission that was lost.

    Attributes:
        reason: why it was lost.
        attempt: which emission it was, from 1.
        abandoned: how many emissions were abandoned, this one included.
        timed_out: how many timed out, this one included.
        lived_ms: from the first emission of the record until this one was lost. It is the verdict's time
            that counts: a worker that was down for an hour gives up nothing for that.
        operator: who failed it; empty when nobody did.
        error: the exception's class as the wire has it.
        held: how many were held, this one included.
    """

    reason: Reason
    attempt: int
    abandoned: int = 0
    timed_out: int = 0
    lived_ms: int = 0
    operator: str = ""
    error: str = ""
    held: int = 0

    @property
    def is_held(self) -> bool:
        """Whether no bolt has seen this emission."""
        return self.reason is Reason.FAILED and self.error == HELD


@dataclass(frozen=True, slots=True)
class Replay:
    """Emit it again, not before `due_ms` (wall time)."""

    due_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Keep it as a dead letter."""

    reason: DeadReason


Disposition = Replay | DeadLetter


def dispose(policy: Policy, lost: LostEmission, now_ms: int, jitter: float) -> Disposition:
    """Decide what becomes of a lost root.

    Args:
        policy: of the root's input.
        lost: its last emission.
        now_ms: wall time of the decision; the back-off counts from here, so it is never early.
        jitter: a random number in [0, 1).

    Raises:
        ValueError: a counter is below what it can be.
    """
    if lost.attempt < 1 or min(lost.abandoned, lost.timed_out, lost.held) < 0:
        raise ValueError(f"{lost} cannot be: attempts count from 1, and what was lost from 0")
    if lost.is_held:
        return Replay((now_ms // policy.hold_ms + 1) * policy.hold_ms)
    given_up = _given_up(policy, lost)
    if given_up is not None:
        return DeadLetter(given_up)
    if lost.reason is not Reason.ABANDONED:
        return Replay(
            now_ms + delay_ms(policy.backoff, max(1, lost.attempt - lost.abandoned - lost.held), jitter)
        )
    if lost.abandoned <= 1:
        return Replay(now_ms)
    return Replay(now_ms + delay_ms(policy.backoff, lost.abandoned - 1, jitter))


def _given_up(policy: Policy, lost: LostEmission) -> DeadReason | None:
    """Return why a root is given up, in the order above; None when it is replayed."""
    if lost.reason is Reason.FAILED:
        action = action_of(policy.rules, lost.operator, lost.error)
        if action is not Action.RETRY:
            return DeadReason.DROPPED if action is Action.DROP else DeadReason.CAUSE
    is_abandoned = lost.reason is Reason.ABANDONED
    if not is_abandoned and 0 < policy.time_limit_ms <= lost.lived_ms:
        return DeadReason.TIME_LIMIT
    if is_abandoned and lost.abandoned > policy.max_abandoned:
        return DeadReason.ABANDONED
    if is_abandoned and not policy.count_abandoned:
        return None
    return DeadReason.ATTEMPTS if _used_up(policy, lost) >= policy.attempts else None


def _used_up(policy: Policy, lost: LostEmission) -> int:
    """Return how many attempts are used up; this one counts, or there is nothing to decide."""
    free = lost.held + (0 if policy.count_abandoned else lost.abandoned)
    free += 0 if policy.count_timed_out else lost.timed_out
    if lost.reason is Reason.TIMED_OUT and not policy.count_timed_out:
        return max(0, lost.attempt - free)
    return max(1, lost.attempt - free)
