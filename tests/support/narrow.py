"""Outputs that cannot write every sign, as the interpreter opens them by its environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from typing import NamedTuple

import pytest


class Narrow(NamedTuple):
    """An encoding, and what the interpreter does on stdout with a sign that it lacks."""

    encoding: str
    errors: str = "strict"


NARROW = (
    Narrow("ascii"),  # PYTHONIOENCODING=ascii
    Narrow("ascii", "surrogateescape"),  # LC_ALL=C, where Python does not take UTF-8 in its place
    Narrow("latin-1"),
    Narrow("cp1252"),
    Narrow("cp437"),
)

KINDS_OF_NARROW = [
    pytest.param(narrow, marks=() if narrow.encoding == "ascii" else pytest.mark.slow) for narrow in NARROW
]
"""The same for tests of every command: ASCII lacks all that the others lack, so these are run more seldom."""


class Written:
    """What a command has written."""

    def __init__(self, narrow: Narrow) -> None:
        self._narrow = narrow
        self._outputs = (BytesIO(), BytesIO())
        self.streams = tuple(
            TextIOWrapper(output, narrow.encoding, errors, newline="\n", write_through=True)
            # stderr never raises
            for output, errors in zip(self._outputs, (narrow.errors, "backslashreplace"), strict=True)
        )

    @property
    def out(self) -> str:
        """Its stdout; no byte may be of another encoding."""
        return self._outputs[0].getvalue().decode(self._narrow.encoding)

    @property
    def err(self) -> str:
        return self._outputs[1].getvalue().decode(self._narrow.encoding)


@contextmanager
def written_on(narrow: Narrow) -> Iterator[Written]:
    """Give a process narrow outputs as long as the context lasts."""
    written = Written(narrow)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys, "stdout", written.streams[0])
        monkeypatch.setattr(sys, "stderr", written.streams[1])
        yield written
