"""The items for the clients of a group, and what clients did with them; pure.

Each input has a queue with its own items; all share the records and the next
publication. A client has its items open under a *lease* (spout.standalone.store),
in which an item is named by its *serial*; it settles items by confirming or
failing them.
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
from spout.standalone.store import (
    NOBODY,
    Demand,
    Lease,
    PendingStore,
    refuse_another_client,
    refuse_open_parts,
)
from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple

LATE_KEPT = 1_000
"""At most so many names of roots that were settled too late are kept for the next report."""

RESETS_PER_TIMEOUT = 4
"""After each quarter of the timeout it begins anew for items that nobody has opened."""

Settleable = Item | Part | Items | Iterable[Item | Part]
"""What a client may settle in one call."""


@dataclass(slots=True)
class Queue:
    """The queue of one input: its items, and how many records to keep ready.

    Attributes:
        timeout_ms: of its roots; 0: they have none.
        requested_count: how many items clients wait for; that is not the
            number of clients.
        last_look_ms: when `look_for_unopened` looked last; 0: never.
        last_look_end: the serial behind the newest item at that time.
    """

    name: str
    store: PendingStore
    demand: Demand
    timeout_ms: int
    requested_count: int = 0
    last_look_ms: int = 0
    last_look_end: int = 0

    def openable_count(self, limits: ClientLimits, count: int) -> int:
        """Return how many of `count` items a client may open, since it may have `max_open` open."""
        free_count = limits.max_open - self.store.open_count_of(limits.client)
        return max(0, min(count, free_count))

    def look_for_unopened(self, now_ms: int, end: int) -> list[PositionRun]:
        """Return items that nobody has opened and that were ready at the last look, and look again.

        It looks `RESETS_PER_TIMEOUT` times in each timeout, and returns none
        when it is called in between. `end` is the serial behind the newest
        item.

        Example, of a timeout of 8 s: it looks every 2 s. An item that came 1 s
        before a look is returned by the next one, when it is 3 s old, and then
        every 2 s.
        """
        interval_ms = self.timeout_ms // RESETS_PER_TIMEOUT
        if not interval_ms or 0 <= now_ms - self.last_look_ms < interval_ms:
            return []
        unopened_runs = self.store.never_opened(self.last_look_end)
        self.last_look_ms = now_ms
        self.last_look_end = end
        return unopened_runs

    def why_no_item(self, limits: ClientLimits) -> str:
        """Return why a client that waits gets no item."""
        open_count = self.store.open_count_of(limits.client)
        if open_count >= limits.max_open:
            return f"this client has {open_count} items open, as many as its max_open"
        open_count_of_all = sum(self.store.open_count_by_client().values())
        return f"no record is ready, and {open_count_of_all} are open with clients"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client may have open.

    Attributes:
        client: its name.
        max_open: how many items of an input it may have open at once.
        auto_abort_ms: how long after `open` the items that it has not settled
            are put back; None: they are not, and their roots time out.
    """

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
        damage: the error about a batch that cannot be read: nothing more is
            planned, and `open` raises it once nothing is left to open. None:
            all could be read, or the input goes on without what could not.
        late_count: how many items were settled after their roots were lost.
        records: the records of the items.
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
        # names of roots that were settled too late, each with why it was lost:
        # "sentences/3@1042 TIMED_OUT"
        self._late_names: list[str] = []
        self._roots_to_reset: list[SourceRun] = []  # whose timeouts are to begin anew
        self._stores = frozenset(queue.store for queue in self.by_name.values())

    def close(self) -> None:
        """End this spout: a settlement of its items is late from now on, wherever it is made."""
        for store in self._stores:
            store.is_closed = True

    # -- what comes in

    def queue(self, name: str | None) -> Queue:
        """Return the queue of an input; None as the name: the only input.

        Raises `UsageError`: there is no such input, or there are several.
        """
        if name is None and len(self.by_name) == 1:
            return next(iter(self.by_name.values()))
        if name is None or name not in self.by_name:
            raise UsageError(f"name one of the inputs {', '.join(self.by_name)}, not {name!r}")
        return self.by_name[name]

    def lacking_count_by_input(self, now_ms: int) -> dict[str, int]:
        """Return how many more records to plan, by the name of each input with too few ready ones.

        Empty also where clients may open none.
        """
        if not self.is_active or self.damage is not None:
            return {}
        lacking_count_by_input: dict[str, int] = {}
        for name, queue in self.by_name.items():
            wanted_count = queue.requested_count + queue.demand.count_to_keep_ready(now_ms)
            lacking_count = wanted_count - queue.store.waiting_count
            if lacking_count > 0:
                lacking_count_by_input[name] = lacking_count
        return lacking_count_by_input

    def take_late_names(self) -> list[str]:
        """Return which roots were settled too late since the last call: their names, with reasons."""
        late_names = self._late_names
        self._late_names = []
        return late_names

    def take_roots_to_reset(self) -> list[SourceRun]:
        """Return the roots whose timeouts clients have reset since the last call."""
        roots_to_reset = self._roots_to_reset
        self._roots_to_reset = []
        return roots_to_reset

    def put(self, source: int, messages: list[Message], positions: I64, topic_id: str = "") -> None:
        """Add records, one or more, as waiting items; their positions are ascending and initialised."""
        serials = self.records.add(source, messages, positions, topic_id)
        self._by_input_id[input_id_of(source)].store.add(serials.start, serials.end)

    def remove_lost(self, lost: Lost) -> bool:
        """Remove items whose roots were lost, such as TIMED_OUT; return whether any was here."""
        source = lost.source
        queue = self._by_input_id.get(input_id_of(source))
        if queue is None:
            return False
        why_by_serial: dict[int, str] = {}
        for serials in self.records.serial_runs_at(source, positions(lost.positions)):
            # serials of a run are of one segment, in which positions ascend
            # with the serials
            positions_of_run = self.records.positions_by_source([serials])[source]
            for serial, position in zip(range(*serials), positions_of_run, strict=True):
                root_name = f"{queue.name}/{partition_of(source)}@{offset_of(position)}"
                why_by_serial[serial] = f"{root_name} {lost.reason}"
        removed_runs = queue.store.remove_lost(why_by_serial)
        self.records.drop_records(removed_runs)
        return bool(removed_runs)

    def reset_unopened_timeouts(self, now_ms: int) -> None:
        """Begin the timeouts of items anew that nobody has opened: nobody works on them."""
        for queue in self.by_name.values():
            unopened_runs = queue.look_for_unopened(now_ms, self.records.next_serial)
            if unopened_runs:
                self._add_roots_to_reset(unopened_runs)

    def _add_roots_to_reset(self, serial_runs: Iterable[PositionRun]) -> None:
        """Have the timeouts of items begin anew: `take_roots_to_reset` returns their roots."""
        positions_by_source = self.records.positions_by_source(serial_runs)
        self._roots_to_reset += RootSet.of_parts(positions_by_source.items()).runs()

    def put_back_expired(self, now_ms: int) -> int:
        """Put back items that clients have had open for too long; return how many there were."""
        return sum(queue.store.put_back_expired(now_ms) for queue in self.by_name.values())

    # -- what clients do

    def open(self, limits: ClientLimits, queue: Queue, count: int, now_ms: int) -> Items:
        """Give at most `count` waiting items to a client, as many as it may still open.

        Empty: none waits, or it may open none now. Raises `Damaged`: a batch
        could not be read, and no item waits any more.
        """
        openable_count = queue.openable_count(limits, count)
        if not openable_count or not self.is_active:
            return Items()
        put_back_at_ms = None
        if limits.auto_abort_ms is not None:
            put_back_at_ms = now_ms + limits.auto_abort_ms
        lease = queue.store.open(limits.client, openable_count, put_back_at_ms)
        if lease is None:
            if self.damage is not None:
                raise self.damage
            queue.demand.record_unmet_request(openable_count, now_ms)
            return Items()
        queue.demand.record_opened(len(lease), now_ms)
        if len(lease) < openable_count:
            # else who once got few of many gets as few at each call, whatever
            # waits: 3 of 500, then 3
            queue.demand.record_unmet_request(openable_count, now_ms)
        return Items(lease, self.records.segments_of(lease.runs))

    def peek(self, queue: Queue) -> Item | None:
        """Return the item that would be opened next, which nobody has open; None if none waits."""
        serial = queue.store.peek()
        if serial is None:
            return None
        # every item has a lease; that of nobody has no open item, so that
        # whoever settles this one is refused
        lease = Lease(queue.store, NOBODY, runs=(), put_back_at_ms=None)
        segments = self.records.segments_of([PositionRun(serial, serial + 1)])
        return Items(lease, segments)[0]

    def confirm(self, client: str, what: Settleable) -> int:
        """Confirm items; return how many of them were open.

        They are added to the next publication. Items whose roots were lost
        meanwhile are recorded as late. Of a list all are confirmed or none.
        """
        if type(what) is Item:  # the common case, called for every record
            lease = what.lease
            store = lease.store
            # of a store of ours `settle` itself refuses another client's item
            if store not in self._stores and not self._may_settle(client, lease):
                return 0
            if store.confirm(client, lease, what.serial):
                self.publication.confirmed_serials.append(what.serial)
                return 1
            self._record_if_late(lease, what.serial)
            return 0
        if isinstance(what, Items):
            if what.lease is None or not self._may_settle(client, what.lease):
                return 0
            runs = what.lease.store.confirm_all(client, what.lease)
            self.publication.confirmed_runs += runs
            self._record_late_items_of(what.lease)
            return _item_count(runs)
        if isinstance(what, Part):
            lease = what.item.lease
            serial = what.item.serial
            if not self._may_settle(client, lease):
                return 0
            if not lease.store.confirm_part(client, lease, serial, what.number):
                self._record_if_late(lease, serial)
                return 0
            # it was the last open part, so the whole item is confirmed
            self.publication.confirmed_serials.append(serial)
            return 1
        items_and_parts = self._checked_items("confirm", client, what)
        # before the first is confirmed: all of them, or none
        _refuse_parts_confirmed_later(client, items_and_parts)
        confirmed_count = 0
        for item_or_part in items_and_parts:
            confirmed_count += self.confirm(client, item_or_part)
        return confirmed_count

    def confirm_oldest(self, client: str, queue: Queue, count: int) -> int:
        """Confirm a client's `count` oldest open items, or none if it has fewer open.

        Raises `TupleError`: one of them has open parts.

        Return how many are confirmed.
        """
        oldest_items = queue.store.oldest(client, count)
        if len(oldest_items) < count:
            return 0
        # before the first is confirmed: all of them, or none
        for lease, serial in oldest_items:
            refuse_open_parts(client, lease, serial)
        confirmed_serials: list[int] = []
        for lease, serial in oldest_items:
            if queue.store.confirm(client, lease, serial):
                confirmed_serials.append(serial)
        self.publication.confirmed_serials += confirmed_serials
        return len(confirmed_serials)

    def abort(self, client: str, what: Settleable) -> int:
        """Put items back; return how many of them were open."""
        if isinstance(what, Items):
            if what.lease is None or not self._may_settle(client, what.lease):
                return 0
            return what.lease.store.put_back_all(client, what.lease)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._may_settle(client, item.lease):
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
            if what.lease is None or not self._may_settle(client, what.lease):
                return 0
            runs = what.lease.store.remove_all(client, what.lease)
            if runs:
                self.publication.fail(runs, cause)
            self._record_late_items_of(what.lease)
            return _item_count(runs)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._may_settle(client, item.lease):
                return 0
            if not item.lease.store.remove(client, item.lease, item.serial):
                self._record_if_late(item.lease, item.serial)
                return 0
            self.publication.fail([PositionRun(item.serial, item.serial + 1)], cause)
            return 1
        failed_count = 0
        for item_or_part in self._checked_items("fail", client, what):
            failed_count += self.fail(client, item_or_part, cause)
        return failed_count

    def reset_timeout(self, limits: ClientLimits, what: Settleable, now_ms: int) -> int:
        """Begin the timeouts of open items anew; return how many of them were open.

        `take_roots_to_reset` returns their roots. Where the client's items are
        put back after some time, that begins anew as well, for all that was
        opened with them.
        """
        client = limits.client
        if isinstance(what, Items):
            if what.lease is None or not self._may_settle(client, what.lease):
                return 0
            return self._reset_timeouts(limits, what.lease, what.lease.open_runs(), now_ms)
        if isinstance(what, Item | Part):
            item = _item_of(what)
            if not self._may_settle(client, item.lease) or item.serial not in item.lease:
                return 0
            runs = [PositionRun(item.serial, item.serial + 1)]
            return self._reset_timeouts(limits, item.lease, runs, now_ms)
        # a set, since several parts may be of one item
        items: set[Item] = set()
        for item_or_part in self._checked_items("reset_timeout", client, what):
            items.add(_item_of(item_or_part))
        reset_count = 0
        for item in items:
            reset_count += self.reset_timeout(limits, item, now_ms)
        return reset_count

    def _reset_timeouts(
        self, limits: ClientLimits, lease: Lease, runs: Sequence[PositionRun], now_ms: int
    ) -> int:
        """Begin the timeouts of open items of a lease anew; return how many items they are.

        `runs`: the items, as runs of serials.
        """
        if limits.auto_abort_ms is not None:
            lease.store.prolong(limits.client, lease, now_ms + limits.auto_abort_ms)
        self._add_roots_to_reset(runs)
        return _item_count(runs)

    def split(self, client: str, item: Item, part_count: int) -> list[Part]:
        """Split an item into parts; see `Client.split`."""
        if part_count < 1:
            raise UsageError(f"an item is split into 1 part or more, not {part_count}")
        if not isinstance(item, Item):
            raise UsageError(f"split: {shortened(item)} is no item; pass one item of what `open` returned")
        # of a closed spout nothing is split; whoever settles the parts settles
        # nothing
        if self._may_settle(client, item.lease):
            item.lease.store.split(client, item.lease, item.serial, part_count)
        return [Part(item, number) for number in range(part_count)]

    def put_back_of_client(self, client: str) -> int:
        """Put the open items of a client back; return how many there were."""
        return sum(queue.store.put_back_of_client(client) for queue in self.by_name.values())

    def status(self, group: PlannerStatus) -> SpoutStatus:
        """Return the status of the spout: the numbers of the queues beside the planner's status."""
        waiting_counts: dict[str, int] = {}
        open_counts: dict[str, dict[str, int]] = {}  # by the input's name, then by the client's
        for name, queue in self.by_name.items():
            waiting_counts[name] = queue.store.waiting_count
            open_counts[name] = queue.store.open_count_by_client()
        return SpoutStatus(group, waiting=waiting_counts, open=open_counts, late=self.late_count)

    def _may_settle(self, client: str, lease: Lease) -> bool:
        """Return whether a client may settle the items of a lease. False: their spout is closed.

        The store tells which spout they are of, since clients of two spouts
        may have the same name.

        Raises `TupleError`: another client has its items open, nobody has, or
        they are of another spout that is not closed.
        """
        if lease.store in self._stores or lease.client == NOBODY:
            refuse_another_client(client, lease)
            return True
        if lease.store.is_closed:
            return False
        raise TupleError(
            f"client {client!r} settled what {lease.client!r} of another spout has open; each client"
            " settles what it opened, so hand it to that client"
        )

    def _checked_items(self, verb: str, client: str, what: object) -> list[Item | Part]:
        """Return the items and parts that a client settles by one call; refuse all if one is wrong.

        `verb` is the client's method, for the error.

        Raises `UsageError`: one is neither an item nor a part; `TupleError` as
        `_may_settle`.
        """
        # these types can be iterated, too, and are no lists of items
        if not isinstance(what, Iterable) or isinstance(what, str | bytes | Root | Tuple):
            raise _no_item(verb, what)
        items_and_parts = list(what)
        for item_or_part in items_and_parts:
            if not isinstance(item_or_part, Item | Part):
                raise _no_item(verb, item_or_part)
            self._may_settle(client, _item_of(item_or_part).lease)
        return items_and_parts

    def _record_late_items_of(self, lease: Lease) -> None:
        """Record that a client settles all items of a lease, of those whose roots were lost."""
        for serial in list(lease.why_lost_by_serial):
            self._record_if_late(lease, serial)

    def _record_if_late(self, lease: Lease, serial: int) -> None:
        """Record that a client settles an item, if its root was lost; a second time does not count."""
        why = lease.why_lost_by_serial.pop(serial, None)
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
        f"{verb}: {shortened(what)} is no item; pass what `open` returned, an item or a part of it,"
        " or a list of items and parts"
    )


def _refuse_parts_confirmed_later(client: str, items_and_parts: Iterable[Item | Part]) -> None:
    """Refuse a list in which an item comes before one of its open parts, with a `TupleError`.

    Of an item in two parts, [part 0, part 1, item] is confirmed, and [part 0,
    item, part 1] refused.
    """
    # by item: the numbers of its parts that the list has before the item
    earlier_parts_by_item: dict[Item, set[int]] = {}
    for item_or_part in items_and_parts:
        if isinstance(item_or_part, Part):
            part = item_or_part
            earlier_parts_by_item.setdefault(part.item, set()).add(part.number)
        elif item_or_part.lease.open_parts_by_serial:
            item = item_or_part
            earlier_parts = earlier_parts_by_item.get(item, set())
            refuse_open_parts(client, item.lease, item.serial, earlier_parts)
