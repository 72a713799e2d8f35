"""What a worker and its child send each other, as bytes: blocks of rows, and answers.

A *block* is some rows for which a task's bolts are called. The bytes are pickles of *packed*
values, in which Arrow data are the bytes of an Arrow stream: of a slice that has the slice's rows
alone.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from acker.errors import TrackingError
from acker.wire.causes import class_name
from spout.planning.order import GateState
from spout.publishing.fold import TaskReport
from spout.tuples.anchors import Anchors, Carry
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


class _PackedArrowRows(NamedTuple):
    """`ArrowRows`, with the batch as the bytes of an Arrow stream."""

    batch_bytes: bytes
    came_from: StreamId
    places: Places | None


class _PackedAnchors(NamedTuple):
    """`Anchors`, with the column as the bytes of an Arrow stream."""

    carry: Carry
    column_bytes: bytes
    subscriptions: tuple[int, ...]


class _PackedBlock(NamedTuple):
    """A `RowBlock` whose parts can be pickled; messages are packed as `MessageRows.packed` does."""

    rows: _PackedArrowRows | tuple[Any, ...]
    anchors: _PackedAnchors | None
    rows_before: int
    gate_state: GateState | None


def pack_block(block: RowBlock) -> bytes:
    """Return a block of rows as bytes."""
    packed_rows: _PackedArrowRows | tuple[Any, ...] = ()  # a task gets rows of one of the two kinds
    if isinstance(block.rows, MessageRows):
        packed_rows = block.rows.packed()
    elif isinstance(block.rows, ArrowRows):
        batch_bytes = _arrow_bytes([block.rows.batch])
        packed_rows = _PackedArrowRows(batch_bytes, block.rows.came_from, block.rows.places)
    packed_anchors: _PackedAnchors | None = None
    if block.anchors is not None:
        anchor_batch = pa.RecordBatch.from_arrays([block.anchors.column], names=["anchor"])
        packed_anchors = _PackedAnchors(
            block.anchors.carry,
            _arrow_bytes([anchor_batch]),
            block.anchors.subscriptions,
        )
    packed = _PackedBlock(packed_rows, packed_anchors, block.rows_before, block.gate_state)
    return pickle.dumps(packed, protocol=5)


def unpack_block(data: bytes) -> RowBlock:
    """Return the block of rows that `pack_block` turned into bytes."""
    packed: _PackedBlock = pickle.loads(data)
    if isinstance(packed.rows, _PackedArrowRows):
        (batch,) = _batches_of_bytes(packed.rows.batch_bytes)
        rows: Rows = ArrowRows(batch, came_from=packed.rows.came_from, places=packed.rows.places)
    else:
        rows = MessageRows.unpacked(packed.rows)
    anchors: Anchors | None = None
    if packed.anchors is not None:
        (anchor_batch,) = _batches_of_bytes(packed.anchors.column_bytes)
        column = anchor_batch.column(0)
        anchors = Anchors(packed.anchors.carry, column, packed.anchors.subscriptions)
    return RowBlock(rows, anchors, packed.rows_before, packed.gate_state)


def pack_error(error: Exception) -> bytes:
    """Return, as bytes, an exception that was raised in the place of an answer.

    If it cannot be pickled, they are those of a `TrackingError` with its class and text.
    """
    try:
        error_bytes = pickle.dumps(error, protocol=5)
        pickle.loads(error_bytes)  # some can be written, and not read
    except Exception:  # noqa: BLE001 - an error of the user, which may have code of the user
        text = f"{class_name(type(error))}: {text_of(error)}"
        return pickle.dumps(TrackingError(text), protocol=5)
    return error_bytes


def pack_answer(answer: ChildAnswer) -> bytes:
    """Return a child's answer as bytes."""
    return pickle.dumps((_arrow_bytes(answer.batches), answer.report), protocol=5)


def unpack_answer(data: bytes) -> ChildAnswer:
    """Return the answer that is in bytes; if they have an exception of the child, raise it."""
    answer = pickle.loads(data)
    if isinstance(answer, Exception):
        raise answer
    batch_bytes, report = answer
    return ChildAnswer(_batches_of_bytes(batch_bytes), report)


def _arrow_bytes(batches: list[pa.RecordBatch]) -> bytes:
    """Return the bytes of an Arrow stream of batches of one schema; without a batch they are empty.

    Of a batch that is a slice the stream has no more than the slice. A pickle would have the whole
    batch that was cut.
    """
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _batches_of_bytes(data: bytes) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream; of empty bytes there is none."""
    return list(pa.ipc.open_stream(data)) if data else []
