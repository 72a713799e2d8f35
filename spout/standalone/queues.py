"""The items for the clients of a group, and what clients did with them; pure.

Each input has a queue with its own items; all share the records and the next
publication.
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
from spout.standalone.store import NOBODY, Demand, Lease, PendingStore, refuse_parts, require_own
from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple

LATE_KEPT = 1_000
"""Names of roots that were settled too late, kept for the next report; more are only counted."""

UNOPENED_SHARE = 4
"""Each quarter of the timeout it begins anew for items that nobody has opened."""

Settleable = Item | Part | Items | Iterable[Item | Part]
"""What a client may settle in one call."""


@dataclass(slots=True)
class Queue:
    """One input: its items, how many records to keep ready, and how many clients wait for now.

    Attributes:
        timeout_ms: of its roots; 0: they have none.
        requested: how many items clients wait for; that is not the number of
            clients.
        looked_ms: when `ready_for_long` looked last; 0: never.
        looked_end: the serial behind the newest item at that time.
    """

    name: str
    store: PendingStore
    demand: Demand
    timeout_ms: int
    requested: int = 0
    looked_ms: int = 0
    looked_end: int = 0

    def room(self, limits: ClientLimits, count: int) -> int:
        """Return how many of `count` items a client may open; what it may not open would only time out."""
        may_open = limits.max_open - self.store.open_of(limits.client)
        return max(0, min(count, may_open))

    def ready_for_long(self, now_ms: int, end: int) -> list[PositionRun]:
        """Return items that nobody has opened and that are ready since the last look.

        Between looks, none.

        `end` is the serial behind the newest item. Example, of a timeout of
        8 s: it looks every 2 s. An item that came 1 s before a look is
        returned by the next one, when it is 3 s old, and then every 2 s.
        """
        interval_ms = self.timeout_ms // UNOPENED_SHARE
        if not interval_ms or 0 <= now_ms - self.looked_ms < interval_ms:
            return []
        runs = self.store.never_opened(self.looked_end)
        self.looked_ms = now_ms
        self.looked_end = end
        return runs

    def why_none(self, limits: ClientLimits) -> str:
        """Return why a client that waits gets no item."""
        open_count = self.store.open_of(limits.client)
        if open_count >= limits.max_open:
            return f"this client has {open_count} items open, as many as its max_open"
        open_of_all = sum(self.store.open_by_client().values())
        return f"no record is ready, and {open_of_all} are open with clients"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How many items of an input a client may have open, and when they are put back; None: at the timeout."""

    client: str
    max_open: int
    auto_abort_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SpoutStatus:
    """A spout as it is now; `group` has the session, its pending roots, verdicts and commits.

    Attributes:
        waiting: by an input's name, how many records are ready to be opened.
        open: by an input's name, then a client's, how many items it has open.
        late: how many records were settled after their root had timed out.
    """

    group: PlannerStatus
    waiting: Mapping[str, int]
    open: Mapping[str, Mapping[str, int]]
    late: int


