"""Swapping: the code of a living function is replaced by that of its edited text.

A function object keeps its identity: whoever has imported or wrapped it calls the new code. An edit changes
no structure around it, so the tree of code objects of the file before and after has the same form, and the
two are walked side by side.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import NamedTuple


class Unswappable(Exception):
    """The edited function cannot take the place of the living one."""


class _Place(NamedTuple):
    file: str
    name: str
    line: int


class Functions:
    """All functions that live in this process, by the place of their code."""

    def __init__(self) -> None:
        self._by_place: dict[_Place, list[FunctionType]] = defaultdict(list)
        for value in gc.get_objects():
            if type(value) is FunctionType:
                self._by_place[_place(value.__code__)].append(value)

    def swap(self, path: str, text: str, edited: str) -> None:
        """Let the functions of a file run the code of its edited text.

        Raises:
            Unswappable: nothing differs, or no function that lives has the code that does.
        """
        swapped = 0
        pairs = _differing(_compiled(text, path), _compiled(edited, path))
        for former, edited_code in pairs:
            for function in self._by_place.get(_place(former), ()):
                if function.__code__.co_freevars != edited_code.co_freevars:
                    raise Unswappable(f"{former.co_qualname} closes over other names")
                function.__code__ = edited_code
                swapped += 1
        if not swapped:
            raise Unswappable(f"no function of {path} has the code that is edited")


def _compiled(text: str, path: str) -> CodeType:
    return compile(text, path, "exec", dont_inherit=True)


def _place(code: CodeType) -> _Place:
    return _Place(code.co_filename, code.co_qualname, code.co_firstlineno)


def _differing(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield each code object that differs with its edited one, outer ones first."""
    if before == after:
        return
    yield before, after
    inner_before = [value for value in before.co_consts if isinstance(value, CodeType)]
    inner_after = [value for value in after.co_consts if isinstance(value, CodeType)]
    # an edit that takes out a statement may take out a lambda or a comprehension in it
    if len(inner_before) == len(inner_after):
        for inner, edited in zip(inner_before, inner_after, strict=True):
            yield from _differing(inner, edited)
