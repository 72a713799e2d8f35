"""CI runs what takes minutes by turns, and the quick tests have a sample of each large grid."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from math import gcd
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.programs import ROOT
from tests.support.turns import TURNS, beyond_sample, turn_of_day

NAMES = st.sets(st.text("abc[]", min_size=1, max_size=4))


@given(NAMES, st.integers(0, 40_000))
def test_each_test_runs_on_one_of_three_days_in_a_row(names: set[str], day: int) -> None:
    by_day = [turn_of_day(names, day + later) for later in range(TURNS)]
    assert sorted(name for names_of_day in by_day for name in names_of_day) == sorted(names)


@given(NAMES, st.integers(0, 40_000))
def test_no_day_has_more_than_its_share(names: set[str], day: int) -> None:
    assert len(turn_of_day(names, day)) <= len(names) // TURNS + 1


def test_cases_of_one_test_run_on_different_days() -> None:
    cases = ["kill[kafka]", "kill[postgres]", "kill[sqlite]"]
    assert [turn_of_day(cases, day) for day in range(TURNS)] == [{case} for case in cases]


def test_ci_gives_the_day_to_the_rings_that_have_such_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    rings = [line for line in script.splitlines() if "pytest -n" in line]
    assert len(rings) == 3, "without a server; brokers and Spark; what runs alone"
    assert all('--day "$day"' in line for line in rings)


def test_all_run_where_no_day_is_named() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert "--day" not in options


@given(st.integers(1, 40), st.integers(3, 40), st.integers(2, 5))
def test_a_sample_has_every_row_and_every_column(rows: int, columns: int, every: int) -> None:
    """If the grid has at least as many rows as the sample is thin, and no row ends where it began."""
    assume(columns % every and gcd(columns, every) == 1 and rows >= every and columns >= every)
    left_out = set(beyond_sample(rows * columns, every))
    kept = [divmod(place, columns) for place in range(rows * columns) if place not in left_out]
    assert {row for row, _ in kept} == set(range(rows))
    assert {column for _, column in kept} == set(range(columns))
    assert len(kept) <= rows * columns // every + 1


@pytest.mark.parametrize("every", [1, 0, -3])
def test_a_sample_of_all_is_refused(every: int) -> None:
    with pytest.raises(ValueError, match=f"every {every}. case is no sample"):
        beyond_sample(9, every)


@pytest.mark.slow
def test_each_sampled_grid_has_every_value_of_every_parameter() -> None:
    """Else a topic or a kind of record would run with the slow tests alone.

    A grid is a function with two or more `parametrize`; of the cases of a single one some must be left out.
    """
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.sample(" in path.read_text()]
    grids = set().union(*map(grids_of, files))
    assert len(files) >= 2
    command = [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-q"]
    ids = {
        marks: subprocess.run(
            [*command, "-m", marks, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for marks in ("sample", "sample and not slow")
    }
    sampled = {case for case in values_of(ids["sample and not slow"]) if case[0] in grids}
    assert {case for case in values_of(ids["sample"]) if case[0] in grids} - sampled == set()
    assert sampled
    assert 0 < len(ids["sample and not slow"]) < len(ids["sample"]) / 2


def values_of(node_ids: list[str]) -> set[tuple[str, str]]:
    """Return each function with each value: ``test_x[a-b]`` gives ``(test_x, a)`` and ``(test_x, b)``."""
    cases = [node_id.partition("[")[::2] for node_id in node_ids if "[" in node_id]
    return {(function, value) for function, values in cases for value in values.rstrip("]").split("-")}


def grids_of(path: Path) -> set[str]:
    """Return the functions of a file that two or more `parametrize` make a grid, as pytest names them."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        f"{path.relative_to(ROOT)}::{function.name}"
        for function in functions
        if sum("parametrize" in ast.unparse(mark) for mark in function.decorator_list) > 1
    }
