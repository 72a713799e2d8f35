"""Passes: what bolts make of rows, what fails, and what rows carry on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from acker.errors import TupleError
from acker.wire.causes import error_class, without_code_line
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext, TaskHook
from spout.execution.stage_run import StageRun
from spout.planning.order import Gate, LineUp
from spout.publishing.fold import TaskReport
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.counts import What
from spout.tuples.failures import Cause, FailTuple
from spout.tuples.places import ordinals_of
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Delivery, Tuple
from tests.support.reports import failures_in

WORD = pa.schema([("word", pa.string())])
CONTEXT = BoltContext("pass", 0, 1)


class Split(BasicBolt):
    """Split a line; fail what says so."""

    output = "value string"

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

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the word in capitals."""
        if tuple["word"].isdigit():
            raise ValueError(tuple["word"])
        collector.emit([tuple["word"].upper()])


class Reverse(ArrowBolt):
    """Emit a batch's rows in reverse order, and fail the first."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit all rows, the first one's too."""
        order = np.arange(batch.num_rows)[::-1]
        collector.emit([batch.column(0).take(pa.array(order))], order)
        collector.fail(0, "first")


class Forget(ArrowBolt):
    """Emit every row twice, and leave open those that say so."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit all rows, the open ones too."""
        twice = np.repeat(np.arange(batch.num_rows), 2)
        collector.emit([batch.column(0).take(pa.array(twice))], twice)
        for row in pc.indices_nonzero(pc.equal(batch.column(0), "forget")).to_pylist():
            collector.leave_open(row)


class Broken(ArrowBolt):
    """Fail whatever comes."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit, then raise."""
        collector.emit([batch.column(0)], np.arange(batch.num_rows))
        raise OSError("no disk")


class Wrong(BasicBolt):
    """Emit what does not fit the output for some lines."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit a word, then a number or two values where the line says so."""
        collector.emit([tuple["line"]])
        if tuple["line"] == "number":
            collector.emit([7])
        if tuple["line"] == "two":
            collector.emit(["a", "b"])


class Hold(Bolt):
    """Join all lines into one tuple, at the end."""

    output = "value string"

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
    return Anchors(AnchorForm.PACKED, pa.array(np.array(indices, np.int64) << ORDINAL_BITS))


def lines(*texts: str) -> ArrowRows:
    """Make rows of one column, ``line``."""
    return ArrowRows(pa.RecordBatch.from_pydict({"line": list(texts)}))


def pass_of(*bolts: AnyBolt, **about: Any) -> StagePass:
    """Make a tracked pass of bolts that emit words."""
    steps = tuple(Step(type(each).__name__, each, WORD) for each in bolts)
    return Chain(steps, **{"arriving_form": AnchorForm.PACKED, **about}).stage


def failed(report: TaskReport) -> dict[Cause, list[int]]:
    """Return a report's failures as plain values; a message without the place behind it."""
    return {
        cause._replace(message=without_code_line(cause.message)[0]): roots.tolist()
        for cause, roots in failures_in(report)
    }


def test_a_basic_bolt_acks_what_returns_and_fails_what_raises() -> None:
    """S82, S83, S84: by FailTuple, or by any exception, under its own name."""
    run = StageRun(pass_of(Split()), CONTEXT)
    out = run.feed(lines("a b", "x fail", "", "y raise", "c"), packed([4, 5, 6, 7, 8]))
    assert out.column("word").to_pylist() == ["a", "b", "c"]
    assert failed(run.report()) == {
        Cause("Split", "", "said so"): [5],
        Cause("Split", "KeyError", "'raise'"): [7],
    }


class Emits(BasicBolt):
    """Emits as a line says."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit what fits, too much, nothing, text, on a stream, or what is no row."""
        line = tuple["line"]
        if line == "stream":
            collector.emit((line,), stream="other")
        elif line == "default":
            collector.emit((line,), "default")
        else:
            collector.emit({"two": ("a", "b"), "none": (), "text": "text", "null": None}.get(line, (line,)))  # type: ignore[arg-type]  # on purpose


