"""The one way to call a bolt: a block of rows goes in, and what became of it comes out.

What is called is an adapter for the form of the bolt (`spout.execution.adapters`), and around it what
somebody asked for (`spout.execution.wrappers`). Both are a `BoltCall`; `spout.execution.bolt_work` puts them
together.

A bolt that works by hand acks and fails tuples of any block when it likes, in its cleanup and in threads of
its own too. So it tells that by its `OutputCollector` when it happens, and its call returns no rows.
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

RowFailure = tuple[int, Cause]
"""A failed input row, and why."""


class Turns:
    """Whose turn it is in a block: all its rows, one after the other.

    It is iterated once, and a row is asked for when its turn comes, since a row before it may have failed.
    Who works on all rows at once does not ask.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._numbers = iter(range(rows))

    def __iter__(self) -> Iterator[int]:
        return self._numbers

    def current(self) -> int:
        """Return the number of the row whose turn it is; for another thread, and at no cost for a row."""
        return max(self._rows - 1 - length_hint(self._numbers), 0)

    def failed(self, row: int) -> None:
        """Note that a row failed, before the next one is asked for."""

    def taken(self) -> I64:
        """Return the numbers of the rows whose turn came, `(n,) int64`."""
        return np.arange(self._rows)


class Block(NamedTuple):
    """Rows of one stream that a bolt is called for, and the places of each in its trees."""

    rows: Rows
    places: Sequence[Deliveries]
    turns: Turns


class EmittedRows(NamedTuple):
    """Rows that a bolt emitted on one stream, each for one input row.

    Attributes:
        values: the rows as lists of values; None: `batch` has them.
        parents: `(n,) int64`: for each the number of its input row.
        tasks: `(n,) int64`: on a direct stream the task of each; else None.
        batch: the rows in the types of the stream, where somebody needs them so; else None.
    """

    stream: StreamPass
    values: list[Sequence[Any]] | None
    parents: I64
    tasks: I64 | None = None
    batch: pa.RecordBatch | None = None

    def apart_from(self, failed: Collection[int]) -> EmittedRows:
        """Leave out what was emitted for input rows that failed."""
        is_kept = ~np.isin(self.parents, list(failed))
        values = self.values
        if values is not None:
            values = [values[row] for row in np.flatnonzero(is_kept).tolist()]
        return self._replace(
            values=values,
            parents=self.parents[is_kept],
            tasks=None if self.tasks is None else self.tasks[is_kept],
            batch=None if self.batch is None else self.batch.filter(pa.array(is_kept)),
        )


class Outcome(NamedTuple):
    """What became of a block: each row that is not named here is acked.

    Attributes:
        emitted: the rows that were emitted; of a failed row there is none.
        failures: the rows that failed; one that two things failed stands here twice.
        blocked: the rows that the bolt was not called for, since they come behind one that failed.
        left_open: the rows that are neither acked nor failed, ascending.
        by_hand: whether the bolt says by its collector what it acks, fails and emits, and nothing here.
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
        """Let the bolt work on a block; `Exception`: the task ends."""
