"""A planted bug: what is replaced in which file, and the test that must fall with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Misplanted(Exception):
    """The bug cannot be planted: the code that it replaces is not there, or is there more than once."""


class Mutant(NamedTuple):
    """A bug that somebody could write.

    Attributes:
        name: the rule that it breaks.
        file: the file, from the project's folder.
        old: what is replaced: a part of the file that occurs in it once, over one or more lines.
        new: what is written there instead.
        test: the test that must fall, by pytest's name; of a parametrised one at least one case must.
        why: what would happen to a user.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
    why: str

    def planted(self, tree: Path) -> str:
        """Return the text of the file with the bug in it.

        Raises:
            Misplanted: `old` is not in the file exactly once.
        """
        path = tree / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found = text.count(self.old)
        if found != 1:
            raise Misplanted(
                f"mutant {self.name}: {self.file} has the code that it replaces {found} times, not once;"
                f" change `old` in tests/mutants, so that it breaks the same rule: {self.old!r}"
            )
        return text.replace(self.old, self.new)
