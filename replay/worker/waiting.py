"""The roots that wait in one verdict partition: all due times, and as many whole entries as memory allows.

It mirrors `_ack_due`, so it changes only after a commit. An entry that does not fit into memory is read from
`_ack_due` again when it is due.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from acker.identity import I64, input_id_of
from replay.records.due import Due
from replay.worker.schedule import DueRoot, Schedule

KEPT_BYTES: Final = 600
"""Memory of one entry without the texts of its history: the values, their tuples, its place in the dict."""


class DueRoots:
    """Lost roots that wait, each identified by its offset in `_ack_due`; each input has its own schedule."""

    def __init__(self, entries: Mapping[int, I64], kept_bytes_max: int) -> None:
        """Start with restored roots.

        Args:
            entries: by the id of an input, rows of due time and offset in any order, ``(n, 2)`` int64.
            kept_bytes_max: memory for whole entries, besides the due times.
        """
        self._schedules: defaultdict[int, Schedule] = defaultdict(Schedule)
        for input_id, rows in entries.items():
            self._schedules[input_id].add_all(rows)
        self._kept_bytes_max = kept_bytes_max
        self._kept: dict[int, tuple[Due, int]] = {}
        self._kept_bytes = 0
        self._taken: dict[int, int] = {}

    def __len__(self) -> int:
        """Return how many roots wait."""
        return sum(map(len, self._schedules.values()))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the due times, and an estimate for the whole entries in memory."""
        return sum(each.memory_bytes for each in self._schedules.values()) + self._kept_bytes

    def counts(self) -> Mapping[int, int]:
        """Return how many roots of each input wait, by its id."""
        return {input_id: len(found) for input_id, found in self._schedules.items() if len(found)}

    def next_due(self) -> Mapping[int, int]:
        """Return the earliest due time of each input with waiting roots, by its id."""
        found = {input_id: each.next_due_ms for input_id, each in self._schedules.items()}
        return {input_id: due_ms for input_id, due_ms in found.items() if due_ms is not None}

    def put(self, due: Due, offset: int, value_bytes: int) -> None:
        """Let a root wait.

        Args:
            due: its entry.
            offset: the offset of the entry in `_ack_due`.
            value_bytes: the size of the entry there.
        """
        self._schedules[input_id_of(due.source)].add(due.due_ms, offset)
        size = value_bytes + KEPT_BYTES
        if self._kept_bytes + size <= self._kept_bytes_max:
            self._kept[offset] = due, size
            self._kept_bytes += size

    def take(self, now_ms: int, limit: int, inputs: Collection[int]) -> list[DueRoot]:
        """Take at most `limit` due roots of some inputs; call `done` with them afterwards.

        The earliest of each input come first. If more than `limit` are due, each input gets its share.
        """
        taken: list[DueRoot] = []
        left = sorted(inputs)
        while left:
            share = max(1, (limit - len(taken)) // len(left))
            for input_id in list(left):
                found = self._schedules[input_id].take(now_ms, min(share, limit - len(taken)))
                self._taken.update((entry.offset, input_id) for entry in found)
                taken += found
                if len(found) < share:
                    left.remove(input_id)
            if len(taken) >= limit:
                break
        return taken

    def kept(self, entries: Iterable[DueRoot]) -> dict[int, Due | None]:
        """Return the entries in memory, by offset; None for those that must be read from `_ack_due`."""
        find = self._kept.get
        return {entry.offset: (found[0] if (found := find(entry.offset)) else None) for entry in entries}

    def done(self, entries: Iterable[DueRoot], left: Iterable[DueRoot]) -> None:
        """Remove the taken roots in `entries`, which are done; those in `left` go on waiting."""
        for entry in entries:
            found = self._kept.pop(entry.offset, None)
            self._kept_bytes -= found[1] if found else 0
        for entry in left:
            self._schedules[self._taken[entry.offset]].put_back((entry,))
        self._taken.clear()
