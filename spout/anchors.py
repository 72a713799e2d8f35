"""The hidden column that ties a row to the tree of its root, as narrow as it can be.

``PACKED``
    One int64: the root's index into the batch's plan, and the ordinal among the tuples that the first pass
    emitted for it. Ordinal 0 with no hop is the root itself.
``PATHS``
    A list of deliveries, each a list of int64: the root's index, then the ordinal of every hop. For tuples
    with several anchors or none, and for bolts behind a second grouping.

The subscriptions along the hops are the same for all rows of a stream, so they stand in the pass, not in
the rows.

Source: DESIGN.md, sections 2 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from acker.errors import TrackingError
from acker.identity import I64
from spout.collector import Delivery
from spout.fold import Fingerprint, fingerprint

ORDINAL_BITS = 24
ORDINALS_MAX = 1 << ORDINAL_BITS
"""Tuples that one pass may emit for one input tuple: 16,777,216."""

PATHS_TYPE = pa.list_(pa.list_(pa.int64()))


class Carry(StrEnum):
    """How rows carry their anchors."""

    NONE = "none"
    PACKED = "packed"
    PATHS = "paths"


def pack(indices: I64, ordinals: I64) -> I64:
    """Pack indices and ordinals, one int64 for each row.

    Raises:
        TrackingError: an ordinal does not fit.
    """
    if len(ordinals) and ordinals.max() >= ORDINALS_MAX:
        raise TrackingError(f"a bolt emitted more than {ORDINALS_MAX:,} tuples for one input tuple")
    packed: I64 = indices << ORDINAL_BITS | ordinals
    return packed


@dataclass(frozen=True, slots=True)
class Anchors:
    """The anchors of a batch of rows.

    Attributes:
        carry: which form they have.
        column: the column; for `Carry.NONE` nulls.
        subscriptions: the keys along every path.
    """

    carry: Carry
    column: pa.Array
    subscriptions: tuple[int, ...] = ()

    def roots(self) -> I64:
        """Return the root's index of each row of a PACKED column."""
        indices: I64 = np.asarray(self.column, dtype=np.int64) >> ORDINAL_BITS
        return indices

    def deliveries(self) -> Iterator[tuple[Delivery, ...]]:
        """Return for each row the deliveries that it is; none for an unanchored row."""
        if self.carry is Carry.PACKED:
            for number in self.column.to_pylist():
                ordinal = number & (ORDINALS_MAX - 1)
                path = tuple((subscription, ordinal) for subscription in self.subscriptions)
                yield (Delivery(number >> ORDINAL_BITS, path),)
        else:
            for row in self.column.to_pylist():
                yield tuple(
                    Delivery(index, tuple(zip(self.subscriptions, ordinals, strict=True)))
                    for index, *ordinals in row or ()
                )


def paths_column(rows: Sequence[tuple[Delivery, ...]]) -> pa.Array:
    """Build a PATHS column from each row's deliveries."""
    return pa.array(
        [[[d.root, *(ordinal for _, ordinal in d.path)] for d in deliveries] for deliveries in rows],
        PATHS_TYPE,
    )


def fingerprint_of(carry: Carry, column: pa.Array) -> Fingerprint:
    """Take the fingerprint of rows with this anchor column."""
    if carry is Carry.PATHS:
        flat = column.flatten().flatten()
        return fingerprint(len(column), np.asarray(flat, dtype=np.int64))
    return fingerprint(len(column), np.asarray(column, dtype=np.int64))
