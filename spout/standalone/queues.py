"""The items for the clients of a group, and what clients did with them; pure.

Each input has a queue with its own items; all share the records and the next publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from acker.config.settings import Input
from acker.errors import Damaged, TupleError, UsageError
from acker.identity import I64, Root, input_id_of, offset_of, partition_of
from acker.root_sets.root_set import RootSet
from acker.wire.events import Lost, PositionRun, SourceRun, positions
from spout.planning_process.status import PlannerStatus
from spout.standalone.item_records import ItemRecords, NextPublication
from spout.standalone.items import Item, Items, Part, shortened
from spout.standalone.store import NOBODY, Demand, Lease, PendingStore, own, refuse_parts
from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple

LATE_KEPT = 1_000
"""Names of roots that were settled too late, kept for the next report; more are only counted."""

Settleable = Item | Part | Items | Iterable[Item | Part]
"""What a client may settle in one call."""


@dataclass(slots=True)
class Queue:
    """One input: its items, how many records to keep ready, and how many clients wait for now."""

    name: str
    store: PendingStore
    demand: Demand
    requested: int = 0

    def room(self, limits: ClientLimits, count: int) -> int:
        """Return how many of `count` items a client may open; what it may not open would only time out."""
        return max(0, min(count, limits.max_open - self.store.open_of(limits.client)))

    def why_none(self, limits: ClientLimits) -> str:
        """Return why a client that waits gets no item."""
        own = self.store.open_of(limits.client)
        if own >= limits.max_open:
            return f"this client has {own} items open, as many as its max_open"
        held = sum(self.store.open_by_client().values())
        return f"no record is ready, and {held} are open with clients"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How many items of an input a client may have open, and when they are put back; None: at the timeout."""

    client: str
    max_open: int
    auto_abort_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SpoutStatus:
    """A spout as it is now; `group` has the session, its pending roots, verdicts and commits.

    `waiting` are records ready to be opened, by input, `open` those of each client, by input; `late` were
    settled after their root had timed out.
    """

    group: PlannerStatus
    waiting: Mapping[str, int]
    open: Mapping[str, Mapping[str, int]]
    late: int


