"""The map from lines to the tests that run them, with the time that each test takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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

    def add(self, written: Path) -> None:
        """Add what a host has written."""
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
        collected = set(tests)
        self.seconds = {test: took_s for test, took_s in self.seconds.items() if test in collected}
        for tests_by_line in self.tests.values():
            for line, mapped in tests_by_line.items():
                tests_by_line[line] = mapped & collected

    def tests_of(self, edit: Edit, budget_s: float) -> list[tuple[str, float]]:
        """Return the tests that run an edited line, each with its limit in seconds.

        The quickest come first, since one that falls ends the run; together they take at most `budget_s`
        without the edit, or are one test.
        """
        lines = self.tests.get(edit.file, {})
        tests = {test for line in _lines(edit) for test in lines.get(line, ())}
        chosen: list[tuple[str, float]] = []
        left_s = budget_s
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            left_s -= self.seconds[test]
            if left_s < 0 and chosen:
                break
            chosen.append((test, LIMIT_S + 10 * self.seconds[test]))
        return chosen


def _lines(edit: Edit) -> Sequence[int]:
    """Return the lines to look for: the statement's, since a line within it may have no code of its own."""
    first, last = edit.lines
    return range(first, last + 1)
