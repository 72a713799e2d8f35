"""Where the roots of a topology's tuples stand in their sources, for a bolt that holds them beyond a batch.

Within a batch a root is its index into the batch's plan, which only read tasks know. Where a keyed bolt ends
the topology, rows that leave a task name the source and position beside it: a task knows those of all tuples
that it was given, and emits on no others.

Source: docs/design/protocol.md, sections 2 and 5.2.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from acker.identity import I64

ROOT = "_root"
"""The column."""

ROOT_TYPE = pa.struct([("source", pa.int64()), ("position", pa.int64())])


class Origins:
    """Sources and positions of the roots that one task was given, by their index."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[int, tuple[int, int]] = {}

    def learn(self, indices: I64, named: pa.StructArray) -> None:
        """Take note of roots.

        Args:
            indices: their indices; -1: none, or several.
            named: their `source` and `position`, one for one.
        """
        places = zip(_numbers(named.field("source")), _numbers(named.field("position")), strict=True)
        self._known.update(zip(indices.tolist(), places, strict=True))

    def column(self, indices: I64) -> pa.Array:
        """Name roots; null for -1.

        Raises:
            KeyError: the task was never given one of them.
        """
        found = [self._known[index] if index >= 0 else (0, 0) for index in indices.tolist()]
        sources, positions = np.array(found, np.int64).reshape(-1, 2).T
        columns = [pa.array(sources), pa.array(positions)]
        return pa.StructArray.from_arrays(columns, fields=list(ROOT_TYPE), mask=pa.array(indices < 0))


def _numbers(column: pa.Array) -> list[int]:
    numbers: list[int] = column.fill_null(0).to_pylist()
    return numbers
