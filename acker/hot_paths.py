"""What keeps hot paths fast: set operations on sorted arrays, and named tuples made by the thousand.

NumPy's own set functions hash integers since version 2.3: far slower than sorting blocks of this size.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from acker.identity import I64

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
    places = np.searchsorted(members, named)
    found = places < len(members)
    found[found] = members[places[found]] == named[found]
    return found


T = TypeVar("T", bound=tuple[Any, ...])


def tuple_maker(kind: type[T]) -> Callable[[tuple[object, ...]], T]:
    """Return what makes a named tuple of the tuple of all its fields, in order; nothing is checked.

    A `NamedTuple`'s own constructor is a function in Python, and costs three times what the tuple does.
    """
    return cast("Callable[[tuple[object, ...]], T]", partial(tuple.__new__, kind))


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
