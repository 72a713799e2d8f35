"""Items that wait and items that are open: which client has which, and which comes next; pure.

An item is a number, its serial; a lower one is older. An item waits, or one client has it open, or it has
left. A client opens the oldest waiting items, under one `Lease`. Items that it puts back wait again in their
old place.

Source: docs/design/conformance.md, S154 to S166; docs/design/protocol.md, section 5.1; Kestrel's
``PersistentQueue``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count as counting
from typing import Final

import numpy as np

from acker.errors import TupleError
from acker.root_sets.position_set import PositionSet
from acker.wire.events import PositionRun

NOBODY: Final = ""
"""The client in the lease of an item that comes from `peek`."""

WINDOW_MS_MAX = 1_000
"""As many records are kept ready as were opened within this time; a short timeout makes it shorter."""

TIMEOUT_SHARE = 8
"""A record that is ready waits for at most about this fraction of the timeout."""

AHEAD_MAX = 20_000
"""At most this many records are ready before a client requests any."""

DEADLINES_KEPT = 1_000
"""So many deadlines of leases that were settled in time may be kept; more are dropped."""

HOLDERS_BITS: Final = 4
"""The lease of an item is looked for among those of the serials that differ in these lowest bits alone."""


class Lease:
    """The items of one `PendingStore.open`, for one client.

    Attributes:
        runs: the items that it had at first, ascending; all are open while `is_whole`, later `singles`.
        until_ms: when its remaining items are put back, wall time; None: never.
        parts: for each item that was split, the parts that are still open.
        lost: for each item that was taken away, why.
    """

    __slots__ = ("client", "is_whole", "lost", "parts", "runs", "singles", "store", "until_ms")

    def __init__(
        self, store: PendingStore, client: str, runs: tuple[PositionRun, ...], until_ms: int | None
    ) -> None:
        self.store = store
        self.client = client
        self.runs = runs
        self.until_ms = until_ms
        self.parts: dict[int, set[int]] = {}
        self.lost: dict[int, str] = {}
        self.is_whole = True
        self.singles: set[int] = set()

    def __len__(self) -> int:
        return sum(end - start for start, end in self.runs) if self.is_whole else len(self.singles)

    def __contains__(self, serial: object) -> bool:
        if self.is_whole:
            return isinstance(serial, int) and any(start <= serial < end for start, end in self.runs)
        return serial in self.singles

    def left(self) -> list[PositionRun]:
        """Return the items that are still open, ascending."""
        return list(self.runs) if self.is_whole else runs_of_serials(self.singles)

    def items(self) -> set[int]:
        """Return the open items as a set; it is built when the first item is settled alone."""
        if self.is_whole:
            self.singles = {serial for run in self.runs for serial in range(*run)}
            self.is_whole = False
        return self.singles


class PendingStore:
    """The items of one input; `is_closed` when its spout was closed or has stopped."""

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting = PositionSet()
        self._leases: dict[str, dict[Lease, None]] = {}
        # by the serials that they had at first, without the lowest bits
        self._holders: dict[int, dict[Lease, None]] = {}
        self._open: dict[str, int] = {}  # no Counter: to store into one takes three times as long
        self._deadlines: list[tuple[int, int, Lease]] = []
        self._numbers = counting()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def open_of(self, client: str) -> int:
        return self._open.get(client, 0)

    def open_by_client(self) -> dict[str, int]:
        """Return how many items each client has open; clients without any are left out."""
        return {client: count for client, count in self._open.items() if count}

    def add(self, start: int, end: int) -> None:
        self._waiting.add(start, end)

    def peek(self) -> int | None:
        """Return the item that would be opened next; None if none waits."""
        return self._waiting.first

    def open(self, client: str, count: int, until_ms: int | None = None) -> Lease | None:
        """Open the oldest waiting items for a client, at most `count`; None when none waits."""
        runs: list[PositionRun] = []
        for start, end in self._waiting:
            if count <= 0:
                break
            runs.append(PositionRun(start, min(end, start + count)))
            count -= end - start
        if not runs:
            return None
        lease = Lease(self, client, tuple(runs), until_ms)
        self._waiting.remove_all(runs)
        self._leases.setdefault(client, {})[lease] = None
        for block in _blocks(runs):
            self._holders.setdefault(block, {})[lease] = None
        self._open[client] = self._open.get(client, 0) + len(lease)
        self._put_deadline(lease)
        return lease

    def split(self, client: str, lease: Lease, serial: int, parts: int) -> bool:
        """Split an item: it is settled only when all its parts are. Return whether it is still open."""
        own(client, lease)
        if serial not in lease:
            return False
        if serial in lease.parts:
            raise TupleError(f"client {client!r} split an item twice; hand out the parts that there are")
        lease.parts[serial] = set(range(parts))
        return True

    def settle_part(self, client: str, lease: Lease, serial: int, part: int) -> bool:
        """Settle a part of an item, and with the last part the item; return whether it was the last one."""
        own(client, lease)
        left = lease.parts.get(serial, set())
        if serial not in lease or part not in left:
            return False
        left.discard(part)
        if left:
            return False
        del lease.parts[serial]
        return self.settle(client, lease, serial)

    def settle(self, client: str, lease: Lease, serial: int) -> bool:
        """Remove an open item for good, unless parts of it are open; return whether it was open."""
        if lease.client != client:
            own(client, lease)
        if lease.parts:
            refuse_parts(client, lease, serial)
        return self._close(lease, serial)

    def settle_all(self, client: str, lease: Lease) -> list[PositionRun]:
        """Remove all remaining items of a lease for good, unless parts are open; return them."""
        own(client, lease)
        for serial in lease.parts:
            refuse_parts(client, lease, serial)
        return self._close_all(lease)

    def drop(self, client: str, lease: Lease, serial: int) -> bool:
        """Do as `settle`, whatever parts are open: the item failed."""
        own(client, lease)
        lease.parts.pop(serial, None)
        return self._close(lease, serial)

    def drop_all(self, client: str, lease: Lease) -> list[PositionRun]:
        """Do as `settle_all`, whatever parts are open: the items failed."""
        own(client, lease)
        return self._close_all(lease)

    def put_back(self, client: str, lease: Lease, serial: int) -> bool:
        """Let an open item wait again, in its old place; return whether it was open."""
        if not self.drop(client, lease, serial):
            return False
        self._waiting.add(serial, serial + 1)
        return True

    def put_back_all(self, client: str, lease: Lease) -> int:
        """Let all remaining items of a lease wait again, and return how many there were."""
        own(client, lease)
        return self._return(lease)

    def oldest(self, client: str, count: int) -> list[tuple[Lease, int]]:
        """Return the oldest items that a client has open, at most `count`, each with its lease."""
        held = [(serial, lease) for lease in self._leases.get(client, ()) for serial in lease.items()]
        return [(lease, serial) for serial, lease in nsmallest(count, held, key=lambda pair: pair[0])]

    def prolong(self, client: str, lease: Lease, until_ms: int) -> None:
        """Put the remaining items of a lease back later, if it has a deadline."""
        own(client, lease)
        if lease.until_ms is not None:
            lease.until_ms = max(lease.until_ms, until_ms)

    def leave(self, client: str) -> int:
        """Let all open items of a client wait again, and forget it: it died, or was closed."""
        returned = sum(self._return(lease) for lease in list(self._leases.get(client, ())))
        self._leases.pop(client, None)
        self._open.pop(client, None)
        return returned

    def expire(self, now_ms: int) -> int:
        """Put back the remaining items of leases whose deadline has passed; return how many there were."""
        returned = 0
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            lease = heappop(self._deadlines)[2]
            is_prolonged = lease.until_ms is not None and lease.until_ms > now_ms
            if is_prolonged:
                self._put_deadline(lease)
            else:
                returned += self._return(lease)
        self._drop_settled_deadlines()
        return returned

    def _put_deadline(self, lease: Lease) -> None:
        if lease.until_ms is not None:
            # numbers decide between two leases with the same deadline: leases cannot be compared
            heappush(self._deadlines, (lease.until_ms, next(self._numbers), lease))

    def _drop_settled_deadlines(self) -> None:
        """Drop deadlines of leases without an open item, once most of them are of such.

        A lease that is settled in time leaves its deadline behind: to look for it in the heap would cost more
        than to keep it for a while.
        """
        open_leases = sum(map(len, self._leases.values()))
        if len(self._deadlines) > 2 * open_leases + DEADLINES_KEPT:
            self._deadlines = [deadline for deadline in self._deadlines if len(deadline[2])]
            heapify(self._deadlines)

    def lose(self, reasons: Mapping[int, str]) -> list[PositionRun]:
        """Take items away, waiting or open, for a reason each: they will be replayed, or are dead letters.

        Returns those that were here, ascending.
        """
        gone = runs_of_serials(reasons)
        lost = {serial for run in gone for at in self._waiting.within(*run) for serial in range(*at)}
        self._waiting.remove_all(gone)
        for serial, why in reasons.items():
            near = self._holders.get(serial >> HOLDERS_BITS, ())
            lease = next((each for each in near if serial in each.items()), None)
            if lease is not None:
                lease.lost[serial] = why
                lease.parts.pop(serial, None)
                self._close(lease, serial)
                lost.add(serial)
        return runs_of_serials(lost)

    def _return(self, lease: Lease) -> int:
        runs = self._close_all(lease)
        return sum(self._waiting.add(*run) for run in runs)

    def _close(self, lease: Lease, serial: int) -> bool:
        left = lease.items() if lease.is_whole else lease.singles  # no call for each of many confirmations
        try:
            left.remove(serial)
        except KeyError:
            return False
        self._open[lease.client] -= 1
        if not left:
            self._forget(lease)
        return True

    def _close_all(self, lease: Lease) -> list[PositionRun]:
        runs = lease.left()
        if runs:
            self._open[lease.client] -= len(lease)
            self._forget(lease)
        lease.runs = ()
        lease.parts.clear()
        lease.items().clear()
        return runs

    def _forget(self, lease: Lease) -> None:
        del self._leases[lease.client][lease]
        for block in _blocks(lease.runs):
            near = self._holders[block]
            del near[lease]
            if not near:
                del self._holders[block]


class Demand:
    """How many records are kept ready for the clients of an input.

    A planned record is pending, and its timeout runs. So only as many are planned as clients request now, and
    as many again as they opened, or requested and did not get, a short time before.
    """

    __slots__ = ("_before", "_began_ms", "_now", "_window_ms")

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms` is that of the input's roots; 0: they have none."""
        self._window_ms = min(WINDOW_MS_MAX, timeout_ms // TIMEOUT_SHARE) if timeout_ms else WINDOW_MS_MAX
        self._began_ms = 0
        self._before = self._now = 0

    def opened(self, count: int, now_ms: int) -> None:
        self._turn(now_ms)
        self._now += count

    def missed(self, count: int, now_ms: int) -> None:
        """Note a request for `count` records when fewer were ready."""
        self._turn(now_ms)
        self._now = max(self._now, count)

    def ahead(self, now_ms: int) -> int:
        """Return how many records to keep ready before a client requests them."""
        self._turn(now_ms)
        return min(AHEAD_MAX, max(self._before, self._now))

    def _turn(self, now_ms: int) -> None:
        past_ms = now_ms - self._began_ms
        if 0 <= past_ms < self._window_ms:
            return
        self._before = self._now if self._window_ms <= past_ms < 2 * self._window_ms else 0
        self._now = 0
        self._began_ms = now_ms


def own(client: str, lease: Lease) -> None:
    """Refuse with a `TupleError` what another client has open, or what comes from `peek`."""
    if lease.client == NOBODY:
        raise TupleError(
            f"client {client!r} settled an item that was only peeked at; open it first, and settle what"
            " `open` returned"
        )
    if lease.client != client:
        raise TupleError(
            f"client {client!r} settled what {lease.client!r} has open; each client settles what it opened"
        )


def refuse_parts(client: str, lease: Lease, serial: int, done: Set[int] = frozenset()) -> None:
    """Refuse with a `TupleError` an item that has open parts, except those in `done`."""
    left = lease.parts.get(serial, set()) - done
    if left:
        raise TupleError(
            f"client {client!r} confirmed an item of which {len(left)} parts are open; confirm those"
        )


def _blocks(runs: Sequence[PositionRun]) -> Iterable[int]:
    if len(runs) == 1:  # nearly always, and no set is made
        [(start, end)] = runs
        return range(start >> HOLDERS_BITS, (end - 1 >> HOLDERS_BITS) + 1)
    return {block for run in runs for block in _blocks([run])}


def runs_of_serials(serials: Iterable[int]) -> list[PositionRun]:
    """Group distinct items into maximal runs, ascending."""
    return list(PositionSet.of_positions(np.fromiter(serials, np.int64)))
