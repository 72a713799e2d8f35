"""Which connections of a server stay open: bounded in number, and each has a whole request within a time.

A connection costs a descriptor, and of some servers a thread. Whoever opens one and sends half a request,
byte by byte or nothing at all, holds it for ever unless the server ends that. So a connection that waits for
a request ends after `request_s`, however many bytes came meanwhile. When there are `open_max` already, the
one that waits longest makes room for a new one, so that half requests, as many as there are, keep out nobody
who sends his at once.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, Self, TypeVar

Connection = TypeVar("Connection", bound=Hashable)

OPEN_MAX: Final = 256
"""So many connections a server has at once; a page has one for each open tab, and some while it loads."""

REQUEST_S: Final = 10.0
"""A whole request arrives within so many seconds; a browser sends its own in one piece."""

UNREAD_S: Final = 30.0
"""Whoever reads nothing of an answer for so many seconds is left."""

DESCRIPTORS_SHARE: Final = 4
"""Connections use one in so many of a process's descriptors; the clients of Kafka need others."""

OPEN_LEAST: Final = 16
"""A server has room for so many connections even where descriptors are few."""

ACCEPTED_AT_ONCE: Final = 64
"""So many connections wait in the kernel, and are accepted before the first of them is looked at."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a server allows its connections.

    Attributes:
        open_max: how many there are at once.
        request_s: how long one may wait for a whole request.
        answer_s: how long one may take from a whole request to its end; None: without end, as event streams.
        unread_s: how long an answer may wait for its reader.
    """

    open_max: int = OPEN_MAX
    request_s: float = REQUEST_S
    answer_s: float | None = None
    unread_s: float = UNREAD_S

    @classmethod
    def of_process(cls, answer_s: float | None = None) -> Self:
        """Return the limits that leave enough descriptors for the rest of this process."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(connections_within(descriptors), answer_s=answer_s)


def connections_within(descriptors: int) -> int:
    """Return how many connections a process with so many descriptors may have; negative: without a limit.

    >>> connections_within(1_024), connections_within(256), connections_within(20), connections_within(-1)
    (256, 64, 16, 256)
    """
    if descriptors < 0:
        return OPEN_MAX
    return max(OPEN_LEAST, min(OPEN_MAX, descriptors // DESCRIPTORS_SHARE))


class OpenConnections(Generic[Connection]):
    """The open connections of one server; several threads may use it.

    A connection is in one of two: `_waiting`, since it has no whole request yet, or `_served`. Both have the
    time from which on it is so, in seconds, the longest ago first.
    """

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = Lock()
        self._waiting: dict[Connection, float] = {}
        self._served: dict[Connection, float] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def open(self, connection: Connection) -> Connection | None:
        """Note a new connection; return the one that has to be closed for it, None: there is room.

        Where all others have whole requests, it is the new one itself.
        """
        with self._lock:
            self._waiting[connection] = self._clock()
            if len(self) <= self.limits.open_max:
                return None
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            return longest

    def serve(self, connection: Connection) -> None:
        """Note that a whole request has arrived."""
        with self._lock:
            if self._waiting.pop(connection, None) is not None:
                self._served[connection] = self._clock()

    def await_next(self, connection: Connection) -> None:
        """Note that a request is answered, and the next one may come on the same connection."""
        with self._lock:
            if self._served.pop(connection, None) is not None:
                self._waiting[connection] = self._clock()

    def close(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._served.pop(connection, None)

    def overdue(self) -> list[Connection]:
        """Forget and return the connections whose time is over; they have to be closed."""
        with self._lock:
            now_s = self._clock()
            late = _take_before(self._waiting, now_s - self.limits.request_s)
            if self.limits.answer_s is not None:
                late += _take_before(self._served, now_s - self.limits.answer_s)
            return late


def _take_before(since_s: dict[Connection, float], before_s: float) -> list[Connection]:
    """Remove and return those whose time is `before_s` or earlier."""
    early = [connection for connection, began_s in since_s.items() if began_s <= before_s]
    for connection in early:
        del since_s[connection]
    return early
