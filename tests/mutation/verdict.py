"""What can become of an edit."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tests.mutation.edits import Edit


class Fate(StrEnum):
    """What became of an edit."""

    KILLED = "killed"
    """A test fell."""
    HUNG = "hung"
    """A test did not end: somebody would notice."""
    SURVIVED = "survived"
    """Every test that runs the line passes."""
    NOT_RUN = "not run"
    """No test runs the line."""
    EQUIVALENT = "equivalent"
    """It survives, and `equivalent.toml` says why nobody can notice it."""
    UNSWAPPABLE = "unswappable"
    """The edited code cannot take the place of the living one; nothing is said about it."""


class Verdict(NamedTuple):
    """What became of an edit, and the test that noticed it."""

    edit: Edit
    fate: Fate
    test: str = ""
