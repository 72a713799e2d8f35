"""What can be around a bolt, each alone around a bolt that is none: gate, fit, clock, pulse, guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spout
from acker.wire.causes import HELD, error_class
from spout.bolts.hooks import TaskHook
from spout.bolts.trace_hook import TraceHook
from spout.execution import calls
from spout.execution.bolt_work import BoltWork
from spout.execution.calls import Block, EmittedRows, Outcome, RowsToCall
from spout.execution.guards import CallMemory, Guard, guarded_bolt
from spout.execution.wrappers import FitRows, GuardWithPlaces, Ordered, Pulsed, Timed, UnblockedRows
from spout.planning.order import Gate, LineUp
from spout.runtime.pulse import Pulse
from spout.topology.stage_pass import BoltPass, StreamPass
from spout.topology.stages import SinkOutput
from spout.tuples.failures import Cause
from spout.tuples.poison import Orders
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Delivery, StreamId

WORD = pa.schema([("word", pa.string())])
BAD = Cause("it", "ValueError", "bad")


def stream_of(name: str) -> StreamPass:
    """Make a stream whose rows leave the task."""
    id_ = StreamId("it", name)
    return StreamPass(id_, WORD, "", (), (SinkOutput(0, id_, 0),))


STREAM, OTHER = stream_of("default"), stream_of("other")


def block_of(count: int, first: int = 0) -> Block:
    """Make a block of rows, each a root of its own."""
    rows = ArrowRows(pa.record_batch({"word": pa.array([f"w{row}" for row in range(count)])}))
    places = [(Delivery(first + row, ()),) for row in range(count)]
    return Block(rows, places, RowsToCall(count))


@dataclass(slots=True)
class Fake:
    """Works on rows in turn, of which some fail; it returns `outcome` besides, or raises `ends`."""

    fails: Sequence[int] = ()
    outcome: Outcome = field(default_factory=Outcome)
    ends: Exception | None = None
    looks: Callable[[int], None] = lambda row: None
    worked: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def call(self, block: Block) -> Outcome:
        """Work on the rows whose turn comes."""
        self.blocks.append(block)
        for row in block.rows_to_call:
            self.worked.append(row)
            self.looks(row)
            if row in self.fails:
                block.rows_to_call.block_later_rows(row)
        if self.ends is not None:
            raise self.ends
        self.taken = block.rows_to_call.called_rows().tolist()
        return self.outcome._replace(failures=[*self.outcome.failures, *((row, BAD) for row in self.fails)])


def gate_of(keys: bytes) -> Gate:
    """Make a gate that has let a record of each key pass."""
    gate = Gate("t/0", "lines", LineUp("key"))
    for number, key in enumerate(keys):
        assert gate.admit(number, bytes([key]), number) is None
    return gate


@pytest.mark.parametrize(
    ("keys", "fails", "worked"),
    [
        (b"", [], []),
        (b"x", [0], [0]),
        (b"xyxy", [], [0, 1, 2, 3]),
        (b"xyxy", [0], [0, 1, 3]),
        (b"xyxy", [1], [0, 1, 2]),
        (b"xyxyx", [2], [0, 1, 2, 3]),
        (b"xyxy", [3], [0, 1, 2, 3]),
        (b"xyxy", [0, 1], [0, 1]),
    ],
)
def test_the_rows_of_a_line_come_no_more_once_one_of_it_has_failed(
    keys: bytes, fails: list[int], worked: list[int]
) -> None:
    """No row that was passed over counts as one whose turn came."""
    fake = Fake(fails)
    outcome = Ordered(fake, gate_of(keys)).call(block_of(len(keys)))
    assert fake.worked == fake.taken == worked
    assert [row for row, _ in outcome.blocked] == [row for row in range(len(keys)) if row not in worked]
    assert {cause.error for _, cause in outcome.blocked} <= {HELD}
    assert [row for row, _ in outcome.failures] == fails


@pytest.mark.parametrize("row", [0, 1, 2])
def test_what_failed_behind_its_turn_blocks_the_blocks_that_follow(row: int) -> None:
    """So fails a row whose emission does not fit, and each of a batch that raised."""
    gate = gate_of(b"xyzxyz")
    calls = Ordered(Fake(outcome=Outcome(failures=[(row, BAD)])), gate)
    calls.call(block_of(3))
    second = Fake()
    outcome = Ordered(second, gate).call(block_of(3, first=3))
    assert [blocked for blocked, _ in outcome.blocked] == [row]
    assert second.worked == [n for n in range(3) if n != row]


def test_a_block_in_which_something_raised_blocks_what_failed_until_then() -> None:
    gate = gate_of(b"xyx")
    with pytest.raises(OSError, match="gone"):
        Ordered(Fake([0], ends=OSError("gone")), gate).call(block_of(2))
    outcome = Ordered(Fake(), gate).call(block_of(1, first=2))
    assert [row for row, _ in outcome.blocked] == [0]


def test_a_tuple_of_several_roots_is_blocked_by_each_of_them() -> None:
    gate = gate_of(b"xyzz")
    places = [(Delivery(0, ()),), (Delivery(1, ()), Delivery(2, ())), ()]
    turns = UnblockedRows(gate, [*places, (Delivery(1, ()), Delivery(3, ()))])
    rows = iter(turns)
    assert next(rows) == 0
    assert next(rows) == 1
    turns.block_later_rows(1)
    assert list(rows) == [2], "what has no root waits for nobody"
    assert [row for row, _ in turns.blocked] == [3]


def emitted(stream: StreamPass, *rows: tuple[object, int]) -> EmittedRows:
    """Make rows of one value, each with its parent."""
    values: list[Any] = [(value,) for value, _ in rows]
    return EmittedRows(stream, values, np.array([parent for _, parent in rows], np.int64))


def fit(*streams: EmittedRows, log: Tracebacks | None) -> tuple[list[list[tuple[str, int]]], dict[int, str]]:
    """Fit what was emitted; return by stream the rows with their parents, and the errors of input rows."""
    outcome = FitRows(Fake(outcome=Outcome(streams)), log).call(block_of(3))
    rows: list[list[tuple[str, int]]] = []
    for fitting in outcome.emitted:
        assert fitting.arrow_rows is not None
        words = fitting.arrow_rows.column("word").to_pylist()
        assert [row[0] for row in fitting.values or []] == words
        rows.append(list(zip(words, fitting.parents.tolist(), strict=True)))
    return rows, {row: error_class(cause.error) for row, cause in outcome.failures}


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_that_does_not_fit_fails_its_input_alone_and_on_each_stream(row: int) -> None:
    words: list[tuple[object, int]] = [(7 if parent == row else f"w{parent}", parent) for parent in range(3)]
    others: list[tuple[object, int]] = [("o", parent) for parent in (2, 1, 0)]
    rows, failed = fit(emitted(STREAM, *words), emitted(OTHER, *others), log=Tracebacks())
    kept = [parent for parent in range(3) if parent != row]
    assert rows == [[(f"w{parent}", parent) for parent in kept], [("o", parent) for parent in kept[::-1]]]
    assert list(failed) == [row]


def test_all_fits_or_nothing_was_emitted() -> None:
    assert fit(log=Tracebacks()) == ([], {})
    assert fit(emitted(STREAM), log=Tracebacks()) == ([[]], {})
    assert fit(emitted(STREAM, ("a", 0), ("b", 0)), log=Tracebacks()) == ([[("a", 0), ("b", 0)]], {})


def test_untracked_what_does_not_fit_ends_the_task() -> None:
    with pytest.raises((TypeError, ValueError, pa.ArrowInvalid)):
        fit(emitted(STREAM, (7, 0)), log=None)


def test_columns_were_fitted_in_their_call() -> None:
    batch = pa.record_batch({"word": ["a"]}, schema=WORD)
    columns = EmittedRows(STREAM, None, np.zeros(1, np.int64), arrow_rows=batch)
    outcome = FitRows(Fake(outcome=Outcome([columns])), None).call(block_of(1))
    assert outcome.emitted[0] is columns


def test_a_block_is_timed_by_itself() -> None:
    readings = iter((3, 10, 100, 101))
    fake = Fake(outcome=Outcome(left_open=[1]))
    timed = Timed(fake, lambda: next(readings))
    assert timed.call(block_of(2)) == Outcome(failures=[], left_open=[1], took_ns=7)
    assert timed.call(block_of(0)).took_ns == 1


@pytest.mark.parametrize("is_ordered", [False, True])
def test_another_thread_sees_whose_turn_it_is_and_that_the_bolt_has_ended(is_ordered: bool) -> None:
    """A row that is passed over has no turn; two blocks are told apart, also if the first one raised."""
    pulse = Pulse()
    seen: list[tuple[str, int, set[int]]] = []
    works: set[int] = set()

    def look(row: int) -> None:
        assert pulse.work is not None
        bolt, progress, roots = pulse.work
        works.add(id(pulse.work))
        seen.append((bolt, progress(), set(roots())))

    gate = gate_of(b"xyxy")
    fake = Fake([0] if is_ordered else [], looks=look)
    pulsed = Pulsed(fake, pulse, "it", is_one_call=False)
    (Ordered(pulsed, gate) if is_ordered else pulsed).call(block_of(4))
    worked = [0, 1, 3] if is_ordered else [0, 1, 2, 3]
    assert seen == [("it", row, {row}) for row in worked]
    assert len(works) == 1
    assert pulse.work is None
    fake.ends = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        pulsed.call(block_of(2, first=10))
    assert seen[-1] == ("it", 1, {11})
    assert pulse.work is None
    fake.ends = None
    pulsed.call(block_of(0))
    pulsed.call(block_of(1, first=20))
    assert seen[-1] == ("it", 0, {20})


def test_a_bolt_that_works_on_all_rows_at_once_makes_one_call() -> None:
    pulse = Pulse()
    seen: list[tuple[int, set[int]]] = []

    def look(row: int) -> None:
        assert pulse.work is not None
        _, progress, roots = pulse.work
        seen.append((progress(), set(roots())))

    Pulsed(Fake(looks=look), pulse, "it", is_one_call=True).call(block_of(3))
    assert seen == [(0, {0, 1, 2})] * 3


def test_a_guard_knows_the_places_of_the_block_that_is_worked_on() -> None:
    guard = Guard("it", CallMemory(["it"]), Orders())
    fake = Fake()
    guarded = GuardWithPlaces(fake, guard)
    for block in (block_of(2), block_of(0), block_of(3, first=2)):
        guarded.call(block)
        assert guard.places is block.places
        assert fake.blocks[-1] is block


class Row(spout.BasicBolt):
    """Adds a hook when a row says so, or takes all off."""

    output = "word string"

    def prepare(self, context: spout.BoltContext) -> None:
        """Keep the hooks."""
        self._hooks = context.hooks

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Do as it says."""
        if tuple[0] == "w1":
            self._hooks.append(TaskHook())
        if tuple[0] == "w2":
            self._hooks.clear()


