"""Serves the page by uvicorn, with limits for the number of its connections and for their time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from spout.serving.connections import ACCEPTED_AT_ONCE, ConnectionLimits, OpenConnections

OVERDUE_EVERY_S: Final = 1
"""How often connections are looked for whose time is over."""

STOP_S: Final = 2
"""Streams that are still open after this time are cut when the server ends."""


class LimitedHttp(H11Protocol):
    """A connection that is counted among those of its server, and ends when its time is over.

    uvicorn has a timeout for the next request on a connection. It has none for the first
    request, for half a request, and for an answer that nobody reads. asyncio and uvicorn call
    the methods, `cut_off` excepted.
    """

    open_connections: OpenConnections[LimitedHttp]
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection; if there are too many, end the one that makes room."""
        super().connection_made(transport)
        to_end = self.open_connections.open(self)
        if to_end is not None:
            to_end.cut_off()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from those that are counted."""
        self.open_connections.close(self)
        self.resume_writing()  # stops the timer of an answer that the client did not read
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle bytes that arrived.

        If the request is whole now, record that the connection is served.
        """
        super().handle_events()
        if self._has_whole_request():
            self.open_connections.serve(self)

    def on_response_complete(self) -> None:
        """Record that the connection waits for the next request."""
        # before super(), which handles the next request, if that is in the buffer already
        if self._has_whole_request():
            self.open_connections.await_next(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start a timer that ends the connection, unless the client goes on to read.

        asyncio calls this when the client does not read, and the answer fills the buffer.
        """
        super().pause_writing()
        unread_s = self.open_connections.limits.unread_s
        self._unread_timer = self.loop.call_later(unread_s, self.cut_off)

    def resume_writing(self) -> None:
        """Stop the timer of `pause_writing`, if it runs."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def cut_off(self) -> None:
        """End the connection at once, without an answer."""
        self.transport.abort()

    def _has_whole_request(self) -> bool:
        """Return whether there is a request, and all of its body has arrived."""
        return self.cycle is not None and not self.cycle.more_body


def page_server(
    application: ASGIApp, limits: ConnectionLimits, alive: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    """Return a server of pages that is not started yet.

    `alive` is called every second while it serves.
    """

    # uvicorn makes each connection from a class alone, so a server has a class with its own
    # connections
    class Http(LimitedHttp):
        open_connections = OpenConnections[LimitedHttp](limits)

    async def end_overdue() -> None:
        """End the connections whose time is over, and call `alive`."""
        for connection in Http.open_connections.take_overdue():
            connection.cut_off()
        alive()

    return uvicorn.Server(
        uvicorn.Config(
            application,
            http=Http,
            # asyncio accepts as many as the backlog before it handles the first of them
            backlog=ACCEPTED_AT_ONCE,
            log_config=None,
            # uvicorn warns of every malformed request, and anybody can send those without end
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_S,
            callback_notify=end_overdue,
            timeout_notify=OVERDUE_EVERY_S,
        )
    )
