"""The places of a block of tuples in their trees, as arrays where that is possible; pure.

A tuple has a *place* for each of its anchors: the root, and the *hops* that
lead from there to the tuple. A hop is the *subscription*, one bolt's receiving
of one stream, by its key; and the *ordinal*, the number of the tuple among
those that its parent had for that subscription, from 0. A root is named by its
index in the batch's plan. In code a place is a `Delivery`.

Arrays are possible where every tuple has one anchor and the same number of hops
behind it: everywhere in a topology without rich bolts and joins. The places of
a *block*, the tuples that a bolt gets together, are then arrays: the root of
each tuple, and one number for each hop, or a single one where all tuples have
the same; the place of a single tuple is built when somebody uses it.
Everywhere else places are a list.

Between bolts of a DataFrame that settle every tuple at once, edges cancel:
`Descendants` keep only the row that each tuple descends from, and number its
rows when they leave.

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
    AnchorForm,
    Anchors,
    Fingerprint,
    fingerprint,
    hops_column,
    pack,
)
from spout.tuples.tuple import Delivery

Deliveries = tuple[Delivery, ...]
"""The places of one tuple: one for each of its anchors; none where it is
unanchored, or untracked.
"""

PlacesOfRows = Callable[[], Sequence[Deliveries]]
"""Returns the places of rows that arrived; they are built by its first call."""

Numbers = I64 | int
"""A number for each tuple, `(n,) int64`, or one that all of them have."""

_MASK = (1 << 64) - 1


class Hop(NamedTuple):
    """One hop of many tuples.

    Attributes:
        key: of the subscription; 0: the tuples are of several ones, and the
            upper 32 bits of each ordinal have the key.
        ordinals: of each tuple on its subscription.
    """

    key: int
    ordinals: Numbers

    def take(self, rows: I64 | slice) -> Hop:
        """Return the hop of some of the tuples."""
        if isinstance(self.ordinals, int):
            return self
        return Hop(self.key, self.ordinals[rows])

    def of_tuple(self, row: int) -> tuple[int, int]:
        """Return the subscription and the ordinal of one tuple, as `Delivery.path` has them."""
        number = self.ordinals if isinstance(self.ordinals, int) else int(self.ordinals[row])
        # without a key for all tuples the upper half of the number has this tuple's
        subscription = self.key or number >> WORD_BITS & WORD_MASK
        return subscription, number & WORD_MASK

    def numbers(self) -> Numbers:
        """Return the hop of each tuple as one number, as in
        `spout.tuples.anchors`: the key is in the upper half.
        """
        upper_half = self.key << WORD_BITS
        if upper_half >> 63:  # below 0 as an int64
            upper_half -= 1 << 64
        return self.ordinals | upper_half


class Places(Sequence[Deliveries]):
    """Places of tuples that have one anchor each and the same number of hops behind them."""

    __slots__ = ("hops", "roots")

    def __init__(self, roots: I64, hops: tuple[Hop, ...] = ()) -> None:
        """Create places from the index of each tuple's root, `(n,) int64`,
        and the hops behind it.

        No hops: the tuples are the roots themselves.
        """
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
            return Places(self.roots[row], tuple([hop.take(row) for hop in self.hops]))
        path = tuple([hop.of_tuple(row) for hop in self.hops])
        return (Delivery(int(self.roots[row]), path),)

    def take(self, rows: I64) -> Places:
        """Return the places of the tuples of these numbers, `(n,) int64`, in this order."""
        return Places(self.roots[rows], tuple([hop.take(rows) for hop in self.hops]))

    def children(self, parents: I64, subscription: int, ordinals: Numbers) -> Places:
        """Return the places of tuples that descend from these ones, one hop further.

        Args:
            parents: `(n,) int64`: the number of the tuple here that each
                descends from.
            subscription: the key of the further hop.
            ordinals: of each tuple on it.
        """
        of_parents = self.take(parents)
        return Places(of_parents.roots, (*of_parents.hops, Hop(subscription, ordinals)))

    def column(self) -> pa.Array:
        """Build the column of anchors in the form HOPS: of each tuple a list of one path.

        A path is the root's index and then a number for each hop.
        """
        row_count, path_length = len(self), 1 + len(self.hops)
        paths = np.empty((row_count, path_length), np.int64)
        paths[:, 0] = self.roots
        for depth, hop in enumerate(self.hops, start=1):
            paths[:, depth] = hop.numbers()
        # all paths have the same length, so they begin in the flat array at
        # 0, length, 2 * length, ...
        path_offsets = np.arange(0, (row_count + 1) * path_length, path_length, dtype=np.int32)
        numbers = pa.array(paths.reshape(-1))
        path_type = PATHS_TYPE.value_type
        path_lists = pa.ListArray.from_arrays(pa.array(path_offsets), numbers, type=path_type)
        # each row has one path
        row_offsets = pa.array(np.arange(row_count + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(row_offsets, path_lists, type=PATHS_TYPE)

    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the column, without building it.

        Of a root r and the hops h and i a path's sum is r * w^2 + h * w + i,
        where w is `PATH_WEIGHT`.
        """
        sums = self.roots.astype(np.uint64)  # a copy: it is changed in place
        # keys, and ordinals that all tuples have the same, are added up in one
        # number, which is added to each tuple's at the end
        common_sum = 0
        for key, ordinals in self.hops:
            sums *= np.uint64(PATH_WEIGHT)
            common_sum = common_sum * PATH_WEIGHT + (key << WORD_BITS)
            if isinstance(ordinals, int):
                common_sum += ordinals
            else:
                sums += ordinals.view(np.uint64)
        sums += np.uint64(common_sum & _MASK)
        return fingerprint(len(self), sums)

    def numbers(self) -> U64:
        """Return the `place_number` of each place, `(n,) uint64`."""
        numbers = self.roots.astype(np.uint64)  # a copy: it is changed in place
        for key, ordinals in self.hops:
            mix64_in_place(numbers)
            numbers += np.uint64(key << WORD_BITS)
            if isinstance(ordinals, int):
                numbers += np.uint64(ordinals & _MASK)
            else:
                numbers += ordinals.view(np.uint64)
        return numbers


