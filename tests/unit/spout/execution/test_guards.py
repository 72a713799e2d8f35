"""Guarded bolts in this process: what each call leaves in shared memory, and what is not called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import TupleError
from acker.wire.causes import error_class
from spout.execution.guards import (
    ROOTS_MAX,
    CallMemory,
    ChildProgress,
    Guard,
    Guarded,
    Phase,
    guarded_bolt,
)
from spout.tuples.poison import HUNG, WORKER_DIED, Call, Isolated, Orders, Withheld
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Delivery, PlacedTuple

NAMES = ("before", "it", "behind")
Does = Callable[[], object]


def nothing() -> None:
    """Do nothing."""


class Bench:
    """A guard of the bolt ``it``, the memory that its parent reads, and the orders that the parent gives.

    Attributes:
        seen: what the parent would read during each call of the bolt: its rows' words, phase and call.
    """

    def __init__(self, bolt_class: type[Any]) -> None:
        self.memory = CallMemory(NAMES)
        self.orders = Orders()
        self.seen: list[tuple[list[str], Phase, Call]] = []
        self.does: Does = nothing
        self.guarded: Any = guarded_bolt("it", bolt_class(self), self.memory, self.orders)
        assert isinstance(self.guarded, Guarded)
        self.guard: Guard = self.guarded.guard

    def look(self, words: list[str]) -> object:
        """Keep what the parent would read now, and do what the bolt is to do."""
        phase, call = self.memory.read_last_call()
        self.seen.append((words, phase, call))
        return self.does()

    def rows(self, *roots: Sequence[int]) -> ArrowRows:
        """Return rows ``w0``, ``w1`` and so on; their places are the guard's."""
        self.guard.places = [tuple(Delivery(root, ()) for root in of_row) for of_row in roots]
        return ArrowRows(pa.record_batch({"word": [f"w{row}" for row in range(len(roots))]}))

    def call_each(self, *roots: Sequence[int]) -> None:
        """Call the bolt for rows of these roots, one by one."""
        rows = self.rows(*roots)
        for row in range(len(roots)):
            received = PlacedTuple(rows, row, self.guard.places)
            if isinstance(self.guarded, spout.BasicBolt):
                self.guarded.execute(received, spout.BasicCollector(lambda values: None))
            else:
                self.guarded.execute(received)

    def call_once(self, *roots: Sequence[int]) -> spout.BatchCollector:
        """Call the bolt for rows of these roots at once; return its collector."""
        rows = self.rows(*roots)
        collector = spout.BatchCollector("it", len(roots))
        self.guarded.execute(rows.arrow(None), collector)
        return collector

    def calls(self) -> list[tuple[list[str], Call]]:
        """Return the calls that were made, each of them written down before it began."""
        assert {phase for _, phase, _ in self.seen} <= {Phase.EXECUTE}
        return [(words, call) for words, _, call in self.seen]


class Basic(spout.BasicBolt):
    """Shows each tuple."""

    output = "word string"
    stops_on = (OSError,)

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def prepare(self, context: spout.BoltContext) -> None:
        self._bench.look([f"prepared {context}"])

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> Any:
        return self._bench.look([tuple["word"]])

    def cleanup(self) -> None:
        self._bench.look(["cleaned up"])


class Rich(spout.Bolt):
    """Shows each tuple."""

    output = "word string"
    stops_on = (OSError,)

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        self._bench.look([f"prepared {context} {collector}"])

    def execute(self, tuple: spout.Tuple) -> Any:
        return self._bench.look([tuple["word"]])

    def cleanup(self) -> None:
        self._bench.look(["cleaned up"])


class Columns(spout.ArrowBolt):
    """Shows each batch, emits it, and leaves its first row open."""

    output = "word string"
    stops_on = (OSError,)
    fields = ("word",)

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.collectors: list[spout.BatchCollector] = []

    def prepare(self, context: spout.BoltContext) -> None:
        self._bench.look([f"prepared {context}"])

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> Any:
        self.collectors.append(collector)
        collector.emit(batch.columns, np.arange(batch.num_rows))
        if batch.num_rows:
            collector.leave_open(0)
        return self._bench.look(batch.column("word").to_pylist())

    def cleanup(self) -> None:
        self._bench.look(["cleaned up"])


