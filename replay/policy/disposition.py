"""What becomes of a lost root: one pure function, the only place where a record is given up.

The rules, in this order:

0. A blocked root (cause ``HELD``: it waits behind an earlier record, and no
   bolt has received it) is not a failure. It is replayed at the next multiple
   of `hold_ms`, so that all blocked roots come back together.
1. A failed root is given up at once if a rule for its cause demands it. The
   first matching rule decides; a rule matches by the exception's class or one
   of its parents, by the bolt that failed the tuple, or by both. A rule that
   retries may have `attempts` and a back-off of its own for rule 4: those of
   the rule that matches the last failure hold. All lost emissions count,
   whatever their causes were.
2. A root that failed or timed out at least `time_limit_ms` after its first
   emission is given up.
3. A root that was abandoned is replayed `max_abandoned` times, since a
   takeover is not the record's fault: the first time at once, later with
   back-off.
4. A root is given up when `attempts` of its emissions were lost, the first
   emission included. Failed emissions always count; timed-out ones do not if
   `count_timed_out` is off; abandoned ones do only if `count_abandoned` is on;
   blocked ones never do.

A root that is not given up is replayed when its back-off is over.

Source: docs/design/protocol.md, section 3 rule 9 and section 5.4; Storm's
KafkaSpoutRetryExponentialBackoff, whose power overflows from the 44th failure
on and then retries at once; Spring Kafka's fatal exceptions, JetStream's
``AckTerm``, Kafka's REJECT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from acker.wire.causes import HELD, error_classes
from acker.wire.verdict import LostVerdict, Verdict


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off, or a list of delays.

    Attributes:
        multiplier: each further delay is the one before times this, at least
            1.
        max_ms: the longest delay, before jitter.
        jitter: 0 to 1; up to this share of the delay is added, so that roots
            that failed together spread.
        delays_ms: a list, whose last one is repeated, in place of the first
            three; empty: no list.
    """

    initial_ms: int
    multiplier: float
    max_ms: int
    jitter: float = 0.0
    delays_ms: tuple[int, ...] = ()


def delay_ms(backoff: Backoff, failures: int, jitter: float) -> int:
    """Return how long a root waits after its last failure, in ms; jitter only makes it longer.

    `failures` is at least 1; `jitter` is a random number in [0, 1).
    """
    if failures < 1:
        raise ValueError(f"a delay follows a failure, but failures is {failures}")
    if not 0.0 <= jitter < 1.0:
        raise ValueError(f"jitter {jitter} is not in [0, 1)")
    if backoff.delays_ms:
        # the last delay of the list is for all failures behind it, too
        number = min(failures, len(backoff.delays_ms))
        delay: float = backoff.delays_ms[number - 1]
    else:
        delay = _exponential_delay_ms(backoff, failures - 1)
    return math.ceil(delay * (1.0 + backoff.jitter * jitter))


def _exponential_delay_ms(backoff: Backoff, exponent: int) -> float:
    """Return ``initial_ms * multiplier ** exponent``, at most `max_ms`, in ms."""
    # Three cases in which it does not grow, and in which the logarithms below
    # are not defined, or 0.
    if backoff.initial_ms >= backoff.max_ms:
        return backoff.max_ms
    if backoff.initial_ms <= 0:
        return 0
    if backoff.multiplier <= 1.0:
        return backoff.initial_ms
    # with 1 s, doubled, and at most 60 s it is 5.9: from the exponent 6 on the delay is 60 s
    exponent_of_max = math.log(backoff.max_ms / backoff.initial_ms) / math.log(backoff.multiplier)
    # without this limit the power overflows
    if exponent >= exponent_of_max:
        return backoff.max_ms
    return min(backoff.initial_ms * backoff.multiplier**exponent, backoff.max_ms)


class Action(StrEnum):
    """What a rule does with the root; the values are those of topics.yaml."""

    RETRY = "retry"
    """The policy decides whether to replay it."""
    DEAD_LETTER = "dead_letter"
    DROP = "drop"
    """It is given up at once; a dead letter without payload remains as a note."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. If `error` or `operator` is None, it matches any.

    A rule that retries may have attempts and a back-off of its own; None:
    those of the policy.
    """

    error: str | None
    operator: str | None
    then: Action
    attempts: int | None = None
    backoff: Backoff | None = None


