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
from typing import Final, NamedTuple

from acker.errors import Unreachable, UsageError
from spout.planning_process.status import PlannerStatus
from spout.runtime.forks import ForkRefusal, keep_for_good, register_for_forks
from spout.standalone.queues import QueueCollection, SpoutStatus
from spout.standalone.service import SpoutService

READ_MS: Final = 20
"""How long the planning thread waits for a record before it checks verdicts and the clock again."""

IDLE_MS: Final = 100
"""How long it waits when no client requests a record; a request wakes it up."""

LINGER_MS: Final = 5
"""How long a confirmation waits so that others are published with it, unless a client waits."""

WATCH_MS: Final = 1_000
"""How long the publishing thread waits for something to publish before it checks again."""

CLOSE_MS: Final = 70_000
"""How long `stop` waits until all is durable; `inputs.<name>.unreachable` may allow more."""

STATUS_EVERY_MS: Final = 250
"""How old the planner's part of a status may be."""

FORK_CURE: Final = (
    "Make and open a KafkaSpout in the process that uses it (gunicorn: in post_fork, or without preload_app;"
    " multiprocessing: within the target, or with the start method spawn)"
)

_LOGGER = logging.getLogger("windhover.spout")


class _Orphan(NamedTuple):
    """A client that was garbage-collected without being closed, and whom to call with its name."""

    client: str
    on_close: Callable[[str], None]


