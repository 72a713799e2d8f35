"""Whether what the views answered while a broker was missing is true, soon enough, and harms nobody; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from spout.demo.judge import Check
from tests.torture.stage.operator import PAGE, QUESTIONS, Answer

NOTICED_MS: Final = 15_000
"""For 9 s (`broker.session.timeout.ms`) the other brokers count on one that is gone; then views name it."""

LATER_MS: Final = 10_000
"""An answer may take so much longer than the slowest one with all brokers: 5 s, twice for a busy machine."""

HARMFUL: Final = ("`windhover release", "`windhover acker run", "`windhover replay run")
"""Advice that is wrong while everybody lives."""


def checks(answers: Sequence[Answer], name: str, killed_ms: int, back_ms: int) -> list[Check]:
    """Judge.

    Args:
        answers: of the whole run.
        name: of the broker, as views have it: ``broker 2``.
        killed_ms, back_ms: wall times between which it was missing.
    """
    before = [answer for answer in answers if answer.answered_ms < killed_ms]
    during = [a for a in answers if killed_ms + NOTICED_MS <= a.asked_ms and a.answered_ms < back_ms]
    slowest_ms: dict[str, int] = {}
    for answer in before:
        slowest_ms[answer.question] = max(slowest_ms.get(answer.question, 0), _took_ms(answer))
    not_asked = set(QUESTIONS) - {answer.question for answer in during} & slowest_ms.keys()
    return [
        Check("each view was asked before and meanwhile", not not_asked, ", ".join(sorted(not_asked))),
        _check("each view names the missing broker first", [a for a in during if not _names_first(a, name)]),
        _check("no view advises what harms somebody who lives", [a for a in answers if _is_harmful(a)]),
        _check("no view names a broker that is there", [a for a in before if "is missing" in a.text]),
        _check(
            "each view answers as soon as ever, and 10 s",
            [a for a in during if _took_ms(a) > slowest_ms.get(a.question, 0) + LATER_MS],
        ),
    ]


def _took_ms(answer: Answer) -> int:
    return answer.answered_ms - answer.asked_ms


def _names_first(answer: Answer, name: str) -> bool:
    words = f"{name} is missing"
    if answer.question == PAGE:
        return words in answer.text.partition("<h1")[0]
    return words in answer.text.partition("\n")[0]


def _is_harmful(answer: Answer) -> bool:
    return any(advice in answer.text for advice in HARMFUL)


def _check(rule: str, broken_by: Iterable[Answer]) -> Check:
    found = [f"{answer.question} at {answer.asked_ms}: {answer.text[:300]!r}" for answer in broken_by]
    return Check(rule, not found, "; ".join(found[:3]))
