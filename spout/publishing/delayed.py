"""Delayed acks: tuples that Spark's state holds across micro-batches; pure.

The batch that *holds* a tuple publishes its root with this one edge outstanding. The later batch that
*releases* it contributes the edge to the root. Spark does not say which tuples a watermark drops, so each
held tuple brings the event time from which on one drops it, and the driver compares.

Source: docs/design/protocol.md, sections 2 ("The fold"), 4 ("Wire") and 5.2 ("Acks that wait").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import numpy as np

from acker.errors import TrackingError
from acker.hot_paths import distinct, rows_among, xor_sums
from acker.identity import I64, U64, child_edges, root_edges
from acker.wire.events import SourceRun
from spout.planning.plan import PlanIndex
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause

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
        name: of a column with times, or of a `hold`, which has the time from which a watermark drops a tuple.
        is_held: whether it is of a `hold`.
        run: the record, as a run of one position; or the chunk of records that it is in.
    """

    name: str
    at_ms: int
    run: SourceRun
    is_held: bool = False


class RootPositions(NamedTuple):
    """Positions of sources, one for one."""

    sources: I64
    positions: I64

    @classmethod
    def together(cls, parts: Iterable[RootPositions]) -> RootPositions:
        listed = list(parts)
        return cls(
            np.concatenate([_no_numbers(), *(each.sources for each in listed)]),
            np.concatenate([_no_numbers(), *(each.positions for each in listed)]),
        )

    def at(self, rows: np.typing.NDArray[np.bool_] | I64 | slice) -> RootPositions:
        return RootPositions(self.sources[rows], self.positions[rows])

    def by_source(self) -> Iterator[tuple[int, I64]]:
        """Yield each source, ascending, with the indices of its rows."""
        for source in distinct(self.sources).tolist():
            yield source, np.flatnonzero(self.sources == source)


@dataclass(frozen=True, slots=True)
class Held:
    """What one task handed to Spark's state: roots, as indices into the batch's plan, and edges.

    Attributes:
        until_ms: event time; a watermark at or above it drops the tuple. -1: it is dropped in any case;
            `NEVER_MS`: in none.
        fails_late: whether a dropped one fails its root; otherwise it is acked.
    """

    indices: I64 = field(default_factory=_no_numbers)
    edges: U64 = field(default_factory=_no_edges)
    until_ms: I64 = field(default_factory=_no_numbers)
    fails_late: bool = False

    @classmethod
    def together(cls, parts: Sequence[Held], *, fails_late: bool = False) -> Held:
        return cls(
            np.concatenate([_no_numbers(), *(each.indices for each in parts)]),
            np.concatenate([_no_edges(), *(each.edges for each in parts)]),
            np.concatenate([_no_numbers(), *(each.until_ms for each in parts)]),
            fails_late,
        )


@dataclass(frozen=True, slots=True)
class KeyedRoots:
    """Roots of what a keyed bolt emitted. The number of each is the edge of the emission's anchor, as int64.

    Bolts behind the keyed bolt name roots by these numbers, since the roots may be of earlier batches.
    """

    numbers: I64 = field(default_factory=_no_numbers)
    places: RootPositions = field(default_factory=lambda: RootPositions(_no_numbers(), _no_numbers()))

    @classmethod
    def together(cls, parts: Iterable[KeyedRoots]) -> KeyedRoots:
        """Return the roots of all parts, by ascending numbers."""
        listed = list(parts)
        every = np.concatenate([_no_numbers(), *(each.numbers for each in listed)])
        numbers, first = np.unique(every, return_index=True)
        return cls(numbers, RootPositions.together(each.places for each in listed).at(first))

    def find(self, numbers: I64) -> RootPositions:
        """Return the roots of some numbers.

        Raises `TrackingError`: a keyed bolt emitted nothing with such a root.
        """
        rows = rows_among(numbers, self.numbers)
        unknown = int(np.count_nonzero(rows < 0))
        if unknown:
            raise TrackingError(
                f"{unknown:,} tuples behind a keyed bolt have roots on which it emitted nothing:"
                " nobody can tell which records they are of"
            )
        return self.places.at(rows)


