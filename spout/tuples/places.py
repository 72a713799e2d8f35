"""The places of a block of tuples in their trees, as arrays where that is possible; pure.

It is possible where every tuple has one anchor and the same number of hops behind it: everywhere in a
topology without rich bolts and joins. A block's places are then arrays: the root of each tuple, and one
number for each hop, or a single one where all tuples have the same; the place of a single tuple is built when
somebody uses it. Everywhere else places are a list.

Between bolts of a DataFrame that settle every tuple at once, edges cancel: `Descendants` keep only the row
that each tuple descends from, and number its rows when they leave.

Source: docs/design/protocol.md, section 2 ("child edge").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa

from acker.identity import I64, U64, mix64, mix64_in_place
from spout.tuples.anchors import (
    PATH_WEIGHT,
    PATHS_TYPE,
    WORD_BITS,
    WORD_MASK,
    Anchors,
    Carry,
    Fingerprint,
    fingerprint,
    hops_column,
    pack,
)
from spout.tuples.tuple import Delivery

Deliveries = tuple[Delivery, ...]
OwnPlaces = Callable[[], Sequence[Deliveries]]

Numbers = I64 | int
"""A number for each tuple, `(n,) int64`, or one that all of them have."""

_MASK = (1 << 64) - 1


class Hop(NamedTuple):
    """A hop of many tuples: the key of its subscription, and the ordinal of each tuple there.

    Where they are of several subscriptions the key is 0, and the upper half of each ordinal has its own.
    """

    key: int
    ordinals: Numbers

    def of(self, rows: I64 | slice) -> Hop:
        return self if isinstance(self.ordinals, int) else Hop(self.key, self.ordinals[rows])

    def at(self, row: int) -> tuple[int, int]:
        """Return the subscription and the ordinal of one tuple."""
        ordinal = self.ordinals if isinstance(self.ordinals, int) else int(self.ordinals[row])
        return self.key or ordinal >> WORD_BITS & WORD_MASK, ordinal & WORD_MASK

    def numbers(self) -> Numbers:
        """Return a number for each tuple, as in `spout.tuples.anchors`: the key is in the upper half."""
        upper = self.key << WORD_BITS
        return self.ordinals | (upper - (1 << 64) if upper >> 63 else upper)


class Places(Sequence[Deliveries]):
    """Places of tuples that have one anchor each and the same number of hops behind them."""

    __slots__ = ("hops", "roots")

    def __init__(self, roots: I64, hops: tuple[Hop, ...] = ()) -> None:
        """Create places from the index of each tuple's root, `(n,) int64`, and the hops behind it."""
        self.roots = roots
        self.hops = hops

    def __len__(self) -> int:
        return len(self.roots)

    @overload
    def __getitem__(self, row: int) -> Deliveries: ...
    @overload
    def __getitem__(self, row: slice) -> Places: ...
    def __getitem__(self, row: int | slice) -> Deliveries | Places:
        if isinstance(row, slice):
            return Places(self.roots[row], tuple([hop.of(row) for hop in self.hops]))
        return (Delivery(int(self.roots[row]), tuple([hop.at(row) for hop in self.hops])),)

    def take(self, rows: I64) -> Places:
        return Places(self.roots[rows], tuple([hop.of(rows) for hop in self.hops]))

    def children(self, parents: I64, subscription: int, ordinals: Numbers) -> Places:
        """Return the places below those of `parents`, each at its ordinal on one subscription."""
        before = self.take(parents)
        return Places(before.roots, (*before.hops, Hop(subscription, ordinals)))

    def column(self) -> pa.Array:
        rows, width = len(self), 1 + len(self.hops)
        flat = np.empty((rows, width), np.int64)
        flat[:, 0] = self.roots
        for depth, hop in enumerate(self.hops, start=1):
            flat[:, depth] = hop.numbers()
        inner = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
        values = pa.array(flat.reshape(-1))
        paths = pa.ListArray.from_arrays(pa.array(inner), values, type=PATHS_TYPE.value_type)
        outer = pa.array(np.arange(rows + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(outer, paths, type=PATHS_TYPE)

    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the column, without building it."""
        found, same = self.roots.astype(np.uint64), 0
        for key, ordinals in self.hops:
            found *= np.uint64(PATH_WEIGHT)
            same = same * PATH_WEIGHT + (key << WORD_BITS)
            if isinstance(ordinals, int):
                same += ordinals
            else:
                found += ordinals.view(np.uint64)
        found += np.uint64(same & _MASK)
        return fingerprint(len(self), found)

    def numbers(self) -> U64:
        """Return the `number_of` each place."""
        found = self.roots.astype(np.uint64)
        for key, ordinals in self.hops:
            mix64_in_place(found)
            found += np.uint64(key << WORD_BITS)
            found += np.uint64(ordinals & _MASK) if isinstance(ordinals, int) else ordinals.view(np.uint64)
        return found


class Descendants(Sequence[Deliveries]):
    """Tuples that descend from rows that arrived; the place of each is that of its row."""

    __slots__ = ("_anchors", "_hop", "_own", "parents")

    def __init__(self, anchors: Anchors | None, parents: I64, own: OwnPlaces, hop: int = 0) -> None:
        """Describe descendants.

        Args:
            anchors: of the rows that arrived; None where nothing is tracked.
            parents: `(n,) int64`: the row that each descends from.
            own: returns the place of each row that arrived; called where somebody uses one.
            hop: key of the subscription on which they were emitted.
        """
        self.parents = parents
        self._anchors = anchors
        self._own = own
        self._hop = hop

    def __len__(self) -> int:
        return len(self.parents)

    @overload
    def __getitem__(self, row: int) -> Deliveries: ...
    @overload
    def __getitem__(self, row: slice) -> Descendants: ...
    def __getitem__(self, row: int | slice) -> Deliveries | Descendants:
        if isinstance(row, slice):
            return Descendants(self._anchors, self.parents[row], self._own, self._hop)
        parent = int(self.parents[row])  # also of an untracked row: behind the last it ends an iteration
        return () if self._anchors is None else self._own()[parent]

    def roots(self) -> I64:
        """Return `only_roots` of them."""
        return only_roots(self._own())[self.parents]

    def children(self, parents: I64, subscription: int) -> Descendants:
        """Return what was emitted for these tuples on one subscription."""
        return Descendants(self._anchors, self.parents[parents], self._own, subscription)

    def column(self, carry: Carry, bolt: str) -> pa.Array:
        """Build the column of rows of a bolt that leave: each is numbered among those of its row."""
        if self._anchors is None:
            return pa.nulls(len(self), carry.type)
        ordinals = ordinals_of(self.parents, len(self._anchors.column))
        if carry is Carry.HOPS:
            return column_of(children_of(self._own(), self.parents, self._hop, ordinals))
        return self._anchors.again(self.parents, pack(self._anchors.roots()[self.parents], ordinals, bolt))


def ordinals_of(parents: I64, rows: int) -> I64:
    """Return each row's ordinal among the rows of its parent, in order; parents are in [0, rows)."""
    counts = np.bincount(parents, minlength=rows)
    firsts = np.cumsum(counts) - counts
    here = np.arange(len(parents))
    if not (np.diff(parents) < 0).any():
        ascending: I64 = here - firsts[parents]
        return ascending
    order = np.argsort(parents, kind="stable")
    ordinals = np.empty(len(parents), np.int64)
    ordinals[order] = here - firsts[parents[order]]
    return ordinals


def numbered(places: Sequence[Deliveries], parents: I64, rows: int) -> Numbers:
    """Return `ordinals_of` for `children_of`; 0 where it needs none, as rows are numbered when they leave."""
    return 0 if isinstance(places, Descendants) else ordinals_of(parents, rows)


def number_of(place: Delivery) -> int:
    """Return a number for a place: the same in every process, and in a task that runs again."""
    found = place.root
    for subscription, ordinal in place.path:
        found = (mix64(found) + (subscription << WORD_BITS | ordinal)) & _MASK
    return found


def places_of(anchors: Anchors) -> Sequence[Deliveries]:
    """Return the places of rows that arrive, as arrays if they all have the same form."""
    if anchors.carry in (Carry.PACKED, Carry.WIDE):
        ordinals = anchors.ordinals()
        return Places(anchors.roots(), tuple([Hop(key, ordinals) for key in anchors.subscriptions]))
    if anchors.carry is Carry.HOPS:
        return alike(anchors.column) or list(anchors.deliveries())
    return list(anchors.deliveries())


def alike(column: pa.Array) -> Places | None:
    """Read a HOPS column whose rows have one place each, all of the same depth; None for any other."""
    paths = column.flatten()
    if not len(column) or len(paths) != len(column):
        return None
    widths = np.asarray(paths.value_lengths())
    width = int(widths[0])
    if (widths != width).any() or (np.asarray(column.value_lengths()) != 1).any():
        return None
    flat = np.asarray(paths.flatten(), dtype=np.int64).reshape(-1, width)
    return Places(flat[:, 0], tuple([_apart(flat[:, depth]) for depth in range(1, width)]))


def _apart(numbers: I64) -> Hop:
    numbers = np.ascontiguousarray(numbers)
    keys = numbers >> WORD_BITS
    if (keys != keys[0]).any():
        return Hop(0, numbers)
    return Hop(int(keys[0]) & WORD_MASK, numbers & WORD_MASK)


def only_roots(places: Sequence[Deliveries]) -> I64:
    """Return the index of the one root that each tuple descends from; -1 where it has none, or several."""
    if isinstance(places, Places):
        return places.roots
    if isinstance(places, Descendants):
        return places.roots()
    roots = [{each.root for each in deliveries} for deliveries in places]
    return np.array([found.pop() if len(found) == 1 else -1 for found in roots], np.int64)


def children_of(
    places: Sequence[Deliveries], parents: I64, subscription: int, ordinals: Numbers
) -> Sequence[Deliveries]:
    """Return the places of tuples that were emitted on one subscription.

    Args:
        parents: `(n,) int64`: the number of the tuple that each is anchored on.
        ordinals: its number among those of that tuple.
    """
    if isinstance(places, Descendants):
        return places.children(parents, subscription)
    if isinstance(places, Places):
        return places.children(parents, subscription, ordinals)
    pairs = zip(parents.tolist(), np.broadcast_to(ordinals, len(parents)).tolist(), strict=True)
    return [
        tuple([place.child(subscription, ordinal) for place in places[parent]]) for parent, ordinal in pairs
    ]


def column_of(places: Sequence[Deliveries], carry: Carry = Carry.HOPS, bolt: str = "") -> pa.Array:
    """Build the column of anchors of rows of a bolt; other places than `Descendants` are always in HOPS."""
    if isinstance(places, Descendants):
        return places.column(carry, bolt)
    return places.column() if isinstance(places, Places) else hops_column(places)