class Columns(spout.ArrowBolt):
    """Does nothing."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Do nothing."""


class Rich(spout.Bolt):
    """Does nothing."""

    output = "word string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Do nothing."""

    def execute(self, tuple: spout.Tuple) -> None:
        """Do nothing."""


def work_of(bolt: Any, *hooks: TaskHook, pulse: Pulse | None = None) -> BoltWork:
    """Begin the work of a bolt."""
    bolt_pass = BoltPass("it", bolt, {"default": STREAM}, 0, hooks)
    return BoltWork(bolt_pass, spout.BoltContext("it", 0, 1), tracked=True, pulse=pulse)


def around(work: BoltWork) -> list[str]:
    """Return what is called, from the outside in."""
    names = []
    call: Any = work._bolt_call
    while call is not None:
        names.append(type(call).__name__)
        call = getattr(call, "inner", None)
    return names


@pytest.mark.parametrize(
    ("bolt", "plain", "watched"),
    [
        (Row(), ["FitRows", "Timed", "RowCall"], ["Timed", "TupleCall"]),
        (Rich(), ["Timed", "TupleCall"], ["Timed", "TupleCall"]),
        (Columns(), ["Timed", "BatchCall"], ["Timed", "WatchedBatchCall", "BatchCall"]),
    ],
)
def test_around_a_bolt_is_what_somebody_asked_for_and_no_more(
    bolt: Any, plain: list[str], watched: list[str]
) -> None:
    for hooks, names in (((), plain), ((TaskHook(),), watched)):
        work = work_of(bolt, *hooks)
        assert around(work) == names
        work.gate = gate_of(b"")
        assert around(work) == ["Ordered", *names]
        work.gate = None
        assert around(work) == names
        pulsed = around(work_of(bolt, *hooks, pulse=Pulse()))
        at = names.index("Timed") + 1
        assert pulsed == [*names[:at], "Pulsed", *names[at:]]


