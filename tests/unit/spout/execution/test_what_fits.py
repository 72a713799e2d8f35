"""Emissions that fit, each by itself and all together; what a test's bolt fails late; what hooks are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import BoltStopped, TupleError
from acker.wire.causes import error_class, without_code_line
from spout.bolts.hooks import AckInfo, ExecuteInfo, FailInfo, TaskHook
from spout.execution import fitting
from spout.execution.bolt_work import BoltWork
from spout.execution.calls import EmittedRows, RowsToCall
from spout.execution.fitting import fitted
from spout.topology.stage_pass import BoltPass, StreamPass
from spout.topology.stages import SinkOutput
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import ArrowRows, batch_of
from spout.tuples.tuple import Delivery, StreamId

WORD = pa.schema([("word", pa.string())])
MS = 1_000_000


def stream_of(name: str = "default", *, direct: bool = False, frame: bool = False) -> StreamPass:
    """Return a stream whose rows leave the task."""
    stream_id = StreamId("it", name)
    output = SinkOutput(0, stream_id, 0)
    return StreamPass(stream_id, WORD, "", (), (output,), direct=direct, on_frame=frame)


STREAM = stream_of()


# too large together -----------------------------------------------------------------------------------------


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an array have room for 40 bytes."""
    row_bytes = batch_of([("",)], WORD, "it").nbytes

    def limited_batch(rows: Any, schema: pa.Schema, bolt: str) -> pa.RecordBatch:
        if len(rows) > 1 and sum(len(word) + row_bytes for (word,) in rows) > 40:
            raise TupleError("too large for one array")
        return batch_of(rows, schema, bolt)

    monkeypatch.setattr(fitting, "ARRAY_BYTES_MAX", 40)
    monkeypatch.setattr(fitting, "batch_of", limited_batch)


def emitted(*rows: tuple[str, int]) -> EmittedRows:
    """Return rows of one word, each with the number of its input row."""
    values: list[Any] = [(word,) for word, _ in rows]
    return EmittedRows(STREAM, values, np.array([parent for _, parent in rows], np.int64))


def kept(fit: fitting.Fitted) -> list[tuple[str, int]]:
    """Return the rows that fit, with the numbers of their input rows."""
    assert fit.emitted.arrow_rows is not None
    words = fit.emitted.arrow_rows.column("word").to_pylist()
    return list(zip(words, fit.emitted.parents.tolist(), strict=True))


@pytest.mark.usefixtures("small_arrays")
@pytest.mark.parametrize("large_input", [0, 1, 2])
def test_the_input_row_for_which_too_much_was_emitted_fails_alone(large_input: int) -> None:
    rows = [("w" * 30 if parent == large_input else "w", parent) for parent in (0, 1, 2)]
    rows += [("w" * 30, large_input)]
    small = [row for row in rows if row[1] != large_input][:1]
    large_rows = [row for row in rows if row[1] == large_input]
    fit = fitted(emitted(*large_rows, *small), Tracebacks())
    assert kept(fit) == small
    assert [(row, error_class(cause.error)) for row, cause in fit.failures] == [(large_input, "TupleError")]


@pytest.mark.usefixtures("small_arrays")
def test_where_no_input_row_alone_is_too_large_the_task_ends() -> None:
    row_bytes = batch_of([("",)], WORD, "it").nbytes
    exactly = "w" * (40 - row_bytes)
    with pytest.raises(TupleError, match="too large for one array"):
        fitted(emitted((exactly, 0), ("w", 1)), Tracebacks())


# Arrow bolts ------------------------------------------------------------------------------------------------


