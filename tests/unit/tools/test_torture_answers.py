"""What views answer while a broker is missing, as the torture judges it."""

from __future__ import annotations

import pytest

from tests.torture.judging.answers import LATER_MS, NOTICED_MS, checks
from tests.torture.stage.operator import PAGE, QUESTIONS, Answer

KILLED_MS, BACK_MS = 100_000, 700_000
CALM_MS, MISSING_MS = 50_000, 200_000
NAMED = "broker 2 is missing: 4 partitions have a copy on it"


def answers(**changed: str) -> list[Answer]:
    """Return true answers to each question before and meanwhile; `changed` by `before` or `meanwhile`."""
    calm = changed.get("before", "all is well\n")
    meanwhile = changed.get("meanwhile", f"{NAMED}\nthe rest\n")
    page = f"<p>{meanwhile}</p><h1>inputs</h1>" if "meanwhile" not in changed else meanwhile
    found = [Answer(question, CALM_MS, CALM_MS + 4_000, 0, calm) for question in QUESTIONS]
    return found + [
        Answer(question, MISSING_MS, MISSING_MS + 5_000, 0, page if question == PAGE else meanwhile)
        for question in QUESTIONS
    ]


def fallen(found: list[Answer]) -> list[str]:
    return [check.name for check in checks(found, "broker 2", KILLED_MS, BACK_MS) if not check.passed]


def test_true_answers_pass() -> None:
    assert fallen(answers()) == []


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"meanwhile": "no query lives\nbroker 2 is missing\n"}, "names the missing broker first"),
        ({"meanwhile": "broker 3 is missing\n"}, "names the missing broker first"),
        ({"meanwhile": f"{NAMED}; run `windhover release g`\n"}, "advises what harms"),
        ({"before": f"{NAMED}\n"}, "names a broker that is there"),
        ({"before": "start one with `windhover acker run`\n"}, "advises what harms"),
    ],
)
def test_a_wrong_answer_falls(changed: dict[str, str], rule: str) -> None:
    assert any(rule in name for name in fallen(answers(**changed)))


def test_an_answer_that_comes_late_falls() -> None:
    late = Answer("status", MISSING_MS, MISSING_MS + 4_001 + LATER_MS, 0, NAMED)
    assert fallen([*answers(), late]) == ["each view answers as soon as ever, and 10 s"]


def test_a_view_that_was_not_asked_falls() -> None:
    found = [answer for answer in answers() if answer.question != PAGE or answer.asked_ms < KILLED_MS]
    assert fallen(found) == ["each view was asked before and meanwhile"]


def test_what_is_asked_before_the_others_have_noticed_is_not_judged() -> None:
    early = Answer("status", KILLED_MS + NOTICED_MS - 1, KILLED_MS + NOTICED_MS + 3_000, 0, "all is well")
    assert fallen([*answers(), early]) == []
