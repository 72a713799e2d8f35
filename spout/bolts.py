"""The three forms of a bolt.

`BasicBolt` is the usual one: emissions are anchored on the input, which is acked when `execute` returns
and failed when it raises. `Bolt` is Storm's rich bolt: it anchors, acks and fails by hand. `ArrowBolt` is
a `BasicBolt` for whole Arrow batches, for work that PyArrow or NumPy does at once.

A bolt is pickled once, when the query is built, and every task works on its own copy.

Source: DESIGN.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acker.errors import TupleError
from spout.collector import BasicCollector, Cause, OutputCollector, Tuple, cause_of


@dataclass(frozen=True, slots=True)
class BoltContext:
    """Where a bolt's copy runs: its name, the task's partition, and the micro-batch."""

    name: str
    partition: int
    batch_id: int


class BasicBolt:
    """Works on one tuple at a time; anchors and acks by itself."""

    output: ClassVar[str] = "value string"
    """What it emits, as Spark DDL: ``"word string, length int"``."""

    def prepare(self, context: BoltContext) -> None:
        """Get ready for the tuples of one task; called once in each."""

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Work on one tuple and emit what follows from it.

        Raises:
            FailTuple: the tuple cannot be processed now; it is replayed later. Any other exception fails
                it too, under its own name. Nothing that was emitted in a failed call is delivered.
        """
        raise NotImplementedError

    def cleanup(self) -> None:
        """Let go of what `prepare` took; called after the last tuple of a task."""


class Bolt:
    """Anchors, acks and fails by hand, as Storm's rich bolt.

    An exception that escapes `execute` fails the input. What is neither acked nor failed when the task
    ends keeps its root open until it times out.
    """

    output: ClassVar[str] = "value string"
    """What it emits, as Spark DDL."""

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Get ready for the tuples of one task, and keep the collector."""
        raise NotImplementedError

    def execute(self, tuple: Tuple) -> None:
        """Work on one tuple. It may be kept, and acked with a later one or in `cleanup`."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """End a task: the last chance to emit, ack and fail what was kept."""


class BatchCollector:
    """Collects what an `ArrowBolt` does with one batch."""

    __slots__ = ("_bolt", "_rows", "columns", "failures", "parents")

    def __init__(self, bolt: str, rows: int) -> None:
        """Collect for the bolt of this name and a batch of so many rows."""
        self._bolt = bolt
        self._rows = rows
        self.columns: list[Sequence[pa.Array]] = []
        self.parents: list[npt.NDArray[np.int64]] = []
        self.failures: list[tuple[int, Cause]] = []

    def emit(self, columns: Sequence[pa.Array], parents: pa.Array | npt.NDArray[np.integer]) -> None:
        """Emit rows, each anchored on one input row.

        Args:
            columns: one array for each column of the bolt's `output`, all of one length.
            parents: for each row the number of the input row that it descends from.

        Raises:
            TupleError: lengths differ, or a parent is no row of the batch.
        """
        of = np.asarray(parents, dtype=np.int64)
        if any(len(column) != len(of) for column in columns):
            lengths = [len(column) for column in columns]
            raise TupleError(f"bolt {self._bolt!r} emitted columns of {lengths} rows with {len(of)} parents")
        if len(of) and (of.min() < 0 or of.max() >= self._rows):
            raise TupleError(f"bolt {self._bolt!r} anchored on a row that is not in 0..{self._rows - 1}")
        self.columns.append(columns)
        self.parents.append(of)

    def fail(self, row: int, cause: BaseException | str | None = None) -> None:
        """Fail one input row; what was emitted on it is not delivered.

        Raises:
            TupleError: the batch has no such row.
        """
        if not 0 <= row < self._rows:
            raise TupleError(f"bolt {self._bolt!r} failed row {row} of a batch of {self._rows}")
        self.failures.append((row, cause_of(self._bolt, cause)))


class ArrowBolt:
    """Works on Arrow batches; every input row is acked unless it is failed."""

    output: ClassVar[str] = "value string"
    """What it emits, as Spark DDL."""

    fields: ClassVar[tuple[str, ...] | None] = None
    """The input columns that it reads; None reads all of them. Naming them saves time."""

    def prepare(self, context: BoltContext) -> None:
        """Get ready for the batches of one task; called once in each."""

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Work on one batch.

        Raises:
            Exception: whatever escapes fails every row of the batch under its own name.
        """
        raise NotImplementedError

    def cleanup(self) -> None:
        """Let go of what `prepare` took; called after the last batch of a task."""


AnyBolt = BasicBolt | Bolt | ArrowBolt
