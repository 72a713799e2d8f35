"""A forked child that works in the place of its worker, and how it ends.

The child has all that the worker, its parent, had when it was forked, and none of the
worker's threads: it must not touch the clients of Kafka there, nor Spark's
sockets. Parent and child speak over a socket pair of their own. What is sent at once is a *frame*:
its length, then its bytes. The child dies with the worker, and before it where memory runs out.

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
import warnings
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

from acker.untrusted import trace_lines
from acker.waits import SteadyMs, steady_ms
from spout.execution.guards import CallMemory, ChildProgress, Phase
from spout.runtime.tether import PR_SET_PDEATHSIG

POLL_MS: Final = 20
"""While the parent waits for an answer, it looks this often whether the child lives, and what it
does.
"""

QUIET_MS: Final = 600_000
"""A child is given up in which for so long no call of `execute` is under way, and nothing else
changes.
"""

CLOSED_MS: Final = 5_000
"""A child that has closed its socket is given so long to end."""

READ_BYTES: Final = 1 << 18

_UNKNOWN_END: Final = "an unknown end"
_LENGTH = struct.Struct("!Q")
_STDERR_FD: Final = 2
_OOM_FIRST: Final = "1000"
"""The highest score that the kernel adds to a process: where memory runs out it is ended first."""

_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


class Why(Enum):
    """Why a child ended."""

    DIED = "it ended by itself, or somebody else ended it; or it had closed its socket"
    HUNG = "its parent ended it, since a call of a bolt took too long"
    SPARED = "the same, and that call had returned in the last moment, so that no tuple is to blame"
    QUIET = "its parent ended it, since it did nothing for `QUIET_MS`"


class ChildEnded(Exception):
    """A child ended before it answered.

    Attributes:
        how: a text for messages, as `how_it_ended` returns it.
        why: who or what ended it.
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
        clock_ms: SteadyMs = steady_ms,
    ) -> None:
        """Fork a child, which runs `serve`, and then ends.

        Args:
            serve: answers the parent by the `Channel`; the child ends when it returns or raises.
            memory: shared with the child, which writes there what it does now.
            limit_ms: how long one call of a bolt may last, by `clock_ms`; 0: for ever.
        """
        self._clock_ms = clock_ms
        self._memory = memory
        self._call_limit_ms = limit_ms
        self._inbox = bytearray()  # what was read of the next answer
        # how far the child was when its parent looked last, and when it was first seen there
        self._last_progress = ChildProgress(write_count=-1, phase=Phase.IDLE)
        self._last_progress_ms = self._clock_ms()
        self.pid, self._socket = _fork(serve)
        self._how_ended: str | None = None  # None: it lives, as far as this process knows
        # when it was first seen that the child has closed its socket; None: it has not
        self._closed_ms: int | None = None
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def ask(self, question: bytes = b"") -> bytes:
        """Send a question as a frame, and return the answer; without a question only wait for one.

        Raises `ChildEnded`: the child ended without an answer, or was ended, since it hangs.
        """
        unsent = memoryview(b"")
        if question:
            unsent = memoryview(_LENGTH.pack(len(question)) + question)
        self._last_progress_ms = self._clock_ms()  # what it did before was no work on this question
        while True:
            is_ready = self._wait_for_socket(for_writing=bool(unsent))
            if is_ready and unsent:
                sent_bytes = self._write_some(unsent)
                unsent = unsent[sent_bytes:]
            if is_ready:
                self._read_into_inbox()
            answer = self._pop_answer()
            if answer is not None:
                return answer
            how_ended = self._reap_if_ended()
            if how_ended is not None:
                # it may have answered after the last look into the socket
                self._read_into_inbox()
                answer = self._pop_answer()
                if answer is None:
                    raise ChildEnded(how_ended)
                return answer
            self._end_if_stuck()

    def close(self) -> None:
        """End the child, if it lives, and close the socket."""
        if self._reap_if_ended() is None:
            self._kill()
        self._socket.close()

    def _wait_for_socket(self, *, for_writing: bool) -> bool:
        """Wait until there is something to read or, `for_writing`, the socket takes bytes.

        Return whether that is so; False after `POLL_MS`.
        """
        if self._closed_ms is None:  # else the socket is not among those that are polled any more
            events = select.POLLIN | select.POLLOUT if for_writing else select.POLLIN
            self._poll.modify(self._socket, events)
        return bool(self._poll.poll(POLL_MS))

    def _write_some(self, unsent: memoryview) -> int:
        """Send what the socket takes; return how many bytes need not be sent again."""
        try:
            return self._socket.send(unsent)
        except BlockingIOError:
            return 0
        except OSError:  # it has closed its end; how it ends is seen by waiting
            return len(unsent)

    def _read_into_inbox(self) -> None:
        """Move what the child has sent into the inbox; set `_closed_ms` if it closed its socket."""
        while self._closed_ms is None:
            try:
                received = self._socket.recv(READ_BYTES)
            except BlockingIOError:  # nothing more has come yet
                return
            except OSError:  # the child has gone: as if it had closed its socket
                received = b""
            self._inbox += received
            if not received:  # the end of what can be read
                self._closed_ms = self._clock_ms()
                self._poll.unregister(self._socket)

    def _pop_answer(self) -> bytes | None:
        """Remove an answer from the inbox, and return it; None: none is whole yet."""
        if len(self._inbox) < _LENGTH.size:
            return None
        (answer_bytes,) = _LENGTH.unpack_from(self._inbox)
        end = _LENGTH.size + answer_bytes
        if len(self._inbox) < end:
            return None
        answer = bytes(self._inbox[_LENGTH.size : end])
        del self._inbox[:end]
        return answer

    def _reap_if_ended(self) -> str | None:
        """Return how the child ended, as a text for messages; None: it lives.

        An ended child stays in the kernel's table until this process has asked for its status.
        """
        if self._how_ended is None:
            self._wait_for_end(os.WNOHANG)
        return self._how_ended

    def _wait_for_end(self, options: int) -> int:
        """Wait for the child's end, set `_how_ended`, and return the status of the child.

        0: the child lives, or its status is unknown.

        `options`: those of `os.waitpid`: 0 waits, `os.WNOHANG` only looks.
        """
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # somebody else has waited for it
            self._how_ended = _UNKNOWN_END
            return 0
        if pid:
            self._how_ended = how_it_ended(status)
        return status

    def _end_if_stuck(self) -> None:
        """End a child that hangs in a call, does nothing any more, or has closed its socket.

        Raises `ChildEnded` if it was ended.
        """
        now_ms = self._clock_ms()
        progress = self._memory.progress
        if progress != self._last_progress:
            self._last_progress = progress
            self._last_progress_ms = now_ms
        unchanged_ms = now_ms - self._last_progress_ms
        is_in_execute = progress.phase is Phase.EXECUTE
        has_limit = self._call_limit_ms > 0
        is_overdue = is_in_execute and has_limit and unchanged_ms >= self._call_limit_ms
        is_quiet = not is_in_execute and unchanged_ms >= QUIET_MS
        is_closed = self._closed_ms is not None and now_ms - self._closed_ms >= CLOSED_MS
        if not (is_overdue or is_quiet or is_closed):
            return
        was_killed = self._kill()
        if not was_killed:
            return  # it ended by itself just before, which the next look finds
        if is_overdue:
            # the call may have returned between the look above and the kill
            has_hung = self._memory.progress == progress
            raise ChildEnded("SIGKILL", Why.HUNG if has_hung else Why.SPARED)
        if is_quiet:
            raise ChildEnded(f"did nothing for {QUIET_MS // 1_000} s", Why.QUIET)
        raise ChildEnded("closed its socket")

    def _kill(self) -> bool:
        """Kill the child, and wait for its end; return whether the kill was its end.

        False: it had ended by itself just before. That is seen late of a child that dumps core.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        status = self._wait_for_end(options=0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def how_it_ended(status: int) -> str:
    """Return how a process ended, as a text for messages, by the status of `os.waitpid`."""
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
    """Fork a child that runs `serve`; return its process id and the parent's socket.

    That end does not block. The child never returns from here.
    """
    parent_end, child_end = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        # Otherwise the child would write again what is buffered. Bolts may have closed the stream,
        # or put something else in its place
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
        _tie_to_parent(parent_pid)
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


def _tie_to_parent(parent_pid: int) -> None:
    """Have the kernel end this process with its parent, and first where memory runs out.

    Also have it write its Python traces to standard error if it crashes.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before the call above
        os._exit(1)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST, encoding="ascii")
    faulthandler.enable(file=_STDERR_FD)
