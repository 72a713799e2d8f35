"""What a client gets: the items of one `open`, single items, and parts of an item.

The *lease* of an item (spout.standalone.store) tells who has it open; there it
is named by its *serial*. A segment has the messages of neighbouring items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from reprlib import Repr
from typing import Any, Final, overload

from spout.standalone.item_records import Segment
from spout.standalone.store import Lease
from spout.tuples.messages import GETTERS, MessageRows
from spout.tuples.tuple import Tuple

SHOWN_CHARACTERS: Final = 60
"""How many characters of a wrong argument an error message shows."""

_SHORT_REPR: Final = Repr()
_SHORT_REPR.maxother = _SHORT_REPR.maxstring = SHOWN_CHARACTERS


class Item(Tuple):
    """A record that a client has open: a tuple as a bolt sees it, ``item["value"]``, ``item.message_id``.

    >>> item = client.open(1)[0]
    >>> item["value"], item.message_id.origin, item.is_open
    (b'the hawk hovers', 'sentences/0@0', True)
    >>> client.confirm(item), item.is_open
    (1, False)
    """

    __slots__ = ("lease", "serial")

    def __init__(self, rows: MessageRows, row: int, lease: Lease, serial: int) -> None:
        """Make the item of a row, which a lease has, or had, under a serial."""
        self._rows = rows
        self._row = row
        self.lease = lease
        self.serial = serial

    @property
    def is_open(self) -> bool:
        """Whether its client has it open: it is not settled, put back or lost, nor its spout closed."""
        return self.serial in self.lease and not self.lease.store.is_closed

    def __hash__(self) -> int:
        return hash((id(self.lease), self.serial))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.lease is other.lease and self.serial == other.serial


class Part:
    """One of several tuples that an item was split into; the item is confirmed when all of them are.

    >>> item = client.open(1)[0]
    >>> header, body = client.split(item, 2)
    >>> client.confirm(header), item.is_open
    (0, True)
    >>> client.confirm(body), item.is_open
    (1, False)
    """

    __slots__ = ("item", "number")

    def __init__(self, item: Item, number: int) -> None:
        self.item = item
        self.number = number


class Items(Sequence[Item]):
    """The result of one `open`, the oldest item first; it may be empty. `confirm` takes it as a whole.

    >>> items = client.open(10)
    >>> len(items), [item["value"] for item in items]
    (2, [b'the hawk hovers', b'the hawk waits'])
    >>> items.column("offset")
    [0, 1]
    >>> client.confirm(items)
    2
    """

    __slots__ = ("_segments", "lease")

    def __init__(self, lease: Lease | None = None, segments: Sequence[Segment] = ()) -> None:
        """Hold the items of a lease; None, for no items: nobody has them."""
        self.lease = lease
        self._segments = segments

    def column(self, name: str) -> list[Any]:
        """Return one field of all items, in order: faster than item by item.

        Raises `KeyError`: records have no such field (`spout.read_stream`).
        """
        if name not in GETTERS:
            raise KeyError(name)
        values: list[Any] = []
        for segment in self._segments:
            values += segment.message_rows().values(name)
        return values

    def __len__(self) -> int:
        return sum(len(segment.messages) for segment in self._segments)

    def __iter__(self) -> Iterator[Item]:
        """Yield the items, the oldest first; each is a row of its segment's messages."""
        lease = self.lease
        if lease is None:  # there are no items
            return
        for segment in self._segments:
            rows = segment.message_rows()
            for row in range(len(segment.messages)):
                yield Item(rows, row, lease, segment.start + row)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return list(self)[index]
        row = range(len(self))[index]  # a negative index counts from the end
        for segment in self._segments:
            if row < len(segment.messages) and self.lease is not None:
                return Item(segment.message_rows(), row, self.lease, segment.start + row)
            row -= len(segment.messages)  # the row counts from the start of the next segment
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"Items({len(self)} of {self.lease.client if self.lease else 'nobody'})"


def shortened(value: object) -> str:
    """Return a short text of a wrong argument, for an error message."""
    return _SHORT_REPR.repr(value)
