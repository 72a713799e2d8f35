"""What is told once for each kind, however often it happens: a log that a flood could fill helps nobody.

Source: docs/design/protocol.md, section 4 ("logged once per kind").
"""

from __future__ import annotations

from typing import Final

KINDS_MAX: Final = 100
"""Kinds that are told of; further ones are only counted."""


class Told:
    """Remembers what was told."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self._kinds: set[tuple[str, str]] = set()

    def is_first(self, topic: str, why: str) -> bool:
        """Tell whether a flaw is the first of its kind; texts that differ in a last number are one kind."""
        kind = (topic, why.rstrip("0123456789 "))
        if kind in self._kinds or len(self._kinds) >= KINDS_MAX:
            return False
        self._kinds.add(kind)
        return True
