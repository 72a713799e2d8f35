"""The section ``retry`` of an input: when a lost root is emitted again, and when no more.

What the keys mean together says `replay.policy.disposition`. Source: docs/design/protocol.md,
section 7.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic import field_validator as validates

from acker.config.keys import (
    DurationMs,
    Ratio,
    Section,
    Truth,
    Whole,
    WholeOrNone,
    duration,
    key,
    ratio,
    whole,
)
from acker.units import UNITS_MS, duration_text
from acker.wire.causes import HELD
from acker.wire.verdict import Verdict

RULES_MAX: Final = 100
"""Rules in one `causes`."""

DELAYS_MAX: Final = 1_000
"""Waits in one `delays`."""

_DAY: Final = UNITS_MS["d"]
_KEY_BY_FORMULA_FIELD: Final = {
    "initial_ms": "initial",
    "multiplier": "multiplier",
    "max_ms": "max",
}


_NO_FAILURES: Final[Mapping[str, str]] = {
    Verdict.FAILED: "is what every rule is for; name the class of an exception, or Exception for any",
    Verdict.TIMED_OUT: "is no failure, so no rule fits it; count_timed_out and time_limit decide what times"
    " out",
    Verdict.ABANDONED: "is no failure, so no rule fits it; count_abandoned and max_abandoned decide what a"
    " takeover puts back",
    Verdict.ABSENT: "is no failure: there was no record, so it is never replayed; remove the rule",
    HELD: "is no failure: the record waits its turn, and no rule fits it; hold decides when it looks again",
}
"""Names that stand beside those of exceptions wherever losses are listed, and what decides about them."""


def _error(value: str) -> str:
    """Return the class of an error; raise `ValueError` if no failed record can have it."""
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
Initial = Annotated[DurationMs, Field(ge=0, le=_DAY)]
Factor = Annotated[Ratio, Field(ge=1, le=100, allow_inf_nan=False)]

_SCHEDULE_FIELDS: Final = ("attempts", "initial_ms", "multiplier", "max_ms", "delays")
"""What a rule may have of its own."""


class CauseRule(Section):
    """One rule of ``causes``: what happens to a root that failed so."""

    error: Annotated[str, AfterValidator(_error)] | None = key(
        range="the name of a class", example="ConnectionError", default=None
    )
    """The class of the exception, without its module. Its subclasses fit, too. `FailTuple` fits
    what a bolt failed by `fail`, too. Without this key every cause fits, for example
    `BATCH_SKIPPED`."""
    operator: Annotated[str, AfterValidator(_operator)] | None = key(
        range="the name of a bolt", example="geocode", default=None
    )
    """The bolt that failed the tuple. Without this key every bolt fits."""
    then: Literal["retry", "dead_letter", "drop"] = key(
        range="retry, dead_letter or drop", example="dead_letter"
    )
    """What happens to the root. `retry`: it is replayed by the keys of this rule and of `retry`.
    `dead_letter`: it becomes a dead letter at once. `drop`: the same, but the dead letter keeps
    only key and history of the record, neither payload nor headers."""
    attempts: WholeOrNone = whole(None, (1, 1_000_000), "emissions", "50")
    """At how many emissions a root that fails for this cause becomes a dead letter, if `then` is
    `retry`. Without this key the input's `retry` decides. The same holds for the four keys below.
    """
    initial_ms: Initial | None = key(
        unit="duration", range="a duration, 0 to 1d", example="10s", default=None
    )
    """The wait before the second emission, if `then` is `retry`. Every lost emission makes the
    next wait longer, whatever its cause was."""
    multiplier: Factor | None = key(unit="factor", range="a number, 1 to 100", example="1.5", default=None)
    """The factor from each wait to the next, if `then` is `retry`."""
    max_ms: Delay | None = key(unit="duration", range="a duration, initial to 7d", example="1h", default=None)
    """The longest wait, without its jitter, if `then` is `retry`."""
    delays: tuple[Delay, ...] | None = key(
        unit="duration",
        range="a list of durations, 0 to 7d, at most attempts - 1 of them",
        example="[1s, 1m, 1h]",
        default=None,
    )
    """The waits one by one, in place of `initial`, `multiplier` and `max`, if `then` is `retry`."""

    @model_validator(mode="after")
    def _says_when(self) -> CauseRule:
        """Return the rule; raise `ValueError` if it names neither an error nor an operator."""
        if self.error is None and self.operator is None:
            raise ValueError("fits everything; give error, operator, or both")
        return self

    @model_validator(mode="after")
    def _schedules_what_it_retries(self) -> CauseRule:
        """Return the rule; raise `ValueError` if it has a schedule and replays nothing."""
        keys_set = [name.removesuffix("_ms") for name in _SCHEDULE_FIELDS if getattr(self, name) is not None]
        if keys_set and self.then != "retry":
            raise ValueError(
                f"has {', '.join(keys_set)} beside then: {self.then}, which replays nothing;"
                " write then: retry, or remove it"
            )
        return self


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """How often a root is emitted, and how long it waits between; `delays` empty: by the formula."""

    attempts: int
    initial_ms: int
    multiplier: float
    max_ms: int
    jitter: float
    delays: tuple[int, ...]


class Retry(Section):
    """The section ``retry`` of an input."""

    attempts: Whole = whole(10, (1, 1_000_000), "emissions", "5", storm="setRetry(maxRetries) + 1")
    """How often a record is emitted, the first time included, before it becomes a dead letter. The
    waits between the ten emissions of the default are 1 s, 2 s, 4 s and so on to 256 s, together
    511 s. So a service may be away for eight minutes."""
    initial_ms: DurationMs = duration("1s", "0 to 1d", "5s", storm="initialDelay")
    """The wait before the second emission."""
    multiplier: Ratio = ratio(2.0, (1, 100), "factor", "1.5", storm="2, fixed")
    """The factor from each wait to the next."""
    max_ms: DurationMs = duration("5m", "initial to 7d", "1h", storm="maxDelay")
    """The longest wait, without its jitter."""
    delays: tuple[Delay, ...] | None = key(
        unit="duration",
        range="a list of durations, 0 to 7d, at most attempts - 1 of them",
        example="[1s, 30s, 10m]",
        default=None,
    )
    """The waits one by one, in place of `initial`, `multiplier` and `max`. If the list is too
    short, its last wait is repeated."""
    jitter: Ratio = ratio(0.2, (0, 1), "share", "0.5")
    """Up to this share of a wait is added to it at random. A replay never comes early."""
    time_limit_ms: DurationMs = duration(0, "0 to 365d", "1d")
    """How long after its first emission a record may be emitted again. The next failure or timeout
    after this time makes it a dead letter. 0: no limit."""
    count_timed_out: Truth = key(range="true or false", example="false", default=True)
    """Whether an emission that timed out uses up an attempt. `false` needs a `time_limit`."""
    count_abandoned: Truth = key(range="true or false", example="true", default=False)
    """Whether an emission that a takeover of the group abandoned uses up an attempt."""
    max_abandoned: Whole = whole(5, (0, 1_000_000), "takeovers", "20")
    """How many takeovers of the group may abandon a record. One more makes it a dead letter. This
    is counted beside `attempts`."""
    causes: tuple[CauseRule, ...] = key(
        range=f"a list of at most {RULES_MAX} rules",
        example="[{error: ValidationError, then: dead_letter}]",
        default=(),
    )
    """Rules for roots that failed. The first rule that fits decides. Windhover's own rules come
    last: `RejectTuple`, `UnicodeDecodeError`, `ModuleNotFoundError`, `SyntaxError` and
    `TupleError` become dead letters at once."""

    @validates("max_ms")
    @classmethod
    def _not_below_initial(cls, value: int, info: ValidationInfo) -> int:
        """Raise `ValueError` if the longest wait is shorter than the first one."""
        if value < info.data.get("initial_ms", 0):
            raise ValueError(f"is below initial, {duration_text(info.data['initial_ms'])}")
        return value

    @validates("delays")
    @classmethod
    def _no_longer_than_needed(cls, value: tuple[int, ...] | None, info: ValidationInfo) -> object:
        """Return the list of waits.

        Raises `ValueError` if it has more than there can be between emissions.
        """
        # `attempts` is missing if it was refused: then no list is too long for it
        flaw = _wrong_waits(value, info.data.get("attempts", DELAYS_MAX + 1))
        if flaw:
            raise ValueError(flaw)
        return value

    @validates("count_timed_out")
    @classmethod
    def _somehow_bounded(cls, value: bool, info: ValidationInfo) -> bool:
        """Raise `ValueError` if neither attempts nor a time limit end the replays of what times out."""
        if not value and info.data.get("time_limit_ms") == 0:
            raise ValueError("would replay for ever what always times out; set time_limit as well")
        return value

    @validates("causes")
    @classmethod
    def _each_rule_once(cls, value: tuple[CauseRule, ...]) -> tuple[CauseRule, ...]:
        """Return the rules.

        Raises `ValueError` if there are too many, or two for one error and operator.
        """
        if len(value) > RULES_MAX:
            raise ValueError(f"has {len(value)} rules")
        # the number of the first rule for an error and operator
        first_numbers: dict[tuple[str | None, str | None], int] = {}
        for number, rule in enumerate(value):
            earlier = first_numbers.setdefault((rule.error, rule.operator), number)
            if earlier != number:
                raise ValueError(f"decides in rule {number} what rule {earlier} decides already; remove one")
        return value

    @model_validator(mode="after")
    def _list_or_formula(self) -> Retry:
        """Raise `ValueError` if the waits are given both as a list and by the formula."""
        flaw = _list_beside_formula(self.delays, self.model_fields_set)
        if flaw:
            raise ValueError(flaw)
        return self

    @model_validator(mode="after")
    def _schedules_agree(self) -> Retry:
        """Raise `ValueError` if the schedule of a rule contradicts itself or the input's."""
        for number, rule in enumerate(self.causes):
            flaw = _disagreement(rule, self.schedule_of(rule))
            if flaw:
                raise ValueError(f"has a rule {number} in causes that {flaw}")
        return self

    def schedule_of(self, rule: CauseRule) -> RetrySchedule:
        """Return how often and when a root is replayed that `rule` applies to.

        A key that the rule leaves out has the value of the input's `retry`.
        """
        values = {name: getattr(rule, name) for name in _SCHEDULE_FIELDS}
        # None: the rule leaves the key out
        fields_of_rule = {name: value for name, value in values.items() if value is not None}
        has_formula = not _KEY_BY_FORMULA_FIELD.keys().isdisjoint(fields_of_rule)
        # A rule with a formula of its own (initial, multiplier, max) does not use the input's
        # list of waits. If the rule has a list, too, the list stays: `_disagreement` refuses
        # such a rule.
        if has_formula:
            fields_of_rule.setdefault("delays", ())
        return replace(self.schedule, **fields_of_rule)

    @property
    def schedule(self) -> RetrySchedule:
        """When a root is replayed that no rule speaks of."""
        return RetrySchedule(
            self.attempts, self.initial_ms, self.multiplier, self.max_ms, self.jitter, self.delays or ()
        )

    @property
    def attempts_max(self) -> int:
        """Emissions of one record at most, whichever rules fit it."""
        return max(schedule.attempts for schedule in self.schedules)

    @property
    def schedules(self) -> tuple[RetrySchedule, ...]:
        """The input's schedule, and those of its rules that replay."""
        replaying_rules = [rule for rule in self.causes if rule.then == "retry"]
        return (self.schedule, *map(self.schedule_of, replaying_rules))


