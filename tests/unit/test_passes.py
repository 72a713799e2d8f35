"""Passes: what bolts make of rows, what fails, and what rows carry on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TupleError
from spout.anchored import AnchoredRun
from spout.anchors import ORDINAL_BITS, Anchors, Carry
from spout.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt, BoltContext
from spout.collector import BasicCollector, Cause, Delivery, FailTuple, OutputCollector, Tuple
from spout.fold import TaskReport
from spout.passes import FastRun, Pass, ordinals_of
from spout.rows import ArrowRows
from spout.steps import Step

WORD = pa.schema([("word", pa.string())])
CONTEXT = BoltContext("pass", 0, 1)


class Split(BasicBolt):
    """Split a line; fail what says so."""

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word; then fail a line that holds ``fail`` or ``raise``."""
        for word in tuple["line"].split():
            collector.emit([word])
        if "fail" in tuple["line"]:
            raise FailTuple("said so")
        if "raise" in tuple["line"]:
            raise KeyError("raise")


class Upper(BasicBolt):
    """Make words big; numbers fail."""

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the word in capitals."""
        if tuple["word"].isdigit():
            raise ValueError(tuple["word"])
        collector.emit([tuple["word"].upper()])


class Reverse(ArrowBolt):
    """Emit a batch's rows in reverse order, and fail the first."""

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit all rows, the first one's too."""
        order = np.arange(batch.num_rows)[::-1]
        collector.emit([batch.column(0).take(pa.array(order))], order)
        collector.fail(0, "first")


class Broken(ArrowBolt):
    """Fail whatever comes."""

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit, then raise."""
        collector.emit([batch.column(0)], np.arange(batch.num_rows))
        raise OSError("no disk")


class Wrong(BasicBolt):
    """Emit what does not fit the output for some lines."""

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit a word, then a number or two values where the line says so."""
        collector.emit([tuple["line"]])
        if tuple["line"] == "number":
            collector.emit([7])
        if tuple["line"] == "two":
            collector.emit(["a", "b"])


class Hold(Bolt):
    """Join all lines into one tuple, at the end."""

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Keep the tuple, or forget, fail or raise as it says."""
        if tuple["line"] == "raise":
            raise KeyError("raise")
        if tuple["line"] == "again":
            self._collector.ack(tuple)
            self._collector.emit(["late"], anchors=tuple)
        if tuple["line"] != "forget":
            self._held.append(tuple)

    def cleanup(self) -> None:
        """Emit one tuple anchored on all that were kept, and ack them."""
        self._collector.emit([" ".join(held["line"] for held in self._held)], anchors=self._held)
        for held in self._held:
            self._collector.ack(held)


def packed(indices: Sequence[int]) -> Anchors:
    """Anchor rows on roots."""
    return Anchors(Carry.PACKED, pa.array(np.array(indices, np.int64) << ORDINAL_BITS))


def lines(*texts: str) -> ArrowRows:
    """Make rows of one column, ``line``."""
    return ArrowRows(pa.RecordBatch.from_pydict({"line": list(texts)}))


def pass_of(*bolts: AnyBolt, **about: Any) -> Pass:
    """Make a tracked pass of bolts that emit words."""
    steps = tuple(Step(type(each).__name__, each, WORD) for each in bolts)
    return Pass(steps, **{"arrives": Carry.PACKED, **about})


def failed(report: TaskReport) -> dict[Cause, list[int]]:
    """Return a report's failures as plain values."""
    return {cause: roots.tolist() for cause, roots in report.failures}


def test_a_basic_bolt_acks_what_returns_and_fails_what_raises() -> None:
    """S82, S83, S84: by FailTuple, or by any exception, under its own name."""
    run = FastRun(pass_of(Split()), CONTEXT)
    out = run.feed(lines("a b", "x fail", "", "y raise", "c"), packed([4, 5, 6, 7, 8]))
    assert out.column("word").to_pylist() == ["a", "b", "c"]
    assert failed(run.report()) == {
        Cause("Split", "", "said so"): [5],
        Cause("Split", "KeyError", "'raise'"): [7],
    }


def test_a_failure_in_a_later_bolt_fails_the_root_under_that_bolts_name() -> None:
    run = FastRun(pass_of(Split(), Upper()), CONTEXT)
    out = run.feed(lines("a 1 b", "c"), packed([0, 1]))
    assert out.column("word").to_pylist() == ["A", "B", "C"]
    assert failed(run.report()) == {Cause("Upper", "ValueError", "1"): [0]}


