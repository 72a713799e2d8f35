"""The hidden column that ties a row to the tree of its root, as narrow as it can be.

A *hop* leads from a tuple to one that was emitted on it, and has two numbers: the key of the
*subscription* (one bolt's receiving of one stream), and the *ordinal* among the deliveries of the
parent on it.

``PACKED``
    One int64: the root's index in the batch's plan, and the ordinal among the tuples that the
    first bolts emitted for it. Ordinal 0 with no hop is the root itself.
``HOPS``
    A list of deliveries, each a list of int64, its *path*: the root's index, then
    ``subscription << 32 | ordinal`` for every hop. For tuples with several anchors or none, and
    where rows of one stream can have different hops.
``WIDE``
    PACKED, with the root's source and position beside it. An index means something only within its
    batch; source and position do so afterwards too. For tuples that Spark's state may hold: see
    `spout.publishing.delayed`.

In PACKED and WIDE the subscriptions along the hops are the same for all rows
of a stream. So the chain of bolts has them, and not the rows.

Source: docs/design/protocol.md, sections 2 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, assert_never

import numpy as np
import pyarrow as pa

from acker.errors import TrackingError
from acker.identity import I64, U64, mix64_in_place
from spout.tuples.tuple import Delivery

ORDINAL_BITS = 24
ORDINALS_MAX = 1 << ORDINAL_BITS
"""Tuples that one pass may emit for one input tuple: 16,777,216."""

WORD_BITS = 32
"""Of a hop, which is one number: the subscription is in the upper half, the
ordinal in the lower.
"""

WORD_MASK = (1 << WORD_BITS) - 1
_MASK = (1 << 64) - 1

PATH_WEIGHT = 0x5851F42D4C957F2D
"""A path is fingerprinted as one number: the number for what is before a hop
is multiplied by this, and then the hop is added.
"""

PATHS_TYPE = pa.list_(pa.list_(pa.int64()))
WIDE_TYPE = pa.struct([("packed", pa.int64()), ("source", pa.int64()), ("position", pa.int64())])


class AnchorForm(StrEnum):
    """The form in which rows have their anchors; NONE: they have none."""

    NONE = "none"
    PACKED = "packed"
    HOPS = "hops"
    WIDE = "wide"

    @property
    def type(self) -> pa.DataType:
        """Arrow's type of the column of anchors."""
        match self:
            case AnchorForm.HOPS:
                return PATHS_TYPE
            case AnchorForm.WIDE:
                return WIDE_TYPE
            case AnchorForm.PACKED | AnchorForm.NONE:
                return pa.int64()
            case _:
                assert_never(self)


class Fingerprint(NamedTuple):
    """A checksum of rows: it shows whether a bolt received the very rows that another one sent.

    It does not depend on the order of the rows, and two of them can be added.

    Attributes:
        rows: how many there are.
        total: the sum of their mixed anchors modulo 2^64.
    """

    rows: int = 0
    total: int = 0

    def plus(self, summand: Fingerprint) -> Fingerprint:
        """Return the fingerprint of both sets of rows together."""
        total = (self.total + summand.total) & _MASK
        return Fingerprint(self.rows + summand.rows, total)


def fingerprint(rows: int, anchors: I64 | U64) -> Fingerprint:
    """Return the fingerprint of `rows` rows that have these anchor numbers."""
    mixed = anchors.astype(np.uint64)  # a copy, which is mixed in place
    mix64_in_place(mixed)
    return Fingerprint(rows, int(mixed.sum(dtype=np.uint64)))


def pack(indices: I64, ordinals: I64, bolt: str) -> I64:
    """Pack the root's index and the ordinal of each row that a bolt emitted into one number.

    Raises `TrackingError`: an ordinal does not fit into 24 bits.
    """
    if len(ordinals) and ordinals.max() >= ORDINALS_MAX:
        tuple_count = int(ordinals.max()) + 1
        raise TrackingError(
            f"bolt {bolt!r} emitted {tuple_count:,} tuples for one input tuple, and there are"
            f" numbers for {ORDINALS_MAX:,}: emit fewer and larger ones, or cut the record in its"
            " producer"
        )
    packed: I64 = indices << ORDINAL_BITS | ordinals
    return packed


