"""Each form of a bolt, called for a block by its adapter alone: what comes out, whatever it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import BoltStopped, TupleError
from acker.wire.causes import error_class
from spout.bolts.collectors import BoltObserver, OutputCollector
from spout.bolts.hooks import AckInfo, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.execution.adapters import (
    BatchCall,
    Causes,
    CollectorObserver,
    RowCall,
    TupleCall,
    WatchedBatchCall,
    execute_function_of_rich,
    execute_function_with_hooks,
)
from spout.execution.calls import Block, BoltCall, Outcome, RowsToCall
from spout.execution.emitted import RowCollector, TreeCollector
from spout.planning.order import Gate, LineUp
from spout.topology.stage_pass import StreamPass
from spout.tuples.counts import Counted, Tally, What
from spout.tuples.failures import Cause
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import AnchoredTuple, Delivery, StreamId, Tuple

WORD = pa.schema([("word", pa.string())])
STREAMS = {"default": StreamPass(StreamId("it"), WORD, "", (), on_frame=True)}
LEFT = StreamId("left")


def block_of(words: Sequence[str], first: int = 0, source: StreamId = LEFT) -> Block:
    """Make a block of words, each a root of its own."""
    rows = ArrowRows(pa.record_batch({"word": pa.array(words, pa.string())}), came_from=source)
    places = [(Delivery(first + row, ()),) for row in range(len(words))]
    return Block(rows, places, RowsToCall(len(words)))


def does(word: str) -> object:
    """Raise, or return something, as a word says; called when it has been emitted."""
    if word.startswith("bad"):
        raise ValueError(word)
    if word == "stop":
        raise OSError("no disk")
    return 7 if word == "garbage" else None


class Row(spout.BasicBolt):
    """Emits the word, then does as it says."""

    output = "word string"
    stops_on = (OSError,)

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> Any:
        """Emit, then do it."""
        collector.emit((tuple[0],))
        return does(tuple[0])


class Rich(spout.Bolt):
    """The same by hand; it acks last, and holds what says so."""

    output = "word string"
    stops_on = (OSError,)

    def __init__(self, collector: OutputCollector) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> Any:
        """Emit, do it, and ack."""
        self._collector.emit((tuple[0],), anchors=tuple)
        returned = does(tuple[0])
        if tuple[0] != "hold":
            self._collector.ack(tuple)
        return returned


class Columns(spout.ArrowBolt):
    """Emits all words at once; ``no`` fails, ``hold`` stays open, ``both`` does both."""

    output = "word string"
    stops_on = (OSError,)

    def __init__(self) -> None:
        self.calls = 0

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> Any:
        """Emit, then do it."""
        self.calls += 1
        words = batch.column("word").to_pylist()
        collector.emit(batch.columns, np.arange(batch.num_rows))
        for row, word in enumerate(words):
            if word in ("no", "both"):
                collector.fail(row, "no")
            if word in ("hold", "both"):
                collector.leave_open(row)
        return next((returned for word in words if (returned := does(word)) is not None), None)


class Log(TaskHook):
    """Writes down what it sees; `refuses` is a word whose emission it does not bear."""

    def __init__(self, refuses: str = "") -> None:
        self.seen: list[str] = []
        self.refuses = refuses

    def emit(self, info: EmitInfo) -> None:
        self.seen.append(f"emit {info.values[0]}")
        if info.values[0] == self.refuses:
            raise RuntimeError("refused")

    def execute(self, info: ExecuteInfo) -> None:
        self.seen.append(f"execute {info.tuple[0]}")

    def ack(self, info: AckInfo) -> None:
        self.seen.append(f"ack {info.tuple[0]}")

    def fail(self, info: FailInfo) -> None:
        self.seen.append(f"fail {info.tuple[0]}")
        raise RuntimeError("no alarm")


@dataclass(slots=True)
class Alone:
    """An adapter of one form with nothing around it."""

    form: str
    tracked: bool = True
    hooks: list[TaskHook] = field(default_factory=list)
    call: BoltCall = field(init=False)
    collector: OutputCollector = field(init=False)
    observer: CollectorObserver = field(init=False)
    tally: Tally = field(default_factory=Tally)
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        """Make the adapter of the form."""
        emits = {name: stream.emitted_stream for name, stream in STREAMS.items()}
        self.observer = CollectorObserver(
            "it", self.tally, self.hooks, {"default": 1}, self.report, lambda: 1_000_000
        )
        collector = self.collector = OutputCollector("it", emits, self.observer)
        row, rich, columns = Row(), Rich(collector), self.columns
        bolt = {"row": row, "watched row": row, "rich": rich}.get(self.form, columns)
        causes = Causes("it", bolt, collector, self.tracked)
        batch = BatchCall("it", columns, STREAMS, collector, causes, collector.tracebacks)
        execute = execute_function_of_rich("it", rich)
        if self.form == "row":
            self.call = RowCall("it", row, RowCollector(STREAMS, collector.report_error), causes)
        elif self.form == "batch":
            self.call = batch
        elif self.form == "watched batch":
            self.call = WatchedBatchCall("it", batch, collector, causes, lambda: 0)
        elif self.form == "watched row":
            execute = execute_function_with_hooks("it", row, collector, TreeCollector("it", collector))
            self.call = TupleCall(
                "it", execute, collector, causes, self.observer, lambda: 0, drops_emissions_on_error=True
            )
        else:
            self.call = TupleCall("it", execute, collector, causes, self.observer, lambda: 0)

    def report(self, error: Exception) -> None:
        """Report what a hook raised."""
        self.collector.report_error(error)


@dataclass(frozen=True, slots=True)
class Became:
    """What became of a block, in the same words for all forms; rows are named by their numbers."""

    emitted: list[tuple[str, int]]
    failed: dict[int, str]
    left_open: list[int]


def became_of(alone: Alone, block: Block) -> Became:
    """Call the adapter for a block, and return what became of it."""
    collector = alone.collector
    collector.failures.clear()
    outcome = alone.call.call(block)
    pairs: list[tuple[str, int]] = []
    for rows in outcome.emitted:
        values = rows.values
        words = rows.arrow_rows.column("word").to_pylist() if values is None else [row[0] for row in values]
        pairs += zip(words, rows.parents.tolist(), strict=True)
    failed = {row: error_class(cause.error) for row, cause in outcome.failures}
    if not outcome.settled_by_collector:
        return Became(pairs, failed, list(outcome.left_open))
    assert (pairs, failed, outcome.left_open, outcome.blocked) == ([], {}, (), ())
    row_of = {deliveries[0].root: row for row, deliveries in enumerate(block.places)}
    sent, collector.sent = collector.sent, []
    return Became(
        [(one.values[0], one.anchors[0].row) for one in sent],
        {row_of[root]: error_class(cause.error) for root, cause in collector.failures},
        sorted(received.row for received in collector.open_tuples if received.places is block.places),
    )


FORMS = ("row", "watched row", "rich", "batch", "watched batch")
BY_ROW = FORMS[:3]
AT_ONCE = FORMS[3:]

WORDS = {
    "none": [],
    "one": ["a"],
    "one that raises": ["bad"],
    "the first": ["bad", "a", "b"],
    "one in the middle": ["a", "bad", "b"],
    "the last": ["a", "b", "bad"],
    "all": ["bad", "bad2"],
    "garbage": ["a", "garbage", "b"],
    "all of it": ["garbage", "a", "bad", "b"],
}
"""Words, by which of them fail."""

ERRORS = {"bad": "ValueError", "bad2": "ValueError", "garbage": "TupleError"}


def expected(form: str, words: Sequence[str]) -> Became:
    """Return what becomes of words: a rich bolt's emissions stay, and what raises for many fails them all."""
    errors = [ERRORS.get(word, "") for word in words]
    if form in AT_ONCE and any(errors):
        first = next(filter(None, errors))
        return Became([], dict.fromkeys(range(len(words)), first), [])
    failed = {row: error for row, error in enumerate(errors) if error}
    emitted = [(word, row) for row, word in enumerate(words) if form == "rich" or row not in failed]
    return Became(emitted, failed, [])


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_raises_or_returns_something_fails_alone_or_with_its_batch(
    form: str, words: Sequence[str]
) -> None:
    assert became_of(Alone(form), block_of(words)) == expected(form, words)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first_words", WORDS.values(), ids=WORDS)
