"""What becomes of a failed root by its cause: the first matching rule of an ordered list decides.

A rule matches by the exception's class or one of its parent classes, by the bolt that failed the tuple, or by
both. `DEFAULT_RULES` follow the rules of the input. If no rule matches, the root's policy decides.

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
    """What a rule does with the root; the values are those of topics.yaml."""

    RETRY = "retry"
    """The policy decides whether to replay it."""
    DEAD_LETTER = "dead_letter"
    """It becomes a dead letter at once."""
    DROP = "drop"
    """It is given up at once; a dead letter without payload remains as a note."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. If `error` or `operator` is None, it matches any."""

    error: str | None
    operator: str | None
    then: Action


DEFAULT_RULES: Final = (
    Rule("RejectTuple", None, Action.DEAD_LETTER),
    # a payload that cannot be decoded now cannot be decoded later
    Rule("UnicodeDecodeError", None, Action.DEAD_LETTER),
)
"""These rules come after those of every input, so that a rule of the input can replace them."""


def action_of(rules: Sequence[Rule], operator: str, error: str) -> Action:
    """Return the action of the first rule that matches a cause; RETRY if none does.

    Args:
        rules: the rules of the input; `DEFAULT_RULES` follow.
        operator: the bolt that failed the tuple.
        error: the exception's class, in the form of the wire.
    """
    classes = error_classes(error)
    for rule in (*rules, *DEFAULT_RULES):
        if rule.error in (None, *classes) and rule.operator in (None, operator):
            return rule.then
    return Action.RETRY
