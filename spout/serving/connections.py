"""Decides which connections of a server stay open, so that half requests cannot use up its descriptors.

A connection costs a descriptor, and in some servers a thread. A client that opens one and then
sends half a request, or nothing, would hold it for ever. So two limits hold:

* Time: a connection that waits for a whole request ends after `request_s`, however many bytes came meanwhile.
* Number: when `open_max` are open, a new one takes the place of the one that has waited longest for a
  request. So a thousand half requests do not keep out a client that sends a whole one at once.

The time alone would not do: with 10 s for a request, 26 half requests a second fill 256 places.
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
"""How many connections a server has at once; a page has one for each open tab, and some while
it loads."""

REQUEST_S: Final = 10.0
"""How long a connection may wait for a whole request; a browser sends its own in one piece."""

UNREAD_S: Final = 30.0
"""How long a client may read nothing of its answer; then the connection ends."""

DESCRIPTORS_SHARE: Final = 4
"""Connections use a quarter of a process's descriptors; the clients of Kafka need others."""

OPEN_LEAST: Final = 16
"""How many connections a server may have even where descriptors are few."""

ACCEPTED_AT_ONCE: Final = 64
"""How many connections may wait in the kernel, and are accepted together before the first is
handled."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a server allows its connections.

    Attributes:
        open_max: how many there are at once.
        request_s: how long one may wait for a whole request.
        answer_s: how long one may take from a whole request to its end; None: without end, as
            event streams.
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
    """Return how many connections a process may have whose limit of descriptors is `descriptors`.

    They are a quarter of the descriptors, but from 16 to 256. A negative number is no limit.

    >>> connections_within(1_024), connections_within(256), connections_within(20), connections_within(-1)
    (256, 64, 16, 256)
    """
    if descriptors < 0:
        return OPEN_MAX
    return max(OPEN_LEAST, min(OPEN_MAX, descriptors // DESCRIPTORS_SHARE))


class OpenConnections(Generic[Connection]):
    """The open connections of one server; several threads may use it.

    A connection is either waiting, while its request is not whole, or served, while it is answered.
    """

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without a connection; `clock` is in seconds."""
        self.limits = limits
        self._clock = clock
        self._lock = Lock()
        # By connection: since when it waits, or is served. One that changes over goes to the end,
        # so both are in the order of these times, the earliest first.
        self._waiting_since_s: dict[Connection, float] = {}
        self._served_since_s: dict[Connection, float] = {}

    def __len__(self) -> int:
        return len(self._waiting_since_s) + len(self._served_since_s)

    def open(self, connection: Connection) -> Connection | None:
        """Count a new connection; return the one that the caller has to end, so that there is room.

        It is the one that has waited longest for its request; where all others are served, the
        new one. None: there is room.
        """
        with self._lock:
            self._waiting_since_s[connection] = self._clock()
            if len(self) <= self.limits.open_max:
                return None
            longest_waiting = next(iter(self._waiting_since_s))
            del self._waiting_since_s[longest_waiting]
            return longest_waiting

    def serve(self, connection: Connection) -> None:
        """Record that a whole request has arrived, unless the connection was ended meanwhile."""
        with self._lock:
            if self._waiting_since_s.pop(connection, None) is not None:
                self._served_since_s[connection] = self._clock()

    def await_next(self, connection: Connection) -> None:
        """Record that a request is answered, and that the connection waits for the next one."""
        with self._lock:
            if self._served_since_s.pop(connection, None) is not None:
                self._waiting_since_s[connection] = self._clock()

    def close(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        with self._lock:
            self._waiting_since_s.pop(connection, None)
            self._served_since_s.pop(connection, None)

    def take_overdue(self) -> list[Connection]:
        """Remove and return the connections whose time is over; the caller has to end them."""
        with self._lock:
            now_s = self._clock()
            overdue = _remove_up_to(self._waiting_since_s, now_s - self.limits.request_s)
            if self.limits.answer_s is not None:
                overdue += _remove_up_to(self._served_since_s, now_s - self.limits.answer_s)
            return overdue


def _remove_up_to(times_s: dict[Connection, float], last_s: float) -> list[Connection]:
    """Remove and return the connections whose time is `last_s` or earlier; empty: none is."""
    removed = [connection for connection, time_s in times_s.items() if time_s <= last_s]
    for connection in removed:
        del times_s[connection]
    return removed
