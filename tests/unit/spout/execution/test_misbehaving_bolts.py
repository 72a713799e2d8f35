"""Bolts that keep what is not theirs, come too late, or raise what nobody expects: nothing is lost."""

from __future__ import annotations

import re
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from mmap import mmap
from threading import Lock, Thread
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import BoltStopped, TupleError
from acker.wire.causes import error_class, error_text
from acker.wire.codec import wire_codec
from spout.bolts.bolts import AnyBolt
from spout.bolts.collectors import EmittedStream, Outlet, OutputCollector
from spout.bolts.hooks import AckInfo, EmitInfo, FailInfo, TaskHook
from spout.execution.stage_run import StageRun
from spout.publishing.publish import Publication
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.rows import ArrowRows, ListRows, one_batch
from spout.tuples.tuple import AnchoredTuple, Delivery, Tuple
from tests.support.outcomes import failed_by_cause
from tests.support.reports import failures_in
from tests.support.worlds.topology_world import TOPICS, ran, run

WORD = pa.schema([("word", pa.string())])


def run_of(*bolts: AnyBolt, **about: Any) -> StageRun:
    """Begin a task of bolts that emit words, one behind the other."""
    steps = tuple(Step(type(bolt).__name__, bolt, WORD) for bolt in bolts)
    return StageRun(
        Chain(steps, **{"arriving_form": AnchorForm.PACKED, **about}).stage, spout.BoltContext("it", 0, 1)
    )


def fed(run: StageRun, *words: str, first: int = 0) -> list[Any]:
    """Feed a batch of words, each a root of its own; return the values that leave."""
    roots = np.arange(first, first + len(words)) << ORDINAL_BITS
    rows = ArrowRows(pa.record_batch({"word": pa.array(words, pa.string())}))
    return run.feed(rows, Anchors(AnchorForm.PACKED, pa.array(roots))).column(0).to_pylist()


def failed(run: StageRun) -> dict[int, str]:
    """Return the class of the error of each root that failed."""
    return {r: error_class(cause.error) for cause, roots in failures_in(run.report()) for r in roots.tolist()}


class KeepsCollector(spout.BasicBolt):
    """Emits by the collector of its first call."""

    collector: Any = None
    streams = 1

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit the word."""
        self.collector = self.collector or collector
        self.collector.emit((tuple[0],))

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare another stream too, if it is the bolt of a topology."""
        declarer.declare("word string")
        if self.streams > 1:
            declarer.declare("word string", stream="other")


def test_what_a_bolt_emits_by_the_collector_of_an_earlier_batch_is_delivered() -> None:
    task = run_of(KeepsCollector())
    assert fed(task, "a", "b") == ["a", "b"]
    assert fed(task, "c", first=2) == ["c"]


@pytest.mark.parametrize("streams", [1, 2])
def test_in_a_topology_it_is_delivered_too(streams: int) -> None:
    bolt = KeepsCollector()
    bolt.streams = streams
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("keeps", bolt).global_grouping("lines")
    made = run(builder, [b"a", b"b", b"c"], {"keeps": print}, tasks=3)  # a batch of each read task
    assert made.values == [("a",), ("b",), ("c",)]
    assert failed_by_cause(made.outcome) == ()


class EmitsLate(spout.BasicBolt):
    """Emits in cleanup what it kept."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Keep the word, which is acked."""
        self.last = collector, tuple[0]

    def cleanup(self) -> None:
        """Emit it."""
        collector, word = self.last
        collector.emit((word,))


