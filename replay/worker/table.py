"""What a partition of `_ack_due` means: the last record of each key counts, and a tombstone removes the key.

Rows are packed, and reduced to the last ones whenever their number has doubled. So memory depends on how many
roots wait, not on the length of the log: even a compacted log may have many times as many records.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

import numpy as np

from acker.identity import I64, REPLAY_ID_OFFSET, Root

ROWS_MIN: Final = 65_536
"""With fewer rows it is not worth reducing them."""

_TOMBSTONE: Final = -1
_COLUMNS: Final = 4


class DueTable:
    """Rows of source, position, offset and due time, in the order of the log."""

    def __init__(self, rows_min: int = ROWS_MIN) -> None:
        """Start empty."""
        self._rows = array("q")
        self._rows_min = self._reduce_at = rows_min

    def put(self, root: Root, offset: int, due_ms: int) -> None:
        """Add an entry that lets a root wait; it replaces an earlier one of the root."""
        self._append(root, offset, max(0, due_ms))

    def remove(self, root: Root, offset: int) -> None:
        """Add a tombstone: the root does not wait any more."""
        self._append(root, offset, _TOMBSTONE)

    def entries(self) -> I64:
        """Return what waits, as rows of due time and offset: ``(n, 2)`` int64, in any order."""
        return self._reduced()[:, [3, 2]]

    def by_input(self) -> Mapping[int, I64]:
        """Return what waits of each input, by its id, as rows like those of `entries`."""
        rows = self._reduced()
        inputs = (rows[:, 0] >> 16) % REPLAY_ID_OFFSET
        return {int(found): rows[inputs == found][:, [3, 2]] for found in np.unique(inputs)}

    def _append(self, root: Root, offset: int, due_ms: int) -> None:
        self._rows.extend((root.source, root.position, offset, due_ms))
        if len(self._rows) >= self._reduce_at * _COLUMNS:
            rows = self._reduced()
            self._rows = array("q", rows.tobytes())
            self._reduce_at = max(self._rows_min, 2 * len(rows))

    def _reduced(self) -> I64:
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMNS)
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        live: I64 = rows[is_last & (rows[:, 3] != _TOMBSTONE)]
        return live
