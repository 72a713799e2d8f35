"""Counts what makes a page hard to read: vague names, long lines, docstrings that begin with *Say*.

``python -m tests.support.text`` writes the counts of today into the list that tests/test_text.py reads.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).resolve().parents[2]
PRODUCT: Final = ("acker", "replay", "spout")
ALLOWANCES: Final = PROJECT / "tests/data/text_allowances.csv"

VAGUE_NAMES: Final = frozenset(
    [
        "all_", "around", "at", "before", "behind", "both", "each", "every", "few", "first",
        "found", "given", "here", "kept", "last", "left", "listed", "many", "more", "most", "named",
        "of", "one", "other", "others", "own", "own_", "rest", "some", "there", "this", "wanted",
        "whole",
    ]
)  # fmt: skip
"""They say that something is meant, and not what: a position, a report, the cause of a loss."""

LINE_COLUMNS_MAX: Final = 100

WEAK_VERBS: Final = frozenset({"Say", "Tell", "Let", "Learn", "Note"})
"""A docstring begins with what happens: *Return*, *Write*, *Record*, *Refuse*."""


class TextCounts(NamedTuple):
    """Of one file."""

    vague_names: int
    long_lines: int
    weak_docstrings: int


NOTHING_WRONG: Final = TextCounts(0, 0, 0)


def counts_of(text: str) -> TextCounts:
    """Count what is hard to read in the text of a module."""
    tree = ast.parse(text)
    vague_names = sum(name.strip("_") in VAGUE_NAMES or name in VAGUE_NAMES for name in bound_names(tree))
    long_lines = sum(len(line) > LINE_COLUMNS_MAX for line in text.splitlines())
    weak_docstrings = sum(verb in WEAK_VERBS for verb in first_words(tree))
    return TextCounts(vague_names, long_lines, weak_docstrings)


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield each name that is bound, also as an argument, an attribute, by ``except`` or by ``case``."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def first_words(tree: ast.AST) -> Iterator[str]:
    """Yield the first word of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split()
            if words:
                yield words[0].strip(".,:;")


def product_counts() -> dict[str, TextCounts]:
    """Return the counts of each file of the product, by its path; files with nothing wrong are missing."""
    counts: dict[str, TextCounts] = {}
    for folder in PRODUCT:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            of_file = counts_of(path.read_text(encoding="utf-8"))
            if of_file != NOTHING_WRONG:
                counts[path.relative_to(PROJECT).as_posix()] = of_file
    return counts


def allowances() -> dict[str, TextCounts]:
    """Return what the list allows, by file."""
    with ALLOWANCES.open(encoding="utf-8", newline="") as file:
        return {row[0]: TextCounts(*map(int, row[1:])) for row in list(csv.reader(file))[1:]}


def write_allowances() -> None:
    """Write the counts of today into the list, in place of what was there."""
    with ALLOWANCES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("file", *TextCounts._fields))
        writer.writerows((path, *counts) for path, counts in sorted(product_counts().items()))


if __name__ == "__main__":
    write_allowances()
