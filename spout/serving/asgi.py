"""The page's server: uvicorn, with a limit of number and time for its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from spout.serving.connections import ACCEPTED_AT_ONCE, ConnectionLimits, OpenConnections

OVERDUE_EVERY_S: Final = 1
"""How often connections whose time is over are ended."""

STOP_S: Final = 2
"""Streams that are still open after this time are cut when the server ends."""


class LimitedHttp(H11Protocol):
    """A connection that is noted among those of its server, and ends when these have no room for it.

    uvicorn itself has a timeout for the next request on a connection, and none for the first one, for a part
    of one, and for an answer that nobody reads.
    """

    open_connections: OpenConnections[LimitedHttp]
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        without_room = self.open_connections.open(self)
        if without_room is not None:
            without_room.cut_off()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.close(self)
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self._has_whole_request():
            self.open_connections.serve(self)

    def on_response_complete(self) -> None:
        # before the next request, which may be in the buffer already and is handled by super()
        if self._has_whole_request():
            self.open_connections.await_next(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        unread_s = self.open_connections.limits.unread_s
        self._unread = self.loop.call_later(unread_s, self.cut_off)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def cut_off(self) -> None:
        """End the connection at once, without an answer."""
        self.transport.abort()

    def _has_whole_request(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body


def page_server(
    application: ASGIApp, limits: ConnectionLimits, alive: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    """Return a server of pages, which nobody has started; `alive` is called every second while it serves."""

    class Http(LimitedHttp):
        open_connections = OpenConnections[LimitedHttp](limits)

    async def end_overdue() -> None:
        for late in Http.open_connections.overdue():
            late.cut_off()
        alive()

    return uvicorn.Server(
        uvicorn.Config(
            application,
            http=Http,
            # asyncio accepts so many before it hands one of them on
            backlog=ACCEPTED_AT_ONCE,
            log_config=None,
            # its warnings are about what strangers send, one line for each
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_S,
            callback_notify=end_overdue,
            timeout_notify=OVERDUE_EVERY_S,
        )
    )