ARITIES = {
    "two": "bolt 'Emits' emitted 2 values, whose fields are word",
    "none": "bolt 'Emits' emitted 0 values, whose fields are word",
    "text": "bolt 'Emits' emitted 'text' for a row; emit a tuple of its values, whose fields are word",
    "null": "bolt 'Emits' emitted None for a row; emit a tuple of its values, whose fields are word",
}


@pytest.mark.parametrize("bolts", [(Emits(),), (Emits(), Upper())], ids=["last", "in between"])
@pytest.mark.parametrize("line", ARITIES)
def test_a_row_of_another_size_fails_its_input_and_names_bolt_and_fields(
    bolts: tuple[BasicBolt, ...], line: str
) -> None:
    run = StageRun(pass_of(*bolts), CONTEXT)
    out = run.feed(lines("a", line, "b"), packed([4, 5, 6]))
    assert [word.lower() for word in out.column("word").to_pylist()] == ["a", "b"]
    [(cause, roots)] = failed(run.report()).items()
    assert roots == [5]
    assert (cause.operator, error_class(cause.error), cause.message) == ("Emits", "TupleError", ARITIES[line])


def test_a_row_of_another_size_before_a_rich_bolt_fails_its_input() -> None:
    """Its values are read outside of any bolt, where an exception would end the query."""
    run = StageRun(pass_of(Emits(), Hold()), CONTEXT)
    run.feed(lines("none"), packed([5]))
    assert [cause.message for cause in failed(run.report())] == [ARITIES["none"]]


@pytest.mark.parametrize("bolts", [(Emits(),), (Emits(), Upper())], ids=["last", "in between"])
def test_untracked_a_row_of_another_size_ends_the_task_and_is_named(bolts: tuple[BasicBolt, ...]) -> None:
    run = StageRun(pass_of(*bolts, arriving_form=AnchorForm.NONE), CONTEXT)
    with pytest.raises(TupleError, match=ARITIES["two"]):
        run.feed(lines("a", "two"), None)


@pytest.mark.parametrize("hooks", [(), (TaskHook(),)], ids=["bare", "watched"])
def test_a_stream_of_a_bolt_on_dataframes_is_refused_with_the_cure(hooks: tuple[TaskHook, ...]) -> None:
    run = StageRun(
        Chain((Step("Emits", Emits(), WORD, hooks),), arriving_form=AnchorForm.PACKED).stage, CONTEXT
    )
    run.feed(lines("a", "stream"), packed([4, 5]))
    [(cause, roots)] = failed(run.report()).items()
    assert roots == [5]
    assert error_class(cause.error) == "TupleError"
    assert cause.message.startswith(
        "bolt 'Emits' named a stream in emit, and a bolt on DataFrames has one stream"
    )
    assert "TopologyBuilder" in cause.message


def test_a_position_in_the_place_of_a_stream_is_told_likewise() -> None:
    run = StageRun(pass_of(Emits()), CONTEXT)
    run.feed(lines("default"), packed([4]))
    [cause] = failed(run.report())
    assert cause.message.startswith("bolt 'Emits' named a stream in emit")
    untracked = StageRun(pass_of(Emits(), arriving_form=AnchorForm.NONE), CONTEXT)
    with pytest.raises(TupleError, match="named a stream in emit"):
        untracked.feed(lines("stream"), None)


