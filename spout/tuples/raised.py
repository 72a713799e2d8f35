"""Where the author's code raised an exception: file and line, and the
traceback once for each kind.

A traceback goes through Windhover (which called the bolt), through the
author's code, and often ends in a library that the author called. The *place*
is the last line of the author's own code: it belongs neither to Windhover,
nor to Python, nor to ``site-packages``. If the bolt is itself installed in
``site-packages``, the first package on the way counts as the author's.

A place names the file without its folder, since that differs from machine to
machine, and a batch that runs again elsewhere must fail its records by the
same causes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from inspect import unwrap
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Final, NamedTuple

from acker.untrusted import trace_lines

KINDS_MAX: Final = 20
"""So many kinds of tracebacks a bolt keeps in a task, and a task reports;
others only fail records.
"""

TRACEBACK_CHARACTERS_MAX: Final = 8_000
"""A longer traceback is cut in its middle to about this: its start and its
end, the exception, stay.
"""

_NAME_BYTES_MAX: Final = 40

_PROJECT: Final = Path(__file__).parents[2]
_OUR_PACKAGES: Final = ("acker", "replay", "spout")
_OUR_FOLDERS: Final = tuple(f"{_PROJECT / package}{os.sep}" for package in _OUR_PACKAGES)
_PYTHON_PREFIXES: Final = (f"{Path(os.__file__).parent}{os.sep}", "<frozen ")
_CYTHON_SUFFIXES: Final = (".pyx", ".pxi", ".pxd")
"""Of files that Cython compiled. A traceback has no folder for them; they
belong to libraries.
"""
_INSTALLED_PACKAGE: Final = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")


class Raised(NamedTuple):
    """A traceback: the bolt, the exception's class as in a cause, its place, and the text."""

    operator: str
    error: str
    place: str
    text: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """What distinguishes kinds of tracebacks: all but the text."""
        return self[:3]


class Tracebacks:
    """Keeps, of one bolt in one task, the first traceback of each kind.

    Attributes:
        code_place: where the bolt's code begins. It is the place of an
            exception that none of the author's lines raised: what is wrong
            with an output is found when the bolt has returned.
    """

    __slots__ = ("_kinds", "_tracebacks", "code_place")

    def __init__(self) -> None:
        self.code_place = ""
        self._kinds: set[tuple[str, str, str]] = set()  # also of tracebacks that were taken
        self._tracebacks: list[Raised] = []  # not taken yet

    def keep(self, operator: str, error: str, place: str, raised: BaseException) -> None:
        """Keep the traceback of an exception, unless there is one of its
        kind, or there are `KINDS_MAX`.
        """
        kind = operator, error, place
        if kind not in self._kinds and len(self._kinds) < KINDS_MAX:
            self._kinds.add(kind)
            self._tracebacks.append(Raised(operator, error, place, _text_of(raised)))

    def __iter__(self) -> Iterator[Raised]:
        return iter(self._tracebacks)

    def take(self) -> list[Raised]:
        """Return what was kept since the last call; more tracebacks of the
        same kinds are not kept.
        """
        taken, self._tracebacks = self._tracebacks, []
        return taken

    def clear(self) -> None:
        """Forget all: tracebacks of the same kinds are kept again."""
        self._kinds.clear()
        self._tracebacks.clear()


def first_of_each(tracebacks: Iterable[Raised]) -> tuple[Raised, ...]:
    """Return the first traceback of each kind, at most `KINDS_MAX`."""
    first_by_kind: dict[tuple[str, str, str], Raised] = {}
    for raised in tracebacks:
        first_by_kind.setdefault(raised.kind, raised)
    return tuple(first_by_kind.values())[:KINDS_MAX]


def place_of(error: BaseException) -> str:
    """Return where the author's code raised an exception, ``split.py:12``;
    empty: other code raised it.
    """
    return _innermost_place(walk_tb(error.__traceback__))


def place_of_thread(thread_id: int) -> str:
    """Return where a thread is in the author's code now, ``split.py:12``;
    empty: it runs other code.
    """
    # the only way to the frame of another thread; Python's own tools use it
    frame = sys._current_frames().get(thread_id)
    if frame is None:  # the thread has ended
        return ""
    outermost_first = reversed(list(walk_stack(frame)))
    return _innermost_place(outermost_first)


def _innermost_place(steps: Iterable[tuple[FrameType, int]]) -> str:
    """Return the last place of the author's code; else of the first installed
    package; empty: there is none.

    `steps` are frames with their lines, the outermost first.
    """
    in_authors_code: tuple[str, int] | None = None  # file and line
    in_package: tuple[str, int] | None = None
    first_package = ""
    for frame, line in steps:
        file = frame.f_code.co_filename
        package = _package_of(file)
        is_in_main = frame.f_globals.get("__name__") == "__main__"  # as in a notebook or a shell
        if file.startswith("<") and not is_in_main:
            package = None  # a library generated this code, as for the methods of a dataclass
        if package is None:
            continue
        if package == "":
            in_authors_code = file, line
        elif not first_package or package == first_package:
            first_package = package
            in_package = file, line
    file_and_line = in_authors_code or in_package
    return "" if file_and_line is None else _place(*file_and_line)


def place_of_code(bolt: object) -> str:
    """Return where the method `execute` of a bolt begins, ``split.py:10``;
    empty: it is not the author's.
    """
    # in a child process the bolt is wrapped in one of ours (`spout.execution.guards`)
    authors_bolt = getattr(bolt, "guarded_bolt", bolt)
    execute = getattr(type(authors_bolt), "execute", None)
    code = None if execute is None else getattr(unwrap(execute), "__code__", None)
    if code is None or _package_of(code.co_filename) is None:
        return ""
    return _place(code.co_filename, code.co_firstlineno)


def _place(file: str, line: int) -> str:
    """Return the place of a line as messages have it: without folder, cut,
    and without round brackets.
    """
    name = re.split(r"[/\\]", file)[-1]
    cut = name.encode("utf-8", "replace")[:_NAME_BYTES_MAX].decode("utf-8", "ignore")
    return f"{re.sub(r'[()]', '_', cut)}:{line}"


@lru_cache(maxsize=4_096)
def _package_of(file: str) -> str | None:
    """Return the folder of the installed package that a file is of.

    Empty: it is of none, so it is the author's. None: it is Windhover's,
    Python's, or compiled by Cython.
    """
    if file.startswith(_OUR_FOLDERS):
        return None
    package_folder = _INSTALLED_PACKAGE.match(file)
    if package_folder is not None:
        return package_folder[0]
    is_library = file.startswith(_PYTHON_PREFIXES) or file.endswith(_CYTHON_SUFFIXES)
    return None if is_library else ""


def _text_of(error: BaseException) -> str:
    """Return a traceback as text, cut in its middle if it is too long."""
    try:
        text = "\n".join(trace_lines(error))
    except BaseException as raised:  # noqa: BLE001 - it reads attributes of the error
        text = f"<no traceback: {type(raised).__name__}>"
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    half = TRACEBACK_CHARACTERS_MAX // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
