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
    """What drives a spout; `spout.standalone.engine.Engine` does so with threads.

    Attributes:
        lock: protects `desk` and `durable`.
        guard: a condition on the same lock, notified when something has changed for clients.
        is_fit: whether `check` would raise nothing; read it under the guard.
        is_idle: whether it waits for something to publish; read it under the guard.
    """

    lock: AbstractContextManager[object]
    guard: Condition
    is_fit: bool
    is_idle: bool

    @property
    def desk(self) -> Desk:
        """The items that clients can open; always the same object, used under the guard only."""

    @property
    def durable(self) -> int:
        """Number of the last publication that is durable."""

    def now_ms(self) -> int:
        """Return wall time, in ms."""

    def start(self, wait_ms: int) -> None:
        """Take the group."""

    def stop(self) -> None:
        """Publish what was settled, and leave the group."""

    def status(self) -> SpoutStatus:
        """Return the current status."""

    def check(self) -> None:
        """Raise the error that stopped the spout, if there is one."""

    def stir(self) -> None:
        """Wake up planning: clients request more records."""

    def settled(self, *, at_once: bool) -> None:
        """Let what was settled be published, soon or at once."""

    def orphan(self, client: str, closed: Callable[[str], None]) -> None:
        """Put back the open items of a client that was garbage-collected."""


class Client:
    """A client: it opens records and confirms, aborts or fails them. Threads may share it.

    >>> with lines.client("worker-1") as worker:
    ...     items = worker.open(10, wait_ms=1_000)
    ...     print(worker.confirm(items[0]), worker.fail(items[1], "the service is busy"))
    1 1

    When it is closed, left by an exception or garbage-collected, other clients get its open items, the oldest
    first. `KafkaSpout.client` returns one.
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
            input_name: the input; optional if the spout has only one.
            wait_ms: how long to wait for the first one; 0: not at all.

        Returns:
            The items; empty when no record came in time, when the client has `max_open` of the input open
            already, or while the spout is deactivated.

        Raises:
            UsageError: no such input, or the client is closed.
            WindhoverError: the error that stopped the spout.
        """
        _check(count, wait_ms)
        with self._guard:
            return self._open([self._checked().queue(input_name)], count, wait_ms)

    def open_any(self, count: int = 1, *, wait_ms: int = 0) -> Items:
        """Do as `open`, with the inputs in turn; all returned items are of one input."""
        _check(count, wait_ms)
        with self._guard:
            queues = list(self._checked().queues.values())
            self._turn = (self._turn + 1) % len(queues)
            return self._open(queues[self._turn :] + queues[: self._turn], count, wait_ms)

    def peek(self, input_name: str | None = None) -> Item | None:
        """Return the item that would be opened next, without opening it; None when nothing is ready.

        The item can be read, but not settled.
        """
        with self._guard:
            desk = self._checked()
            return desk.peek(desk.queue(input_name))

    def confirm(self, what: What, *, wait_ms: int | None = None) -> int:
        """Confirm items or parts of items: their work is done, and their roots are acked.

        Args:
            what: the whole result of `open`, or items of it, or parts; of a list all or none are confirmed.
            wait_ms: how long to wait until the confirmation is durable in Kafka; None: not at all, it is sent
                within some milliseconds.

        Returns:
            How many were open and are confirmed now; an item that was confirmed before, has timed out, or is
            of a closed spout counts 0.

        Raises:
            UsageError: an argument is no item.
            TupleError: another client, of this spout or another, has the item open; or parts of it are open;
                or it comes from `peek`.
            Unreachable: the confirmation was not durable in time; it is sent all the same.
            WindhoverError: the error that stopped the spout.
        """
        runner = self._runner
        with self._lock:  # the bare lock: the guard would cost as much as all the rest
            if self._is_closed or not runner.is_fit:
                self._checked()
            count = self._desk.confirm(self._name, what)
            if wait_ms is not None:
                self._settled(wait_ms)
            elif runner.is_idle and count:  # to notify for each of many would cost more than their work
                runner.settled(at_once=False)
            return count

    def confirm_oldest(self, count: int, input_name: str | None = None, *, wait_ms: int | None = None) -> int:
        """Confirm the `count` oldest items that this client has open, or none if it has fewer open.

        Raises:
            TupleError: parts of one of them are open; none is confirmed then.
        """
        with self._guard:
            desk = self._checked()
            done = desk.confirm_oldest(self._name, desk.queue(input_name), count)
            self._settled(wait_ms)
            return done

    def abort(self, what: What) -> int:
        """Put items back: the next `open` of any client returns them first, the oldest before the others.

        The ackers do not notice: it is the same emission, and its timeout goes on. Use `fail` for items that
        should be replayed after a back-off, or become dead letters after some attempts.

        Returns:
            How many were open.

        Raises:
            UsageError: as in `confirm`.
            TupleError: another client has the item open, or it comes from `peek`.
        """
        with self._guard:
            count = self._checked().abort(self._name, what)
            if count:
                self._guard.notify_all()
            return count

    def fail(self, what: What, why: BaseException | str | None = None, *, wait_ms: int | None = None) -> int:
        """Fail items: their roots are FAILED, and replayed after the input's back-off.

        Args:
            what: as in `confirm`.
            why: the cause in the verdict, in the copy's headers and in the dead letter.
            wait_ms: as in `confirm`.

        Returns:
            How many were open.

        Raises:
            UsageError: as in `confirm`.
            TupleError: another client has the item open, or it comes from `peek`.
            Unreachable: as in `confirm`.
        """
        with self._guard:
            count = self._checked().fail(self._name, what, why)
            if count or wait_ms is not None:
                self._settled(wait_ms)
            return count

    def split(self, item: Item, parts: int) -> list[Part]:
        """Split an item into parts for separate work; the item is confirmed when all its parts are.

        To abort or fail one part aborts or fails the item.

        Raises:
            UsageError: it is no item, or `parts` is below 1.
            TupleError: another client has it open, it was split before, or it comes from `peek`.
        """
        with self._guard:
            return self._checked().split(self._name, item, parts)

    def open_count(self, input_name: str | None = None) -> int:
        """Return how many items of an input this client has open."""
        with self._guard:
            return self._desk.queue(input_name).store.open_of(self._name)

    def open_total(self) -> int:
        """Return how many items of all inputs this client has open."""
        with self._guard:
            queues = self._desk.queues.values()
            return sum(queue.store.open_of(self._name) for queue in queues)

    def close(self) -> int:
        """Put the open items back, the oldest first, and leave; return how many there were."""
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
        """Open items of the first queue that has some; wait until one has."""
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
        """Let the settled items be published; wait until that is durable, if `wait_ms` is not None."""
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
