"""How a read task puts the records of one partition in order: the copies first, sorted by their origins.

The batch has all copies that are not settled (`spout.planning_process.order_watch`), and everything that was
emitted before has a lower origin than what is new.

Source: docs/design/protocol.md, section 5.1; `spout.planning.order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Message

from acker.kafka.port import Headers
from replay.records.headers import ORIGIN, our_values, parse_location
from spout.planning.order import Gate
from spout.tuples.failures import Cause
from spout.tuples.messages import record_key

COPIES_BYTES_MAX: Final = 256 << 20
"""Memory for the copies that a task keeps while it sorts them; copies that come later in order fail, and come
again.
"""

RECORD_BYTES: Final = 600
"""Memory of a message apart from its key and value, in bytes."""


class Copy(NamedTuple):
    """A copy with its place in the order; `origin` None: its origin is not in this partition."""

    origin: int | None
    position: int
    message: Message

    @property
    def bytes(self) -> int:
        return len(self.message) + len(record_key(self.message) or b"") + RECORD_BYTES


def origin_of(headers: Headers, topic: str, partition: int) -> int | None:
    """Return the offset of a copy's first emission; None where that was not in this partition."""
    value = our_values(headers).get(ORIGIN, b"")
    found = parse_location(value.decode("utf-8", "replace"))
    return found[2] if found is not None and found[:2] == (topic, partition) else None


class Copies:
    """Copies of one partition, sorted in limited memory."""

    def __init__(self, bytes_max: int = COPIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: list[Copy] = []
        self._first_left: tuple[int, int] | None = None
        self.left_over: list[tuple[int | None, int, bytes | None]] = []

    def add(self, copies: Iterable[Copy]) -> None:
        """Add copies; where memory ends, the last in order go to `left_over`, but one copy stays."""
        for copy in copies:
            if self._first_left is not None and _rank(copy) > self._first_left:
                self._leave(copy)  # though there may be room: it would overtake those that are left over
            else:
                self._kept.append(copy)
                self._bytes += copy.bytes
        if self._bytes <= self._bytes_max:
            return
        self._kept.sort(key=_rank)
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            last = self._kept.pop()
            self._bytes -= last.bytes
            self._first_left = _rank(last)
            self._leave(last)

    def _leave(self, copy: Copy) -> None:
        self.left_over.append((copy.origin, copy.position, record_key(copy.message)))

    def in_order(self, size: int) -> Iterator[Sequence[Copy]]:
        """Yield the kept copies in order, in lists of at most `size`."""
        self._kept.sort(key=_rank)
        for begin in range(0, len(self._kept), size):
            yield self._kept[begin : begin + size]

    def refuse_left_over(self, gate: Gate, index: Callable[[int], int]) -> list[tuple[int, Cause]]:
        """Refuse copies that are left over, and block what comes behind them; return roots with causes."""
        why = f"the task keeps {self._bytes_max >> 20} MiB of copies of {gate.place}"
        named = [(index(position), key, origin) for origin, position, key in self.left_over]
        return [(at, gate.refuse(at, key, origin, why)) for at, key, origin in named]


def _rank(copy: Copy) -> tuple[int, int]:
    return -1 if copy.origin is None else copy.origin, copy.position
