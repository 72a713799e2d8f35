"""Delayed acks: tuples that Spark's state holds across micro-batches; pure.

The batch that *holds* a tuple publishes its root with this one edge outstanding. The later batch
that *releases* it, since a bolt acked it, contributes the edge to the root. Spark does not say
which tuples a watermark drops. So each held tuple brings the event time from which on one drops
it, and the driver compares that with the watermark.

A batch's *own* roots are those in its plan; *older* ones were emitted by earlier batches.

Source: docs/design/protocol.md, sections 2 ("The fold"), 4 ("Wire") and 5.2 ("Acks that wait").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import numpy as np

from acker.errors import TrackingError
from acker.hot_paths import distinct, is_ascending, rows_among
from acker.identity import I64, U64, child_edges, root_edges
from acker.wire.causes import LATE, Cause
from acker.wire.events import SourceRun
from spout.publishing.root_marks import RootMark, RootMarks

K = TypeVar("K")
V = TypeVar("V")

NEVER_MS: Final = (1 << 63) - 1
"""The event time of a tuple that no watermark drops."""


def _no_numbers() -> I64:
    return np.empty(0, np.int64)


class HighestTime(NamedTuple):
    """The highest time that a task has seen of one kind, and where the record with it lies.

    Attributes:
        name: of a column with times, or of a `hold`, which has the time from which a watermark
            drops a tuple.
        is_held: whether it is of a `hold`.
        run: the record, as a run of one position; or the chunk of records that it is in.
    """

    name: str
    at_ms: int
    run: SourceRun
    is_held: bool = False


class RootPositions(NamedTuple):
    """Roots as two columns, ``(n,) int64``: in each row a root's source and its position there."""

    sources: I64
    positions: I64

    @classmethod
    def together(cls, parts: Iterable[RootPositions]) -> RootPositions:
        """Return the rows of all parts, one part behind the other."""
        tables = list(parts)
        # an empty column goes ahead, since NumPy concatenates no empty list
        return cls(
            np.concatenate([_no_numbers(), *(table.sources for table in tables)]),
            np.concatenate([_no_numbers(), *(table.positions for table in tables)]),
        )

    def at(self, rows: np.typing.NDArray[np.bool_] | I64 | slice) -> RootPositions:
        """Return some rows: those of a mask, those with some numbers, or a slice."""
        return RootPositions(self.sources[rows], self.positions[rows])


def held_marks(holder: Cause, roots: RootPositions, edges: U64, until_ms: I64) -> RootMarks:
    """Return the marks of tuples that a task handed to Spark's state.

    Args:
        holder: see `holder_of`.
        roots: source and position of each tuple's root.
        edges: of each tuple its edge, which the root lacks until the tuple is released.
        until_ms: event time, ms; a watermark at or above it drops the tuple. -1: every one does;
            `NEVER_MS`: none does.
    """
    return RootMarks.together(
        [
            RootMarks.of_roots(RootMark.HELD_TUPLE, roots, edges, holder),
            RootMarks.of_roots(RootMark.HELD_UNTIL, roots, until_ms),
        ]
    )


def holder_of(operator: str, *, fails_late: bool = False) -> Cause:
    """Return as a cause who holds tuples.

    `fails_late`: whether a tuple that a watermark drops fails its root; otherwise it is acked.
    """
    return Cause.of(operator, LATE if fails_late else "", "")


def find_keyed_roots(keyed: RootMarks, numbers: I64) -> RootPositions:
    """Return the roots that bolts behind keyed bolts name by some numbers, one for one.

    A number is the edge of the tuple that a keyed bolt anchored its emission on, as int64. An index
    into the batch's plan would not do, since a root may be of an earlier batch.

    `keyed`: the `KEYED` marks of all tasks, which give a root one number.

    Raises `TrackingError`: a number has no mark, so no keyed bolt emitted on its root.
    """
    keyed_numbers, first_rows = np.unique(keyed.values, return_index=True)
    rows = rows_among(numbers, keyed_numbers)  # -1 for a number that is missing
    unknown_count = int(np.count_nonzero(rows < 0))
    if unknown_count:
        raise TrackingError(
            f"{unknown_count:,} tuples behind a keyed bolt have roots on which it emitted nothing:"
            " nobody can tell which records they are of"
        )
    keyed_rows = first_rows[rows]
    return RootPositions(keyed.sources[keyed_rows], keyed.positions[keyed_rows])


def marks_of_older(marks: RootMarks) -> RootMarks:
    """Return what a batch did to roots of earlier ones, each kind once for each root and cause.

    Of a root that it released, the edges of all tuples are one XOR.
    """
    return RootMarks.together(
        [
            released_once(marks).summed(RootMark.RELEASED),
            marks.of(RootMark.FAILED).once(),
            marks.of(RootMark.TOUCHED).once(),
            marks.of(RootMark.HELD_ON).once(),
        ]
    )


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, keys and values in the order in which they come."""
    values_by_key: dict[K, list[V]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, []).append(value)
    return values_by_key


def released_once(marks: RootMarks) -> RootMarks:
    """Return one row for each tuple that `RELEASED` marks name, without those `LEFT_OPEN` by some row.

    A join makes several rows of one tuple, and bolts may ack each of them. Two rows are of one
    tuple if they have one root and one edge; taken twice, the edge would cancel itself.
    """
    released, left_open = marks.of(RootMark.RELEASED), marks.of(RootMark.LEFT_OPEN)
    if left_open:
        released = released.at(~np.isin(released.edges, left_open.edges))
    if is_ascending(released.positions):
        return released  # each root once, which takes less time to see than the next
    if len(distinct(released.values)) == len(released):  # what aggregates write, and most joins
        return released
    return released.once_for_each_value()


def held_edges(roots: RootPositions, subscriptions: Iterable[int], ordinals: I64, held_at: HeldAt) -> U64:
    """Return the edges of held tuples, row by row.

    A *subscription* is one bolt's receiving of one stream, and an *ordinal* the number of a
    delivery among those of its parent (`spout.publishing.fold`).

    Spark's operators may make two rows of one tuple. With one edge they would cancel; so each row
    is a delivery of its own, with the task's partition and the number of the row in it as its last
    two ordinals.

    Args:
        roots: the roots of the tuples.
        subscriptions: the path that led to each tuple: none, if the tuple is the root itself, or
            one subscription.
        ordinals: of the tuples, among the deliveries of that subscription.
        held_at: where the tuples are held.
    """
    edges = root_edges(roots.sources, roots.positions)
    for subscription in subscriptions:
        edges = child_edges(edges, subscription, ordinals)
    # two hops more: to the task, and to the row in it
    edges_of_task = child_edges(edges, held_at.subscription, np.array([held_at.partition]))
    row_numbers = held_at.first_row + np.arange(len(edges))
    return child_edges(edges_of_task, held_at.subscription, row_numbers)


class HeldAt(NamedTuple):
    """Where a task holds a run of tuples.

    Attributes:
        subscription: the key of the subscription by which Spark's state receives them.
        partition: of the task, in its stage.
        first_row: the number in that partition of the first of the tuples.
    """

    subscription: int
    partition: int
    first_row: int
