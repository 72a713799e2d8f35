"""Which bolt a task runs now: cheap to write, read by the thread that watches that no bolt hangs.

A task writes a `Work` for each call of a bolt. If another thread can read how many rows are done
(`Work.progress`), it writes one for each batch of rows; so watching a bolt that works row by row
costs nothing per row.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

Progress = Callable[[], int]
"""Returns a number that differs for each call of a bolt."""

Roots = Callable[[], Iterable[int]]
"""Returns the roots of the rows that a call works on now, as a task names them."""


class Work(NamedTuple):
    """The bolt that is running, its progress, and the roots that it works on."""

    bolt: str
    progress: Progress
    roots: Roots


def one_call() -> int:
    """Return the progress within a single call, which never changes."""
    return 0


def no_roots() -> Iterable[int]:
    """Return nothing: which roots a call works on is unknown."""
    return ()


class Pulse:
    """What a task does now. `work`: the bolt that it runs; None: it runs none."""

    __slots__ = ("work",)

    def __init__(self) -> None:
        self.work: Work | None = None

    def begin(self, bolt: str, progress: Progress = one_call, roots: Roots = no_roots) -> None:
        """Record that a bolt is called, once, or for rows of which `progress` returns how many are
        done.

        `roots` is called by another thread, and only where the call takes too long.
        """
        self.work = Work(bolt, progress, roots)

    def end(self) -> None:
        """Record that no bolt runs."""
        self.work = None


class OverdueCalls:
    """Finds calls that take too long; each counts from the sample that first sees it."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        # of the last sample: what it saw, and since when samples have seen the same
        self._work: Work | None = None
        self._progress_count = 0
        self._unchanged_since_ms = 0

    def record_sample(self, work: Work | None, now_ms: int) -> str:
        """Record what a task does at a time.

        Return the bolt whose call is overdue, empty: none is.
        """
        if work is None:
            self._work = None
            return ""
        progress_count = work.progress()
        if work is not self._work or progress_count != self._progress_count:
            self._work = work
            self._progress_count = progress_count
            self._unchanged_since_ms = now_ms
        is_overdue = now_ms - self._unchanged_since_ms >= self._limit_ms
        return work.bolt if is_overdue else ""
