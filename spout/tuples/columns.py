"""Names of columns: of those that a user sees, and of the hidden ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from acker.identity import I64

SOURCE_COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""Columns of `read_stream`, as Spark's Kafka connector has them; ``headers``
follows on request.
"""

HEADERS_TYPE = "array<struct<key:string,value:binary>>"

ANCHOR = "_windhover"
"""The hidden column that ties a row to its root; see `spout.tuples.anchors`."""

TO = "_to"
"""Between two stages: the streams that a row is for; see `spout.topology.stage_pass`."""

TASK = "_task"
"""Between two stages: the task that a row goes to."""

BUNDLE = "_bundle"
"""Between two stages: rows for one task; see `spout.topology.bundles`."""

COLUMN = "s{}"
"""Name of the column with the tuples of the stream of this number."""

ROOT = "_root"
"""Between two stages, where a keyed bolt ends the topology: source and
position of each root.
"""

ROOT_TYPE = pa.struct([("source", pa.int64()), ("position", pa.int64())])


class Origins:
    """Sources and positions of the roots of one task's input, by their index.

    Within a batch a root is named by its index in the batch's plan, and only
    read tasks have the plan. A keyed bolt holds tuples beyond the batch, so
    rows before one also have the source and the position. A task can name
    those of all roots that it needs: they came with its input, and it emits
    only on its input.
    """

    def __init__(self) -> None:
        # by the root's index in the plan: its source and position
        self._root_by_index: dict[int, tuple[int, int]] = {}

    def add_roots(self, indices: I64, roots: pa.StructArray) -> None:
        """Remember roots of the input, to be named by `column` later.

        Args:
            indices: `(n,) int64`: the index of each in the plan; -1: the row
                has none, or several.
            roots: `source` and `position` of each; null where the row has
                none, or several.
        """
        sources = roots.field("source").fill_null(0).to_pylist()
        positions = roots.field("position").fill_null(0).to_pylist()
        # what is stored under -1 is never read
        addresses = zip(sources, positions, strict=True)
        self._root_by_index.update(zip(indices.tolist(), addresses, strict=True))

    def column(self, indices: I64) -> pa.Array:
        """Build the column ``_root``: `source` and `position` of each row's root.

        `indices`: of the roots in the plan; -1: the row has none, or several,
        and gets a null.

        Raises `KeyError`: one of them was not in the task's input.
        """
        no_root = (0, 0)  # is never read: the mask makes it null
        root_by_index = self._root_by_index
        roots = [root_by_index[index] if index >= 0 else no_root for index in indices.tolist()]
        # of no rows, too, the array has the two columns of source and position
        sources, positions = np.array(roots, np.int64).reshape(-1, 2).T
        columns = [pa.array(sources), pa.array(positions)]
        is_null = pa.array(indices < 0)
        return pa.StructArray.from_arrays(columns, fields=list(ROOT_TYPE), mask=is_null)