BY_TUPLE = (Basic, Rich)


def call_of(number: int, *roots: int, block: int = 0, first: int = 0, end: int = 1) -> Call:
    return Call("it", block, number, first, end, frozenset(roots))


@pytest.mark.parametrize("kind", BY_TUPLE)
def test_the_call_for_a_tuple_is_written_down_with_its_roots_before_it_is_made(
    kind: type[Any],
) -> None:
    """Calls are counted for tuples of the same roots alone, and anew in each block."""
    bench = Bench(kind)
    bench.call_each([3], [4, 5], [3], [])
    bench.guard.begin_block(7)
    bench.call_each([3])
    assert bench.calls() == [
        (["w0"], call_of(0, 3)),
        (["w1"], call_of(0, 4, 5)),
        (["w2"], call_of(1, 3)),
        (["w3"], call_of(0)),
        (["w0"], call_of(0, 3, block=7)),
    ]
    assert bench.memory.progress == ChildProgress(5, Phase.IDLE)
    assert bench.memory.read_last_call() == (Phase.IDLE, call_of(0, 3, block=7))


@pytest.mark.parametrize("kind", BY_TUPLE)
@pytest.mark.parametrize("count", [ROOTS_MAX - 1, ROOTS_MAX, ROOTS_MAX + 1])
def test_a_tuple_of_too_many_roots_is_named_by_the_number_of_its_call(kind: type[Any], count: int) -> None:
    bench = Bench(kind)
    bench.call_each(range(10, 10 + count))
    roots = range(10, 10 + count) if count <= ROOTS_MAX else ()
    assert bench.calls() == [(["w0"], call_of(0, *roots))]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
@pytest.mark.parametrize("kind", BY_TUPLE)
def test_behind_what_a_bolt_raises_for_a_tuple_the_child_works_on_nothing(
    kind: type[Any], error: BaseException
) -> None:
    """`sys.exit` fails the tuple, too: nothing of it may be taken for a call that goes on."""
    bench = Bench(kind)

    def fail() -> None:
        raise error

    bench.does = fail
    with pytest.raises(type(error)):
        bench.call_each([3])
    assert bench.memory.progress == ChildProgress(1, Phase.IDLE)


@pytest.mark.parametrize("kind", BY_TUPLE)
def test_what_a_bolt_returns_is_refused_as_without_a_guard(kind: type[Any]) -> None:
    bench = Bench(kind)
    bench.does = lambda: 7
    with pytest.raises(TupleError, match="'it'"):
        bench.call_each([3])


@pytest.mark.parametrize("kind", BY_TUPLE)
def test_a_poison_tuple_is_not_called_for_and_those_beside_it_are(kind: type[Any]) -> None:
    bench = Bench(kind)
    # in its block, the second tuple of root 3
    bench.orders.record_end(call_of(1, 3, block=2), WORKER_DIED, "it died")
    bench.guard.begin_block(1)
    bench.call_each([3], [3])
    bench.guard.begin_block(2)
    bench.call_each([3], [4])
    with pytest.raises(Isolated, match="it died") as raised:
        bench.call_each([3])
    assert raised.value.error == WORKER_DIED
    bench.call_each([3])
    assert [call.call_number for _, call in bench.calls()] == [0, 1, 0, 0, 2]
    bench.orders.withheld["it"] = Withheld(frozenset([8, 9]), Isolated(HUNG, "withheld"))
    with pytest.raises(Isolated, match="withheld"):
        bench.call_each([1, 9])
    bench.call_each([1, 7])


def test_a_tuple_without_a_place_has_no_roots() -> None:
    """As what a test gives to a bolt."""
    bench = Bench(Basic)
    received = spout.tuple_of({"word": "w"})
    bench.guarded.execute(received, spout.BasicCollector(lambda values: None))
    assert bench.calls() == [(["w"], call_of(0))]


