"""What waits in one verdict partition: when each is due, and as much of the rest as there is room for.

It mirrors `_ack_due`: it changes only after a transaction has committed. What does not fit into the memory
that is kept for it is read from `_ack_due` again when its time has come.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from replay.due import Due
from replay.schedule import Entry, Schedule

KEPT_BYTES: Final = 600
"""Memory of one that is kept, beside its history's texts: the values, their tuples, its place in the dict."""


class Waiting:
    """Lost roots that wait, each named by its offset in `_ack_due`."""

    def __init__(self, schedule: Schedule, kept_bytes_max: int) -> None:
        """Begin with what was restored.

        Args:
            schedule: when each is due.
            kept_bytes_max: memory for what is kept beside that.
        """
        self._schedule = schedule
        self._kept_bytes_max = kept_bytes_max
        self._kept: dict[int, tuple[Due, int]] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        """Return how many roots wait."""
        return len(self._schedule)

    @property
    def memory_bytes(self) -> int:
        """Memory of what waits, of what is kept estimated."""
        return self._schedule.memory_bytes + self._kept_bytes

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time; None when nothing waits."""
        return self._schedule.next_due_ms

    def put(self, due: Due, offset: int, value_bytes: int) -> None:
        """Let a root wait.

        Args:
            due: what is known of it.
            offset: where `_ack_due` holds it.
            value_bytes: its size there.
        """
        self._schedule.add(due.due_ms, offset)
        size = value_bytes + KEPT_BYTES
        if self._kept_bytes + size <= self._kept_bytes_max:
            self._kept[offset] = due, size
            self._kept_bytes += size

    def take(self, now_ms: int, limit: int) -> list[Entry]:
        """Take at most `limit` whose time has come, earliest first; `done` says what became of them."""
        return self._schedule.take(now_ms, limit)

    def kept(self, entries: Iterable[Entry]) -> dict[int, Due | None]:
        """Return, by offset, what is known of some without reading `_ack_due`; None of those to be read."""
        find = self._kept.get
        return {entry.offset: (found[0] if (found := find(entry.offset)) else None) for entry in entries}

    def done(self, entries: Iterable[Entry], left: Iterable[Entry]) -> None:
        """Forget those that were settled, and let the rest of what was taken go on waiting."""
        for entry in entries:
            found = self._kept.pop(entry.offset, None)
            self._kept_bytes -= found[1] if found else 0
        self._schedule.put_back(left)
