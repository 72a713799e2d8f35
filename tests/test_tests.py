"""The shape of the tests: what they share, that each of them asserts, and that they use public doors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
RINGS = ("unit", "property", "contract", "limits", "containers", "integration", "e2e")
"""Folders of tests alone; what two of them share lies in `tests/support`."""

ASSERTING_CALLS = re.compile(
    r"pytest\.(raises|warns|fail)|(np|numpy)\.testing\.\w+|expect|page\.wait_for_\w+"
)
"""Calls of libraries that fail the test by themselves; `expect` is Playwright's."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def short(path: Path) -> str:
    return path.relative_to(TESTS.parent).as_posix()


@cache
def imports(path: Path) -> list[str]:
    """Return the full names that a file imports, those within functions and for types alone as well."""
    names = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sorted(set(names))


def called(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls below a node, each with the text of what is called."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            yield ast.unparse(each.func), each


def fails_by_itself(function: Function) -> bool:
    """Whether a function states an expectation in its own body."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Raise) and node.exc is not None and "AssertionError" in ast.unparse(node.exc):
            return True
    return any(ASSERTING_CALLS.fullmatch(name) for name, _ in called(function))


@cache
def functions_near(path: Path) -> dict[str, list[Function]]:
    """Return the functions of a file and of the files of tests that it imports, by their last name."""
    modules = [TESTS.parent / Path(*name.split(".")) for name in imports(path) if name.startswith("tests.")]
    files = [path, *(file for module in modules if (file := module.with_suffix(".py")).is_file())]
    found: dict[str, list[Function]] = {}
    for node in (node for file in files for node in ast.walk(tree_of(file))):
        if isinstance(node, Function):
            found.setdefault(node.name, []).append(node)
    return found


@cache
def asserting_names(path: Path) -> set[str]:
    """Return the names of the functions near a file that assert, each by itself or by what it calls."""
    near = functions_near(path)
    sure: set[str] = set()
    while True:
        more = {
            name
            for name, functions in near.items()
            if all(fails_by_itself(each) or calls_one_of(each, sure) for each in functions)
        }
        if more == sure:
            return sure
        sure = more


def calls_one_of(function: Function, names: set[str]) -> bool:
    return any(name.rpartition(".")[2] in names for name, _ in called(function))


def silent_tests(path: Path) -> list[str]:
    """Return the tests of a file that assert nothing, by themselves or by what they call."""
    return [
        f"{node.name}, line {node.lineno}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function) and node.name.startswith("test")
        if not fails_by_itself(node) and not calls_one_of(node, asserting_names(path))
    ]


def test_no_test_imports_from_another_test_or_from_another_ring() -> None:
    a_test = re.compile(r"tests\.(\w+\.)*(test_\w+|conftest)\b")
    a_ring = re.compile(rf"tests\.({'|'.join(RINGS)})\b")
    wrong = [
        f"{short(path)} imports {name}"
        for path in FILES
        for name in imports(path)
        if a_test.match(name)
        or ((ring := a_ring.match(name)) and ring[1] != path.relative_to(TESTS).parts[0])
    ]
    assert wrong == []


def test_each_test_file_has_a_name_of_its_own() -> None:
    """The rings are run one by one in CI; together, pytest takes the second file of a name for the first."""
    paths_by_name: dict[str, list[str]] = {}
    for path in FILES:
        if path.name.startswith("test_"):
            paths_by_name.setdefault(path.name, []).append(short(path))
    assert [paths for paths in paths_by_name.values() if len(paths) > 1] == []


def test_every_test_asserts() -> None:
    """By itself, or by a function of its file or of `tests/support` that it calls."""
    files = [path for path in FILES if path.name.startswith("test_")]
    assert [f"{short(path)}: {test}" for path in files for test in silent_tests(path)] == []


@pytest.mark.parametrize(
    ("called", "asserts"),
    [
        ("pass", False),
        ("assert x", True),
        ("look()\ndef look():\n    raise AssertionError('no')", True),
        ("look()\ndef look():\n    return 1", False),
        ("expect(page).to_have_text('x')", True),
    ],
)
def test_an_assertion_counts_behind_a_call_as_well(tmp_path: Path, called: str, asserts: bool) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(f"def test_x():\n    run()\ndef run():\n    {called}\n")
    assert silent_tests(path) == ([] if asserts else ["test_x, line 1"])


PATCHING = re.compile(r"(monkeypatch\.)?(setattr|delattr)|(mock\.)?patch(\.object|\.multiple)?")
PRIVATE = re.compile(r"(^|\.)_(?!_)")


def patched_names(call: ast.Call) -> list[str]:
    """Return the names that a patching call replaces, as far as they stand in it as text."""
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    return [each for each in (*texts, *map(ast.unparse, call.args[:1])) if isinstance(each, str)]


def test_no_test_patches_what_is_private() -> None:
    """What only a patch can reach lacks a parameter."""
    wrong = [
        f"{short(path)}:{call.lineno}: {ast.unparse(call)}"
        for path in FILES
        for name, call in called(tree_of(path))
        if PATCHING.fullmatch(name) and any(PRIVATE.search(each) for each in patched_names(call))
    ]
    assert wrong == []


def test_no_test_sleeps() -> None:
    """It waits for a condition: `tests.support.waiting`."""
    wrong = [
        f"{short(path)}:{call.lineno}"
        for path in FILES
        for name, call in called(tree_of(path))
        if name == "time.sleep" and (path.name.startswith("test_") or "support" in path.parts)
    ]
    assert wrong == []
