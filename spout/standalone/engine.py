"""The only module of the standalone spout with threads, a lock and a clock.

One thread plans, the other publishes what was settled. Clients call from any
thread. An error in a thread stops the spout, and every later call raises it.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final

from acker.errors import Unreachable, UsageError
from spout.planning_process.status import PlannerStatus
from spout.runtime.forks import Behind, keep_for_good, tell_of_forks
from spout.standalone.queues import QueueCollection, SpoutStatus
from spout.standalone.service import SpoutService

READ_MS: Final = 20
"""How long the planning thread waits for a record before it checks verdicts and the clock again."""

IDLE_MS: Final = 100
"""How long it waits when no client requests a record; a request wakes it up."""

LINGER_MS: Final = 5
"""How long a confirmation may wait so that others are published with it, unless a client waits for it."""

WATCH_MS: Final = 1_000
"""How long the publishing thread waits for something to publish before it checks again."""

CLOSE_MS: Final = 70_000
"""How long `stop` waits until what was settled is durable; `inputs.<name>.unreachable` may allow more."""

STATUS_EVERY_MS: Final = 250
"""How old the planner's part of a status may be."""

FORK_CURE: Final = (
    "Make and open a KafkaSpout in the process that uses it (gunicorn: in post_fork, or without preload_app;"
    " multiprocessing: within the target, or with the start method spawn)"
)

_LOGGER = logging.getLogger("windhover.spout")


