"""A tuple of a topology that is anchored on two others: what becomes of it becomes of both their roots."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spout.bolts.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext, TaskHook
from spout.builder.topology import TopologyBuilder
from spout.tuples.tuple import Tuple
from tests.support.outcomes import failed_by_cause, open_edges_of, open_roots_of, touched_of
from tests.support.worlds.topology_world import TOPICS, Ran, run

LINES = [b"a", b"b", b"c", b"d"]
"""Four records; their pairs are ab and cd."""


class Join(Bolt):
    """Emits two lines, or two pairs of them, as one tuple that is anchored on both."""

    output = "word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Hold nothing."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Emit with the second one."""
        self._held.append(tuple)
        if len(self._held) == 2:
            words = [each[0].decode() if isinstance(each[0], bytes) else each[0] for each in self._held]
            self._collector.emit(("".join(words),), anchors=self._held)
            for each in self._held:
                self._collector.ack(each)
            self._held = []


class Basic(BasicBolt):
    """Emits its input again; fails ``cd``."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit."""
        if tuple["word"] == "cd":
            raise ValueError("no cd")
        collector.emit((tuple["word"],))


class Rich(Bolt):
    """Emits its input again; fails ``cd``."""

    output = "word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit."""
        if tuple["word"] == "cd":
            self._collector.fail(tuple, ValueError("no cd"))
        else:
            self._collector.emit((tuple["word"],), anchors=tuple)
            self._collector.ack(tuple)


class Columns(ArrowBolt):
    """Emits its input again; fails ``cd``."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit."""
        words = batch.column("word").to_pylist()
        kept = [row for row, word in enumerate(words) if word != "cd"]
        collector.emit([pa.array([words[row] for row in kept], pa.string())], kept)
        for row in set(range(len(words))) - set(kept):
            collector.fail(row, ValueError("no cd"))


class Forgets(Bolt):
    """Neither acks nor fails ``ab``; resets the timeout of ``cd`` before it acks it."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Forget, or ack late."""
        if tuple["word"] == "cd":
            self._collector.reset_timeout(tuple)
            self._collector.ack(tuple)


class Leaves(Bolt):
    """Neither acks nor fails anything; emits its input again, or does not."""

    output = "word string"

    def __init__(self, *, emits: bool) -> None:
        self._emits = emits

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Perhaps emit."""
        if self._emits:
            self._collector.emit((tuple["word"],), anchors=tuple)


def pairs(*bolts: Any, shuffled: bool = False, hooks: tuple[TaskHook, ...] = ()) -> Ran:
    """Let the pairs go through bolts, one behind the other, each perhaps in a stage of its own."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("join", Join()).local_or_shuffle_grouping("lines")
    before = "join"
    for number, bolt in enumerate(bolts):
        declared = builder.set_bolt(f"bolt{number}", bolt, 1 if isinstance(bolt, Join) else None)
        if shuffled:
            declared.fields_grouping(before, "word")
        else:
            declared.local_or_shuffle_grouping(before)
        before = f"bolt{number}"
    for hook in hooks:
        builder.add_hook(hook)
    return run(builder, LINES, print if isinstance(bolts[-1], Basic | Rich | Columns) else None, tasks=1)


def failed(ran: Ran) -> list[int]:
    """Return the records that failed."""
    return sorted(index for _, indices in failed_by_cause(ran.outcome) for index in indices.tolist())


ways = pytest.mark.parametrize("shuffled", [False, True], ids=["in one stage", "in stages of their own"])
forms = pytest.mark.parametrize(
    ("bolt", "hooks"),
    [(Basic, ()), (Basic, (TaskHook(),)), (Rich, ()), (Columns, ())],
    ids=["basic", "watched", "rich", "arrow"],
)


@ways
@forms
def test_its_ack_completes_both_roots_and_its_failure_fails_both(
    bolt: type[Any], hooks: tuple[TaskHook, ...], shuffled: bool
) -> None:
    """S29: and what is emitted on it is anchored on both."""
    ran = pairs(bolt(), bolt(), shuffled=shuffled, hooks=hooks)
    assert failed(ran) == [2, 3]
    assert open_roots_of(ran.outcome).tolist() == []
    assert ran.values == [("ab",)]


@ways
@forms
def test_both_roots_are_open_while_what_was_emitted_on_it_is(
    bolt: type[Any], hooks: tuple[TaskHook, ...], shuffled: bool
) -> None:
    ran = pairs(bolt(), Forgets(), shuffled=shuffled, hooks=hooks)
    assert open_roots_of(ran.outcome).tolist() == [0, 1]
    assert failed(ran) == [2, 3]


@ways
def test_its_timeout_is_that_of_both_roots(shuffled: bool) -> None:
    ran = pairs(Forgets(), shuffled=shuffled)
    assert touched_of(ran.outcome).tolist() == [2, 3]
    assert open_roots_of(ran.outcome).tolist() == [0, 1]


@ways
def test_what_is_anchored_on_two_such_tuples_descends_from_the_roots_of_both(shuffled: bool) -> None:
    ran = pairs(Join(), Basic(), shuffled=shuffled)
    assert (ran.values, failed(ran), open_roots_of(ran.outcome).tolist()) == ([("abcd",)], [], [])
    ran = pairs(Join(), Leaves(emits=False), shuffled=shuffled)
    assert open_roots_of(ran.outcome).tolist() == [0, 1, 2, 3]


@ways
def test_what_is_emitted_on_it_while_it_is_open_changes_nothing_until_it_is_acked(shuffled: bool) -> None:
    """The edges of what nobody acked are in neither root's XOR value."""
    alone = pairs(Leaves(emits=False), shuffled=shuffled)
    ran = pairs(Leaves(emits=True), Leaves(emits=False), shuffled=shuffled)
    assert open_roots_of(ran.outcome).tolist() == open_roots_of(alone.outcome).tolist() == [0, 1, 2, 3]
    assert open_edges_of(ran.outcome).tolist() == open_edges_of(alone.outcome).tolist()
