"""What keeps hot paths fast: set operations on arrays, and named tuples made by the thousand.

NumPy's own set functions hash integers since version 2.3: far slower than sorting blocks of this size.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from acker.identity import I64, U64

_DENSE: Final = 16
"""Numbers are summed up in place where these are at most so many times as many."""

Hits = range | I64
"""Indices: a `range` where they are neighbours, else an ascending int64 array."""


def as_array(hits: Hits) -> I64:
    return np.arange(hits.start, hits.stop, dtype=np.int64) if isinstance(hits, range) else hits


def is_ascending(named: I64) -> bool:
    return bool((named[1:] > named[:-1]).all())


def distinct(named: I64) -> I64:
    if is_ascending(named):
        return named
    ordered = np.sort(named)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def among(named: I64, members: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Tell which of an array's members are in `members`, which is ascending and distinct."""
    return _looked_up(named, members)[1]


def rows_among(named: I64, members: npt.NDArray[np.integer]) -> I64:
    """Return the row of each number in `members`, which is ascending and distinct; -1: it is not there."""
    rows, is_there = _looked_up(named, members)
    rows[~is_there] = -1
    return rows


def _looked_up(named: I64, members: npt.NDArray[np.integer]) -> tuple[I64, npt.NDArray[np.bool_]]:
    rows = np.searchsorted(members, named)
    is_there = rows < len(members)
    is_there[is_there] = members[rows[is_there]] == named[is_there]
    return rows, is_there


def xor_sums(named: I64, edges: U64) -> tuple[I64, U64]:
    """Sum up edges by XOR for each name; return the names whose sum is not 0, ascending, and the sums."""
    if is_ascending(named):  # nothing to sum up
        return _not_zero(named, edges)
    low, high = int(named.min()), int(named.max())
    if high - low < _DENSE * len(named):  # no sort: what is summed up is mostly neighbours
        members, places = np.arange(low, high + 1), named - low
    else:
        members, places = np.unique(named, return_inverse=True)
    sums = np.zeros(len(members), np.uint64)
    if len(edges) <= len(members):
        sums[places] = edges
    if np.count_nonzero(sums) < len(edges):  # a name comes twice, or an edge is 0
        sums[:] = 0
        np.bitwise_xor.at(sums, places, edges)
    return _not_zero(members, sums)


def _not_zero(named: I64, sums: U64) -> tuple[I64, U64]:
    if sums.all():
        return named, sums
    left = np.flatnonzero(sums)
    return named[left], sums[left]


T = TypeVar("T", bound=tuple[Any, ...])


def tuple_maker(kind: type[T]) -> Callable[[tuple[object, ...]], T]:
    """Return what makes a named tuple of the tuple of all its fields, in order; nothing is checked.

    A `NamedTuple`'s own constructor is a function in Python, and costs three times what the tuple does.
    """
    return cast("Callable[[tuple[object, ...]], T]", partial(tuple.__new__, kind))


@contextmanager
def uncollected() -> Iterator[None]:
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