class Columns(ArrowBolt):
    """Emits a column too many, or on a stream."""

    output = "value string"

    def __init__(self, stream: str) -> None:
        """Emit on this stream."""
        self._stream = stream

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit twice as many columns."""
        collector.emit([batch.column(0), batch.column(0)], np.arange(batch.num_rows), self._stream)


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("default", "bolt 'Columns' emitted 2 columns, whose fields are word"),
        ("other", "bolt 'Columns' named a stream in emit, and a bolt on DataFrames has one stream"),
    ],
)
def test_an_arrow_bolt_is_told_the_same(stream: str, says: str) -> None:
    run = StageRun(pass_of(Columns(stream)), CONTEXT)
    run.feed(lines("a", "b"), packed([4, 5]))
    [(cause, roots)] = failed(run.report()).items()
    assert roots == [4, 5]
    assert error_class(cause.error) == "TupleError"
    assert cause.message.startswith(says)


def test_a_failure_in_a_later_bolt_fails_the_root_under_that_bolts_name() -> None:
    run = StageRun(pass_of(Split(), Upper()), CONTEXT)
    out = run.feed(lines("a 1 b", "c"), packed([0, 1]))
    assert out.column("word").to_pylist() == ["A", "B", "C"]
    assert failed(run.report()) == {Cause("Upper", "ValueError", "1"): [0]}


def test_rows_carry_their_root_and_their_ordinal() -> None:
    run = StageRun(pass_of(Split(), Upper(), leaving_form=AnchorForm.PACKED, consumer="Count"), CONTEXT)
    out = run.feed(lines("a b", "1", "c d"), packed([9, 2, 5]))
    anchors = Anchors(AnchorForm.PACKED, out.column("_windhover"), (3,))
    assert [each[0] for each in anchors.deliveries()] == [
        Delivery(9, ((3, 0),)),
        Delivery(9, ((3, 1),)),
        Delivery(5, ((3, 0),)),
        Delivery(5, ((3, 1),)),
    ]
    assert run.report().sent_fingerprint.rows == 4


def test_an_arrow_bolt_fails_rows_and_loses_what_they_emitted() -> None:
    run = StageRun(pass_of(Reverse()), CONTEXT)
    out = run.feed(lines("a", "b", "c"), packed([0, 1, 2]))
    assert out.column("word").to_pylist() == ["c", "b"]
    assert failed(run.report()) == {Cause("Reverse", "", "first"): [0]}


def left_open(*hooks: TaskHook) -> TaskReport:
    """Run a bolt that leaves the second of three rows open, and one behind it; return the report."""
    steps = (Step("Forget", Forget(), WORD, hooks), Step("Words", Words(), WORD))
    run = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, CONTEXT)
    out = run.feed(lines("a", "forget", "b"), packed([4, 5, 6]))
    assert out.column("word").to_pylist() == ["A", "A", "FORGET", "FORGET", "B", "B"]
    return run.report()


def test_a_row_that_an_arrow_bolt_leaves_open_is_outstanding() -> None:
    report = left_open()
    assert {path: rows.tolist() for path, rows in report.outstanding.items()} == {(): [[5]]}
    counts = {key.what: each.tuples for key, each in report.counts.items() if key.component == "Forget"}
    assert counts == {What.EXECUTED: 3, What.ACKED: 2, What.EMITTED: 6, What.TRANSFERRED: 6}


def test_watched_by_hooks_a_row_that_is_left_open_is_outstanding_with_what_was_emitted_on_it() -> None:
    report = left_open(TaskHook())
    found = {len(path): rows[:, 0].tolist() for path, rows in report.outstanding.items()}
    assert found == {0: [5], 1: [5, 5]}


def test_descendants_of_one_row_that_two_bolts_leave_open_do_not_cancel() -> None:
    run = StageRun(pass_of(Forget(), Forget()), CONTEXT)
    run.feed(lines("forget"), packed([5]))
    assert {path: rows.tolist() for path, rows in run.report().outstanding.items()} == {(): [[5]]}


def test_a_row_that_an_arrow_bolt_left_open_and_failed_is_failed() -> None:
    class Both(ArrowBolt):
        output = "value string"

        def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
            collector.leave_open(0)
            collector.fail(0, "both")

    run = StageRun(pass_of(Both()), CONTEXT)
    run.feed(lines("a"), packed([4]))
    report = run.report()
    assert (failed(report), report.outstanding) == ({Cause("Both", "", "both"): [4]}, {})


def test_an_arrow_bolt_that_raises_fails_its_whole_batch() -> None:
    run = StageRun(pass_of(Broken()), CONTEXT)
    assert run.feed(lines("a", "b"), packed([0, 1])).num_rows == 0
    assert run.feed(lines("c"), packed([2])).num_rows == 0
    assert failed(run.report()) == {Cause("Broken", "OSError", "no disk"): [0, 1, 2]}


class Words(ArrowBolt):
    """Emit words in capitals; refuse a batch of none."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit all rows."""
        if not batch.num_rows:
            raise IndexError("no row")
        collector.emit([pc.utf8_upper(batch.column("word"))], np.arange(batch.num_rows))


