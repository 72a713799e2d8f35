"""The roots that wait in one verdict partition: all due times, and as many whole entries as memory allows.

An *entry* is a record of `_ack_due` by which a root waits. What is here
mirrors `_ack_due`, so it changes only after a commit.

`DueTable` reduces a log that is read to what waits: the last record of each key
counts, and a tombstone removes the key. Its rows are reduced whenever their
number has doubled, so memory depends on how many roots wait, not on the length
of the log.

`Schedule` has 16 bytes for each root: due times and offsets, in sorted chunks.
New entries are first added unsorted; when they are more than a 64th of all,
they are sorted into the chunks. So adding and taking move only the entries of
the chunks concerned.
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

# columns of a row of `DueTable`
_SOURCE: Final = 0
_POSITION: Final = 1
_OFFSET: Final = 2
_DUE_MS: Final = 3
_COLUMN_COUNT: Final = 4


class DueTable:
    """What the records of `_ack_due` say of roots, in the order of the log.

    A row has source, position, offset and due time; in place of a due time, a
    tombstone has `_TOMBSTONE`.
    """

    def __init__(self, rows_min: int = ROWS_MIN) -> None:
        """Begin without a row; fewer than `rows_min` are not reduced."""
        self._rows = array("q")  # four numbers a row, one row after the other
        self._rows_min = rows_min
        self._reduce_at_rows = rows_min  # when there are so many rows, they are reduced

    def put(self, root: Root, offset: int, due_ms: int) -> None:
        """Add an entry that lets a root wait; it replaces an earlier one of the root."""
        self._append(root, offset, max(0, due_ms))

    def remove(self, root: Root, offset: int) -> None:
        """Add a tombstone: the root waits no more."""
        self._append(root, offset, _TOMBSTONE)

    def by_input(self) -> Mapping[int, I64]:
        """Return what waits by an input's id: rows of due time and offset, ``(n, 2)`` int64, in any order."""
        rows = self._waiting_rows()
        input_ids = (rows[:, _SOURCE] >> 16) % REPLAY_ID_OFFSET  # as `input_id_of`
        rows_by_input: dict[int, I64] = {}
        for input_id in np.unique(input_ids).tolist():
            rows_of_input = rows[input_ids == input_id]
            rows_by_input[input_id] = rows_of_input[:, [_DUE_MS, _OFFSET]]
        return rows_by_input

    def among(self, roots: Collection[Root]) -> set[Root]:
        """Return those of some roots that wait."""
        waiting = self._waiting_rows()
        positions = [root.position for root in roots]
        candidates = waiting[np.isin(waiting[:, _POSITION], positions)]
        # another source may have the same position: `intersection` takes it out
        waiting_roots = {Root(row[_SOURCE], row[_POSITION]) for row in candidates.tolist()}
        return waiting_roots.intersection(roots)

    def _append(self, root: Root, offset: int, due_ms: int) -> None:
        """Add a row; reduce the rows to those of roots that wait once their number has doubled."""
        self._rows.extend((root.source, root.position, offset, due_ms))
        if len(self._rows) >= self._reduce_at_rows * _COLUMN_COUNT:
            waiting = self._waiting_rows()
            self._rows = array("q", waiting.tobytes())
            self._reduce_at_rows = max(self._rows_min, 2 * len(waiting))

    def _waiting_rows(self) -> I64:
        """Return the rows of roots that wait, ``(n, 4)`` int64, ascending by source, then position."""
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMN_COUNT)
        # sorted by source, position and offset (`lexsort` takes the first key
        # last), so that of neighbours with the same root the last one counts
        rows = rows[np.lexsort((rows[:, _OFFSET], rows[:, _POSITION], rows[:, _SOURCE]))]
        roots = rows[:, : _POSITION + 1]  # source and position
        is_last_of_root = np.ones(len(rows), np.bool_)
        is_last_of_root[:-1] = (roots[1:] != roots[:-1]).any(axis=1)
        is_entry = rows[:, _DUE_MS] != _TOMBSTONE
        waiting: I64 = rows[is_last_of_root & is_entry]
        return waiting


