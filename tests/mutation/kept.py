"""The verdicts of a run, kept in a file of JSON lines, so that a later run judges only what survived."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutation.edits import Edit
from tests.mutation.verdict import Fate, Verdict


class Key(NamedTuple):
    """What an edit is found by in another run: line numbers move with each change of a file.

    Attributes:
        file, function, kind, before, after: as in `Edit`.
        number: counts edits that are the same in all of these, since a function may have a line twice.
    """

    file: str
    function: str
    kind: str
    before: str
    after: str
    number: int = 0


def keys(edits: Iterable[Edit]) -> dict[Edit, Key]:
    """Return the key of each edit; give all edits of a file, since those that look the same are counted."""
    result: dict[Edit, Key] = {}
    equal: Counter[Key] = Counter()
    for edit in edits:
        key = Key(edit.file, edit.function, edit.kind, edit.before, edit.after)
        result[edit] = key._replace(number=equal[key])
        equal[key] += 1
    return result


def line_of(verdict: Verdict, key: Key) -> str:
    """Return a verdict as a line of the file."""
    return json.dumps({"key": key, "fate": verdict.fate, "test": verdict.test}) + "\n"


def read_verdicts(path: Path, keys_of_edits: dict[Edit, Key]) -> list[Verdict]:
    """Return the verdicts in a file on edits that can still be made; of several on one edit the last."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows_by_key = {Key(*row["key"]): row for row in rows}
    verdicts: list[Verdict] = []
    for edit, key in keys_of_edits.items():
        if key in rows_by_key:
            row = rows_by_key[key]
            verdicts.append(Verdict(edit, Fate(row["fate"]), row["test"]))
    return verdicts