class Nulls(BasicBolt):
    """Emit a word that is null; fail ``none``."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit one row."""
        if tuple["line"] == "none":
            raise ValueError
        collector.emit([None])


def test_an_arrow_bolt_gets_columns_of_the_declared_types_where_every_value_is_null() -> None:
    run = StageRun(pass_of(Nulls(), Words()), CONTEXT)
    assert run.feed(lines("a", "b"), packed([0, 1])).column("word").to_pylist() == [None, None]
    assert failed(run.report()) == {}


def test_an_arrow_bolt_is_not_called_where_the_bolt_before_it_failed_every_row() -> None:
    run = StageRun(pass_of(Nulls(), Words()), CONTEXT)
    assert run.feed(lines("none"), packed([0])).num_rows == 0
    report = run.report()
    assert failed(report) == {Cause("Nulls", "ValueError", ""): [0]}
    assert [raised.operator for raised in report.raised] == ["Nulls"]


@pytest.mark.parametrize(
    ("line", "error"),
    [("number", "ArrowTypeError(TypeError, ArrowException)"), ("two", "TupleError(WindhoverError)")],
)
def test_what_does_not_fit_the_output_fails_the_input_that_it_came_from(line: str, error: str) -> None:
    run = StageRun(pass_of(Wrong()), CONTEXT)
    out = run.feed(lines("a", line, "b"), packed([0, 1, 2]))
    assert out.column("word").to_pylist() == ["a", "b"]
    [(cause, roots)] = failed(run.report()).items()
    assert (cause.operator, cause.error, roots) == ("Wrong", error, [1])


def test_untracked_a_fail_is_dropped_and_another_exception_ends_the_task() -> None:
    """S79: without ackers a fail does nothing."""
    run = StageRun(pass_of(Split(), arriving_form=AnchorForm.NONE), CONTEXT)
    assert run.feed(lines("a", "fail"), None).column("word").to_pylist() == ["a"]
    with pytest.raises(KeyError):
        run.feed(lines("raise"), None)


def test_a_rich_bolt_joins_two_roots_into_one_tuple_over_batches() -> None:
    """S29, S31, P52: acked after the join, anchored on both."""
    run = StageRun(pass_of(Hold(), Upper(), leaving_form=AnchorForm.HOPS, consumer="Count"), CONTEXT)
    assert run.feed(lines("a"), packed([4])).num_rows == 0
    assert run.feed(lines("b"), packed([7])).num_rows == 0
    [out] = run.finish()
    assert out.column("word").to_pylist() == ["A B"]
    [deliveries] = Anchors(AnchorForm.HOPS, out.column("_windhover")).deliveries()
    assert [(each.root, [ordinal for _, ordinal in each.path]) for each in deliveries] == [
        (4, [0, 0]),
        (7, [0, 0]),
    ]
    report = run.report()
    assert (report.outstanding, failed(report), report.sent_fingerprint.rows) == ({}, {}, 1)


def test_what_a_rich_bolt_forgets_is_outstanding_and_what_it_raises_fails() -> None:
    """S81."""
    run = StageRun(pass_of(Hold()), CONTEXT)
    run.feed(lines("forget", "raise", "again"), packed([4, 5, 6]))
    run.finish()
    report = run.report()
    assert {path: rows.tolist() for path, rows in report.outstanding.items()} == {(): [[4]]}
    assert {(cause.error, *roots) for cause, roots in failed(report).items()} == {
        ("KeyError", 5),
        ("TupleError(WindhoverError)", 6),
    }


def test_a_rich_bolts_misfit_without_anchors_ends_the_task() -> None:
    class Loud(Hold):
        def execute(self, tuple: Tuple) -> None:
            self._collector.emit([1])

    says = "bolt 'Loud' emitted, unanchored, what does not fit its output: .*; no input fails for it, so the"
    with pytest.raises(TupleError, match=f"^{says} query ends: anchor it, .* or emit what fits$"):
        StageRun(pass_of(Loud()), CONTEXT).feed(lines("a"), packed([0]))


