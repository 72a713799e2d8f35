"""One connection between the driver and a planning process: a Unix socket, a greeting, frames of bytes.

The driver listens on a socket in the folder of its application. A planning process, which Spark starts on the
same machine, connects to it:

1. Planning process to driver: the version of the link, and a nonce.
2. Driver to planning process: the version, a nonce of its own, and a proof that it knows the key.
3. Planning process to driver: the same proof of its own, and who it is.
4. Messages, in both directions, until one of them closes the socket, or ends: the kernel closes it then.

A frame is a length of 4 bytes and so many bytes of JSON; nothing is unpickled. The key is drawn by the driver
and travels as the settings of Kafka do, inside the data source's class. Both ends have to know it: a
folder below /tmp that a cleaner has removed may be made again by somebody else. HMAC with SHA-256, and not
that of `multiprocessing.connection`, which is MD5 up to Python 3.11 and refused by a machine in FIPS mode;
nor that module's frames, in which only the first byte of a message has a deadline.

Every wait has a limit: for the greeting, for a frame that the other end does not take, and for a lock.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acker.errors import UsageError

LINK_VERSION: Final = 4
"""Both ends have to speak the same; it rises with each change of greeting or messages."""

SOCKET_NAME: Final = "driver"
"""The socket's file in the folder of the application."""

GREETING_BYTES_MAX: Final = 512
"""The longest frame that is taken of somebody who has not shown yet that he knows the key."""

MESSAGE_BYTES_MAX: Final = 16 << 20
"""The longest frame that is taken at all. The longest message has some 9 MB: it names 100,000 roots
(`spout.publishing.publish.NOT_ACKED_MAX`). What is longer takes longer to read than others wait."""

GREETING_MS_MAX: Final = 10_000
"""Who has not said all of his greeting after this time is dropped."""

SEND_MS_MAX: Final = 5_000
"""Who takes nothing of a frame for so long is dropped; he connects again, and hears what holds."""

BACKLOG: Final = 64

DESCRIPTORS: Final = Path("/proc/self/fd")
"""Where Linux shows the open descriptors: the way to a short path of a folder with a long one."""

