"""How the tests of this ring hold work against a bound.

The bound is on CPU seconds of this thread, so a busy machine does not matter, and it is many times what the
work takes: it falls when the work grows with the square of its size, not when a machine is slow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def within(cpu_seconds: float) -> Iterator[None]:
    """Let what stands inside take at most so many CPU seconds."""
    began = time.thread_time()
    yield
    took = time.thread_time() - began
    assert took < cpu_seconds, f"{took:.1f} CPU seconds, allowed are {cpu_seconds}"
