"""Which bolt a task runs now: cheap to write, read by the thread that watches that no bolt hangs.

A pass writes one pair for each call of a bolt. If the number of finished rows can be read beside the pair, it
writes one for each batch of rows; so watching a bolt that works row by row costs nothing per row.

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
        """Note that a bolt is called, once, or for rows of which `progress` returns how many are done.

        `roots` is called by another thread, and only where the call takes too long.
        """
        self.work = (bolt, progress, roots)

    def end(self) -> None:
        self.work = None


class OverdueCalls:
    """Finds calls that take too long; each counts from the sample that first sees it."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._seen: tuple[Work | None, int] = (None, 0)
        self._since_ms = 0

    def overdue(self, work: Work | None, now_ms: int) -> str:
        """Return the bolt whose call has taken too long, or an empty text."""
        seen = (work, work[1]() if work else 0)
        if seen[0] is not self._seen[0] or seen[1] != self._seen[1]:
            self._seen, self._since_ms = seen, now_ms
        return work[0] if work and now_ms - self._since_ms >= self._limit_ms else ""
