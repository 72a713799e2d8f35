"""What can be put around the call of a bolt; each wrapper only where somebody asks for it.

Each one has an `inner` call: another wrapper, or an adapter. From the outside in they are:

1. `Ordered`: calls the bolt for no record that is blocked behind a failed one.
2. `FitRows`: makes what was emitted fit its stream. It is outside of the next two, since that is no
   time of the bolt's.
3. `Timed`: measures the call.
4. `Pulsed`: shows the call to the thread that watches for hangs.
5. `GuardWithPlaces`: in a child process, gives the guard of an `ArrowBolt` the places of its rows.

The *places* of a tuple are its `Deliveries`: one for each root that it descends from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from acker.identity import I64
from spout.execution.calls import Block, BoltCall, EmittedRows, Outcome, RowFailure, RowsToCall
from spout.execution.fitting import fitted
from spout.execution.guards import Guard
from spout.planning.order import Gate
from spout.runtime.pulse import Pulse
from spout.tuples.failures import Cause
from spout.tuples.places import Deliveries, only_roots
from spout.tuples.raised import Tracebacks


@dataclass(frozen=True, slots=True)
class Ordered:
    """Calls a bolt for the rows that are not blocked; each row that fails blocks others.

    `gate`: knows of one partition, which is read in order, what has failed there
    (`spout.planning.order.Gate`).
    """

    inner: BoltCall
    gate: Gate

    def call(self, block: Block) -> Outcome:
        """Call the bolt for the rows that are not blocked; return the blocked ones as `blocked`."""
        unblocked_rows = UnblockedRows(self.gate, block.places)
        outcome = self.inner.call(block._replace(rows_to_call=unblocked_rows))
        # Rows for which the bolt raised have blocked others during the call (`block_later_rows`).
        # Some fail only at its end: those of an Arrow bolt, and those whose emissions do not fit.
        # They can block rows of later blocks alone.
        places_of_failed = [block.places[row] for row, _ in outcome.failures]
        self.gate.fail_all(roots_of_places(places_of_failed))
        return outcome._replace(blocked=unblocked_rows.blocked)


class UnblockedRows(RowsToCall):
    """The rows of a block that are not blocked when the bolt would be called for them.

    Attributes:
        blocked: the rows that were passed over so far, and why.
    """

    def __init__(self, gate: Gate, places: Sequence[Deliveries]) -> None:
        super().__init__(len(places))
        self.blocked: list[RowFailure] = []
        self._gate = gate
        self._places = places
        # by row: its root, or -1 where it has none or several; None: not computed, since nothing of
        # the partition has failed yet
        self._root_by_row: list[int] | None = None

    def __iter__(self) -> Iterator[int]:
        # the gate's own mapping, which the gate fills when something fails: while it is empty, no
        # row can be blocked
        failures_at_gate = self._gate.failed
        for row in super().__iter__():
            cause = self._cause_if_blocked(row) if failures_at_gate else None
            if cause is None:
                yield row
            else:
                self.blocked.append((row, cause))

    def block_later_rows(self, failed_row: int) -> None:
        """Block what must not pass the roots of a row, which have failed."""
        self._gate.fail_all(roots_of_places([self._places[failed_row]]))

    def called_rows(self) -> I64:
        """Return the numbers of the rows that were not blocked, `(n,) int64`."""
        blocked_rows = [row for row, _ in self.blocked]
        return np.delete(super().called_rows(), blocked_rows)

    def _cause_if_blocked(self, row: int) -> Cause | None:
        """Return the cause by which a row is blocked now; None: it is not blocked."""
        if self._root_by_row is None:
            self._root_by_row = only_roots(self._places).tolist()
        root = self._root_by_row[row]
        if root >= 0:
            return self._gate.why_blocked_now(root)
        # a row with several roots is blocked if one of them is; one without
        # any never is
        return self._gate.why_any_blocked_now(roots_of_places([self._places[row]]))


@dataclass(frozen=True, slots=True)
class FitRows:
    """Makes emitted rows fit their streams; the input row of one that does not fit fails.

    `misfit_log`: gets the errors of rows that do not fit; None: nothing is tracked, so the first
    error is raised.
    """

    inner: BoltCall
    misfit_log: Tracebacks | None

    def call(self, block: Block) -> Outcome:
        """Call the bolt, make what it emitted fit, and add the rows that fail by it."""
        outcome = self.inner.call(block)
        fitted_by_stream: list[EmittedRows] = []
        new_failures: list[RowFailure] = []
        for emitted_rows in outcome.emitted:  # one for each stream
            fit = fitted(emitted_rows, self.misfit_log)
            fitted_by_stream.append(fit.emitted)
            new_failures += fit.failures
        if new_failures:
            # what was emitted for a failed row on another stream, where it fits, is not delivered
            # either
            failed_rows = {row for row, _ in new_failures}
            fitted_by_stream = [rows.without_inputs(failed_rows) for rows in fitted_by_stream]
        failures = [*outcome.failures, *new_failures]
        return outcome._replace(emitted=fitted_by_stream, failures=failures)


@dataclass(frozen=True, slots=True)
class Timed:
    """Measures how long the call for a block takes."""

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

    Attributes:
        pulse: what that thread reads.
        bolt: the bolt's name.
        is_one_call: True: the bolt is called once for all rows of a block; False: once for each
            row. Then the thread reads which row it is, so that showing costs a row nothing.
    """

    inner: BoltCall
    pulse: Pulse
    bolt: str
    is_one_call: bool

    def call(self, block: Block) -> Outcome:
        """Call the bolt; until it returns, the pulse shows the call."""
        places, rows_to_call = block.places, block.rows_to_call

        def roots_of_current_row() -> Iterable[int]:
            row = rows_to_call.current_row()
            # a slice, since a block may have no row
            return set(roots_of_places(places[row : row + 1]))

        def roots_of_all_rows() -> Iterable[int]:
            return set(roots_of_places(places))

        if self.is_one_call:
            self.pulse.begin(self.bolt, roots=roots_of_all_rows)
        else:
            progress = rows_to_call.current_row
            self.pulse.begin(self.bolt, progress, roots_of_current_row)
        try:
            return self.inner.call(block)
        finally:
            self.pulse.end()


@dataclass(frozen=True, slots=True)
class GuardWithPlaces:
    """Gives the guard of an Arrow bolt the places of the rows that it is called for."""

    inner: BoltCall
    guard: Guard

    def call(self, block: Block) -> Outcome:
        """Call the bolt; its guard finds the roots of each call by the places."""
        self.guard.places = block.places
        return self.inner.call(block)


def roots_of_places(places: Iterable[Deliveries]) -> Iterator[int]:
    """Yield the roots of tuples by their places, as indices of the plan; some repeatedly."""
    for deliveries in places:
        for delivery in deliveries:
            yield delivery.root
