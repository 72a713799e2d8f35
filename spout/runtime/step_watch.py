"""Watches the loop of a service from a separate thread, which no call of the loop can delay.

A call that hangs in a C library hangs the thread that made it, and Python runs no signal
handlers in it. So the loop writes down what it does. If one thing takes longer than the limit,
the watching thread logs what it is, with a trace of all threads, and ends the process; the next
owner goes on from the log. It does so too if the loop has not ended within the grace period
after a signal to stop, and at once at a second signal.

C code that keeps the interpreter's lock stops the watching thread as well. So an alarm of the
operating system is set again at each check; `faulthandler`, which needs no lock, writes the
trace.

Only time in which the thread could check counts: a process that was stopped for an hour and
then goes on has not hung. (If it was stopped for longer than the alarm, the alarm ends it all
the same.)
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
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self, assert_never

from acker.units import duration_text
from spout.runtime.watchdog import ALARM_LIMITS, CHECK_EVERY_S_MAX, CHECKS_PER_LIMIT, EXIT_HUNG

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

CHECK_S_MAX: Final = 2.0
"""The time between two checks counts as this much at most, in seconds."""

SLOW_SHARE: Final = 0.5
"""An operation that takes longer than this part of the limit is logged, once."""

_STDERR: Final = 2


def end_process(code: int) -> None:
    """Write a trace of all threads to stderr and end this process at once."""
    sys.stderr.flush()
    faulthandler.dump_traceback(file=_STDERR)
    os._exit(code)


class LoopFinding(StrEnum):
    """What a check found out about the loop."""

    NOTHING = ""
    SLOW = "slow"
    HUNG = "hung"
    STOP_HUNG = "stop"


class LoopOperation(NamedTuple):
    """What the loop does, and a number that tells it from the same thing done before."""

    what: str
    number: int


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
        """Prepare to watch the loop of a `part`, acker or replay.

        Args:
            limit_ms: how long one operation may take: a bounded part of a step.
            grace_ms: how long the loop may take to end after a signal.
            log: logs an event with fields; called from the watching thread.
            clock: a time that only rises, in seconds.
            alive: called whenever the loop begins an operation, on the loop's own thread.
        """
        self._part = part
        self._limit_s = limit_ms / 1000
        self._grace_s = grace_ms / 1000
        self._log = log
        self._clock = clock
        self._alive = alive
        self._operation = LoopOperation("starting", 0)
        # when the last step ended, the last operation began, and the last check was made
        now_s = clock()
        self._step_ended_s = now_s
        self._operation_began_s = now_s
        self._checked_s = now_s
        self._signals_received, self._signals_written = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="windhover-steps", daemon=True)

    def begin_operation(self, what: str) -> None:
        """Record what the loop begins now: one bounded thing, such as a partition's transaction."""
        self._operation = LoopOperation(what, self._operation.number + 1)
        self._operation_began_s = self._clock()
        self._alive()

    def record_step_end(self) -> None:
        """Record that the loop has ended a step."""
        self._step_ended_s = self._clock()
        self.begin_operation("between two steps")

    @property
    def doing(self) -> str:
        """Return the operation that the loop began last."""
        return self._operation.what

    @property
    def age_s(self) -> float:
        """Return the seconds since the last step ended; they also grow during a step."""
        return max(0.0, self._clock() - self._step_ended_s)

    @property
    def quiet_s(self) -> float:
        """Return the seconds since the loop began an operation, or ended a step.

        A long restore has many operations.
        """
        return max(0.0, self._clock() - self._operation_began_s)

    def __enter__(self) -> Self:
        """Begin to watch, on the main thread: only that may set where signals are written."""
        self._signals_written.setblocking(False)
        self._signals_received.setblocking(False)
        self._former_wakeup_fd = signal.set_wakeup_fd(
            self._signals_written.fileno(), warn_on_full_buffer=False
        )
        faulthandler.register(signal.SIGALRM, file=_STDERR, all_threads=True, chain=True)
        self._set_alarm()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._former_wakeup_fd)
        self._signals_written.close()  # the thread reads the end of the stream
        self._thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        self._signals_received.close()

    def check(self, checks: StepChecks, signals: bytes = b"") -> None:
        """Check once what the loop does; log if it is slow. End the process if it hangs, or at a
        second signal to stop.

        `signals`: the numbers of those since the last check, a byte each.
        """
        now_s = self._clock()
        # if the whole process stood still, stopped or suspended, that is no fault of the loop
        passed_s = min(now_s - self._checked_s, CHECK_S_MAX)
        self._checked_s = now_s
        for number in signals:
            if number not in SIGNALS:  # as SIGHUP
                continue
            is_second = checks.record_signal()
            if is_second:
                end_process(128 + number)  # the exit code of a process that a signal has ended
        finding = checks.add_time(self._operation, passed_s)
        if finding is not LoopFinding.NOTHING:
            self._log_and_end_if_hung(finding, checks)

    def _run(self) -> None:
        """Check at regular times, and at each signal, until the context ends."""
        checks = StepChecks(self._limit_s, self._grace_s)
        poll = select.poll()  # `select` takes no descriptor above 1,023
        poll.register(self._signals_received, select.POLLIN)
        shorter_limit_s = min(self._limit_s, self._grace_s)
        check_every_s = min(CHECK_EVERY_S_MAX, shorter_limit_s / CHECKS_PER_LIMIT)
        while True:
            is_readable = bool(poll.poll(check_every_s * 1_000))
            self._set_alarm()
            signals = self._signals_received.recv(64) if is_readable else b""
            is_closed = is_readable and not signals  # by `__exit__`
            if is_closed:
                return
            self.check(checks, signals)

    def _log_and_end_if_hung(self, finding: LoopFinding, checks: StepChecks) -> None:
        """Log a finding of `StepChecks.add_time`; end the process if something hangs."""
        fields = {
            "at": checks.operation_text,
            "since_s": round(checks.operation_s, 1),
            "pid": os.getpid(),
        }
        limit = duration_text(int(self._limit_s * 1000))
        grace = duration_text(int(self._grace_s * 1000))
        match finding:
            case LoopFinding.NOTHING:
                pass
            case LoopFinding.SLOW:
                self._log(f"{self._part}.step_slow", limit=limit, **fields)
            case LoopFinding.HUNG:
                self._log(f"{self._part}.step_hung", limit=limit, **fields)
                end_process(EXIT_HUNG)
            case LoopFinding.STOP_HUNG:
                self._log(f"{self._part}.stop_hung", grace=grace, **fields)
                end_process(EXIT_HUNG)
            case _:
                assert_never(finding)

    def _set_alarm(self) -> None:
        """Set the alarm anew, which ends the process if nobody checks for too long."""
        signal.setitimer(signal.ITIMER_REAL, ALARM_LIMITS * self._limit_s)