@pytest.mark.parametrize("kind", [*BY_TUPLE, Columns])
def test_a_bolt_is_prepared_and_cleaned_up_with_its_phase_written_down(kind: type[Any]) -> None:
    bench = Bench(kind)
    arguments = ("context", "collector")[: 2 if kind is Rich else 1]
    bench.guard.begin_block(4)
    bench.guarded.prepare(*arguments)
    assert bench.memory.progress == ChildProgress(1, Phase.IDLE)
    bench.guarded.cleanup()
    assert bench.memory.progress == ChildProgress(2, Phase.IDLE)
    no_rows = call_of(0, block=4, end=0)
    assert bench.seen == [
        ([f"prepared {' '.join(arguments)}"], Phase.PREPARE, no_rows),
        (["cleaned up"], Phase.CLEANUP, no_rows),
    ]
    assert isinstance(bench.guarded.guarded_bolt, kind)
    assert bench.guarded.stops_on == (OSError,)


def test_a_guarded_bolt_has_the_form_of_its_bolt() -> None:
    forms = spout.BasicBolt, spout.Bolt, spout.ArrowBolt
    for kind in (*BY_TUPLE, Columns):
        guarded = Bench(kind).guarded
        assert [isinstance(guarded, form) for form in forms] == [issubclass(kind, form) for form in forms]
    assert Bench(Columns).guarded.fields == ("word",)


# bolts that are called at once ------------------------------------------------------------------------------


def test_all_rows_are_one_call_with_the_roots_of_all() -> None:
    bench = Bench(Columns)
    collector = bench.call_once([3], [4, 5], [3])
    assert bench.calls() == [(["w0", "w1", "w2"], call_of(0, 3, 4, 5, end=3))]
    assert [parents.tolist() for parents in collector.parents] == [[0, 1, 2]]
    assert collector.left_open == [0]
    assert bench.memory.progress == ChildProgress(1, Phase.IDLE)
    bench.call_once([6])
    bench.call_once()
    bench.guard.begin_block(1)
    bench.call_once([7], [8])
    assert [call for _, call in bench.calls()[1:]] == [
        call_of(1, 6),
        call_of(2, end=0),
        call_of(0, 7, 8, block=1, end=2),
    ]


def test_rows_whose_places_nobody_has_given_have_no_roots() -> None:
    """So it is where nothing is tracked."""
    bench = Bench(Columns)
    bench.orders.record_end(call_of(0, end=2), WORKER_DIED, "it died")
    bench.guarded.execute(pa.record_batch({"word": ["a", "b", "c"]}), spout.BatchCollector("it", 3))
    assert [call for _, call in bench.calls()] == [call_of(0, end=1), call_of(0, first=1, end=3)]


def test_of_a_call_with_very_many_roots_the_lowest_are_written_down() -> None:
    bench = Bench(Columns)
    rows = [[row] for row in range(ROOTS_MAX + 7, 0, -1)]
    bench.call_once(*rows)
    [(_, call)] = bench.calls()
    assert call.roots == frozenset(range(8, ROOTS_MAX + 8)), "of the first rows, which are enough"
    bench.seen.clear()
    bench.guard.begin_block(1)
    bench.call_once([*range(2 * ROOTS_MAX)], [7])
    assert bench.calls()[0][1].roots == frozenset(range(ROOTS_MAX))


ROOTS = ([30], [31], [32], [33], [34], [35], [36], [37])


def test_a_call_in_which_a_child_ended_is_made_in_halves_which_fail_alone() -> None:
    """Rows of a piece are numbered from 0 for the bolt, and by their place in the batch behind it."""
    bench = Bench(Columns)
    bench.orders.record_end(call_of(0, end=8), WORKER_DIED, "it died")
    bench.orders.record_end(call_of(0, first=4, end=8), WORKER_DIED, "it died")

    def fail_some() -> None:
        words, _, _ = bench.seen[-1]
        if "w4" in words:
            raise ValueError(words)

    bench.does = fail_some
    collector = bench.call_once(*ROOTS)
    assert bench.calls() == [
        (["w0", "w1", "w2", "w3"], call_of(0, 30, 31, 32, 33, end=4)),
        (["w4", "w5"], call_of(0, 34, 35, first=4, end=6)),
        (["w6", "w7"], call_of(0, 36, 37, first=6, end=8)),
    ]
    assert [parents.tolist() for parents in collector.parents] == [[0, 1, 2, 3], [6, 7]]
    assert collector.left_open == [0, 6]
    assert [(row, error_class(cause.error)) for row, cause in collector.failures] == [
        (4, "ValueError"),
        (5, "ValueError"),
    ]
    bolt = bench.guarded.guarded_bolt
    assert all(piece.is_closed for piece in bolt.collectors)
    assert not collector.is_closed
    assert [raised.error for raised in collector.tracebacks] == ["ValueError"]


