"""How many items the arrays of an encoded record have, found without making any of them.

An item may take six bytes on the wire and half a kilobyte once it is decoded: 128 MB of them would
be gigabytes. So what may be long is counted before it is decoded.

Source: Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acker.errors import CodecError


def require_few_items(data: bytes, begin: int, schema: Mapping[str, Any], items_max: int) -> None:
    """Refuse a record whose arrays have more than `items_max` items altogether.

    Its Avro encoding begins at index `begin` of `data`, behind the header.

    Raises:
        CodecError: they have more, or the record ends too early.
    """
    counter = _ItemCounter(data, begin, schema["name"], items_max)
    try:
        counter.skip(schema)
    except IndexError:
        raise CodecError(f"{schema['name']} is cut off") from None


class _ItemCounter:
    """Goes through an encoded record, and counts the items of its arrays."""

    def __init__(self, data: bytes, begin: int, name: str, items_max: int) -> None:
        """Begin at an index of the data; `name` is that of the record's type, for errors."""
        self._data = data
        self._index = begin  # of the next byte
        self._name = name
        self._items_max = items_max
        self._items_left = items_max

    def skip(self, schema: Any) -> None:
        """Move the index behind the next value, which is of the type that the schema names.

        Raises `CodecError`: its arrays have too many items, or it is cut off.
        """
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if kind == "record":
            for field in schema["fields"]:
                self.skip(field["type"])
        elif kind == "array":
            self._skip_array(schema["items"])
        elif kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("bytes", "string"):
            self._skip_bytes(self._long())
        elif kind == "boolean":
            self._skip_bytes(1)
        else:
            raise TypeError(f"{self._name}: {kind} is no type of our schemas")

    def _skip_array(self, items: Any) -> None:
        """Pass over an array, and count its items; raise `CodecError` if they are too many."""
        # an array comes in blocks, each with its number of items; the last one has none
        while True:
            count = self._long()
            if count == 0:
                return
            if count < 0:
                # Avro's form of a block that says its size, too: -3
                # stands for 3 items, and the size in bytes follows
                count = -count
                self._long()
            self._items_left -= count
            if self._items_left < 0:
                raise CodecError(f"{self._name} has more than {self._items_max:,} items in its arrays")
            for _ in range(count):
                self.skip(items)

    def _skip_bytes(self, size: int) -> None:
        """Go on behind so many bytes."""
        if size < 0:
            raise CodecError(f"{self._name} has a value of {size} bytes")
        self._index += size

    def _long(self) -> int:
        """Read a number: zigzag, seven bits to a byte, the lowest first."""
        number = shift = 0
        while shift < 70:  # ten bytes hold 64 bits
            byte = self._data[self._index]
            self._index += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # the last one
                # zigzag: 0, 1, 2, 3 stand for 0, -1, 1, -2
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise CodecError(f"{self._name} has a number of more than 64 bits")
