"""Fast forms for hot paths: set operations on arrays, and named tuples made by the thousand.

NumPy's own set functions hash integers since version 2.3: far slower than
sorting blocks of this size.
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
"""Numbers are dense if their range, from the least to the greatest, is at most so many times as long."""

Indices = range | I64
"""Indices: a `range` if they are neighbours, else an ascending int64 array."""


def as_array(indices: Indices) -> I64:
    """Return indices as an array."""
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, dtype=np.int64)
    return indices


def is_ascending(numbers: I64) -> bool:
    """Return whether each number is greater than the one before it."""
    return bool((numbers[1:] > numbers[:-1]).all())


def distinct(numbers: I64) -> I64:
    """Return numbers in ascending order, each once; those that are so already are not copied."""
    if is_ascending(numbers):
        return numbers
    ordered = np.sort(numbers)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def among(numbers: I64, members: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return for each number whether it is in `members`, which is ascending and distinct."""
    return _find_rows(numbers, members)[1]


def rows_among(numbers: I64, members: npt.NDArray[np.integer]) -> I64:
    """Return the row of each number in `members`, which is ascending and distinct; -1: it is not there."""
    rows, is_member = _find_rows(numbers, members)
    rows[~is_member] = -1
    return rows


def _find_rows(numbers: I64, members: npt.NDArray[np.integer]) -> tuple[I64, npt.NDArray[np.bool_]]:
    """Return the row at which each number is in `members`, or would be, and whether it is there.

    Of the members 3, 8 and 9 the numbers 8 and 5 have the row 1: True and False.
    """
    rows = np.searchsorted(members, numbers)
    is_member = rows < len(members)
    is_member[is_member] = members[rows[is_member]] == numbers[is_member]
    return rows, is_member


def xor_sums(numbers: I64, edges: U64) -> tuple[I64, U64]:
    """XOR the edges of each number; entry i of `numbers` has the edge ``edges[i]``.

    Returns the numbers whose sum by XOR is not 0, ascending, and these sums.
    """
    if is_ascending(numbers):  # each comes once: nothing to sum up
        return _without_zeros(numbers, edges)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < _DENSE * len(numbers):
        # no sort: mostly the numbers are neighbours, so there is a sum for
        # each of the range
        members, rows = np.arange(low, high + 1), numbers - low
    else:
        members, rows = np.unique(numbers, return_inverse=True)
    sums = np.zeros(len(members), np.uint64)
    if len(edges) <= len(members):
        sums[rows] = edges  # right if no number comes twice, and faster by far
    if np.count_nonzero(sums) < len(edges):  # a number comes twice, or an edge is 0
        sums[:] = 0
        np.bitwise_xor.at(sums, rows, edges)
    return _without_zeros(members, sums)


def _without_zeros(numbers: I64, sums: U64) -> tuple[I64, U64]:
    """Return the numbers whose sum is not 0, and these sums."""
    if sums.all():
        return numbers, sums
    rows = np.flatnonzero(sums)
    return numbers[rows], sums[rows]


T = TypeVar("T", bound=tuple[Any, ...])


def tuple_maker(kind: type[T]) -> Callable[[tuple[object, ...]], T]:
    """Return a function that makes a named tuple of the tuple of all its fields, in order, unchecked.

    A `NamedTuple`'s own constructor is a function in Python, and costs three
    times what the tuple does.
    """
    return cast("Callable[[tuple[object, ...]], T]", partial(tuple.__new__, kind))


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector: many new objects that live on would have it run for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