class Columns(spout.ArrowBolt):
    """Emits what a test says for its batch."""

    output = "word string"

    def __init__(self, columns: Any, stream: str = "default", times: int = 1) -> None:
        self._columns = columns
        self._stream = stream
        self._times = times

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit it for each row."""
        for _ in range(self._times):
            collector.emit(self._columns, np.arange(batch.num_rows), self._stream)


def outcome_of(bolt: spout.ArrowBolt, *streams: StreamPass) -> tuple[list[list[Any]], dict[int, str]]:
    """Call a bolt for two rows; return what it emitted by call, and why rows failed."""
    by_name = {stream.id.stream: stream for stream in streams}
    work = BoltWork(BoltPass("it", bolt, by_name, 0), spout.BoltContext("it", 0, 1), tracked=True)
    rows = ArrowRows(pa.record_batch({"line": ["a", "b"]}))
    work.call_bolt(rows, [(Delivery(0, ()),), (Delivery(1, ()),)])
    words = [
        emissions.arrow_rows.column("word").to_pylist()
        for emissions in work.pop_emissions()
        if emissions.arrow_rows
    ]
    return words, {root: cause.message for root, cause in work.collector.failures}


def test_columns_of_several_calls_are_one_column_in_their_order() -> None:
    column = pa.array(["x", "y"])
    chunked = pa.chunked_array([["x"], [], ["y"]])
    for columns in ([column], {"word": column}, [chunked], {"word": chunked}):
        assert outcome_of(Columns(columns, times=2), STREAM) == ([["x", "y", "x", "y"]], {})


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([["x", "y"]], "bolt 'it' emitted a list as 'word', no Arrow array"),
        ({"word": np.array([1, 2])}, "bolt 'it' emitted a ndarray as 'word', no Arrow array"),
        ([pa.array(["x", "y"])] * 2, "bolt 'it' emitted 2 columns, whose fields are word"),
    ],
)
def test_what_is_no_column_of_the_stream_fails_all_rows(columns: Any, says: str) -> None:
    words, failed = outcome_of(Columns(columns), STREAM)
    assert words == []
    assert sorted(failed) == [0, 1]
    assert all(message.startswith(says) for message in failed.values())


def test_an_arrow_bolt_names_no_tasks_and_is_told_what_to_do_about_a_direct_stream() -> None:
    """It was told that it had emitted 0 values."""
    columns = [pa.array(["x", "y"])]
    _, failed = outcome_of(Columns(columns, "aside"), STREAM, stream_of("aside", direct=True))
    assert {without_code_line(message)[0] for message in failed.values()} == {
        "bolt 'it' emitted on stream 'aside', which is direct, and an ArrowBolt names no tasks: declare"
        " it without direct=True, or make the bolt a BasicBolt"
    }


# collect ----------------------------------------------------------------------------------------------------


class Late(spout.Bolt):
    """Holds its tuples, and settles them in its cleanup."""

    output = "word string"

    def __init__(self, *bad: str) -> None:
        self._bad = bad

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Begin without tuples."""
        self._collector = collector
        self._held: list[spout.Tuple] = []

    def execute(self, tuple: spout.Tuple) -> None:
        """Hold it."""
        self._held.append(tuple)

    def cleanup(self) -> None:
        """Settle all."""
        for held in self._held:
            if held["word"] in self._bad:
                self._collector.fail(held, spout.RejectTuple(f"{held['word']} is bad"))
            else:
                self._collector.ack(held)


def test_what_a_bolt_fails_in_its_cleanup_is_raised_in_the_test_too() -> None:
    words = [spout.tuple_of({"word": word}) for word in ("a", "b", "c")]
    assert spout.collect(Late(), *words) == []
    with pytest.raises(spout.RejectTuple, match=r"^b is bad$"):
        spout.collect(Late("b", "c"), *words)