@pytest.mark.parametrize("row", [0, 1, 3])
def test_a_poison_row_fails_and_the_rows_beside_it_are_worked_on(row: int) -> None:
    bench = Bench(Columns)
    bench.orders.record_end(call_of(0, 30 + row, first=row, end=row + 1), HUNG, "it hung")
    collector = bench.call_once(*ROOTS[:4])
    assert [(failed, cause.error) for failed, cause in collector.failures] == [(row, HUNG)]
    worked = [word for words, _ in bench.calls() for word in words]
    assert worked == [f"w{number}" for number in range(4) if number != row]
    parents = [number for of_piece in collector.parents for number in of_piece.tolist()]
    assert parents == [number for number in range(4) if number != row]


@pytest.mark.parametrize("withheld", [30, 31])
def test_a_batch_of_one_row_that_is_poison_is_not_called_for(withheld: int) -> None:
    bench = Bench(Columns)
    bench.orders.withheld["it"] = Withheld(frozenset([withheld]), Isolated(HUNG, "withheld"))
    collector = bench.call_once([30])
    is_poison = withheld == 30
    assert [cause.error for _, cause in collector.failures] == [HUNG] * is_poison
    assert bench.calls() == [(["w0"], call_of(0, 30))] * (not is_poison)


def test_a_piece_of_one_row_has_its_own_roots_and_those_of_a_row_with_too_many_are_left_out() -> None:
    bench = Bench(Columns)
    bench.orders.record_end(call_of(0, end=2), WORKER_DIED, "it died")
    bench.call_once([5, 6], [*range(ROOTS_MAX + 1)])
    assert [call for _, call in bench.calls()] == [call_of(0, 5, 6, end=1), call_of(0, first=1, end=2)]


def test_what_a_bolt_stops_on_ends_the_task_from_a_piece_too() -> None:
    bench = Bench(Columns)
    bench.orders.record_end(call_of(0, end=2), WORKER_DIED, "it died")

    def stop() -> None:
        raise OSError("no disk")

    bench.does = stop
    with pytest.raises(OSError, match="no disk"):
        bench.call_once([30], [31])
    assert bench.memory.progress == ChildProgress(1, Phase.IDLE)
    assert all(piece.is_closed for piece in bench.guarded.guarded_bolt.collectors)


def test_what_ends_the_process_from_a_batch_stays_written_down() -> None:
    """Spark tries the task again; the parent sees in which call it was."""
    bench = Bench(Columns)

    def leave() -> None:
        raise SystemExit(3)

    bench.does = leave
    with pytest.raises(SystemExit):
        bench.call_once([30], [31])
    assert bench.memory.read_last_call() == (Phase.EXECUTE, call_of(0, 30, 31, end=2))


def test_memory_shows_no_call_of_which_one_half_is_that_of_the_last_one() -> None:
    """What is written while another call stands there is idle until all of it is written."""
    memory = CallMemory(NAMES)
    phases: list[Phase] = []

    class Watched(frozenset[int]):
        """Roots that look at the memory when they are written."""

        def __iter__(self) -> Any:
            phases.append(memory.progress.phase)
            return super().__iter__()

    memory.write_call(Phase.EXECUTE, call_of(0, 1, 2, 3))
    memory.write_call(Phase.EXECUTE, call_of(5, block=4, first=2, end=9)._replace(roots=Watched([8])))
    assert phases == [Phase.IDLE]
    assert memory.read_last_call() == (Phase.EXECUTE, call_of(5, 8, block=4, first=2, end=9))
    memory.write_call(Phase.CLEANUP, Call("behind", 0, 0, 0, 0, frozenset()))
    assert memory.read_last_call() == (Phase.CLEANUP, Call("behind", 0, 0, 0, 0, frozenset()))
    assert memory.progress == ChildProgress(3, Phase.CLEANUP)
    memory.write_idle()
    assert memory.read_last_call().call.bolt == "behind"