def test_rows_carry_their_root_and_their_ordinal() -> None:
    run = FastRun(pass_of(Split(), Upper(), carry=Carry.PACKED, consumer="Count"), CONTEXT)
    out = run.feed(lines("a b", "1", "c d"), packed([9, 2, 5]))
    anchors = Anchors(Carry.PACKED, out.column("_windhover"), (3,))
    assert [each[0] for each in anchors.deliveries()] == [
        Delivery(9, ((3, 0),)),
        Delivery(9, ((3, 1),)),
        Delivery(5, ((3, 0),)),
        Delivery(5, ((3, 1),)),
    ]
    assert run.report().gave.rows == 4


def test_an_arrow_bolt_fails_rows_and_loses_what_they_emitted() -> None:
    run = FastRun(pass_of(Reverse()), CONTEXT)
    out = run.feed(lines("a", "b", "c"), packed([0, 1, 2]))
    assert out.column("word").to_pylist() == ["c", "b"]
    assert failed(run.report()) == {Cause("Reverse", "", "first"): [0]}


def test_an_arrow_bolt_that_raises_fails_its_whole_batch() -> None:
    run = FastRun(pass_of(Broken()), CONTEXT)
    assert run.feed(lines("a", "b"), packed([0, 1])).num_rows == 0
    assert run.feed(lines("c"), packed([2])).num_rows == 0
    assert failed(run.report()) == {Cause("Broken", "OSError", "no disk"): [0, 1, 2]}


@pytest.mark.parametrize(("line", "error"), [("number", "ArrowTypeError"), ("two", "ValueError")])
def test_what_does_not_fit_the_output_fails_the_input_that_it_came_from(line: str, error: str) -> None:
    run = FastRun(pass_of(Wrong()), CONTEXT)
    out = run.feed(lines("a", line, "b"), packed([0, 1, 2]))
    assert out.column("word").to_pylist() == ["a", "b"]
    [(cause, roots)] = failed(run.report()).items()
    assert (cause.operator, cause.error, roots) == ("Wrong", error, [1])


def test_untracked_a_fail_is_dropped_and_another_exception_ends_the_task() -> None:
    """S79: without ackers a fail does nothing."""
    run = FastRun(pass_of(Split(), arrives=Carry.NONE), CONTEXT)
    assert run.feed(lines("a", "fail"), None).column("word").to_pylist() == ["a"]
    with pytest.raises(KeyError):
        run.feed(lines("raise"), None)


def test_a_rich_bolt_joins_two_roots_into_one_tuple_over_batches() -> None:
    """S29, S31, P52: acked after the join, anchored on both."""
    run = AnchoredRun(pass_of(Hold(), Upper(), carry=Carry.PATHS, consumer="Count"), CONTEXT)
    assert run.feed(lines("a"), packed([4])).num_rows == 0
    assert run.feed(lines("b"), packed([7])).num_rows == 0
    [out] = run.finish()
    assert out.column("word").to_pylist() == ["A B"]
    assert out.column("_windhover").to_pylist() == [[[4, 0, 0], [7, 0, 0]]]
    report = run.report()
    assert (report.outstanding, failed(report), report.gave.rows) == ({}, {}, 1)


def test_what_a_rich_bolt_forgets_is_outstanding_and_what_it_raises_fails() -> None:
    """S81."""
    run = AnchoredRun(pass_of(Hold()), CONTEXT)
    run.feed(lines("forget", "raise", "again"), packed([4, 5, 6]))
    run.finish()
    report = run.report()
    assert {path: rows.tolist() for path, rows in report.outstanding.items()} == {(): [[4]]}
    assert {(cause.error, *roots) for cause, roots in failed(report).items()} == {
        ("KeyError", 5),
        ("TupleError", 6),
    }


def test_a_rich_bolts_misfit_without_anchors_ends_the_task() -> None:
    class Loud(Hold):
        def execute(self, tuple: Tuple) -> None:
            self._collector.emit([1])

    with pytest.raises(TupleError, match="unanchored"):
        AnchoredRun(pass_of(Loud()), CONTEXT).feed(lines("a"), packed([0]))


def test_ordinals_count_rows_of_one_parent_in_any_order() -> None:
    assert ordinals_of(np.array([2, 0, 2, 2, 0]), 4).tolist() == [0, 0, 1, 2, 1]
    assert ordinals_of(np.array([0, 0, 3, 3, 3]), 4).tolist() == [0, 1, 0, 1, 2]
    assert ordinals_of(np.empty(0, np.int64), 0).tolist() == []
