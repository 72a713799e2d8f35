"""A call of a bolt that raised, and the calls after it: what the bolt kept does nothing for them.

Each form of a bolt is tried, on DataFrames, in a topology, in a child process, and watched by hooks: a row is
delivered on the tuple that it was emitted for, or that tuple fails; none is acked whose row is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import TupleError
from acker.wire.causes import error_class
from spout.bolts.bolts import AnyBolt
from spout.bolts.collectors import OutputCollector
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.execution.collect import collect
from spout.execution.stage_run import StageRun
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.rows import ArrowRows, tuple_of
from spout.tuples.tuple import Tuple
from tests.support.outcomes import failed_by_cause
from tests.support.reports import failures_in
from tests.support.worlds.topology_world import TOPICS, ran, run

WORD = pa.schema([("value", pa.string())])

watched = pytest.mark.parametrize("hooks", [(), (TaskHook(),)], ids=["bare", "watched"])


def text_of(received: Tuple) -> str:
    """Return the word of a tuple, of a topic or of a DataFrame."""
    value = received[0] if "value" not in received else received["value"]
    return value.decode() if isinstance(value, bytes) else str(value)


class EmitsThenRaises(spout.BasicBolt):
    """Emits each word by the collector of its first call; raises after that for ``bad``."""

    output = "value string"
    collector: Any = None

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit twice, and raise."""
        self.collector = self.collector or collector
        self.collector.emit((text_of(tuple),))
        if text_of(tuple).startswith("bad"):
            raise ValueError(text_of(tuple))
        self.collector.emit((text_of(tuple).upper(),))


LINES = {
    "the first": ["bad", "a", "b"],
    "one in the middle": ["a", "bad", "b"],
    "the last": ["a", "b", "bad"],
    "two in a row": ["bad", "bad2", "a"],
    "by turns": ["bad", "a", "bad2", "b", "bad3"],
    "all": ["bad", "bad2"],
}
"""Words, by which of them raise."""


@watched
@pytest.mark.parametrize("where", ["rows", "topology", "child"])
@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_what_a_basic_bolt_emitted_before_it_raised_is_no_row_of_another_tuple(
    lines: Sequence[str], where: str, hooks: Sequence[TaskHook]
) -> None:
    rows: list[Any] = []
    failed = ran(EmitsThenRaises(), [line.encode() for line in lines], [*hooks], where, rows)
    assert sorted(failed) == [number for number, line in enumerate(lines) if line.startswith("bad")]
    good = [line for line in lines if not line.startswith("bad")]
    assert [row[0] for row in rows] == [word for line in good for word in (line, line.upper())]


class EmitsOnTwoStreams(EmitsThenRaises):
    """Does the same by turns on two streams, where the first one of a call is that of its word's length."""

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare them."""
        declarer.declare("value string")
        declarer.declare("value string", stream="other")

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit on both, and raise."""
        self.collector = self.collector or collector
        word = text_of(tuple)
        self.collector.emit((word,), "other" if len(word) % 2 else "default")
        if word.startswith("bad"):
            raise ValueError(word)
        self.collector.emit((word.upper(),), "default" if len(word) % 2 else "other")


@pytest.mark.parametrize("stream", ["default", "other"])
@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_on_several_streams_too_it_is_no_row_of_another_tuple(lines: Sequence[str], stream: str) -> None:
    """What is dropped is dropped with its stream, or each later row would go to the stream of another."""
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("it", EmitsOnTwoStreams()).shuffle_grouping("lines")
    builder.set_bolt("reads", Copies()).shuffle_grouping("it", stream)
    made = run(builder, [line.encode() for line in lines], {"reads": print}, tasks=1)
    good = [line for line in lines if not line.startswith("bad")]
    is_first = stream == "other"  # all good words have one letter
    assert [row[0] for row in made.values] == [line if is_first else line.upper() for line in good]
    failed = sorted(root for _, roots in failed_by_cause(made.outcome) for root in roots.tolist())
    assert failed == [number for number, line in enumerate(lines) if line.startswith("bad")]


class Copies(spout.BasicBolt):
    """Hands words on."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Hand it on."""
        collector.emit((tuple[0],))


def task_of(bolt: AnyBolt, hooks: Sequence[TaskHook] = ()) -> StageRun:
    """Begin a task of a bolt."""
    step = Step("it", bolt, WORD, tuple(hooks))
    return StageRun(Chain((step,), arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))


def fed(run: StageRun, *words: str, first: int = 0) -> list[Any]:
    """Feed a batch of words, each a root of its own; return the values that leave."""
    roots = np.arange(first, first + len(words)) << ORDINAL_BITS
    rows = ArrowRows(pa.record_batch({"word": pa.array(words, pa.string())}))
    returned: list[Any] = run.feed(rows, Anchors(AnchorForm.PACKED, pa.array(roots))).column(0).to_pylist()
    return returned


