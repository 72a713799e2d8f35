"""Ends a worker whose bolt hangs, with a stack trace; Spark tries the task again.

The next attempt isolates the record (`spout.isolation`), so that it fails alone.

A C extension that keeps the interpreter's lock stops the watching thread too. So the thread
sets an alarm of `faulthandler`, which needs no lock, anew at each check.

Source: docs/design/protocol.md, section 5.2; Storm's ``topology.message.timeout.secs`` ends no
bolt.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from acker.units import duration_text
from spout.runtime.pulse import OverdueCalls, Pulse

EXIT_HUNG: Final = 70
"""The exit code of a worker whose bolt hung."""

CHECKS_PER_LIMIT: Final = 4

ALARM_LIMITS: Final = 3
"""The alarm fires when nobody has checked for this many limits: not too early, even on a busy
machine."""

CHECK_EVERY_S_MAX: Final = 1.0

_STDERR: Final = 2

ROOTS_LOGGED_MAX: Final = 10


class Hang(NamedTuple):
    """A call of a bolt that takes too long.

    Attributes:
        bolt: the bolt's name.
        limit_ms: how long a call of it may take.
        place: where its code is, file and line; empty: unknown.
        roots: the roots that it works on, ascending, as its task names them; empty: unknown.
    """

    bolt: str
    limit_ms: int
    place: str
    roots: tuple[int, ...]


Expire = Callable[[Hang], None]
"""Called when a call takes too long; in a worker it ends the process."""

PlaceOf = Callable[[int], str]
"""Returns where the code of a thread is, by the thread's number; empty: unknown."""

_LOGGER = logging.getLogger("windhover.spout")


def _unknown_place(_thread_id: int) -> str:
    return ""


def end_worker(hang: Hang) -> None:
    """Log which bolt hangs, and where, write a trace, and end this process."""
    _LOGGER.error(
        "bolt_hung bolt=%s limit=%s place=%s pid=%d roots=%s",
        hang.bolt,
        duration_text(hang.limit_ms),
        hang.place or "unknown",
        os.getpid(),
        list(hang.roots[:ROOTS_LOGGED_MAX]),
    )
    faulthandler.dump_traceback(file=_STDERR)
    os._exit(EXIT_HUNG)


class Watchdog:
    """Watches one task for as long as the context lasts; a limit of 0 watches nothing."""

    def __init__(
        self,
        pulse: Pulse,
        limit_ms: int,
        expire: Expire = end_worker,
        *,
        place_of: PlaceOf = _unknown_place,
    ) -> None:
        """Watch the thread that makes this.

        `expire` is called for a call of more than `limit_ms`.
        """
        self._pulse = pulse
        self._task_thread_id = threading.get_ident()
        self._place_of = place_of
        self._limit_ms = limit_ms
        self._expire = expire
        self._every_s = min(limit_ms / 1_000 / CHECKS_PER_LIMIT, CHECK_EVERY_S_MAX)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="windhover-watchdog", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        if self._limit_ms:
            self._set_alarm()  # the first call may keep the lock before the thread has checked once
            try:
                self._thread.start()
            except RuntimeError:  # the process can have no more threads
                # the alarm would end it during a later task
                faulthandler.cancel_dump_traceback_later()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._limit_ms:
            self._stopping.set()
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        """Sample the pulse until the task ends.

        Call `expire` at each sample with an overdue call.
        """
        calls = OverdueCalls(self._limit_ms)
        while not self._stopping.wait(self._every_s):
            self._set_alarm()
            work = self._pulse.work
            if work is None:
                continue
            overdue_bolt = calls.record_sample(work, time.monotonic_ns() // 1_000_000)
            if overdue_bolt:
                # where the bolt lets no other thread run this is not reached, and the alarm's trace
                # has the place
                place = self._place_of(self._task_thread_id)
                roots = tuple(sorted(set(work.roots())))
                self._expire(Hang(overdue_bolt, self._limit_ms, place, roots))

    def _set_alarm(self) -> None:
        """Set the alarm anew, which ends the process if this thread cannot run for too long."""
        alarm_s = ALARM_LIMITS * self._limit_ms / 1_000
        faulthandler.dump_traceback_later(alarm_s, exit=True, file=_STDERR)
