"""Requests as no client library sends them: byte by byte, in halves, with any host and in any form."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

ANSWER_S = 10.0
"""So long a test waits for an answer."""


def request(target: str = "/", *hosts: str, version: str = "1.1", accept: str = "application/json") -> bytes:
    """Return a request with so many Host headers."""
    named = "".join(f"Host: {host}\r\n" for host in hosts)
    return f"GET {target} HTTP/{version}\r\n{named}Accept: {accept}\r\nConnection: close\r\n\r\n".encode()


def answer_to(
    address: tuple[str, int], sent: bytes, until: Callable[[bytes], bool] = lambda _: False
) -> bytes:
    """Send bytes and return the answer up to its end, or until it is as wanted; empty: there is none."""
    answer = b""
    with socket.create_connection(address, timeout=ANSWER_S) as connection, suppress(ConnectionResetError):
        connection.sendall(sent)
        while not until(answer) and (part := connection.recv(65_536)):
            answer += part
    return answer


def status_of(answer: bytes) -> int:
    """Return the status of an answer; 0: there is none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def seconds_until_closed(connection: socket.socket, within_s: float) -> float:
    """Return how long the server leaves a connection open; raise TimeoutError if longer than allowed."""
    began_s = time.monotonic()
    connection.settimeout(within_s)
    with suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return time.monotonic() - began_s
