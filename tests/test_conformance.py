"""Every case of ``docs/design/conformance.md`` is named by a test, or says why it does not apply."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.conformance import CASES, NOT_APPLICABLE, NOT_YET

TESTS = Path(__file__).parent
CASE = re.compile(r"\b[SPOD][0-9]{1,4}\b")


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each test, and of each state machine."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                is_test = node.name.startswith("test_")
            else:
                is_test = isinstance(node, ast.ClassDef) and any(
                    ast.unparse(base) == "RuleBasedStateMachine" for base in node.bases
                )
            if is_test and isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{path.relative_to(TESTS)}::{node.name}", ast.get_docstring(node) or ""


NAMED = {case: test for test, text in docstrings() for case in CASE.findall(text)}


def test_each_case_is_in_exactly_one_place() -> None:
    places = {
        case: [
            name
            for name, place in (("a test", NAMED), ("NOT_APPLICABLE", NOT_APPLICABLE), ("NOT_YET", NOT_YET))
            if case in place
        ]
        for case in CASES
    }
    assert {case: found for case, found in places.items() if len(found) != 1} == {}


@pytest.mark.parametrize(
    "place", [NAMED, NOT_APPLICABLE, NOT_YET], ids=["tests", "NOT_APPLICABLE", "NOT_YET"]
)
def test_no_case_is_named_that_does_not_exist(place: dict[str, str]) -> None:
    assert {case: where for case, where in place.items() if case not in CASES} == {}


def test_a_reason_is_one_sentence_and_refers_to_cases_that_tests_name() -> None:
    """A case that leans on another one falls with it."""
    for case, reason in {**NOT_APPLICABLE, **NOT_YET}.items():
        assert reason.strip(), case
        assert "\n" not in reason, case
    assert all(reason.startswith("not built yet: ") for reason in NOT_YET.values())
    assert not any(reason.startswith("not built yet") for reason in NOT_APPLICABLE.values())
    leans = {case: CASE.findall(reason) for case, reason in NOT_APPLICABLE.items() if "as S" not in reason}
    assert {case: on for case, on in leans.items() if not set(on) <= set(NAMED)} == {}


def test_each_case_stands_once_on_the_page() -> None:
    page = (TESTS.parent / "docs/design/conformance.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \*\*([SPOD][0-9]{1,4})\*\*", page, re.MULTILINE)
    assert [case for case, times in Counter(listed).items() if times > 1] == []


def test_the_cases_are_counted() -> None:
    """So that none is lost with a line: S1 to S169 and P1 to P62, as far as they exist."""
    numbers = {letter: [int(case[1:]) for case in CASES if case[0] == letter] for letter in "SP"}
    assert [(len(found), min(found), max(found)) for found in numbers.values()] == [
        (151, 1, 169),
        (54, 1, 62),
    ]
