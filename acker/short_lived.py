"""Values that live for a moment, by the thousand: made fast, and without Python's collector of cycles."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

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