def test_a_block_behind_one_in_which_something_raised_comes_out_as_if_it_were_the_first(
    form: str, first_words: Sequence[str]
) -> None:
    """Of two sources, too: what is kept of the block before has another number here."""
    alone = Alone(form)
    became_of(alone, block_of(first_words, first=100))
    words = ["a", "bad", "b"]
    second = block_of(words, first=200, source=StreamId("right", "other"))
    assert became_of(alone, second) == expected(form, words)


@pytest.mark.parametrize("form", AT_ONCE)
def test_no_batch_is_made_of_nothing(form: str) -> None:
    """Bolts before it may have failed all rows; its code may well need one."""
    alone = Alone(form)
    became_of(alone, block_of([]))
    assert alone.columns.calls == 0


@pytest.mark.parametrize("form", AT_ONCE)
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_of_a_batch_may_fail_or_stay_open_alone(form: str, row: int) -> None:
    """What was emitted for a failed one does not leave; what was for an open one does."""
    for word in ("no", "hold", "both"):
        words = ["a", "b", "c"]
        words[row] = word
        is_open = word == "hold"
        emitted = [(each, n) for n, each in enumerate(words) if is_open or n != row]
        became = became_of(Alone(form), block_of(words))
        assert became == Became(emitted, {} if is_open else {row: ""}, [row] if is_open else [])


