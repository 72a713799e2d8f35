"""A forked child that works in the place of its worker, and how it ends.

The child has all that the worker had when it was forked, and none of the
worker's threads: it must not touch the clients of Kafka there, nor Spark's
sockets. It speaks over a socket pair of its own, frame by frame. It dies with
the worker, and before it where memory runs out.

Source: docs/design/protocol.md, section 5.2; fork(2), prctl(2), proc(5) on
``oom_score_adj``.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

from acker.untrusted import trace_lines
from spout.execution.guards import CallMemory, Phase
from spout.runtime.tether import PR_SET_PDEATHSIG

POLL_MS: Final = 20
"""The parent looks this often whether its child lives, and what it does now."""

QUIET_MS: Final = 600_000
"""A child is given up in which for so long no call of `execute` is under way, and nothing else changes."""

CLOSED_MS: Final = 5_000
"""A child that has closed its socket is given so long to end."""

READ_BYTES: Final = 1 << 18

_UNKNOWN_END: Final = "an unknown end"
_LENGTH = struct.Struct("!Q")
_STDERR_FD: Final = 2
_OOM_FIRST: Final = "1000"
"""The highest score that the kernel adds to a process: where memory runs out it is ended first."""

_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork

ClockMs = Callable[[], int]


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Why(Enum):
    """Why a child ended."""

    DIED = "it ended by itself, or somebody ended it"
    HUNG = "it was ended, since its bolt took too long"
    SPARED = "the same, and the call returned at the last moment, so that no tuple is to blame"
    QUIET = "it was given up, having done nothing for `QUIET_MS`"


class ChildEnded(Exception):
    """A child ended before it answered.

    `how`: a text, as of `how_it_ended`; `why`: who or what ended it.
    """

    def __init__(self, how: str, why: Why = Why.DIED) -> None:
        super().__init__(how)
        self.how = how
        self.why = why


class Channel:
    """The child's end: frames from and to its parent, blocking."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket = socket_

    def receive(self) -> bytes | None:
        """Wait for the next frame and return it; None: the parent has closed its end."""
        length = self._receive_bytes(_LENGTH.size)
        if length is None:
            return None
        (frame_bytes,) = _LENGTH.unpack(length)
        return self._receive_bytes(frame_bytes)

    def send(self, frame: bytes) -> None:
        """Send a frame; wait until the socket has taken it."""
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def _receive_bytes(self, count: int) -> bytes | None:
        """Wait for the next `count` bytes and return them; None: the parent has closed its end."""
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(min(READ_BYTES, count - len(received)))
            if not part:
                return None
            received += part
        return bytes(received)