def _disagreement(rule: CauseRule, schedule: RetrySchedule) -> str:
    """Return what is wrong with when a rule of `causes` replays; empty: nothing.

    `schedule` is the rule's own, completed by what it takes from its input.
    """
    formula_of_rule = {name for name in _KEY_BY_FORMULA_FIELD if getattr(rule, name) is not None}
    flaw = _list_beside_formula(rule.delays, formula_of_rule) or _wrong_waits(rule.delays, schedule.attempts)
    if flaw:
        return flaw
    if not schedule.delays and schedule.max_ms < schedule.initial_ms:
        longest, initial = duration_text(schedule.max_ms), duration_text(schedule.initial_ms)
        return f"has max {longest} below initial {initial}; give both"
    return ""


def _list_beside_formula(delays: tuple[int, ...] | None, fields_set: Collection[str]) -> str:
    """Return what is wrong with a list of waits beside a formula; empty if one of them is missing.

    `fields_set` are the fields that the file sets; those of the formula are the keys of
    `_KEY_BY_FORMULA_FIELD`.
    """
    keys_beside = [key for name, key in _KEY_BY_FORMULA_FIELD.items() if name in fields_set]
    if delays is None or not keys_beside:
        return ""
    return f"has delays beside {', '.join(keys_beside)}; give the list or the formula"


def _wrong_waits(delays_ms: tuple[int, ...] | None, attempts_max: int) -> str:
    """Return what is wrong with the waits between the emissions of a record; empty if nothing is.

    It is emitted `attempts_max` times at most. `delays_ms` None: there is no list of waits.
    """
    if delays_ms is None:
        return ""
    if not 1 <= len(delays_ms) <= DELAYS_MAX:
        return f"has {len(delays_ms)} waits, not 1 to {DELAYS_MAX}"
    waits_max = attempts_max - 1  # one between two emissions
    if len(delays_ms) > waits_max:
        return f"has {len(delays_ms)} waits, and {attempts_max} attempts leave room for {waits_max}"
    return ""
