"""Pausing Python's collector of cycles where thousands of objects live for a moment and form none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector.

    Each of thousands of messages, records or copies would count towards a collection that finds nothing; the
    pause makes reading and copying a third faster.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
