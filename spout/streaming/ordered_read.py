"""How a read task orders the records of one partition: first copies, sorted by their origins.

The batch has all copies that are not settled (`spout.planning_process.order_watch`), and
everything that was emitted before has a lower origin than what is new. The `Gate` of the
partition lets records pass in that order, and fails those that are blocked.

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
"""Memory for the copies that a task keeps while it sorts them; copies that come later in order
fail, and come again.
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
        """The memory that it takes, in bytes; roughly."""
        return len(self.message) + len(record_key(self.message) or b"") + RECORD_BYTES


def origin_of(headers: Headers, topic: str, partition: int) -> int | None:
    """Return the offset of a copy's first emission; None where that was not in this partition."""
    value = our_values(headers).get(ORIGIN, b"")
    location = parse_location(value.decode("utf-8", "replace"))
    if location is None:
        return None
    origin_topic, origin_partition, offset = location
    return offset if (origin_topic, origin_partition) == (topic, partition) else None


class LeftCopy(NamedTuple):
    """A copy for which there was no room, without its value.

    `origin` and `key` None: it has none.
    """

    origin: int | None
    position: int
    key: bytes | None


class Copies:
    """Copies of one partition, sorted in limited memory.

    Attributes:
        left_over: those for which there was no room, which are behind all others in order.
    """

    def __init__(self, bytes_max: int = COPIES_BYTES_MAX) -> None:
        """Begin without a copy; those that are kept take `bytes_max` of memory at most."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._copies: list[Copy] = []
        self._lowest_rank_left: tuple[int, int] | None = None  # of `left_over`; None: that is empty
        self.left_over: list[LeftCopy] = []

    def add(self, copies: Iterable[Copy]) -> None:
        """Keep copies, within `bytes_max`.

        Those that are last in order go to `left_over` where there is no room; one is kept in any
        case. With room for two, of copies with the origins 7, 3 and 5 the one of 7 is left over,
        and then each with a higher origin.
        """
        for copy in copies:
            if self._lowest_rank_left is not None and _rank(copy) > self._lowest_rank_left:
                # there may be room for it, but it would overtake one that is left over
                self._leave_over(copy)
            else:
                self._copies.append(copy)
                self._bytes += copy.bytes
        if self._bytes <= self._bytes_max:
            return
        self._copies.sort(key=_rank)
        while self._bytes > self._bytes_max and len(self._copies) > 1:
            last_copy = self._copies.pop()
            self._bytes -= last_copy.bytes
            self._lowest_rank_left = _rank(last_copy)
            self._leave_over(last_copy)

    def _leave_over(self, copy: Copy) -> None:
        """Add a copy to `left_over`: its message is dropped, and what refuses it is kept."""
        self.left_over.append(LeftCopy(copy.origin, copy.position, record_key(copy.message)))

    def in_order(self, copies_max: int) -> Iterator[Sequence[Copy]]:
        """Yield the copies that are kept in order, in lists of at most `copies_max`."""
        self._copies.sort(key=_rank)
        for start in range(0, len(self._copies), copies_max):
            yield self._copies[start : start + copies_max]

    def refuse_left_over(self, gate: Gate, index_of: Callable[[int], int]) -> list[tuple[int, Cause]]:
        """Refuse the copies in `left_over`, so that the gate blocks what comes behind them.

        Return the index of each in the batch's plan, with the cause of its failure; empty: there
        was room for all. `index_of` returns the index of a position.
        """
        why = f"the task keeps {self._bytes_max >> 20} MiB of copies of {gate.partition_name}"
        failures: list[tuple[int, Cause]] = []
        for origin, position, key in self.left_over:
            index = index_of(position)
            cause = gate.refuse(index, key, origin, why)
            failures.append((index, cause))
        return failures


def _rank(copy: Copy) -> tuple[int, int]:
    """Return what copies are sorted by: the origin, then the position.

    Copies whose origin is in another partition come first, since nothing in this one precedes
    them.
    """
    origin = -1 if copy.origin is None else copy.origin
    return origin, copy.position
