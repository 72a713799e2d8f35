"""A small TCP proxy on loopback, between one kind of client and the broker: the network that can be cut.

It runs an event loop in a thread of its own. What is silent holds back what was sent, as a network does that
drops packets until they get through; what is cut closes every connection and every new one.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from spout.local.broker_settings import HOST

CHUNK_BYTES: Final = 65_536
JOIN_SECONDS: Final = 5.0


class Proxy:
    """Forwards connections to a port of the broker.

    The port is known, and taken, as soon as the proxy is made, since the broker advertises it.
    """

    def __init__(self, watch: Callable[[], Callable[[bytes], None]] = lambda: lambda _data: None) -> None:
        """Take a port; for each connection `watch` makes what gets a copy of all that its client sends."""
        self._watch = watch
        self._socket = socket.create_server((HOST, 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="windhover-proxy", daemon=True)
        self._target_port = 0
        self._cut = False
        self._flowing = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self._socket.getsockname()[1])

    def connect_to(self, port: int) -> None:
        """Begin to forward to a port of this machine."""
        self._target_port = port
        if not self._thread.is_alive():
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_SECONDS)
        self._socket.close()

    def cut(self) -> None:
        """Close all connections, and new ones at once."""
        self._tell(self._close_all)

    def silence(self) -> None:
        """Keep all connections and let nothing through."""
        self._tell(self._flowing.clear)

    def heal(self) -> None:
        """Let everything through again."""
        self._tell(self._open)

    def _tell(self, what: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(what)

    def _close_all(self) -> None:
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def _open(self) -> None:
        self._cut = False
        self._flowing.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._flowing.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._socket))
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client: connect to the broker for it, and pass on in both directions."""
        if self._cut:
            writer.transport.abort()
            return
        try:
            broker_reader, broker_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:  # the broker is down: the client finds nobody, as without a proxy
            writer.transport.abort()
            return
        # asyncio knows of no TCP where a socket was made without naming the protocol. An answer in two pieces
        # would be late by the 40 ms after which the client's system confirms the first.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writers |= {writer, broker_writer}
        await asyncio.gather(
            self._pass_on(reader, broker_writer, self._watch()),
            self._pass_on(broker_reader, writer, lambda _data: None),
        )
        self._writers -= {writer, broker_writer}

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Callable[[bytes], None]
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                seen(data)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