class EmitsColumnsLate(spout.ArrowBolt):
    """The same for a batch."""

    output = "value string"

    def __init__(self, does: str) -> None:
        self._does = does

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Keep the batch, which is acked."""
        self.last = collector, batch

    def cleanup(self) -> None:
        """Emit, fail or leave open its first row."""
        collector, batch = self.last
        if self._does == "emit":
            collector.emit(batch.columns, np.arange(batch.num_rows))
        else:
            getattr(collector, self._does)(0)


@pytest.mark.parametrize(
    "bolt", [EmitsLate(), *(EmitsColumnsLate(does) for does in ("emit", "fail", "leave_open"))]
)
def test_what_a_bolt_does_in_cleanup_with_an_input_that_is_acked_ends_the_task(bolt: AnyBolt) -> None:
    task = run_of(bolt)
    fed(task, "a")
    with pytest.raises(TupleError, match="make it a Bolt"):
        task.finish()


def test_what_another_thread_emits_between_two_batches_ends_the_task() -> None:
    bolt = EmitsLate()
    task = run_of(bolt)
    fed(task, "a")
    bolt.cleanup()
    with pytest.raises(TupleError, match=r"'EmitsLate' emitted while no call of execute ran"):
        fed(task, "b", first=1)


class Threads(spout.Bolt):
    """Lets threads emit and ack; `late` of them are left when the task ends."""

    output = "value string"

    def prepare(self, context: spout.BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Hold it."""
        self.held.append(tuple)

    def work(self) -> None:
        """Emit on what is held, and ack it."""
        for held in self.held:
            self.collector.emit((held[0],), anchors=held)
            self.collector.ack(held)


def test_what_a_thread_emits_and_acks_when_its_task_has_ended_is_not_lost() -> None:
    """Its root would be acked, and nobody would have received what was emitted on it."""
    bolt = Threads()
    task = run_of(bolt)
    fed(task, "a")
    assert task.finish() == []
    thread = Thread(target=bolt.work)
    thread.start()
    thread.join()
    with pytest.raises(TupleError, match="'Threads' emitted after its task had ended"):
        task.report()


class Observed(Sequence[tuple[Delivery, ...]]):
    """Places of tuples; whoever looks at them lets something happen before."""

    def __init__(self, places: Sequence[tuple[Delivery, ...]], happens: Callable[[], None]) -> None:
        self._places = places
        self._happens = happens

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: Any) -> Any:
        self._happens()
        return self._places[row]


def test_a_tuple_that_a_thread_fails_while_its_task_reports_is_open_or_failed() -> None:
    """Rule 3: with neither its root would be acked."""
    bolt = Threads()
    task = run_of(bolt)
    fed(task, "a")
    task.finish()
    [held] = bolt.held
    assert isinstance(held, AnchoredTuple)
    places, reports = held.places, []

    def happens() -> None:
        held.places = places
        reports.append(task.report())

    held.places = Observed(places, happens)
    bolt.collector.fail(held, "too late")
    assert [bool(failures_in(each) or each.outstanding) for each in reports] == [True]


@contextmanager
def hasty_threads() -> Iterator[None]:
    """Let Python change from thread to thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_threads_that_emit_on_one_tuple_do_not_give_two_emissions_one_edge() -> None:
    """Two equal edges cancel: nobody would wait for either of the two."""
    task = run_of(Threads(), leaving_form=AnchorForm.HOPS, consumer="next")
    [work] = task._work_by_bolt.values()
    collector = work.collector
    held = AnchoredTuple(ListRows(["word"], [["a"]]), 0, [(Delivery(1, ()),)], "Threads")
    collector.receive(held)
    with hasty_threads():
        threads = [
            Thread(target=lambda: [collector.emit(("a",), held) for _ in range(20_000)]) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {sent.ordinals for sent in collector.sent} == {(n,) for n in range(40_000)}


class KeepsTuples(spout.Bolt):
    """Keeps tuples where they outlive their task, and fails those of the task before."""

    output = "value string"

    kept: ClassVar[list[Tuple]] = []

    def prepare(self, context: spout.BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Fail the others."""
        for held in self.kept:
            self.collector.fail(held)
        self.kept[:] = [tuple]