def test_around_a_guarded_bolt_its_guard_learns_the_places_only_where_it_needs_them() -> None:
    for bolt, needs in ((Columns(), True), (Row(), False), (Rich(), False)):
        guarded = guarded_bolt("it", bolt, CallMemory(["it"]), Orders())
        assert ("GuardWithPlaces" in around(work_of(guarded))) is needs


def test_a_hook_that_a_bolt_adds_or_takes_off_while_it_works_counts_from_the_next_block_on() -> None:
    work = work_of(Row())
    forms = []
    for first in range(4):
        block = block_of(first + 1)
        work.call_bolt(ArrowRows(block.rows.arrow(None).slice(first)), block.places[first:])
        forms.append(around(work)[-1])
    assert forms == ["RowCall", "RowCall", "TupleCall", "RowCall"]


def test_a_hook_that_only_traces_does_not_make_a_basic_bolt_work_by_hand() -> None:
    assert around(work_of(Row(), TraceHook())) == ["FitRows", "Timed", "RowCall"]


@pytest.mark.parametrize("row", [0, 1, 2])
def test_each_row_that_stays_keeps_its_own_task(row: int) -> None:
    """On a direct stream a row would go to the task of another one."""
    rows = emitted(STREAM, ("a", 0), ("b", 1), ("c", 2))._replace(tasks=np.array([5, 6, 7]))
    kept = rows.without_inputs([row])
    assert kept.tasks is not None
    assert kept.tasks.tolist() == [task for parent, task in enumerate((5, 6, 7)) if parent != row]


