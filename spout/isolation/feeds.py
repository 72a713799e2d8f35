"""Blocks of rows as bytes, for the way from a worker to the child that it forked, and back: as
pickles.

*Packed* is what can be pickled: Arrow data are an Arrow stream in it, which has no more than the
rows of a slice.
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
"""Rows that a child works on at a time, where bolts work row by row: no more are worked on again."""


class Feed(NamedTuple):
    """A block of rows for a child.

    Attributes:
        anchors: of the rows; None: the rows have them in themselves, as they
            come from a stage before.
        rows_before: how many rows the task was fed before.
        gate_state: what the gate of the task knows of rows in lines; None: they
            are in none.
    """

    rows: Rows
    anchors: Anchors | None
    rows_before: int = 0
    gate_state: GateState | None = None

    def blocks(self, size: int) -> list[Feed]:
        """Return it in blocks of `size` rows, the last with what is left.

        Without rows it is one block.
        """
        return [self._cut(start, size) for start in range(0, len(self.rows), size)] or [self]

    def _cut(self, start: int, size: int) -> Feed:
        """Return the rows [start, start + size), or fewer at the end, as a block of their own."""
        if isinstance(self.rows, MessageRows):
            rows: Rows = self.rows.part(start, size)
        elif isinstance(self.rows, ArrowRows):
            places = self.rows.places and self.rows.places[start : start + size]
            rows = ArrowRows(self.rows.batch.slice(start, size), came_from=self.rows.came_from, places=places)
        else:
            raise TypeError(f"a task is fed messages or Arrow rows, not {type(self.rows).__name__}")
        anchors = self.anchors
        if anchors is not None:
            anchors = replace(anchors, column=anchors.column.slice(start, size))
        return Feed(rows, anchors, self.rows_before + start)


class ChildAnswer(NamedTuple):
    """What a child answers: the rows that it returns, and what it reports, if it was asked for that."""

    batches: list[pa.RecordBatch]
    report: TaskReport | None


class _PackedArrowRows(NamedTuple):
    """`ArrowRows`, with the batch as an Arrow stream."""

    stream: bytes
    came_from: StreamId
    places: Places | None


class _PackedAnchors(NamedTuple):
    """`Anchors`, with the column as an Arrow stream."""

    carry: Carry
    stream: bytes
    subscriptions: tuple[int, ...]


class _PackedFeed(NamedTuple):
    """A `Feed` whose parts can be pickled; messages are packed as `MessageRows.packed` does."""

    rows: _PackedArrowRows | tuple[Any, ...]
    anchors: _PackedAnchors | None
    rows_before: int
    gate_state: GateState | None


def pack_feed(feed: Feed) -> bytes:
    """Return a block of rows as bytes."""
    rows: _PackedArrowRows | tuple[Any, ...] = ()  # a task is fed one of the two
    if isinstance(feed.rows, MessageRows):
        rows = feed.rows.packed()
    elif isinstance(feed.rows, ArrowRows):
        rows = _PackedArrowRows(_pack([feed.rows.batch]), feed.rows.came_from, feed.rows.places)
    anchors: _PackedAnchors | None = None
    if feed.anchors is not None:
        batch = pa.RecordBatch.from_arrays([feed.anchors.column], names=["anchor"])
        anchors = _PackedAnchors(feed.anchors.carry, _pack([batch]), feed.anchors.subscriptions)
    return pickle.dumps(_PackedFeed(rows, anchors, feed.rows_before, feed.gate_state), protocol=5)


def unpack_feed(data: bytes) -> Feed:
    """Return the block of rows that `pack_feed` turned into bytes."""
    packed: _PackedFeed = pickle.loads(data)
    if isinstance(packed.rows, _PackedArrowRows):
        (batch,) = _unpack(packed.rows.stream)
        rows: Rows = ArrowRows(batch, came_from=packed.rows.came_from, places=packed.rows.places)
    else:
        rows = MessageRows.unpacked(packed.rows)
    anchors: Anchors | None = None
    if packed.anchors is not None:
        (anchor_batch,) = _unpack(packed.anchors.stream)
        column = anchor_batch.column(0)
        anchors = Anchors(packed.anchors.carry, column, packed.anchors.subscriptions)
    return Feed(rows, anchors, packed.rows_before, packed.gate_state)


def pack_error(error: Exception) -> bytes:
    """Return what was raised in the place of an answer as bytes.

    If it cannot be pickled, its text.
    """
    try:
        data = pickle.dumps(error, protocol=5)
        pickle.loads(data)  # some can be written, and not read
    except Exception:  # noqa: BLE001 - an error of the user, which may have code of the user
        text = f"{class_name(type(error))}: {text_of(error)}"
        return pickle.dumps(TrackingError(text), protocol=5)
    return data


def pack_answer(answer: ChildAnswer) -> bytes:
    """Return a child's answer as bytes."""
    return pickle.dumps((_pack(answer.batches), answer.report), protocol=5)


def unpack_answer(data: bytes) -> ChildAnswer:
    """Return the answer in bytes; raise what was raised in the child in its place."""
    answer = pickle.loads(data)
    if isinstance(answer, Exception):
        raise answer
    batches, report = answer
    return ChildAnswer(_unpack(batches), report)


def _pack(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches of one schema as an Arrow stream; without a batch it is empty.

    Of a slice the stream has no more than the slice; a pickle would have the
    whole batch behind it.
    """
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _unpack(data: bytes) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream."""
    return list(pa.ipc.open_stream(data)) if data else []
