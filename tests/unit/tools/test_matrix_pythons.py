"""The tests that another version of Python runs, and the rows of it in the page."""

from __future__ import annotations

import pytest

from tests.matrix.pythons import ON_SPARK, WITHOUT_SERVER, with_python_row
from tests.matrix.versions import PAGE, PROJECT, Outcome, with_row

HEADER = "| version | tests on it | run |\n|---|---|---|\n"
SPARK = "| PySpark 4.0.5 | 10 passed | 2026-11-01 |\n"
OLD = "| Python 3.9.1 | 9 passed | 2026-11-01 |\n"
NEW = "| Python 3.12.1 | 12 passed | 2026-11-02 |\n"
BEFORE, BEHIND = "# Limits\n\n", "\nText.\n\n| other | table |\n|---|---|\n| Python 3.12 | stays |\n"


def row(version: str) -> str:
    return f"| Python {version} | 13 passed | 2026-12-01 |\n"


@pytest.mark.parametrize(
    ("rows", "version", "expected"),
    [
        (SPARK, "3.13.0", SPARK + row("3.13.0")),
        (SPARK + OLD + NEW, "3.13.0", SPARK + OLD + NEW + row("3.13.0")),
        (SPARK + OLD + NEW, "3.12.4", SPARK + OLD + row("3.12.4")),
        (SPARK + OLD + NEW, "3.10.2", SPARK + OLD + row("3.10.2") + NEW),
        (SPARK + OLD + NEW, "3.9.9", SPARK + row("3.9.9") + NEW),
        ("", "3.13.0", row("3.13.0")),
    ],
)
def test_a_python_has_one_row_of_its_release_in_order_behind_those_of_spark(
    rows: str, version: str, expected: str
) -> None:
    page = BEFORE + HEADER + rows + BEHIND
    outcome = Outcome(version, "13 passed", 0)
    assert with_python_row(page, outcome, "2026-12-01") == BEFORE + HEADER + expected + BEHIND


def test_rows_of_spark_and_of_pythons_leave_each_other_alone() -> None:
    page = BEFORE + HEADER + SPARK + NEW + BEHIND
    with_both = with_row(page, Outcome("4.1.4", "11 passed", 0), "2026-12-01")
    assert (
        with_both == BEFORE + HEADER + SPARK + "| PySpark 4.1.4 | 11 passed | 2026-12-01 |\n" + NEW + BEHIND
    )
    assert with_python_row(with_both, Outcome("3.12.1", "12 passed", 0), "2026-11-02") == with_both


def test_the_page_has_the_table_and_the_project_the_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "| Python 9.9.9 | 1 passed | today |\n" in with_python_row(
        page, Outcome("9.9.9", "1 passed", 0), "today"
    )
    with pytest.raises(ValueError, match="no table"):
        with_python_row(BEFORE, Outcome("9.9.9", "1 passed", 0), "today")
    files = [name.partition("::")[0] for name in (*WITHOUT_SERVER, *ON_SPARK)]
    assert [name for name in files if not (PROJECT / name).exists()] == []
