"""The driver listens on a socket, and passes each connection to the link of its stream.

One thread accepts, and makes the socket again where a cleaner of temporary files has removed
it; a connection that is open needs no file, and goes on. Each connection has a thread of its
own.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Final, Protocol

from acker.errors import UsageError
from spout.link.connection import Connection, DriverAddress, ListeningSocket, greet_planner
from spout.link.messages import Hello, from_frame
from spout.spark.threads import leave_sigint_to_the_main_thread

_LOGGER = logging.getLogger("windhover.spout")

ACCEPT_MS: Final = 100
"""How often the thread looks whether its socket is still there, and whether it is to end."""

READ_MS: Final = 10_000
"""How often the thread of a connection looks whether it is to end, where nothing arrives."""

CONNECTIONS_MAX: Final = 256
"""Further connections are dropped. An application has a few streams, and each stream a planning
process or two."""

_KEY_BYTES: Final = 32


class StreamLink(Protocol):
    """The link of a stream, to which the connection of a planning process goes.

    See `PlannerLink`.
    """

    def add_connection(self, connection: Connection, process: str) -> None:
        """Send the driver's state and the published batches to a process that has connected."""

    def remove_connection(self, connection: Connection) -> None:
        """Remove a planning process whose connection has ended."""

    def handle_frame(self, connection: Connection, frame: bytes) -> None:
        """Keep what a planning process says in a message."""


class DriverSocket:
    """The socket of one application, in its folder."""

    def __init__(
        self, folder: str, link_of: Callable[[str], StreamLink | None], is_over: Callable[[], bool]
    ) -> None:
        """Draw a key; `start` listens, until `is_over`.

        `link_of` returns the link of a stream, by its id; None: there is no such stream.
        """
        self.address = DriverAddress(folder, secrets.token_bytes(_KEY_BYTES))
        self._link_of = link_of
        self._open_connections: set[Connection] = set()
        self._open_lock = threading.Lock()  # guards `_open_connections`
        self._logged_trouble = ""  # the text that was logged last; empty: all went well since
        self._is_over = is_over
        self._is_listening = False
        self._start_lock = threading.Lock()  # guards `_is_listening`

    def start(self) -> None:
        """Listen in a thread of its own; do nothing if this was called before.

        Raises `UsageError`: the socket cannot be made, or no thread can be started.
        """
        with self._start_lock:  # two listeners would take the name from each other for ever
            if not self._is_listening:
                self._start_listening()
                self._is_listening = True

    def _start_listening(self) -> None:
        """Make the socket, and start the thread that listens; `UsageError` as in `start`."""
        try:
            listener = ListeningSocket(self.address.folder)
        except OSError as error:
            raise UsageError(
                f"{self.address.folder}: the driver cannot listen there for its planning processes ({error});"
                " make room there, or let TMPDIR name a folder of a local disk"
            ) from error
        try:
            threading.Thread(
                target=self._listen, args=(listener,), name="windhover-hears-planners", daemon=True
            ).start()
        except RuntimeError as error:
            listener.close()
            raise UsageError(
                f"the driver cannot start a thread ({error}); raise the number of processes and threads that"
                " its user, or its container, may have (ulimit -u, pids.max)"
            ) from error

    def _listen(self, listener: ListeningSocket) -> None:
        """Accept connections until the application is over, then end those that are open.

        This is what the thread runs.
        """
        leave_sigint_to_the_main_thread()
        pause = threading.Event()  # nobody sets it: it only waits
        try:
            while not self._is_over():
                try:
                    if not listener.is_there:
                        # a cleaner of temporary files has removed the socket's file
                        new_listener = ListeningSocket(self.address.folder)
                        listener.close()
                        listener = new_listener
                    connection = listener.accept(ACCEPT_MS)
                    if connection is not None:
                        self._serve_in_thread(connection)
                    self._logged_trouble = ""
                except (OSError, UsageError, RuntimeError, MemoryError) as error:
                    # there is no folder (the keeper makes it again), descriptor, thread or
                    # memory: try again
                    self._log_trouble(error)
                    pause.wait(ACCEPT_MS / 1000)
        finally:
            listener.close()
            with self._open_lock:
                connections = tuple(self._open_connections)
            for connection in connections:
                connection.end()

    def _log_trouble(self, error: Exception) -> None:
        """Log why nobody can connect, unless it was logged last time.

        A missing folder is not logged: it is made again.
        """
        is_folder_missing = isinstance(error, FileNotFoundError)
        text = "" if is_folder_missing else f"{type(error).__name__}: {error}"
        if text and text != self._logged_trouble:  # or it would be logged ten times a second
            _LOGGER.warning("planning_processes_cannot_connect: %s", text)
        self._logged_trouble = text

    def _serve_in_thread(self, connection: Connection) -> None:
        """Serve a connection in a thread of its own.

        Raises `RuntimeError`, with the connection closed: no thread can be started, or
        `CONNECTIONS_MAX` are open.
        """
        with self._open_lock:
            is_full = len(self._open_connections) >= CONNECTIONS_MAX
            if not is_full:
                self._open_connections.add(connection)
        if is_full:
            connection.close()
            raise RuntimeError(f"{CONNECTIONS_MAX} connections are open")
        try:
            threading.Thread(
                target=self._serve, args=(connection,), name="windhover-hears-planner", daemon=True
            ).start()
        except RuntimeError:
            self._close(connection)
            raise

    def _close(self, connection: Connection) -> None:
        """Close a connection, and remove it from those that are open."""
        with self._open_lock:
            self._open_connections.discard(connection)
        connection.close()

    def _serve(self, connection: Connection) -> None:
        """Handle the messages of a connection until it ends, and close it; its thread runs this."""
        leave_sigint_to_the_main_thread()
        try:
            self._handle_messages(connection)
        finally:
            self._close(connection)

    def _handle_messages(self, connection: Connection) -> None:
        """Greet the process that has connected, and pass its messages to the link of its stream.

        A stranger, who cannot greet, is logged and dropped.
        """
        # 1. the greeting
        try:
            hello = from_frame(greet_planner(connection, self.address.key))
            link = self._link_of(hello.stream) if isinstance(hello, Hello) else None
            if link is None or not isinstance(hello, Hello):
                raise ValueError("there is no such stream")
        except (OSError, EOFError, ValueError) as error:
            _LOGGER.warning(
                "stranger_dropped: who connected to the driver's socket said no greeting: %s", error
            )
            return
        # 2. the messages
        try:
            link.add_connection(connection, hello.process)
            while not self._is_over():
                if connection.wait(READ_MS):
                    connection.handle_arrived(lambda frame: link.handle_frame(connection, frame))
        except EOFError:
            _LOGGER.debug("planning_process_has_gone stream=%s", hello.stream)
        except (OSError, ValueError) as error:
            _LOGGER.warning("planning_process_dropped stream=%s: %s", hello.stream, error)
        finally:
            link.remove_connection(connection)