class Split(NamedTuple):
    """What was done to tuples that had been held: of this batch's own roots, by index, and of older ones."""

    edges: tuple[I64, U64]
    failures: list[tuple[Cause, I64]]
    touched: I64
    older: RootMarks


def split(plan: PlanIndex, reported: RootMarks) -> Split:
    """Separate a batch's own roots from older ones.

    An anchor of several rows, as a join makes them of one tuple, is acked once: two equal edges are one
    tuple, and would cancel. It is not acked if one of these rows was left open. A root of the batch's own
    that is held on is among what it holds.
    """
    released = _each_once(reported.of(RootMark.RELEASED), reported.of(RootMark.LEFT_OPEN))
    failed, touched = reported.of(RootMark.FAILED), reported.of(RootMark.TOUCHED)
    own_released, older_released = _own_and_older(plan, released)
    own_failed, older_failed = _own_and_older(plan, failed)
    own_touched, older_touched = _own_and_older(plan, touched)
    _, older_held_on = _own_and_older(plan, reported.of(RootMark.HELD_ON))
    older = [_sums(older_released), older_failed.once(), older_touched.once(), older_held_on.once()]
    return Split(
        edges=(_indices(plan, own_released), own_released.edges),
        failures=[(cause, _indices(plan, marks)) for cause, marks in own_failed.by_cause()],
        touched=_indices(plan, own_touched),
        older=RootMarks.together(older),
    )


def _sums(released: RootMarks) -> RootMarks:
    """Sum up the edges of what was released for each root; of some they cancel."""
    sums = []
    for source, rows in RootPositions(released.sources, released.positions).by_source():
        positions, values = xor_sums(released.positions[rows], released.edges[rows])
        sources = np.full(len(positions), source, np.int64)
        sums.append(RootMarks.of_roots(RootMark.RELEASED, (sources, positions), values))
    return RootMarks.together(sums)


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in their order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _each_once(released: RootMarks, left_open: RootMarks) -> RootMarks:
    """Return the released tuples, each of them once, without those that a row left open."""
    if left_open:
        released = released.at(~np.isin(released.edges, left_open.edges))
    if len(distinct(released.values)) == len(released):  # what aggregates write, and most joins
        return released
    order = np.lexsort((released.values, released.positions, released.sources))
    columns = [column[order] for column in (released.sources, released.positions, released.values)]
    first = np.ones(len(order), np.bool_)
    first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return released.at(order[first])


def _own_and_older(plan: PlanIndex, marks: RootMarks) -> tuple[RootMarks, RootMarks]:
    return marks.apart(_indices(plan, marks) >= 0)


def _indices(plan: PlanIndex, marks: RootMarks) -> I64:
    """Return the index of each root in the plan; -1: it is of an earlier batch."""
    return plan.find_roots(marks.sources, marks.positions)


def held_edges(places: RootPositions, subscriptions: Iterable[int], ordinals: I64, entry: HeldAt) -> U64:
    """Compute the edges of held tuples, with `places`, paths' `subscriptions` (at most one) and `ordinals`.

    Two rows that Spark's operators made of one tuple must not have one edge, or they would cancel; so each
    counts as a delivery of its own, named by the task's partition and the row's number in it (`entry`).
    """
    edges = root_edges(places.sources, places.positions)
    for subscription in subscriptions:
        edges = child_edges(edges, subscription, ordinals)
    edges = child_edges(edges, entry.subscription, np.array([entry.partition]))
    return child_edges(edges, entry.subscription, entry.first + np.arange(len(edges)))


class HeldAt(NamedTuple):
    """Where tuples are held: the subscription's key, the task's partition, the first row's number in it."""

    subscription: int
    partition: int
    first: int
