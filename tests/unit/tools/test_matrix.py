"""The program that runs tests on other versions: which tests, and what it reads of pytest."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.matrix.checkpoints import faults_of_rows
from tests.matrix.versions import PROJECT, QUICK, RING, counts_of


def test_the_tests_that_a_version_has_to_pass_exist() -> None:
    files = [name.partition("::")[0] for name in (*QUICK, *RING)]
    assert [name for name in files if not (PROJECT / name).exists()] == []


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("..F.\n1 failed, 12 passed, 3 deselected in 9.10s (0:00:09)\n", "1 failed, 12 passed"),
        ("....\n4 passed, 1 skipped, 2 warnings in 1s\n", "4 passed, 1 skipped"),
        ("ERROR: file or directory not found\n\nno tests ran in 0.01s", ""),
        ("..x.\n3 passed, 1 xfailed in 1.00s", "3 passed, 1 xfailed"),
        ("..X.\n1 failed, 2 passed, 1 xpassed in 1.00s", "1 failed, 2 passed, 1 xpassed"),
        ("", ""),
    ],
)
def test_the_counts_are_those_of_the_last_line(output: str, counts: str) -> None:
    assert counts_of(output) == counts


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