def test_a_tuple_of_an_earlier_task_is_refused_since_its_root_is_another_one_here() -> None:
    KeepsTuples.kept.clear()
    fed(run_of(KeepsTuples()), "a", first=5)
    task = run_of(KeepsTuples())
    fed(task, "b", first=6)
    assert failed(task) == {6: "TupleError"}
    [(cause, _)] = failures_in(task.report())
    assert "no input of it in this task" in cause.message


class Refills(spout.BasicBolt):
    """Fills one list again and again."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit it for each letter."""
        row: list[str] = [""]
        for letter in tuple[0]:
            row[0] = letter
            collector.emit(row)


class RefillsByHand(Threads):
    """The same, by hand."""

    def execute(self, tuple: Tuple) -> None:
        """Emit it for each letter."""
        row: list[str] = [""]
        for letter in tuple[0]:
            row[0] = letter
            self.collector.emit(row, anchors=tuple)
        self.collector.ack(tuple)


def test_a_list_that_is_filled_again_does_not_write_its_last_values_twice() -> None:
    task = run_of(Refills())
    assert fed(task, "ab", "c") == ["c"]
    [(cause, roots)] = failures_in(task.report())
    assert roots.tolist() == [0]
    assert "emitted one list 2 times, which may have changed in between; emit a new one" in cause.message
    assert fed(run_of(RefillsByHand()), "ab", "c") == ["a", "b", "c"]


class Mute(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        return self.args[7]  # type: ignore[no-any-return]


class Raises(spout.BasicBolt):
    """Raises for one word."""

    output = "value string"

    def __init__(self, error: BaseException | type) -> None:
        self._error = error

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Raise, or emit."""
        if (tuple["value"].decode() if "value" in tuple else tuple[0]) == "bad":
            raise self._error
        collector.emit(("good",))


@pytest.mark.parametrize("hooks", [[], [TaskHook()]], ids=["bare", "watched"])
@pytest.mark.parametrize("where", ["rows", "topology", "child"])
def test_an_exception_without_a_text_fails_its_input_alone(where: str, hooks: list[TaskHook]) -> None:
    rows: list[Any] = []
    found = ran(Raises(Mute()), [b"a", b"bad", b"b"], hooks, where, rows)
    assert {root: error_class(cause.error) for root, cause in found.items()} == {1: "Mute"}
    assert found[1].message.startswith("<no text: IndexError>")
    assert len(rows) == 2


@pytest.mark.parametrize("where", ["rows", "topology", "child"])
def test_an_exception_that_python_cannot_trace_fails_its_input_alone(where: str) -> None:
    """Python subtracts from the place in a line; parsers derive their errors from SyntaxError."""
    rows: list[Any] = []
    error = SyntaxError("no words", ("line", 1, "3", "the hawk"))
    found = ran(Raises(error), [b"a", b"bad", b"b"], [], where, rows)
    assert {root: error_class(cause.error) for root, cause in found.items()} == {1: "SyntaxError"}
    assert len(rows) == 2


def test_an_exception_without_a_text_may_end_the_query_too() -> None:
    class Stops(Raises):
        stops_on = (Mute,)

    with pytest.raises(BoltStopped, match="stops on Mute: <no text: IndexError>"):
        fed(run_of(Stops(Mute())), "bad")


def test_the_address_of_an_object_is_no_part_of_a_cause() -> None:
    """A batch that runs again must fail its records by the same causes."""
    task = run_of(Raises(KeyError(object())))
    fed(task, "bad")
    [(cause, _)] = failures_in(task.report())
    assert cause.message.startswith("<object object> (")


class FailsWith(Threads):
    """Fails its inputs with what is no cause."""

    def execute(self, tuple: Tuple) -> None:
        """Fail with a class."""
        self.collector.fail(tuple, ValueError)  # type: ignore[arg-type]  # on purpose


def test_a_class_is_no_cause_and_the_error_says_what_is_one() -> None:
    task = run_of(FailsWith())
    fed(task, "a")
    [(cause, _)] = failures_in(task.report())
    assert "'FailsWith' gave <class 'ValueError'>, a type, as a cause; give a text or an" in cause.message


class Alarm(TaskHook):
    """Cannot bear a failure."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def fail(self, info: FailInfo) -> None:
        """Raise."""
        raise self._error("no alarm today")


class FailsByHand(Threads):
    """Fails its inputs by hand."""

    def execute(self, tuple: Tuple) -> None:
        """Fail."""
        self.collector.fail(tuple, "bad")


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, CancelledError])
@pytest.mark.parametrize("bolt", [Raises(ValueError("bad")), FailsByHand()])
def test_what_a_hook_raises_for_a_failure_is_reported_and_ends_no_task(
    bolt: AnyBolt, error: type[BaseException]
) -> None:
    """Its input has failed already."""
    steps = (Step("it", bolt, WORD, (Alarm(error),)),)
    task = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))
    fed(task, "bad")
    report = task.report()
    assert [roots.tolist() for _, roots in failures_in(report)] == [[0]]
    assert [(each.operator, each.error) for each in report.errors] == [("it", error_text(error))]