ENTRY_BYTES: Final = 16
CHUNK: Final = 8_192
"""Entries in a chunk; a chunk that has grown to twice as many is cut."""

UNSORTED_ALLOWED: Final = 4_096
"""So many entries may be unsorted, however few there are in all."""

_SORTED_PER_UNSORTED: Final = 64
"""Unsorted entries are sorted into the chunks once they are more than a 64th of what is there."""


class DueRoot(NamedTuple):
    """A root that waits until `due_ms` (wall time), and its offset in `_ack_due`."""

    due_ms: int
    offset: int


_ENTRY_DUE_MS: Final = 0
_ENTRY_OFFSET: Final = 1
"""The columns of an array of entries, of shape ``(n, 2)``."""


class Schedule:
    """Entries of `_ack_due`, each a due time and an offset; the earliest ones can be taken."""

    def __init__(self, chunk_size: int = CHUNK, unsorted_allowed: int = UNSORTED_ALLOWED) -> None:
        """Begin with none.

        Args:
            chunk_size: how many entries a new chunk has; one with twice as many
                is cut.
            unsorted_allowed: so many entries may be unsorted; more only if they
                are at most a 64th of those in chunks.
        """
        self._chunk_size = chunk_size
        self._unsorted_allowed = unsorted_allowed
        self._chunks: deque[I64] = deque()  # each ascending, of shape (n, 2) and never empty
        self._sorted_count = 0  # entries in chunks
        # entries that were added since the last sort, flat: due time, offset, due
        # time, offset ...
        self._unsorted = array("q")
        # the earliest due time among the unsorted ones; None: there is none
        self._unsorted_next_due_ms: int | None = None

    def __len__(self) -> int:
        """Return how many entries there are."""
        return self._sorted_count + len(self._unsorted) // 2

    @property
    def memory_bytes(self) -> int:
        return ENTRY_BYTES * len(self)

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time, wall time in ms; None if there is no entry."""
        times_ms: list[int] = []
        if self._chunks:
            first_chunk = self._chunks[0]
            times_ms.append(int(first_chunk[0, _ENTRY_DUE_MS]))
        if self._unsorted_next_due_ms is not None:
            times_ms.append(self._unsorted_next_due_ms)
        return min(times_ms, default=None)

    def add(self, due_ms: int, offset: int) -> None:
        """Add an entry."""
        self._unsorted.append(due_ms)
        self._unsorted.append(offset)
        if self._unsorted_next_due_ms is None or due_ms < self._unsorted_next_due_ms:
            self._unsorted_next_due_ms = due_ms
        unsorted_max = max(self._unsorted_allowed, self._sorted_count // _SORTED_PER_UNSORTED)
        if len(self._unsorted) // 2 > unsorted_max:  # two numbers are one entry
            self.add_all(self._remove_unsorted())

    def add_all(self, entries: I64) -> None:
        """Add many entries: rows of due time and offset in any order, ``(n, 2)`` int64."""
        self._merge(entries[_sorting_indices(entries)])

    def take(self, now_ms: int, limit: int) -> list[DueRoot]:
        """Remove and return at most `limit` due entries, in the order of due time, then offset."""
        due_parts = [np.empty((0, 2), np.int64)]
        # 1. all unsorted entries that are due; they may be earlier than those in
        # chunks
        if self._unsorted_next_due_ms is not None and self._unsorted_next_due_ms <= now_ms:
            due_parts.append(self._remove_due_unsorted(now_ms))
        # 2. from the chunks the first ones that are due, up to `limit`
        room = limit
        while room > 0 and self._is_first_chunk_due(now_ms):
            chunk = self._chunks.popleft()
            # a chunk ascends by due time, so what is due is its beginning
            due_count = int(np.searchsorted(chunk[:, _ENTRY_DUE_MS], now_ms, "right"))
            end = min(room, due_count)
            due_parts.append(chunk[:end])
            if end < len(chunk):
                self._chunks.appendleft(chunk[end:])
            self._sorted_count -= end
            room -= end
        # 3. sort both together; what is more than `limit` goes back into the chunks
        entries = np.concatenate(due_parts)
        entries = entries[_sorting_indices(entries)]
        self._merge(entries[limit:])
        return [DueRoot(due_ms, offset) for due_ms, offset in entries[:limit].tolist()]

    def _is_first_chunk_due(self, now_ms: int) -> bool:
        """Return whether the first entry of the first chunk is due; False: there is no chunk."""
        if not self._chunks:
            return False
        first_due_ms = self._chunks[0][0, _ENTRY_DUE_MS]
        return bool(first_due_ms <= now_ms)

    def _remove_due_unsorted(self, now_ms: int) -> I64:
        """Remove and return the unsorted entries that are due, in any order; later ones stay."""
        # removes all and resets the earliest due time; later ones are put back below
        entries = self._remove_unsorted()
        is_due = entries[:, _ENTRY_DUE_MS] <= now_ms
        later = entries[~is_due]
        if len(later):
            self._unsorted = array("q", later.tobytes())
            self._unsorted_next_due_ms = int(later[:, _ENTRY_DUE_MS].min())
        return entries[is_due]

    def _remove_unsorted(self) -> I64:
        """Remove and return all unsorted entries, ``(n, 2)`` int64, in the order they came."""
        entries = np.frombuffer(self._unsorted, np.int64).reshape(-1, 2).copy()
        self._unsorted = array("q")
        self._unsorted_next_due_ms = None
        return entries

    def _merge(self, entries: I64) -> None:
        """Sort entries, which must ascend by due time and offset, into the chunks.

        A chunk that gets twice as many entries as it had at first is cut.
        """
        if not len(entries):
            return
        self._sorted_count += len(entries)
        if not self._chunks:
            self._chunks = deque(self._cut(entries))
            return
        # Which chunk each entry belongs to: with chunks that begin at 10, 50
        # and 90 ms the entries of 5 and 60 ms belong to numbers -1 (which the
        # first chunk takes) and 1. Entries ascend, so those of a chunk are a
        # slice; `slice_ends` has, by chunk, where it ends.
        first_dues_ms = np.array([chunk[0, _ENTRY_DUE_MS] for chunk in self._chunks], np.int64)
        chunk_numbers = np.searchsorted(first_dues_ms, entries[:, _ENTRY_DUE_MS], "right") - 1
        slice_ends = np.searchsorted(chunk_numbers, np.arange(len(self._chunks)), "right")
        merged: deque[I64] = deque()
        begin = 0
        for end in slice_ends.tolist():
            chunk = self._chunks.popleft()  # so that it is freed before the next one is made
            if begin == end:  # no entry belongs to it
                merged.append(chunk)
                continue
            grown = np.concatenate([chunk, entries[begin:end]])
            grown = grown[_sorting_indices(grown)]
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


def _sorting_indices(entries: I64) -> I64:
    """Return the indices that sort entries by due time, then offset."""
    return np.lexsort((entries[:, _ENTRY_OFFSET], entries[:, _ENTRY_DUE_MS]))


KEPT_BYTES: Final = 600
"""Memory of one entry without the texts of its history: the values, their tuples, its place in the dict."""


NO_DELAY: Final[Mapping[int, int]] = MappingProxyType({})
"""For `DueRoots.put_back`: each root is due when it was."""


class _EntryInMemory(NamedTuple):
    """A whole entry, and an estimate of the memory that it takes."""

    entry: Due
    size_bytes: int


class DueRoots:
    """The lost roots that wait in one partition; offsets are those of their entries in `_ack_due`.

    A root that was taken waits no more until it is put back, and is still to be
    removed.
    """

    def __init__(self, rows_by_input: Mapping[int, I64], in_memory_bytes_max: int) -> None:
        """Start with restored roots, as `DueTable.by_input` returns them.

        At most `in_memory_bytes_max` bytes of whole entries are kept; the
        others are read from `_ack_due` when they are due.
        """
        self._schedule_by_input: defaultdict[int, Schedule] = defaultdict(Schedule)
        for input_id, rows in rows_by_input.items():
            self._schedule_by_input[input_id].add_all(rows)
        # whole entries, as many as fit, by their offsets
        self._kept_entry_by_offset: dict[int, _EntryInMemory] = {}
        self._entries_bytes = 0
        self._entries_bytes_max = in_memory_bytes_max
        # of each root that was taken, by its offset: the id of its input
        self._input_by_taken_offset: dict[int, int] = {}

    def __len__(self) -> int:
        """Return how many roots wait."""
        return sum(map(len, self._schedule_by_input.values()))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the due times, and an estimate for the whole entries in memory."""
        schedule_bytes = sum(schedule.memory_bytes for schedule in self._schedule_by_input.values())
        return schedule_bytes + self._entries_bytes

    def count_by_input(self) -> Mapping[int, int]:
        """Return how many roots wait of each input that has some, by its id."""
        count_by_input: dict[int, int] = {}
        for input_id, schedule in self._schedule_by_input.items():
            if len(schedule):
                count_by_input[input_id] = len(schedule)
        return count_by_input

    def next_due_ms_by_input(self) -> Mapping[int, int]:
        """Return, by an input's id, when its first waiting root is due, wall time in ms."""
        next_due_ms_by_input: dict[int, int] = {}
        for input_id, schedule in self._schedule_by_input.items():
            due_ms = schedule.next_due_ms
            if due_ms is not None:
                next_due_ms_by_input[input_id] = due_ms
        return next_due_ms_by_input

    def put(self, entry: Due, offset: int, value_bytes: int) -> None:
        """Add a root that waits, whose entry in `_ack_due` has this offset and size."""
        self._schedule_by_input[input_id_of(entry.source)].add(entry.due_ms, offset)
        size_bytes = value_bytes + KEPT_BYTES
        # without room the entry is read from `_ack_due` when it is due
        if self._entries_bytes + size_bytes <= self._entries_bytes_max:
            self._kept_entry_by_offset[offset] = _EntryInMemory(entry, size_bytes)
            self._entries_bytes += size_bytes

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
                root_count_max = min(part, limit - len(taken))
                due_roots = self._schedule_by_input[input_id].take(now_ms, root_count_max)
                self._input_by_taken_offset.update((root.offset, input_id) for root in due_roots)
                taken += due_roots
                if len(due_roots) < part:
                    inputs_with_more.remove(input_id)
        return taken

    def entries_in_memory(self, roots: Iterable[DueRoot]) -> dict[int, Due | None]:
        """Return the entries of roots by offset; None: one is not in memory, but in `_ack_due`."""
        entry_by_offset: dict[int, Due | None] = {}
        for root in roots:
            in_memory = self._kept_entry_by_offset.get(root.offset)
            entry_by_offset[root.offset] = None if in_memory is None else in_memory.entry
        return entry_by_offset

    def remove(self, taken: Iterable[DueRoot]) -> None:
        """Remove taken roots, and their entries, for good."""
        for root in taken:
            in_memory = self._kept_entry_by_offset.pop(root.offset, None)
            if in_memory is not None:
                self._entries_bytes -= in_memory.size_bytes
            self._input_by_taken_offset.pop(root.offset)

    def put_back(
        self, taken: Iterable[DueRoot], due_ms_by_entry_offset: Mapping[int, int] = NO_DELAY
    ) -> None:
        """Put taken roots back among those that wait, each due at its `due_ms`.

        That may be later than it was. Where `due_ms_by_entry_offset` has another
        due time for the offset of a root, that one counts. Both change the
        schedule in memory alone; `_ack_due` keeps the former time.
        """
        for due_ms, offset in taken:
            input_id = self._input_by_taken_offset.pop(offset)
            next_due_ms = due_ms_by_entry_offset.get(offset, due_ms)
            self._schedule_by_input[input_id].add(next_due_ms, offset)