def test_what_a_rich_bolt_holds_is_open_and_may_be_acked_with_a_later_block() -> None:
    alone = Alone("rich")
    first = block_of(["hold", "a"])
    assert became_of(alone, first) == Became([("hold", 0), ("a", 1)], {}, [0])
    [held] = alone.collector.open_tuples
    assert became_of(alone, block_of(["b"], first=2)).left_open == []
    alone.collector.ack(held)
    assert not alone.collector.open_tuples


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", [["stop"], ["a", "stop", "b"]])
def test_what_a_bolt_stops_on_ends_the_task(form: str, words: Sequence[str]) -> None:
    with pytest.raises(BoltStopped, match="'it' stops on OSError: no disk"):
        Alone(form).call.call(block_of(words))


@pytest.mark.parametrize("form", FORMS)
def test_untracked_an_exception_ends_the_task(form: str) -> None:
    with pytest.raises(ValueError, match="bad"):
        Alone(form, tracked=False).call.call(block_of(["a", "bad"]))


@pytest.mark.parametrize("form", ["row", "rich"])
def test_a_row_is_asked_for_when_its_turn_comes_and_a_failed_one_is_noted_before_the_next(form: str) -> None:
    """Who blocks rows decides by what has failed until then."""
    alone = Alone(form)
    happened: list[str] = []

    class Noted(RowsToCall):
        def __iter__(self) -> Any:
            for row in super().__iter__():
                happened.append(f"turn {row}")
                if row != 1:
                    yield row

        def block_later_rows(self, row: int) -> None:
            happened.append(f"failed {row}")

        def called_rows(self) -> Any:
            return np.array([0, 2])

    block = block_of(["bad", "a", "b"])._replace(rows_to_call=Noted(3))
    became = became_of(alone, block)
    assert became == Became([("bad", 0)] * (form == "rich") + [("b", 2)], {0: "ValueError"}, [])
    noted = ["failed 0"] * (form == "row")  # a rich bolt may fail any tuple: `CollectorObserver` hears of it
    assert happened == ["turn 0", *noted, "turn 1", "turn 2"]


def test_what_is_emitted_between_two_blocks_has_no_input() -> None:
    alone = Alone("row")
    became_of(alone, block_of(["a"]))
    assert isinstance(alone.call, RowCall)
    alone.call.collector.emit(("late",))
    with pytest.raises(TupleError, match="emitted while no call of execute ran"):
        alone.call.call(block_of(["b"]))


