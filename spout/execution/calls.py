"""The one way to call a bolt: a block of rows goes in, and what became of each row comes out.

A *block* is some rows of one stream for which a bolt is called at once or one by one. What is
called is an adapter for the form of the bolt (`spout.execution.adapters`), and around it wrappers
for what somebody asked for (`spout.execution.wrappers`). Adapters and wrappers are both a
`BoltCall`; `spout.execution.bolt_work` puts them together.

A rich `Bolt` acks and fails tuples of any block when it likes, in its cleanup and in threads of its
own too. So its `OutputCollector` has what became of its tuples, and its call returns no rows.

The *places* of a tuple are its `Deliveries`: one for each root that it descends from, with the path
from the root to the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from operator import length_hint
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acker.identity import I64
from spout.topology.stage_pass import StreamPass
from spout.tuples.failures import Cause
from spout.tuples.places import Deliveries
from spout.tuples.tuple import Rows

ClockNs = Callable[[], int]
"""Returns a time by a steady clock, ns."""

RowFailure = tuple[int, Cause]
"""The number of a failed input row in its block, and why it failed."""

RootFailure = tuple[int, Cause]
"""A failed root, by its index in the batch's plan, and why it failed."""


class RowsToCall:
    """The numbers of the rows of a block for which a bolt is called one by one; here all of them.

    It is iterated once. The next row is asked for only when the bolt is done with the one before
    it, since that one may have failed and block the next. An adapter that calls the bolt for all
    rows together does not iterate.
    """

    def __init__(self, row_count: int) -> None:
        self._row_count = row_count
        self._remaining_rows = iter(range(row_count))

    def __iter__(self) -> Iterator[int]:
        return self._remaining_rows

    def current_row(self) -> int:
        """Return the number of the row that the bolt works on; before the first row 0.

        The thread that watches for hangs asks. The number is computed from what remains, so that
        the bolt's thread does nothing for it: of ten rows six remain while the bolt works on row 3,
        which is 10 - 1 - 6.
        """
        remaining_count = length_hint(self._remaining_rows)
        return max(self._row_count - 1 - remaining_count, 0)

    def block_later_rows(self, failed_row: int) -> None:
        """Block the rows that must not pass a failed one; here none, since order does not matter.

        Called before the next row is asked for.
        """

    def called_rows(self) -> I64:
        """Return the numbers of the rows for which the bolt was called, `(n,) int64`.

        To be asked at the end of the block.
        """
        return np.arange(self._row_count)


class Block(NamedTuple):
    """Rows of one stream for which a bolt is called.

    Attributes:
        places: of each row, in the trees of its roots.
        rows_to_call: yields the numbers of the rows for which the bolt is called one by one, in
            order.
    """

    rows: Rows
    places: Sequence[Deliveries]
    rows_to_call: RowsToCall


class EmittedRows(NamedTuple):
    """Rows that a bolt emitted on one stream, each for one input row.

    Attributes:
        values: the rows as lists of values; None: `arrow_rows` has them.
        parents: `(n,) int64`: the number of the input row that each was
            emitted for.
        tasks: `(n,) int64`: on a direct stream the task that each goes to;
            else None.
        arrow_rows: the rows in the types of the stream, where
            `StreamPass.needs_arrow_rows`; else None.
    """

    stream: StreamPass
    values: list[Sequence[Any]] | None
    parents: I64
    tasks: I64 | None = None
    arrow_rows: pa.RecordBatch | None = None

    def is_emitted_for(self, input_rows: Collection[int]) -> npt.NDArray[np.bool_]:
        """Return for each emitted row whether it is of one of some input rows, `(n,) bool`.

        That is one look into a table for each emitted row. `np.isin` takes ten times as long, and
        that for all rows of a block for the sake of one.
        """
        table = np.zeros(max(int(self.parents.max(initial=0)), *input_rows, 0) + 1, np.bool_)
        table[list(input_rows)] = True
        return table[self.parents]

    def without_inputs(self, failed_rows: Collection[int]) -> EmittedRows:
        """Return the emitted rows without those of some input rows, which failed."""
        stays = ~self.is_emitted_for(failed_rows)
        if stays.all():  # nothing was emitted for them
            return self
        values, tasks, arrow_rows = self.values, self.tasks, self.arrow_rows
        if values is not None:
            values = [values[row] for row in np.flatnonzero(stays).tolist()]
        if tasks is not None:
            tasks = tasks[stays]
        if arrow_rows is not None:
            arrow_rows = rows_that_stay(arrow_rows, stays)
        return EmittedRows(self.stream, values, self.parents[stays], tasks, arrow_rows)


BORDERS_MAX: Final = 512
"""Up to so many borders between rows that stay and rows that go, the rows are copied run by run:
that takes half the time of a filter, which asks for each row."""


def rows_that_stay(batch: pa.RecordBatch, stays: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch that stay, in order.

    Mostly few rows go, so that long runs of neighbours stay, which are copied as a whole: without
    its rows 3 and 4 a batch of ten has the runs 0 to 2 and 5 to 9.

    Args:
        stays: `(n,) bool`, at least one: for each row whether it stays.
    """
    borders = np.flatnonzero(stays[1:] != stays[:-1]) + 1
    if len(borders) > BORDERS_MAX:
        return batch.filter(pa.array(stays))
    runs: list[pa.RecordBatch] = []
    for start, end in pairwise([0, *borders.tolist(), len(stays)]):
        if stays[start]:
            runs.append(batch.slice(start, end - start))
    return pa.concat_batches(runs) if runs else batch.slice(0, 0)


class Outcome(NamedTuple):
    """What became of a block: each row that is not named here is acked.

    Attributes:
        emitted: the rows that were emitted; of a failed row there is none.
        failures: the rows that failed; one that two things failed stands here
            twice.
        blocked: the rows that the bolt was not called for, since they come
            behind one that failed.
        left_open: the numbers of the rows that are neither acked nor failed, ascending.
        settled_by_collector: True: the bolt's `OutputCollector` has what was acked, failed and
            emitted, and the lists above are empty, except `blocked`.
        took_ns: how long the call took, ns.
    """

    emitted: Sequence[EmittedRows] = ()
    failures: Sequence[RowFailure] = ()
    blocked: Sequence[RowFailure] = ()
    left_open: Sequence[int] = ()
    settled_by_collector: bool = False
    took_ns: int = 0


class BoltCall(Protocol):
    """A bolt of any form, and whatever is around it."""

    def call(self, block: Block) -> Outcome:
        """Call the bolt for a block, and return what became of it;
        `Exception`: the task ends.
        """