class QueueCollection:
    """Gives items to clients and takes their settlements."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.by_name = {
            found.name: Queue(found.name, PendingStore(), Demand(found.timeout_ms)) for found in inputs
        }
        self.records = ItemRecords()
        self.publication = NextPublication()
        self.is_active = True
        self.damage: Damaged | None = None
        self.late_count = 0
        self.late_names: list[str] = []
        self.touched: list[SourceRun] = []
        self._by_id = {found.id: self.by_name[found.name] for found in inputs}
        self._stores = frozenset(queue.store for queue in self.by_name.values())

    def close(self) -> None:
        """End this spout: a settlement of its items is late from now on, wherever it is made."""
        for store in self._stores:
            store.is_closed = True

    # -- what comes in

    def queue(self, name: str | None) -> Queue:
        """Return the queue of an input; if there is only one, the name may be left out."""
        if name is None and len(self.by_name) == 1:
            return next(iter(self.by_name.values()))
        if name is None or name not in self.by_name:
            raise UsageError(f"name one of the inputs {', '.join(self.by_name)}, not {name!r}")
        return self.by_name[name]

    def lacking(self, now_ms: int) -> dict[str, int]:
        """Return, for each input with too few records, how many more to plan."""
        if not self.is_active or self.damage is not None:
            return {}
        lacking = {
            name: queue.requested + queue.demand.ahead(now_ms) - queue.store.waiting
            for name, queue in self.by_name.items()
        }
        return {name: count for name, count in lacking.items() if count > 0}

    def put(self, source: int, messages: list[Message], at: I64, topic_id: str = "") -> None:
        """Add records, one or more, as waiting items; the positions are ascending and initialised."""
        items = self.records.put(source, messages, at, topic_id)
        self._by_id[input_id_of(source)].store.add(*items)

    def lose(self, lost: Lost) -> bool:
        """Take away items whose roots were lost, such as TIMED_OUT; return whether any was here."""
        queue = self._by_id.get(input_id_of(lost.source))
        if queue is None:
            return False
        at = positions(lost.positions)
        reasons = {
            serial: f"{queue.name}/{partition_of(lost.source)}@{offset_of(position)} {lost.reason}"
            for run in self.records.serials(lost.source, at)
            for serial, position in zip(range(*run), self.records.positions([run])[lost.source], strict=True)
        }
        gone = queue.store.lose(reasons)
        self.records.let_go(gone)
        return bool(gone)

    def expire(self, now_ms: int) -> int:
        """Put back items that clients have had open for too long; return how many there were."""
        return sum(queue.store.expire(now_ms) for queue in self.by_name.values())

    # -- what clients do

    def open(self, limits: ClientLimits, queue: Queue, count: int, now_ms: int) -> Items:
        """Give waiting items to a client, as many as it may still open.

        Raises `Damaged`: a batch could not be read, and all that was read beside it is given out.
        """
        room = queue.room(limits, count)
        if not room or not self.is_active:
            return Items()
        until_ms = None if limits.auto_abort_ms is None else now_ms + limits.auto_abort_ms
        lease = queue.store.open(limits.client, room, until_ms)
        if lease is None and self.damage is not None:
            raise self.damage
        if lease is None:
            queue.demand.missed(room, now_ms)
            return Items()
        queue.demand.opened(len(lease), now_ms)
        if len(lease) < room:
            # else who once got few of many gets as few at each call, whatever waits: 3 of 500, then 3
            queue.demand.missed(room, now_ms)
        return Items(lease, self.records.segments(lease.runs))

    def peek(self, queue: Queue) -> Item | None:
        first = queue.store.peek()
        if first is None:
            return None
        run = PositionRun(first, first + 1)
        return Items(Lease(queue.store, NOBODY, (), None), self.records.segments([run]))[0]

    def confirm(self, client: str, what: Settleable) -> int:
        """Confirm items; return how many of them were open."""
        if type(what) is Item:  # the common case, called for every record
            lease = what.lease
            store = lease.store
            if store not in self._stores and not self._has(client, lease):
                return 0
            if store.settle(client, lease, what.serial):
                self.publication.confirmed.append(what.serial)
                return 1
            self._note_late(lease, what.serial)
            return 0
        if isinstance(what, Items):
            if what.lease is None or not self._has(client, what.lease):
                return 0
            runs = what.lease.store.settle_all(client, what.lease)
            self.publication.runs += runs
            self._note_all_late(what.lease)
            return sum(end - start for start, end in runs)
        if isinstance(what, Part):
            lease, serial = what.item.lease, what.item.serial
            if not self._has(client, lease):
                return 0
            if not lease.store.settle_part(client, lease, serial, what.number):
                self._note_late(lease, serial)
                return 0
            self.publication.confirmed.append(serial)
            return 1
        listed = self._owned("confirm", client, what)
        _check_parts(client, listed)
        return sum([self.confirm(client, each) for each in listed])

    def confirm_oldest(self, client: str, queue: Queue, count: int) -> int:
        """Confirm a client's oldest open items, whole ones only; none if it has fewer than `count` open."""
        held = queue.store.oldest(client, count)
        if len(held) < count:
            return 0
        for lease, serial in held:
            refuse_parts(client, lease, serial)
        settled = [serial for lease, serial in held if queue.store.settle(client, lease, serial)]
        self.publication.confirmed += settled
        return len(settled)

    def abort(self, client: str, what: Settleable) -> int:
        """Put items back; return how many of them were open."""
        if isinstance(what, Items):
            if what.lease is None or not self._has(client, what.lease):
                return 0
            return what.lease.store.put_back_all(client, what.lease)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._has(client, item.lease):
                return 0
            return int(item.lease.store.put_back(client, item.lease, item.serial))
        return sum([self.abort(client, each) for each in self._owned("abort", client, what)])

    def fail(self, client: str, what: Settleable, cause: Cause) -> int:
        """Fail items: each gets a FAILED verdict; return how many of them were open."""
        if isinstance(what, Items):
            if what.lease is None or not self._has(client, what.lease):
                return 0
            runs = what.lease.store.drop_all(client, what.lease)
            if runs:
                self.publication.fail(runs, cause)
            self._note_all_late(what.lease)
            return sum(end - start for start, end in runs)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._has(client, item.lease):
                return 0
            if not item.lease.store.drop(client, item.lease, item.serial):
                self._note_late(item.lease, item.serial)
                return 0
            self.publication.fail([PositionRun(item.serial, item.serial + 1)], cause)
            return 1
        return sum([self.fail(client, each, cause) for each in self._owned("fail", client, what)])

    def reset_timeout(self, limits: ClientLimits, what: Settleable, now_ms: int) -> int:
        """Let the timeouts of open items begin anew; return how many of them were open.

        Their roots are added to `touched`. Where the client's items are put back after some time, that begins
        anew as well, for all that was opened with them.
        """
        client = limits.client
        if isinstance(what, Items):
            if what.lease is None or not self._has(client, what.lease):
                return 0
            return self._touch(limits, what.lease, what.lease.left(), now_ms)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._has(client, item.lease) or item.serial not in item.lease:
                return 0
            return self._touch(limits, item.lease, [PositionRun(item.serial, item.serial + 1)], now_ms)
        listed = {_item_of(item) for item in self._owned("reset_timeout", client, what)}
        return sum([self.reset_timeout(limits, item, now_ms) for item in listed])

    def _touch(self, limits: ClientLimits, lease: Lease, serials: Sequence[PositionRun], now_ms: int) -> int:
        if limits.auto_abort_ms is not None:
            lease.store.prolong(limits.client, lease, now_ms + limits.auto_abort_ms)
        self.touched += RootSet.of_parts(self.records.positions(serials).items()).runs()
        return sum(end - start for start, end in serials)

    def split(self, client: str, item: Item, parts: int) -> list[Part]:
        if parts < 1:
            raise UsageError(f"an item is split into 1 part or more, not {parts}")
        if not isinstance(item, Item):
            raise UsageError(f"split: {shortened(item)} is no item; pass one item of what `open` returned")
        if self._has(client, item.lease):
            item.lease.store.split(client, item.lease, item.serial, parts)
        return [Part(item, number) for number in range(parts)]

    def leave(self, client: str) -> int:
        return sum(queue.store.leave(client) for queue in self.by_name.values())

    def status(self, group: PlannerStatus) -> SpoutStatus:
        """Join the numbers of the queues and the planner's status."""
        waiting = {name: queue.store.waiting for name, queue in self.by_name.items()}
        opened = {name: queue.store.open_by_client() for name, queue in self.by_name.items()}
        return SpoutStatus(group, waiting, opened, self.late_count)

    def _has(self, client: str, lease: Lease) -> bool:
        """Return whether a lease is of this spout; False: its spout is closed.

        The store decides, since clients of two spouts may have the same name.
        """
        if lease.store in self._stores or lease.client == NOBODY:
            own(client, lease)
            return True
        if lease.store.is_closed:
            return False
        raise TupleError(
            f"client {client!r} settled what {lease.client!r} of another spout has open; each client settles"
            " what it opened, so hand it to that client"
        )

    def _owned(self, verb: str, client: str, what: object) -> list[Item | Part]:
        if not isinstance(what, Iterable) or isinstance(what, str | bytes | Root | Tuple):
            raise _no_item(verb, what)
        listed = list(what)
        for each in listed:
            if not isinstance(each, Item | Part):
                raise _no_item(verb, each)
            self._has(client, _item_of(each).lease)
        return listed

    def _note_all_late(self, lease: Lease) -> None:
        for serial in list(lease.lost):
            self._note_late(lease, serial)

    def _note_late(self, lease: Lease, serial: int) -> None:
        """Note a settlement of an item that was taken away; a second settlement of it is not noted."""
        why = lease.lost.pop(serial, None)
        if why is not None:
            self.late_count += 1
            if len(self.late_names) < LATE_KEPT:
                self.late_names.append(why)


def _item_of(what: Item | Part) -> Item:
    return what.item if isinstance(what, Part) else what


def _no_item(verb: str, what: object) -> UsageError:
    return UsageError(
        f"{verb}: {shortened(what)} is no item; pass what `open` returned, an item or a part of it, or a list"
        " of items and parts"
    )


def _check_parts(client: str, listed: Iterable[Item | Part]) -> None:
    done: dict[Item, set[int]] = {}
    for each in listed:
        if isinstance(each, Part):
            done.setdefault(each.item, set()).add(each.number)
        elif each.lease.parts:
            refuse_parts(client, each.lease, each.serial, done.get(each, frozenset()))
