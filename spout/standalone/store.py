"""Items that wait and items that are open: which client has which, and which comes next; pure.

An item is a number, its *serial*; a lower one is older. An item waits, or one
client has it open, or it has left. A client opens the oldest waiting items,
under one `Lease`: that is who has which items open, and until when. Items that
it puts back wait again in their old place.

Source: docs/design/conformance.md, S154 to S166; docs/design/protocol.md,
section 5.1; Kestrel's ``PersistentQueue``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count as counting
from typing import Final, NamedTuple

import numpy as np

from acker.errors import TupleError
from acker.root_sets.position_set import PositionSet
from acker.wire.events import PositionRun

NOBODY: Final = ""
"""The client in the lease of an item that comes from `peek`."""

WINDOW_MS_MAX = 1_000
"""As many records are kept ready as were opened within this time; a short timeout makes it shorter."""

WINDOWS_PER_TIMEOUT = 8
"""A record that is ready waits for at most an eighth of its timeout, or about that."""

AHEAD_MAX = 20_000
"""At most this many records are ready before a client requests any."""

DEADLINES_KEPT = 1_000
"""So many deadlines of leases that were settled in time may be kept; more are dropped."""

LEASE_BLOCK_BITS: Final = 4
"""Leases are found by blocks of 16 serials: those of the serials that differ in these lowest bits alone."""


class Lease:
    """The items of one `PendingStore.open`, for one client.

    Attributes:
        store, client: whose items they are, and who has them open.
        runs: the items that it had at first, as runs of serials, ascending.
        is_whole: whether all of `runs` are open still; then `singles` is not
            used, and empty.
        singles: the items that are open, once one of them was settled alone.
        until_ms: when its remaining items are put back, wall time; None:
            never.
        parts: by the serial of an item that was split, the numbers of its
            parts that are still open.
        lost: by the serial of an item that was taken away, why.
    """

    __slots__ = ("client", "is_whole", "lost", "parts", "runs", "singles", "store", "until_ms")

    def __init__(
        self, store: PendingStore, client: str, runs: tuple[PositionRun, ...], until_ms: int | None
    ) -> None:
        """Hold the items of some runs for a client; all of them are open."""
        self.store = store
        self.client = client
        self.runs = runs
        self.until_ms = until_ms
        self.parts: dict[int, set[int]] = {}  # by an item's serial: the numbers of its open parts
        self.lost: dict[int, str] = {}  # by an item's serial: why it was taken away
        # open items: all of `runs`, or once one was settled alone, `singles`
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


class _Deadline(NamedTuple):
    """When the open items of a lease are put back, wall time.

    `number` decides where two times are equal, since leases cannot be
    compared.
    """

    until_ms: int
    number: int
    lease: Lease


class PendingStore:
    """The items of one input; `is_closed` when its spout was closed or has stopped."""

    def __init__(self) -> None:
        """Begin without an item."""
        self.is_closed = False
        self._waiting = PositionSet()
        # items that a client had open and that were put back; some may have
        # left since
        self._put_back = PositionSet()
        # the leases with an open item, by client, and by the blocks of the
        # serials that they had at first; dicts with None for each, since these
        # keep the order and sets do not
        self._leases_by_client: dict[str, dict[Lease, None]] = {}
        self._leases_by_block: dict[int, dict[Lease, None]] = {}
        # by client; no Counter: to store into one takes three times as long
        self._open_counts: dict[str, int] = {}
        self._deadlines: list[_Deadline] = []  # a heap
        self._deadline_numbers = counting()

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return len(self._waiting)

    def open_of(self, client: str) -> int:
        """Return how many items a client has open."""
        return self._open_counts.get(client, 0)

    def open_by_client(self) -> dict[str, int]:
        """Return how many items each client has open; clients without any are left out."""
        return {client: count for client, count in self._open_counts.items() if count}

    def add(self, start: int, end: int) -> None:
        """Add new items, which wait: the serials [start, end)."""
        self._waiting.add(start, end)

    def peek(self) -> int | None:
        """Return the item that would be opened next; None if none waits."""
        return self._waiting.first

    def never_opened(self, end: int) -> list[PositionRun]:
        """Return the waiting items with serials below `end` that no client has had, ascending."""
        put_back_runs: list[PositionRun] = []
        never_opened_runs: list[PositionRun] = []
        for waiting_start, waiting_end in self._waiting:
            put_back_runs += self._put_back.within(waiting_start, waiting_end)
            older_end = min(waiting_end, end)
            if waiting_start < older_end:
                never_opened_runs += self._put_back.outside(waiting_start, older_end)
        # who was opened again, or has left, is forgotten
        self._put_back = PositionSet(put_back_runs)
        return never_opened_runs

    def open(self, client: str, count: int, until_ms: int | None = None) -> Lease | None:
        """Open the oldest waiting items for a client, at most `count`; None when none waits.

        `until_ms`: when those that it has not settled are put back, wall time;
        None: never.
        """
        runs: list[PositionRun] = []
        room = count
        for start, end in self._waiting:
            if room <= 0:
                break
            runs.append(PositionRun(start, min(end, start + room)))
            room -= end - start
        if not runs:
            return None
        lease = Lease(self, client, tuple(runs), until_ms)
        self._waiting.remove_all(runs)
        self._leases_by_client.setdefault(client, {})[lease] = None
        for block in _blocks(runs):
            self._leases_by_block.setdefault(block, {})[lease] = None
        self._open_counts[client] = self._open_counts.get(client, 0) + len(lease)
        self._put_deadline(lease)
        return lease

    def split(self, client: str, lease: Lease, serial: int, parts: int) -> bool:
        """Split an item: it is settled only when all its parts are. Return whether it is still open."""
        require_own(client, lease)
        if serial not in lease:
            return False
        if serial in lease.parts:
            raise TupleError(f"client {client!r} split an item twice; hand out the parts that there are")
        lease.parts[serial] = set(range(parts))
        return True

    def settle_part(self, client: str, lease: Lease, serial: int, part: int) -> bool:
        """Settle a part of an item, and with the last part the item; return whether it was the last one."""
        require_own(client, lease)
        open_parts = lease.parts.get(serial, set())
        if serial not in lease or part not in open_parts:  # the item or the part is settled already
            return False
        open_parts.discard(part)
        if open_parts:
            return False
        del lease.parts[serial]
        return self.settle(client, lease, serial)

    def settle(self, client: str, lease: Lease, serial: int) -> bool:
        """Remove an open item for good, unless parts of it are open; return whether it was open."""
        if lease.client != client:
            require_own(client, lease)
        if lease.parts:
            refuse_parts(client, lease, serial)
        return self._remove_open(lease, serial)

    def settle_all(self, client: str, lease: Lease) -> list[PositionRun]:
        """Remove all remaining items of a lease for good, unless parts are open; return them."""
        require_own(client, lease)
        for serial in lease.parts:
            refuse_parts(client, lease, serial)
        return self._remove_all_open(lease)

    def drop(self, client: str, lease: Lease, serial: int) -> bool:
        """Do as `settle`, whatever parts are open: the item failed."""
        require_own(client, lease)
        lease.parts.pop(serial, None)
        return self._remove_open(lease, serial)

    def drop_all(self, client: str, lease: Lease) -> list[PositionRun]:
        """Do as `settle_all`, whatever parts are open: the items failed."""
        require_own(client, lease)
        return self._remove_all_open(lease)

    def put_back(self, client: str, lease: Lease, serial: int) -> bool:
        """Put an open item back in its old place among those that wait; return whether it was open."""
        if not self.drop(client, lease, serial):
            return False
        self._waiting.add(serial, serial + 1)
        self._put_back.add(serial, serial + 1)
        return True

    def put_back_all(self, client: str, lease: Lease) -> int:
        """Put all remaining items of a lease back, and return how many there were."""
        require_own(client, lease)
        return self._put_back_open(lease)

    def oldest(self, client: str, count: int) -> list[tuple[Lease, int]]:
        """Return the oldest items that a client has open, at most `count`, each with its lease."""
        lease_by_serial: dict[int, Lease] = {}
        for lease in self._leases_by_client.get(client, ()):
            lease_by_serial.update(dict.fromkeys(lease.items(), lease))
        return [(lease_by_serial[serial], serial) for serial in nsmallest(count, lease_by_serial)]

    def prolong(self, client: str, lease: Lease, until_ms: int) -> None:
        """Put the remaining items of a lease back later, if it has a deadline."""
        require_own(client, lease)
        if lease.until_ms is not None:
            lease.until_ms = max(lease.until_ms, until_ms)

    def put_back_of_client(self, client: str) -> int:
        """Put all open items of a client back, and forget it: it died, or was closed.

        Return how many items there were.
        """
        returned_count = 0
        for lease in list(self._leases_by_client.get(client, ())):
            returned_count += self._put_back_open(lease)
        self._leases_by_client.pop(client, None)
        self._open_counts.pop(client, None)
        return returned_count

    def expire(self, now_ms: int) -> int:
        """Put back the remaining items of leases whose deadline has passed; return how many there were."""
        returned_count = 0
        while self._deadlines and self._deadlines[0].until_ms <= now_ms:
            lease = heappop(self._deadlines).lease
            is_prolonged = lease.until_ms is not None and lease.until_ms > now_ms
            if is_prolonged:
                self._put_deadline(lease)
            else:
                returned_count += self._put_back_open(lease)
        self._drop_settled_deadlines()
        return returned_count

    def _put_deadline(self, lease: Lease) -> None:
        """Add the deadline of a lease to the heap, if it has one."""
        if lease.until_ms is not None:
            number = next(self._deadline_numbers)
            heappush(self._deadlines, _Deadline(lease.until_ms, number, lease))

    def _drop_settled_deadlines(self) -> None:
        """Drop deadlines of leases without an open item, once most of them are of such.

        A lease that is settled in time leaves its deadline behind: to look for
        it in the heap would cost more than to keep it for a while.
        """
        lease_count = sum(map(len, self._leases_by_client.values()))
        if len(self._deadlines) > 2 * lease_count + DEADLINES_KEPT:
            self._deadlines = [deadline for deadline in self._deadlines if len(deadline.lease)]
            heapify(self._deadlines)

    def take_away(self, why_by_serial: Mapping[int, str]) -> list[PositionRun]:
        """Take items away, waiting or open, and keep why: they will be replayed, or are dead letters.

        Return those that were here, ascending; the others were settled before.
        """
        runs = runs_of_serials(why_by_serial)
        taken_away: set[int] = set()
        for run in runs:
            for waiting_run in self._waiting.within(*run):
                taken_away.update(range(*waiting_run))
        self._waiting.remove_all(runs)
        for serial, why in why_by_serial.items():
            lease = self._lease_of(serial)
            if lease is not None:
                lease.lost[serial] = why
                lease.parts.pop(serial, None)
                self._remove_open(lease, serial)
                taken_away.add(serial)
        return runs_of_serials(taken_away)

    def _lease_of(self, serial: int) -> Lease | None:
        """Return the lease of an open item; None: nobody has it open."""
        for lease in self._leases_by_block.get(serial >> LEASE_BLOCK_BITS, ()):
            if serial in lease.items():
                return lease
        return None

    def _put_back_open(self, lease: Lease) -> int:
        """Put the open items of a lease back; return how many there were."""
        runs = self._remove_all_open(lease)
        for run in runs:
            self._put_back.add(*run)
        return sum(self._waiting.add(*run) for run in runs)

    def _remove_open(self, lease: Lease, serial: int) -> bool:
        """Take an open item out of its lease; return whether it was open."""
        # this is called for each confirmation: the call of `items` is left out
        # where it need not be
        open_items = lease.items() if lease.is_whole else lease.singles
        try:
            open_items.remove(serial)
        except KeyError:
            return False
        self._open_counts[lease.client] -= 1
        if not open_items:
            self._forget(lease)
        return True

    def _remove_all_open(self, lease: Lease) -> list[PositionRun]:
        """Take all open items out of a lease, which ends; return them, ascending."""
        runs = lease.left()
        if runs:
            self._open_counts[lease.client] -= len(lease)
            self._forget(lease)
        lease.runs = ()
        lease.parts.clear()
        lease.items().clear()
        return runs

    def _forget(self, lease: Lease) -> None:
        """Remove a lease without an open item from where it is looked up."""
        del self._leases_by_client[lease.client][lease]
        for block in _blocks(lease.runs):
            leases_of_block = self._leases_by_block[block]
            del leases_of_block[lease]
            if not leases_of_block:
                del self._leases_by_block[block]


class Demand:
    """How many records are kept ready for the clients of an input.

    A planned record is pending, and its timeout runs. So only as many are
    planned as clients request now, and as many again as they opened, or
    requested and did not get, a short time before: in the present window of
    time, or the one before it.
    """

    __slots__ = ("_count_before", "_count_now", "_window_began_ms", "_window_ms")

    def __init__(self, timeout_ms: int) -> None:
        """Begin without a request; `timeout_ms` is that of the input's roots, 0: they have none."""
        self._window_ms = WINDOW_MS_MAX
        if timeout_ms:
            self._window_ms = min(WINDOW_MS_MAX, timeout_ms // WINDOWS_PER_TIMEOUT)
        self._window_began_ms = 0  # wall time
        # how many records clients opened or requested, in the window before
        # and in the present one
        self._count_before = 0
        self._count_now = 0

    def record_opened(self, count: int, now_ms: int) -> None:
        """Record that clients opened so many records."""
        self._begin_window_if_over(now_ms)
        self._count_now += count

    def record_missed(self, count: int, now_ms: int) -> None:
        """Record a request for `count` records when fewer were ready."""
        self._begin_window_if_over(now_ms)
        # not added: whoever asks for 10 records again and again wants 10
        self._count_now = max(self._count_now, count)

    def records_ahead(self, now_ms: int) -> int:
        """Return how many records to keep ready before a client requests them."""
        self._begin_window_if_over(now_ms)
        return min(AHEAD_MAX, max(self._count_before, self._count_now))

    def _begin_window_if_over(self, now_ms: int) -> None:
        """Begin a new window once the present one is over."""
        past_ms = now_ms - self._window_began_ms
        if 0 <= past_ms < self._window_ms:
            return
        # a window that ended long ago, or a clock that was set back, tells
        # nothing about the present demand
        is_next = self._window_ms <= past_ms < 2 * self._window_ms
        self._count_before = self._count_now if is_next else 0
        self._count_now = 0
        self._window_began_ms = now_ms


def require_own(client: str, lease: Lease) -> None:
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
    open_parts = lease.parts.get(serial, set()) - done
    if open_parts:
        raise TupleError(
            f"client {client!r} confirmed an item of which {len(open_parts)} parts are open; confirm those"
        )


def _blocks(runs: Sequence[PositionRun]) -> Iterable[int]:
    """Return the numbers of the blocks of 16 serials that runs lie in: of [14, 33) these are 0, 1 and 2."""
    if len(runs) == 1:  # nearly always, and no set is made
        [(start, end)] = runs
        return range(start >> LEASE_BLOCK_BITS, (end - 1 >> LEASE_BLOCK_BITS) + 1)
    blocks: set[int] = set()
    for run in runs:
        blocks.update(_blocks([run]))
    return blocks


def runs_of_serials(serials: Iterable[int]) -> list[PositionRun]:
    """Group distinct items into maximal runs, ascending."""
    return list(PositionSet.of_positions(np.fromiter(serials, np.int64)))
