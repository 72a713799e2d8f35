"""Reports that a server cannot accept connections: one line a minute, however often accept fails."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

REPORTED_EVERY_S: Final = 60.0
"""An accept that fails fails again at once, a thousand times a second: nobody needs a line for
each."""

RETRY_S: Final = 0.2
"""A thread that accepts pauses for this long after an error. The connection still waits in the
kernel, so without a pause the thread would try without end."""

OUT_OF_RESOURCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept that go on until something is closed."""

_ACCEPT: Final = "socket.accept()"
"""How asyncio's message about such an error begins."""

_log = logging.getLogger(__name__)


class AcceptErrors:
    """Reports errors of accept, at most one a minute."""

    def __init__(
        self,
        report: Callable[[str], None] = _log.error,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write_line = report
        self._clock = clock
        self._reported_s: float | None = None  # None: never

    def report(self, error: BaseException | None) -> None:
        """Report an error of accept, unless one was reported within `REPORTED_EVERY_S`."""
        now_s = self._clock()
        if self._reported_s is not None and now_s - self._reported_s < REPORTED_EVERY_S:
            return
        self._reported_s = now_s
        self._write_line(
            f"no connection can be accepted: {error}; the process has too many files or"
            " connections open, and goes on as soon as some are closed. Raise its limit of"
            " descriptors (LimitNOFILE, ulimit -n)"
        )

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Report an error of accept, and leave any other error to asyncio.

        An event loop calls it, as its exception handler.
        """
        is_accept_error = str(context.get("message", "")).startswith(_ACCEPT)
        if is_accept_error:
            self.report(context.get("exception"))
        else:
            loop.default_exception_handler(dict(context))
