"""The roots that wait in one verdict partition: all due times, and as many whole entries as memory allows.

It mirrors `_ack_due`, so it changes only after a commit. `DueTable` reduces a
log that is read to what waits: the last record of each key counts, and a
tombstone removes the key. Its rows are reduced whenever their number has
doubled, so memory depends on how many roots wait, not on the length of the
log. `Schedule` has 16 bytes for each root: sorted chunks of due times and
offsets. New entries are first added unsorted; when they are more than a 64th
of all, they are sorted into the chunks. So adding and taking move only the
entries of the chunks concerned.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from acker.identity import I64, REPLAY_ID_OFFSET, Root, input_id_of
from replay.records.due import Due

ROWS_MIN: Final = 65_536
"""With fewer rows it is not worth reducing them."""

_TOMBSTONE: Final = -1
"""In place of a due time: the root waits no more."""

_COLUMNS: Final = 4


class DueTable:
    """Rows of source, position, offset and due time, in the order of the log."""

    def __init__(self, rows_min: int = ROWS_MIN) -> None:
        self._rows = array("q")  # four numbers a row, one row after the other
        self._rows_min = rows_min
        self._reduce_at = rows_min  # so many rows are reduced

    def put(self, root: Root, offset: int, due_ms: int) -> None:
        """Add an entry that lets a root wait; it replaces an earlier one of the root."""
        self._append(root, offset, max(0, due_ms))

    def remove(self, root: Root, offset: int) -> None:
        """Add a tombstone: the root waits no more."""
        self._append(root, offset, _TOMBSTONE)

    def by_input(self) -> Mapping[int, I64]:
        """Return what waits by an input's id: rows of due time and offset, ``(n, 2)`` int64, in any order."""
        rows = self._reduced()
        input_ids = (rows[:, 0] >> 16) % REPLAY_ID_OFFSET  # as `input_id_of`
        due_and_offset = [3, 2]  # numbers of columns
        rows_by_input: dict[int, I64] = {}
        for input_id in np.unique(input_ids).tolist():
            rows_by_input[input_id] = rows[input_ids == input_id][:, due_and_offset]
        return rows_by_input

    def among(self, roots: Collection[Root]) -> set[Root]:
        """Return those of some roots that wait."""
        rows = self._reduced()[:, :2]
        # a position alone may be that of another source, too: `intersection`
        # takes those out
        candidates = rows[np.isin(rows[:, 1], [root.position for root in roots])]
        return {Root(*candidate) for candidate in candidates.tolist()}.intersection(roots)

    def _append(self, root: Root, offset: int, due_ms: int) -> None:
        """Add a row; reduce the rows once their number has doubled."""
        self._rows.extend((root.source, root.position, offset, due_ms))
        if len(self._rows) >= self._reduce_at * _COLUMNS:
            rows = self._reduced()
            self._rows = array("q", rows.tobytes())
            self._reduce_at = max(self._rows_min, 2 * len(rows))

    def _reduced(self) -> I64:
        """Return the rows of roots that wait, ``(n, 4)`` int64, ascending by source, then position."""
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMNS)
        # by source, position and offset: of neighbours with the same root the
        # last one counts
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        live: I64 = rows[is_last & (rows[:, 3] != _TOMBSTONE)]
        return live


ENTRY_BYTES: Final = 16
CHUNK: Final = 8_192
"""Entries in a chunk; a chunk that has grown to twice as many is cut."""

RECENT_MIN: Final = 4_096
"""So many entries may be unsorted, however few there are in all."""

_SORTED_PER_RECENT: Final = 64
"""Unsorted entries are sorted into the chunks once they are more than a 64th of what is there."""


class DueRoot(NamedTuple):
    """A root that waits until `due_ms` (wall time), and its offset in `_ack_due`."""

    due_ms: int
    offset: int