class Descendants(Sequence[Deliveries]):
    """Places of tuples that descend from rows which arrived in the task.

    Each has the place of its row.

    Attributes:
        parents: `(n,) int64`: the row that each descends from.
    """

    __slots__ = ("_anchors", "_places_of_rows", "_subscription", "parents")

    def __init__(
        self,
        anchors: Anchors | None,
        parents: I64,
        places_of_rows: PlacesOfRows,
        subscription: int = 0,
    ) -> None:
        """Describe descendants.

        Args:
            anchors: of the rows that arrived; None where nothing is tracked.
            parents: `(n,) int64`: the row that each descends from.
            places_of_rows: returns the place of each row that arrived; called
                where somebody uses one.
            subscription: key of the one on which they were emitted; 0: they
                are the rows themselves.
        """
        self.parents = parents
        self._anchors = anchors
        self._places_of_rows = places_of_rows
        self._subscription = subscription

    def __len__(self) -> int:
        return len(self.parents)

    @overload
    def __getitem__(self, row: int) -> Deliveries: ...
    @overload
    def __getitem__(self, row: slice) -> Descendants: ...
    def __getitem__(self, row: int | slice) -> Deliveries | Descendants:
        if isinstance(row, slice):
            parents = self.parents[row]
            return Descendants(self._anchors, parents, self._places_of_rows, self._subscription)
        # Looked up also where nothing is tracked: behind the last tuple it raises
        # `IndexError`, which ends a loop over them.
        parent = int(self.parents[row])
        if self._anchors is None:
            return ()
        return self._places_of_rows()[parent]

    def roots(self) -> I64:
        """Return the index of the only root of each; see `only_roots`."""
        return only_roots(self._places_of_rows())[self.parents]

    def children(self, parents: I64, subscription: int) -> Descendants:
        """Return what was emitted for these tuples on one subscription."""
        rows = self.parents[parents]
        return Descendants(self._anchors, rows, self._places_of_rows, subscription)

    def column(self, form: AnchorForm, bolt: str) -> pa.Array:
        """Build the column of anchors of tuples that leave the task; nulls
        where nothing is tracked.

        Only here each gets an ordinal: its number among those of its row.

        Args:
            form: the form of the column.
            bolt: who emitted them, for an error.
        """
        if self._anchors is None:
            return pa.nulls(len(self), form.type)
        row_count = len(self._anchors.column)
        ordinals = ordinals_of(self.parents, row_count)
        if form is AnchorForm.HOPS:
            # one hop further than the rows that arrived
            places = children_of(self._places_of_rows(), self.parents, self._subscription, ordinals)
            return column_of(places)
        # the chain of bolts has the subscriptions, so root and ordinal are enough
        roots = self._anchors.roots()[self.parents]
        return self._anchors.descendants_column(self.parents, pack(roots, ordinals, bolt))


def ordinals_of(parents: I64, parent_count: int) -> I64:
    """Return each row's ordinal among the rows of its parent, in order, `(n,) int64`.

    Of the parents 0, 0, 2, 2, 2 the ordinals are 0, 1, 0, 1, 2.

    Args:
        parents: `(n,) int64`: numbers in [0, `parent_count`), in any order.
    """
    row_count_by_parent = np.bincount(parents, minlength=parent_count)
    # where the rows of each parent begin if all are sorted by parent: 0, 2 and 2 in the example
    first_row_by_parent = np.cumsum(row_count_by_parent) - row_count_by_parent
    sorted_rows = np.arange(len(parents))
    is_sorted = not (np.diff(parents) < 0).any()
    if is_sorted:
        ordinals: I64 = sorted_rows - first_row_by_parent[parents]
        return ordinals
    # stable: rows of one parent keep their order
    order = np.argsort(parents, kind="stable")
    ordinals = np.empty(len(parents), np.int64)
    ordinals[order] = sorted_rows - first_row_by_parent[parents[order]]
    return ordinals


