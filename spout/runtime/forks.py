"""What a forked process must not use: threads, locks and clients of Kafka stay in the process that made them.

``os.fork`` copies the memory of a process and none of its threads but one. A client of Kafka in
the copy looks alive, and sends nothing; to close it waits for threads that are not there. So
each object that holds a client has its `forked` called in the child, where it puts `Behind` in the
place of its lock: the next call raises, whichever it is, and no call is slower for it.

A child comes from ``os.fork``, from `multiprocessing` with the start method *fork*, from
gunicorn's workers behind ``preload_app``, from Celery's prefork pool.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, NoReturn, Protocol
from weakref import WeakSet

from acker.errors import UsageError


class Forkable(Protocol):
    """An object that must know when its process was forked."""

    def forked(self) -> None:
        """Refuse all use from now on; called in the child, before ``os.fork`` returns there."""


_LISTENERS: Final[WeakSet[Forkable]] = WeakSet()

_KEPT: Final[list[object]] = []
"""What a child never lets go of: to destroy a client of Kafka is to wait for its threads."""


def tell_of_forks(listener: Forkable) -> None:
    """Register an object, as long as it lives: `forked` is called in each child that is forked from
    here.
    """
    _LISTENERS.add(listener)


def keep_for_good(client: object) -> None:
    """Keep an object until the process ends."""
    _KEPT.append(client)


class Behind:
    """Stands in the place of a lock or condition in a forked child: to enter it raises `UsageError`."""

    def __init__(self, what: str, cure: str) -> None:
        """Make the error's text: `what` the parent holds, and the `cure`, what to do in the child
        instead.
        """
        self._text = (
            f"{what} was made in process {os.getppid()}, from which this process,"
            f" {os.getpid()}, was forked: its threads and its connections to Kafka are there,"
            f" and nothing that is done here would reach Kafka. {cure}"
        )

    def refuse(self) -> NoReturn:
        """Raise the error."""
        raise UsageError(self._text)

    __enter__ = refuse

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing; it was never entered."""


class Owner:
    """The process in which an object was made; a process that was forked from it may not use it."""

    def __init__(self, what: str, cure: str) -> None:
        """Keep the id of this process; `what` and `cure` are for the error."""
        self._pid = os.getpid()
        self._what = what
        self._cure = cure

    @property
    def is_here(self) -> bool:
        """Return whether this is the process, and none that was forked from it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise `UsageError` in any other process."""
        if not self.is_here:
            raise UsageError(
                f"{self._what} belongs to process {self._pid}, from which this process,"
                f" {os.getpid()}, was forked. {self._cure}"
            )


def _call_listeners() -> None:
    for listener in tuple(_LISTENERS):
        listener.forked()


os.register_at_fork(after_in_child=_call_listeners)
