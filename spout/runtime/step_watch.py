"""Watches the loop of a service from a separate thread, which no call of the loop can delay.

A call that hangs in a C library hangs the thread that made it, and Python runs no signal handlers in it. So
the loop writes down what it does. If one thing takes longer than the limit, the watching thread logs what it
is, with a trace of all threads, and ends the process; the next owner goes on from the log. It does so too if
the loop has not ended within the grace period after a signal to stop, and at once at a second signal.

C code that keeps the interpreter's lock stops the watching thread as well. So an alarm of the operating
system is set again at each check; `faulthandler`, which needs no lock, writes the trace.

Only time in which the thread could check counts: a process that was stopped for an hour and then goes on has
not hung. (If it was stopped for longer than the alarm, the alarm ends it all the same.)
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
from typing import Any, Final, Self

from acker.units import duration_text
from spout.runtime.watchdog import ALARM_LIMITS, CHECK_EVERY_S_MAX, CHECKS_PER_LIMIT, EXIT_HUNG

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

CHECK_S_MAX: Final = 2.0
"""The time between two checks counts as this much at most, in seconds."""

SLOW_SHARE: Final = 0.5
"""A thing that takes longer than this share of the limit is logged, once."""

_STDERR: Final = 2


def end_process(code: int) -> None:
    """Write a trace of all threads to stderr and end this process at once."""
    sys.stderr.flush()
    faulthandler.dump_traceback(file=_STDERR)
    os._exit(code)


class StepWatch:
    """Watches a loop for as long as the context lasts."""

    def __init__(
        self,
        part: str,
        limit_ms: int,
        grace_ms: int,
        log: Callable[..., Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare to watch a `part`, acker or replay.

        Args:
            limit_ms: how long one thing may take.
            grace_ms: how long the loop may take to end after a signal.
            log: logs an event with fields; called from the watching thread.
            alive: called by the loop itself whenever it goes on.
        """
        self._part = part
        self._limit_s = limit_ms / 1000
        self._grace_s = grace_ms / 1000
        self._log = log
        self._clock = clock
        self._alive = alive
        self._at = ("starting", 0)
        self._stepped_s = self._moved_s = self._checked_s = clock()
        self._signals_in, self._signals_out = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="windhover-steps", daemon=True)

    def at(self, what: str) -> None:
        """Write down what the loop begins now: one bounded thing, such as a partition's transaction."""
        self._at = (what, self._at[1] + 1)
        self._moved_s = self._clock()
        self._alive()

    def stepped(self) -> None:
        self._stepped_s = self._clock()
        self.at("between two steps")

    @property
    def doing(self) -> str:
        """What the loop began last."""
        return self._at[0]

    @property
    def age_s(self) -> float:
        """Seconds since the last step ended; it also grows during a step."""
        return max(0.0, self._clock() - self._stepped_s)

    @property
    def quiet_s(self) -> float:
        """Seconds since the loop ended a step or began an operation; a long restore has many of them."""
        return max(0.0, self._clock() - self._moved_s)

    def __enter__(self) -> Self:
        """Begin to watch, on the main thread: only that may set where signals are written."""
        self._signals_out.setblocking(False)
        self._signals_in.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._signals_out.fileno(), warn_on_full_buffer=False)
        faulthandler.register(signal.SIGALRM, file=_STDERR, all_threads=True, chain=True)
        self._set_alarm()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        self._signals_out.close()  # the thread reads the end of the stream
        self._thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        self._signals_in.close()

    def check(self, checks: StepChecks, signals: bytes = b"") -> None:
        """Check once what the loop does; `signals`: the numbers of those since the last check."""
        now_s = self._clock()
        passed_s, self._checked_s = min(now_s - self._checked_s, CHECK_S_MAX), now_s
        for number in signals:
            if number in SIGNALS and checks.note_signal():
                end_process(128 + number)
        self._act(checks, checks.pass_time(self._at, passed_s))

    def _run(self) -> None:
        checks = StepChecks(self._limit_s, self._grace_s)
        poll = select.poll()  # `select` takes no descriptor above 1,023
        poll.register(self._signals_in, select.POLLIN)
        every_s = min(CHECK_EVERY_S_MAX, min(self._limit_s, self._grace_s) / CHECKS_PER_LIMIT)
        while True:
            ready = poll.poll(every_s * 1_000)
            self._set_alarm()
            received = self._signals_in.recv(64) if ready else b""
            if ready and not received:
                return
            self.check(checks, received)

    def _act(self, checks: StepChecks, found: str) -> None:
        fields = {"at": checks.what, "since_s": round(checks.since_s, 1), "pid": os.getpid()}
        limit = duration_text(int(self._limit_s * 1000))
        if found == "slow":
            self._log(f"{self._part}.step_slow", limit=limit, **fields)
        elif found == "hung":
            self._log(f"{self._part}.step_hung", limit=limit, **fields)
            end_process(EXIT_HUNG)
        elif found == "stop":
            self._log(f"{self._part}.stop_hung", grace=duration_text(int(self._grace_s * 1000)), **fields)
            end_process(EXIT_HUNG)

    def _set_alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, ALARM_LIMITS * self._limit_s)


class StepChecks:
    """What the checks found out: what the loop does now, and for how long. Pure: time is an argument."""

    def __init__(self, limit_s: float, grace_s: float) -> None:
        self.what = ""
        self.since_s = 0.0
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._seen: tuple[str, int] | None = None
        self._was_slow = False
        self._left_s: float | None = None

    def note_signal(self) -> bool:
        """Note a signal to stop; return whether there was one before."""
        if self._left_s is not None:
            return True
        self._left_s = self._grace_s
        return False

    def pass_time(self, at: tuple[str, int], passed_s: float) -> str:
        """Add time in which the loop did `at`; return ``slow``, ``hung``, ``stop``, or an empty text."""
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
