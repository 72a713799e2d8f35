"""What a forked process must not use: locks and clients of Kafka that another process made.

``os.fork`` copies the memory of a process and none of its threads but one. A client of Kafka in
the copy looks alive, and sends nothing; to close it waits for threads that are not there. So
each object that holds a client has its `forked` called in the child, where it puts a `ForkRefusal`
in the place of its lock: the next call raises, whichever it is, and no call is slower for it.

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
"""The `forked` of each is called in a child."""

_NEVER_DESTROYED: Final[list[object]] = []
"""Clients of Kafka in a child: to destroy one is to wait for its threads, which are not there."""


def register_for_forks(listener: Forkable) -> None:
    """Register an object, as long as it lives: `forked` is called in each child that is forked from
    here.
    """
    _LISTENERS.add(listener)


def keep_for_good(client: object) -> None:
    """Keep a client of Kafka until the process ends."""
    _NEVER_DESTROYED.append(client)


class ForkRefusal:
    """Stands in the place of a lock or condition in a forked child.

    To enter it raises `UsageError`.
    """

    def __init__(self, what: str, cure: str) -> None:
        """Make the text of the error.

        Args:
            what: the object that the parent process made, as ``client 'lines'``.
            cure: a sentence: what to do in the child instead.
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
        """Keep the id of this process; `what` and `cure` are as for `ForkRefusal`."""
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
    """Call `forked` of each listener; in the child."""
    for listener in tuple(_LISTENERS):
        listener.forked()


os.register_at_fork(after_in_child=_call_listeners)
