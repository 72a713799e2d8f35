"""What the cause of a failure says must happen: rules in order, of which the first that fits decides.

A rule fits by the exception's class, or one of its parents, by the bolt that failed the tuple, or by both.
Behind the rules of an input stand those of `DEFAULT_RULES`. Without a rule that fits, a root is retried as
its policy says.

Source: docs/design/protocol.md, section 5.4; Spring Kafka's fatal exceptions, JetStream's ``AckTerm``,
Kafka's REJECT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acker.wire.causes import error_classes


class Action(StrEnum):
    """What a rule lets happen; the values are those of topics.yaml."""

    RETRY = "retry"
    """Replay it as the policy says."""
    DEAD_LETTER = "dead_letter"
    """Keep it as a dead letter at once."""
    DROP = "drop"
    """Give it up at once, and keep a note without its payload."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. An `error` or an `operator` of None fits any."""

    error: str | None
    operator: str | None
    then: Action


DEFAULT_RULES: Final = (
    Rule("RejectTuple", None, Action.DEAD_LETTER),
    # what cannot be decoded now cannot be decoded later
    Rule("UnicodeDecodeError", None, Action.DEAD_LETTER),
)
"""They stand behind the rules of every input, so that a rule of its own can say otherwise."""


def action_of(rules: Sequence[Rule], operator: str, error: str) -> Action:
    """Return what the first rule that fits a cause says.

    Args:
        rules: of the input; `DEFAULT_RULES` follow.
        operator: who failed the tuple.
        error: the exception's class as the wire has it.
    """
    classes = error_classes(error)
    for rule in (*rules, *DEFAULT_RULES):
        if rule.error in (None, *classes) and rule.operator in (None, operator):
            return rule.then
    return Action.RETRY
