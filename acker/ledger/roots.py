"""The open roots of one run of positions: one value and one state byte each, and less when that will do.

Three forms, from cheap to dear, entered only when needed:

==========  ============================================  =======================
form        when                                          memory for an open root
==========  ============================================  =======================
untouched   no contribution yet, or whole runs of them    nothing, or a state byte
dense       some root waits for further contributions     8 + 1 bytes
sparse      at most one root in sixteen is still open     4 + 8 bytes
==========  ============================================  =======================

The value kept is *what is missing*: the XOR of all contributions and the root edge. So a root is complete
when it is 0, and a root edge is computed once in a root's life, not at every contribution. Of a root
that nothing was contributed to yet only the edge is missing, which needs no array at all; a run (each
contribution exactly the root edge) over such roots completes them without a single edge.

Roots are addressed by index, the distance of their position from the start of the run. An index array is
ascending and distinct unless said otherwise. What was settled is returned as `Hits`: a `range` where
the roots are neighbours, else an ascending int64 array; both of indices.

Source: docs/design/protocol.md, sections 2 (the fold) and 5.3.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from acker.identity import I64, U64, root_edges, root_edges_of_run
from acker.sorted_arrays import Hits, as_array, distinct

SPARSE_SHARE: Final = 16
"""Dense costs 9 bytes for every root of the run, sparse 12 for an open one: from a tenth on it pays; a
sixteenth keeps a run from changing form with only a few roots in it."""

OWN_PAGES_BYTES: Final = 65_536
"""Arrays from this size on get pages of their own, which go back to the system when the run is settled; the
C library would keep them for itself."""

_PAGES_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
"""All pages at once, where the system can: a fault for each of them took half of a first contribution."""

_NONE: Final = range(0)


class Roots:
    """The open roots of the positions [start, start + size) of one source."""

    __slots__ = ("_at", "_done", "_missing", "open", "size", "source", "start")

    def __init__(self, source: int, start: int, size: int) -> None:
        """Open `size` roots from position `start` on; nothing was contributed to them."""
        self.source = source
        self.start = start
        self.size = size
        self.open = size
        self._missing: U64 | None = None
        self._done: npt.NDArray[np.bool_] | None = None
        self._at: npt.NDArray[np.int32] | None = None

    # -- contributions

    def fold(self, at: Hits, values: U64, *, is_distinct: bool = True) -> tuple[int, Hits]:
        """Fold contributions and settle the roots that miss nothing any more.

        Args:
            at: the roots; any, also twice, if not `is_distinct`.
            values: one contribution for each.
            is_distinct: whether `at` is ascending and distinct.

        Returns:
            How many contributions counted, the others were of settled roots; and what was settled.
        """
        if not self.open:
            return 0, _NONE
        if isinstance(at, range) and self._at is None:
            return self._fold_run(at.start, at.stop, values)
        at, left = self._combine(as_array(at), values, is_distinct)
        counted = len(at) - self._done_of(at)
        hits = at[left == 0]
        if not len(hits):
            return counted, _NONE
        return counted, self.settle(hits if is_distinct else distinct(hits))

    def xor(self, at: Hits, values: U64, *, is_distinct: bool = True) -> int:
        """Fold contributions as `fold` does, and settle none.

        Returns:
            How many counted.
        """
        if not self.open:
            return 0
        at, _ = self._combine(as_array(at), values, is_distinct)
        return len(at) - self._done_of(at)

    def _fold_run(self, first: int, end: int, values: U64) -> tuple[int, Hits]:
        """Fold a contribution to each of neighbouring roots, of a form that is not sparse."""
        part = self._values()[first:end]
        part ^= values
        counted = end - first
        if self._done is not None:
            counted -= int(np.count_nonzero(self._done[first:end]))
        incomplete = np.count_nonzero(part)
        if incomplete == len(part):
            return counted, _NONE
        if not incomplete:
            return counted, self.settle_run(first, end)
        return counted, self.settle(np.flatnonzero(part == 0) + first)

    def _combine(self, at: I64, values: U64, is_distinct: bool) -> tuple[I64, U64]:
        """Fold contributions into the arrays.

        Returns:
            Those of `at` that the arrays hold, and what each of them misses now.
        """
        missing = self._values()
        where = at
        if self._at is not None:
            where, kept = self._find(at)
            at, values = at[kept], values[kept]
        if is_distinct:
            left = missing[where]
            left ^= values
            missing[where] = left
        else:
            np.bitwise_xor.at(missing, where, values)
            left = missing[where]
        return at, left

    def _done_of(self, at: I64) -> int:
        """Count the settled ones of the roots at `at`."""
        return 0 if self._done is None else int(np.count_nonzero(self._done[at]))

    def complete_run(self, first: int, end: int) -> tuple[int, Hits]:
        """Contribute its root edge to each of the roots [first, end) and settle those that miss nothing.

        Returns:
            How many contributions counted, and the roots settled.
        """
        if self._missing is None:
            hits = self.settle_run(first, end)
            return len(hits), hits
        return self.fold(range(first, end), self._edges(range(first, end)))

    def complete_edges(self, at: I64) -> tuple[int, Hits]:
        """Contribute its root edge to each of the roots at `at` and settle those that miss nothing.

        Returns:
            How many contributions counted, and the roots settled.
        """
        if self._missing is None:
            hits = self.settle(at)
            return len(hits), hits
        return self.fold(at, self._edges(at))

    def xor_edges(self, at: I64) -> int:
        """Contribute its root edge to each of the roots at `at`, and settle none.

        Returns:
            How many contributions counted.
        """
        return self.xor(at, self._edges(at))

    def is_open(self, at: I64) -> npt.NDArray[np.bool_]:
        """Tell which of the roots at `at`, in any order, are open."""
        if not self.open:
            return np.zeros(len(at), np.bool_)
        if self._at is not None:
            return self._find(at)[1]
        return np.ones(len(at), np.bool_) if self._done is None else ~self._done[at]

    # -- verdicts that need no value

    def settle(self, at: I64) -> Hits:
        """Settle the open ones of the roots at `at`."""
        if not self.open:  # the arrays are gone, so nothing else tells that they were settled
            return _NONE
        if self._at is not None:
            found, kept = self._find(at)
            self._remove(found)
            return at[kept]
        if self._done is None and len(at) == self.size:
            return self.settle_all()
        hits = at
        if self._done is None:
            self._done = np.zeros(self.size, np.bool_)
        else:
            hits = at[~self._done[at]]
        self._done[hits] = True
        self._settled(len(hits))
        return hits

    def settle_run(self, first: int, end: int) -> Hits:
        """Settle the open ones of the roots [first, end)."""
        if not self.open:
            return _NONE
        if self._at is not None or (self._done is not None and self._done[first:end].any()):
            return self.settle(np.arange(first, end, dtype=np.int64))
        if end - first == self.open:
            return self.settle_all()
        if self._done is None:
            self._done = np.zeros(self.size, np.bool_)
        self._done[first:end] = True
        self._settled(end - first)
        return range(first, end)

    def settle_all(self) -> Hits:
        """Settle every open root; the arrays go with them."""
        hits = self.open_at()
        self.open = 0
        self._missing = self._done = self._at = None
        return hits

    def open_at(self) -> Hits:
        """Return the open roots."""
        if self._at is not None:
            return self._at.astype(np.int64)
        if self._done is None:
            return range(self.size if self.open else 0)
        return np.flatnonzero(~self._done)

    # -- carrying by value

    @property
    def contributed(self) -> bool:
        """Tell whether an open root may hold contributions, which a restart would have to read again."""
        return self._missing is not None

    def missing(self) -> U64:
        """Return what each of the open roots misses, one for one with `open_at`."""
        at = self.open_at()
        if self._missing is None:
            return self._edges(at)
        if self._at is not None or self._done is None:
            return self._missing
        return self._missing[as_array(at)]

    def load(self, at: I64, missing: U64) -> None:
        """Replace all by the roots at `at` and what they miss."""
        self.open = len(at)
        self._at, self._missing, self._done = at.astype(np.int32), missing.copy(), None

    @property
    def bytes(self) -> int:
        """Return the size of the arrays held."""
        arrays = (self._at, self._missing, self._done)
        return sum(array.nbytes for array in arrays if array is not None)

    # -- forms

    def _edges(self, at: Hits) -> U64:
        if isinstance(at, range):
            return root_edges_of_run(self.source, self.start + at.start, self.start + at.stop)
        return root_edges(self.source, at + self.start)

    def _values(self) -> U64:
        if self._missing is None:
            at = range(self.size) if self._at is None else self._at.astype(np.int64)
            self._missing = _own_pages(self._edges(at))
        return self._missing

    def _find(self, at: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Return where the open ones of `at` stand in the sparse arrays, and which of `at` those are."""
        known = self._at if self._at is not None else np.zeros(0, np.int32)
        places = np.searchsorted(known, at)
        kept = places < len(known)
        kept[kept] = known[places[kept]] == at[kept]
        return places[kept], kept

    def _remove(self, places: I64) -> None:
        if self._at is None or not len(places):
            return
        self._at = np.delete(self._at, places)
        if self._missing is not None:
            self._missing = np.delete(self._missing, places)
        self.open = len(self._at)

    def _settled(self, count: int) -> None:
        """Take note of `count` settled roots of the dense form and shrink where that pays."""
        self.open -= count
        if self.open == 0:
            self._missing = self._done = None
        elif self.open * SPARSE_SHARE <= self.size:
            at = as_array(self.open_at())
            if self._missing is not None:
                self._missing = self._missing[at]
            self._at, self._done = at.astype(np.int32), None


def _own_pages(values: U64) -> U64:
    if values.nbytes < OWN_PAGES_BYTES:
        return values
    pages: U64 = np.frombuffer(mmap.mmap(-1, values.nbytes, flags=_PAGES_FLAGS), np.uint64)
    pages[:] = values
    return pages
