"""What waits in one verdict partition, ordered by due time.

The schedule mirrors `_ack_due`: it changes only after a transaction has committed. It keeps each entry as the
encoded bytes of the log, so that its memory is known.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from acker.identity import Root

ENTRY_BYTES = 400
"""Memory of an entry beside its value: the tuple, two ints, its places in dict and heap."""


class Waiting(NamedTuple):
    """One entry: not before `due_ms`; of two with one due time the one put first comes first."""

    due_ms: int
    order: int
    root: Root
    value: bytes


class Schedule:
    """Roots that wait, each once."""

    def __init__(self) -> None:
        """Begin with nothing waiting."""
        self._entries: dict[Root, Waiting] = {}
        # Entries that were replaced or removed stay in the heap until they come to its top.
        self._heap: list[Waiting] = []
        self._order = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many roots wait."""
        return len(self._entries)

    def __contains__(self, root: Root) -> bool:
        """Tell whether a root waits."""
        return root in self._entries

    @property
    def memory_bytes(self) -> int:
        """Memory of what waits, estimated."""
        return self._bytes

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time; None when nothing waits."""
        self._drop_stale()
        return self._heap[0].due_ms if self._heap else None

    def put(self, root: Root, due_ms: int, value: bytes) -> None:
        """Let a root wait until `due_ms`; a root that waits already is replaced."""
        self.remove(root)
        entry = Waiting(due_ms, self._order, root, value)
        self._order += 1
        self._entries[root] = entry
        self._bytes += len(value) + ENTRY_BYTES
        heapq.heappush(self._heap, entry)

    def remove(self, root: Root) -> None:
        """Forget a root; one that does not wait is ignored."""
        entry = self._entries.pop(root, None)
        if entry is not None:
            self._bytes -= len(entry.value) + ENTRY_BYTES
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._entries):
                self._heap = list(self._entries.values())
                heapq.heapify(self._heap)

    def due(self, now_ms: int, limit: int) -> list[Waiting]:
        """Return at most `limit` entries whose time has come, earliest first; they go on waiting."""
        found: list[Waiting] = []
        self._drop_stale()
        while self._heap and self._heap[0].due_ms <= now_ms and len(found) < limit:
            found.append(heapq.heappop(self._heap))
            self._drop_stale()
        for entry in found:
            heapq.heappush(self._heap, entry)
        return found

    def _drop_stale(self) -> None:
        while self._heap and self._entries.get(self._heap[0].root) is not self._heap[0]:
            heapq.heappop(self._heap)
