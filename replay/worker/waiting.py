"""What waits in one verdict partition: when each is due, and as much of the rest as there is room for.

It mirrors `_ack_due`: it changes only after a transaction has committed. What does not fit into the memory
that is kept for it is read from `_ack_due` again when its time has come.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from acker.identity import I64, input_id_of
from replay.records.due import Due
from replay.worker.schedule import Entry, Schedule

KEPT_BYTES: Final = 600
"""Memory of one that is kept, beside its history's texts: the values, their tuples, its place in the dict."""


class Waiting:
    """Lost roots that wait, each named by its offset in `_ack_due`; each input has a schedule of its own."""

    def __init__(self, entries: Mapping[int, I64], kept_bytes_max: int) -> None:
        """Begin with what was restored.

        Args:
            entries: by the id of an input, rows of due time and offset, in any order.
            kept_bytes_max: memory for what is kept beside that.
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
        """Memory of what waits, of what is kept estimated."""
        return sum(each.memory_bytes for each in self._schedules.values()) + self._kept_bytes

    def counts(self) -> Mapping[int, int]:
        """Return how many roots of each input wait, by its id."""
        return {input_id: len(found) for input_id, found in self._schedules.items() if len(found)}

    def next_due(self) -> Mapping[int, int]:
        """Return the earliest due time of each input of which something waits, by its id."""
        found = {input_id: each.next_due_ms for input_id, each in self._schedules.items()}
        return {input_id: due_ms for input_id, due_ms in found.items() if due_ms is not None}

    def put(self, due: Due, offset: int, value_bytes: int) -> None:
        """Let a root wait.

        Args:
            due: what is known of it.
            offset: where `_ack_due` holds it.
            value_bytes: its size there.
        """
        self._schedules[input_id_of(due.source)].add(due.due_ms, offset)
        size = value_bytes + KEPT_BYTES
        if self._kept_bytes + size <= self._kept_bytes_max:
            self._kept[offset] = due, size
            self._kept_bytes += size

    def take(self, now_ms: int, limit: int, inputs: Collection[int]) -> list[Entry]:
        """Take at most `limit` of some inputs whose time has come; `done` says what became of them.

        Of each input the earliest come first; where there are more than `limit` in all, no input keeps the
        others out.
        """
        taken: list[Entry] = []
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

    def kept(self, entries: Iterable[Entry]) -> dict[int, Due | None]:
        """Return, by offset, what is known of some without reading `_ack_due`; None of those to be read."""
        find = self._kept.get
        return {entry.offset: (found[0] if (found := find(entry.offset)) else None) for entry in entries}

    def done(self, entries: Iterable[Entry], left: Iterable[Entry]) -> None:
        """Forget those that were settled, and let the rest of what was taken go on waiting."""
        for entry in entries:
            found = self._kept.pop(entry.offset, None)
            self._kept_bytes -= found[1] if found else 0
        for entry in left:
            self._schedules[self._taken[entry.offset]].put_back((entry,))
        self._taken.clear()
