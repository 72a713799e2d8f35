"""What can be around a bolt that is called; each one is put there only where
somebody asks for it.

From the outside in: `Ordered`, `FitRows`, `Timed`, `Pulsed`, `PlacesGuarded`,
then an adapter. What fits the output is found behind the pulse and the clock,
since that is no time of the bolt's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from acker.identity import I64
from spout.execution.calls import Block, BoltCall, EmittedRows, Outcome, RowFailure, Turns
from spout.execution.fitting import fitted
from spout.execution.guards import Guard
from spout.planning.order import Gate
from spout.runtime.pulse import Pulse
from spout.tuples.failures import Cause
from spout.tuples.places import Deliveries, only_roots
from spout.tuples.raised import Tracebacks


@dataclass(frozen=True, slots=True)
class Ordered:
    """Passes over rows that a gate blocks when their turn comes; a row that
    fails blocks those behind it.

    The gate is that of a partition that is read in order
    (`spout.planning.order.Gate`).
    """

    inner: BoltCall
    gate: Gate

    def call(self, block: Block) -> Outcome:
        """Call the bolt for the rows that are not blocked, and name the blocked ones."""
        turns = FreeTurns(self.gate, block.places)
        outcome = self.inner.call(block._replace(turns=turns))
        # The gate knows already which rows failed by an exception. Others fail
        # only now: those of an Arrow bolt, and those whose emissions do not
        # fit. They block what later blocks have.
        places_of_failed = [block.places[row] for row, _ in outcome.failures]
        self.gate.fail_all(roots_at(places_of_failed))
        return outcome._replace(blocked=turns.blocked)


class FreeTurns(Turns):
    """The turns of those rows that nothing blocks when their turn comes.

    Attributes:
        blocked: the rows that were passed over so far, and why.
    """

    def __init__(self, gate: Gate, places: Sequence[Deliveries]) -> None:
        super().__init__(len(places))
        self.blocked: list[RowFailure] = []
        self._gate = gate
        self._places = places
        # the only root of each row, or -1; not computed until something has
        # failed
        self._only_roots: list[int] | None = None

    def __iter__(self) -> Iterator[int]:
        # the gate's own mapping, which is no longer empty once something has
        # failed
        lowest_failed_by_line = self._gate.failed
        for row in super().__iter__():
            cause = self._cause_if_blocked(row) if lowest_failed_by_line else None
            if cause is None:
                yield row
            else:
                self.blocked.append((row, cause))

    def block_behind(self, row: int) -> None:
        """Block what comes behind the roots of a row, which have failed."""
        self._gate.fail_all(roots_at([self._places[row]]))

    def rows_taken(self) -> I64:
        """Return the numbers of the rows that were not blocked, `(n,) int64`."""
        blocked_rows = [row for row, _ in self.blocked]
        return np.delete(super().rows_taken(), blocked_rows)

    def _cause_if_blocked(self, row: int) -> Cause | None:
        """Return the cause of a row that is blocked now; None: its turn comes."""
        if self._only_roots is None:
            self._only_roots = only_roots(self._places).tolist()
        root = self._only_roots[row]
        if root >= 0:
            return self._gate.why_blocked_now(root)
        # a row with several roots is blocked if one of them is; one without
        # any never is
        return self._gate.why_any_blocked_now(roots_at([self._places[row]]))


@dataclass(frozen=True, slots=True)
class FitRows:
    """Makes the rows fit their streams: an input row fails for which one was
    emitted that does not.

    `misfits`: the log of what does not fit (`spout.execution.fitting`); None:
    it is raised.
    """

    inner: BoltCall
    misfits: Tracebacks | None

    def call(self, block: Block) -> Outcome:
        """Call the bolt, make what it emitted fit, and add the rows that fail by it."""
        outcome = self.inner.call(block)
        emitted: list[EmittedRows] = []
        failures: list[RowFailure] = []
        for emitted_rows in outcome.emitted:
            fit = fitted(emitted_rows, self.misfits)
            emitted.append(fit.emitted)
            failures += fit.failures
        if failures:  # what was emitted for the same row on another stream does not leave either
            failed_rows = {row for row, _ in failures}
            emitted = [emitted_rows.without_inputs(failed_rows) for emitted_rows in emitted]
        return outcome._replace(emitted=emitted, failures=[*outcome.failures, *failures])


@dataclass(frozen=True, slots=True)
class Timed:
    """Measures how long a block took."""

    inner: BoltCall
    clock_ns: Callable[[], int]

    def call(self, block: Block) -> Outcome:
        """Call the bolt, and add to its outcome the time that it took."""
        began_ns = self.clock_ns()
        outcome = self.inner.call(block)
        return outcome._replace(took_ns=self.clock_ns() - began_ns)


@dataclass(frozen=True, slots=True)
class Pulsed:
    """Shows the thread that watches for hangs which bolt is called, and for which rows.

    That costs nothing for a row: the other thread asks whose turn it is. Of a
    bolt that works on them `at_once` all rows of a block are one call.
    """

    inner: BoltCall
    pulse: Pulse
    bolt: str
    at_once: bool

    def call(self, block: Block) -> Outcome:
        """Call the bolt; show that while it runs."""
        _, places, turns = block

        def roots_of_current() -> Iterable[int]:
            row = turns.current()
            # a slice, since a block may have no row
            return set(roots_at(places[row : row + 1]))

        def roots_of_all() -> Iterable[int]:
            return set(roots_at(places))

        if self.at_once:
            self.pulse.begin(self.bolt, roots=roots_of_all)
        else:
            self.pulse.begin(self.bolt, turns.current, roots_of_current)
        try:
            return self.inner.call(block)
        finally:
            self.pulse.end()


@dataclass(frozen=True, slots=True)
class PlacesGuarded:
    """Hands the guard of an Arrow bolt the places of the rows that it is called for."""

    inner: BoltCall
    guard: Guard

    def call(self, block: Block) -> Outcome:
        """Call the bolt; its guard names the roots of each call by the places."""
        self.guard.places = block.places
        return self.inner.call(block)


def roots_at(places: Iterable[Deliveries]) -> Iterator[int]:
    """Yield the roots of tuples, by their places."""
    for deliveries in places:
        for delivery in deliveries:
            yield delivery.root
