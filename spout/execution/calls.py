"""The one way to call a bolt: a block of rows goes in, and what became of it comes out.

What is called is an adapter for the form of the bolt
(`spout.execution.adapters`), and around it what somebody asked for
(`spout.execution.wrappers`). Both are a `BoltCall`;
`spout.execution.bolt_work` puts them together.

A bolt that works by hand acks and fails tuples of any block when it likes, in
its cleanup and in threads of its own too. So it tells that by its
`OutputCollector` when it happens, and its call returns no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import length_hint
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from acker.identity import I64
from spout.topology.stage_pass import StreamPass
from spout.tuples.failures import Cause
from spout.tuples.places import Deliveries
from spout.tuples.tuple import Rows

ClockNs = Callable[[], int]
"""Returns a time by a steady clock, ns."""

RowFailure = tuple[int, Cause]
"""A failed input row, and why."""


class Turns:
    """Whose turn it is in a block: the numbers of all its rows, one after the other.

    It is iterated once, and a row is asked for when its turn comes, since a
    row before it may have failed. Who works on all rows at once does not ask.
    """

    def __init__(self, row_count: int) -> None:
        self._row_count = row_count
        self._numbers = iter(range(row_count))

    def __iter__(self) -> Iterator[int]:
        return self._numbers

    def current(self) -> int:
        """Return the number of the row whose turn it is; before the first turn 0.

        Another thread asks, and a row that is worked on costs nothing by it.
        Of ten rows six are still to come while row 3 has its turn: 10 - 1 -
        6.
        """
        rows_to_come = length_hint(self._numbers)
        return max(self._row_count - 1 - rows_to_come, 0)

    def block_behind(self, row: int) -> None:
        """Block the rows behind one that failed, where order matters; called
        before the next turn.
        """

    def rows_taken(self) -> I64:
        """Return the numbers of the rows whose turn came, `(n,) int64`."""
        return np.arange(self._row_count)


class Block(NamedTuple):
    """Rows of one stream that a bolt is called for, and the places of each in its trees.

    `turns` yields the rows that the bolt is called for one by one, in order.
    """

    rows: Rows
    places: Sequence[Deliveries]
    turns: Turns


class EmittedRows(NamedTuple):
    """Rows that a bolt emitted on one stream, each for one input row.

    Attributes:
        values: the rows as lists of values; None: `batch` has them.
        parents: `(n,) int64`: the number of the input row that each was
            emitted for.
        tasks: `(n,) int64`: on a direct stream the task that each goes to;
            else None.
        batch: the rows in the types of the stream, where
            `StreamPass.as_arrow`; else None.
    """

    stream: StreamPass
    values: list[Sequence[Any]] | None
    parents: I64
    tasks: I64 | None = None
    batch: pa.RecordBatch | None = None

    def without_inputs(self, failed_rows: Collection[int]) -> EmittedRows:
        """Return the emitted rows without those of some input rows, which failed."""
        stays = ~np.isin(self.parents, list(failed_rows))
        values, tasks, batch = self.values, self.tasks, self.batch
        if values is not None:
            values = [values[row] for row in np.flatnonzero(stays).tolist()]
        if tasks is not None:
            tasks = tasks[stays]
        if batch is not None:
            batch = batch.filter(pa.array(stays))
        return EmittedRows(self.stream, values, self.parents[stays], tasks, batch)


class Outcome(NamedTuple):
    """What became of a block: each row that is not named here is acked.

    Attributes:
        emitted: the rows that were emitted; of a failed row there is none.
        failures: the rows that failed; one that two things failed stands here
            twice.
        blocked: the rows that the bolt was not called for, since they come
            behind one that failed.
        left_open: the rows that are neither acked nor failed, ascending.
        by_hand: whether the bolt says by its collector what it acks, fails
            and emits, and nothing here.
        took_ns: how long it took, ns.
    """

    emitted: Sequence[EmittedRows] = ()
    failures: Sequence[RowFailure] = ()
    blocked: Sequence[RowFailure] = ()
    left_open: Sequence[int] = ()
    by_hand: bool = False
    took_ns: int = 0


class BoltCall(Protocol):
    """A bolt of any form, and whatever is around it."""

    def call(self, block: Block) -> Outcome:
        """Call the bolt for a block, and return what became of it;
        `Exception`: the task ends.
        """
