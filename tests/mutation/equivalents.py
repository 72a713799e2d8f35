"""The list of edits that nobody can notice, each with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation.edits import Edit

LIST: Final = Path(__file__).with_name("equivalent.toml")


class Equivalent(NamedTuple):
    """An edit, by what its line says before and after: line numbers move with each change.

    Attributes:
        file, function, before, after: as in `Edit`.
        why: why no caller can tell the two programs apart.
    """

    file: str
    function: str
    before: str
    after: str
    why: str

    def is_of(self, edit: Edit) -> bool:
        return (edit.file, edit.function, edit.before, edit.after) == self[:4]


def equivalents() -> list[Equivalent]:
    """Return the list that is kept."""
    content = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [Equivalent(**entry) for entry in content.get("equivalent", [])]


def reasons(edits: Iterable[Edit], listed: Iterable[Equivalent]) -> dict[Edit, str]:
    """Return the reason of each edit that is listed."""
    by_edit = {entry[:4]: entry.why for entry in listed}
    keys = {edit: (edit.file, edit.function, edit.before, edit.after) for edit in edits}
    return {edit: by_edit[key] for edit, key in keys.items() if key in by_edit}