def test_ordinals_count_rows_of_one_parent_in_any_order() -> None:
    assert ordinals_of(np.array([2, 0, 2, 2, 0]), 4).tolist() == [0, 0, 1, 2, 1]
    assert ordinals_of(np.array([0, 0, 3, 3, 3]), 4).tolist() == [0, 1, 0, 1, 2]
    assert ordinals_of(np.empty(0, np.int64), 0).tolist() == []


def ordered_run(run: StageRun, rows: ArrowRows, keys: bytes) -> Gate:
    """Let a run work on rows that stand in lines, by one key of one letter each."""
    gate = Gate("t/0", "lines", LineUp("key"))
    for index in range(len(rows)):
        assert gate.admit(index, keys[index : index + 1], index) is None
    run.gate = gate
    run.feed(rows, packed(range(len(rows))))
    return gate


class Seen(BasicBolt):
    """Passes words on, fails what says so, and keeps all it sees."""

    output = "value string"

    def __init__(self, *bad: str) -> None:
        """Fail some words."""
        self.bad, self.seen = bad, list[str]()

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """See a word."""
        word = tuple["line"] if "line" in tuple else tuple["word"]
        self.seen.append(word)
        if word in self.bad:
            raise ValueError(word)
        collector.emit([word])


class SeenToo(Seen):
    """Another one, behind the first."""


def behind_of(report: TaskReport) -> dict[str, list[int]]:
    """Return what failed, by class, and what was held, by its message."""
    return {
        cause.message if cause.error == "HELD" else cause.error: r.tolist()
        for cause, r in failures_in(report)
    }


def test_in_order_a_bolt_does_not_see_what_stands_behind_a_record_that_it_failed() -> None:
    first, second = Seen("a1"), SeenToo("b0")
    run = StageRun(pass_of(first, second), CONTEXT)
    ordered_run(run, lines("a0", "b0", "a1", "b1", "a2", "c0"), b"ababac")
    assert first.seen == ["a0", "b0", "a1", "b1", "c0"]
    assert second.seen == ["a0", "b0", "c0"]
    assert failed(run.report()) == {
        Cause("SeenToo", "ValueError", "b0"): [1],
        Cause("Seen", "ValueError", "a1"): [2],
        Cause("lines", "HELD", "waits for t/0@1"): [3],
        Cause("lines", "HELD", "waits for t/0@2"): [4],
    }


def test_in_order_what_does_not_fit_the_output_holds_back_the_next_chunk() -> None:
    run = StageRun(pass_of(Wrong()), CONTEXT)
    gate = ordered_run(run, lines("number", "a"), b"xy")
    assert gate.admit(2, b"x", 2) == Cause("lines", "HELD", "waits for t/0@0")
    assert gate.admit(3, b"y", 3) is None


class Picky(Bolt):
    """A rich bolt that fails what says so, at once."""

    output = "value string"

    def __init__(self) -> None:
        """See nothing yet."""
        self.seen = list[str]()

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Ack, or fail."""
        self.seen.append(tuple["line"])
        if tuple["line"] == "raise":
            raise KeyError("raise")
        if tuple["line"] == "fail":
            self._collector.fail(tuple, "said so")
        else:
            self._collector.ack(tuple)


def test_in_order_a_rich_bolt_does_not_see_what_stands_behind_a_record_that_it_failed() -> None:
    picky = Picky()
    run = StageRun(pass_of(picky), CONTEXT)
    ordered_run(run, lines("fail", "a", "raise", "b", "c"), b"xxyyz")
    assert picky.seen == ["fail", "raise", "c"]
    assert behind_of(run.report())["waits for t/0@0"] == [1]
    assert behind_of(run.report())["waits for t/0@2"] == [3]


def test_in_order_a_simple_bolt_before_a_rich_one_holds_back_too() -> None:
    seen = Seen("a0")
    run = StageRun(pass_of(seen, Forward()), CONTEXT)
    ordered_run(run, lines("a0", "a1", "b0"), b"aab")
    assert seen.seen == ["a0", "b0"]
    assert behind_of(run.report())["waits for t/0@0"] == [1]


class Forward(Bolt):
    """A rich bolt that passes on."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit and ack."""
        self._collector.emit([tuple["word"]], anchors=tuple)
        self._collector.ack(tuple)
