"""Text of others reaches a sentence by `Untrusted` alone, and a view by one function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
ROOMS = ("spout/inspect", "spout/ui", "spout/cli", "spout/doctor")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

FOREIGN = {
    "message": "of an exception, in a loss or a verdict",
    "operator": "whatever a bolt is called",
    "error": "the class of an exception",
    "cause": "a class and a message",
    "dead": "why a letter died, as its header says",
    "by": "who handled a letter, as he says",
    "why": "for what reason, as he says; why an input is paused",
    "paused": "why an input is paused",
    "host": "of a process that gives signs of life",
    "application": "of a process that gives signs of life",
    "group": "of topics.yaml, or of a record",
}
"""Fields whose text comes with a record, or with what anybody may write."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sentences(path: Path) -> Iterator[tuple[int, ast.FormattedValue]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.JoinedStr):
            yield from ((part.lineno, part) for part in node.values if isinstance(part, ast.FormattedValue))


def raw_fields(value: ast.expr) -> Iterator[str]:
    """Yield the foreign fields that an expression puts into a sentence as they are."""
    if isinstance(value, ast.Call):
        return  # `Untrusted(...)`, or a function that returns a sentence
    if isinstance(value, ast.Attribute):
        yield from [value.attr] if value.attr in FOREIGN else []
        return
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr):
            yield from raw_fields(child)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_sentence_takes_a_field_of_others_as_untrusted(path: Path) -> None:
    """O2006"""
    wrong = [(line, field) for line, part in sentences(path) for field in raw_fields(part.value)]

    assert wrong == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sentence_quotes_a_text_as_python_does(path: Path) -> None:
    """Python's quotes leave backticks as they are."""
    assert [line for line, part in sentences(path) if part.conversion == ord("r")] == []


def test_commands_print_by_one_function() -> None:
    """O2007"""
    calls = {
        str(path.relative_to(ROOT)): ast.unparse(node.func)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.echo", "print", "click.echo")
    }

    assert calls == {"spout/cli/common.py": "typer.echo", "spout/inspect/tables.py": "typer.echo"}


def test_a_field_that_is_not_wrapped_is_found(tmp_path: Path) -> None:
    """So the tests above are worth something."""
    path = tmp_path / "code.py"
    path.write_text('a = f"by {loss.error}, {Untrusted(loss.message)}, {mark.why or 1}, {name!r}"')

    assert [field for _, part in sentences(path) for field in raw_fields(part.value)] == ["error", "why"]
    assert [part.conversion for _, part in sentences(path)] == [-1, -1, -1, ord("r")]
