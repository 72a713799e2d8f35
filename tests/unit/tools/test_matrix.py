"""The program that runs tests on other versions: which tests, what it reads of pytest, the page's rows."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.matrix.checkpoints import faults_of_rows
from tests.matrix.versions import PAGE, PROJECT, QUICK, RING, Outcome, counts_of, with_row

TABLE = """# Limits

| version | tests on it | run |
|---|---|---|
| PySpark 4.0.5 | 10 passed | 2026-11-01 |
| PySpark 4.2.1 | 11 passed | 2026-11-02 |

Text.
"""


def test_the_tests_that_a_version_has_to_pass_exist() -> None:
    files = [name.partition("::")[0] for name in (*QUICK, *RING)]
    assert [name for name in files if not (PROJECT / name).exists()] == []


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("..F.\n1 failed, 12 passed, 3 deselected in 9.10s (0:00:09)\n", "1 failed, 12 passed"),
        ("....\n4 passed, 1 skipped, 2 warnings in 1s\n", "4 passed, 1 skipped"),
        ("ERROR: file or directory not found\n\nno tests ran in 0.01s", ""),
        ("", ""),
    ],
)
def test_the_counts_are_those_of_the_last_line(output: str, counts: str) -> None:
    assert counts_of(output) == counts


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        ("4.0.6", ["4.0.6 | 12 passed | 2026-12-01", "4.2.1 | 11 passed | 2026-11-02"]),
        (
            "4.1.4",
            [
                "4.0.5 | 10 passed | 2026-11-01",
                "4.1.4 | 12 passed | 2026-12-01",
                "4.2.1 | 11 passed | 2026-11-02",
            ],
        ),
        ("4.2.2", ["4.0.5 | 10 passed | 2026-11-01", "4.2.2 | 12 passed | 2026-12-01"]),
        (
            "4.3.0",
            [
                "4.0.5 | 10 passed | 2026-11-01",
                "4.2.1 | 11 passed | 2026-11-02",
                "4.3.0 | 12 passed | 2026-12-01",
            ],
        ),
    ],
)
def test_a_version_has_one_row_of_its_release_in_order(version: str, rows: list[str]) -> None:
    page = with_row(TABLE, Outcome(version, "12 passed", 0), "2026-12-01")
    begin, end = TABLE.index("| PySpark 4.0.5"), TABLE.index("\nText.")
    assert page == TABLE[:begin] + "".join(f"| PySpark {row} |\n" for row in rows) + TABLE[end:]


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    outcome = Outcome("9.9.9", "1 passed", 0)
    assert "| PySpark 9.9.9 | 1 passed | today |\n" in with_row(page, outcome, "today")
    with pytest.raises(ValueError, match="has no table"):
        with_row("# Limits\n", outcome, "today")


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        (["a", "b"], []),
        (["a"], ["'b' is missing 1 times"]),
        (["a", "b", "b"], ["'b' came 1 times too often"]),
        (["a", "b", "c"], ["'c' came 1 times too often"]),
        ([], ["'a' is missing 1 times", "'b' is missing 1 times"]),
    ],
)
def test_a_line_that_is_missing_or_came_too_often_is_a_fault(rows: list[str], faults: list[str]) -> None:
    assert faults_of_rows(Counter(["a", "b"]), Counter(rows)) == faults
