"""One client of a spout, with Kestrel's verbs.

Source: docs/design/conformance.md, S154 to S166.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Condition
from types import TracebackType
from typing import Protocol, Self

from acker.errors import Unreachable, UsageError
from spout.standalone.desk import Desk, Queue, Terms, What
from spout.standalone.items import Item, Items, Part
from spout.standalone.status import SpoutStatus


class Runner(Protocol):
    """What moves a spout; `spout.standalone.engine.Engine` does with threads.

    Attributes:
        lock: around `desk` and `durable`.
        guard: the same lock, rung when there is news for clients.
        is_fit: whether `check` would raise nothing; under the guard.
        is_idle: whether it waits for something to publish; under the guard.
    """

    lock: AbstractContextManager[object]
    guard: Condition
    is_fit: bool
    is_idle: bool

    @property
    def desk(self) -> Desk:
        """What there is to open, always the same; only under the guard."""

    @property
    def durable(self) -> int:
        """Number of the last publication that is durable."""

    def now_ms(self) -> int:
        """Return wall time, ms."""

    def start(self, wait_ms: int) -> None:
        """Take the group."""

    def stop(self) -> None:
        """Publish what was settled, and leave."""

    def status(self) -> SpoutStatus:
        """Return what there is to tell."""

    def check(self) -> None:
        """Raise what stopped the spout, if anything did."""

    def stir(self) -> None:
        """Let planning go on: clients want more."""

    def settled(self, *, at_once: bool) -> None:
        """Let what was settled be published, soon or at once."""

    def orphan(self, client: str, closed: Callable[[str], None]) -> None:
        """Put back what a client has open that nobody holds any more."""


class Client:
    """A client: it opens records and confirms, aborts or fails them. Safe to use from several threads.

    >>> with lines.client("worker-1") as worker:
    ...     items = worker.open(10, wait_ms=1_000)
    ...     print(worker.confirm(items[0]), worker.fail(items[1], "the service is busy"))
    1 1

    What it has open when it is closed, is left by an exception or is forgotten, other clients get, oldest
    first. It is made by `KafkaSpout.client`.
    """

    def __init__(self, runner: Runner, terms: Terms, closed: Callable[[str], None]) -> None:
        self._runner = runner
        self._terms = terms
        self._name = terms.client
        self._desk = runner.desk
        self._lock = runner.lock
        self._guard = runner.guard
        self._is_closed = False
        self._turn = 0
        self._closed = closed
        self._finalizer = weakref.finalize(self, runner.orphan, terms.client, closed)
        self._finalizer.atexit = False

    @property
    def name(self) -> str:
        """The client's name."""
        return self._name

    def open(self, count: int = 1, input_name: str | None = None, *, wait_ms: int = 0) -> Items:
        """Open the oldest records that nobody has open.

        Args:
            count: how many at most; 1 or more.
            input_name: of which input; may be left out where the spout has one.
            wait_ms: how long to wait for the first one; 0: not at all.

        Returns:
            What there is; empty when nothing came in time, when the client has `max_open` of the input open
            already, or while the spout is deactivated.

        Raises:
            UsageError: no such input, or the client is closed.
            WindhoverError: what stopped the spout.
        """
        _check(count, wait_ms)
        with self._guard:
            return self._open([self._checked().queue(input_name)], count, wait_ms)

    def open_any(self, count: int = 1, *, wait_ms: int = 0) -> Items:
        """Do as `open` does, of one input after another in turn; what it returns is of one input."""
        _check(count, wait_ms)
        with self._guard:
            queues = list(self._checked().queues.values())
            self._turn = (self._turn + 1) % len(queues)
            return self._open(queues[self._turn :] + queues[: self._turn], count, wait_ms)

    def peek(self, input_name: str | None = None) -> Item | None:
        """Return what would be opened next, and leave it where it is; None when nothing is ready.

        The item is there to be looked at; it cannot be settled.
        """
        with self._guard:
            desk = self._checked()
            return desk.peek(desk.queue(input_name))

    def confirm(self, what: What, *, wait_ms: int | None = None) -> int:
        """Confirm items, or parts of items: they are done, and their roots are acked.

        Args:
            what: what `open` returned, whole, or items of it, or parts; all or none of a list.
            wait_ms: how long to wait until the broker has the confirmation for good; None: not at all, it is
                on its way within some milliseconds.

        Returns:
            How many were open and are confirmed now: 0 for one that is confirmed already, or timed out, or is
            of a spout that was closed.

        Raises:
            UsageError: something is no item.
            TupleError: another client has it open, here or in another spout; or parts of it are open; or it
                was only peeked at.
            Unreachable: the broker did not have it in time; it is on its way all the same.
            WindhoverError: what stopped the spout.
        """
        runner = self._runner
        with self._lock:  # not by the guard, which costs as much as all the rest
            if self._is_closed or not runner.is_fit:
                self._checked()
            count = self._desk.confirm(self._name, what)
            if wait_ms is not None:
                self._settled(wait_ms)
            elif runner.is_idle and count:  # to ring for each of many would cost more than they do
                runner.settled(at_once=False)
            return count

    def confirm_oldest(self, count: int, input_name: str | None = None, *, wait_ms: int | None = None) -> int:
        """Confirm the oldest items that are open here: `count`, or none when fewer are open.

        Raises:
            TupleError: parts of one of them are open; none is confirmed then.
        """
        with self._guard:
            desk = self._checked()
            done = desk.confirm_oldest(self._name, desk.queue(input_name), count)
            self._settled(wait_ms)
            return done

    def abort(self, what: What) -> int:
        """Give items back: the next `open` of any client has them first, the oldest before the others.

        Nothing is told to the ackers: it is the same emission, and its timeout goes on. Use `fail` for what
        should come again after a back-off, or die after some attempts.

        Returns:
            How many were open.

        Raises:
            UsageError: as in `confirm`.
            TupleError: another client has it open, or it was only peeked at.
        """
        with self._guard:
            count = self._checked().abort(self._name, what)
            if count:
                self._guard.notify_all()
            return count

    def fail(self, what: What, why: BaseException | str | None = None, *, wait_ms: int | None = None) -> int:
        """Fail items: their roots are FAILED, and come again by the replay topic after its back-off.

        Args:
            what: as in `confirm`.
            why: the cause that stands in the verdict, in the copy's headers and in the dead letter.
            wait_ms: as in `confirm`.

        Returns:
            How many were open.

        Raises:
            UsageError: as in `confirm`.
            TupleError: another client has it open, or it was only peeked at.
            Unreachable: as in `confirm`.
        """
        with self._guard:
            count = self._checked().fail(self._name, what, why)
            if count or wait_ms is not None:
                self._settled(wait_ms)
            return count

    def split(self, item: Item, parts: int) -> list[Part]:
        """Split an item into parts that are worked on apart; it is confirmed when all of them are.

        To abort or fail one part does so with the item.

        Raises:
            UsageError: it is no item, or `parts` is below 1.
            TupleError: another client has it open, or it was split before, or only peeked at.
        """
        with self._guard:
            return self._checked().split(self._name, item, parts)

    def open_count(self, input_name: str | None = None) -> int:
        """Return how many items of an input are open here."""
        with self._guard:
            return self._desk.queue(input_name).store.open_of(self._name)

    def open_total(self) -> int:
        """Return how many items of all inputs are open here."""
        with self._guard:
            queues = self._desk.queues.values()
            return sum(queue.store.open_of(self._name) for queue in queues)

    def close(self) -> int:
        """Give back what is open, oldest first, and leave; return how many items that are."""
        with self._guard:
            if self._is_closed:
                return 0
            self._is_closed = True
            self._finalizer.detach()
            returned = self._desk.leave(self._name)
            self._closed(self._name)
            self._guard.notify_all()
            return returned

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self) -> Desk:
        if self._is_closed:
            raise UsageError(f"client {self._name!r} is closed; make another one")
        self._runner.check()
        return self._desk

    def _open(self, queues: Sequence[Queue], count: int, wait_ms: int) -> Items:
        """Open of the first queue that has something; wait until one has."""
        items = self._first(queues, count)
        if items or not wait_ms:
            self._runner.stir()
            return items
        until_ms = self._runner.now_ms() + wait_ms
        for queue in queues:
            queue.asked += count
        try:
            while not items and (left_ms := until_ms - self._runner.now_ms()) > 0:
                self._runner.stir()
                self._guard.wait(left_ms / 1000)
                items = self._first(queues, count)
        finally:
            for queue in queues:
                queue.asked -= count
        return items

    def _first(self, queues: Sequence[Queue], count: int) -> Items:
        desk, now_ms = self._checked(), self._runner.now_ms()
        for queue in queues:
            items = desk.open(self._terms, queue, count, now_ms)
            if items:
                return items
        return Items()

    def _settled(self, wait_ms: int | None) -> None:
        """Let what was settled be published; wait until that is durable, if asked to."""
        settlements = self._desk.settlements
        number = settlements.number if settlements else settlements.number - 1
        self._runner.settled(at_once=wait_ms is not None)
        if wait_ms is None:
            return
        until_ms = self._runner.now_ms() + wait_ms
        while self._runner.durable < number:
            left_ms = until_ms - self._runner.now_ms()
            if left_ms <= 0:
                raise Unreachable(
                    f"the broker did not have the confirmation within {wait_ms} ms; it is on its way, and"
                    " what was confirmed stays so; wait longer, or look at the broker"
                )
            self._guard.wait(left_ms / 1000)
            if self._runner.durable < number:
                self._runner.check()


def _check(count: int, wait_ms: int) -> None:
    if count < 1 or wait_ms < 0:
        raise UsageError(f"open({count}, wait_ms={wait_ms}): a count of 1 or more, a wait of 0 or more")
