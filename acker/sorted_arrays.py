"""Ascending, distinct indices or positions, and the few set operations that the ledger needs of them.

NumPy's own set functions hash integers since version 2.3: far slower than sorting blocks of this size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from acker.identity import I64

Hits = range | I64
"""Indices: a `range` where they are neighbours, else an ascending int64 array."""


def as_array(hits: Hits) -> I64:
    """Return indices as an array."""
    return np.arange(hits.start, hits.stop, dtype=np.int64) if isinstance(hits, range) else hits


def is_ascending(named: I64) -> bool:
    """Tell whether an array is ascending and distinct."""
    return bool((named[1:] > named[:-1]).all())


def distinct(named: I64) -> I64:
    """Return the distinct members of an array, ascending."""
    if is_ascending(named):
        return named
    ordered = np.sort(named)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def among(named: I64, members: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Tell which of an array's members are in `members`, which is ascending and distinct."""
    places = np.searchsorted(members, named)
    found = places < len(members)
    found[found] = members[places[found]] == named[found]
    return found
