"""Reads `Acks` without copying what is packed in them: the one kind of record that comes by the gigabyte.

A generic decoder copies both arrays, half a megabyte for a full block, which costs as much as folding them.
Here they stay where they are, as views of the record. Whatever is unusual (another kind, an array in
several blocks, many runs, anything that does not fit) is left to the generic decoder, and so are its errors.

Source: Avro 1.12 specification, "Binary encoding"; the fields are those of ``acker/wire/acks.avsc``.
"""

from __future__ import annotations

from typing import Final, cast

from acker.wire.codec import HEADER_BYTES
from acker.wire.events import Acks, PositionRun

RUNS_MAX: Final = 32
"""More runs than this are decoded faster by compiled code."""


class _Unusual(Exception):
    """The record is for the generic decoder."""


class _Cursor:
    __slots__ = ("_at", "_data", "_view")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._at = HEADER_BYTES

    def long(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            at += 1
            byte = data[at]
            number |= (byte & 0x7F) << shift
            shift += 7
        self._at = at + 1
        if number >> 64:
            raise _Unusual
        return (number >> 1) ^ -(number & 1)

    def packed(self) -> bytes:
        return cast("bytes", self._view[self._skip() : self._at])

    def _skip(self) -> int:
        length = self.long()
        first, end = self._at, self._at + length
        if length < 0 or end > len(self._data):
            raise _Unusual
        self._at = end
        return first

    def text(self) -> str:
        return self._data[self._skip() : self._at].decode()

    def runs(self) -> tuple[PositionRun, ...]:
        count = self.long()
        if count == 0:
            return ()
        if not 0 < count <= RUNS_MAX:
            raise _Unusual
        runs = tuple([PositionRun(self.long(), self.long()) for _ in range(count)])
        if self.long() != 0:
            raise _Unusual
        return runs

    def end(self) -> None:
        if self._at != len(self._data):
            raise _Unusual


def read_acks(data: bytes, header: bytes) -> Acks | None:
    """Read contributions; their packed fields are views of `data` and keep it alive.

    Returns None if the generic decoder must read them; `header` is the ten bytes that `Acks` begins with.
    """
    if not data.startswith(header):
        return None
    cursor = _Cursor(data)
    try:
        record = Acks(
            cursor.text(), cursor.long(), cursor.text(), cursor.text(), cursor.long(), cursor.long(),
            cursor.long(), cursor.runs(), cursor.packed(), cursor.packed(), cursor.runs(), cursor.packed(),
            cursor.long(),
        )  # fmt: skip
        cursor.end()
    except (IndexError, UnicodeDecodeError, _Unusual):
        return None
    return record
