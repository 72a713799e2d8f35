"""Bolts as a child process runs them: each call is written down before it is made.

A *child* is a process in which a task's bolts run, so that a *poison* tuple, which kills or hangs
the process, can be found (`spout.isolation.isolation`). What the child writes is in memory that its
parent shares, so it is there when the child is not. A call for a tuple that is known to be poison
is not made: its error is raised instead. Around the bolts nothing changes: a stage runs guarded
bolts as it runs bolts.

The task gives its child the rows in *blocks*, which are numbered.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa

from spout.bolts.bolts import (
    AnyBolt,
    ArrowBolt,
    BasicBolt,
    BatchCollector,
    Bolt,
    ends_query,
    invoke,
)
from spout.bolts.collectors import BasicCollector
from spout.tuples.failures import cause_of
from spout.tuples.poison import Call, Isolated, Orders
from spout.tuples.tuple import Delivery, PlacedTuple, Tuple

B = TypeVar("B", bound=AnyBolt)

ROOTS_MAX: Final = 4_096
"""The most roots of a call that are written down. A tuple with more is named by the number of its
call alone.
"""

# the indices of the memory's cells: how often was written, then phase and fields of the last
# call, then its roots
_WRITE_COUNT: Final = 0
_PHASE: Final = 1
_BOLT: Final = 2
_BLOCK_NUMBER: Final = 3
_CALL_NUMBER: Final = 4
_FIRST_ROW: Final = 5
_END_ROW: Final = 6
_ROOT_COUNT: Final = 7
_ROOTS_BEGIN: Final = 8
_CELL_BYTES: Final = 8


class Phase(IntEnum):
    """What a child does now."""

    IDLE = 0
    PREPARE = 1
    EXECUTE = 2
    CLEANUP = 3


class LastCall(NamedTuple):
    """What a child has written down last: what it does now, and the call that it does that for."""

    phase: Phase
    call: Call


class ChildProgress(NamedTuple):
    """How far a child is: while this does not change, it works on one call, or does nothing.

    Attributes:
        write_count: how many calls it has written down so far.
        phase: what it does now.
    """

    write_count: int
    phase: Phase


class CallMemory:
    """Memory that a child writes and its parent reads: int64 cells. A bolt is its index there."""

    def __init__(self, bolts: Sequence[str]) -> None:
        """Prepare memory for the calls of bolts, given by name."""
        self.bolts = bolts
        size_bytes = (_ROOTS_BEGIN + ROOTS_MAX) * _CELL_BYTES
        self._cells = memoryview(mmap.mmap(-1, size_bytes)).cast("q")

    @property
    def progress(self) -> ChildProgress:
        """How far the child is now."""
        return ChildProgress(self._cells[_WRITE_COUNT], Phase(self._cells[_PHASE]))

    def write_call(self, phase: Phase, call: Call) -> None:
        """Write down what the child does from now on, and for which call."""
        cells = self._cells
        # Idle until all is written, and the phase last: a parent that reads in between sees no call
        # of which one half is that of the last one
        cells[_PHASE] = Phase.IDLE
        cells[_BOLT] = self.bolts.index(call.bolt)
        cells[_BLOCK_NUMBER] = call.block_number
        cells[_CALL_NUMBER] = call.call_number
        cells[_FIRST_ROW] = call.first_row
        cells[_END_ROW] = call.end_row
        cells[_ROOT_COUNT] = len(call.roots)
        for cell, root in enumerate(call.roots, start=_ROOTS_BEGIN):
            cells[cell] = root
        cells[_WRITE_COUNT] += 1
        cells[_PHASE] = phase

    def write_idle(self) -> None:
        """Write down that no call runs; what the last one was stays."""
        self._cells[_PHASE] = Phase.IDLE

    def read_last_call(self) -> LastCall:
        """Return what was written last; to be called when the child has ended."""
        cells = self._cells
        roots_end = _ROOTS_BEGIN + cells[_ROOT_COUNT]
        call = Call(
            bolt=self.bolts[cells[_BOLT]],
            block_number=cells[_BLOCK_NUMBER],
            call_number=cells[_CALL_NUMBER],
            first_row=cells[_FIRST_ROW],
            end_row=cells[_END_ROW],
            roots=frozenset(cells[_ROOTS_BEGIN:roots_end]),
        )
        return LastCall(Phase(cells[_PHASE]), call)


class CallPiece(NamedTuple):
    """A call for some of the rows of a call for many.

    Attributes:
        poison_error: what its one row fails by, since it is poison, so that the bolt
            is not called; None: the bolt is called.
    """

    call: Call
    poison_error: Isolated | None


class Guard:
    """Writes down the calls of one bolt, and makes no call for poison.

    Attributes:
        bolt_name: the bolt's name.
        block_number: of the block of rows that the task works on.
        places: of each row that an `ArrowBolt` is called for its `Deliveries`, one for each root;
            empty for other bolts.
    """

    def __init__(self, bolt_name: str, memory: CallMemory, orders: Orders) -> None:
        """Guard a bolt: write down each of its calls, and make no call for poison.

        Args:
            memory: shared with the parent; gets each call.
            orders: what this child does differently from the children that ended before it: the
                calls that it leaves out or divides. The parent writes them before it forks.
        """
        self.block_number = 0
        self.places: Sequence[Sequence[Delivery]] = ()
        self.bolt_name = bolt_name
        self._call_memory = memory
        self._orders = orders
        # for the current block: by the roots of a tuple, how many calls there were for such tuples.
        # Calls for several rows are counted together, under the empty set
        self._call_count_by_roots: Counter[frozenset[int]] = Counter()

    def begin_block(self, block_number: int) -> None:
        """Begin a block of rows: its calls are numbered from 0."""
        self.block_number = block_number
        self._call_count_by_roots.clear()

    @contextmanager
    def recorded_phase(self, phase: Phase) -> Iterator[None]:
        """Write down that the bolt is prepared or cleaned up, as long as the context lasts."""
        # no rows: the phase alone matters
        call = Call(
            self.bolt_name,
            self.block_number,
            call_number=0,
            first_row=0,
            end_row=0,
            roots=frozenset(),
        )
        self._call_memory.write_call(phase, call)
        # not in a `finally`: if the bolt ends this process, by sys.exit for example, the parent
        # reads
        # the phase in which that was
        yield
        self._call_memory.write_idle()

    def call_for_tuple(self, received: Tuple, execute: Callable[[], None]) -> None:
        """Write a call for one tuple down, and make it.

        Raises `Isolated`: the tuple is poison, that is, it killed or hung a child before, so the
        bolt is not called. `execute`: calls the bolt for the tuple.
        """
        deliveries = received.deliveries if isinstance(received, PlacedTuple) else ()
        call = self.numbered_call(row_count=1, roots=_roots_of_tuple(deliveries))
        poison_error = self._orders.error_for(call)
        if poison_error is not None:
            # the same exception object is raised for each such call: without this its traceback
            # would grow
            raise poison_error.with_traceback(None)
        try:
            self.make_call(call, execute)
        except BaseException:  # `sys.exit` in it fails the tuple, and the child goes on
            self._call_memory.write_idle()
            raise

    def numbered_call(self, row_count: int, roots: frozenset[int] = frozenset()) -> Call:
        """Return the next call of the block, with its number.

        Calls for one tuple are numbered among those for tuples of the same roots. So a call has the
        same number in the next child, also if a bolt before emits in another order then.

        Args:
            row_count: how many rows it is for.
            roots: of its only tuple, as indices; empty: it is for several rows, or its tuple has
                none, or too many. Such calls are numbered together.
        """
        call_number = self._call_count_by_roots[roots]
        self._call_count_by_roots[roots] += 1
        return Call(
            self.bolt_name,
            self.block_number,
            call_number,
            first_row=0,
            end_row=row_count,
            roots=roots,
        )

    def pieces_of(self, call: Call) -> list[CallPiece]:
        """Return the calls that replace one call for many rows, in their order.

        Mostly it is that call alone. A child before this one may have ended
        during it: then it is divided, so that the poison row shows, and known
        poison is a piece of its own.
        """
        poison_errors_by_row: dict[int, Isolated] = {}
        for row in range(call.first_row, call.end_row):
            poison_error = self._orders.error_for(self._call_of_row(call, row))
            if poison_error is not None:
                poison_errors_by_row[row] = poison_error
        pieces: list[CallPiece] = []
        for first_row, end_row in self._orders.pieces(call, list(poison_errors_by_row)):
            if end_row == first_row + 1:
                piece_call = self._call_of_row(call, first_row)
            else:
                piece_call = call._replace(first_row=first_row, end_row=end_row)
            pieces.append(CallPiece(piece_call, poison_errors_by_row.get(first_row)))
        return pieces

    def with_roots(self, call: Call) -> Call:
        """Return a call for several rows with their roots, at most `ROOTS_MAX`, the lowest ones.

        They are written down with the call, so that the parent can name them if the child ends. A
        call for one row has its roots already, since they are part of its name.
        """
        if call.end_row - call.first_row == 1:
            return call
        roots = set[int]()
        for deliveries in self.places[call.first_row : call.end_row]:
            roots.update(delivery.root for delivery in deliveries)
            if len(roots) >= ROOTS_MAX:
                break
        return call._replace(roots=frozenset(sorted(roots)[:ROOTS_MAX]))

    def _call_of_row(self, call: Call, row: int) -> Call:
        """Return the call for one row of a call for several."""
        deliveries = self.places[row] if self.places else ()
        return call._replace(first_row=row, end_row=row + 1, roots=_roots_of_tuple(deliveries))

    def make_call(self, call: Call, execute: Callable[[], None]) -> None:
        """Write a call down, and make it by `execute`.

        It stays written if it ends the process (of an `ArrowBolt` SystemExit too).
        """
        self._call_memory.write_call(Phase.EXECUTE, call)
        try:
            execute()
        except Exception:
            self._call_memory.write_idle()
            raise
        self._call_memory.write_idle()


class Guarded(Generic[B]):
    """A bolt and its guard: what all guarded bolts have.

    Attributes:
        guarded_bolt: the author's bolt: `spout.tuples.raised` looks in its code for the place where
            an exception was raised.
        stops_on: the exceptions on which the author's bolt ends the query.
    """

    def __init__(self, bolt: B, guard: Guard) -> None:
        self._bolt = bolt
        self.guarded_bolt: object = bolt
        self.guard = guard
        self.stops_on = bolt.stops_on

    def prepare(self, *arguments: Any, **keywords: Any) -> None:
        with self.guard.recorded_phase(Phase.PREPARE):
            self._bolt.prepare(*arguments, **keywords)

    def cleanup(self) -> None:
        with self.guard.recorded_phase(Phase.CLEANUP):
            self._bolt.cleanup()


class GuardedBasic(Guarded[BasicBolt], BasicBolt):
    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        self.guard.call_for_tuple(
            tuple, lambda: invoke(self.guard.bolt_name, self._bolt.execute, tuple, collector)
        )


class GuardedRich(Guarded[Bolt], Bolt):
    def execute(self, tuple: Tuple) -> None:
        name = self.guard.bolt_name
        self.guard.call_for_tuple(tuple, lambda: invoke(name, self._bolt.execute, tuple))


class GuardedArrow(Guarded[ArrowBolt], ArrowBolt):
    """Calls its bolt for all rows, or for parts of them if there may be poison among them."""

    def __init__(self, bolt: ArrowBolt, guard: Guard) -> None:
        super().__init__(bolt, guard)
        self.fields = bolt.fields  # type: ignore[misc]  # a class variable of bolts, the bolt's own here

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Call the bolt for all rows at once, or piece by piece; fail the rows that are poison."""
        call = self.guard.numbered_call(batch.num_rows)
        pieces = [CallPiece(call, poison_error=None)]
        if batch.num_rows:
            pieces = self.guard.pieces_of(call)
        if len(pieces) == 1 and pieces[0].poison_error is None:
            only_call = self.guard.with_roots(pieces[0].call)
            self.guard.make_call(
                only_call,
                lambda: invoke(call.bolt, self._bolt.execute, batch, collector),
            )
            return
        for piece_call, poison_error in pieces:
            if poison_error is None:
                self._execute_piece(piece_call, batch, collector)
            else:
                collector.fail(piece_call.first_row, poison_error)  # a piece of one row

    def _execute_piece(self, call: Call, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Call the bolt for some of the rows; what it raises fails these alone."""
        row_count = call.end_row - call.first_row
        rows = batch.slice(call.first_row, row_count)
        # the bolt numbers the rows of a piece from 0
        piece_collector = BatchCollector(call.bolt, row_count, collector.tracebacks)
        try:
            self.guard.make_call(
                self.guard.with_roots(call),
                lambda: invoke(call.bolt, self._bolt.execute, rows, piece_collector),
            )
        except Exception as error:  # whatever user code raises fails its input
            if ends_query(self, error):
                raise
            cause = cause_of(call.bolt, error, collector.tracebacks)
            collector.failures += [(row, cause) for row in range(call.first_row, call.end_row)]
            return
        finally:
            piece_collector.is_closed = True
        # row 2 of a piece that begins at row 4 is row 6 of all
        collector.join(piece_collector, call.first_row)


def guarded_bolt(name: str, bolt: AnyBolt, memory: CallMemory, orders: Orders) -> AnyBolt:
    """Return a bolt of the same form that writes the calls of this one into `memory`.

    `orders`: which of the calls it makes in another way, or not at all.
    """
    guard = Guard(name, memory, orders)
    if isinstance(bolt, ArrowBolt):
        return GuardedArrow(bolt, guard)
    if isinstance(bolt, BasicBolt):
        return GuardedBasic(bolt, guard)
    return GuardedRich(bolt, guard)


def _roots_of_tuple(deliveries: Sequence[Delivery]) -> frozenset[int]:
    """Return the roots of one tuple, by index; empty if they are too many to be written down."""
    roots = frozenset(delivery.root for delivery in deliveries)
    return roots if len(roots) <= ROOTS_MAX else frozenset()