def failed_of(run: StageRun) -> dict[int, str]:
    """Return the class of the error of each root that failed."""
    return {
        root: error_class(cause.error)
        for cause, roots in failures_in(run.report())
        for root in roots.tolist()
    }


class KeepsBatchCollector(spout.ArrowBolt):
    """Keeps the collector of its first call, which ends as `ends` says; uses it in the next one."""

    output = "value string"

    def __init__(self, ends: str, does: str) -> None:
        self._ends = ends
        self._does = does
        self._kept: spout.BatchCollector | None = None

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Do by the kept collector what belongs to this one."""
        rows = np.arange(batch.num_rows)
        if self._kept is None:
            self._kept = collector
            if self._ends != "raises":
                collector.emit(batch.columns, rows)
            if self._ends == "emits what does not fit":
                collector.emit([*batch.columns, *batch.columns], rows)
            if "raises" in self._ends:
                raise ValueError(self._ends)
        elif self._does == "emit":
            self._kept.emit(batch.columns, rows)
        else:
            getattr(self._kept, self._does)(0)


@watched
@pytest.mark.parametrize("does", ["emit", "fail", "leave_open"])
@pytest.mark.parametrize("ends", ["raises", "emits and raises", "emits what does not fit", "returns"])
def test_what_an_arrow_bolt_does_by_the_collector_of_an_earlier_call_fails_its_rows(
    ends: str, does: str, hooks: Sequence[TaskHook]
) -> None:
    """Rule 3: nobody takes what is emitted by it, and the rows of this call would be acked."""
    task = task_of(KeepsBatchCollector(ends, does), hooks)
    first = (
        {} if ends == "returns" else dict.fromkeys((0, 1), "TupleError" if "fit" in ends else "ValueError")
    )
    assert fed(task, "a", "b") == (["a", "b"] if ends == "returns" else [])
    assert failed_of(task) == first
    assert fed(task, "c", first=2) == []
    assert failed_of(task) == first | {2: "TupleError"}
    assert any("of a call that had returned" in cause.message for cause, _ in failures_in(task.report()))


class KeepsTuples(spout.Bolt):
    """Keeps the tuple of a call that raises; does something with it in the next one, then acks that one."""

    output = "value string"

    def __init__(self, ends: str, does: str) -> None:
        self._ends = ends
        self._does = does
        self._kept: Tuple | None = None

    def prepare(self, context: spout.BoltContext, collector: OutputCollector) -> None:
        """Keep the collector: it is the same in all of a task."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit on the tuple, and raise; or use the one before."""
        kept, self._kept = self._kept, tuple
        if kept is None:
            self._collector.emit(("first",), anchors=tuple)
            if self._ends == "acks, then raises":
                self._collector.ack(tuple)
            if "raises" in self._ends:
                raise ValueError(self._ends)
            return
        if self._does == "emit on":
            self._collector.emit((tuple[0],), anchors=[tuple, kept])
        else:
            getattr(self._collector, self._does)(kept)
        self._collector.ack(tuple)


@watched
@pytest.mark.parametrize("does", ["emit on", "ack", "fail", "reset_timeout"])
@pytest.mark.parametrize("ends", ["raises", "acks, then raises", "holds"])
def test_what_a_bolt_does_with_the_tuple_of_a_call_that_raised_fails_the_next_one(
    ends: str, does: str, hooks: Sequence[TaskHook]
) -> None:
    """It has failed, and says so to whoever acks it or emits on it; where it only waits, all of it counts."""
    task = task_of(KeepsTuples(ends, does), hooks)
    assert fed(task, "a") == ["first"]
    assert failed_of(task) == ({} if ends == "holds" else {0: "ValueError"})
    rows = fed(task, "b", first=1)
    if ends == "holds":
        assert rows == (["b"] if does == "emit on" else [])
        assert failed_of(task) == ({0: ""} if does == "fail" else {})
    else:
        assert rows == []
        assert failed_of(task) == {0: "ValueError", 1: "TupleError"}


class KeepsKeyedCollector(KeyedBolt):
    """Emits by the collector of its first call."""

    output = "value string"
    collector: KeyedCollector | None = None

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Emit, and ack."""
        self.collector = self.collector or collector
        self.collector.emit(("a",))
        collector.ack(*held)


def test_a_test_of_a_keyed_bolt_notices_a_collector_of_an_earlier_call() -> None:
    words = [tuple_of({"word": word}) for word in ("a", "b")]
    assert collect(KeepsKeyedCollector(), words[0], by="word") == [("a",)]
    with pytest.raises(TupleError, match="of a call that had returned"):
        collect(KeepsKeyedCollector(), *words, by="word")