class Passes(spout.BasicBolt):
    """Emits what it gets."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        collector.emit((tuple["word"],))


def test_a_text_that_is_no_utf8_fails_its_own_tuple_and_none_beside_it() -> None:
    """Spark casts any bytes to a string."""
    task = run_of(Passes())
    words = pa.array([b"a", b"\xff", b"b"]).view(pa.string())
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(3) << ORDINAL_BITS))
    out = task.feed(ArrowRows(pa.record_batch({"word": words})), anchors)
    assert out.column(0).to_pylist() == ["a", "b"]
    assert failed(task) == {1: "UnicodeDecodeError"}


PAIRS = pa.map_(pa.string(), pa.int32())
HOLE = [("a", 1), None]


class Maps(spout.BasicBolt):
    """Emits values, one for each tuple."""

    output = "value string"

    def __init__(self, values: list[Any]) -> None:
        """Emit these."""
        self._values = values

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit the next one."""
        collector.emit((self._values.pop(0),))


@pytest.mark.parametrize(
    ("kind", "fine", "bad"),
    [
        (PAIRS, {"a": None}, HOLE),
        (PAIRS, [("a", 1)], np.array([None])),
        (pa.list_(PAIRS), [None, {"a": 1}], [HOLE]),
        (pa.map_(pa.string(), PAIRS), {"k": None}, {"k": HOLE}),
        (pa.struct([("n", pa.int32()), ("m", PAIRS)]), {"n": 1}, {"m": HOLE}),
        (pa.struct([("n", pa.int32()), ("m", PAIRS)]), (1, [("a", 1)]), (1, HOLE)),
        (pa.struct([("n", pa.int32()), ("m", PAIRS)]), [("n", 1), ("m", None)], [("n", 1), ("m", HOLE)]),
    ],
)
def test_a_map_with_a_hole_fails_its_tuple_and_ends_no_process(
    kind: pa.DataType, fine: Any, bad: Any
) -> None:
    """PyArrow 26 ends the process by SIGABRT, so that nothing would name the record."""
    steps = (Step("maps", Maps([fine, bad, None, fine]), pa.schema([("map", kind)])),)
    task = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))
    [value, none, same] = fed(task, "a", "b", "c", "d")
    assert (value == same, none) == (True, None)
    assert failed(task) == {1: "ArrowInvalid"}
    [(cause, _)] = failures_in(task.report())
    assert "'map'" in cause.message
    assert "for a pair of key and value" in cause.message


