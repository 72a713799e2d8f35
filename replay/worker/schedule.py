"""When the roots of one verdict partition are due: a packed queue of (due time, offset in `_ack_due`).

An entry here is 16 bytes, whatever the size of its record; the rest stays in `_ack_due`, and is read when it
is due. Entries are in sorted chunks, in ascending order. New entries are first added unsorted; when they are
more than a 64th of all, they are sorted into the chunks. So adding and taking move only the entries of the
chunks concerned, and ten million entries need only their own bytes.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from acker.identity import I64

ENTRY_BYTES: Final = 16
CHUNK: Final = 8_192
"""Entries in a chunk; a chunk that has grown to twice as many is cut."""

RECENT_MIN: Final = 4_096
"""So many entries may be unsorted, however few there are in all."""

_RECENT_SHARE: Final = 64


class Entry(NamedTuple):
    """A root that waits until `due_ms` (wall time), and its offset in `_ack_due`."""

    due_ms: int
    offset: int


class Schedule:
    """Entries, of which the earliest ones can be taken."""

    def __init__(self, chunk: int = CHUNK, recent_min: int = RECENT_MIN) -> None:
        """Start empty."""
        self._chunk = chunk
        self._recent_min = recent_min
        self._chunks: deque[I64] = deque()  # each ascending, of shape (n, 2) and never empty
        self._sorted = 0
        self._recent = array("q")  # due times and offsets in turn
        self._recent_min_ms: int | None = None

    def __len__(self) -> int:
        """Return how many entries wait."""
        return self._sorted + len(self._recent) // 2

    @property
    def memory_bytes(self) -> int:
        """Bytes of all entries."""
        return ENTRY_BYTES * len(self)

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time; None when nothing waits."""
        first = int(self._chunks[0][0, 0]) if self._chunks else None
        known = [due_ms for due_ms in (first, self._recent_min_ms) if due_ms is not None]
        return min(known, default=None)

    def add(self, due_ms: int, offset: int) -> None:
        """Let an entry wait."""
        self._recent.append(due_ms)
        self._recent.append(offset)
        if self._recent_min_ms is None or due_ms < self._recent_min_ms:
            self._recent_min_ms = due_ms
        if len(self._recent) // 2 > max(self._recent_min, self._sorted // _RECENT_SHARE):
            entries = self._take_recent()
            self._merge(entries[_order(entries)])

    def add_all(self, entries: I64) -> None:
        """Add many entries: rows of due time and offset in any order, ``(n, 2)`` int64."""
        if len(entries):
            self._merge(entries[_order(entries)])

    def take(self, now_ms: int, limit: int) -> list[Entry]:
        """Take at most `limit` due entries, in the order of due time, then offset."""
        found = [np.empty((0, 2), np.int64)]
        if self._recent_min_ms is not None and self._recent_min_ms <= now_ms:
            recent = self._take_recent()
            is_due = recent[:, 0] <= now_ms
            self._keep_recent(recent[~is_due])
            found.append(recent[is_due])
        wanted = limit
        while self._chunks and wanted > 0 and self._chunks[0][0, 0] <= now_ms:
            chunk = self._chunks.popleft()
            end = min(wanted, int(np.searchsorted(chunk[:, 0], now_ms, "right")))
            found.append(chunk[:end])
            if end < len(chunk):
                self._chunks.appendleft(chunk[end:])
            self._sorted -= end
            wanted -= end
        entries = np.concatenate(found)
        entries = entries[_order(entries)]
        self._merge(entries[limit:])
        return [Entry(due_ms, offset) for due_ms, offset in entries[:limit].tolist()]

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Add entries again that were taken."""
        for entry in entries:
            self.add(*entry)

    def _take_recent(self) -> I64:
        recent = np.frombuffer(self._recent, np.int64).reshape(-1, 2).copy()
        self._recent, self._recent_min_ms = array("q"), None
        return recent

    def _keep_recent(self, entries: I64) -> None:
        if len(entries):
            self._recent = array("q", entries.tobytes())
            self._recent_min_ms = int(entries[:, 0].min())

    def _merge(self, entries: I64) -> None:
        """Merge ascending entries into their chunks."""
        if not len(entries):
            return
        self._sorted += len(entries)
        if not self._chunks:
            self._chunks = deque(self._cut(entries))
            return
        firsts = np.array([chunk[0, 0] for chunk in self._chunks], np.int64)
        places = np.searchsorted(firsts, entries[:, 0], "right") - 1
        cuts = np.searchsorted(places, np.arange(len(self._chunks)), "right")
        merged: deque[I64] = deque()
        begin = 0
        for end in cuts.tolist():
            chunk = self._chunks.popleft()  # so that it is freed before the next one is made
            if begin == end:
                merged.append(chunk)
                continue
            both = np.concatenate([chunk, entries[begin:end]])
            both = both[_order(both)]
            merged += [both] if len(both) < 2 * self._chunk else self._cut(both)
            begin = end
        self._chunks = merged

    def _cut(self, entries: I64) -> list[I64]:
        """Cut entries into chunks, as copies, so that a chunk does not keep the whole array in memory."""
        return [entries[begin : begin + self._chunk].copy() for begin in range(0, len(entries), self._chunk)]


def _order(entries: I64) -> I64:
    """Return the order of entries by due time, then offset."""
    return np.lexsort((entries[:, 1], entries[:, 0]))