class ChildProcess:
    """The parent's end of one child."""

    def __init__(
        self,
        serve: Callable[[Channel], None],
        memory: CallMemory,
        limit_ms: int,
        clock_ms: ClockMs = monotonic_ms,
    ) -> None:
        """Fork a child, which ends when `serve` returns or raises, and writes what it does now into `memory`.

        `limit_ms`: how long one call of a bolt may last, by `clock_ms`; 0: for
        ever.
        """
        self._clock_ms = clock_ms
        self._memory = memory
        self._call_limit_ms = limit_ms
        self._inbox = bytearray()  # bytes of the next answer
        # how far the child was when its parent looked last, and since when it
        # is there
        self._last_progress: tuple[int, Phase] = (-1, Phase.IDLE)
        self._last_progress_ms = self._clock_ms()
        self.pid, self._socket = _fork(serve)
        self._how_ended: str | None = None  # None: it lives, as far as this process knows
        self._closed_ms: int | None = None  # when it was seen that the child has closed its end
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def ask(self, frame: bytes = b"") -> bytes:
        """Send a frame, if there is one, and return the answer.

        Raises `ChildEnded`: the child ended without an answer, or was ended, since it hangs.
        """
        unsent = memoryview(_LENGTH.pack(len(frame)) + frame) if frame else memoryview(b"")
        self._last_progress_ms = self._clock_ms()
        while True:
            if self._closed_ms is None:
                events = select.POLLIN | select.POLLOUT if unsent else select.POLLIN
                self._poll.modify(self._socket, events)
            if self._poll.poll(POLL_MS):
                if unsent:
                    sent_bytes = self._write(unsent)
                    unsent = unsent[sent_bytes:]
                self._read()
            answer = self._next_answer()
            if answer is not None:
                return answer
            ending = self._check_end()
            if ending is not None:
                # it may have answered after the last look into the socket
                self._read()
                answer = self._next_answer()
                if answer is None:
                    raise ChildEnded(ending)
                return answer
            self._end_if_late()

    def close(self) -> None:
        """End the child, if it lives, and close the socket."""
        if self._check_end() is None:
            self._kill()
        self._socket.close()

    def _write(self, unsent: memoryview) -> int:
        """Send what the socket takes; return how many bytes need not be sent again."""
        try:
            return self._socket.send(unsent)
        except BlockingIOError:
            return 0
        except OSError:  # it has closed its end; how it ends is seen by waiting
            return len(unsent)

    def _read(self) -> None:
        """Read into the inbox what is there; record when the child has closed its end."""
        while self._closed_ms is None:
            try:
                part = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            self._inbox += part
            if not part:
                self._closed_ms = self._clock_ms()
                self._poll.unregister(self._socket)

    def _next_answer(self) -> bytes | None:
        """Take an answer out of the inbox; None: it is not whole yet."""
        if len(self._inbox) < _LENGTH.size:
            return None
        (answer_bytes,) = _LENGTH.unpack_from(self._inbox)
        end = _LENGTH.size + answer_bytes
        if len(self._inbox) < end:
            return None
        answer = bytes(self._inbox[_LENGTH.size : end])
        del self._inbox[:end]
        return answer

    def _check_end(self) -> str | None:
        """Return how the child ended, as a text; None: it lives."""
        if self._how_ended is None:
            self._wait(os.WNOHANG)
        return self._how_ended

    def _wait(self, options: int) -> int:
        """Wait for the child, and record how it ended.

        `options` are those of `os.waitpid`: 0 waits, `os.WNOHANG` only looks.
        Return its status; 0: it lives, or nobody knows.
        """
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # somebody else has waited for it
            self._how_ended = _UNKNOWN_END
            return 0
        if pid:
            self._how_ended = how_it_ended(status)
        return status

    def _end_if_late(self) -> None:
        """End a child whose bolt hangs, or that does nothing any more; then raise `ChildEnded`."""
        now_ms = self._clock_ms()
        progress = self._memory.progress
        if progress != self._last_progress:
            self._last_progress = progress
            self._last_progress_ms = now_ms
        waited_ms = now_ms - self._last_progress_ms
        _written_count, phase = progress
        is_in_bolt = phase is Phase.EXECUTE
        is_overdue = is_in_bolt and self._call_limit_ms and waited_ms >= self._call_limit_ms
        is_quiet = not is_in_bolt and waited_ms >= QUIET_MS
        is_closed = self._closed_ms is not None and now_ms - self._closed_ms >= CLOSED_MS
        if not (is_overdue or is_quiet or is_closed):
            return
        if not self._kill():
            return  # it ended by itself just before, which the next look finds
        if is_overdue:
            # the call may have returned between the look and the kill
            has_hung = self._memory.progress == progress
            raise ChildEnded("SIGKILL", Why.HUNG if has_hung else Why.SPARED)
        if is_quiet:
            raise ChildEnded(f"did nothing for {QUIET_MS // 1_000} s", Why.QUIET)
        raise ChildEnded("closed its socket")

    def _kill(self) -> bool:
        """End the child; return whether that was its end, and not one of its own just before.

        A child that ends by itself is seen late when it dumps core.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        status = self._wait(0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def how_it_ended(status: int) -> str:
    """Return how a process ended, by what `os.waitpid` returned."""
    if not os.WIFSIGNALED(status):
        return f"exit status {os.WEXITSTATUS(status)}"
    signal_number = os.WTERMSIG(status)
    if signal_number == signal.SIGKILL:
        return "SIGKILL (out of memory?)"
    try:
        return signal.Signals(signal_number).name
    except ValueError:  # a real-time signal, which has no name
        return f"signal {signal_number}"


def _fork(serve: Callable[[Channel], None]) -> tuple[int, socket.socket]:
    """Fork a child that serves; return its process id and the parent's end of the socket
    (non-blocking).

    The child never returns from here.
    """
    parent_end, child_end = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        # or the child would write it again; bolts may have closed it, or put
        # something else in its place
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    parent_pid = os.getpid()
    with warnings.catch_warnings():
        # from Python 3.12 on: this process has threads. Those of the clients
        # are not used in the child
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        child_end.close()
        parent_end.setblocking(False)
        return pid, parent_end
    # from here on this is the child
    status = 1
    try:
        parent_end.close()
        _die_with(parent_pid)
        serve(Channel(child_end))
        status = 0
    except SystemExit as error:
        # as Python ends: a number is the status, None is success, and anything
        # else a failure
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - the top of a process
        with contextlib.suppress(Exception):
            sys.stderr.write("\n".join([*trace_lines(error), ""]))
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status & 0xFF)


def _die_with(parent_pid: int) -> None:
    """Have the kernel end this process when its parent ends, and before it where memory runs out.

    If this process crashes, it writes its Python traces to standard error.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before the call above
        os._exit(1)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST, encoding="ascii")
    faulthandler.enable(file=_STDERR_FD)
