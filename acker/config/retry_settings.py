"""The section ``retry`` of an input: when a lost root is emitted again, and when no more.

What the keys mean together says `replay.policy.disposition`. Source: docs/design/protocol.md, section 7.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic import field_validator as validates

from acker.config.keys import DurationMs, Ratio, Section, Truth, Whole, duration, key, ratio, whole
from acker.units import UNITS_MS, duration_text

RULES_MAX: Final = 100
"""Rules in one `causes`."""

DELAYS_MAX: Final = 1_000
"""Waits in one `delays`."""

_DAY: Final = UNITS_MS["d"]
_FORMULA: Final = {"initial_ms": "initial", "multiplier": "multiplier", "max_ms": "max"}


_NO_FAILURES: Final = {
    "FAILED": "is what every rule is for; name the class of an exception, or Exception for any",
    "TIMED_OUT": "is no failure, so no rule fits it; count_timed_out and time_limit decide what times out",
    "ABANDONED": "is no failure, so no rule fits it; count_abandoned and max_abandoned decide what a takeover"
    " puts back",
    "ABSENT": "is no failure: there was no record, so it is never replayed; remove the rule",
    "HELD": "is no failure: the record waits its turn, and no rule fits it; hold decides when it looks again",
}
"""Names that stand beside those of exceptions wherever losses are listed, and what decides about them."""


def _error(value: str) -> str:
    if value in _NO_FAILURES:
        raise ValueError(_NO_FAILURES[value])
    if not value.isidentifier():
        raise ValueError("is no name of a class")
    return value


def _operator(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 256:
        raise ValueError("is no name of an operator")
    return value


Delay = Annotated[DurationMs, Field(ge=0, le=7 * _DAY)]


class CauseRule(Section):
    """One rule of ``causes``: what happens to a root that failed so."""

    error: Annotated[str, AfterValidator(_error)] | None = key(range="the name of a class", default=None)
    """Class of the exception, without its module; its subclasses fit as well. FailTuple: an explicit fail
    too. Without it any cause fits, BATCH_SKIPPED and its like too."""
    operator: Annotated[str, AfterValidator(_operator)] | None = key(range="the name of a bolt", default=None)
    """Bolt that failed the tuple. Without it any bolt fits."""
    then: Literal["retry", "dead_letter", "drop"] = key(range="retry, dead_letter or drop")
    """retry: as the policy says; dead_letter: at once; drop: at once, and the dead letter keeps neither
    payload nor headers of the record, only its key and its history."""

    @model_validator(mode="after")
    def _says_when(self) -> CauseRule:
        if self.error is None and self.operator is None:
            raise ValueError("fits everything; give error, operator, or both")
        return self


class Retry(Section):
    """The section ``retry`` of an input."""

    attempts: Whole = whole(5, (1, 1_000_000), "emissions", storm="setRetry(maxRetries) + 1")
    """Emissions of one record in all, the first one counted, before it becomes a dead letter."""
    initial_ms: DurationMs = duration("1s", "0 to 1d", storm="initialDelay")
    """Wait before the second emission."""
    multiplier: Ratio = ratio(2.0, (1, 100), "factor", storm="2, fixed")
    """Factor from each wait to the next."""
    max_ms: DurationMs = duration("5m", "initial to 7d", storm="maxDelay")
    """Longest wait, jitter not counted."""
    delays: tuple[Delay, ...] | None = key(
        unit="duration", range="a list of durations, 0 to 7d, at most attempts - 1 of them", default=None
    )
    """The waits themselves, in place of initial, multiplier and max; the last one is repeated."""
    jitter: Ratio = ratio(0.2, (0, 1), "share")
    """Share of a wait that may be added to it at random; a replay is never early."""
    time_limit_ms: DurationMs = duration(0, "0 to 365d")
    """Time from the first emission on after which the next failure or timeout is the last; 0: none."""
    count_timed_out: Truth = key(range="true or false", default=True)
    """Whether an emission that timed out uses up an attempt. false needs a time_limit."""
    count_abandoned: Truth = key(range="true or false", default=False)
    """Whether an emission whose session was taken over uses up an attempt."""
    max_abandoned: Whole = whole(5, (0, 1_000_000), "takeovers")
    """Times that a record may be open while its session is taken over before it becomes a dead letter;
    counted beside attempts."""
    causes: tuple[CauseRule, ...] = key(range=f"a list of at most {RULES_MAX} rules", default=())
    """Rules for failed roots; the first that fits decides. Behind them stand two of Windhover's own:
    RejectTuple and UnicodeDecodeError are dead letters at once."""

    @validates("max_ms")
    @classmethod
    def _not_below_initial(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("initial_ms", 0):
            raise ValueError(f"is below initial, {duration_text(info.data['initial_ms'])}")
        return value

    @validates("delays")
    @classmethod
    def _no_longer_than_needed(cls, value: tuple[int, ...] | None, info: ValidationInfo) -> object:
        if value is not None and not 1 <= len(value) <= DELAYS_MAX:
            raise ValueError(f"has {len(value)} waits, not 1 to {DELAYS_MAX}")
        waits = info.data.get("attempts", DELAYS_MAX + 1) - 1
        if value is not None and len(value) > waits:
            raise ValueError(f"has {len(value)} waits, and {waits + 1} attempts leave room for {waits}")
        return value

    @validates("count_timed_out")
    @classmethod
    def _somehow_bounded(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("time_limit_ms") == 0:
            raise ValueError("would replay for ever what always times out; set time_limit as well")
        return value

    @validates("causes")
    @classmethod
    def _each_rule_once(cls, value: tuple[CauseRule, ...]) -> tuple[CauseRule, ...]:
        if len(value) > RULES_MAX:
            raise ValueError(f"has {len(value)} rules")
        seen: dict[tuple[str | None, str | None], int] = {}
        for number, rule in enumerate(value):
            first = seen.setdefault((rule.error, rule.operator), number)
            if first != number:
                raise ValueError(f"decides in rule {number} what rule {first} decides already; remove one")
        return value

    @model_validator(mode="after")
    def _list_or_formula(self) -> Retry:
        beside = [name for field, name in _FORMULA.items() if field in self.model_fields_set]
        if self.delays is not None and beside:
            raise ValueError(f"has delays beside {', '.join(beside)}; give the list or the formula")
        return self
