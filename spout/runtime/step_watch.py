"""Watches the one endless loop from a thread of its own, which nothing that the loop calls can hold up.

A call that hangs in a C library hangs the thread that made it: it logs nothing, and no signal handler of
Python's runs there. So the loop writes down what it is at, and this thread looks. Where one thing takes
longer than the limit, it logs what and since when, with a trace of all threads, and ends the process;
everything that counts is in the log, and the next owner goes on there. A signal that asks for the end wakes
this thread as well: it ends the process when the loop has not ended within the grace, and at once when a
second signal comes and the loop is not there to have it.

C code that keeps the interpreter's lock stops this thread too. For that there is an alarm of the operating
system's, wound up again at each look, with a trace written by `faulthandler`, which needs no lock.

What it measures is the time in which it could look: a process that was stopped for an hour, and goes on, has
not hung (where it was stopped for longer than the alarm, the alarm ends it all the same).
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from acker.units import duration_text
from spout.runtime.watchdog import ALARM_LIMITS, EXIT_HUNG

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

LOOK_S: Final = 0.25
"""How often it is looked."""

LOOK_S_MAX: Final = 2.0
"""A look counts for no longer than this, however long ago the one before was."""

SLOW_SHARE: Final = 0.5
"""What takes longer than this share of the limit is logged, once."""

_STDERR: Final = 2


def end_process(code: int) -> None:
    """Write a trace of all threads to stderr and end this process at once."""
    sys.stderr.flush()
    faulthandler.dump_traceback(file=_STDERR)
    os._exit(code)


class StepWatch:
    """Watches a loop as long as the context lasts."""

    def __init__(
        self,
        part: str,
        limit_ms: int,
        grace_ms: int,
        tell: Callable[..., Any],
        *,
        end: Callable[[int], None] = end_process,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is watched yet.

        Args:
            part: acker or replay; begins the name of each event.
            limit_ms: how long one thing may take.
            grace_ms: how long the loop may take to end after a signal.
            tell: logs an event with fields; called from the watching thread.
            end: ends the process with an exit code.
            clock: monotonic seconds.
        """
        self._part = part
        self._limit_s = limit_ms / 1000
        self._grace_s = grace_ms / 1000
        self._tell = tell
        self._end = end
        self._clock = clock
        self._at = ("starting", 0)
        self._stepped_s = self._looked_s = clock()
        self._ears, self._mouth = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="windhover-steps", daemon=True)

    def at(self, what: str) -> None:
        """Write down what the loop begins now: one bounded thing, such as a partition's transaction."""
        self._at = (what, self._at[1] + 1)

    def stepped(self) -> None:
        """Write down that a step has ended."""
        self._stepped_s = self._clock()
        self.at("between two steps")

    @property
    def age_s(self) -> float:
        """Seconds since the last step ended; it grows as long as one lasts, whoever asks."""
        return max(0.0, self._clock() - self._stepped_s)

    def __enter__(self) -> Self:
        """Begin to watch; from the main thread, which alone may say where signals are written to."""
        self._mouth.setblocking(False)
        self._ears.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        faulthandler.register(signal.SIGALRM, file=_STDERR, all_threads=True, chain=True)
        self._wind_up()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer."""
        signal.set_wakeup_fd(self._wakeup)
        self._mouth.close()  # which the thread hears
        self._thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        self._ears.close()

    def look(self, looker: Looker, signals: bytes = b"") -> None:
        """Look once what the loop is at.

        Args:
            looker: what the looks before have found.
            signals: the numbers of those that came meanwhile.
        """
        now_s = self._clock()
        passed_s, self._looked_s = min(now_s - self._looked_s, LOOK_S_MAX), now_s
        for number in signals:
            if number in SIGNALS and looker.hear(number):
                self._end(128 + number)
        self._act(looker, looker.pass_time(self._at, passed_s))

    def _run(self) -> None:
        looker = Looker(self._limit_s, self._grace_s)
        while True:
            ready, _, _ = select.select([self._ears], [], [], LOOK_S)
            self._wind_up()
            heard = self._ears.recv(64) if ready else b""
            if ready and not heard:
                return
            self.look(looker, heard)

    def _act(self, looker: Looker, found: str) -> None:
        """Log what was found, and end the process where nothing else does."""
        if not found:
            return
        fields = {"at": looker.what, "since_s": round(looker.since_s, 1), "pid": os.getpid()}
        if found == "slow":
            self._tell(f"{self._part}.step_slow", limit=duration_text(int(self._limit_s * 1000)), **fields)
        elif found == "hung":
            self._tell(f"{self._part}.step_hung", limit=duration_text(int(self._limit_s * 1000)), **fields)
            self._end(EXIT_HUNG)
        else:
            self._tell(f"{self._part}.stop_hung", grace=duration_text(int(self._grace_s * 1000)), **fields)
            self._end(EXIT_HUNG)

    def _wind_up(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, ALARM_LIMITS * self._limit_s)


class Looker:
    """What is known of the loop from look to look. Pure: time is an argument.

    Attributes:
        what: what the loop is at.
        since_s: how long it has been seen at it.
    """

    def __init__(self, limit_s: float, grace_s: float) -> None:
        self.what = ""
        self.since_s = 0.0
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._seen: tuple[str, int] | None = None
        self._was_slow = False
        self._left_s: float | None = None

    def hear(self, number: int) -> bool:
        """Take note of a signal that asks for the end; tell whether it is not the first one."""
        is_second = self._left_s is not None
        if not is_second:
            self._left_s = self._grace_s
        return is_second

    def pass_time(self, at: tuple[str, int], passed_s: float) -> str:
        """Let time pass with the loop at something; return ``slow``, ``hung``, ``stop``, or nothing."""
        if at != self._seen:
            self._seen, self.since_s, self._was_slow = at, 0.0, False
        else:
            self.since_s += passed_s
        self.what = at[0]
        if self._left_s is not None:
            self._left_s -= passed_s
            if self._left_s <= 0:
                return "stop"
        if self.since_s >= self._limit_s:
            return "hung"
        if self.since_s >= self._limit_s * SLOW_SHARE and not self._was_slow:
            self._was_slow = True
            return "slow"
        return ""
