"""Bolts as a child process runs them: each call is written down before it is made.

What is written is in memory that the parent shares, so it is there when the child is not. The call for a
poison tuple is not made. Around the bolts nothing changes: a stage runs guarded bolts as it runs bolts.

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

from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt, invoke, stops
from spout.bolts.collectors import BasicCollector
from spout.tuples.failures import cause_of
from spout.tuples.poison import Call, Isolated, Orders
from spout.tuples.tuple import Delivery, PlacedTuple, Tuple

B = TypeVar("B", bound=AnyBolt)

ROOTS_MAX: Final = 4_096
"""Roots of one tuple that are written down; one with more is named by the number of its call alone."""

_SEQ, _PHASE, _BOLT, _FEED, _CALL, _FIRST, _END, _COUNT = range(8)
_HEAD: Final = 8


class Phase(IntEnum):
    """What a child does now."""

    IDLE = 0
    PREPARE = 1
    EXECUTE = 2
    CLEANUP = 3


class LastCall(NamedTuple):
    """What a child has written down: what it does now, of which bolt, and there of which call."""

    phase: Phase
    call: Call


class CallMemory:
    """Memory that a child writes and its parent reads; the names of the bolts stand for their numbers."""

    def __init__(self, bolts: Sequence[str]) -> None:
        self.bolts = bolts
        self._cells = memoryview(mmap.mmap(-1, (_HEAD + ROOTS_MAX) * 8)).cast("q")

    @property
    def progress(self) -> tuple[int, Phase]:
        """How much was written so far, and what the child does now."""
        return self._cells[_SEQ], Phase(self._cells[_PHASE])

    def write(self, phase: Phase, call: Call) -> None:
        cells = self._cells
        cells[_PHASE] = Phase.IDLE
        cells[_BOLT] = self.bolts.index(call.bolt)
        cells[_FEED], cells[_CALL], cells[_FIRST], cells[_END] = call[1:5]
        cells[_COUNT] = len(call.roots)
        for place, root in enumerate(call.roots, start=_HEAD):
            cells[place] = root
        cells[_SEQ] += 1
        cells[_PHASE] = phase

    def idle(self) -> None:
        self._cells[_PHASE] = Phase.IDLE

    def read(self) -> LastCall:
        """Return what was written last; the child has ended."""
        cells = self._cells
        roots = frozenset(cells[_HEAD + place] for place in range(cells[_COUNT]))
        call = Call(self.bolts[cells[_BOLT]], cells[_FEED], cells[_CALL], cells[_FIRST], cells[_END], roots)
        return LastCall(Phase(cells[_PHASE]), call)


class Guard:
    """Writes down the calls of one bolt.

    Attributes:
        feed: number of the block of rows that is worked on.
        places: of each row that an `ArrowBolt` is called for, its places in its trees.
    """

    def __init__(self, bolt: str, memory: CallMemory, orders: Orders) -> None:
        self.feed = 0
        self.places: Sequence[Sequence[Delivery]] = ()
        self.bolt = bolt
        self._memory = memory
        self._orders = orders
        self._calls: Counter[frozenset[int]] = Counter()

    def begin(self, feed: int) -> None:
        self.feed = feed
        self._calls.clear()

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        self._memory.write(phase, Call(self.bolt, self.feed, 0, 0, 0, frozenset()))
        yield
        self._memory.idle()

    def execute(self, received: Tuple, work: Callable[[], None]) -> None:
        """Work on one tuple; `Isolated`: it is poison."""
        call = self.next_call(1, _roots(received.deliveries if isinstance(received, PlacedTuple) else ()))
        raised = self._orders.raised_for(call)
        if raised is not None:
            raise raised.with_traceback(None)
        self.guarded(call, work)

    def next_call(self, rows: int, roots: frozenset[int] = frozenset()) -> Call:
        """Number a call for rows, or for one tuple of some roots."""
        number = self._calls[roots]
        self._calls[roots] += 1
        return Call(self.bolt, self.feed, number, 0, rows, roots)

    def rows(self, call: Call) -> list[tuple[Call, Isolated | None]]:
        """Return the calls that replace one for many rows; those of poison rows with what is raised."""
        raised_by_row: dict[int, Isolated] = {}
        for row in range(call.first, call.end):
            raised = self._orders.raised_for(self._one(call, row))
            if raised is not None:
                raised_by_row[row] = raised
        pieces: list[tuple[Call, Isolated | None]] = []
        for first, end in self._orders.pieces(call, list(raised_by_row)):
            piece = self._one(call, first) if end == first + 1 else call._replace(first=first, end=end)
            pieces.append((piece, raised_by_row.get(first)))
        return pieces

    def with_roots(self, call: Call) -> Call:
        """Return a call for several rows with their roots, the first `ROOTS_MAX`, for who looks into it."""
        if call.end - call.first == 1:
            return call
        roots = set[int]()
        for deliveries in self.places[call.first : call.end]:
            roots.update(delivery.root for delivery in deliveries)
            if len(roots) >= ROOTS_MAX:
                break
        return call._replace(roots=frozenset(sorted(roots)[:ROOTS_MAX]))

    def _one(self, call: Call, row: int) -> Call:
        deliveries = self.places[row] if self.places else ()
        return call._replace(first=row, end=row + 1, roots=_roots(deliveries))

    def guarded(self, call: Call, work: Callable[[], None]) -> None:
        """Write a call down and make it; it stays written where it ends the process (SystemExit too)."""
        self._memory.write(Phase.EXECUTE, call)
        try:
            work()
        except Exception:
            self._memory.idle()
            raise
        self._memory.idle()


class Guarded(Generic[B]):
    """A bolt and its guard: what all guarded bolts have."""

    def __init__(self, bolt: B, guard: Guard) -> None:
        self._bolt = bolt
        self.guarded_bolt: object = bolt
        self.guard = guard
        self.stops_on = bolt.stops_on

    def prepare(self, *arguments: Any, **named: Any) -> None:
        with self.guard.during(Phase.PREPARE):
            self._bolt.prepare(*arguments, **named)

    def cleanup(self) -> None:
        with self.guard.during(Phase.CLEANUP):
            self._bolt.cleanup()


class GuardedBasic(Guarded[BasicBolt], BasicBolt):
    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        self.guard.execute(tuple, lambda: invoke(self.guard.bolt, self._bolt.execute, tuple, collector))


class GuardedRich(Guarded[Bolt], Bolt):
    def execute(self, tuple: Tuple) -> None:
        self.guard.execute(tuple, lambda: invoke(self.guard.bolt, self._bolt.execute, tuple))


class GuardedArrow(Guarded[ArrowBolt], ArrowBolt):
    """Calls its bolt for all rows, or for parts of them where orders say so."""

    def __init__(self, bolt: ArrowBolt, guard: Guard) -> None:
        super().__init__(bolt, guard)
        self.fields = bolt.fields  # type: ignore[misc]  # a class variable of bolts, the bolt's own here

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        whole = self.guard.next_call(batch.num_rows)
        pieces = self.guard.rows(whole) if batch.num_rows else [(whole, None)]
        if len(pieces) == 1 and pieces[0][1] is None:
            call = self.guard.with_roots(pieces[0][0])
            self.guard.guarded(call, lambda: invoke(whole.bolt, self._bolt.execute, batch, collector))
            return
        for call, raised in pieces:
            if raised is None:
                self._part(call, batch, collector)
            else:
                collector.fail(call.first, raised)

    def _part(self, call: Call, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Call the bolt for a part of the rows; what it raises fails these alone."""
        part = BatchCollector(call.bolt, call.end - call.first, collector.tracebacks)
        rows = batch.slice(call.first, call.end - call.first)
        try:
            self.guard.guarded(
                self.guard.with_roots(call), lambda: invoke(call.bolt, self._bolt.execute, rows, part)
            )
        except Exception as error:  # whatever user code raises fails its input
            if stops(self, error):
                raise
            cause = cause_of(call.bolt, error, collector.tracebacks)
            collector.failures += [(row, cause) for row in range(call.first, call.end)]
            return
        finally:
            part.is_closed = True
        collector.join(part, call.first)


def guarded_bolt(name: str, bolt: AnyBolt, memory: CallMemory, orders: Orders) -> AnyBolt:
    guard = Guard(name, memory, orders)
    if isinstance(bolt, ArrowBolt):
        return GuardedArrow(bolt, guard)
    return GuardedBasic(bolt, guard) if isinstance(bolt, BasicBolt) else GuardedRich(bolt, guard)


def _roots(deliveries: Sequence[Delivery]) -> frozenset[int]:
    roots = frozenset(delivery.root for delivery in deliveries)
    return roots if len(roots) <= ROOTS_MAX else frozenset()
