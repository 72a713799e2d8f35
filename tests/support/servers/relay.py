"""A relay between a client and a broker that understands Kafka's frames, and damages one of them.

The broker refuses the write, and the client must repeat it. The relay delays the answer for a while, to see
whether the client sends its next write before the answer.

Source: Kafka's protocol guide, "Protocol Primitive Types" and "Request Header".
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

PRODUCE: Final = 0
HOLD_S: Final = 3.0
"""How long the answer to the first write is delayed, so that a second write can arrive."""

_LENGTH = struct.Struct("!i")
_HEAD = struct.Struct("!hhi")
_CORRELATION = struct.Struct("!i")


def _frame(stream: socket.socket) -> bytes:
    """Read one frame without its length; empty: the stream has ended."""
    head = _exactly(stream, _LENGTH.size)
    return _exactly(stream, _LENGTH.unpack(head)[0]) if head else b""


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


class Damaging:
    """A relay that damages the first write that contains a text, as a bad wire does, and delays the answer.

    The answer waits for a second write, or `HOLD_S`.

    Attributes:
        damaged: is set when that write has arrived.
        overlapped: whether a second write arrived before the answer to the first.
    """

    def __init__(self, text: bytes) -> None:
        """Take a port; nobody is let in before `connect_to`."""
        self._text = text
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._target = 0
        self._first: int | None = None
        self.damaged = threading.Event()
        self._second = threading.Event()
        self._streams: list[socket.socket] = []
        self.overlapped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._listener, *self._streams):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()

    def connect_to(self, port: int) -> None:
        """Let clients in, to the broker that listens on a port."""
        self._target = port
        self._spawn(self._accept)

    def _spawn(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        threading.Thread(target=_until_closed, args=(work, *arguments), daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            broker = socket.create_connection(("127.0.0.1", self._target))
            self._streams += [client, broker]
            self._spawn(self._requests, client, broker)
            self._spawn(self._answers, broker, client)

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        while frame := _frame(client):
            kind, _, number = _HEAD.unpack_from(frame)
            if kind == PRODUCE and self._first is not None:
                self._second.set()
            elif kind == PRODUCE and self._text in frame:
                self._first = number
                frame = frame.replace(self._text, self._text.swapcase())
                self.damaged.set()
            broker.sendall(_LENGTH.pack(len(frame)) + frame)
        client.shutdown(socket.SHUT_RDWR)

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        while frame := _frame(broker):
            if _CORRELATION.unpack_from(frame)[0] == self._first and not self._second.is_set():
                self.overlapped = self._second.wait(HOLD_S)
            client.sendall(_LENGTH.pack(len(frame)) + frame)
        client.shutdown(socket.SHUT_RDWR)


def _until_closed(work: Callable[..., None], *arguments: socket.socket) -> None:
    with suppress(OSError):
        work(*arguments)