class Columns(spout.ArrowBolt):
    """Emits a value for each tuple, all at once."""

    output = "value string"

    def __init__(self, column: pa.Array) -> None:
        """Emit these."""
        self._column = column

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit them."""
        collector.emit([self._column], parents=np.arange(batch.num_rows))


WHOLE = pa.struct([pa.field("n", pa.int32(), nullable=False)])


@pytest.mark.parametrize(
    ("field", "values", "bad"),
    [
        (pa.field("out", pa.int32(), nullable=False), [1, None, 0, 2], {1}),
        (pa.field("out", pa.string(), nullable=False), ["", None, None], {1, 2}),
        (pa.field("out", WHOLE), [{"n": 1}, {"n": None}, None], {1}),
        (pa.field("out", pa.list_(WHOLE)), [[{"n": 1}], [{}], None, [None], []], {1}),
        (pa.field("out", pa.map_(pa.string(), pa.int32())), [{"a": None}, None], set()),
    ],
)
def test_a_null_where_the_output_says_not_null_fails_its_tuple(
    field: pa.Field, values: list[Any], bad: set[int]
) -> None:
    """O1101: Spark's columns raise where they are read: one record would end the query again and again."""
    words = [str(number) for number in range(len(values))]
    for bolt in (Maps(list(values)), Columns(pa.array(values, field.type))):
        steps = (Step("maps", bolt, pa.schema([field])),)
        task = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))
        assert len(fed(task, *words)) == len(values) - len(bad)
        assert failed(task).keys() == bad
        for cause, _ in failures_in(task.report()):
            assert re.search("'maps' emitted (a null|struct|list).* null|NOT NULL", cause.message), cause


class Streams(spout.BasicBolt):
    """Emits a word on one stream, and what does not fit on the other."""

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare both."""
        declarer.declare("word string")
        declarer.declare("n int", stream="numbers")

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit on both."""
        word = tuple["value"].decode()
        collector.emit((word,))
        collector.emit((word if word == "bad" else 1,), stream="numbers")


def test_what_does_not_fit_one_stream_takes_back_what_its_input_emitted_on_another() -> None:
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("streams", Streams()).shuffle_grouping("lines")
    sinks = {"streams": print, ("streams", "numbers"): print}
    made = run(builder, [b"a", b"bad", b"b"], sinks, tasks=1)
    assert [roots.tolist() for _, roots in failed_by_cause(made.outcome)] == [[1]]
    rows = [row for batch in made.rows for row in batch.to_pylist()]
    assert sorted(next(iter((row["s1"] or row["s2"]).values())) for row in rows if row["s1"]) == ["a", "b"]
    assert sum(row["s2"] is not None for row in rows) == 2


class Does(spout.ArrowBolt):
    """Does something with its batch, which has two rows."""

    output = "value string"

    def __init__(self, does: Callable[[spout.BatchCollector, pa.Array], None]) -> None:
        self._does = does

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Do it."""
        self._does(collector, batch.column(0))


@pytest.mark.parametrize("hooks", [(), (TaskHook(),)], ids=["bare", "watched"])
@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda out, _: out.fail(0.5), "failed row 0.5 of a batch of 2"),
        (lambda out, _: out.leave_open(0.5), "left open row 0.5 of a batch of 2"),
        (lambda out, words: out.emit([words], [0.5, 1.5]), "emitted with parents of float64, shape (2,);"),
        (lambda out, words: out.emit([words], [True, False]), "emitted with parents of bool, shape (2,);"),
        (lambda out, words: out.emit([words], [[0], [1]]), "emitted with parents of int64, shape (2, 1);"),
    ],
)
def test_a_row_of_a_batch_has_a_whole_number(does: Any, says: str, hooks: tuple[TaskHook, ...]) -> None:
    """What is none ended the query, or was taken for another row."""
    steps = (Step("it", Does(does), WORD, hooks),)
    task = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))
    assert fed(task, "a", "b") == []
    [(cause, roots)] = failures_in(task.report())
    assert roots.tolist() == [0, 1]
    assert cause.message.startswith(f"bolt 'it' {says}")


def test_a_row_may_be_named_by_a_number_of_numpys() -> None:
    task = run_of(Does(lambda out, _: out.fail(np.int32(1))))
    fed(task, "a", "b")
    assert failed(task) == {1: ""}


class Large(spout.ArrowBolt):
    """Emits two texts of 1.2 GB, which share their memory."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit both."""
        size = 1_200_000_000
        ends = pa.py_buffer(np.array([0, size], np.int32))
        text = pa.StringArray.from_buffers(1, ends, pa.py_buffer(mmap(-1, size)))
        collector.emit([pa.chunked_array([text, text])], np.zeros(2, np.int64))