class OfKey(spout.KeyedBolt):
    """Emits what a test says."""

    output = "word string, n int"
    stops_on = (OSError,)

    def __init__(self, *emissions: Any) -> None:
        self._emissions = emissions

    def prepare(self, context: spout.BoltContext) -> None:
        """Keep the task."""
        self.task = (context.partition, context.batch_id)

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Emit it."""
        for values in self._emissions:
            if isinstance(values, BaseException):
                raise values
            collector.emit(values)
        self.collector = collector


class NamesStream(spout.BasicBolt):
    """Emits on a stream that a test says, or a value too many."""

    output = "word string"

    def __init__(self, stream: str = "", *, declares: str = "") -> None:
        self._stream = stream
        self._declares = declares

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare the output, and perhaps another stream."""
        declarer.declare("word string")
        if self._declares:
            declarer.declare("word string", stream=self._declares)

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit."""
        if self._stream:
            collector.emit(("a",), stream=self._stream)
        else:
            collector.emit(("a", "b"))


@pytest.mark.parametrize(
    ("bolt", "says"),
    [
        (NamesStream("other"), "'NamesStream' named a stream in emit, and a bolt on DataFrames has one"),
        (NamesStream(), "'NamesStream' emitted 2 values, whose fields are word"),
        (NamesStream("other", declares="more"), "on stream 'other', which it does not declare; it has"),
        (NamesStream(declares="more"), "'NamesStream' emitted 2 values on stream 'default', whose fields"),
    ],
)
def test_a_bolt_of_one_stream_is_told_what_holds_on_dataframes_and_others_what_holds_in_a_topology(
    bolt: spout.BasicBolt, says: str
) -> None:
    with pytest.raises(TupleError, match=says):
        spout.collect(bolt, spout.tuple_of({"word": "a"}))


def test_what_a_keyed_bolt_emits_fits_its_output_or_is_raised() -> None:
    word = spout.tuple_of({"word": "a"})
    for wrong, says in (
        (("a",), "'OfKey' emitted 1 values, whose fields are word, n"),
        (("a", "b"), "a str, as 'n', which is int"),
    ):
        with pytest.raises(TupleError, match=says):
            spout.collect(OfKey(("first", 1), wrong), word)
    bolt = OfKey(("a", 1), {"n": 2, "word": "b"})
    assert spout.collect(bolt, word, word) == [("a", 1), ("b", 2)]
    assert bolt.task == (0, 0)
    with pytest.raises(TupleError):
        bolt.collector.emit(("late", 1))


def test_what_a_keyed_bolt_stops_on_is_raised_as_in_a_query() -> None:
    word = spout.tuple_of({"word": "a"})
    with pytest.raises(BoltStopped, match="'OfKey' stops on OSError: no disk"):
        spout.collect(OfKey(OSError("no disk")), word)
    with pytest.raises(ValueError, match="no word"):
        spout.collect(OfKey(ValueError("no word")), word)


class FailsByName(spout.Bolt):
    """Fails its tuple with what a test says."""

    output = "word string"

    def __init__(self, cause: Any) -> None:
        self._cause = cause

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector
        self.task = (context.partition, context.batch_id)

    def execute(self, tuple: spout.Tuple) -> None:
        """Fail it."""
        self._collector.fail(tuple, self._cause)


@pytest.mark.parametrize(
    ("cause", "kind", "says"),
    [
        (spout.RejectTuple("bad"), spout.RejectTuple, "^bad$"),
        (spout.Undecodable("bad"), spout.Undecodable, "^bad$"),
        ("bad", spout.FailTuple, "^bad$"),
        (KeyError("bad"), Exception, "bad"),
    ],
)
def test_what_a_tuple_is_failed_with_is_raised_in_the_test(
    cause: Any, kind: type[Exception], says: str
) -> None:
    bolt = FailsByName(cause)
    with pytest.raises(kind, match=says):
        spout.collect(bolt, spout.tuple_of({"word": "a"}))
    assert bolt.task == (0, 0)


# what hooks are told ----------------------------------------------------------------------------------------


class Times(TaskHook):
    """Writes down how long things took, ms."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def execute(self, info: ExecuteInfo) -> None:
        """Write it down."""
        self.seen.append(("execute", info.latency_ms))

    def ack(self, info: AckInfo) -> None:
        """Write it down."""
        self.seen.append(("ack", info.latency_ms))

    def fail(self, info: FailInfo) -> None:
        """Write it down."""
        self.seen.append(("fail", info.latency_ms))


class Words(spout.BasicBolt):
    """Fails a word that says so."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Fail it."""
        if tuple["word"] == "bad":
            raise ValueError("bad")


def test_hooks_are_told_how_long_a_tuple_took_since_its_call_began() -> None:
    """A clock goes on by 2 ms at each look: at the call, its tuples, and what became of them."""
    readings = iter(range(100 * MS, 200 * MS, 2 * MS))
    hook = Times()
    bolt_pass = BoltPass("it", Words(), {"default": STREAM}, 0, (hook,))
    context = spout.BoltContext("it", 0, 1)
    work = BoltWork(bolt_pass, context, tracked=True, clock_ns=lambda: next(readings))
    rows = ArrowRows(pa.record_batch({"word": ["a", "bad"]}))
    work.call_bolt(rows, [(Delivery(0, ()),), (Delivery(1, ()),)])
    assert hook.seen == [("ack", 2.0), ("execute", 4.0), ("fail", 2.0)]


def test_of_a_block_without_rows_nobody_works_on_the_first_row() -> None:
    """The thread that watches for hangs may ask before the first row, and behind the last one."""
    rows = RowsToCall(3)
    before = rows.current_row()
    seen = [rows.current_row() for _ in rows]
    assert (before, seen, rows.current_row()) == (0, [0, 1, 2], 2)
    assert RowsToCall(0).current_row() == 0
