"""Items that wait and items that are open: which client has which, and which comes next; pure.

An item is a number, its *serial*; a lower one is older. An item waits, or one
client has it open, or it has left. A client opens the oldest waiting items,
under one *lease* (`Lease`): that is who has which items open, and until when.
Items that it puts back wait again in their old place. A run of serials is
[start, end).

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
"""As many records are kept ready as were opened in such a time; a short timeout makes it shorter."""

WINDOWS_PER_TIMEOUT = 8
"""A record that is ready waits for at most an eighth of its timeout, or about that."""

AHEAD_MAX = 20_000
"""At most this many records are ready before a client requests any."""

DEADLINES_KEPT = 1_000
"""So many deadlines of leases that were settled in time may be kept; more are dropped."""

LEASE_BLOCK_BITS: Final = 4
"""The lease of an item is looked up by the item's *block*: 16 serials that differ in these bits.

The block of the serials 16 to 31 has the number 1.
"""


class Lease:
    """The items of one `PendingStore.open`, for one client.

    Attributes:
        store, client: whose items they are, and who has them open.
        runs: the items that it had at first, as runs of serials, ascending.
        is_whole: whether all items of `runs` are open still; then `open_set`
            is not used, and empty.
        open_set: the serials of the open items, once one item was settled
            alone.
        put_back_at_ms: when its open items are put back, wall time; None:
            never.
        open_parts_by_serial: by the serial of an item that was split, the
            numbers of its parts that are still open.
        why_lost_by_serial: by the serial of an item that this lease had open
            and whose root was lost, why.
    """

    __slots__ = (
        "client",
        "is_whole",
        "open_parts_by_serial",
        "open_set",
        "put_back_at_ms",
        "runs",
        "store",
        "why_lost_by_serial",
    )

    def __init__(
        self,
        store: PendingStore,
        client: str,
        runs: tuple[PositionRun, ...],
        put_back_at_ms: int | None,
    ) -> None:
        """Hold the items of some runs for a client; all of them are open."""
        self.store = store
        self.client = client
        self.runs = runs
        self.put_back_at_ms = put_back_at_ms
        self.open_parts_by_serial: dict[int, set[int]] = {}
        self.why_lost_by_serial: dict[int, str] = {}
        # Most leases are settled as a whole: then no set is ever built.
        self.is_whole = True
        self.open_set: set[int] = set()

    def __len__(self) -> int:
        """Return how many items are open."""
        if self.is_whole:
            return sum(end - start for start, end in self.runs)
        return len(self.open_set)

    def __contains__(self, serial: object) -> bool:
        """Return whether an item is open under this lease."""
        if not self.is_whole:
            return serial in self.open_set
        return isinstance(serial, int) and any(start <= serial < end for start, end in self.runs)

    def open_runs(self) -> list[PositionRun]:
        """Return the open items, as runs of serials, ascending."""
        return list(self.runs) if self.is_whole else runs_of_serials(self.open_set)

    def fill_open_set(self) -> set[int]:
        """Return `open_set`; fill it from `runs` when it is needed for the first time.

        From then on the lease is not whole, and whoever settles an item
        removes it from this set.
        """
        if self.is_whole:
            self.open_set = {serial for run in self.runs for serial in range(*run)}
            self.is_whole = False
        return self.open_set


class OpenItem(NamedTuple):
    """An item that a client has open, and under which lease."""

    lease: Lease
    serial: int


class _Deadline(NamedTuple):
    """At which wall time the open items of a lease are put back.

    `number` is another one for each deadline: a heap compares it where two
    times are equal, since leases cannot be compared.
    """

    at_ms: int
    number: int
    lease: Lease


class PendingStore:
    """The items of one input; `is_closed` when its spout was closed or has stopped."""

    def __init__(self) -> None:
        """Begin without an item."""
        self.is_closed = False
        # serials of items that wait
        self._waiting_serials = PositionSet()
        # serials of items that a client had open and that were put back; some
        # may be open again since, or have left
        self._returned_serials = PositionSet()
        # The leases with an open item, by client, and by the number of each
        # block in which they had an item at first. The values are dicts used
        # as sets (lease to None), since dicts keep the order.
        self._leases_by_client: dict[str, dict[Lease, None]] = {}
        self._leases_by_block: dict[int, dict[Lease, None]] = {}
        # no Counter: to store into one takes three times as long
        self._open_count_by_client: dict[str, int] = {}
        # a heap; a lease whose deadline was moved, or that was settled in
        # time, still stands in it at its former deadline
        self._deadlines: list[_Deadline] = []
        self._deadline_numbers = counting()

    @property
    def waiting_count(self) -> int:
        """How many items wait."""
        return len(self._waiting_serials)

    def open_count_of(self, client: str) -> int:
        """Return how many items a client has open."""
        return self._open_count_by_client.get(client, 0)

    def open_count_by_client(self) -> dict[str, int]:
        """Return how many items each client has open; clients without any are left out."""
        return {client: count for client, count in self._open_count_by_client.items() if count}

    def add(self, start: int, end: int) -> None:
        """Add new items, which wait: the serials [start, end)."""
        self._waiting_serials.add(start, end)

    def peek(self) -> int | None:
        """Return the serial of the item that would be opened next; None if none waits."""
        return self._waiting_serials.first

    def never_opened(self, end: int) -> list[PositionRun]:
        """Return the waiting items with serials below `end` that no client has opened, ascending."""
        self._forget_returned_that_do_not_wait()
        runs: list[PositionRun] = []
        for waiting_start, waiting_end in self._waiting_serials:
            older_end = min(waiting_end, end)
            if waiting_start < older_end:
                runs += self._returned_serials.outside(waiting_start, older_end)
        return runs

    def _forget_returned_that_do_not_wait(self) -> None:
        """Forget which items were put back, of those that are open again or have left."""
        waiting_runs: list[PositionRun] = []
        for waiting_start, waiting_end in self._waiting_serials:
            waiting_runs += self._returned_serials.within(waiting_start, waiting_end)
        self._returned_serials = PositionSet(waiting_runs)

    def open(self, client: str, count: int, put_back_at_ms: int | None = None) -> Lease | None:
        """Open the oldest waiting items for a client, at most `count`; None when none waits.

        `put_back_at_ms`: when those that it has not settled are put back, wall
        time; None: never.
        """
        runs: list[PositionRun] = []
        missing_count = count
        for start, end in self._waiting_serials:
            if missing_count <= 0:
                break
            runs.append(PositionRun(start, min(end, start + missing_count)))
            missing_count -= end - start
        if not runs:
            return None
        lease = Lease(self, client, tuple(runs), put_back_at_ms)
        self._waiting_serials.remove_all(runs)
        self._leases_by_client.setdefault(client, {})[lease] = None
        for block_number in _block_numbers(runs):
            self._leases_by_block.setdefault(block_number, {})[lease] = None
        self._open_count_by_client[client] = self._open_count_by_client.get(client, 0) + len(lease)
        self._add_deadline(lease)
        return lease

    def split(self, client: str, lease: Lease, serial: int, part_count: int) -> bool:
        """Split an open item, so that it is confirmed when all its parts are.

        Return whether it is open; one that is not is not split. Raises
        `TupleError`: it was split before.
        """
        refuse_another_client(client, lease)
        if serial not in lease:
            return False
        if serial in lease.open_parts_by_serial:
            raise TupleError(f"client {client!r} split an item twice; hand out the parts that there are")
        lease.open_parts_by_serial[serial] = set(range(part_count))
        return True

    def confirm_part(self, client: str, lease: Lease, serial: int, part_number: int) -> bool:
        """Confirm a part of an item, and with its last open part the item.

        Return whether the item was confirmed by this. False: other parts are
        open, or the item or this part was settled before.
        """
        refuse_another_client(client, lease)
        open_parts = lease.open_parts_by_serial.get(serial, set())
        if serial not in lease or part_number not in open_parts:
            return False
        open_parts.discard(part_number)
        if open_parts:
            return False
        del lease.open_parts_by_serial[serial]
        return self.confirm(client, lease, serial)

    def confirm(self, client: str, lease: Lease, serial: int) -> bool:
        """Remove an open item for good; return whether it was open.

        Raises `TupleError`: it has open parts, or another client has it.
        """
        # both are asked here first, since a call more would cost time for
        # each item
        if lease.client != client:
            refuse_another_client(client, lease)
        if lease.open_parts_by_serial:
            refuse_open_parts(client, lease, serial)
        return self._remove_open(lease, serial)

    def confirm_all(self, client: str, lease: Lease) -> list[PositionRun]:
        """Remove all open items of a lease for good; return them, as runs of serials.

        Raises `TupleError`: one of them has open parts, or another client has
        them.
        """
        refuse_another_client(client, lease)
        for serial in lease.open_parts_by_serial:
            refuse_open_parts(client, lease, serial)
        return self._remove_all_open(lease)

    def remove(self, client: str, lease: Lease, serial: int) -> bool:
        """Remove an open item, whatever parts of it are open; return whether it was open."""
        refuse_another_client(client, lease)
        lease.open_parts_by_serial.pop(serial, None)
        return self._remove_open(lease, serial)

    def remove_all(self, client: str, lease: Lease) -> list[PositionRun]:
        """Remove all open items of a lease, whatever parts are open; return them, as runs."""
        refuse_another_client(client, lease)
        return self._remove_all_open(lease)

    def put_back(self, client: str, lease: Lease, serial: int) -> bool:
        """Put an open item back in its old place among the waiting ones; return whether it was open."""
        if not self.remove(client, lease, serial):
            return False
        self._waiting_serials.add(serial, serial + 1)
        self._returned_serials.add(serial, serial + 1)
        return True

    def put_back_all(self, client: str, lease: Lease) -> int:
        """Put all open items of a lease back, and return how many there were."""
        refuse_another_client(client, lease)
        return self._put_back_open(lease)

    def oldest(self, client: str, count: int) -> list[OpenItem]:
        """Return the oldest items that a client has open, at most `count`, ascending."""
        lease_by_serial: dict[int, Lease] = {}
        for lease in self._leases_by_client.get(client, ()):
            # a client may have 100,000 open: this is a third of the time of a loop
            lease_by_serial.update(dict.fromkeys(lease.fill_open_set(), lease))
        oldest_serials = nsmallest(count, lease_by_serial)
        return [OpenItem(lease_by_serial[serial], serial) for serial in oldest_serials]

    def prolong(self, client: str, lease: Lease, put_back_at_ms: int) -> None:
        """Move the deadline of a lease to `put_back_at_ms`, wall time, if it has an earlier one."""
        refuse_another_client(client, lease)
        if lease.put_back_at_ms is not None:
            # its entry in the heap stays; `put_back_expired` adds another one
            lease.put_back_at_ms = max(lease.put_back_at_ms, put_back_at_ms)

    def put_back_of_client(self, client: str) -> int:
        """Put all open items of a client back, and forget it: it died, or was closed.

        Return how many items there were.
        """
        returned_count = 0
        for lease in list(self._leases_by_client.get(client, ())):
            returned_count += self._put_back_open(lease)
        self._leases_by_client.pop(client, None)
        self._open_count_by_client.pop(client, None)
        return returned_count

    def put_back_expired(self, now_ms: int) -> int:
        """Put back the open items of leases whose deadline is over; return how many there were."""
        returned_count = 0
        while self._deadlines and self._deadlines[0].at_ms <= now_ms:
            lease = heappop(self._deadlines).lease
            was_prolonged = lease.put_back_at_ms is not None and lease.put_back_at_ms > now_ms
            if was_prolonged:
                self._add_deadline(lease)
            else:
                returned_count += self._put_back_open(lease)
        self._drop_deadlines_of_settled_leases()
        return returned_count

    def _add_deadline(self, lease: Lease) -> None:
        """Add the deadline of a lease to the heap, if it has one."""
        if lease.put_back_at_ms is not None:
            number = next(self._deadline_numbers)
            heappush(self._deadlines, _Deadline(lease.put_back_at_ms, number, lease))

    def _drop_deadlines_of_settled_leases(self) -> None:
        """Drop deadlines of leases without an open item, once most are of such leases.

        A lease that is settled in time leaves its deadline behind: to look for
        it in the heap would cost more than to keep it for a while.
        """
        lease_count = sum(map(len, self._leases_by_client.values()))
        if len(self._deadlines) > 2 * lease_count + DEADLINES_KEPT:
            self._deadlines = [deadline for deadline in self._deadlines if len(deadline.lease)]
            heapify(self._deadlines)

    def remove_lost(self, why_by_serial: Mapping[int, str]) -> list[PositionRun]:
        """Remove items whose roots were lost, waiting or open; the lease of an open one keeps why.

        Return those that were here, as runs of serials, ascending; the others
        were settled before.
        """
        lost_runs = runs_of_serials(why_by_serial)
        removed_serials: set[int] = set()
        # 1. items that wait
        for lost_run in lost_runs:
            for waiting_run in self._waiting_serials.within(*lost_run):
                removed_serials.update(range(*waiting_run))
        self._waiting_serials.remove_all(lost_runs)
        # 2. items that a client has open
        for serial, why in why_by_serial.items():
            lease = self._lease_of(serial)
            if lease is not None:
                lease.why_lost_by_serial[serial] = why
                lease.open_parts_by_serial.pop(serial, None)
                self._remove_open(lease, serial)
                removed_serials.add(serial)
        return runs_of_serials(removed_serials)

    def _lease_of(self, serial: int) -> Lease | None:
        """Return the lease of an open item; None: nobody has it open."""
        for lease in self._leases_by_block.get(serial >> LEASE_BLOCK_BITS, ()):
            if serial in lease.fill_open_set():
                return lease
        return None

    def _put_back_open(self, lease: Lease) -> int:
        """Put the open items of a lease back; return how many there were."""
        returned_count = 0
        for run in self._remove_all_open(lease):
            self._returned_serials.add(*run)
            returned_count += self._waiting_serials.add(*run)
        return returned_count

    def _remove_open(self, lease: Lease, serial: int) -> bool:
        """Remove an open item from its lease; return whether it was open."""
        # this is called for each confirmation: the call of `fill_open_set` is
        # left out where it need not be
        open_set = lease.fill_open_set() if lease.is_whole else lease.open_set
        try:
            open_set.remove(serial)
        except KeyError:
            return False
        self._open_count_by_client[lease.client] -= 1
        if not open_set:
            self._forget_lease(lease)
        return True

    def _remove_all_open(self, lease: Lease) -> list[PositionRun]:
        """Remove all open items from a lease, which ends; return them, as runs, ascending."""
        runs = lease.open_runs()
        if runs:
            # before the items are cleared: both need them
            self._open_count_by_client[lease.client] -= len(lease)
            self._forget_lease(lease)
        lease.runs = ()
        lease.open_parts_by_serial.clear()
        lease.fill_open_set().clear()
        return runs

    def _forget_lease(self, lease: Lease) -> None:
        """Remove a lease without an open item from where it is looked up."""
        del self._leases_by_client[lease.client][lease]
        for block_number in _block_numbers(lease.runs):
            leases_of_block = self._leases_by_block[block_number]
            del leases_of_block[lease]
            if not leases_of_block:
                del self._leases_by_block[block_number]


class Demand:
    """How many records are kept ready for the clients of an input.

    A planned record is pending, and its timeout runs. So only as many are
    planned as clients request now, and as many again as they opened, or
    requested and did not get, a short time before: in the present window of
    time, or the one before it.
    """

    __slots__ = ("_former_window_count", "_window_began_ms", "_window_count", "_window_ms")

    def __init__(self, timeout_ms: int) -> None:
        """Begin without a request; `timeout_ms` is that of the input's roots, 0: they have none."""
        self._window_ms = WINDOW_MS_MAX  # how long a window is
        if timeout_ms:
            self._window_ms = min(WINDOW_MS_MAX, timeout_ms // WINDOWS_PER_TIMEOUT)
        self._window_began_ms = 0  # wall time
        # how many records clients opened or requested, in the present window
        # and in the one before it
        self._window_count = 0
        self._former_window_count = 0

    def record_opened(self, count: int, now_ms: int) -> None:
        """Record that clients opened so many records."""
        self._begin_window_if_over(now_ms)
        self._window_count += count

    def record_unmet_request(self, count: int, now_ms: int) -> None:
        """Record a request for `count` records when fewer were ready."""
        self._begin_window_if_over(now_ms)
        # not added: whoever asks for 10 records again and again wants 10
        self._window_count = max(self._window_count, count)

    def count_to_keep_ready(self, now_ms: int) -> int:
        """Return how many records to keep ready before a client requests them."""
        self._begin_window_if_over(now_ms)
        return min(AHEAD_MAX, max(self._former_window_count, self._window_count))

    def _begin_window_if_over(self, now_ms: int) -> None:
        """Begin a new window once the present one is over."""
        window_age_ms = now_ms - self._window_began_ms
        if 0 <= window_age_ms < self._window_ms:
            return
        # a window that ended long ago, or a clock that was set back, tells
        # nothing about the present demand
        ended_just_now = self._window_ms <= window_age_ms < 2 * self._window_ms
        self._former_window_count = self._window_count if ended_just_now else 0
        self._window_count = 0
        self._window_began_ms = now_ms


def refuse_another_client(client: str, lease: Lease) -> None:
    """Refuse with a `TupleError` what another client has open, or what comes from `peek`."""
    if lease.client == NOBODY:
        raise TupleError(
            f"client {client!r} settled an item that was only peeked at; open it first, and settle"
            " what `open` returned"
        )
    if lease.client != client:
        raise TupleError(
            f"client {client!r} settled what {lease.client!r} has open; each client settles what it opened"
        )


def refuse_open_parts(
    client: str, lease: Lease, serial: int, confirmed_parts: Set[int] = frozenset()
) -> None:
    """Refuse with a `TupleError` an item with open parts other than those in `confirmed_parts`."""
    open_parts = lease.open_parts_by_serial.get(serial, set()) - confirmed_parts
    if open_parts:
        raise TupleError(
            f"client {client!r} confirmed an item of which {len(open_parts)} parts are open; confirm those"
        )


def _block_numbers(runs: Sequence[PositionRun]) -> Iterable[int]:
    """Return the numbers of the blocks that runs of serials lie in: of [14, 33) 0, 1 and 2."""
    if len(runs) == 1:  # nearly always, and no set is made
        [(start, end)] = runs
        return range(start >> LEASE_BLOCK_BITS, (end - 1 >> LEASE_BLOCK_BITS) + 1)
    block_numbers: set[int] = set()
    for run in runs:
        block_numbers.update(_block_numbers([run]))
    return block_numbers


def runs_of_serials(serials: Iterable[int]) -> list[PositionRun]:
    """Group distinct items into maximal runs, ascending."""
    return list(PositionSet.of_positions(np.fromiter(serials, np.int64)))
