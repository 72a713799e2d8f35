"""A docstring that explains arguments or attributes names those that are there.

A rename reaches the code by its tools, and the docstring by a person. So the sections *Args* and
*Attributes* are compared with the code, in every class and function of the product.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documented import ROOT

PACKAGES = ("acker", "replay", "spout")

_SECTION = r"^{heading}:\n((?:    .*\n?|\n)+)"
_ENTRY = re.compile(r"    ([*A-Za-z_][\w*, ]*?)(?: \([^)]*\))?:")


def explained_names(node: ast.ClassDef | ast.FunctionDef, heading: str) -> Iterator[str]:
    """Yield the names that a section of a docstring explains; `a, b: both` explains two."""
    section = re.search(_SECTION.format(heading=heading), ast.get_docstring(node) or "", re.MULTILINE)
    for line in section[1].splitlines() if section else ():
        entry = _ENTRY.match(line)
        if entry:
            yield from (name.strip().lstrip("*") for name in entry[1].split(","))


def argument_names(function: ast.FunctionDef) -> set[str]:
    """Return the names of a function's arguments, also of those that take the others."""
    arguments = function.args
    alone = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *alone]
    return {argument.arg for argument in listed}


def attribute_names(cls: ast.ClassDef) -> set[str]:
    """Return what a class binds: its fields, its methods, and what they set of `self`."""
    names: set[str] = set()
    for node in ast.walk(cls):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def strange_names(code: str) -> list[str]:
    """Return the names that docstrings explain, and that are not there."""
    strange: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef):
            known, heading = attribute_names(node), "Attributes"
        elif isinstance(node, ast.FunctionDef):
            known, heading = argument_names(node), "Args"
        else:
            continue
        names = explained_names(node, heading)
        strange += [f"{node.name}: {name}" for name in names if name not in known]
    return strange


def modules() -> list[Path]:
    """Return all modules of the product."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_docstrings_explain_names_that_are_there() -> None:
    found = {
        str(path.relative_to(ROOT)): strange_names(path.read_text(encoding="utf-8")) for path in modules()
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("code", "strange"),
    [
        ('class A:\n    """Do.\n\n    Attributes:\n        b: one.\n    """\n    a: int', ["A: b"]),
        ('class A:\n    """Do.\n\n    Attributes:\n        a: one.\n    """\n    a: int', []),
        (
            'def f(a):\n    """Do.\n\n    Args:\n        a, b: one.\n            c: no name.\n    """',
            ["f: b"],
        ),
        ('def f(*a, **b):\n    """Do.\n\n    Args:\n        *a: some.\n        b: others.\n    """', []),
        ('def f(a):\n    """Do.\n\n    Raises:\n        OSError: often.\n    """', []),
    ],
)
def test_a_name_that_is_not_there_is_found(code: str, strange: list[str]) -> None:
    """So the test above is worth something."""
    assert strange_names(code) == strange
