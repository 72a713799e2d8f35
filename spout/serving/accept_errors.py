"""What a server reports that cannot accept a connection: one line a minute, however often it fails."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

REPORTED_EVERY_S: Final = 60.0

RETRY_S: Final = 0.2
"""A server with a thread of its own waits so long: the kernel reports at once that a connection waits."""

OUT_OF_RESOURCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept that go on until something is closed."""

_ACCEPT: Final = "socket.accept()"
"""How asyncio's words for them begin."""

_log = logging.getLogger(__name__)


class AcceptErrors:
    """Reports that connections cannot be accepted, and stays silent about it for the next minute."""

    def __init__(
        self, report: Callable[[str], None] = _log.error, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._reported_s: float | None = None

    def note(self, error: BaseException | None) -> None:
        """Report it, unless that was reported within the last minute."""
        now_s = self._clock()
        if self._reported_s is not None and now_s - self._reported_s < REPORTED_EVERY_S:
            return
        self._reported_s = now_s
        self._report(
            f"no connection can be accepted: {error}; the process has too many files or connections open, and"
            " goes on as soon as some are closed. Raise its limit of descriptors (LimitNOFILE, ulimit -n)"
        )

    def of_loop(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Handle what nobody has caught in a loop: errors of accept as above, others as asyncio does."""
        if str(context.get("message", "")).startswith(_ACCEPT):
            self.note(context.get("exception"))
        else:
            loop.default_exception_handler(dict(context))