@dataclass(frozen=True, slots=True)
class Anchors:
    """The anchors of a batch of rows.

    Attributes:
        form: of the column.
        column: the column; for `AnchorForm.NONE` nulls.
        subscriptions: keys of the subscriptions along every path of a PACKED
            or WIDE column.
    """

    form: AnchorForm
    column: pa.Array
    subscriptions: tuple[int, ...] = ()

    def roots(self) -> I64:
        """Return the root's index of each row of a PACKED or WIDE column, `(n,) int64`."""
        indices: I64 = self.packed() >> ORDINAL_BITS
        return indices

    def ordinals(self) -> I64:
        """Return the ordinal of each row of a PACKED or WIDE column."""
        ordinals: I64 = self.packed() & (ORDINALS_MAX - 1)
        return ordinals

    def packed(self) -> I64:
        """Return index and ordinal of each row of a PACKED or WIDE column, in one number."""
        column = self.column.field("packed") if self.form is AnchorForm.WIDE else self.column
        return np.asarray(column, dtype=np.int64)

    def descendants_column(self, parents: I64, packed: I64) -> pa.Array:
        """Build the column of anchors, in the same form (PACKED or WIDE), of rows that descend
        from these.

        Args:
            parents: `(n,) int64`: the number of the row here that each
                descends from.
            packed: `(n,) int64`: index and ordinal of each.
        """
        packed_column = pa.array(packed)
        if self.form is not AnchorForm.WIDE:
            return packed_column
        parent_anchors = self.column.take(pa.array(parents))
        sources = parent_anchors.field("source")
        positions = parent_anchors.field("position")
        return wide_column(packed_column, sources, positions)

    def deliveries(self) -> Iterator[tuple[Delivery, ...]]:
        """Yield the deliveries of each row; an unanchored row has none."""
        if self.form in (AnchorForm.PACKED, AnchorForm.WIDE):
            for root, ordinal in zip(self.roots().tolist(), self.ordinals().tolist(), strict=True):
                path = tuple((subscription, ordinal) for subscription in self.subscriptions)
                yield (Delivery(root, path),)
        else:
            for paths in self.column.to_pylist():
                yield tuple([_delivery_of(path) for path in paths or ()])


def wide_column(packed: pa.Array, sources: pa.Array, positions: pa.Array) -> pa.Array:
    """Build a WIDE column of its three parts."""
    return pa.StructArray.from_arrays([packed, sources, positions], fields=list(WIDE_TYPE))


def hops_column(rows: Sequence[tuple[Delivery, ...]]) -> pa.Array:
    """Build a HOPS column from each row's deliveries."""
    return pa.array([_paths_of(deliveries) for deliveries in rows], PATHS_TYPE)


def _paths_of(deliveries: Sequence[Delivery]) -> list[list[int]]:
    return [_path_of(delivery) for delivery in deliveries]


def _path_of(delivery: Delivery) -> list[int]:
    """Return a delivery as a path of a HOPS column; `_delivery_of` reads it back."""
    path = [delivery.root]
    for subscription, ordinal in delivery.path:
        hop = subscription << WORD_BITS | ordinal
        # a column has int64: where the subscription's highest bit is set, the
        # hop is below 0
        path.append(hop - (1 << 64) if hop >> 63 else hop)
    return path


def _delivery_of(path: Sequence[int]) -> Delivery:
    """Return the delivery that a path of a HOPS column names."""
    root, *hops = path
    return Delivery(root, tuple([(hop >> WORD_BITS & WORD_MASK, hop & WORD_MASK) for hop in hops]))


def fingerprint_of(form: AnchorForm, column: pa.Array) -> Fingerprint:
    """Return the fingerprint of the rows that have this column of anchors."""
    if form is AnchorForm.HOPS:
        return fingerprint(len(column), _path_sums(column.flatten()))
    return fingerprint(len(column), Anchors(form, column).packed())


def _path_sums(paths: pa.Array) -> I64:
    """Return one number for each path, modulo 2^64, `(n,) int64`; see `PATH_WEIGHT`.

    The path [7, 40, 50] is 7 * w^2 + 40 * w + 50: a number counts times w for
    each one behind it.
    """
    path_lengths = np.asarray(paths.value_lengths())
    path_ends = np.cumsum(path_lengths)
    # of each number: how many follow it in its path, as 2, 1 and 0 in the example
    numbers_behind = np.repeat(path_ends, path_lengths) - np.arange(1, path_lengths.sum() + 1)
    weights: I64 = np.power(PATH_WEIGHT, numbers_behind, dtype=np.int64)
    weighted_numbers: I64 = np.asarray(paths.flatten(), dtype=np.int64) * weights
    if not len(path_ends):  # `reduceat` takes no empty array
        return weighted_numbers
    path_begins = path_ends - path_lengths
    sums: I64 = np.add.reduceat(weighted_numbers, path_begins)
    return sums