_READ_BYTES: Final = 1 << 18
_NONCE_BYTES: Final = 32
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the driver listens, and the key that both ends know."""

    folder: str
    key: bytes = field(repr=False)


class OtherVersion(ConnectionError):
    """The other end speaks another version of the link."""

    def __init__(self, version: object) -> None:
        super().__init__(
            f"it speaks version {version!r} of the link, and this process version {LINK_VERSION}"
        )
        self.version = version


class Frames:
    """Cuts a stream of bytes into frames; pure.

    Attributes:
        bytes_max: no longer frame is taken.
    """

    def __init__(self, bytes_max: int = GREETING_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._unread = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self._unread += data

    def next_frame(self) -> bytes | None:
        """Return the next frame; None: it is not whole yet. Raises `ConnectionError`: it is too long."""
        if len(self._unread) < _LENGTH.size:
            return None
        length = _LENGTH.unpack_from(self._unread)[0]
        if length > self.bytes_max:
            raise ConnectionAbortedError(f"a frame of {length} bytes is longer than {self.bytes_max}")
        end = _LENGTH.size + length
        if len(self._unread) < end:
            return None
        frame = bytes(self._unread[_LENGTH.size : end])
        del self._unread[:end]
        return frame


class Connection:
    """One end of a connection; any thread may send, and any may take what has arrived."""

    def __init__(self, end: socket.socket) -> None:
        """Take over an open socket; frames may be no longer than a greeting's yet."""
        end.setblocking(False)
        self._socket = end
        self._frames = Frames()
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._is_broken = False  # what arrived could not be handled

    def send(self, make_frame: Callable[[], bytes]) -> None:
        """Send a frame, made when its turn comes, so that the last one that is sent is the newest.

        An empty one is not sent: there is nothing to say any more.

        Raises `OSError`: the other end has gone, or takes nothing; the connection is over then.
        """
        if not self._sending.acquire(timeout=2 * SEND_MS_MAX / 1000):
            self.end()  # or the connection would go on without what was to be said now
            raise TimeoutError("another thread is sending, and the other end takes nothing")
        try:
            frame = make_frame()
            if frame:
                self._send_all(memoryview(_LENGTH.pack(len(frame)) + frame))
        except OSError:
            self.end()
            raise
        finally:
            self._sending.release()

    def _send_all(self, unsent: memoryview) -> None:
        """Send all bytes; `TimeoutError` if the other end takes none of them for `SEND_MS_MAX`."""
        while unsent:
            try:
                unsent = unsent[self._socket.send(unsent, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                if not _is_ready(self._socket, select.POLLOUT, SEND_MS_MAX):
                    raise TimeoutError(f"the other end took nothing for {SEND_MS_MAX} ms") from None

    def wait(self, wait_ms: int) -> bool:
        """Wait until something arrives, or the other end has gone; False: neither within `wait_ms`."""
        return _is_ready(self._socket, select.POLLIN, wait_ms)

    def handle_arrived(self, handle: Callable[[bytes], None]) -> None:
        """Handle all frames that have arrived, in their order, one thread at a time.

        When it returns, every frame is handled that was sent before the call. When it raises, apart
        from `TimeoutError`, the connection is over, and whoever takes next hears that.

        Raises:
            EOFError: the other end has closed the connection, or ended.
            OSError: it sends what is no frame, or the connection is over.
            TimeoutError: another thread takes meanwhile, and has not come to an end.
            ValueError: `handle` refuses a frame.
        """
        if not self._reading.acquire(timeout=SEND_MS_MAX / 1000):
            raise TimeoutError("another thread takes what has arrived, and does not come to an end")
        try:
            if self._is_broken:
                raise EOFError("what came by it before was no message")
            self._handle_all(handle)
        except BaseException:
            self._is_broken = True
            self.end()
            raise
        finally:
            self._reading.release()

    def _handle_all(self, handle: Callable[[bytes], None]) -> None:
        """Read until nothing more has arrived; handle each frame.

        `EOFError`: the other end has closed.
        """
        is_open = True
        while is_open:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            is_open = bool(data)
            self._frames.feed(data)
            while (frame := self._frames.next_frame()) is not None:
                handle(frame)
        raise EOFError("the other end has closed the connection")

    def next_greeting(self, deadline: float) -> bytes:
        """Return the next frame of a greeting; wait for it until `deadline`, by `time.monotonic`.

        Raises `OSError` or `EOFError`: there is none until then. It reads no byte behind the frame, since a
        message may follow that is longer than a greeting may be.
        """
        while (frame := self._frames.next_frame()) is None:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not self.wait(left_ms):
                raise TimeoutError("the other end has not said its greeting in time")
            with suppress(BlockingIOError):
                data = self._socket.recv(1)
                if not data:
                    raise EOFError("the other end has closed the connection")
                self._frames.feed(data)
        return frame

    def allow_messages(self) -> None:
        """Take longer frames from now on."""
        self._frames.bytes_max = MESSAGE_BYTES_MAX

    def end(self) -> None:
        """End the connection at both ends; whoever waits for it, in whatever thread, sees that."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, and give its descriptor back; the thread that waits for it calls this last."""
        self.end()
        # who sends or takes now sees the end, and is done before the descriptor is another file's
        locks = (self._sending, self._reading)
        held_locks = [lock for lock in locks if lock.acquire(timeout=SEND_MS_MAX / 1000)]
        _close(self._socket)
        for lock in held_locks:
            lock.release()


def _is_ready(end: socket.socket, event: int, wait_ms: int) -> bool:
    """Wait at most `wait_ms`; return whether a socket is ready to read or write.

    `event` is one of poll().
    """
    if end.fileno() < 0:
        raise ConnectionResetError("the connection is closed")
    poll = select.poll()  # not select(), which takes no descriptor beyond the first 1,024 of a process
    poll.register(end, event)
    return bool(poll.poll(wait_ms))


def greet_driver(connection: Connection, key: bytes, hello: bytes) -> None:
    """Greet the driver, and say in `hello` who this is; then messages may follow.

    Each end proves that it knows the key by a digest of both nonces, so that none can be sent twice.

    Raises `OtherVersion`, or `OSError`, `EOFError` or `ValueError`: nobody greets back who knows the key.
    """
    deadline = time.monotonic() + GREETING_MS_MAX / 1000
    nonce = secrets.token_hex(_NONCE_BYTES)
    connection.send(lambda: _greeting(version=LINK_VERSION, nonce=nonce))
    answer = _greeting_of(connection.next_greeting(deadline))
    if answer.get("version") != LINK_VERSION:
        raise OtherVersion(answer.get("version"))
    both_nonces = nonce + _text_of(answer, "nonce")
    if not hmac.compare_digest(_text_of(answer, "proof"), _proof(key, "driver", both_nonces)):
        raise ConnectionRefusedError("who listens on the driver's socket does not know its key")
    proof = _proof(key, "planner", both_nonces)
    connection.send(lambda: _greeting(proof=proof, hello=hello.decode()))
    connection.allow_messages()


def greet_planner(connection: Connection, key: bytes) -> bytes:
    """Greet who has connected to the driver; return its `hello`.

    Raises `OtherVersion`, or `OSError`, `EOFError` or `ValueError`: it does not know the key.
    """
    deadline = time.monotonic() + GREETING_MS_MAX / 1000
    greeting = _greeting_of(connection.next_greeting(deadline))
    if greeting.get("version") != LINK_VERSION:
        connection.send(lambda: _greeting(version=LINK_VERSION))
        raise OtherVersion(greeting.get("version"))
    nonce = secrets.token_hex(_NONCE_BYTES)
    both_nonces = _text_of(greeting, "nonce") + nonce
    proof = _proof(key, "driver", both_nonces)
    connection.send(lambda: _greeting(version=LINK_VERSION, nonce=nonce, proof=proof))
    answer = _greeting_of(connection.next_greeting(deadline))
    if not hmac.compare_digest(_text_of(answer, "proof"), _proof(key, "planner", both_nonces)):
        raise ConnectionRefusedError("who has connected does not know the driver's key")
    connection.allow_messages()
    return _text_of(answer, "hello").encode()


def _proof(key: bytes, end: str, nonces: str) -> str:
    # the end is in it, or a stranger could send the driver's own proof back to it
    return hmac.digest(key, f"{end} {nonces}".encode(), "sha256").hex()


def _greeting(**fields: str | int) -> bytes:
    return json.dumps(fields).encode()


def _greeting_of(frame: bytes) -> dict[str, object]:
    fields: object = json.loads(frame)
    if not isinstance(fields, dict):
        raise ValueError("this is no greeting")
    return fields


def _text_of(fields: dict[str, object], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str) or not text.isascii():
        raise ValueError(f"a greeting without {name}")
    return text


class ListeningSocket:
    """The driver's socket in a folder; a cleaner of temporary files may remove it.

    Raises `OSError`: it cannot be made there; `UsageError`: as `private_folder`.
    """

    def __init__(self, folder: str) -> None:
        self._path = Path(folder, SOCKET_NAME)
        self._socket = _new_socket()
        try:
            with private_folder(folder) as short:
                # renamed when it listens: what somebody has left under the name makes way
                beside = short / f".{SOCKET_NAME}.{os.getpid()}"
                beside.unlink(missing_ok=True)
                self._socket.bind(os.fspath(beside))
                self._socket.listen(BACKLOG)
                beside.rename(short / SOCKET_NAME)
                self._inode = (short / SOCKET_NAME).stat().st_ino
        except BaseException:
            self.close()
            raise

    @property
    def is_there(self) -> bool:
        """Whether a planning process finds it."""
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def accept(self, wait_ms: int) -> Connection | None:
        """Return the next connection; None: nobody has connected within `wait_ms`.

        Raises `OSError`: this process has no descriptor left.
        """
        if not _is_ready(self._socket, select.POLLIN, wait_ms):
            return None
        with _FORKS:
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:  # it has gone again
                return None
            _SOCKETS[id(accepted)] = accepted
        return Connection(accepted)

    def close(self) -> None:
        _close(self._socket)


def connect(folder: str) -> Connection:
    """Connect to the driver that listens in a folder.

    Raises `OSError`: none does; `UsageError`: as `private_folder`.
    """
    end = _new_socket()
    try:
        with private_folder(folder) as short:
            end.connect(os.fspath(short / SOCKET_NAME))
    except BaseException:
        _close(end)
        raise
    return Connection(end)


@contextmanager
def private_folder(folder: str) -> Iterator[Path]:
    """Open a folder, and yield a path of it that is short enough for a socket, at most 107 bytes.

    Raises `UsageError`: it is another user's, or others may enter it; or there is no short path.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise UsageError(
                f"{folder}, by which driver and planning process find each other, belongs to user"
                f" {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}, and has to be user"
                f" {os.geteuid()}'s with 0700: remove it and start the driver again, with a TMPDIR in which"
                " nobody else writes"
            )
        # it stays this folder, whoever renames what above it
        short = DESCRIPTORS / str(descriptor)
        # not `Path.is_dir`, which raises before Python 3.14 where it may not look
        yield short if os.path.isdir(short) else Path(folder)
    except OSError as error:
        if error.errno is None and "path too long" in str(error):
            raise UsageError(
                f"{folder} is too long a path for a Unix socket: set TMPDIR to a shorter one"
            ) from error
        raise
    finally:
        os.close(descriptor)


_SOCKETS: Final[dict[int, socket.socket]] = {}
"""All open sockets of this process. A child that is forked closes its copies, and shuts nothing down."""

_FORKS = threading.RLock()
"""Held where a socket is made, so that no fork comes before it is noted. Nobody waits while he holds it."""


def _new_socket() -> socket.socket:
    with _FORKS:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.setblocking(False)
        _SOCKETS[id(end)] = end
    return end


def _close(end: socket.socket) -> None:
    with _FORKS:
        _SOCKETS.pop(id(end), None)
        end.close()


def _leave_to_the_parent() -> None:
    for end in _SOCKETS.values():
        end.close()
    _SOCKETS.clear()
    _FORKS.release()


os.register_at_fork(
    before=_FORKS.acquire, after_in_parent=_FORKS.release, after_in_child=_leave_to_the_parent
)
