"""Bolts as a child process runs them: each call is written down before it is made.

What is written is in memory that the parent shares, so it is there when the
child is not. The call for a poison tuple is not made. Around the bolts
nothing changes: a stage runs guarded bolts as it runs bolts.

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
"""Roots of one tuple that are written down; one with more is named by the
number of its call alone.
"""

# the cells of the memory: how often was written, then the fields of the last
# call, then its roots
_WRITES, _PHASE, _BOLT, _FEED, _NUMBER, _FIRST_ROW, _END_ROW, _ROOT_COUNT = range(8)
_ROOTS_BEGIN: Final = 8
_CELL_BYTES: Final = 8


class Phase(IntEnum):
    """What a child does now."""

    IDLE = 0
    PREPARE = 1
    EXECUTE = 2
    CLEANUP = 3


class LastCall(NamedTuple):
    """What a child has written down: what it does now, of which bolt, and
    there of which call.
    """

    phase: Phase
    call: Call


class CallMemory:
    """Memory that a child writes and its parent reads: int64 cells. A bolt is
    its number in `bolts`.
    """

    def __init__(self, bolts: Sequence[str]) -> None:
        self.bolts = bolts
        size_bytes = (_ROOTS_BEGIN + ROOTS_MAX) * _CELL_BYTES
        self._cells = memoryview(mmap.mmap(-1, size_bytes)).cast("q")

    @property
    def progress(self) -> tuple[int, Phase]:
        """How often was written so far, and what the child does now."""
        return self._cells[_WRITES], Phase(self._cells[_PHASE])

    def write(self, phase: Phase, call: Call) -> None:
        """Write down what the child does from now on, and for which call."""
        cells = self._cells
        # the phase last: a parent that reads it meanwhile sees no call that
        # is written by half
        cells[_PHASE] = Phase.IDLE
        cells[_BOLT] = self.bolts.index(call.bolt)
        cells[_FEED] = call.feed
        cells[_NUMBER] = call.number
        cells[_FIRST_ROW] = call.first
        cells[_END_ROW] = call.end
        cells[_ROOT_COUNT] = len(call.roots)
        for cell, root in enumerate(call.roots, start=_ROOTS_BEGIN):
            cells[cell] = root
        cells[_WRITES] += 1
        cells[_PHASE] = phase

    def write_idle(self) -> None:
        """Write down that no call runs; what the last one was stays."""
        self._cells[_PHASE] = Phase.IDLE

    def read(self) -> LastCall:
        """Return what was written last; the child has ended."""
        cells = self._cells
        roots_end = _ROOTS_BEGIN + cells[_ROOT_COUNT]
        call = Call(
            bolt=self.bolts[cells[_BOLT]],
            feed=cells[_FEED],
            number=cells[_NUMBER],
            first=cells[_FIRST_ROW],
            end=cells[_END_ROW],
            roots=frozenset(cells[_ROOTS_BEGIN:roots_end]),
        )
        return LastCall(Phase(cells[_PHASE]), call)


class CallPiece(NamedTuple):
    """A part of a call for many rows.

    Attributes:
        raised: what its one row fails by, since it is poison, so that the bolt
            is not called; None: the bolt is called.
    """

    call: Call
    raised: Isolated | None


class Guard:
    """Writes down the calls of one bolt, and makes no call for poison.

    Attributes:
        feed: number of the block of rows that the task works on.
        places: the places in its trees of each row that an `ArrowBolt` is
            called for; empty for other bolts.
    """

    def __init__(self, bolt: str, memory: CallMemory, orders: Orders) -> None:
        self.feed = 0
        self.places: Sequence[Sequence[Delivery]] = ()
        self.bolt = bolt
        self._memory = memory
        self._orders = orders
        # of the block that is worked on; calls for several rows are counted
        # under no roots
        self._calls_by_roots: Counter[frozenset[int]] = Counter()

    def begin(self, feed: int) -> None:
        """Begin a block of rows: its calls are numbered from 0."""
        self.feed = feed
        self._calls_by_roots.clear()

    @contextmanager
    def recorded(self, phase: Phase) -> Iterator[None]:
        """Write down that the child prepares the bolt, or cleans it up."""
        call = Call(self.bolt, self.feed, number=0, first=0, end=0, roots=frozenset())
        self._memory.write(phase, call)
        yield
        self._memory.write_idle()

    def call_for_tuple(self, received: Tuple, work: Callable[[], None]) -> None:
        """Work on one tuple; `Isolated`: it is poison."""
        deliveries = received.deliveries if isinstance(received, PlacedTuple) else ()
        call = self.next_call(1, _roots_of(deliveries))
        raised = self._orders.raised_for(call)
        if raised is not None:
            raise raised.with_traceback(None)
        try:
            self.call_recorded(call, work)
        except BaseException:  # `sys.exit` in it fails the tuple, and the child goes on
            self._memory.write_idle()
            raise

    def next_call(self, row_count: int, roots: frozenset[int] = frozenset()) -> Call:
        """Number a call for rows, or for one tuple of some roots, and return it."""
        number = self._calls_by_roots[roots]
        self._calls_by_roots[roots] += 1
        return Call(self.bolt, self.feed, number, first=0, end=row_count, roots=roots)

    def divided(self, call: Call) -> list[CallPiece]:
        """Return the calls that replace one call for many rows, in their order.

        Mostly it is that call alone. A child before this one may have ended
        during it: then it is divided, so that the poison row shows, and known
        poison is a piece of its own.
        """
        raised_by_row: dict[int, Isolated] = {}
        for row in range(call.first, call.end):
            raised = self._orders.raised_for(self._call_of_row(call, row))
            if raised is not None:
                raised_by_row[row] = raised
        pieces: list[CallPiece] = []
        for first_row, end_row in self._orders.pieces(call, list(raised_by_row)):
            if end_row == first_row + 1:
                part = self._call_of_row(call, first_row)
            else:
                part = call._replace(first=first_row, end=end_row)
            pieces.append(CallPiece(part, raised_by_row.get(first_row)))
        return pieces

    def with_roots(self, call: Call) -> Call:
        """Return a call for several rows with their roots, at most
        `ROOTS_MAX`, the lowest ones.

        A call for one row has its roots already. Whoever looks into the call
        reads them.
        """
        if call.end - call.first == 1:
            return call
        roots = set[int]()
        for deliveries in self.places[call.first : call.end]:
            roots.update(delivery.root for delivery in deliveries)
            if len(roots) >= ROOTS_MAX:
                break
        return call._replace(roots=frozenset(sorted(roots)[:ROOTS_MAX]))

    def _call_of_row(self, call: Call, row: int) -> Call:
        """Return the call for one row of a call for several."""
        deliveries = self.places[row] if self.places else ()
        return call._replace(first=row, end=row + 1, roots=_roots_of(deliveries))

    def call_recorded(self, call: Call, work: Callable[[], None]) -> None:
        """Write a call down, and make it by `work`.

        It stays written if it ends the process (of an `ArrowBolt` SystemExit too).
        """
        self._memory.write(Phase.EXECUTE, call)
        try:
            work()
        except Exception:
            self._memory.write_idle()
            raise
        self._memory.write_idle()


class Guarded(Generic[B]):
    """A bolt and its guard: what all guarded bolts have.

    `guarded_bolt`: the author's bolt, of which `spout.tuples.raised` looks
    for the code.
    """

    def __init__(self, bolt: B, guard: Guard) -> None:
        self._bolt = bolt
        self.guarded_bolt: object = bolt
        self.guard = guard
        self.stops_on = bolt.stops_on

    def prepare(self, *arguments: Any, **keywords: Any) -> None:
        with self.guard.recorded(Phase.PREPARE):
            self._bolt.prepare(*arguments, **keywords)

    def cleanup(self) -> None:
        with self.guard.recorded(Phase.CLEANUP):
            self._bolt.cleanup()


class GuardedBasic(Guarded[BasicBolt], BasicBolt):
    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        self.guard.call_for_tuple(
            tuple, lambda: invoke(self.guard.bolt, self._bolt.execute, tuple, collector)
        )


class GuardedRich(Guarded[Bolt], Bolt):
    def execute(self, tuple: Tuple) -> None:
        self.guard.call_for_tuple(tuple, lambda: invoke(self.guard.bolt, self._bolt.execute, tuple))


class GuardedArrow(Guarded[ArrowBolt], ArrowBolt):
    """Calls its bolt for all rows, or for parts of them if there may be poison among them."""

    def __init__(self, bolt: ArrowBolt, guard: Guard) -> None:
        super().__init__(bolt, guard)
        self.fields = bolt.fields  # type: ignore[misc]  # a class variable of bolts, the bolt's own here

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Call the bolt for all rows at once, or piece by piece; fail the rows that are poison."""
        call = self.guard.next_call(batch.num_rows)
        pieces = self.guard.divided(call) if batch.num_rows else [CallPiece(call, raised=None)]
        if len(pieces) == 1 and pieces[0].raised is None:
            only_call = self.guard.with_roots(pieces[0].call)
            self.guard.call_recorded(
                only_call, lambda: invoke(call.bolt, self._bolt.execute, batch, collector)
            )
            return
        for part, raised in pieces:
            if raised is None:
                self._execute_part(part, batch, collector)
            else:
                collector.fail(part.first, raised)  # a piece of one row

    def _execute_part(self, call: Call, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Call the bolt for a part of the rows; what it raises fails these alone."""
        row_count = call.end - call.first
        part_collector = BatchCollector(call.bolt, row_count, collector.tracebacks)
        rows = batch.slice(call.first, row_count)
        try:
            self.guard.call_recorded(
                self.guard.with_roots(call),
                lambda: invoke(call.bolt, self._bolt.execute, rows, part_collector),
            )
        except Exception as error:  # whatever user code raises fails its input
            if ends_query(self, error):
                raise
            cause = cause_of(call.bolt, error, collector.tracebacks)
            collector.failures += [(row, cause) for row in range(call.first, call.end)]
            return
        finally:
            part_collector.is_closed = True
        # its rows are numbered from 0 there, and from the first one of the
        # part in the block
        collector.join(part_collector, call.first)


def guarded_bolt(name: str, bolt: AnyBolt, memory: CallMemory, orders: Orders) -> AnyBolt:
    """Return a bolt of the same form that writes down the calls of this one."""
    guard = Guard(name, memory, orders)
    if isinstance(bolt, ArrowBolt):
        return GuardedArrow(bolt, guard)
    if isinstance(bolt, BasicBolt):
        return GuardedBasic(bolt, guard)
    return GuardedRich(bolt, guard)


def _roots_of(deliveries: Sequence[Delivery]) -> frozenset[int]:
    """Return the roots of one tuple, by index; none if they are too many to be written down."""
    roots = frozenset(delivery.root for delivery in deliveries)
    return roots if len(roots) <= ROOTS_MAX else frozenset()
