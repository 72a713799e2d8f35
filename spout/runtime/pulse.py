"""Which bolt a task runs now: cheap to write, read by the thread that watches that no bolt hangs.

A pass writes one pair for each call of a bolt. If the number of finished rows can be read
beside the pair, it writes one for each batch of rows; so watching a bolt that works row by row
costs nothing per row.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Progress = Callable[[], int]
"""Returns a number that differs for each call of a bolt."""

Roots = Callable[[], Iterable[int]]
"""Returns the roots of the rows that a call works on now, as a task names them."""

Work = tuple[str, Progress, Roots]
"""The bolt that is running, its progress, and the roots that it works on."""


def one_call() -> int:
    """Return the progress within a single call, which never changes."""
    return 0


def no_roots() -> Iterable[int]:
    """Return nothing: which roots a call works on is unknown."""
    return ()


class Pulse:
    """The bolt that a task runs now, or None."""

    __slots__ = ("work",)

    def __init__(self) -> None:
        self.work: Work | None = None

    def begin(self, bolt: str, progress: Progress = one_call, roots: Roots = no_roots) -> None:
        """Write down that a bolt is called, once, or for rows of which `progress` returns how many are done.

        `roots` is called by another thread, and only where the call takes too long.
        """
        self.work = (bolt, progress, roots)

    def end(self) -> None:
        """Write down that no bolt runs."""
        self.work = None


class OverdueCalls:
    """Finds calls that take too long; each counts from the sample that first sees it."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        # what the last sample saw, and since when it is the same
        self._work: Work | None = None
        self._progress_count = 0
        self._since_ms = 0

    def overdue(self, work: Work | None, now_ms: int) -> str:
        """Take a sample; return the bolt whose call has taken too long, or an empty text."""
        if work is None:
            self._work = None
            return ""
        bolt, progress, _ = work
        progress_count = progress()
        if work is not self._work or progress_count != self._progress_count:
            self._work = work
            self._progress_count = progress_count
            self._since_ms = now_ms
        return bolt if now_ms - self._since_ms >= self._limit_ms else ""