@given(st.lists(st.integers(0, 9), max_size=40), st.sets(st.integers(0, 12)), st.booleans())
def test_what_was_emitted_for_failed_rows_goes_and_all_else_stays_as_it_is(
    parents: list[int], failed_rows: set[int], one_by_one: bool
) -> None:
    """In whatever order it was emitted, and whether rows are copied in runs or asked one by one."""
    batch = pa.RecordBatch.from_pydict(
        {"word": [None if n % 5 == 4 else f"w{n}" for n in range(len(parents))]}
    )
    rows = EmittedRows(STREAM, None, np.array(parents, np.int64), arrow_rows=batch)
    with pytest.MonkeyPatch.context() as patch:
        if one_by_one:
            patch.setattr(calls, "BORDERS_MAX", 0)
        remaining = rows.without_inputs(failed_rows)
    numbers = [number for number, parent in enumerate(parents) if parent not in failed_rows]
    assert remaining.arrow_rows is not None
    assert remaining.arrow_rows.equals(batch.take(pa.array(numbers, pa.int64())))
    assert remaining.parents.tolist() == [parents[number] for number in numbers]


def test_a_failed_row_for_which_nothing_was_emitted_costs_the_others_no_copy() -> None:
    rows = emitted(STREAM, ("a", 0), ("b", 2))
    assert rows.without_inputs([1, 7]) is rows
