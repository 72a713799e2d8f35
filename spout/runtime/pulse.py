"""What a pass is at, for whoever watches that no bolt hangs: written cheaply, looked at from another thread.

A pass writes one pair for each call of a bolt, or for each batch of rows where the number of rows that are
done can be read beside it; so watching costs a bolt that works row by row nothing for a row.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[], int]
"""Returns a number that is another one for each call of a bolt."""

Work = tuple[str, Progress]
"""The bolt that is called, and its progress."""


def one_call() -> int:
    """Tell the progress within a single call."""
    return 0


class Pulse:
    """What a task is at: a bolt at work, or None."""

    __slots__ = ("work",)

    def __init__(self) -> None:
        """Begin with nothing at work."""
        self.work: Work | None = None

    def begin(self, bolt: str, progress: Progress = one_call) -> None:
        """Say that a bolt is called, once, or for rows of which `progress` tells how many are done."""
        self.work = (bolt, progress)

    def end(self) -> None:
        """Say that no bolt is called."""
        self.work = None


class Lookout:
    """Finds calls that last too long, by looking now and then.

    A call counts from when it was first seen, so that it is never found too early.
    """

    def __init__(self, limit_ms: int) -> None:
        """Let a call last `limit_ms`."""
        self._limit_ms = limit_ms
        self._seen: tuple[Work | None, int] = (None, 0)
        self._since_ms = 0

    def overdue(self, work: Work | None, now_ms: int) -> str:
        """Return the bolt whose call has lasted too long, or nothing."""
        seen = (work, work[1]() if work else 0)
        if seen[0] is not self._seen[0] or seen[1] != self._seen[1]:
            self._seen, self._since_ms = seen, now_ms
        return work[0] if work and now_ms - self._since_ms >= self._limit_ms else ""