DEFAULT_RULES: Final = (
    Rule("RejectTuple", None, Action.DEAD_LETTER),
    # a payload that cannot be decoded now cannot be decoded later
    Rule("UnicodeDecodeError", None, Action.DEAD_LETTER),
    # what is missing or wrong is the code, and a replay runs the same code
    Rule("ModuleNotFoundError", None, Action.DEAD_LETTER),
    Rule("SyntaxError", None, Action.DEAD_LETTER),
    Rule("TupleError", None, Action.DEAD_LETTER),
)
"""These rules come after those of every input, so that a rule of the input can replace them."""


_NO_RULE: Final = Rule(None, None, Action.RETRY)


def rule_of(rules: Sequence[Rule], operator: str, error: str) -> Rule:
    """Return the first rule that matches a cause; without one, a rule that retries.

    The `rules` of the input come before `DEFAULT_RULES`. `operator` is the bolt
    that failed the tuple. `error` is the text of the wire, such as
    ``NoSuchOrder(LookupError)``: the class, and parents of it.
    """
    classes = error_classes(error)
    for rule in (*rules, *DEFAULT_RULES):
        # None in a rule matches any error, or any operator
        if rule.error in (None, *classes) and rule.operator in (None, operator):
            return rule
    return _NO_RULE


class DeadReason(StrEnum):
    """Why a record became a dead letter."""

    ATTEMPTS = "ATTEMPTS"
    """It was lost as often as `attempts` allows."""
    ABANDONED = "ABANDONED"
    """It was abandoned more than `max_abandoned` times."""
    CAUSE = "CAUSE"
    """A rule of `causes` makes a dead letter of it at once."""
    TIME_LIMIT = "TIME_LIMIT"
    """It failed or timed out when its first emission was at least `time_limit` ago."""
    DROPPED = "DROPPED"
    """A rule of `causes` drops it; the dead letter has no payload."""
    GONE = "GONE"
    """The record is no longer in the log; the dead letter has no payload."""
    DAMAGED = "DAMAGED"
    """Its batch is damaged on its broker's disk, and `on_data_loss` is skip; there is no payload."""
    OVERSIZED = "OVERSIZED"
    """It is larger than any reader can handle, and `on_data_loss` is skip; there is no payload."""
    NOT_UNPACKED = "NOT_UNPACKED"
    """Its batch does not unpack, or to more than a reader takes, and `on_data_loss` is skip; no payload."""
    RECREATED = "RECREATED"
    """Its topic was deleted or created again, or its log was cut; the dead letter has no payload."""
    REFUSED = "REFUSED"
    """The broker refuses the copy by the settings of the replay topic, or the client by its own."""
    TOO_LARGE = "TOO_LARGE"
    """The copy with its history would be larger than the replay topic allows."""
    UNWRITABLE = "UNWRITABLE"
    """A name of a header is no UTF-8, which no client can write; the dead letter has a placeholder for it."""
    UNREADABLE = "UNREADABLE"
    """Another program wrote over its entry in `_ack_due`; the dead letter has no payload."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When an input's roots are given up, and how long each waits before a replay; see the rules above.

    Attributes:
        attempts: so many emissions that count are allowed, at least 1.
        max_abandoned: so often a root that was abandoned is replayed.
        time_limit_ms: 0: no limit. Set one if `count_timed_out` is off, or a
            record that always times out is replayed forever.
        rules: of the input; the first one that matches a cause counts.
        hold_ms: blocked roots come back at multiples of this, at least 1.
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
    """A lost emission, and the counts of those before it, this one included.

    Attributes:
        lived_ms: time from the first emission of the record to this verdict.
            The verdict's time counts, not the worker's, so nothing is given up
            because a worker was down for an hour.
        operator: the bolt that failed it; empty if no bolt did.
        error: the exception's class, in the form of the wire.
    """

    reason: LostVerdict
    attempt: int
    abandoned: int = 0
    timed_out: int = 0
    lived_ms: int = 0
    operator: str = ""
    error: str = ""
    blocked: int = 0

    @property
    def is_blocked(self) -> bool:
        """Whether this emission was blocked, so that no bolt has received it."""
        match self.reason:
            case Verdict.FAILED:
                return self.error == HELD
            case Verdict.TIMED_OUT | Verdict.ABANDONED:
                return False
            case _:
                assert_never(self.reason)


@dataclass(frozen=True, slots=True)
class Replay:
    """Emit the record again, not before `due_ms` (wall time)."""

    due_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Write a dead letter, for a reason."""

    reason: DeadReason


