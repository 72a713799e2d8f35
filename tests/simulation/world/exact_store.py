"""The store of a run that writes exactly once: rows, granted epochs and last batches, in one transaction.

It outlives every process, and tells the truth of each transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from acker.errors import StoreFenced
from acker.identity import I64
from spout.exactly_once.rooted_rows import RootedRows
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant
from tests.simulation.truth.facts import SinkRow


class ExactStore:
    """What is durable; each call is one transaction.

    Attributes:
        epochs: of each group, the one that was granted last.
        last_batches: of each group.
    """

    def __init__(self, tell: Callable[[Sequence[SinkRow]], None]) -> None:
        """Begin without rows; `tell` is told of those of each transaction."""
        self.epochs: dict[str, int] = {}
        self.last_batches: dict[str, LastBatch] = {}
        self._tell = tell

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant an epoch above all that were granted."""
        epoch = self.granted(group, epoch_min)
        self.epochs[group] = epoch
        return StoreGrant(epoch, self.last_batches.get(group))

    def granted(self, group: str, epoch_min: int) -> int:
        """Return which epoch the next writer of a group gets."""
        return max(epoch_min, self.epochs.get(group, 0) + 1)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Take everything, unless a later writer has opened the store."""
        self.refuse_fenced(key)
        self._tell([SinkRow(**row) for row in rows.to_pylist()])
        self.last_batches[key.group] = LastBatch(key, publication)

    def refuse_fenced(self, key: BatchKey) -> None:
        """Refuse a writer that is not the last one."""
        if self.epochs[key.group] != key.epoch:
            raise StoreFenced(f"epoch {key.epoch} of {key.group} is fenced by {self.epochs[key.group]}")


def rooted(rows: Sequence[SinkRow]) -> RootedRows:
    """Return rows as a store gets them, each with its root."""
    columns = {name: [getattr(row, name) for row in rows] for name in SinkRow._fields}
    sources: I64 = np.array(columns["source"], np.int64)
    positions: I64 = np.array(columns["position"], np.int64)
    return RootedRows(pa.table(columns), sources, positions)
