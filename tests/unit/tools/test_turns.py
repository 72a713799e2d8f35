"""CI runs tests that take minutes by turns: none of them stays out for more than three days."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs import ROOT
from tests.support.turns import TURNS, turn_of_day

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
    rings = [line for line in script.splitlines() if "pytest" in line and "--ignore=" in line]
    assert len(rings) == 2, "brokers and Spark; what runs alone"
    assert all('--day "$day"' in line for line in rings)


def test_all_run_where_no_day_is_named() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert "--day" not in options
