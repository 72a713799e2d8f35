"""Serves metrics and probes, with a thread for each connection, which has one request and ends soon."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from spout.serving.accept_errors import OUT_OF_RESOURCE, RETRY_S, AcceptErrors
from spout.serving.connections import ACCEPTED_AT_ONCE, ConnectionLimits, OpenConnections
from spout.serving.hosts import MISDIRECTED, AllowedHosts, path_of_target

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

ANSWER_S: Final = 30.0
"""How long a client may take to read its answer; Prometheus gives up after ten seconds."""

LINE_BYTES_MAX: Final = 65_536
"""A longer first line of a request is refused."""


def metrics_server(
    host: str, port: int, application: Application, hosts: AllowedHosts, limits: ConnectionLimits
) -> WSGIServer:
    """Return a server that listens already; it serves in `serve_forever`.

    Raises `OSError`: it cannot listen there.
    """
    is_ipv6 = ":" in host
    server_class = _ServerV6 if is_ipv6 else _Server
    return server_class((host, port), application, hosts, limits)


class _Server(ThreadingMixIn, WSGIServer):
    """Accepts connections, counts them, and gives each a thread."""

    daemon_threads = True
    request_queue_size = ACCEPTED_AT_ONCE

    def __init__(
        self,
        address: tuple[str, int],
        answer: Application,
        hosts: AllowedHosts,
        limits: ConnectionLimits,
    ) -> None:
        self.answer = answer
        self.hosts = hosts
        self._open_connections: OpenConnections[socket.socket] = OpenConnections(limits)
        self._accept_errors = AcceptErrors()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; if there are too many, end the one that makes room.

        Return it with the client's address. Raises `OSError`: nothing was accepted; socketserver
        passes over that, and calls this again.
        """
        try:
            connection, address = super().get_request()
        except OSError as error:
            if error.errno in OUT_OF_RESOURCE:
                self._accept_errors.report(error)
                time.sleep(RETRY_S)
            raise
        connection.settimeout(self._open_connections.limits.unread_s)
        to_end = self._open_connections.open(connection)
        if to_end is not None:
            _cut_off(to_end)
        return connection, address

    def service_actions(self) -> None:
        """End the connections whose time is over; socketserver calls it every half second."""
        for connection in self._open_connections.take_overdue():
            _cut_off(connection)

    def record_whole_request(self, connection: socket.socket) -> None:
        """Record that a connection has sent a whole request."""
        self._open_connections.serve(connection)

    def shutdown_request(self, request: Any) -> None:
        """Remove a connection from those that are counted, and close it."""
        self._open_connections.close(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the stack of an error; none for a client that went away or sent nothing."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _cut_off(connection: socket.socket) -> None:
    """Shut a connection down: the thread that waits for it wakes up, and closes it."""
    with suppress(OSError):  # the client may have ended it meanwhile
        connection.shutdown(socket.SHUT_RDWR)


class _Answer(ServerHandler):
    """Runs the application for one request."""

    def log_exception(self, exc_info: Any) -> None:
        """Print the stack of an error; none for a client that does not read its answer."""
        if exc_info is None or not isinstance(exc_info[1], OSError):
            super().log_exception(exc_info)


class _Handler(WSGIRequestHandler):
    """Reads the request of one connection, and answers it."""

    server: _Server

    def handle(self) -> None:
        """Read one request, and answer it: by the application, or with why it is refused."""
        # 1. the request
        self.raw_requestline = self.rfile.readline(LINE_BYTES_MAX + 1)
        if len(self.raw_requestline) > LINE_BYTES_MAX:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)  # URI Too Long
            return
        if not self.parse_request():  # then it has sent an answer
            return
        self.server.record_whole_request(self.connection)
        # 2. the hosts that it names
        target, question_mark, query = self.path.partition("?")
        arrived_at = str(self.connection.getsockname()[0])
        refusal = self.server.hosts.refusal(self.headers.get_all("host", []), target, arrived_at)
        if refusal:
            self._refuse(refusal)
            return
        # 3. the answer of the application
        self.path = path_of_target(target) + question_mark + query
        environ = self.get_environ()
        answer = _Answer(self.rfile, self.wfile, self.get_stderr(), environ, multithread=False)  # type: ignore[arg-type]
        answer.request_handler = self  # type: ignore[attr-defined]
        answer.run(self.server.answer)

    def _refuse(self, why: str) -> None:
        """Answer with the status `MISDIRECTED`, and `why` as text."""
        body = f"{why}\n".encode()
        self.send_response(MISDIRECTED)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a probe comes every few seconds."""
