"""The planning process's end of the link: what the driver said last, and what it sends the driver.

A thread keeps the connection: it connects, handles what arrives, and connects again when the driver
has closed it. The driver's *state* holds until the driver says something else, also while there is
no connection. A callback of Spark first handles what has arrived until then (`catch_up`). So what
the driver did before Spark called is known, as if it were in a file.

Source: docs/design/protocol.md, section 5.1 ("Planning").
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from acker.errors import Unreachable, UsageError, WindhoverError
from acker.wire.events import SourceRun
from spout.link.connection import (
    LINK_VERSION,
    Connection,
    DriverAddress,
    OtherVersion,
    connect,
    greet_driver,
)
from spout.link.messages import (
    BatchPublished,
    DriverState,
    Hello,
    PlannerState,
    Published,
    batch_name,
    from_frame,
    keep_last_of_session,
    to_frame,
)

CONNECT_MS_MAX: Final = 60_000
"""How long a planning process waits for the driver, which may be busy, before its query fails."""

RECONNECT_MS_MAX: Final = 1_000
"""How long it waits for a new connection when one has ended: the driver makes its socket again
within 100 ms. Then it goes on with what the driver has said before; if the driver is gone, Spark
ends this process soon."""

RETRY_MS: Final = 50
"""How long it waits between two tries to connect."""

IDLE_WAIT_MS: Final = 10_000
"""The thread looks this often whether it is to end, where nothing arrives."""

_LOGGER = logging.getLogger("windhover.spout")


class DriverLink:
    """What the planning process of one stream and its driver have said to each other.

    Attributes:
        group: of the stream.
        changes: how often the driver has said something; see `wait`.
    """

    def __init__(
        self, address: DriverAddress | None, hello: Hello, group: str, mark: Path | None = None
    ) -> None:
        """Begin without a connection; `start` connects.

        Args:
            address: of the driver; None: there is none, as in tests, and no state ever comes.
            hello: who this process is.
            group: of the stream.
            mark: the file that exists while a batch is run again; None: none is written.
        """
        self.group = group
        self.changes = 0
        self._address = address
        self._hello = hello
        self._mark = mark
        self._is_mark_broken = False  # whether it was logged that the mark cannot be written
        self._mark_lock = threading.Lock()  # Spark's callback removes what the thread keeps
        self._driver_state = DriverState()
        self._published: dict[str, BatchPublished] = {}  # of each session the last message
        self._own_state = PlannerState()
        self._connection: Connection | None = None  # None: the thread tries to connect
        self._has_present_state = False  # whether the driver's state came over this connection
        self._has_state = address is None  # whether it came over any connection
        self._refusal: WindhoverError | None = None  # why no further try to connect is made
        self._why_not_connected = "it was not tried yet"  # why there is no connection
        # guards all fields, and is notified at each change; held for moments
        self._change_condition = threading.Condition()  # guards all fields; held for moments
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Start the thread that connects and keeps the connection.

        Raises `Unreachable`: no thread can be started.
        """
        if self._address is None:
            return
        connecting_thread = threading.Thread(
            target=self._keep_connected,
            args=(self._address,),
            name="windhover-hears-driver",
            daemon=True,
        )
        try:
            connecting_thread.start()
        except RuntimeError as error:
            raise Unreachable(
                f"group {self.group}: the planning process cannot start a thread ({error}); raise the number"
                " of processes and threads that its user, or its container, may have (ulimit -u, pids.max)"
            ) from error

    def close(self) -> None:
        """End the connection and the thread."""
        self._is_closed.set()
        with self._change_condition:
            connection = self._connection
        if connection is not None:
            connection.end()

    # -- what the driver has said

    def wait_for_state(self) -> None:
        """Wait until the state of the driver has come.

        Raises:
            Unreachable: it does not answer within a minute.
            UsageError: it speaks another version, or its folder is not private.
        """
        with self._change_condition:
            self._change_condition.wait_for(
                lambda: self._has_state or self._refusal,
                CONNECT_MS_MAX / 1000,
            )
            if self._has_state:
                return
            refusal = self._refusal
            why_not_connected = self._why_not_connected
        if refusal is not None:
            raise refusal
        raise Unreachable(
            f"group {self.group}: the driver has not answered within {CONNECT_MS_MAX // 1000} s"
            f" ({why_not_connected}); no batch is planned before, since the stream may be"
            " paused. See the driver's log, and whether its process lives; then start the query again"
        )

    def catch_up(self) -> None:
        """Handle every message that the driver has sent until now.

        If the connection has ended, the thread makes another one, over which the driver sends all
        of it again: so there is a second try.
        """
        if not self._handle_arrived():
            self._handle_arrived()

    def _handle_arrived(self) -> bool:
        """Handle the frames that have arrived; return False if the connection has ended by then.

        True also where there is no connection within `RECONNECT_MS_MAX`: then nothing can arrive.
        """
        with self._change_condition:
            self._change_condition.wait_for(self._needs_no_state, RECONNECT_MS_MAX / 1000)
            connection = self._connection
        if connection is None:
            return True
        try:
            connection.handle_arrived(self.handle_frame)
        except TimeoutError:  # the thread is handling them
            return True
        except (OSError, EOFError, ValueError):  # the thread sees the same, and logs it
            with self._change_condition:
                # the thread may have a new connection by now, over which the state has come
                if self._connection is connection:
                    self._has_present_state = False
            return False
        return True

    def _needs_no_state(self) -> bool:
        """Return whether no state of the driver is waited for over the connection.

        It has come over this one; or there is no driver; or none has come over any connection,
        for which `wait_for_state` waits.
        """
        return self._has_present_state or self._address is None or not self._has_state

    def wait(self, changes_seen: int, wait_ms: int) -> None:
        """Wait until `changes` is another number than `changes_seen`, or `wait_ms` have passed."""
        with self._change_condition:
            self._change_condition.wait_for(lambda: self.changes != changes_seen, wait_ms / 1000)

    def wake(self) -> None:
        """Count a change of this process itself, so that a thread in `wait` goes on."""
        with self._change_condition:
            self._count_change()

    def handle_frame(self, frame: bytes) -> None:
        """Keep what a message of the driver says; `ValueError`: the frame is no such message."""
        message = from_frame(frame)
        with self._change_condition:
            match message:
                case DriverState():
                    self._driver_state = message
                    self._has_state = self._has_present_state = True
                case BatchPublished():
                    keep_last_of_session(self._published, message.session, message)
                case PlannerState() | Hello():
                    raise ValueError(f"the driver says {type(message).__name__}")
            self._count_change()

    def _count_change(self) -> None:
        """Count a change, and wake the threads that wait for one.

        Call it with `_change_condition` held.
        """
        self.changes += 1
        self._change_condition.notify_all()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the driver, as far as the kernel knows."""
        return self._connection is not None

    @property
    def has_gone(self) -> bool:
        """Whether there was a connection to the driver, and there is none now."""
        return self._address is not None and self._has_state and self._connection is None

    @property
    def is_inactive(self) -> bool:
        """Whether no batch is planned."""
        return self._driver_state.is_inactive

    @property
    def ends_for_good(self) -> bool:
        """Whether Spark may not run a batch without records either."""
        return self._driver_state.is_for_good

    @property
    def cores(self) -> int | None:
        """How many cores there were when the last batch ended; None: no batch has ended."""
        return self._driver_state.cores

    @property
    def follower_failure(self) -> str | None:
        """Why the stream's follower failed, empty while it has not; None: there is none."""
        return self._driver_state.follower

    @property
    def has_workers(self) -> bool:
        """Whether Spark has run a task since this process has asked."""
        return self._driver_state.has_workers

    @property
    def has_store(self) -> bool:
        """Whether a store takes the rows: then a process asks before it takes the group."""
        return self._driver_state.has_store

    @property
    def granted_epoch(self) -> int:
        """The epoch that the store has granted to this process; 0: none yet."""
        return self._driver_state.granted_epoch

    @property
    def not_granted(self) -> str:
        """Why the store could not be opened for this process; empty: it could, or was not asked."""
        return self._driver_state.not_granted

    @property
    def trigger(self) -> str:
        """The class of the query's trigger; empty: the driver has not said it."""
        return self._driver_state.trigger

    @property
    def end_number(self) -> int:
        """The number of the driver's request to end at the present ends; 0: there is none."""
        return self._driver_state.end_number

    def published(self, session: str, ranges: tuple[SourceRun, ...]) -> Published | None:
        """Return what the driver has published of the batch with these ranges.

        None: it is not published, or a later batch of the session is.
        """
        last_message = self._published.get(session)
        if last_message is None or last_message.batch != batch_name(session, ranges):
            return None
        return last_message.published

    # -- what the planning process says

    def ask_for_workers(self) -> None:
        """Ask the driver to let Spark run a task; `has_workers` is the answer."""
        self._set_own_state(replace(self._own_state, asks_for_workers=True))

    def ask_for_epoch(self, epoch_min: int) -> None:
        """Ask the driver to open the store; `granted_epoch` or `not_granted` is the answer."""
        self._set_own_state(replace(self._own_state, asks_for_epoch=epoch_min))

    def ask_for_trigger(self) -> None:
        """Ask the driver for the trigger of the query; `trigger` is the answer."""
        self._set_own_state(replace(self._own_state, asks_for_trigger=True))

    def put_idle(self) -> None:
        """Report to the driver that no batch runs.

        Call it where Spark asks for the next batch, which it does when the last one has ended.
        """
        self._set_own_state(replace(self._own_state, idle_pause=self._driver_state.pauses))

    def put_drained(self, end_number: int) -> None:
        """Report to the driver that nothing is left to do of what it requested under a number."""
        self._set_own_state(replace(self._own_state, drained_end=end_number))

    def report_that_it_runs_again(self, session: str, ranges: tuple[SourceRun, ...]) -> None:
        """Report to the driver that a batch of another process is run again; write the mark."""
        self._set_own_state(replace(self._own_state, runs_again=batch_name(session, ranges)))
        self.keep_mark()

    def keep_mark(self) -> None:
        """Write the mark while a batch runs again.

        A cleaner of temporary files may have removed it. The mark is a file and no message: the
        tasks that look for it have no connection, and their closures, which were made before,
        have its path alone.
        """
        if self._mark is None:
            return
        with self._mark_lock:
            if not self._own_state.runs_again:
                return
            # FileNotFoundError: the folder is gone; the driver is about to make it again
            with self._logging_mark_errors(), suppress(FileNotFoundError):
                self._mark.touch()

    @contextmanager
    def _logging_mark_errors(self) -> Iterator[None]:
        """Log once if the mark cannot be written or removed; the query goes on without."""
        try:
            yield
            self._is_mark_broken = False
        except OSError as error:
            if not self._is_mark_broken:
                _LOGGER.warning(
                    "the mark of a batch that is run again cannot be written or removed: %s", error
                )
            self._is_mark_broken = True

    def report_that_it_plans(self) -> None:
        """Report to the driver that this process plans, and remove the mark.

        No batch of it runs again any more. The mark stays if another process of the stream runs
        a batch again.
        """
        self._set_own_state(replace(self._own_state, runs_again=""))
        if self._mark is not None and not self._driver_state.others_run_again:
            with self._mark_lock, self._logging_mark_errors():
                self._mark.unlink(missing_ok=True)

    def _set_own_state(self, state: PlannerState) -> None:
        """Replace this process's state; send it if it differs from the one before.

        Without a connection it is sent when there is one again.
        """
        with self._change_condition:
            if state == self._own_state:
                return
            self._own_state = state
            connection = self._connection
        if connection is not None:
            # the frame is built when it is this thread's turn: so of two threads the last one sends
            # the newest state
            with suppress(OSError):  # the connection has ended, which the thread sees
                connection.send(lambda: to_frame(self._own_state))

    # -- the thread

    def _keep_connected(self, address: DriverAddress) -> None:
        """Connect and listen, again and again until `close`; this is what the thread runs."""
        while not self._is_closed.is_set():
            try:
                self._connect_and_listen(address)
            except UsageError as error:
                if not self._has_state:
                    # the first connection was refused: another try would be, too
                    with self._change_condition:
                        self._refusal = error
                        self._count_change()
                    return
                self._record_disconnect(error)
            except (OSError, EOFError, ValueError, MemoryError) as error:
                self._record_disconnect(error)
            self._is_closed.wait(RETRY_MS / 1000)

    def _record_disconnect(self, error: Exception) -> None:
        """Keep why there is no connection; log it if there was one."""
        with self._change_condition:
            was_connected = self._connection is not None
            self._connection = None
            self._has_present_state = False
            self._why_not_connected = f"{type(error).__name__}: {error}"
            self._count_change()
        if was_connected and not self._is_closed.is_set():
            _LOGGER.warning("driver_has_gone group=%s: %s; what it said last holds", self.group, error)

    def _connect_and_listen(self, address: DriverAddress) -> None:
        """Connect, send this process's state, and handle what arrives.

        Returns after `close`; raises what ends the connection. In both cases the connection is
        closed.
        """
        connection = connect(address.folder)
        try:
            self._greet(connection, address.key)
            with self._change_condition:
                self._connection = connection
            # the driver begins each connection without a state of this process
            connection.send(lambda: to_frame(self._own_state))
            while not self._is_closed.is_set():
                if connection.wait(IDLE_WAIT_MS):
                    connection.handle_arrived(self.handle_frame)
        finally:
            connection.close()

    def _greet(self, connection: Connection, key: bytes) -> None:
        """Greet the driver; `UsageError` if it speaks another version of the link."""
        try:
            greet_driver(connection, key, to_frame(self._hello))
        except OtherVersion as error:
            raise UsageError(
                f"group {self.group}: the driver speaks version {error.version!r} of the link to its planning"
                f" process, and the Windhover of {sys.executable}, which runs that process, version"
                f" {LINK_VERSION}: install one version of Windhover for both, or let PYSPARK_PYTHON name the"
                " driver's Python"
            ) from error
