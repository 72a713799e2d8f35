"""What is there for the clients of a group, and what they did with it; pure.

One queue for each input, with items of its own; one shelf and one line of settlements for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from acker.errors import TupleError, UsageError
from acker.events import Lost, Run, SourceRun, positions
from acker.identity import I64, input_id_of, offset_of, partition_of
from acker.settings import Input
from spout.collector import Cause, cause_of
from spout.kestrel.appetite import Appetite
from spout.kestrel.items import Item, Items, Part
from spout.kestrel.settlements import Settlements
from spout.kestrel.shelf import Shelf
from spout.kestrel.store import Lease, PendingStore, own

LATE_KEPT = 1_000
"""Names of roots that were settled too late, kept until somebody looks; more are counted only."""

What = Item | Part | Items | Iterable[Item | Part]
"""What a client may settle at once."""


@dataclass(slots=True)
class Queue:
    """One input.

    Attributes:
        name: the input's.
        store: its items.
        appetite: how many to have ready.
        asked: how many the clients wait for now.
    """

    name: str
    store: PendingStore
    appetite: Appetite
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a client opens items.

    Attributes:
        client: its name.
        max_open: how many of one input it may have open at once.
        auto_abort_ms: after which time what it has not settled is put back; None: when the root times out.
    """

    client: str
    max_open: int
    auto_abort_ms: int | None = None


@dataclass(slots=True)
class Late:
    """Settlements that came when the root had timed out: how many, and the first of them by name."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Note one."""
        self.count += 1
        if len(self.names) < LATE_KEPT:
            self.names.append(name)


