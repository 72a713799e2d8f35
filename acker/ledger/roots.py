"""The open roots of one run of positions, in as little memory as their state allows.

The roots of a run have one of three forms, and change it only when they must:

==========  ==================================================  ==========================
form        when                                                memory
==========  ==================================================  ==========================
untouched   no contribution, or only runs that complete roots   none, or 1 byte for a root
dense       some root waits for further contributions           8 + 1 bytes for a root
sparse      at most one root in sixteen is still open           4 + 8 bytes for an open one
==========  ==================================================  ==========================

The value of a root is *what is missing*: the XOR of its root edge and all its contributions. So the root is
complete when the value is 0, and its edge is computed once, not at every contribution. A root without a
contribution misses exactly its edge, which needs no array. A run contributes to each of its roots exactly the
root edge, so it completes such roots without computing any edge.

A root is addressed by its index: the distance of its position from the start of the run. Index arrays are
ascending and distinct if the text does not allow others. Methods return the roots that they settled as
`Hits`: a `range` of indices if the roots are neighbours, else an ascending int64 array of indices.

Source: docs/design/protocol.md, sections 2 (the fold) and 5.3.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from acker.hot_paths import Hits, as_array, distinct
from acker.identity import I64, U64, root_edges, root_edges_of_run

SPARSE_SHARE: Final = 16
"""A run becomes sparse when at most 1/16 of its roots are open.

Dense takes up to 9 bytes for each root of the run, sparse up to 12 for each open one. So sparse is smaller
long before; but each time that it settles roots, it copies its arrays.
"""

OWN_PAGES_BYTES: Final = 65_536
"""Arrays from this size on get their own memory pages. These go back to the system when the run is settled;
the C library would keep them in the process."""

_PAGES_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
"""Map all pages at once if the system can: a fault for each took half the time of a first contribution."""

_NONE: Final = range(0)


class Roots:
    """The open roots of the positions [start, start + size) of one source."""

    __slots__ = ("_at", "_done", "_missing", "open", "size", "source", "start")

    def __init__(self, source: int, start: int, size: int) -> None:
        self.source = source
        self.start = start
        self.size = size
        self.open = size
        self._missing: U64 | None = None
        self._done: npt.NDArray[np.bool_] | None = None
        self._at: npt.NDArray[np.int32] | None = None

    # -- contributions

    def fold(self, at: Hits, values: U64, *, is_distinct: bool = True) -> tuple[int, Hits]:
        """Fold contributions: uint64, one for each root of `at`; without `is_distinct` it may repeat roots.

        Returns how many counted (not those to settled roots), and the roots settled now.
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
        """Fold contributions as `fold` does, but settle no root; return how many counted."""
        if not self.open:
            return 0
        at, _ = self._combine(as_array(at), values, is_distinct)
        return len(at) - self._done_of(at)

    def _fold_run(self, first: int, end: int, values: U64) -> tuple[int, Hits]:
        """Fold one contribution for each of the roots [first, end); the form must not be sparse."""
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
        return 0 if self._done is None else int(np.count_nonzero(self._done[at]))

    def complete_run(self, first: int, end: int) -> tuple[int, Hits]:
        """Contribute to each of the roots [first, end) its root edge, and settle as `fold` does."""
        if self._missing is None:
            hits = self.settle_run(first, end)
            return len(hits), hits
        return self.fold(range(first, end), self._edges(range(first, end)))

    def complete_edges(self, at: I64) -> tuple[int, Hits]:
        """Contribute to each of the roots at `at` its root edge, and settle as `fold` does."""
        if self._missing is None:
            hits = self.settle(at)
            return len(hits), hits
        return self.fold(at, self._edges(at))

    def xor_edges(self, at: I64) -> int:
        """Contribute to each of the roots at `at` its root edge, as `xor` does."""
        return self.xor(at, self._edges(at))

    def is_open(self, at: I64) -> npt.NDArray[np.bool_]:
        """Return for each index of `at`, in any order, whether its root is open: bool, same length."""
        if not self.open:
            return np.zeros(len(at), np.bool_)
        if self._at is not None:
            return self._find(at)[1]
        return np.ones(len(at), np.bool_) if self._done is None else ~self._done[at]

    # -- verdicts that need no value

    def settle(self, at: I64) -> Hits:
        """Settle those of the roots at `at` that are open."""
        if not self.open:  # the arrays are gone, and without them every root would look open
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
        """Settle those of the roots [first, end) that are open."""
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
        hits = self.open_at()
        self.open = 0
        self._missing = self._done = self._at = None
        return hits

    def open_at(self) -> Hits:
        if self._at is not None:
            return self._at.astype(np.int64)
        if self._done is None:
            return range(self.size if self.open else 0)
        return np.flatnonzero(~self._done)

    # -- what State carries by value

    @property
    def contributed(self) -> bool:
        """Whether an open root may have contributions, which a restart would have to read again."""
        return self._missing is not None

    def missing(self) -> U64:
        """Return what each open root misses: uint64, in the order of `open_at`."""
        at = self.open_at()
        if self._missing is None:
            return self._edges(at)
        if self._at is not None or self._done is None:
            return self._missing
        return self._missing[as_array(at)]

    def load(self, at: I64, missing: U64) -> None:
        """Set the open roots to those at `at`, with what each of them misses."""
        self.open = len(at)
        self._at, self._missing, self._done = at.astype(np.int32), missing.copy(), None

    @property
    def bytes(self) -> int:
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
        """Return the places in the sparse arrays of the open roots of `at`, and a mask over `at`."""
        indices = self._at if self._at is not None else np.zeros(0, np.int32)
        places = np.searchsorted(indices, at)
        kept = places < len(indices)
        kept[kept] = indices[places[kept]] == at[kept]
        return places[kept], kept

    def _remove(self, places: I64) -> None:
        if self._at is None or not len(places):
            return
        self._at = np.delete(self._at, places)
        if self._missing is not None:
            self._missing = np.delete(self._missing, places)
        self.open = len(self._at)

    def _settled(self, count: int) -> None:
        """Count `count` roots of the dense form as settled; become sparse, or release the arrays, if due."""
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