Disposition = Replay | GiveUp


def dispose(policy: Policy, lost: LostEmission, now_ms: int, jitter: float) -> Disposition:
    """Decide what becomes of a lost root; `jitter` is a random number in [0, 1).

    The back-off starts at `now_ms`, wall time, so the replay is never early.
    """
    if lost.attempt < 1 or min(lost.abandoned, lost.timed_out, lost.blocked) < 0:
        raise ValueError(f"{lost} cannot be: attempts count from 1, and what was lost from 0")
    if lost.is_blocked:
        # rule 0 of the module: all blocked roots come back at the same time, a
        # multiple of hold_ms
        next_multiple = now_ms // policy.hold_ms + 1
        return Replay(next_multiple * policy.hold_ms)
    rule = _rule_for(policy, lost)
    reason = _reason_to_give_up(policy, rule, lost)
    if reason is not None:
        return GiveUp(reason)
    backoff_failures = _failures(lost)
    if backoff_failures <= 0:
        # a root that was abandoned for the first time, which is not the
        # record's fault
        return Replay(now_ms)
    return Replay(now_ms + delay_ms(rule.backoff or policy.backoff, backoff_failures, jitter))


def _rule_for(policy: Policy, lost: LostEmission) -> Rule:
    """Return the rule for a root's cause; one that retries if it has no cause, or no rule fits it."""
    match lost.reason:
        case Verdict.FAILED:
            return rule_of(policy.rules, lost.operator, lost.error)
        case Verdict.TIMED_OUT | Verdict.ABANDONED:
            return _NO_RULE  # it has no cause, so no rule fits it
        case _:
            assert_never(lost.reason)


def _failures(lost: LostEmission) -> int:
    """Return the failures by which a root's back-off is counted; 0: it is replayed at once.

    Abandonments and failures are counted apart: the back-off of the one does not grow by the other.
    """
    match lost.reason:
        case Verdict.ABANDONED:
            return lost.abandoned - 1  # the first one is replayed at once
        case Verdict.FAILED | Verdict.TIMED_OUT:
            # 1 at least: this loss itself
            return max(1, lost.attempt - lost.abandoned - lost.blocked)
        case _:
            assert_never(lost.reason)


def _reason_to_give_up(policy: Policy, rule: Rule, lost: LostEmission) -> DeadReason | None:
    """Return why a root is given up, by the rules above from 1 to 4; None: it is replayed."""
    if rule.then is not Action.RETRY:  # rule 1
        return DeadReason.DROPPED if rule.then is Action.DROP else DeadReason.CAUSE
    match lost.reason:
        case Verdict.ABANDONED:
            if lost.abandoned > policy.max_abandoned:  # rule 3
                return DeadReason.ABANDONED
            if not policy.count_abandoned:
                return None
        case Verdict.FAILED | Verdict.TIMED_OUT:
            if 0 < policy.time_limit_ms <= lost.lived_ms:  # rule 2; 0 is no limit
                return DeadReason.TIME_LIMIT
        case _:
            assert_never(lost.reason)
    attempts = policy.attempts if rule.attempts is None else rule.attempts  # rule 4
    return DeadReason.ATTEMPTS if _used_attempts(policy, lost) >= attempts else None


def _used_attempts(policy: Policy, lost: LostEmission) -> int:
    """Return how many of its attempts a root has used up: all emissions that count by rule 4.

    That is 1 or more, since the last emission itself counts; only a timed-out
    one may not. Of 5 emissions, of which 2 were abandoned and 1 was blocked,
    2 count by default.
    """
    uncounted = lost.blocked
    if not policy.count_abandoned:
        uncounted += lost.abandoned
    if not policy.count_timed_out:
        uncounted += lost.timed_out
    match lost.reason:
        case Verdict.TIMED_OUT:
            used_min = 1 if policy.count_timed_out else 0
        case Verdict.FAILED | Verdict.ABANDONED:
            used_min = 1
        case _:
            assert_never(lost.reason)
    return max(used_min, lost.attempt - uncounted)