class Desk:
    """Hands items out and takes settlements in."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        """Begin with nothing to hand out."""
        self.queues = {
            found.name: Queue(found.name, PendingStore(), Appetite(found.timeout_ms)) for found in inputs
        }
        self.shelf = Shelf()
        self.settlements = Settlements()
        self.is_active = True
        self.late = Late()
        self._by_id = {found.id: self.queues[found.name] for found in inputs}

    # -- what comes in

    def queue(self, name: str | None) -> Queue:
        """Return the queue of an input; with one input the name may be left out.

        Raises:
            UsageError: no such input, or no name and several inputs.
        """
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if name is None or name not in self.queues:
            raise UsageError(f"name one of the inputs {', '.join(self.queues)}, not {name!r}")
        return self.queues[name]

    def wanted(self, now_ms: int) -> dict[str, int]:
        """Return how many records to plan for each input that has too few."""
        if not self.is_active:
            return {}
        lacking = {
            name: queue.asked + queue.appetite.ahead(now_ms) - queue.store.waiting
            for name, queue in self.queues.items()
        }
        return {name: count for name, count in lacking.items() if count > 0}

    def put(self, source: int, messages: list[Message], at: I64) -> None:
        """Let records wait, one or more: ascending positions of one source that are initialised."""
        self._by_id[input_id_of(source)].store.add(*self.shelf.put(source, messages, at))

    def absent(self, runs: Iterable[SourceRun]) -> None:
        """Note positions that are initialised and have no record."""
        self.settlements.absent(runs)

    def lose(self, lost: Lost) -> None:
        """Take away what ackers decided not to be processed any more."""
        queue = self._by_id.get(input_id_of(lost.source))
        if queue is None:
            return
        at = positions(lost.positions)
        reasons = {
            serial: f"{queue.name}/{partition_of(lost.source)}@{offset_of(position)} {lost.reason}"
            for run in self.shelf.serials(lost.source, at)
            for serial, position in zip(range(*run), self._positions(run), strict=True)
        }
        self.shelf.let_go(queue.store.lose(reasons))

    def expire(self, now_ms: int) -> int:
        """Put back what clients have had open for too long; return how many items that are."""
        return sum(queue.store.expire(now_ms) for queue in self.queues.values())

    # -- what clients do

    def open(self, terms: Terms, queue: Queue, count: int, now_ms: int) -> Items:
        """Hand out what waits, as far as the client may have more open."""
        room = min(count, terms.max_open - queue.store.open_of(terms.client))
        if room <= 0 or not self.is_active:
            return Items()
        until_ms = None if terms.auto_abort_ms is None else now_ms + terms.auto_abort_ms
        lease = queue.store.open(terms.client, room, until_ms)
        if lease is None:
            queue.appetite.missed(room, now_ms)
            return Items()
        queue.appetite.opened(len(lease), now_ms)
        return Items(lease, self.shelf.segments(lease.runs))

    def peek(self, queue: Queue) -> Item | None:
        """Return what would be opened next, without opening it; None when nothing waits."""
        first = queue.store.peek()
        if first is None:
            return None
        run = Run(first, first + 1)
        return Items(Lease(queue.store, "", (), None), self.shelf.segments([run]))[0]

    def confirm(self, client: str, what: What) -> int:
        """Confirm items; return how many of them were open."""
        if type(what) is Item:  # the one that is called for every record
            lease = what.lease
            if lease.store.settle(client, lease, what.serial):
                self.settlements.confirmed.append(what.serial)
                return 1
            self._note_late(lease, what.serial)
            return 0
        if isinstance(what, Items):
            if what.lease is None:
                return 0
            runs = what.lease.store.settle_all(client, what.lease)
            self.settlements.confirm(runs)
            for serial in list(what.lease.lost):
                self._note_late(what.lease, serial)
            return sum(end - start for start, end in runs)
        if isinstance(what, Part):
            lease, serial = what.item.lease, what.item.serial
            if not lease.store.settle_part(client, lease, serial, what.number):
                return 0
            self.settlements.confirmed.append(serial)
            return 1
        return sum([self.confirm(client, each) for each in _owned(client, what)])

    def confirm_oldest(self, client: str, queue: Queue, count: int) -> int:
        """Confirm the oldest items that a client has open; none when it has fewer open than `count`."""
        held = queue.store.oldest(client, count)
        if len(held) < count:
            return 0
        settled = [serial for lease, serial in held if queue.store.settle(client, lease, serial)]
        self.settlements.confirmed += settled
        return len(settled)

    def abort(self, client: str, what: What) -> int:
        """Put items back; return how many of them were open."""
        if isinstance(what, Items):
            return 0 if what.lease is None else what.lease.store.put_back_all(client, what.lease)
        if isinstance(what, Item | Part):
            item = what.item if isinstance(what, Part) else what
            return int(item.lease.store.put_back(client, item.lease, item.serial))
        return sum([self.abort(client, each) for each in _owned(client, what)])

    def fail(self, client: str, what: What, why: BaseException | str | None) -> int:
        """Fail items: each gets a FAILED verdict; return how many of them were open."""
        return self._fail(client, what, cause_of(client, why))

    def _fail(self, client: str, what: What, cause: Cause) -> int:
        if isinstance(what, Items):
            runs = [] if what.lease is None else what.lease.store.drop_all(client, what.lease)
            if runs:
                self.settlements.fail(runs, cause)
            return sum(end - start for start, end in runs)
        if isinstance(what, Item | Part):
            item = what.item if isinstance(what, Part) else what
            if not item.lease.store.drop(client, item.lease, item.serial):
                self._note_late(item.lease, item.serial)
                return 0
            self.settlements.fail([Run(item.serial, item.serial + 1)], cause)
            return 1
        return sum([self._fail(client, each, cause) for each in _owned(client, what)])

    def split(self, client: str, item: Item, parts: int) -> list[Part]:
        """Split an item into parts, each to be confirmed."""
        if parts < 1:
            raise UsageError(f"an item is split into 1 part or more, not {parts}")
        item.lease.store.split(client, item.lease, item.serial, parts)
        return [Part(item, number) for number in range(parts)]

    def leave(self, client: str) -> int:
        """Put back whatever a client has open; return how many items that are."""
        return sum(queue.store.leave(client) for queue in self.queues.values())

    def open_by_client(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many items each client has open, by input."""
        return {name: queue.store.open_by_client() for name, queue in self.queues.items()}

    def _note_late(self, lease: Lease, serial: int) -> None:
        """Note a settlement of an item that was taken away; a repeated one is nothing to note."""
        why = lease.lost.pop(serial, None)
        if why is not None:
            self.late.add(why)

    def _positions(self, run: Run) -> list[int]:
        return [int(at) for found in self.shelf.positions([run]).values() for at in found]


def _owned(client: str, what: Iterable[Item | Part]) -> list[Item | Part]:
    """Return what is to be settled; all of it is looked at before anything is settled.

    Raises:
        TupleError: something is no item, or another client's.
    """
    listed = list(what)
    for each in listed:
        if not isinstance(each, Item | Part):
            raise TupleError(f"{each!r} is no item that was opened here")
        own(client, (each.item if isinstance(each, Part) else each).lease)
    return listed
