"""An in-memory log whose transactions may be committed in part.

A delayed request to commit the transaction before comes while the next one is open (KIP-890, part 2): what
that has written so far is committed, the rest is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from acker.errors import Unreachable
from acker.kafka.port import Outgoing, Transactions
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.clients import Faults, MemoryTransactions
from tests.support.memory.cluster import MemoryLog

IsLast = Callable[[Outgoing | None], bool]
"""Asked after each record, and with None at a flush, of each transaction but an owner's first: whether the
rest of it is refused."""


class CutTransactions(MemoryTransactions):
    """Writes in transactions of which only a part may be committed."""

    def __init__(self, broker: MemoryBroker, faults: Faults, transactional_id: str, is_last: IsLast) -> None:
        super().__init__(broker, faults, transactional_id)
        self._is_last = is_last
        self._has_committed = False

    def send(self, record: Outgoing, on_offset: Callable[[int], None] | None = None) -> None:
        super().send(record, on_offset)
        self._cut_behind(record)

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        self._cut_behind(None)

    def commit(self, timeout_ms: int) -> None:
        super().commit(timeout_ms)
        self._has_committed = True

    def _cut_behind(self, record: Outgoing | None) -> None:
        if self._has_committed and self._is_last(record):
            self._end(committed=True)
            raise Unreachable("the rest of the transaction is refused")


class CuttingLog(MemoryLog):
    """A client's view of a cluster whose transactions are cut."""

    def __init__(self, broker: MemoryBroker, faults: Faults, is_last: IsLast) -> None:
        super().__init__(broker, faults)
        self._is_last = is_last

    def transactions(self, transactional_id: str) -> Transactions:
        return CutTransactions(self._broker, self._faults, transactional_id, self._is_last)
