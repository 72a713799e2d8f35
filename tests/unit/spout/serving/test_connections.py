"""Connections without a whole request: they end, they are few, and they keep nobody out."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import pairwise

import pytest

from spout.local.embedded import free_port
from spout.runtime import endpoints, metrics
from spout.serving.accept_errors import REPORTED_EVERY_S, RETRY_S, AcceptErrors
from spout.serving.connections import ConnectionLimits, OpenConnections, connections_within
from tests.support.page_server import serving
from tests.support.servers.http import answer_to, request, seconds_until_closed, status_of
from tests.support.waiting import eventually
from tests.support.worlds.planning import World

HALVES = {
    "nothing": b"",
    "a line": b"GET / HTTP/1.1\r\n",
    "headers": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n",
    "a body": b"POST /redrives HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nwhy=",
    "chunks": b"POST /redrives HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhy=",
    "a body of a page": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    "a second one": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n",
}
"""Requests, or parts of them, after which the server waits for more."""

Address = tuple[str, int]


@contextmanager
def a_page(limits: ConnectionLimits) -> Iterator[Address]:
    with serving(World(), limits=limits) as server:
        yield "127.0.0.1", server.port


@contextmanager
def metrics_of_an_acker(limits: ConnectionLimits) -> Iterator[Address]:
    port = free_port()
    endpoints.serve(metrics.StatusCollector("acker", lambda _: []), f"127.0.0.1:{port}", limits=limits)
    yield "127.0.0.1", port


SERVERS: dict[str, Callable[[ConnectionLimits], AbstractContextManager[Address]]] = {
    "page": a_page,
    "metrics": metrics_of_an_acker,
}


def is_answered(address: Address) -> bool:
    return status_of(answer_to(address, request("/metrics", "localhost"))) == 200


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_ends_in_time_and_the_log_says_nothing(
    server: str, half: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """D2601: whatever of it has come."""
    limits = ConnectionLimits(request_s=0.5, answer_s=None if server == "page" else 0.5)
    with SERVERS[server](limits) as address, socket.create_connection(address) as connection:  # type: ignore[attr-defined]
        connection.sendall(HALVES[half])
        assert seconds_until_closed(connection, within_s=20) < 15
        assert is_answered(address)
    assert capfd.readouterr().err == ""
    assert not caplog.records


@pytest.mark.parametrize("server", SERVERS)
def test_a_request_that_comes_byte_by_byte_ends_as_one_that_does_not_come(server: str) -> None:
    """D2601: each byte would begin a limit of silence anew."""
    with (
        SERVERS[server](ConnectionLimits(request_s=1.0)) as address,
        socket.create_connection(address) as slow,
    ):  # type: ignore[attr-defined]
        began_s = time.monotonic()
        slow.settimeout(0.05)
        with pytest.raises(OSError, match=r"Broken pipe|reset|closed"):  # noqa: PT012
            slow.sendall(b"GET / HTTP/1.1\r\nX: ")
            while time.monotonic() - began_s < 20:
                slow.sendall(b"x")
                try:
                    if not slow.recv(1):
                        raise OSError(errno.EPIPE, "closed")
                except TimeoutError:
                    continue
        assert time.monotonic() - began_s < 15


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("half", ["nothing", "headers", "a body"])
def test_hundreds_of_half_requests_keep_nobody_out(server: str, half: str) -> None:
    """D2602: what waits longest makes room."""
    limits = ConnectionLimits(open_max=20, request_s=600.0, answer_s=600.0)
    with SERVERS[server](limits) as address, ExitStack() as stack:  # type: ignore[attr-defined]
        for _ in range(300):
            connection = stack.enter_context(socket.create_connection(address, timeout=10))
            connection.sendall(HALVES[half])
        assert is_answered(address)


def test_open_tabs_keep_their_streams_while_others_send_half_requests() -> None:
    """D2602."""
    with a_page(ConnectionLimits(open_max=20, request_s=0.5)) as address, ExitStack() as stack:
        tab = stack.enter_context(socket.create_connection(address, timeout=10))
        tab.sendall(request("/", "localhost", accept="text/event-stream"))
        assert b"200 OK" in tab.recv(65_536)
        for _ in range(100):
            half = stack.enter_context(socket.create_connection(address, timeout=10))
        assert seconds_until_closed(half, within_s=20) < 15
        tab.setblocking(False)
        is_open = True
        while is_open:
            try:
                is_open = tab.recv(65_536) != b""
            except BlockingIOError:
                break
        assert is_open


def test_an_answer_that_nobody_reads_ends() -> None:
    """D2603: a stream grows in the memory of the page else."""
    with serving(World(), limits=ConnectionLimits(unread_s=1.0)) as page, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", page.port))
        deaf.sendall(b"GET /static/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        eventually(lambda: page.connections == 1)
        eventually(lambda: page.connections == 0)


def test_a_page_whose_descriptors_are_used_up_says_so_once_and_answers_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2604: asyncio alone writes a trace for each place in the queue, each second."""
    errors: list[BaseException | None] = []
    report = AcceptErrors.report

    def reported(self: AcceptErrors, error: BaseException | None) -> None:
        report(self, error)
        errors.append(error)

    monkeypatch.setattr(AcceptErrors, "report", reported)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with a_page(ConnectionLimits()) as address, ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(30)]
        with ExitStack() as files:
            used = [files.enter_context(socket.socket()) for _ in range(3)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(file.fileno() for file in used) + 1, hard))
            try:
                for client in clients:
                    client.connect(address)
                eventually(lambda: len(errors) > 100)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert [record.getMessage()[:33] for record in caplog.records] == [
            "no connection can be accepted: [E"
        ]
        eventually(lambda: is_answered(address))


