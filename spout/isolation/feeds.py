"""Blocks of rows as bytes, for the way from a worker to the child that it forked, and back: as pickles."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from acker.errors import TrackingError
from spout.planning.order import Slip
from spout.publishing.fold import TaskReport
from spout.tuples.anchors import Anchors
from spout.tuples.messages import MessageRows
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Rows, text_of

BLOCK_ROWS: Final = 1_000
"""Rows that a child works on at a time, where bolts work row by row: no more are worked on again."""


class Feed(NamedTuple):
    """A block of rows, with their anchors, unless they are of a stage before; those in lines have a slip.

    `first`: how many rows the task was fed before.
    """

    rows: Rows
    anchors: Anchors | None
    first: int = 0
    slip: Slip | None = None

    def blocks(self, size: int) -> list[Feed]:
        return [self._cut(first, size) for first in range(0, len(self.rows), size)] or [self]

    def _cut(self, first: int, size: int) -> Feed:
        if isinstance(self.rows, MessageRows):
            rows: Rows = self.rows.part(first, size)
        elif isinstance(self.rows, ArrowRows):
            places = self.rows.places and self.rows.places[first : first + size]
            rows = ArrowRows(self.rows.batch.slice(first, size), came_from=self.rows.came_from, places=places)
        else:
            raise TypeError(f"a task is fed messages or Arrow rows, not {type(self.rows).__name__}")
        anchors = self.anchors
        column = anchors and replace(anchors, column=anchors.column.slice(first, size))
        return Feed(rows, column, self.first + first)


class Worked(NamedTuple):
    """What a child answers: the rows that it returns, and what it reports, if it was asked for that."""

    batches: list[pa.RecordBatch]
    report: TaskReport | None


def pack_feed(feed: Feed) -> bytes:
    rows, anchors, *first_and_slip = feed
    packed: Any = rows.packed() if isinstance(rows, MessageRows) else None
    if isinstance(rows, ArrowRows):
        packed = _pack([rows.batch]), rows.came_from, rows.places
    if anchors is None:
        return pickle.dumps((packed, None, first_and_slip), protocol=5)
    column = pa.RecordBatch.from_arrays([anchors.column], names=["anchor"])
    anchored = anchors.carry, _pack([column]), anchors.subscriptions
    return pickle.dumps((packed, anchored, first_and_slip), protocol=5)


def unpack_feed(data: bytes) -> Feed:
    packed, anchored, first_and_slip = pickle.loads(data)
    if len(packed) == 3:
        rows: Rows = ArrowRows(_unpack(packed[0])[0], came_from=packed[1], places=packed[2])
    else:
        rows = MessageRows.unpacked(packed)
    if anchored is None:
        return Feed(rows, None, *first_and_slip)
    carry, column, subscriptions = anchored
    anchors = Anchors(carry, _unpack(column)[0].column(0), subscriptions)
    return Feed(rows, anchors, *first_and_slip)


def pack_error(error: Exception) -> bytes:
    """Turn what was raised in the place of an answer into bytes; an error that cannot travel goes as text."""
    try:
        data = pickle.dumps(error, protocol=5)
        pickle.loads(data)  # some can be written, and not read
    except Exception:  # noqa: BLE001 - an error of the user, which may have code of the user
        return pickle.dumps(TrackingError(f"{type(error).__name__}: {text_of(error)}"), protocol=5)
    return data


def pack_worked(worked: Worked) -> bytes:
    return pickle.dumps((_pack(worked.batches), worked.report), protocol=5)


def unpack_worked(data: bytes) -> Worked:
    """Turn bytes into an answer; `Exception`: what was raised in the child in its place."""
    answer = pickle.loads(data)
    if isinstance(answer, Exception):
        raise answer
    batches, report = answer
    return Worked(_unpack(batches), report)


def _pack(batches: list[pa.RecordBatch]) -> bytes:
    """Write batches of one schema as an Arrow stream, which holds of a slice no more than the slice."""
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _unpack(data: bytes) -> list[pa.RecordBatch]:
    return list(pa.ipc.open_stream(data)) if data else []
