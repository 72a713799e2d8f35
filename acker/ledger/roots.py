"""The open roots of one run of positions, in as little memory as their state allows.

The roots of a run have one of three forms, and change it only when they must:

==========  ==================================================  ==========================
form        when                                                memory
==========  ==================================================  ==========================
untouched   no contribution, or only runs that complete roots   none, or 1 byte for a root
dense       some root waits for further contributions           8 + 1 bytes for a root
sparse      at most one root in sixteen is still open           4 + 8 bytes for an open one
==========  ==================================================  ==========================

The value of a root is *what is missing*: the XOR of its root edge and all its contributions. So the
root is complete when the value is 0, and its edge is computed once, not at every contribution. A
root without a contribution misses exactly its edge, which needs no array. A run contributes to each
of its roots exactly the root edge, so it completes such roots without computing any edge.

A root is addressed by its index: the distance of its position from the start of the run. Index
arrays are ascending and distinct if the text does not allow others. Methods return the roots that
they settled as `Indices`: a `range` if the roots are neighbours, else an ascending int64 array.
To *fold* a contribution is to XOR it into what a root misses; it *counts* if the root is open.

Source: docs/design/protocol.md, sections 2 (the fold) and 5.3.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from acker.hot_paths import Indices, as_array, distinct
from acker.identity import I64, U64, root_edges, root_edges_of_run

SPARSE_SHARE: Final = 16
"""A run becomes sparse when at most 1/16 of its roots are open.