def ordinals_for_children(places: Sequence[Deliveries], parents: I64, parent_count: int) -> Numbers:
    """Return the ordinals for `children_of`, as `ordinals_of` has them.

    `Descendants` need none, so for them it is 0: they are numbered when they
    leave.
    """
    return 0 if isinstance(places, Descendants) else ordinals_of(parents, parent_count)


def place_number(place: Delivery) -> int:
    """Return a number for a place: the same in every process, and in a task that runs again."""
    number = place.root
    for subscription, ordinal in place.path:
        hop = subscription << WORD_BITS | ordinal
        number = (mix64(number) + hop) & _MASK
    return number


def places_of(anchors: Anchors) -> Sequence[Deliveries]:
    """Return the places of rows that arrive: arrays if all have one anchor and as many hops, else
    a list.
    """
    if anchors.form in (AnchorForm.PACKED, AnchorForm.WIDE):
        ordinals = anchors.ordinals()
        hops = tuple([Hop(key, ordinals) for key in anchors.subscriptions])
        return Places(anchors.roots(), hops)
    if anchors.form is AnchorForm.HOPS:
        places = uniform_places(anchors.column)
        if places is not None:
            return places
    return list(anchors.deliveries())


def uniform_places(column: pa.Array) -> Places | None:
    """Read a HOPS column whose rows have one place each, all of the same
    depth; None for any other.
    """
    paths = column.flatten()
    if not len(column) or len(paths) != len(column):
        return None
    path_lengths = np.asarray(paths.value_lengths())
    path_length = int(path_lengths[0])
    have_one_place = (np.asarray(column.value_lengths()) == 1).all()
    if (path_lengths != path_length).any() or not have_one_place:
        return None
    # one row for each path: the root's index, then a number for each hop
    table = np.asarray(paths.flatten(), dtype=np.int64).reshape(-1, path_length)
    hops = tuple([_hop_of(table[:, depth]) for depth in range(1, path_length)])
    return Places(roots=table[:, 0], hops=hops)


def _hop_of(numbers: I64) -> Hop:
    """Return the hop that has these numbers, as `Hop.numbers` returns them; at least one."""
    numbers = np.ascontiguousarray(numbers)
    keys = numbers >> WORD_BITS
    if (keys != keys[0]).any():
        return Hop(key=0, ordinals=numbers)
    return Hop(key=int(keys[0]) & WORD_MASK, ordinals=numbers & WORD_MASK)


def only_roots(places: Sequence[Deliveries]) -> I64:
    """Return the index of the one root that each tuple descends from; -1
    where it has none, or several.
    """
    if isinstance(places, Places):
        return places.roots
    if isinstance(places, Descendants):
        return places.roots()
    roots: list[int] = []
    for deliveries in places:
        roots_of_tuple = {delivery.root for delivery in deliveries}
        roots.append(roots_of_tuple.pop() if len(roots_of_tuple) == 1 else -1)
    return np.array(roots, np.int64)


def children_of(
    places: Sequence[Deliveries], parents: I64, subscription: int, ordinals: Numbers
) -> Sequence[Deliveries]:
    """Return the places of tuples that were emitted on one subscription.

    Args:
        places: of the tuples that they are anchored on.
        parents: `(n,) int64`: the number of the tuple that each is anchored
            on.
        subscription: its key.
        ordinals: the number of each among those of its parent; `Descendants`
            do not look at it.
    """
    if isinstance(places, Descendants):
        return places.children(parents, subscription)
    if isinstance(places, Places):
        return places.children(parents, subscription, ordinals)
    ordinal_of_each = np.broadcast_to(ordinals, len(parents)).tolist()
    children: list[Deliveries] = []
    for parent, ordinal in zip(parents.tolist(), ordinal_of_each, strict=True):
        children.append(tuple([place.child(subscription, ordinal) for place in places[parent]]))
    return children


def column_of(
    places: Sequence[Deliveries],
    form: AnchorForm = AnchorForm.HOPS,
    bolt: str = "",
) -> pa.Array:
    """Build the column of anchors of tuples that a bolt emitted.

    `form`: of `Descendants`, the form of the column; other places are always in HOPS.
    """
    if isinstance(places, Descendants):
        return places.column(form, bolt)
    if isinstance(places, Places):
        return places.column()
    return hops_column(places)