class Schedule:
    """Entries of `_ack_due`, each a due time and an offset; the earliest ones can be taken."""

    def __init__(self, chunk: int = CHUNK, recent_min: int = RECENT_MIN) -> None:
        """Begin with none.

        Args:
            chunk: how many entries a chunk has at first.
            recent_min: so many entries may be unsorted, however few there are
                in all.
        """
        self._chunk_size = chunk
        self._recent_min = recent_min
        self._chunks: deque[I64] = deque()  # each ascending, of shape (n, 2) and never empty
        self._sorted_count = 0  # entries in chunks
        # entries that were added lately, unsorted: due times and offsets in
        # turn, and the earliest due time among them; None: there is none
        self._recent = array("q")
        self._recent_due_ms: int | None = None

    def __len__(self) -> int:
        return self._sorted_count + len(self._recent) // 2

    @property
    def memory_bytes(self) -> int:
        return ENTRY_BYTES * len(self)

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time, wall time in ms; None if there is no entry."""
        times_ms: list[int] = []
        if self._chunks:
            first_chunk = self._chunks[0]
            times_ms.append(int(first_chunk[0, 0]))
        if self._recent_due_ms is not None:
            times_ms.append(self._recent_due_ms)
        return min(times_ms, default=None)

    def add(self, due_ms: int, offset: int) -> None:
        """Add an entry."""
        self._recent.append(due_ms)
        self._recent.append(offset)
        if self._recent_due_ms is None or due_ms < self._recent_due_ms:
            self._recent_due_ms = due_ms
        recent_max = max(self._recent_min, self._sorted_count // _SORTED_PER_RECENT)
        if len(self._recent) // 2 > recent_max:
            entries = self._remove_recent()
            self._merge(entries[_order(entries)])

    def add_all(self, entries: I64) -> None:
        """Add many entries: rows of due time and offset in any order, ``(n, 2)`` int64."""
        self._merge(entries[_order(entries)])

    def take(self, now_ms: int, limit: int) -> list[DueRoot]:
        """Remove and return at most `limit` due entries, in the order of due time, then offset."""
        due_parts = [np.empty((0, 2), np.int64)]
        if self._recent_due_ms is not None and self._recent_due_ms <= now_ms:
            due_parts.append(self._remove_due_recent(now_ms))
        room = limit
        while self._chunks and room > 0 and self._chunks[0][0, 0] <= now_ms:
            chunk = self._chunks.popleft()
            # a chunk ascends by due time, so what is due is its beginning
            end = min(room, int(np.searchsorted(chunk[:, 0], now_ms, "right")))
            due_parts.append(chunk[:end])
            if end < len(chunk):
                self._chunks.appendleft(chunk[end:])
            self._sorted_count -= end
            room -= end
        entries = np.concatenate(due_parts)
        entries = entries[_order(entries)]
        # the chunks alone have given up to `limit`: with the unsorted ones
        # there may be more, which are put back
        self._merge(entries[limit:])
        return [DueRoot(due_ms, offset) for due_ms, offset in entries[:limit].tolist()]

    def _remove_due_recent(self, now_ms: int) -> I64:
        """Remove and return the unsorted entries that are due, in any order; later ones stay
        unsorted.
        """
        recent = self._remove_recent()
        is_due = recent[:, 0] <= now_ms  # column 0 is the due time
        later = recent[~is_due]
        if len(later):
            self._recent = array("q", later.tobytes())
            self._recent_due_ms = int(later[:, 0].min())
        return recent[is_due]

    def _remove_recent(self) -> I64:
        """Remove and return all unsorted entries: rows of due time and offset, in the order they
        came.
        """
        entries = np.frombuffer(self._recent, np.int64).reshape(-1, 2).copy()
        self._recent = array("q")
        self._recent_due_ms = None
        return entries

    def _merge(self, entries: I64) -> None:
        """Sort entries, which ascend, into the chunks."""
        if not len(entries):
            return
        self._sorted_count += len(entries)
        if not self._chunks:
            self._chunks = deque(self._cut(entries))
            return
        # Which chunk each entry belongs to: with chunks that begin at 10, 50
        # and 90 ms the entries of 5 and 60 ms belong to numbers -1 (which the
        # first chunk takes) and 1. Entries ascend, so those of a chunk are a
        # slice; `cuts` has where it ends.
        first_dues_ms = np.array([chunk[0, 0] for chunk in self._chunks], np.int64)
        chunk_numbers = np.searchsorted(first_dues_ms, entries[:, 0], "right") - 1
        cuts = np.searchsorted(chunk_numbers, np.arange(len(self._chunks)), "right")
        merged: deque[I64] = deque()
        begin = 0
        for end in cuts.tolist():
            chunk = self._chunks.popleft()  # so that it is freed before the next one is made
            if begin == end:
                merged.append(chunk)
                continue
            grown = np.concatenate([chunk, entries[begin:end]])
            grown = grown[_order(grown)]
            if len(grown) < 2 * self._chunk_size:
                merged.append(grown)
            else:
                merged += self._cut(grown)
            begin = end
        self._chunks = merged

    def _cut(self, entries: I64) -> list[I64]:
        """Cut entries into chunks, as copies, so that a chunk does not keep the whole array in memory."""
        size = self._chunk_size
        return [entries[begin : begin + size].copy() for begin in range(0, len(entries), size)]


def _order(entries: I64) -> I64:
    """Return the indices that sort entries by due time, then offset."""
    return np.lexsort((entries[:, 1], entries[:, 0]))


KEPT_BYTES: Final = 600
"""Memory of one entry without the texts of its history: the values, their tuples, its place in the dict."""


NO_DELAY: Final[Mapping[int, int]] = MappingProxyType({})


class _EntryInMemory(NamedTuple):
    """A whole entry, and an estimate of the memory that it takes."""

    due: Due
    size_bytes: int


class DueRoots:
    """Lost roots that wait, each named by the offset of its entry in `_ack_due`, in a schedule by
    input.
    """

    def __init__(self, entries: Mapping[int, I64], in_memory_bytes_max: int) -> None:
        """Start with restored roots, as `DueTable.by_input` returns them.

        At most `in_memory_bytes_max` bytes of whole entries are kept; the
        others are read from `_ack_due` when they are due.
        """
        self._schedules: defaultdict[int, Schedule] = defaultdict(Schedule)
        for input_id, rows in entries.items():
            self._schedules[input_id].add_all(rows)
        self._in_memory_bytes_max = in_memory_bytes_max
        # by the offset of an entry: whole entries, as many as fit, and the ids
        # of the inputs of roots that were taken
        self._in_memory: dict[int, _EntryInMemory] = {}
        self._in_memory_bytes = 0
        self._input_by_taken: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._schedules.values()))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the due times, and an estimate for the whole entries in memory."""
        return sum(schedule.memory_bytes for schedule in self._schedules.values()) + self._in_memory_bytes

    def counts(self) -> Mapping[int, int]:
        """Return how many roots wait of each input that has some, by its id."""
        return {input_id: len(schedule) for input_id, schedule in self._schedules.items() if len(schedule)}

    def next_due(self) -> Mapping[int, int]:
        """Return the earliest due time of each input with waiting roots, by its id."""
        next_due: dict[int, int] = {}
        for input_id, schedule in self._schedules.items():
            due_ms = schedule.next_due_ms
            if due_ms is not None:
                next_due[input_id] = due_ms
        return next_due

    def put(self, due: Due, offset: int, value_bytes: int) -> None:
        """Add a root that waits, whose entry in `_ack_due` has this offset and size."""
        self._schedules[input_id_of(due.source)].add(due.due_ms, offset)
        size_bytes = value_bytes + KEPT_BYTES
        if self._in_memory_bytes + size_bytes <= self._in_memory_bytes_max:
            self._in_memory[offset] = _EntryInMemory(due, size_bytes)
            self._in_memory_bytes += size_bytes

    def take(self, now_ms: int, limit: int, inputs: Collection[int]) -> list[DueRoot]:
        """Take at most `limit` due roots of some inputs; `remove` or `put_back` each of them afterwards.

        The earliest of each input come first. If more than `limit` are due,
        the inputs get equal parts of it.
        """
        taken: list[DueRoot] = []
        inputs_with_more = sorted(inputs)
        # What one input does not need of its part goes to the others in the
        # next round: of 100 for the inputs 1 and 2, of which 1 has 10 due
        # roots, 2 gets 50 and then 40 more.
        while inputs_with_more and len(taken) < limit:
            part = max(1, (limit - len(taken)) // len(inputs_with_more))
            for input_id in list(inputs_with_more):
                due_roots = self._schedules[input_id].take(now_ms, min(part, limit - len(taken)))
                self._input_by_taken.update((root.offset, input_id) for root in due_roots)
                taken += due_roots
                if len(due_roots) < part:
                    inputs_with_more.remove(input_id)
        return taken

    def in_memory(self, roots: Iterable[DueRoot]) -> dict[int, Due | None]:
        """Return the entries of roots by offset; None for those that must be read from `_ack_due`."""
        due_by_offset: dict[int, Due | None] = {}
        for root in roots:
            entry = self._in_memory.get(root.offset)
            due_by_offset[root.offset] = None if entry is None else entry.due
        return due_by_offset

    def remove(self, taken: Iterable[DueRoot]) -> None:
        """Remove taken roots that wait no more."""
        for root in taken:
            entry = self._in_memory.pop(root.offset, None)
            if entry is not None:
                self._in_memory_bytes -= entry.size_bytes
            self._input_by_taken.pop(root.offset)

    def put_back(self, taken: Iterable[DueRoot], until_ms_by_offset: Mapping[int, int] = NO_DELAY) -> None:
        """Put taken roots back among those that wait, each due at its `due_ms`.

        That may be later than it was. Where `until_ms_by_offset` has another
        due time for the offset of a root, that one counts. Both change the
        schedule in memory alone; `_ack_due` keeps the former time.
        """
        for due_ms, offset in taken:
            input_id = self._input_by_taken.pop(offset)
            self._schedules[input_id].add(until_ms_by_offset.get(offset, due_ms), offset)
