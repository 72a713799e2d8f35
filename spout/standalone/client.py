"""One client of a spout, with Kestrel's verbs. Source: docs/design/conformance.md, S154 to S166."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NoReturn, Self

from acker.errors import Unreachable, UsageError
from acker.waits import LOGGED_EVERY_MS, LongWait
from spout.runtime.forks import ForkRefusal, register_for_forks
from spout.standalone.engine import FORK_CURE, Engine
from spout.standalone.items import Item, Items, Part
from spout.standalone.queues import ClientLimits, Queue, QueueCollection, Settleable
from spout.tuples.failures import cause_of

_LOGGER = logging.getLogger("windhover.spout")


class Client:
    """A client: it opens records and confirms, aborts or fails them. Threads may share it.

    >>> with lines.client("worker-1") as worker:
    ...     items = worker.open(10, wait_ms=1_000)
    ...     print(worker.confirm(items[0]), worker.fail(items[1], "the service is busy"))
    1 1

    When it is closed, left by an exception or garbage-collected, other clients
    get its open items, the oldest first. `KafkaSpout.client` returns one.
    """

    def __init__(
        self,
        engine: Engine,
        limits: ClientLimits,
        on_close: Callable[[str], None],
    ) -> None:
        """Begin without an open item; `on_close` is called with its name once it is closed."""
        self._engine = engine
        self._limits = limits
        self._name = limits.client
        self._queues = engine.queues
        self._lock = engine.lock
        self._guard = engine.guard
        self._is_closed = self._is_forked = False
        self._first_queue_index = 0  # of the queue that `open_any` asks first
        self._on_close = on_close
        # called once the client is garbage-collected without being closed
        self._finalizer = weakref.finalize(self, engine.add_orphan, limits.client, on_close)
        self._finalizer.atexit = False
        register_for_forks(self)  # it calls `forked` in a child process

    def forked(self) -> None:
        """Refuse every further call: a forked child has none of the threads that would publish."""
        refusal = ForkRefusal(f"client {self._name!r}", FORK_CURE)
        self._lock = self._guard = refusal  # type: ignore[assignment]
        self._is_forked = True
        self._finalizer.detach()

    @property
    def name(self) -> str:
        return self._name

    def open(self, count: int = 1, input_name: str | None = None, *, wait_ms: int = 0) -> Items:
        """Open the oldest records that nobody has open.

        Args:
            count: how many at most; 1 or more.
            input_name: the input; optional if the spout has only one.
            wait_ms: how long to wait for the first one; 0: not at all.

        Returns:
            The items; empty when no record came in time, when the client has
            `max_open` of the input open already, or while the spout is
            deactivated.

        Raises:
            UsageError: no such input, or the client is closed.
            Damaged: a batch cannot be read, and `on_data_loss` is fail; all
                else that was read was opened before, and can be settled.
                Another spout goes on behind it.
            WindhoverError: the error that stopped the spout.
        """
        with self._guard:
            queue = self._usable_queues().queue(input_name)
            return self._open([queue], count, wait_ms)

    def open_any(self, count: int = 1, *, wait_ms: int = 0) -> Items:
        """Do as `open`, with the inputs in turn; all returned items are of one input."""
        with self._guard:
            queues = list(self._usable_queues().by_name.values())
            self._first_queue_index = (self._first_queue_index + 1) % len(queues)
            queues_in_turn = queues[self._first_queue_index :] + queues[: self._first_queue_index]
            return self._open(queues_in_turn, count, wait_ms)

    def peek(self, input_name: str | None = None) -> Item | None:
        """Return the item that would be opened next, to be read, not settled; None: none waits."""
        with self._guard:
            queues = self._usable_queues()
            return queues.peek(queues.queue(input_name))

    def confirm(self, what: Settleable, *, wait_ms: int | None = None) -> int:
        """Confirm items or parts of items: their work is done, and their roots are acked.

        Args:
            what: the whole result of `open`, or items of it, or parts; of a
                list all or none are confirmed.
            wait_ms: how long to wait until the confirmation is durable in
                Kafka; None: not at all, it is sent within some milliseconds.

        Returns:
            How many were open and are confirmed now; an item that was
            confirmed before, has timed out, or is of a closed spout counts 0.

        Raises:
            UsageError: an argument is no item.
            TupleError: another client, of this spout or another, has the item
                open; or parts of it are open; or it comes from `peek`.
            Unreachable: the confirmation was not durable in time; it is sent
                all the same.
            WindhoverError: the error that stopped the spout.
        """
        engine = self._engine
        with self._lock:  # the bare lock: the guard would cost as much as all the rest
            if self._is_closed or not engine.is_usable:
                self._usable_queues()  # raises why not
            confirmed_count = self._queues.confirm(self._name, what)
            if wait_ms is not None:
                self._publish(wait_ms)
            # once is enough: to wake it for each of many would cost more than
            # their work
            elif engine.is_publishing_idle and confirmed_count:
                engine.wake_publishing(at_once=False)
            return confirmed_count

    def confirm_oldest(
        self,
        count: int,
        input_name: str | None = None,
        *,
        wait_ms: int | None = None,
    ) -> int:
        """Confirm the `count` oldest open items of this client, or none if it has fewer.

        Arguments and errors as in `open` and `confirm`; returns how many are
        confirmed.
        """
        with self._guard:
            queues = self._usable_queues()
            confirmed_count = queues.confirm_oldest(self._name, queues.queue(input_name), count)
            self._publish(wait_ms)
            return confirmed_count

    def abort(self, what: Settleable) -> int:
        """Put items back: the next `open` of any client returns them first, the oldest in front.

        The ackers do not notice: it is the same emission, and its timeout goes
        on. Use `fail` for items that should be replayed after a back-off, or
        become dead letters after some attempts.

        Returns:
            How many were open; errors as in `confirm`, but open parts do not
            matter.
        """
        with self._guard:
            returned_count = self._usable_queues().abort(self._name, what)
            if returned_count:
                self._guard.notify_all()
            return returned_count

    def fail(
        self, what: Settleable, why: BaseException | str | None = None, *, wait_ms: int | None = None
    ) -> int:
        """Fail items: their roots are FAILED, and replayed after the input's back-off.

        Args:
            what: as in `confirm`.
            why: the cause in the verdict, in the copy's headers and in the
                dead letter.
            wait_ms: as in `confirm`.

        Returns:
            How many were open; errors as in `confirm`, but open parts do not
            matter.
        """
        with self._guard:
            cause = cause_of(self._name, why)
            failed_count = self._usable_queues().fail(self._name, what, cause)
            if failed_count or wait_ms is not None:
                self._publish(wait_ms)
            return failed_count

    def reset_timeout(self, what: Settleable) -> int:
        """Begin the timeouts of items anew, since work on them goes on: Storm's `resetTimeout`.

        Call it a few times within each timeout, for example after each page of
        a long document.

        It is sent within some milliseconds. Where `auto_abort_ms` puts items
        back after some time, that begins anew as well, for all items that were
        opened with these.

        Returns:
            How many were open; 0 for an item that was settled, put back, or
            has timed out: then its record is replayed, and another client may
            have it. Errors as in `confirm`, but open parts do not matter.
        """
        with self._guard:
            now_ms = self._engine.now_ms()
            reset_count = self._usable_queues().reset_timeout(self._limits, what, now_ms)
            if reset_count:
                self._engine.wake_planning()  # that thread sends the resets
            return reset_count

    def split(self, item: Item, parts: int) -> list[Part]:
        """Split an item into parts for separate work; the item is confirmed when all its parts are.

        To abort or fail one part aborts or fails the item.

        Raises:
            UsageError: it is no item, or `parts` is below 1.
            TupleError: another client has it open, it was split before, or it
                comes from `peek`.
        """
        with self._guard:
            return self._usable_queues().split(self._name, item, parts)

    def open_count(self, input_name: str | None = None) -> int:
        """Return how many items of an input this client has open."""
        with self._guard:
            return self._queues.queue(input_name).store.open_count_of(self._name)

    def open_total(self) -> int:
        """Return how many items of all inputs this client has open."""
        with self._guard:
            queues = self._queues.by_name.values()
            return sum(queue.store.open_count_of(self._name) for queue in queues)

    def close(self) -> int:
        """Put the open items back, the oldest first, and leave; return how many there were."""
        with self._guard:
            if self._is_closed:
                return 0
            self._is_closed = True
            self._finalizer.detach()
            returned_count = self._queues.put_back_of_client(self._name)
            self._on_close(self._name)
            self._guard.notify_all()
            return returned_count

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"client {self._name!r} cannot be sent to another process. {FORK_CURE}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # what ends a forked child is not hidden by a second error
        if error is None or not self._is_forked:
            self.close()

    def _usable_queues(self) -> QueueCollection:
        """Return the queues, if this client is not closed and its spout is open.

        Raises `UsageError`: one of these is not so; or the error that stopped
        the spout.
        """
        if self._is_closed:
            raise UsageError(f"client {self._name!r} is closed; make another one")
        self._engine.check()
        return self._queues

    def _open(self, queues: Sequence[Queue], count: int, wait_ms: int) -> Items:
        """Open items of the first of some queues that has any; wait for that, at most `wait_ms`.

        Empty: none of them had any in time.
        """
        if count < 1 or wait_ms < 0:
            raise UsageError(f"open({count}, wait_ms={wait_ms}): a count of 1 or more, a wait of 0 or more")
        items = self._open_at_once(queues, count)
        if items or not wait_ms:
            self._engine.wake_planning()
            return items
        until_ms = self._engine.now_ms() + wait_ms
        long_wait = LongWait()
        while not items:
            remaining_ms = until_ms - self._engine.now_ms()
            if remaining_ms <= 0:
                break
            # records are planned for what clients that wait request; who waits
            # no more requests nothing
            requests = [(queue, queue.openable_count(self._limits, count)) for queue in queues]
            for queue, requested_count in requests:
                queue.requested_count += requested_count
            try:
                self._engine.wake_planning()
                self._guard.wait(min(remaining_ms, LOGGED_EVERY_MS) / 1000)
            finally:
                for queue, requested_count in requests:
                    queue.requested_count -= requested_count
            items = self._open_at_once(queues, count)
            if not items:
                self._log_long_wait(long_wait, queues)
        return items

    def _log_long_wait(self, long_wait: LongWait, queues: Sequence[Queue]) -> None:
        """Write each minute why there is no item for this client, which waits for one."""
        waited_ms = long_wait.record_wait("items", self._engine.now_ms())
        if waited_ms is None:  # it is not yet time for the next message
            return
        if self._queues.is_active:
            reasons = [f"{queue.name}: {queue.why_no_item(self._limits)}" for queue in queues]
        else:
            reasons = ["the spout is deactivated; activate() it"]
        # as an info: no record for an hour is nothing to worry about, and
        # whoever wonders finds it
        reasons_text = "; ".join(reasons)
        waited_s = waited_ms // 1000
        _LOGGER.info("waits_for_items client=%s waited_s=%d: %s", self._name, waited_s, reasons_text)

    def _open_at_once(self, queues: Sequence[Queue], count: int) -> Items:
        """Open items of the first of some queues that has any; none if there is none."""
        collection = self._usable_queues()
        now_ms = self._engine.now_ms()
        for queue in queues:
            items = collection.open(self._limits, queue, count, now_ms)
            if items:
                return items
        return Items()

    def _publish(self, wait_ms: int | None) -> None:
        """Have what was settled published, and wait until it is durable, at most `wait_ms`.

        None: do not wait; it is sent within some milliseconds.

        Raises `Unreachable`: it was not durable in time; or the error that
        stopped the spout.
        """
        publication = self._queues.publication
        awaited_number = publication.number
        if not publication:
            # an empty one is not published: all that was settled is in the one
            # before it, which is on its way or durable
            awaited_number -= 1
        self._engine.wake_publishing(at_once=wait_ms is not None)
        if wait_ms is None:
            return
        until_ms = self._engine.now_ms() + wait_ms
        while self._engine.durable_number < awaited_number:
            remaining_ms = until_ms - self._engine.now_ms()
            if remaining_ms <= 0:
                raise Unreachable(
                    f"the broker did not have the confirmation within {wait_ms} ms; it is on its way,"
                    " and what was confirmed stays so; wait longer, or look at the broker"
                )
            self._guard.wait(remaining_ms / 1000)
            # durable though the spout has stopped: no error
            if self._engine.durable_number < awaited_number:
                self._engine.check()