class StepChecks:
    """What the checks found out: what the loop does now, and for how long.

    Pure: time is an argument.

    Attributes:
        operation_text: the operation at the last check; empty: there was no check.
        operation_s: how long the operation lasts by now, as far as checks have seen it.
    """

    def __init__(self, limit_s: float, grace_s: float) -> None:
        """Begin before the first operation.

        Args:
            limit_s: how long one operation may take.
            grace_s: how long the loop may take to end, after a signal to stop.
        """
        self.operation_text = ""
        self.operation_s = 0.0
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._operation: LoopOperation | None = None  # None: there was no check yet
        self._has_reported_slow = False
        self._grace_left_s: float | None = None  # None: no signal has come

    def record_signal(self) -> bool:
        """Start the grace period at the first signal to stop; return whether there was a signal
        before.
        """
        if self._grace_left_s is not None:
            return True
        self._grace_left_s = self._grace_s
        return False

    def add_time(self, operation: LoopOperation, passed_s: float) -> LoopFinding:
        """Add the time since the last check to the operation that the loop does now.

        Return what that shows.

        SLOW: the operation takes longer than `SLOW_SHARE` of the limit; this is returned once.
        HUNG: it takes longer than the limit. STOP_HUNG: the grace period after a signal has
        passed.
        """
        if operation != self._operation:
            # it began at an unknown time between the two checks
            self._operation = operation
            self._has_reported_slow = False
            self.operation_s = 0.0
        else:
            self.operation_s += passed_s
        self.operation_text = operation.what
        # after a signal each operation may be short, and the loop still not end
        if self._grace_left_s is not None:
            self._grace_left_s -= passed_s
            if self._grace_left_s <= 0:
                return LoopFinding.STOP_HUNG
        if self.operation_s >= self._limit_s:
            return LoopFinding.HUNG
        if self.operation_s >= self._limit_s * SLOW_SHARE and not self._has_reported_slow:
            self._has_reported_slow = True
            return LoopFinding.SLOW
        return LoopFinding.NOTHING