def test_an_error_of_accept_is_said_once_a_minute_and_other_errors_always() -> None:
    """D2604."""
    said: list[str] = []
    now_s = [0.0]
    errors = AcceptErrors(said.append, lambda: now_s[0])
    others: list[object] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(errors.handle_loop_error)
    loop.default_exception_handler = others.append  # type: ignore[method-assign]
    full = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "full")}
    for _ in range(1_000):
        loop.call_exception_handler(full)
    assert len(said) == 1
    assert "LimitNOFILE" in said[0]
    now_s[0] = REPORTED_EVERY_S
    loop.call_exception_handler(full)
    assert len(said) == 2
    loop.call_exception_handler({"message": "a defect of ours"})
    assert others == [{"message": "a defect of ours"}]
    loop.close()


class Moment:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_connection_that_waits_gives_way_before_one_that_is_served() -> None:
    """D2602."""
    moment = Moment()
    connections: OpenConnections[str] = OpenConnections(ConnectionLimits(open_max=3), moment)
    assert [connections.open(name) for name in "abc"] == [None, None, None]
    connections.serve("a")
    assert connections.open("d") == "b"
    connections.serve("c")
    connections.serve("d")
    assert connections.open("e") == "e", "all others are served"
    connections.await_next("c")
    assert connections.open("f") == "c"
    assert len(connections) == 3


def test_a_limit_of_time_begins_when_a_request_is_awaited() -> None:
    """D2601."""
    moment = Moment()
    connections: OpenConnections[str] = OpenConnections(
        ConnectionLimits(request_s=10.0, answer_s=30.0), moment
    )
    for name in "abc":
        connections.open(name)
    connections.serve("b")
    moment.now_s = 9.0
    assert connections.take_overdue() == []
    connections.await_next("b")
    connections.close("c")
    moment.now_s = 10.0
    assert connections.take_overdue() == ["a"]
    connections.serve("b")
    moment.now_s = 39.0
    assert connections.take_overdue() == []
    moment.now_s = 40.0
    assert connections.take_overdue() == ["b"]
    assert len(connections) == 0


def test_connections_leave_descriptors_to_the_rest_of_the_process() -> None:
    numbers = [connections_within(descriptors) for descriptors in (0, 64, 256, 1_024, 1_048_576)]
    assert all(small <= large for small, large in pairwise(numbers))
    assert numbers[-1] == connections_within(resource.RLIM_INFINITY) == ConnectionLimits().open_max


def test_metrics_whose_descriptors_are_used_up_say_so_once_and_do_not_spin(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2604: the server's own loop would ask the kernel again at once."""
    tries: list[float] = []
    refused_addresses: list[tuple[str, int]] = []
    accept = socket.socket.accept

    def full(listener: socket.socket) -> tuple[socket.socket, object]:
        # a Spark session of other tests may listen in this process, too
        if listener.getsockname() not in refused_addresses:
            return accept(listener)
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", full)
    with metrics_of_an_acker(ConnectionLimits()) as address:
        refused_addresses.append(address)
        with socket.create_connection(address):
            eventually(lambda: len(tries) > 3)
        refused_addresses.clear()
        assert is_answered(address)
    assert min(later - sooner for sooner, later in pairwise(tries)) > RETRY_S / 2
    assert len(caplog.records) == 1