def test_another_function_may_be_called_in_place_of_execute_for_the_rows_of_a_block() -> None:
    alone = Alone("row")
    blocks: list[int] = []

    def around(execute: Any, rows: Any) -> Any:
        blocks.append(len(rows))
        return lambda received, collector: collector.emit((received[0] + "!",))

    assert isinstance(alone.call, RowCall)
    around_it = RowCall("it", Row(), alone.call.collector, alone.call.causes, around)
    outcome = around_it.call(block_of(["a", "bad"]))
    assert [rows.values for rows in outcome.emitted] == [[("a!",), ("bad!",)]]
    assert blocks == [2]


WATCHED = {
    "watched row": [
        "emit a", "ack a", "execute a", "emit bad", "fail bad", "emit b", "ack b", "execute b",
    ],
    "rich": ["emit a", "ack a", "execute a", "emit bad", "fail bad", "emit b", "ack b", "execute b"],
    "watched batch": ["fail a", "fail bad", "fail b"],
}  # fmt: skip


@pytest.mark.parametrize("form", WATCHED)
def test_hooks_are_called_in_the_order_in_which_things_happen(form: str) -> None:
    hook = Log()
    alone = Alone(form, hooks=[hook])
    became_of(alone, block_of(["a", "bad", "b"]))
    assert hook.seen == WATCHED[form]
    assert {cause.error.split("(")[0] for cause in alone.collector.errors} == {"RuntimeError"}


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("form", WATCHED)
def test_what_a_hook_raises_fails_the_row_or_its_batch(form: str, row: int) -> None:
    words = ["a", "b", "c"]
    became = became_of(Alone(form, hooks=[Log(refuses=words[row])]), block_of(words))
    failed = range(3) if form == "watched batch" else [row]
    assert became.failed == dict.fromkeys(failed, "RuntimeError")
    # a rich bolt's emission was sent before the hook saw it
    sent = [(word, n) for n, word in enumerate(words) if n not in failed or form == "rich"]
    assert became.emitted == sent


def received_of(word: str, root: int, source: StreamId) -> AnchoredTuple:
    """Make a tuple as `TupleCall` does."""
    block = block_of([word], root, source)
    return AnchoredTuple(block.rows, 0, block.places, "it", since_ns=0)


def test_what_is_settled_by_hand_is_counted_by_source_before_the_gate_and_the_hooks_hear_of_it() -> None:
    happened: list[str] = []
    tally = Tally()

    class Asks(TaskHook):
        def ack(self, info: AckInfo) -> None:
            happened.append(f"ack {tally.counts()[Counted(What.ACKED, 'it', LEFT)].tuples}")

        def fail(self, info: FailInfo) -> None:
            happened.append(f"fail, blocked: {gate.why_blocked_now(1) is not None}")

    gate = Gate("t/0", "lines", LineUp("partition"))
    for index in range(2):
        assert gate.admit(index, None, index) is None
    observer = CollectorObserver("it", tally, [Asks()], {"default": 1}, happened.append, lambda: 5)  # type: ignore[arg-type]  # what it reports is only looked at
    observer.gate = gate
    observer.acked(received_of("a", 7, LEFT))
    observer.acked(received_of("a", 8, StreamId("right")))
    observer.failed(received_of("b", 0, LEFT), Cause("it", "", "no"))
    assert happened == ["ack 1", "ack 1", "fail, blocked: True"]  # one of the left source, both times
    counts = {(of.what, of.stream): measure[:2] for of, measure in tally.counts().items()}
    assert counts == {
        (What.ACKED, LEFT): (1, 5),
        (What.ACKED, StreamId("right")): (1, 5),
        (What.FAILED, LEFT): (1, 5),
    }


def test_an_observer_without_hooks_and_gate_does_nothing_but_count() -> None:
    tally = Tally()
    observer: BoltObserver = CollectorObserver("it", tally, [], {}, lambda _: None, lambda: 1)
    observer.failed(received_of("b", 0, LEFT), Cause("it", "", "no"))
    assert [of.what for of in tally.counts()] == [What.FAILED]


def test_an_outcome_names_nothing_where_all_is_acked() -> None:
    assert Outcome() == ((), (), (), (), False, 0)
