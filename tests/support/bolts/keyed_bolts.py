"""Keyed bolts of the tests; in a module of their own, since the workers import them by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import spout
from acker.identity import is_replay


class Forgets(spout.KeyedBolt):
    """Never settles what comes first; when its record comes again, writes both and acks them."""

    output = "word string, copies string"

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Wait for a copy."""
        copies = [each.root is not None and is_replay(each.root.source) for each in held]
        if any(copies):
            collector.emit((key[0], " ".join(map(str, copies))))
            collector.ack(*held)


class Saves(spout.KeyedBolt):
    """Emits a tuple if its place exists, and stops the query if not; holds ``held``."""

    output = "word string, tuples string"
    stops_on: ClassVar[tuple[type[Exception], ...]] = (FileNotFoundError,)

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Look for the place."""
        if held[-1]["said"] != "held":
            Path(held[-1]["said"]).stat()
            collector.emit((key[0], str(len(held))))
            collector.ack(*held)


class Waits(spout.KeyedBolt):
    """Holds tuples until one says ``go``; each tick resets their timeouts."""

    output = "word string, tuples string"
    tick_every_ms = 200

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Wait for the word."""
        if any(each["said"] == "go" for each in held):
            collector.emit((key[0], str(len(held))))
            collector.ack(*held)

    def tick(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Go on waiting."""
        collector.reset_timeout(*held)


class Counts(spout.KeyedBolt):
    """Holds tuples until one says ``59``, and emits how many they were; it resets no timeout."""

    output = "word string, tuples string"

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Wait for the last one."""
        if any(each["said"] == "59" for each in held):
            collector.emit((key[0], str(len(held))))
            collector.ack(*held)


class Shows(spout.KeyedBolt):
    """Emits its key and the numbers that it holds, as Python writes them."""

    output = "shown string"

    def execute(
        self,
        key: tuple[Any, ...],
        held: Sequence[spout.KeyedTuple],
        collector: spout.KeyedCollector,
    ) -> None:
        numbers = sorted((each["n"] for each in held), key=lambda n: -1 if n is None else n)
        collector.emit((f"{key[0]}: {numbers}",))
        collector.ack(*held)


class ShowsKey(spout.KeyedBolt):
    """Holds all, and emits its key as Python writes it with the numbers that it holds."""

    output = "shown string, ids array<bigint>"

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Show them."""
        collector.emit((plain_text(key[0]), sorted(each["id"] for each in held)))


def plain_text(value: Any) -> str:
    """Write a value whatever holds it: NumPy's and pandas' arrays as lists, rows as dictionaries."""
    if isinstance(value, np.ndarray | list | tuple) and not hasattr(value, "asDict"):
        return f"[{', '.join(map(plain_text, value))}]"
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {plain_text(part)}' for name, part in value.items())}}}"
    return str(float(value)) if isinstance(value, float | np.floating) else str(value)
