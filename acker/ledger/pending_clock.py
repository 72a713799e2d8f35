"""The line in which ticks and takes wait, in the order of the log, until they count.

An acker that was down for long reads a day's ticks of every group at once. So no operation here may become
slower when more items wait: whatever is added, counted or dropped is found without a search.

Source: docs/design/protocol.md, section 4, "Order between the three topics" (b).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from acker.ledger.cohort import Session


class Barrier(NamedTuple):
    """The end offsets of ``_ack_ack`` and ``_ack_fail``, fetched after a record of ``_ack_init`` was read."""

    ack: int
    fail: int


@dataclass(slots=True, eq=False)
class Pending:
    """A tick or take that was read and does not count yet.

    Attributes:
        now_ms: the time in the tick; 0 for a take.
        before_ms: for a take that changes the owner, what the clock of the former owner showed (0 without
            one); None if the session owned the group already, that is, after a restart.
        barrier: the offsets below which all must be applied first; None until the ends were fetched.
    """

    session: Session
    now_ms: int
    take: bool = False
    before_ms: int | None = None
    barrier: Barrier | None = None


class PendingQueue:
    """Ticks and takes that wait. Those without a barrier are always the last ones."""

    def __init__(self) -> None:
        self._items: OrderedDict[Pending, None] = OrderedDict()
        self._ticks: dict[Session, deque[Pending]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[Pending]:
        return reversed(self._items)

    @property
    def first(self) -> Pending | None:
        """The item that counts next; None when nothing waits."""
        return next(iter(self), None)

    @property
    def last(self) -> Pending | None:
        """The item that was read last; None when nothing waits."""
        return next(reversed(self), None)

    def append(self, item: Pending) -> None:
        self._items[item] = None
        if not item.take:
            self._ticks.setdefault(item.session, deque()).append(item)

    def ticks_of(self, session: Session) -> int:
        return len(self._ticks.get(session, ()))

    def drop_last_tick(self, session: Session) -> None:
        """Remove the last tick of a session; the session must have one."""
        del self._items[self._ticks[session].pop()]

    def drop(self, take: Pending) -> None:
        del self._items[take]

    def popleft(self) -> Pending:
        """Remove and return the item that counts next."""
        item, _ = self._items.popitem(last=False)
        if not item.take:
            ticks = self._ticks[item.session]
            ticks.popleft()
            if not ticks:
                del self._ticks[item.session]
        return item
