"""What a log of `_ack_due` comes to: of each key the last record counts, and a tombstone ends it.

Rows are packed and reduced whenever they have doubled, so that memory follows what waits, not what the log
holds: a compacted log may hold many times as much.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

import numpy as np

from acker.identity import I64, REPLAY_ID_OFFSET, Root

ROWS_MIN: Final = 65_536
"""Fewer rows are not worth reducing."""

_TOMBSTONE: Final = -1
_COLUMNS: Final = 4


class DueTable:
    """Rows of source, position, offset and due time, in the order of the log."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._rows = array("q")
        self._reduce_at = ROWS_MIN

    def put(self, root: Root, offset: int, due_ms: int) -> None:
        """Note that a record lets a root wait; an earlier one of that root is replaced."""
        self._append(root, offset, max(0, due_ms))

    def remove(self, root: Root, offset: int) -> None:
        """Note that a tombstone ends a root's waiting."""
        self._append(root, offset, _TOMBSTONE)

    def entries(self) -> I64:
        """Return what waits: rows of due time and offset, in any order."""
        return self._reduced()[:, [3, 2]]

    def by_input(self) -> Mapping[int, I64]:
        """Return what waits of each input, by its id: rows of due time and offset, in any order."""
        rows = self._reduced()
        inputs = (rows[:, 0] >> 16) % REPLAY_ID_OFFSET
        return {int(found): rows[inputs == found][:, [3, 2]] for found in np.unique(inputs)}

    def _append(self, root: Root, offset: int, due_ms: int) -> None:
        self._rows.extend((root.source, root.position, offset, due_ms))
        if len(self._rows) >= self._reduce_at * _COLUMNS:
            rows = self._reduced()
            self._rows = array("q", rows.tobytes())
            self._reduce_at = max(ROWS_MIN, 2 * len(rows))

    def _reduced(self) -> I64:
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMNS)
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        live: I64 = rows[is_last & (rows[:, 3] != _TOMBSTONE)]
        return live
