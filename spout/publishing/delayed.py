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
from dataclasses import dataclass, field
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


def _no_edges() -> U64:
    return np.empty(0, np.uint64)


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


class HeldTuples(NamedTuple):
    """Tuples that one task handed to Spark's state: three columns, with a row for each tuple.

    Attributes:
        roots: source and position of the tuple's root.
        edges: the tuple's edge, which its root lacks until the tuple is released.
        until_ms: event time, ms; a watermark at or above it drops the tuple. -1: every one does;
            `NEVER_MS`: none does.
    """

    roots: RootPositions
    edges: U64
    until_ms: I64

    @classmethod
    def together(cls, parts: Iterable[HeldTuples]) -> HeldTuples:
        """Return the tuples of all parts, one part behind the other."""
        tables = list(parts)
        return cls(
            RootPositions.together(table.roots for table in tables),
            np.concatenate([_no_edges(), *(table.edges for table in tables)]),
            np.concatenate([_no_numbers(), *(table.until_ms for table in tables)]),
        )

    def marks(self, operator: str, *, fails_late: bool = False) -> RootMarks:
        """Return the marks of the tuples; `operator` holds them.

        `fails_late`: whether a tuple that a watermark drops fails its root; otherwise it is acked.
        """
        holder = Cause.of(operator, LATE if fails_late else "", "")
        # all tuples, then all times: so the bytes are fewer than of a time behind each tuple
        return RootMarks.together(
            [
                RootMarks.of_roots(RootMark.HELD_TUPLE, self.roots, self.edges, holder),
                RootMarks.of_roots(RootMark.HELD_UNTIL, self.roots, self.until_ms),
            ]
        )


@dataclass(frozen=True, slots=True)
class KeyedRoots:
    """Roots on which keyed bolts emitted, each under a number: the edge of the emission's anchor,
    as int64.

    Bolts behind the keyed bolt name roots by these numbers. An index into the batch's plan would
    not do, since a root may be of an earlier batch.

    Attributes:
        numbers: of the roots; ascending, where `together` made the table.
        roots: source and position of the root of each number, row by row.
    """

    numbers: I64 = field(default_factory=_no_numbers)
    roots: RootPositions = field(default_factory=lambda: RootPositions(_no_numbers(), _no_numbers()))

    @classmethod
    def of_marks(cls, marks: RootMarks) -> KeyedRoots:
        """Return the roots that keyed bolts emitted on, from the marks of all tasks."""
        keyed = marks.of(RootMark.KEYED)
        if not len(keyed):  # as of most queries
            return cls()
        return cls.together([cls(keyed.values, RootPositions(keyed.sources, keyed.positions))])

    def marks(self) -> RootMarks:
        """Return the roots as a task marks them."""
        return RootMarks.of_roots(RootMark.KEYED, self.roots, self.numbers)

    @classmethod
    def together(cls, parts: Iterable[KeyedRoots]) -> KeyedRoots:
        """Return the roots of all parts, each once, by ascending numbers."""
        tables = list(parts)
        all_numbers = np.concatenate([_no_numbers(), *(table.numbers for table in tables)])
        all_roots = RootPositions.together(table.roots for table in tables)
        # all rows of a number have the same root, since the tasks of a batch give a root one number
        numbers, first_rows = np.unique(all_numbers, return_index=True)
        return cls(numbers, all_roots.at(first_rows))

    def find(self, numbers: I64) -> RootPositions:
        """Return the roots of some numbers, one for one.

        Raises `TrackingError`: a number is not in the table, so no keyed bolt emitted on its root.
        """
        rows = rows_among(numbers, self.numbers)  # -1 for a number that is missing
        unknown_count = int(np.count_nonzero(rows < 0))
        if unknown_count:
            raise TrackingError(
                f"{unknown_count:,} tuples behind a keyed bolt have roots on which it emitted nothing:"
                " nobody can tell which records they are of"
            )
        return self.roots.at(rows)


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