class QueueCollection:
    """Gives items to clients and takes their settlements.

    Attributes:
        by_name: the queues, by the names of their inputs.
        is_active: whether clients may open items.
        damage: a batch that cannot be read: no more is planned, and raised
            once nothing is left to open.
        late_count: how many items were settled after they had been taken away.
        records: the records behind the items.
        publication: what was settled and is not published yet.
    """

    def __init__(self, inputs: Sequence[Input]) -> None:
        """Begin with an empty queue for each input."""
        self.by_name: dict[str, Queue] = {}
        self._by_input_id: dict[int, Queue] = {}
        for input in inputs:
            queue = Queue(input.name, PendingStore(), Demand(input.timeout_ms), input.timeout_ms)
            self.by_name[input.name] = queue
            self._by_input_id[input.id] = queue
        self.records = ItemRecords()
        self.publication = NextPublication()
        self.is_active = True
        self.damage: Damaged | None = None
        self.late_count = 0
        self._late_names: list[str] = []  # roots that were settled too late, with the reasons
        self._runs_to_reset: list[SourceRun] = []  # roots whose timeouts are to begin anew
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

    def lacking_counts(self, now_ms: int) -> dict[str, int]:
        """Return, for each input with too few records, how many more to plan."""
        if not self.is_active or self.damage is not None:
            return {}
        lacking: dict[str, int] = {}
        for name, queue in self.by_name.items():
            count = queue.requested + queue.demand.records_ahead(now_ms) - queue.store.waiting
            if count > 0:
                lacking[name] = count
        return lacking

    def take_late_names(self) -> list[str]:
        """Return the names of roots that were settled too late since the last call, with the
        reasons.
        """
        late_names = self._late_names
        self._late_names = []
        return late_names

    def take_runs_to_reset(self) -> list[SourceRun]:
        """Return the roots whose timeouts clients have reset since the last call."""
        runs_to_reset = self._runs_to_reset
        self._runs_to_reset = []
        return runs_to_reset

    def put(self, source: int, messages: list[Message], positions: I64, topic_id: str = "") -> None:
        """Add records, one or more, as waiting items; the positions are ascending and initialised."""
        items = self.records.put(source, messages, positions, topic_id)
        self._by_input_id[input_id_of(source)].store.add(*items)

    def take_away(self, lost: Lost) -> bool:
        """Take away items whose roots were lost, such as TIMED_OUT; return whether any was here."""
        source = lost.source
        queue = self._by_input_id.get(input_id_of(source))
        if queue is None:
            return False
        why_by_serial: dict[int, str] = {}
        for run in self.records.serials(source, positions(lost.positions)):
            # serials of a run are of one segment, in which positions ascend
            # with the serials
            positions_of_run = self.records.positions([run])[source]
            for serial, position in zip(range(*run), positions_of_run, strict=True):
                place = f"{queue.name}/{partition_of(source)}@{offset_of(position)}"
                why_by_serial[serial] = f"{place} {lost.reason}"
        taken_away = queue.store.take_away(why_by_serial)
        self.records.drop_records(taken_away)
        return bool(taken_away)

    def keep_unopened(self, now_ms: int) -> None:
        """Begin the timeouts of items anew that nobody has opened: nobody works on them."""
        for queue in self.by_name.values():
            runs = queue.ready_for_long(now_ms, self.records.next_serial)
            if runs:
                positions_by_source = self.records.positions(runs)
                self._runs_to_reset += RootSet.of_parts(positions_by_source.items()).runs()

    def expire(self, now_ms: int) -> int:
        """Put back items that clients have had open for too long; return how many there were."""
        return sum(queue.store.expire(now_ms) for queue in self.by_name.values())

    # -- what clients do

    def open(self, limits: ClientLimits, queue: Queue, count: int, now_ms: int) -> Items:
        """Give waiting items to a client, as many as it may still open.

        Raises `Damaged`: a batch could not be read, and all that was read
        beside it is given out.
        """
        room = queue.room(limits, count)
        if not room or not self.is_active:
            return Items()
        until_ms = None if limits.auto_abort_ms is None else now_ms + limits.auto_abort_ms
        lease = queue.store.open(limits.client, room, until_ms)
        if lease is None:
            if self.damage is not None:
                raise self.damage
            queue.demand.record_missed(room, now_ms)
            return Items()
        queue.demand.record_opened(len(lease), now_ms)
        if len(lease) < room:
            # else who once got few of many gets as few at each call, whatever
            # waits: 3 of 500, then 3
            queue.demand.record_missed(room, now_ms)
        return Items(lease, self.records.segments(lease.runs))

    def peek(self, queue: Queue) -> Item | None:
        """Return the item that would be opened next, which nobody has open; None if none waits."""
        serial = queue.store.peek()
        if serial is None:
            return None
        # every item has a lease; that of nobody has no open item, so that
        # whoever settles this one is refused
        lease = Lease(queue.store, NOBODY, runs=(), until_ms=None)
        segments = self.records.segments([PositionRun(serial, serial + 1)])
        return Items(lease, segments)[0]

    def confirm(self, client: str, what: Settleable) -> int:
        """Confirm items; return how many of them were open.

        They are added to the next publication. Items that were taken away
        meanwhile are recorded as late. Of a list all are confirmed or none.
        """
        if type(what) is Item:  # the common case, called for every record
            lease = what.lease
            store = lease.store
            # of a store of ours `settle` itself refuses another client's item
            if store not in self._stores and not self._accepts_lease(client, lease):
                return 0
            if store.settle(client, lease, what.serial):
                self.publication.confirmed.append(what.serial)
                return 1
            self._record_late(lease, what.serial)
            return 0
        if isinstance(what, Items):
            if what.lease is None or not self._accepts_lease(client, what.lease):
                return 0
            runs = what.lease.store.settle_all(client, what.lease)
            self.publication.runs += runs
            self._record_all_late(what.lease)
            return _item_count(runs)
        if isinstance(what, Part):
            lease, serial = what.item.lease, what.item.serial
            if not self._accepts_lease(client, lease):
                return 0
            if not lease.store.settle_part(client, lease, serial, what.number):
                self._record_late(lease, serial)
                return 0
            self.publication.confirmed.append(serial)
            return 1
        items_and_parts = self._checked_items("confirm", client, what)
        _refuse_open_parts(client, items_and_parts)  # before the first is confirmed: all of them, or none
        confirmed_count = 0
        for item_or_part in items_and_parts:
            confirmed_count += self.confirm(client, item_or_part)
        return confirmed_count

    def confirm_oldest(self, client: str, queue: Queue, count: int) -> int:
        """Confirm a client's oldest open items, whole ones only; none if it has fewer than `count` open.

        Return how many are confirmed.
        """
        oldest = queue.store.oldest(client, count)
        if len(oldest) < count:
            return 0
        for lease, serial in oldest:
            refuse_parts(client, lease, serial)
        settled = [serial for lease, serial in oldest if queue.store.settle(client, lease, serial)]
        self.publication.confirmed += settled
        return len(settled)

    def abort(self, client: str, what: Settleable) -> int:
        """Put items back; return how many of them were open."""
        if isinstance(what, Items):
            if what.lease is None or not self._accepts_lease(client, what.lease):
                return 0
            return what.lease.store.put_back_all(client, what.lease)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._accepts_lease(client, item.lease):
                return 0
            was_open = item.lease.store.put_back(client, item.lease, item.serial)
            return int(was_open)
        aborted_count = 0
        for item_or_part in self._checked_items("abort", client, what):
            aborted_count += self.abort(client, item_or_part)
        return aborted_count

    def fail(self, client: str, what: Settleable, cause: Cause) -> int:
        """Fail items: each gets a FAILED verdict; return how many of them were open."""
        if isinstance(what, Items):
            if what.lease is None or not self._accepts_lease(client, what.lease):
                return 0
            runs = what.lease.store.drop_all(client, what.lease)
            if runs:
                self.publication.fail(runs, cause)
            self._record_all_late(what.lease)
            return _item_count(runs)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._accepts_lease(client, item.lease):
                return 0
            if not item.lease.store.drop(client, item.lease, item.serial):
                self._record_late(item.lease, item.serial)
                return 0
            self.publication.fail([PositionRun(item.serial, item.serial + 1)], cause)
            return 1
        failed_count = 0
        for item_or_part in self._checked_items("fail", client, what):
            failed_count += self.fail(client, item_or_part, cause)
        return failed_count

    def reset_timeout(self, limits: ClientLimits, what: Settleable, now_ms: int) -> int:
        """Begin the timeouts of open items anew; return how many of them were open.

        `take_runs_to_reset` returns their roots. Where the client's items are
        put back after some time, that begins anew as well, for all that was
        opened with them.
        """
        client = limits.client
        if isinstance(what, Items):
            if what.lease is None or not self._accepts_lease(client, what.lease):
                return 0
            return self._reset_timeouts(limits, what.lease, what.lease.left(), now_ms)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._accepts_lease(client, item.lease) or item.serial not in item.lease:
                return 0
            return self._reset_timeouts(
                limits, item.lease, [PositionRun(item.serial, item.serial + 1)], now_ms
            )
        # a set, since several parts may be of one item
        items = {
            _item_of(item_or_part) for item_or_part in self._checked_items("reset_timeout", client, what)
        }
        touched_count = 0
        for item in items:
            touched_count += self.reset_timeout(limits, item, now_ms)
        return touched_count

    def _reset_timeouts(
        self, limits: ClientLimits, lease: Lease, runs: Sequence[PositionRun], now_ms: int
    ) -> int:
        """Begin the timeouts of some open items of a lease anew; return how many they are."""
        if limits.auto_abort_ms is not None:
            lease.store.prolong(limits.client, lease, now_ms + limits.auto_abort_ms)
        positions_by_source = self.records.positions(runs)
        self._runs_to_reset += RootSet.of_parts(positions_by_source.items()).runs()
        return _item_count(runs)

    def split(self, client: str, item: Item, parts: int) -> list[Part]:
        """Split an item into so many parts; see `Client.split`."""
        if parts < 1:
            raise UsageError(f"an item is split into 1 part or more, not {parts}")
        if not isinstance(item, Item):
            raise UsageError(f"split: {shortened(item)} is no item; pass one item of what `open` returned")
        # of a closed spout nothing is split; whoever settles the parts settles
        # nothing
        if self._accepts_lease(client, item.lease):
            item.lease.store.split(client, item.lease, item.serial, parts)
        return [Part(item, number) for number in range(parts)]

    def put_back_of_client(self, client: str) -> int:
        """Put the open items of a client back; return how many there were."""
        return sum(queue.store.put_back_of_client(client) for queue in self.by_name.values())

    def status(self, group: PlannerStatus) -> SpoutStatus:
        """Return the status of the spout: the numbers of the queues beside the planner's status."""
        waiting = {name: queue.store.waiting for name, queue in self.by_name.items()}
        open_by_client = {name: queue.store.open_by_client() for name, queue in self.by_name.items()}
        return SpoutStatus(group, waiting, open_by_client, self.late_count)

    def _accepts_lease(self, client: str, lease: Lease) -> bool:
        """Return whether a client may settle the items of a lease; False: their spout is closed.

        Which spout they are of is decided by the store, since clients of two
        spouts may have the same name.

        Raises `TupleError`: another client has its items open, nobody has, or
        they are of another spout that is not closed.
        """
        if lease.store in self._stores or lease.client == NOBODY:
            require_own(client, lease)
            return True
        if lease.store.is_closed:
            return False
        raise TupleError(
            f"client {client!r} settled what {lease.client!r} of another spout has open; each client settles"
            " what it opened, so hand it to that client"
        )

    def _checked_items(self, verb: str, client: str, what: object) -> list[Item | Part]:
        """Return a list of items and parts that a client settles; refuse it as a whole where one is wrong.

        `verb` is the client's method, for the error.

        Raises `UsageError`: one is neither an item nor a part; `TupleError` as
        `_accepts_lease`.
        """
        # these can be iterated, too, and are no lists of items
        if not isinstance(what, Iterable) or isinstance(what, str | bytes | Root | Tuple):
            raise _no_item(verb, what)
        items_and_parts = list(what)
        for item_or_part in items_and_parts:
            if not isinstance(item_or_part, Item | Part):
                raise _no_item(verb, item_or_part)
            self._accepts_lease(client, _item_of(item_or_part).lease)
        return items_and_parts

    def _record_all_late(self, lease: Lease) -> None:
        """Record a settlement of all items of a lease that were taken away."""
        for serial in list(lease.lost):
            self._record_late(lease, serial)

    def _record_late(self, lease: Lease, serial: int) -> None:
        """Record a settlement of an item that was taken away; a second settlement of it is not recorded."""
        why = lease.lost.pop(serial, None)
        if why is not None:
            self.late_count += 1
            if len(self._late_names) < LATE_KEPT:
                self._late_names.append(why)


def _item_of(item_or_part: Item | Part) -> Item:
    return item_or_part.item if isinstance(item_or_part, Part) else item_or_part


def _item_count(runs: Iterable[PositionRun]) -> int:
    return sum(end - start for start, end in runs)


def _no_item(verb: str, what: object) -> UsageError:
    """Return the error about an argument of a client's method that is no item."""
    return UsageError(
        f"{verb}: {shortened(what)} is no item; pass what `open` returned, an item or a part of it, or a list"
        " of items and parts"
    )


def _refuse_open_parts(client: str, items_and_parts: Iterable[Item | Part]) -> None:
    """Refuse with a `TupleError` to confirm an item of which parts are open that do not stand before it.

    Of an item in two parts, [part 0, part 1, item] is confirmed, and [part 0,
    item, part 1] refused.
    """
    numbers_by_item: dict[Item, set[int]] = {}  # of the parts that stand before
    for item_or_part in items_and_parts:
        if isinstance(item_or_part, Part):
            numbers_by_item.setdefault(item_or_part.item, set()).add(item_or_part.number)
        elif item_or_part.lease.parts:
            item = item_or_part
            confirmed_before = numbers_by_item.get(item, set())
            refuse_parts(client, item.lease, item.serial, confirmed_before)
