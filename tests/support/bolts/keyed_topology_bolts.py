"""Bolts of topologies that end in a keyed bolt; a module of their own, since workers import them by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spout
from acker.identity import is_replay


class Words(spout.BasicBolt):
    """Splits lines."""

    output = "word string, length int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word."""
        for word in tuple["value"].decode().split():
            collector.emit((word, len(word)))


class Again(spout.BasicBolt):
    """Hands words on."""

    output = "word string, length int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the word."""
        collector.emit((tuple["word"], tuple["length"]))


class Both(spout.Bolt):
    """Joins what two bolts made of one word, and emits it anchored on both."""

    output = "word string, length int"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Wait for first halves."""
        self._collector = collector
        self._halves: dict[str, list[spout.Tuple]] = {}

    def execute(self, tuple: spout.Tuple) -> None:
        """Keep a half, or emit both."""
        waiting = self._halves.setdefault(tuple["word"], [])
        if not waiting or waiting[-1].source_component == tuple.source_component:
            waiting.append(tuple)
            return
        halves = [waiting.pop(), tuple]
        self._collector.emit((tuple["word"], tuple["length"]), anchors=halves)
        for half in halves:
            self._collector.ack(half)


class Count(spout.KeyedBolt):
    """Counts the tuples of a word at a tick, once a file exists; until then it holds them.

    ``fails`` fails unless its record is replayed; ``raises`` raises.
    """

    output = "word string, tuples int"
    tick_every_ms = 200

    def __init__(self, gate: str) -> None:
        """Wait for the file."""
        self._gate = Path(gate)

    def execute(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Hold all but what fails."""
        for each in list(held):
            comes_first = each.root is not None and not is_replay(each.root.source)
            if key == ("fails",) and comes_first:
                collector.fail(each, "comes first")
            if key == ("raises",) and comes_first:
                raise ValueError("cannot be held")

    def tick(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Count, if it may."""
        if self._gate.exists():
            collector.emit((key[0], len(held)), anchors=held)
            collector.ack(*held)


class Refuses(spout.BasicBolt):
    """Hands counts on; refuses that of ``refused`` until a file exists."""

    output = "word string, tuples int"

    def __init__(self, gate: str) -> None:
        """Wait for the file."""
        self._gate = Path(gate)

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the count."""
        if tuple["word"] == "refused" and not self._gate.exists():
            self._gate.touch()
            raise ValueError("comes first")
        collector.emit((tuple["word"], tuple["tuples"]))


class Total(spout.Bolt):
    """Adds up the counts of a batch."""

    output = "word string, tuples int"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Begin with none."""
        self._collector = collector
        self._counts: list[spout.Tuple] = []

    def execute(self, tuple: spout.Tuple) -> None:
        """Take a count."""
        self._counts.append(tuple)

    def cleanup(self) -> None:
        """Emit the sum, anchored on all counts."""
        if self._counts:
            total = sum(each["tuples"] for each in self._counts)
            self._collector.emit(("total", total), anchors=self._counts)
        for each in self._counts:
            self._collector.ack(each)


class Together(Count):
    """Counts the tuples of all words."""

    def tick(
        self, key: tuple[Any, ...], held: Sequence[spout.KeyedTuple], collector: spout.KeyedCollector
    ) -> None:
        """Count, if it may."""
        if self._gate.exists():
            collector.emit((f"key {key} of {len(held)}", len(held)))
            collector.ack(*held)
