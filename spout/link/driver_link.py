"""The planning process's end: what it knows of the driver, and what it tells it.

A thread keeps the connection: it connects, takes what arrives, and connects again when the driver has closed
it. What the driver has said holds until it says something else, also while there is no connection. A callback
of Spark first takes what has arrived until then (`catch_up`). So what the driver did before Spark called is
known, as if it were in a file.

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
from spout.link.connection import LINK_VERSION, Connection, DriverAddress, OtherVersion, connect, greet_driver
from spout.link.messages import (
    BatchPublished,
    DriverState,
    Hello,
    PlannerState,
    Published,
    batch_name,
    from_frame,
    keep_latest,
    to_frame,
)

CONNECT_MS_MAX: Final = 60_000
"""So long a planning process waits for the driver, which may be busy, before its query fails."""

RECONNECT_MS_MAX: Final = 1_000
"""So long it waits for a connection that has ended: the driver makes its socket again within 100 ms. Then it
goes on with what the driver has said before; Spark ends it soon, if the driver is gone."""

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
        """Know nothing yet; `start` connects. Without an address nobody says anything, as in tests.

        `mark`: the file that is there while a batch is run again.
        """
        self.group = group
        self.changes = 0
        self._address = address
        self._hello = hello
        self._mark = mark
        self._is_mark_broken = False
        self._marking = threading.Lock()  # Spark's callback removes what the thread keeps
        self._driver_state = DriverState()
        self._published: dict[str, BatchPublished] = {}
        self._own_state = PlannerState()
        self._connection: Connection | None = None
        self._has_present_state = False  # over this connection, what holds
        self._has_state = address is None
        self._refusal: WindhoverError | None = None
        self._why_not = "it was not tried yet"
        self._changed = threading.Condition()  # held for moments: of what this object knows
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Connect, and keep the connection. Raises `Unreachable`: no thread can be started."""
        if self._address is None:
            return
        keeper = threading.Thread(
            target=self._keep, args=(self._address,), name="windhover-hears-driver", daemon=True
        )
        try:
            keeper.start()
        except RuntimeError as error:
            raise Unreachable(
                f"group {self.group}: the planning process cannot start a thread ({error}); raise the number"
                " of processes and threads that its user, or its container, may have (ulimit -u, pids.max)"
            ) from error

    def close(self) -> None:
        """Leave the driver."""
        self._is_closed.set()
        with self._changed:
            connection = self._connection
        if connection is not None:
            connection.end()

    # -- what the driver has said

    def require(self) -> None:
        """Wait until the driver has said what holds.

        Raises:
            Unreachable: it does not answer within a minute.
            UsageError: it speaks another version, or its folder is not private.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._has_state or self._refusal, CONNECT_MS_MAX / 1000)
            if self._has_state:
                return
            refusal, why_not = self._refusal, self._why_not
        if refusal is not None:
            raise refusal
        raise Unreachable(
            f"group {self.group}: the driver has not answered within {CONNECT_MS_MAX // 1000} s ({why_not});"
            " no batch is planned before, since the stream may be paused. See the driver's log, and whether"
            " its process lives; then start the query again"
        )

    def catch_up(self) -> None:
        """Take what the driver has said until now.

        Where the connection has ended, the thread makes another one: the driver says all again.
        """
        if not self._take():
            self._take()

    def _take(self) -> bool:
        """Hear what there is; False: the connection has ended."""
        with self._changed:
            self._changed.wait_for(self._is_settled, RECONNECT_MS_MAX / 1000)
            connection = self._connection
        if connection is None:
            return True
        try:
            connection.take(self.hear)
        except TimeoutError:  # the thread takes it
            return True
        except (OSError, EOFError, ValueError):  # the thread sees it, too, and says so
            with self._changed:
                if self._connection is connection:
                    self._has_present_state = False
            return False
        return True

    def _is_settled(self) -> bool:
        return self._has_present_state or self._address is None or not self._has_state

    def wait(self, since: int, wait_ms: int) -> None:
        """Wait until the driver says something more than `since` `changes`, or `wait_ms` have passed."""
        with self._changed:
            self._changed.wait_for(lambda: self.changes != since, wait_ms / 1000)

    def wake(self) -> None:
        """Let whoever waits look again: this process itself has news."""
        with self._changed:
            self._changed_once()

    def hear(self, frame: bytes) -> None:
        """Take note of a message; `ValueError`: it is none, or none of the driver's."""
        message = from_frame(frame)
        with self._changed:
            match message:
                case DriverState():
                    self._driver_state = message
                    self._has_state = self._has_present_state = True
                case BatchPublished():
                    keep_latest(self._published, message.session, message)
                case PlannerState() | Hello():
                    raise ValueError(f"the driver says {type(message).__name__}")
            self._changed_once()

    def _changed_once(self) -> None:
        self.changes += 1
        self._changed.notify_all()

    @property
    def is_connected(self) -> bool:
        """Whether the driver is there, as far as the kernel knows."""
        return self._connection is not None

    @property
    def has_gone(self) -> bool:
        """Whether the driver was there, and is not any more."""
        return self._address is not None and self._has_state and self._connection is None

    @property
    def is_inactive(self) -> bool:
        """Whether no batch is planned."""
        return self._driver_state.is_inactive

    @property
    def is_for_good(self) -> bool:
        """Whether Spark may not run a batch without records either."""
        return self._driver_state.is_for_good

    @property
    def cores(self) -> int | None:
        """How many cores there were when the last batch ended; None: no batch has."""
        return self._driver_state.cores

    @property
    def follower(self) -> str | None:
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
        """Why the store could not be opened for this process; empty: nobody has said that."""
        return self._driver_state.not_granted

    def published(self, session: str, ranges: tuple[SourceRun, ...]) -> Published | None:
        """Return the message about a batch with these ranges, if it is the session's last one."""
        last = self._published.get(session)
        is_of_it = last is not None and last.batch == batch_name(session, ranges)
        return last.published if last is not None and is_of_it else None

    # -- what the planning process tells

    def ask_for_workers(self) -> None:
        """Ask the driver to let Spark run a task; `has_workers` is the answer."""
        self._tell(replace(self._own_state, asks_for_workers=True))

    def ask_for_epoch(self, epoch_min: int) -> None:
        """Ask the driver to open the store; `granted_epoch` or `not_granted` is the answer."""
        self._tell(replace(self._own_state, asks_for_epoch=epoch_min))

    def put_idle(self) -> None:
        """Answer that the last batch has ended, since Spark asks for the next one only then."""
        self._tell(replace(self._own_state, idle_pause=self._driver_state.pauses))

    def put_again(self, session: str, ranges: tuple[SourceRun, ...]) -> None:
        """Say that a batch, which another process has planned, is run again."""
        self._tell(replace(self._own_state, runs_again=batch_name(session, ranges)))
        self.keep_mark()

    def keep_mark(self) -> None:
        """Let the mark be there as long as the batch runs again; a cleaner may have removed it.

        It is a file, and no message: a task on this machine has no connection, and its bolts, whose closure
        was made before, know its path alone.
        """
        if self._mark is None:
            return
        with self._marking:
            if not self._own_state.runs_again:
                return
            # not found: the driver is about to make the folder again
            with self._noting_the_mark(), suppress(FileNotFoundError):
                self._mark.touch()

    @contextmanager
    def _noting_the_mark(self) -> Iterator[None]:
        """Say once that the mark cannot be written or removed; the query goes on without."""
        try:
            yield
            self._is_mark_broken = False
        except OSError as error:
            if not self._is_mark_broken:
                _LOGGER.warning(
                    "the mark of a batch that is run again cannot be written or removed: %s", error
                )
            self._is_mark_broken = True

    def drop_again(self) -> None:
        """Say that this process plans: what it ran again has ended. Another process's mark stays."""
        self._tell(replace(self._own_state, runs_again=""))
        if self._mark is not None and not self._driver_state.others_run_again:
            with self._marking, self._noting_the_mark():
                self._mark.unlink(missing_ok=True)

    def _tell(self, state: PlannerState) -> None:
        """Tell the driver, unless it knows; where it is away, it hears that when it is there again."""
        with self._changed:
            if state == self._own_state:
                return
            self._own_state = state
            connection = self._connection
        if connection is not None:
            with suppress(OSError):  # the connection has ended, which the thread sees
                connection.send(lambda: to_frame(self._own_state))

    # -- the thread

    def _keep(self, address: DriverAddress) -> None:
        """Connect, take what arrives, and connect again."""
        while not self._is_closed.is_set():
            try:
                self._listen(address)
            except UsageError as error:
                if not self._has_state:
                    with self._changed:
                        self._refusal = error
                        self._changed_once()
                    return
                self._note_why_not(error)
            except (OSError, EOFError, ValueError, MemoryError) as error:
                self._note_why_not(error)
            self._is_closed.wait(RETRY_MS / 1000)

    def _note_why_not(self, error: Exception) -> None:
        with self._changed:
            was_connected, self._connection = self._connection is not None, None
            self._has_present_state = False
            self._why_not = f"{type(error).__name__}: {error}"
            self._changed_once()
        if was_connected and not self._is_closed.is_set():
            _LOGGER.warning("driver_has_gone group=%s: %s; what it said last holds", self.group, error)

    def _listen(self, address: DriverAddress) -> None:
        connection = connect(address.folder)
        try:
            self._greet(connection, address.key)
            with self._changed:
                self._connection = connection
            connection.send(lambda: to_frame(self._own_state))
            while not self._is_closed.is_set():
                if connection.wait(IDLE_WAIT_MS):
                    connection.take(self.hear)
        finally:
            connection.close()

    def _greet(self, connection: Connection, key: bytes) -> None:
        try:
            greet_driver(connection, key, to_frame(self._hello))
        except OtherVersion as error:
            raise UsageError(
                f"group {self.group}: the driver speaks version {error.version!r} of the link to its planning"
                f" process, and the Windhover of {sys.executable}, which runs that process, version"
                f" {LINK_VERSION}: install one version of Windhover for both, or let PYSPARK_PYTHON name the"
                " driver's Python"
            ) from error
