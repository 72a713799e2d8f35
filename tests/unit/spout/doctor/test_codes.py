"""The table of codes, the page that explains them, and how a result is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spout.doctor.codes import CODES, JAVA, PAGE, PYTHON, CheckCode, CheckHealth, closing_line

ROOT = Path(__file__).resolve().parents[4]
SECTION = re.compile(r"^### (WH\d{3})\n(.+?)\. ", re.M)


def test_the_page_has_a_section_for_each_code_with_its_title_and_no_other() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert SECTION.findall(page) == [(each.code, each.title) for each in CODES]


def test_codes_are_unique_and_in_order() -> None:
    names = [each.code for each in CODES]
    assert names == sorted(set(names))


@pytest.mark.parametrize("each", CODES, ids=lambda each: each.code)
def test_each_code_is_caused_by_a_test(each: CheckCode) -> None:
    """A test names the constant of the code where it asserts that the check does not hold."""
    here = Path(__file__).resolve()
    files = [*here.parent.glob("test_*.py"), *(ROOT / "tests" / "integration").rglob("test_doctor*.py")]
    constants = (ROOT / "spout" / "doctor" / "codes.py").read_text(encoding="utf-8")
    found = re.search(rf'^(\w+): Final = CheckCode\(\s*"{each.code}"', constants, re.M)
    assert found is not None
    causes = re.compile(rf"\({found[1]}, CheckHealth\.(FAILED|WARNING)")
    assert any(causes.search(path.read_text(encoding="utf-8")) for path in files if path != here)


def test_a_result_that_holds_is_one_line() -> None:
    assert PYTHON.ok("/usr/bin/python3", "3.12.1").lines() == [
        "ok       WH001 Python, /usr/bin/python3: 3.12.1"
    ]


def test_a_result_that_fails_has_what_is_expected_the_cure_and_the_page() -> None:
    assert JAVA.failed("this machine", "none\nat all").lines() == [
        "failed   WH003 Java, this machine: none",
        "         at all",
        "         expected: Java 17, 21 or 25",
        "         cure: apt-get install openjdk-17-jre-headless",
        "         docs: docs/operate/doctor.md#wh003",
    ]


def test_what_could_not_be_told_is_a_result_with_its_reason() -> None:
    found = JAVA.unknown("this machine", "nobody may start it")
    assert found.health is CheckHealth.UNKNOWN
    assert found.lines() == ["unknown  WH003 Java, this machine: could not tell: nobody may start it"]


def test_the_closing_line_counts_each_kind() -> None:
    results = [PYTHON.ok("a", "1"), JAVA.unknown("b", "why"), JAVA.failed("c", "2"), JAVA.failed("d", "2")]
    assert closing_line(results) == "4 checks: 1 ok, 0 warning, 2 failed, 1 unknown"