Dense takes up to 9 bytes for each root of the run, sparse up to 12 for each open one. So sparse is
smaller long before; but each time that it settles roots, it copies its arrays.
"""

OWN_PAGES_BYTES: Final = 65_536
"""Arrays from this size on get their own memory pages. These go back to the system when the run is
settled; the C library would keep them in the process."""

_PAGES_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
"""Map all pages at once if the system can: a fault for each took half the time of a first contribution."""

_NO_INDICES: Final = range(0)


class Roots:
    """The open roots of the positions [start, start + size) of one source.

    `open_count` is how many roots are open. The form is shown by the arrays that exist: none, or
    only `_settled_mask` (untouched); `_missing` with or without `_settled_mask` (dense);
    `_sparse_indices` with or without `_missing` (sparse). In the sparse form `_missing` has a value
    for each of `_sparse_indices`, else for each root of the run.
    """

    __slots__ = ("_missing", "_settled_mask", "_sparse_indices", "open_count", "size", "source", "start")

    def __init__(self, source: int, start: int, size: int) -> None:
        """Begin with all roots open and without a contribution: the untouched form has no array."""
        self.source = source
        self.start = start
        self.size = size
        self.open_count = size  # how many roots are open
        # what each root misses; None: exactly its edge
        self._missing: U64 | None = None
        # whether each root of the run is settled; None: none is, or the form is sparse
        self._settled_mask: npt.NDArray[np.bool_] | None = None
        # the indices of the open roots, ascending; None: the form is not sparse
        self._sparse_indices: npt.NDArray[np.int32] | None = None

    # -- contributions

    def fold(self, indices: Indices, values: U64, *, is_distinct: bool = True) -> tuple[int, Indices]:
        """XOR contributions into the roots at `indices`, one each.

        Settles those that become complete. Without `is_distinct` the indices may be in any
        order, and repeat roots. Returns how many contributions counted (not those to settled
        roots), and the roots settled now.
        """
        if not self.open_count:
            return 0, _NO_INDICES
        if isinstance(indices, range) and self._sparse_indices is None:
            return self._fold_run(indices.start, indices.stop, values)
        # what each root misses: a root is complete when it misses nothing, 0
        indices, missing = self._xor_in(as_array(indices), values, is_distinct)
        folded_count = len(indices) - self._count_settled(indices)
        # a settled root may be among them; `settle` leaves it out
        complete_indices = indices[missing == 0]
        if not len(complete_indices):
            return folded_count, _NO_INDICES
        if not is_distinct:
            complete_indices = distinct(complete_indices)
        return folded_count, self.settle(complete_indices)

    def xor(self, indices: Indices, values: U64, *, is_distinct: bool = True) -> int:
        """Fold contributions as `fold` does, but settle no root; return how many counted."""
        if not self.open_count:
            return 0
        indices, _ = self._xor_in(as_array(indices), values, is_distinct)
        return len(indices) - self._count_settled(indices)

    def _fold_run(self, start: int, end: int, values: U64) -> tuple[int, Indices]:
        """XOR one contribution into each of the roots [start, end); return as `fold` does.

        The form must not be sparse: here each root of the run has a row in the arrays.
        """
        missing = self._missing_array()[start:end]  # what each root misses to be complete
        missing ^= values  # `missing` is a view: this changes the roots
        folded_count = end - start
        if self._settled_mask is not None:
            folded_count -= int(np.count_nonzero(self._settled_mask[start:end]))
        incomplete_count = np.count_nonzero(missing)
        if incomplete_count == len(missing):
            return folded_count, _NO_INDICES
        if not incomplete_count:
            return folded_count, self.settle_run(start, end)
        return folded_count, self.settle(np.flatnonzero(missing == 0) + start)

    def _xor_in(self, indices: I64, values: U64, is_distinct: bool) -> tuple[I64, U64]:
        """XOR values into the roots at `indices`.

        Returns the indices, and what each root misses now. In the sparse form there are
        only rows of open roots, so settled roots are left out.
        """
        all_missing = self._missing_array()
        rows = indices  # the dense form has a row for each root
        if self._sparse_indices is not None:
            rows, is_open = self._find_sparse(indices)
            indices, values = indices[is_open], values[is_open]
        if is_distinct:
            missing = all_missing[rows]
            missing ^= values
            all_missing[rows] = missing
        else:
            # of an index that comes twice, the assignment above would keep one value only
            np.bitwise_xor.at(all_missing, rows, values)
            missing = all_missing[rows]
        return indices, missing

    def _count_settled(self, indices: I64) -> int:
        """Return how many of the roots at `indices` are settled.

        In the sparse form these are left out.
        """
        if self._settled_mask is None:
            return 0
        return int(np.count_nonzero(self._settled_mask[indices]))

    def complete_run(self, start: int, end: int) -> tuple[int, Indices]:
        """Contribute to each of the roots [start, end) its root edge, and settle as `fold` does."""
        if self._missing is None:
            settled_indices = self.settle_run(start, end)
            return len(settled_indices), settled_indices
        return self.fold(range(start, end), self._edges(range(start, end)))

    def complete_edges(self, indices: I64) -> tuple[int, Indices]:
        """Contribute to each of the roots at `indices` its root edge, and settle as `fold` does."""
        if self._missing is None:
            settled_indices = self.settle(indices)
            return len(settled_indices), settled_indices
        return self.fold(indices, self._edges(indices))

    def xor_edges(self, indices: I64) -> int:
        """Contribute to each of the roots at `indices` its root edge, as `xor` does."""
        return self.xor(indices, self._edges(indices))

    def is_open(self, indices: I64) -> npt.NDArray[np.bool_]:
        """Return for each index of `indices`, in any order, whether its root is open: bool, same length."""
        if not self.open_count:  # the arrays are gone, and without them every root would look open
            return np.zeros(len(indices), np.bool_)
        if self._sparse_indices is not None:
            _, is_open = self._find_sparse(indices)
            return is_open
        if self._settled_mask is None:
            return np.ones(len(indices), np.bool_)
        return ~self._settled_mask[indices]

    # -- verdicts that need no value

    def settle(self, indices: I64) -> Indices:
        """Settle those of the roots at `indices` that are open; return their indices.

        `indices` ascend and are distinct.
        """
        if not self.open_count:  # the arrays are gone, and without them every root would look open
            return _NO_INDICES
        if self._sparse_indices is not None:
            rows, is_open = self._find_sparse(indices)
            self._remove_sparse(rows)
            return indices[is_open]
        # no root is settled, and there are as many indices as roots: all
        if self._settled_mask is None and len(indices) == self.size:
            return self.settle_all()
        settled_indices = indices
        if self._settled_mask is None:
            self._settled_mask = np.zeros(self.size, np.bool_)
        else:
            settled_indices = indices[~self._settled_mask[indices]]
        self._settled_mask[settled_indices] = True
        self._count_as_settled(len(settled_indices))
        return settled_indices

    def settle_run(self, start: int, end: int) -> Indices:
        """Settle those of the roots [start, end) that are open; return them."""
        if not self.open_count:  # the arrays are gone, and without them every root would look open
            return _NO_INDICES
        has_settled = self._settled_mask is not None and self._settled_mask[start:end].any()
        if self._sparse_indices is not None or has_settled:
            return self.settle(np.arange(start, end, dtype=np.int64))
        # all of [start, end) are open: if these are as many as are open at all, no other one is
        # open
        if end - start == self.open_count:
            return self.settle_all()
        if self._settled_mask is None:
            self._settled_mask = np.zeros(self.size, np.bool_)
        self._settled_mask[start:end] = True
        self._count_as_settled(end - start)
        return range(start, end)

    def settle_all(self) -> Indices:
        """Settle all open roots, and release the arrays."""
        settled_indices = self.open_at()
        self.open_count = 0
        self._missing = self._settled_mask = self._sparse_indices = None
        return settled_indices

    def open_at(self) -> Indices:
        """Return the indices of the open roots."""
        if self._sparse_indices is not None:
            return self._sparse_indices.astype(np.int64)
        if self._settled_mask is None:
            return range(self.size if self.open_count else 0)
        return np.flatnonzero(~self._settled_mask)

    # -- what State carries by value

    @property
    def has_contributions(self) -> bool:
        """Whether an open root may have contributions, which a restart would have to read again."""
        return self._missing is not None

    def missing(self) -> U64:
        """Return, for each open root, the XOR that is still missing to complete it.

        It is uint64, in the order of `open_at`.
        """
        indices = self.open_at()
        if self._missing is None:  # without a contribution a root misses its edge
            return self._edges(indices)
        # sparse, or no root was settled: the array has a value for each open root, and for no other
        if self._sparse_indices is not None or self._settled_mask is None:
            return self._missing
        return self._missing[as_array(indices)]

    def load(self, indices: I64, missing: U64) -> None:
        """Set the open roots to those at `indices`, with what each of them misses."""
        self.open_count = len(indices)
        self._sparse_indices = indices.astype(np.int32)
        self._missing = missing.copy()
        self._settled_mask = None

    @property
    def bytes(self) -> int:
        """What the arrays take."""
        arrays = (self._sparse_indices, self._missing, self._settled_mask)
        return sum(array.nbytes for array in arrays if array is not None)

    # -- forms

    def _edges(self, indices: Indices) -> U64:
        """Return the root edge of each index."""
        if isinstance(indices, range):
            return root_edges_of_run(self.source, self.start + indices.start, self.start + indices.stop)
        return root_edges(self.source, indices + self.start)

    def _missing_array(self) -> U64:
        """Return the array of what each root misses; if there is none, create it of the root edges.

        It has one value for each root, in the sparse form for each open one. A root without a
        contribution misses exactly its edge.
        """
        if self._missing is None:
            indices: Indices = range(self.size)
            if self._sparse_indices is not None:
                indices = self._sparse_indices.astype(np.int64)
            # a large array goes back to the system when the run is settled
            self._missing = _own_pages(self._edges(indices))
        return self._missing

    def _find_sparse(self, indices: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Return the rows of the sparse arrays with the open roots of `indices`, and which of
        these are open.

        The second array is as long as `indices`, the first as there are open ones among them. Of
        the open roots 3, 8 and 9 the indices 3, 5 and 9 have the rows 0 and 2: True, False, True.
        """
        open_indices = self._sparse_indices if self._sparse_indices is not None else np.zeros(0, np.int32)
        rows = np.searchsorted(open_indices, indices)
        is_open = rows < len(open_indices)
        is_open[is_open] = open_indices[rows[is_open]] == indices[is_open]
        return rows[is_open], is_open

    def _remove_sparse(self, rows: I64) -> None:
        """Remove the rows of roots that are settled now from the arrays of the sparse form.

        `open_count` becomes how many roots are left.
        """
        if self._sparse_indices is None or not len(rows):
            return
        self._sparse_indices = np.delete(self._sparse_indices, rows)
        if self._missing is not None:
            self._missing = np.delete(self._missing, rows)
        self.open_count = len(self._sparse_indices)

    def _count_as_settled(self, count: int) -> None:
        """Count `count` more roots of the dense form as settled, and change the form if few are
        open now.

        Without an open root the arrays are released; with `1 / SPARSE_SHARE` of all at most the
        form becomes sparse.
        """
        self.open_count -= count
        if self.open_count == 0:
            self._missing = self._settled_mask = None
        elif self.open_count * SPARSE_SHARE <= self.size:
            open_indices = as_array(self.open_at())
            if self._missing is not None:
                self._missing = self._missing[open_indices]
            self._sparse_indices, self._settled_mask = open_indices.astype(np.int32), None


def _own_pages(values: U64) -> U64:
    """Return a large array as a copy in memory pages of its own, a small one as it is."""
    if values.nbytes < OWN_PAGES_BYTES:
        return values
    pages: U64 = np.frombuffer(mmap.mmap(-1, values.nbytes, flags=_PAGES_FLAGS), np.uint64)
    pages[:] = values
    return pages
