"""Planted bugs: each fits into today's code, and its test falls with it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from acker.errors import UsageError
from spout.cli.main import run
from tests.mutants.__main__ import app
from tests.mutants.mutant import Misplanted, Mutant
from tests.mutants.run import PROJECT, Fate, Tree, copied_tree
from tests.mutants.table import MUTANTS


def test_mutants_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
    assert len(names) >= 60


@cache
def functions_of(file: str) -> frozenset[str]:
    """Return the names of a test file's functions; it is read once for all bugs that name it."""
    tests = ast.parse((PROJECT / file).read_text(encoding="utf-8")).body
    return frozenset(node.name for node in tests if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_fits_into_the_code_once_and_names_a_test(mutant: Mutant) -> None:
    planted = mutant.planted(PROJECT)
    if mutant.file.endswith(".py"):  # else it is a query
        ast.parse(planted)
    file, _, name = mutant.test.partition("::")
    assert name in functions_of(file), mutant.test


def test_a_planted_bug_uses_only_names_that_there_are(tmp_path: Path) -> None:
    """Else every test falls, by a name that a refactoring has taken away, and the bug shows nothing."""
    for mutant in MUTANTS:
        if mutant.file.endswith(".py"):
            (tmp_path / f"{mutant.name}.py").write_text(mutant.planted(PROJECT), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F823", "--quiet"]
    checked = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def own_attributes(text: str) -> set[str]:
    """Return the names that stand behind `self.`, and those of functions and of fields of classes."""
    names = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
            names |= {field.id for field in fields if isinstance(field, ast.Name)}
    return names


@cache
def own_attributes_of(file: str) -> set[str]:
    """Return those of a file as it is, which is read once for all its bugs."""
    return own_attributes((PROJECT / file).read_text(encoding="utf-8"))


@pytest.mark.sample(7)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_uses_only_attributes_that_there_are(mutant: Mutant) -> None:
    if mutant.file.endswith(".py"):
        assert own_attributes(mutant.planted(PROJECT)) <= own_attributes_of(mutant.file)


@pytest.mark.parametrize("text", ["", "x = 1\nx = 1\n"])
def test_a_bug_that_cannot_be_planted_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "code.py").write_text(text)
    mutant = Mutant("a-rule", "code.py", "x = 1", "x = 2", "test.py::test", "")
    with pytest.raises(Misplanted, match=rf"mutant a-rule: code.py .* {text.count('x')} times, not once"):
        mutant.planted(tmp_path)


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    """A copy of the project."""
    with copied_tree() as copy:
        yield copy


@pytest.mark.slow
@pytest.mark.by_turns
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_test_falls_with_a_planted_bug(mutant: Mutant, tree: Tree) -> None:
    verdict = tree.judge(mutant)
    assert verdict.fate is Fate.FELL, f"{verdict}\n{verdict.output}"


@pytest.mark.slow
def test_a_bug_that_breaks_nothing_survives_and_the_tree_is_as_before(tree: Tree) -> None:
    harmless = MUTANTS[0]._replace(name="harmless", new=f"{MUTANTS[0].old}  # still")
    verdict = tree.judge(harmless)
    assert verdict.fate is Fate.SURVIVED
    assert "harmless" in str(verdict)
    assert "mend the test" in str(verdict)
    assert tree.judge(MUTANTS[0]).fate is Fate.FELL


@pytest.mark.slow
def test_a_test_that_is_not_there_is_an_error(tree: Tree) -> None:
    lost = MUTANTS[0]._replace(test="tests/unit/acker/test_identity.py::test_of_nobody")
    assert tree.judge(lost).fate is Fate.ERROR


def test_the_list_shows_every_mutant_and_an_unknown_name_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--list"], app, "mutants") == 0
    shown = capsys.readouterr().out
    assert [mutant.name for mutant in MUTANTS if mutant.name not in shown] == []
    assert run(["--only", "nobody"], app, "mutants") == UsageError.exit_code
    assert "there is no mutant 'nobody'" in capsys.readouterr().err
