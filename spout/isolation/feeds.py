"""What a worker and its child send each other, as bytes: blocks of rows, and answers.

A *block* is some rows for which a task's bolts are called. The bytes are pickles, in which Arrow
data are the bytes of an Arrow stream: of a slice that has the slice's rows alone.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from acker.errors import TrackingError
from acker.wire.causes import class_name
from spout.planning.order import GateState
from spout.publishing.fold import TaskReport
from spout.tuples.anchors import Anchors
from spout.tuples.messages import MessageRows
from spout.tuples.places import Places
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Rows, StreamId, text_of

BLOCK_ROWS: Final = 1_000
"""Rows of a block, where bolts work row by row: if a child ends, no more than these are worked on
again.
"""


class RowBlock(NamedTuple):
    """A block of rows for a child.

    Attributes:
        anchors: of the rows; None: the rows have them in a column or as places, since they
            come from a stage before; or nothing is tracked.
        rows_before: how many rows the task was given before this block.
        gate_state: which of the rows are blocked behind failed ones, as the task's gate knows it;
            None: they need no order.
    """

    rows: Rows
    anchors: Anchors | None
    rows_before: int = 0
    gate_state: GateState | None = None

    def cut(self, row_count: int) -> list[RowBlock]:
        """Return its rows in blocks of `row_count`, the last with what is left.

        Without rows it is returned as one block, since bolts are called for that too.
        """
        starts = range(0, len(self.rows), row_count)
        return [self._part(start, row_count) for start in starts] or [self]

    def _part(self, start: int, row_count: int) -> RowBlock:
        """Return the rows [start, start + row_count), or fewer at the end, as a block."""
        rows: Rows
        if isinstance(self.rows, MessageRows):
            rows = self.rows.part(start, row_count)
        elif isinstance(self.rows, ArrowRows):
            places = self.rows.places  # None: the batch has them in a column, or nothing is tracked
            if places is not None:
                places = places[start : start + row_count]
            batch = self.rows.batch.slice(start, row_count)
            rows = ArrowRows(batch, came_from=self.rows.came_from, places=places)
        else:
            raise TypeError(f"a task is fed messages or Arrow rows, not {type(self.rows).__name__}")
        anchors = self.anchors
        if anchors is not None:
            anchors = replace(anchors, column=anchors.column.slice(start, row_count))
        return RowBlock(rows, anchors, self.rows_before + start)


class ChildAnswer(NamedTuple):
    """What a child answers.

    Attributes:
        batches: the rows that leave the stage.
        report: what was done since the last report; None: it is given at the end alone.
    """

    batches: list[pa.RecordBatch]
    report: TaskReport | None


class _Packer(pickle.Pickler):
    """Pickles messages without their client, and of a slice of Arrow data its rows alone."""

    def reducer_override(self, value: object) -> Any:
        """Return what makes a value again, and of what; `NotImplemented`: pickle does as ever."""
        if isinstance(value, MessageRows):
            return MessageRows.unpacked, (value.packed(),)
        if isinstance(value, ArrowRows):
            return _arrow_rows, (value.batch, value.came_from, value.places)
        if isinstance(value, pa.RecordBatch):
            return _batch_of_bytes, (_arrow_bytes(value),)
        if isinstance(value, pa.Array):
            return _column_of_batch, (pa.RecordBatch.from_arrays([value], names=["column"]),)
        return NotImplemented


def _packed(value: object) -> bytes:
    """Return the bytes of which `pickle.loads` makes a value again."""
    file = io.BytesIO()
    _Packer(file, protocol=5).dump(value)
    return file.getvalue()


def _arrow_rows(batch: pa.RecordBatch, came_from: StreamId, places: Places | None) -> ArrowRows:
    """Return Arrow rows again; they have no ids of messages."""
    return ArrowRows(batch, came_from=came_from, places=places)


def _arrow_bytes(batch: pa.RecordBatch) -> bytes:
    """Return the bytes of an Arrow stream of a batch; those of a slice have its rows alone."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _batch_of_bytes(data: bytes) -> pa.RecordBatch:
    """Return the only batch of an Arrow stream."""
    return pa.ipc.open_stream(data).read_next_batch()


def _column_of_batch(batch: pa.RecordBatch) -> pa.Array:
    """Return the only column of a batch."""
    return batch.column(0)


def pack_block(block: RowBlock) -> bytes:
    """Return a block of rows as bytes."""
    return _packed(block)


def unpack_block(data: bytes) -> RowBlock:
    """Return the block of rows that `pack_block` turned into bytes."""
    block: RowBlock = pickle.loads(data)
    return block


def pack_error(error: Exception) -> bytes:
    """Return, as bytes, an exception that was raised in the place of an answer.

    If it cannot be pickled, they are those of a `TrackingError` with its class and text.
    """
    try:
        error_bytes = pickle.dumps(error, protocol=5)
        pickle.loads(error_bytes)  # some can be written, and not read
    except BaseException:  # noqa: BLE001 - an error of the user, which may have code of the user
        text = f"{class_name(type(error))}: {text_of(error)}"
        return pickle.dumps(TrackingError(text), protocol=5)
    return error_bytes


def pack_answer(answer: ChildAnswer) -> bytes:
    """Return a child's answer as bytes."""
    return _packed(answer)


def unpack_answer(data: bytes) -> ChildAnswer:
    """Return the answer that is in bytes; if they have an exception of the child, raise it."""
    answer: ChildAnswer | Exception = pickle.loads(data)
    if isinstance(answer, Exception):
        raise answer
    return answer
