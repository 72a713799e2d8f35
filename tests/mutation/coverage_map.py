"""The map from lines to the tests that run them, with the time that each test takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from tests.mutation.edits import Edit

LIMIT_S: Final = 3.0
"""A test may take so long beside ten times its own time, before its edit counts as one that hangs it."""


@dataclass(slots=True)
class CoverageMap:
    """Which tests run which lines.

    Attributes:
        seconds: how long each test takes, with its fixtures and the measuring.
        tests: the tests by file and line.
        failed: tests that fall without any edit, so they prove nothing.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _lines_run: Counter[str] = field(default_factory=Counter, init=False, compare=False)

    def add(self, written: Path) -> None:
        """Add what a host has written."""
        self._lines_run.clear()
        content = json.loads(written.read_text(encoding="utf-8"))
        self.seconds.update(content["seconds"])
        self.failed += content["failed"]
        for file, tests_by_line in content["lines"].items():
            lines = self.tests.setdefault(file, {})
            for line, tests in tests_by_line.items():
                lines.setdefault(int(line), set()).update(tests)

    def write(self, path: Path) -> None:
        """Write the map for `add`."""
        lines = {
            file: {line: sorted(tests) for line, tests in tests_by_line.items()}
            for file, tests_by_line in self.tests.items()
        }
        content = {"seconds": self.seconds, "lines": lines, "failed": self.failed}
        path.write_text(json.dumps(content), encoding="utf-8")

    def keep_only(self, tests: Iterable[str]) -> None:
        """Forget the tests that are not among these."""
        self._lines_run.clear()
        collected = set(tests)
        self.seconds = {test: took_s for test, took_s in self.seconds.items() if test in collected}
        for tests_by_line in self.tests.values():
            for line, mapped in tests_by_line.items():
                tests_by_line[line] = mapped & collected

    def tests_of(self, edit: Edit, budget_s: float) -> list[tuple[str, float]]:
        """Return the tests that run an edited line, each with its limit in seconds.

        Those that fall most likely and soonest come first, since one that falls ends the run: tests of the
        room's own folder, then all others, and of both the quickest. Without the edit they take at most
        `budget_s` together. But one is among them however slow it is: that which runs the fewest lines, if
        there is one in the own folder, since it is about this line more than about any other.
        """
        lines = self.tests.get(edit.file, {})
        tests = {test for line in _lines(edit) for test in lines.get(line, ())}
        if not tests:
            return []
        lines_run = self._count_lines()
        folder = own_folder(edit.file)

        def is_foreign(test: str) -> bool:
            return _folder(test) != folder

        closest = min(tests, key=lambda test: (is_foreign(test), lines_run[test], self.seconds[test], test))
        left_s = budget_s - self.seconds[closest]
        chosen: list[tuple[str, float]] = []
        for test in sorted(tests, key=lambda test: (is_foreign(test), self.seconds[test], test)):
            if test != closest:
                if self.seconds[test] > left_s:
                    continue
                left_s -= self.seconds[test]
            chosen.append((test, LIMIT_S + 10 * self.seconds[test]))
        return chosen

    def _count_lines(self) -> Counter[str]:
        """Return how many lines of the product each test runs."""
        if not self._lines_run:
            for tests_by_line in self.tests.values():
                for tests in tests_by_line.values():
                    self._lines_run.update(tests)
        return self._lines_run


def own_folder(file: str) -> str:
    """Return the folder of a room's own unit tests: of acker/wire/codec.py tests/unit/acker/wire."""
    return f"tests/unit/{PurePosixPath(file).parent}"


def _folder(test: str) -> str:
    return str(PurePosixPath(test.split("::")[0]).parent)


def _lines(edit: Edit) -> Sequence[int]:
    """Return the lines to look for: the statement's, since a line within it may have no code of its own."""
    first, last = edit.lines
    return range(first, last + 1)
