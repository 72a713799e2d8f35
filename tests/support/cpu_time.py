"""A bound on the CPU seconds of a thread, so that a busy machine does not matter.

It is many times what the work takes: it falls when the work grows with the square of its size, not when a
machine is slow.
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