def test_what_is_too_large_for_one_array_fails_and_is_not_lost() -> None:
    task = run_of(Large())
    assert fed(task, "a") == []
    [(cause, roots)] = failures_in(task.report())
    assert roots.tolist() == [0]
    assert cause.message.startswith("bolt 'Large' emitted more as 'word' than one array can have; emit less")


class Heavy(spout.BasicBolt):
    """Emits photos, each of more than half of what one column has room for: as many as its word says."""

    output = "value string"

    def __init__(self) -> None:
        """Begin with one, which is never written to."""
        self._photo = bytes(1_100_000_000)

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit it so often."""
        for _ in range(int(tuple["word"])):
            collector.emit((self._photo,))


def heavy() -> StageRun:
    """Begin a task of it."""
    steps = (Step("heavy", Heavy(), pa.schema([("photo", pa.binary())])),)
    return StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))


HEAVY = "bolt 'heavy' emitted 2 tuples of 2,200,000,0.. bytes as 'photo' at once, .*maxOffsetsPerTrigger"


@pytest.mark.slow
def test_tuples_that_are_too_large_together_end_the_task_and_name_their_bolt() -> None:
    with pytest.raises(TupleError, match=HEAVY):
        fed(heavy(), "1", "1")


@pytest.mark.slow
def test_a_record_whose_tuples_alone_are_too_large_fails_and_others_go_on() -> None:
    """It would end its query each time that this is started again."""
    task = heavy()
    assert fed(task, "0", "2") == []
    [(cause, roots)] = failures_in(task.report())
    assert roots.tolist() == [1]
    assert re.match(HEAVY, cause.message)


def test_batches_that_are_too_large_for_one_name_the_bolts_that_emitted_them() -> None:
    size = 1_200_000_000
    ends = pa.py_buffer(np.array([0, size], np.int32))
    text = pa.StringArray.from_buffers(1, ends, pa.py_buffer(mmap(-1, size)))
    parts = [pa.record_batch([text], schema=WORD)] * 2
    assert one_batch(parts[:1], WORD, "split+upper") is parts[0]
    with pytest.raises(
        TupleError, match=r"bolt 'split\+upper' emitted 2 tuples of 2,400,000,0.. bytes at once"
    ):
        one_batch(parts, WORD, "split+upper")


def test_a_cause_that_quotes_what_is_no_character_can_be_published() -> None:
    """Python has such texts for the names of files; no record of the wire can."""
    [fails] = publication_of_failing(ValueError("caf\udce9")).fails
    assert fails.causes[0].message.startswith("caf? (")
    wire_codec().encode(fails)


def publication_of_failing(error: BaseException) -> Publication:
    """Return what is published of a record that a bolt fails so."""
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("raises", Raises(error)).shuffle_grouping("lines")
    return run(builder, [b"bad"], print, tasks=1).publication


class Watched(spout.ArrowBolt):
    """Emits its rows, and fails a batch with a bad one."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit, or raise."""
        if "bad" in batch.column(0).to_pylist():
            raise ValueError("bad")
        collector.emit(batch.columns, np.arange(batch.num_rows))