class Engine:
    """A service with its threads; `KafkaSpout` and its clients share it.

    Attributes:
        lock: protects the queues, and all that is shared here.
        guard: a condition on `lock`, notified when something has changed for
            clients.
        is_usable: whether `check` raises nothing; only under the guard.
        is_publishing_idle: whether the publishing thread waits for something
            to publish; only under the guard.
        fork_refusal: refuses each call in a process that was forked from the
            one which made this, in the place of lock and guard; None: this
            process was not forked.
    """

    fork_refusal: ForkRefusal | None = None

    def __init__(self, make_service: Callable[[threading.Condition], SpoutService]) -> None:
        """Make the service, with the guard; no thread begins before `start`."""
        lock = threading.Lock()
        self.lock: AbstractContextManager[object] = lock
        self.guard = threading.Condition(lock)
        # the planning thread waits for this condition until clients may
        # request records; whether they may have since it looked last
        self._planning_wake_up = threading.Condition(lock)
        self._is_planning_requested = False
        # the publishing thread waits for this one until something was settled;
        # whether a client waits until it is durable
        self._publishing_wake_up = threading.Condition(lock)
        self._must_publish_at_once = False
        self._service = make_service(self.guard)
        self._threads: list[threading.Thread] = []
        self._orphans: deque[_Orphan] = deque()
        self.is_usable = False
        self._error: BaseException | None = None  # the first one that stopped a thread
        self._error_trace: TracebackType | None = None
        self._was_error_raised = False  # whether a call of the user has raised it
        self._is_stopping = False
        self.is_publishing_idle = False
        self._planner_status: PlannerStatus | None = None  # None: there was no step yet
        self._planner_status_ms = 0  # when it was made, wall time
        # wall time less monotonic time, as it was at the start; see `now_ms`
        self._wall_offset_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
        register_for_forks(self)  # it calls `forked` in a child process

    def forked(self) -> None:
        """Refuse every further call: in a forked child nothing plans, and nothing publishes.

        `spout.runtime.forks` calls this in the child.
        """
        refusal = self.fork_refusal = ForkRefusal("this KafkaSpout", FORK_CURE)
        # a thread of the parent may have held the lock when it was forked, and
        # nobody opens it here
        self.lock = self.guard = refusal  # type: ignore[assignment]
        self._planning_wake_up = self._publishing_wake_up = refusal  # type: ignore[assignment]
        self.is_usable = False
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
        """Return wall time, in ms: that of the start, and the monotonic time since then.

        So a clock that is set delays no wait.
        """
        return self._wall_offset_ms + time.monotonic_ns() // 1_000_000

    def start(self, wait_ms: int) -> None:
        """Take the group, start the threads, and wait until the group is taken, at most `wait_ms`.

        Raises `Unreachable`: it was not taken in time; or the error that
        stopped a thread.
        """
        self._service.open(self.now_ms())
        self.is_usable = True
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
            if not is_decided:
                raise Unreachable(
                    f"the group was not taken within {wait_ms} ms: it waits for {self._service.waits_for()}"
                )

    def check(self) -> None:
        """Raise the error that stopped a thread, or `UsageError` if the spout is not open."""
        if self._error is not None:
            self._was_error_raised = True
            # with its first traceback: else each call would add its frames to it
            raise self._error.with_traceback(self._error_trace)
        if self._is_stopping:
            raise UsageError("the spout is closed; make another one")
        if not self._threads:
            raise UsageError("the spout is not open; open() it, or use it as a context")

    def wake_planning(self) -> None:
        """Wake up the planning thread: clients may request records. Called under the guard."""
        self._is_planning_requested = True
        self._planning_wake_up.notify()

    def wake_publishing(self, *, at_once: bool) -> None:
        """Wake up the publishing thread; called under the guard.

        `at_once`: publish without waiting `LINGER_MS` for other settlements.
        """
        self._must_publish_at_once = self._must_publish_at_once or at_once
        if self.is_publishing_idle or at_once:
            self.is_publishing_idle = False
            self._publishing_wake_up.notify()

    def add_orphan(self, client: str, on_close: Callable[[str], None]) -> None:
        """Have the open items of a client put back, soon; the garbage collector calls this."""
        # without the lock: the collector may run in a thread that holds it
        self._orphans.append(_Orphan(client, on_close))

    def status(self) -> SpoutStatus:
        """Return the status; its planner's part is at most a quarter of a second old."""
        with self.guard:
            status = self._planner_status or PlannerStatus(state="idle", group="")
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
            self.is_usable = False
            self._notify_everybody()
        until_s = time.monotonic() + CLOSE_MS / 1000
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            raise Unreachable(
                f"what was settled is not durable after {CLOSE_MS // 1000} s; the next session replays"
                " what does not become so; look at the broker"
            )
        try:
            self._service.close()
        finally:
            if self._error is not None and not self._was_error_raised:
                self.check()

    def _notify_everybody(self) -> None:
        """Wake up both threads, and all clients that wait; called under the guard."""
        for condition in (self.guard, self._planning_wake_up, self._publishing_wake_up):
            condition.notify_all()

    def _run(self, loop: Callable[[], None]) -> None:
        """Run the loop of a thread; its error stops the spout, and every later call raises it."""
        try:
            loop()
        except BaseException as error:  # noqa: BLE001 - a thread's top: every later call raises it
            with self.guard:
                if self._error is None:
                    self._error = error
                    self._error_trace = error.__traceback__
                self._is_stopping = True
                self.is_usable = False
                self.queues.close()
                _LOGGER.error("spout stopped: %s", error)
                self._notify_everybody()

    def _plan(self) -> None:
        """Read, plan and settle verdicts until the spout stops: this is the planning thread."""
        while not self._is_stopping:
            is_unread = self._service.read(self.now_ms(), READ_MS)
            now_ms = self.now_ms()
            was_ready = self._service.is_ready
            has_new_items = self._service.step(now_ms)
            with self.guard:
                self._remove_orphans()
                if now_ms - self._planner_status_ms >= STATUS_EVERY_MS:
                    self._planner_status = self._service.status(now_ms)
                    self._planner_status_ms = now_ms
                if self._service.is_ready != was_ready:
                    self.guard.notify_all()  # `start` waits for this
                is_idle = not has_new_items and not is_unread
                if is_idle and not self._is_stopping and not self._is_planning_requested:
                    self._planning_wake_up.wait(IDLE_MS / 1000)
                self._is_planning_requested = False

    def _remove_orphans(self) -> None:
        """Put back the open items of garbage-collected clients; called under the guard."""
        while self._orphans:
            orphan = self._orphans.popleft()
            self.queues.put_back_of_client(orphan.client)
            orphan.on_close(orphan.client)
            self.guard.notify_all()

    def _publish(self) -> None:
        """Publish what clients settle until the spout stops and all is published.

        This is the publishing thread.
        """
        while True:
            with self.guard:
                # 1. wait until something was settled
                self.is_publishing_idle = True
                self._publishing_wake_up.wait_for(
                    lambda: self._is_stopping or self.queues.publication, WATCH_MS / 1000
                )
                self.is_publishing_idle = False
                # 2. wait for other settlements, which are published with it
                if not self._must_publish_at_once and not self._is_stopping:
                    self._publishing_wake_up.wait_for(
                        lambda: self._must_publish_at_once or self._is_stopping, LINGER_MS / 1000
                    )
                self._must_publish_at_once = False
                is_last_round = self._is_stopping
            # 3. publish, without the guard: clients go on meanwhile
            publication_number = self._service.publish()
            if publication_number is None and is_last_round:
                return