class Engine:
    """A service with its threads; `KafkaSpout` and its clients share it.

    Attributes:
        lock: protects the queues, and all that is shared here.
        guard: a condition on `lock`, notified when something has changed for
            clients.
        is_fit: whether `check` raises nothing; only under the guard.
        is_idle: whether the publishing thread waits for something to publish;
            only under the guard.
        behind: refuses each call in a process that was forked from the one
            which made this, in the place of lock and guard; None: this process
            was not forked.
    """

    behind: Behind | None = None

    def __init__(self, make: Callable[[threading.Condition], SpoutService]) -> None:
        """Make the service, with the guard; no thread begins before `start`."""
        lock = threading.Lock()
        self.lock: AbstractContextManager[object] = lock
        self.guard = threading.Condition(lock)
        # two more conditions on the lock, for which the planning thread and
        # the publishing thread wait, and whether they are meant to go on:
        # clients may request records, or a client waits until what it settled
        # is durable
        self._requested = threading.Condition(lock)
        self._to_publish = threading.Condition(lock)
        self._is_requested = False
        self._is_urgent = False
        self._service = make(self.guard)
        self._threads: list[threading.Thread] = []
        # garbage-collected clients that are not removed yet: the name, and
        # whom to call with it then
        self._orphans: deque[tuple[str, Callable[[str], None]]] = deque()
        self.is_fit = False
        self._error: BaseException | None = None  # that stopped a thread
        self._error_trace: TracebackType | None = None
        self._was_error_raised = False  # whether a call of the user has raised it
        self._is_stopping = False
        self.is_idle = False
        self._status: PlannerStatus | None = None
        self._status_ms = 0  # when it was made
        # wall time less monotonic time, as it was at the start; see `now_ms`
        self._wall_offset_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
        tell_of_forks(self)

    def forked(self) -> None:
        """Refuse every further call: in a forked child nothing plans, and nothing publishes.

        `spout.runtime.forks` calls this in the child.
        """
        self.behind = Behind("this KafkaSpout", FORK_CURE)
        # a thread of the parent may have held the lock when it was forked, and
        # nobody opens it here
        self.lock = self.guard = self._requested = self._to_publish = self.behind  # type: ignore[assignment]
        self.is_fit = False
        keep_for_good(self._service)  # to free its clients would close the parent's connections

    @property
    def queues(self) -> QueueCollection:
        """The items that clients can open; always the same object, used under the guard only."""
        return self._service.queues

    @property
    def durable_number(self) -> int:
        """Number of the last publication that is durable; only under the guard."""
        return self._service.durable_number

    def now_ms(self) -> int:
        """Return wall time, in ms, as it was at the start, then monotonic: a set clock delays no wait."""
        return self._wall_offset_ms + time.monotonic_ns() // 1_000_000

    def start(self, wait_ms: int) -> None:
        """Take the group and start the threads; `Unreachable` when the group was not taken in time."""
        self._service.open(self.now_ms())
        self.is_fit = True
        for name, loop in (("plan", self._plan), ("publish", self._publish)):
            thread = threading.Thread(
                target=self._run, args=(loop,), name=f"windhover-spout-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        with self.guard:
            is_decided = self.guard.wait_for(
                lambda: self._error is not None or self._service.is_ready, wait_ms / 1000
            )
            self.check()
            waits_for = "" if is_decided else self._service.waits_for()
        if not is_decided:
            raise Unreachable(f"the group was not taken within {wait_ms} ms: it waits for {waits_for}")

    def check(self) -> None:
        """Raise the error that stopped a thread, or `UsageError` if the spout is not open."""
        if self._error is not None:
            self._was_error_raised = True
            raise self._error.with_traceback(self._error_trace)  # else each call would add its frames to it
        if self._is_stopping:
            raise UsageError("the spout is closed; make another one")
        if not self._threads:
            raise UsageError("the spout is not open; open() it, or use it as a context")

    def wake_planning(self) -> None:
        """Wake up the planning thread, since clients may request records; called under the guard."""
        self._is_requested = True
        self._requested.notify()

    def wake_publishing(self, *, at_once: bool) -> None:
        """Wake up the publishing thread; called under the guard.

        `at_once`: publish without waiting `LINGER_MS` for other settlements.
        """
        self._is_urgent = self._is_urgent or at_once
        if self.is_idle or at_once:
            self.is_idle = False
            self._to_publish.notify()

    def add_orphan(self, client: str, on_close: Callable[[str], None]) -> None:
        """Have the open items of a client put back, soon; the garbage collector calls this."""
        self._orphans.append((client, on_close))  # no lock: the collector may run in a thread that has it

    def status(self) -> SpoutStatus:
        """Return the status; its planner's part is at most a quarter of a second old."""
        with self.guard:
            status = self._status or PlannerStatus(state="idle", group="")  # of no step yet
            if self._error is not None:
                status = replace(status, state="failed", error=str(self._error))
            elif self._is_stopping:
                status = replace(status, state="closed")
            return self.queues.status(status)

    def stop(self) -> None:
        """Publish what was settled, end the threads, commit and leave the group.

        Raises:
            Unreachable: what was settled is not durable in time; nothing is
                committed then.
            WindhoverError: the error that stopped a thread, unless a call
                raised it before.
        """
        with self.guard:
            self._is_stopping = True
            self.is_fit = False
            self._notify_everybody()
        until_s = time.monotonic() + CLOSE_MS / 1000
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            raise Unreachable(
                f"what was settled is not durable after {CLOSE_MS // 1000} s; the next session replays what"
                " does not become so; look at the broker"
            )
        try:
            self._service.close()
        finally:
            if self._error is not None and not self._was_error_raised:
                self.check()

    def _notify_everybody(self) -> None:
        """Wake up both threads, and all clients that wait; called under the guard."""
        for condition in (self.guard, self._requested, self._to_publish):
            condition.notify_all()

    def _run(self, loop: Callable[[], None]) -> None:
        """Run the loop of a thread; an error of it stops the spout, and every later call raises it."""
        try:
            loop()
        except BaseException as error:  # noqa: BLE001 - a thread's top: every later call raises it
            with self.guard:
                if self._error is None:
                    self._error = error
                    self._error_trace = error.__traceback__
                self._is_stopping = True
                self.is_fit = False
                self.queues.close()
                _LOGGER.error("spout stopped: %s", error)
                self._notify_everybody()

    def _plan(self) -> None:
        """Read, plan and settle verdicts until the spout stops: the planning thread."""
        while not self._is_stopping:
            is_unread = self._service.read(self.now_ms(), READ_MS)
            now_ms = self.now_ms()
            was_ready = self._service.is_ready
            has_new_items = self._service.step(now_ms)
            with self.guard:
                self._remove_orphans()
                if now_ms - self._status_ms >= STATUS_EVERY_MS:
                    self._status = self._service.status(now_ms)
                    self._status_ms = now_ms
                if self._service.is_ready != was_ready:
                    self.guard.notify_all()
                is_idle = not has_new_items and not is_unread
                if is_idle and not self._is_stopping and not self._is_requested:
                    self._requested.wait(IDLE_MS / 1000)
                self._is_requested = False

    def _remove_orphans(self) -> None:
        """Put back the open items of clients that were garbage-collected; called under the guard."""
        while self._orphans:
            client, on_close = self._orphans.popleft()
            self.queues.put_back_of_client(client)
            on_close(client)
            self.guard.notify_all()

    def _publish(self) -> None:
        """Publish what clients settle, until the spout stops and nothing is left: the publishing thread."""
        while True:
            with self.guard:
                self.is_idle = True
                self._to_publish.wait_for(
                    lambda: self._is_stopping or self.queues.publication, WATCH_MS / 1000
                )
                self.is_idle = False
                # so that others are published with the first one
                if not self._is_urgent and not self._is_stopping:
                    self._to_publish.wait_for(lambda: self._is_urgent or self._is_stopping, LINGER_MS / 1000)
                self._is_urgent = False
                is_last = self._is_stopping
            if self._service.publish() is None and is_last:
                return
