"""The line in which ticks and takes wait until they count, in the order of the log.

An acker that was away for long reads a day's ticks of every group at once, so nothing here may cost more
where more is waiting: whatever is put in, counted or merged away is found without a search.

Source: docs/design/protocol.md, section 4, "Order between the three topics" (b).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from acker.ledger.cohort import Session


class Barrier(NamedTuple):
    """Ends of ``_ack_ack`` and ``_ack_fail``, as seen after a record of ``_ack_init`` was read."""

    ack: int
    fail: int


@dataclass(slots=True, eq=False)
class Pending:
    """A tick, or a take, that was read and does not count yet.

    Attributes:
        session: whose it is.
        now_ms: the clock that a tick tells; 0 for a take.
        take: whether it is a take.
        before_ms: for a take over a group, the clock of the session before; None for a restart.
        barrier: what must be applied first; None until the ends were asked for.
    """

    session: Session
    now_ms: int
    take: bool = False
    before_ms: int | None = None
    barrier: Barrier | None = None


class Line:
    """Pending ticks and takes. Those without a barrier are always the last ones."""

    def __init__(self) -> None:
        """Begin empty."""
        self._items: OrderedDict[Pending, None] = OrderedDict()
        self._ticks: dict[Session, deque[Pending]] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._items)

    def __iter__(self) -> Iterator[Pending]:
        """Return them in the order of the log."""
        return iter(self._items)

    def __reversed__(self) -> Iterator[Pending]:
        """Return them, what was read last first."""
        return reversed(self._items)

    @property
    def first(self) -> Pending | None:
        """What counts next; None when nothing waits."""
        return next(iter(self), None)

    @property
    def last(self) -> Pending | None:
        """What was read last; None when nothing waits."""
        return next(reversed(self), None)

    def append(self, item: Pending) -> None:
        """Add what was read."""
        self._items[item] = None
        if not item.take:
            self._ticks.setdefault(item.session, deque()).append(item)

    def ticks_of(self, session: Session) -> int:
        """Return how many ticks of a session wait."""
        return len(self._ticks.get(session, ()))

    def drop_last_tick(self, session: Session) -> None:
        """Take out the last tick of a session that has one."""
        del self._items[self._ticks[session].pop()]

    def drop(self, take: Pending) -> None:
        """Take out a take."""
        del self._items[take]

    def popleft(self) -> Pending:
        """Take out what counts next."""
        item, _ = self._items.popitem(last=False)
        if not item.take:
            ticks = self._ticks[item.session]
            ticks.popleft()
            if not ticks:
                del self._ticks[item.session]
        return item