class Sorts(spout.BasicBolt):
    """Emits bad words on a stream of their own."""

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare both streams."""
        for stream in ("default", "errors"):
            declarer.declare("word string", stream=stream)

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit the word."""
        word = tuple["value"].decode()
        collector.emit((word,), stream="errors" if word == "bad" else "default")


def test_watched_a_batch_that_fails_takes_nothing_back_of_the_one_before_it() -> None:
    """Its rows are acked: what was emitted on them would be lost."""
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("sorts", Sorts()).shuffle_grouping("lines")
    watched = builder.set_bolt("watched", Watched())
    watched.shuffle_grouping("sorts").shuffle_grouping("sorts", "errors")
    builder.add_hook(TaskHook())
    made = run(builder, [b"a", b"bad"], print, tasks=1)
    assert made.values == [("a",)]
    assert [roots.tolist() for _, roots in failed_by_cause(made.outcome)] == [[1]]


class Refuses(TaskHook):
    """Cannot bear a bad word."""

    def emit(self, info: EmitInfo) -> None:
        """Raise for one."""
        if info.values == ("bad",):
            raise RuntimeError("refused")


class Refused(Watched):
    """Is watched by such a hook, and raises nothing by itself."""

    def prepare(self, context: spout.BoltContext) -> None:
        """Add the hook."""
        context.add_hook(Refuses())

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all rows."""
        collector.emit(batch.columns, np.arange(batch.num_rows))


def test_watched_a_batch_that_a_hook_fails_takes_nothing_back_of_the_one_before_it() -> None:
    """So it is where its bolt has emitted the rows, and a hook raises."""
    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("sorts", Sorts()).shuffle_grouping("lines")
    watched = builder.set_bolt("watched", Refused())
    watched.shuffle_grouping("sorts").shuffle_grouping("sorts", "errors")
    made = run(builder, [b"a", b"bad"], print, tasks=1)
    assert made.values == [("a",)]
    assert [roots.tolist() for _, roots in failed_by_cause(made.outcome)] == [[1]]


class Ends(TaskHook):
    """Raises for a bad word, when it is emitted or when it is acked."""

    def __init__(self, error: type[BaseException], at: str) -> None:
        """`at`: emit or ack."""
        self._error, self._at = error, at

    def emit(self, info: EmitInfo) -> None:
        """Raise for it."""
        if self._at == "emit" and info.values == ("bad",):
            raise self._error

    def ack(self, info: AckInfo) -> None:
        """Raise for it."""
        if self._at == "ack" and info.tuple["word"] == "bad":
            raise self._error


class PassesBatch(spout.ArrowBolt):
    """Emits its rows."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all rows."""
        collector.emit(batch.columns, np.arange(batch.num_rows))


@pytest.mark.parametrize("at", ["emit", "ack"])
@pytest.mark.parametrize("error", [RuntimeError, SystemExit, CancelledError])
def test_what_a_hook_of_an_arrow_bolt_raises_fails_its_batch_and_ends_no_task(
    error: type[BaseException], at: str
) -> None:
    """Spark's worker would end by some of these, and the query by its next start."""
    steps = (Step("it", PassesBatch(), WORD, (Ends(error, at),)),)
    task = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, spout.BoltContext("it", 0, 1))
    fed(task, "a", "bad")
    assert set(failed(task).values()) == {error_text(error)}
    assert sorted(failed(task)) == [0, 1]


def test_a_task_is_named_by_a_whole_number() -> None:
    collector = OutputCollector(
        "it", {"named": EmittedStream(("word",), (Outlet(1, 3),), direct=True)}, lock=Lock()
    )
    with pytest.raises(TupleError, match=r"emitted to task 1.5 .*; its consumers have tasks 0 to 2"):
        collector.emit_direct(1.5, ("a",), (), "named")  # type: ignore[arg-type]  # on purpose
    collector.emit_direct(np.int64(2), ("a",), (), "named")  # type: ignore[arg-type]  # as good as 2
    assert [sent.task for sent in collector.sent] == [2]
