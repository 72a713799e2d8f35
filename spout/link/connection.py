"""A connection between driver and planning process: a Unix socket, a greeting, frames of bytes.

The driver listens on a socket in the folder of its application. A planning process, which Spark
starts on the same machine, connects to it:

1. Planning process to driver: the version of the link, and a nonce.
2. Driver to planning process: the version, a nonce of its own, and a proof that it knows the key.
3. Planning process to driver: the same proof of its own, and who it is.
4. Messages, in both directions, until one of them closes the socket, or ends: the kernel closes it then.

A frame is a length of 4 bytes and so many bytes of JSON; nothing is unpickled. The key is drawn
by the driver and travels as the settings of Kafka do, inside the data source's class. Both ends
have to know it: a folder below /tmp that a cleaner has removed may be made again by somebody
else. HMAC with SHA-256, and not that of `multiprocessing.connection`, which is MD5 up to Python
3.11 and refused by a machine in FIPS mode; nor that module's frames, in which only the first
byte of a message has a deadline.

Every wait has a limit: for the greeting, for a frame that the other end does not take, and for
a lock.
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
"""A process that has not sent its whole greeting after this time is dropped."""

SEND_MS_MAX: Final = 5_000
"""A process that takes nothing of a frame for this time is dropped; it connects again, and gets the
state."""

BACKLOG: Final = 64

DESCRIPTORS: Final = Path("/proc/self/fd")
"""Where Linux shows the open descriptors: the way to a short path of a folder with a long one."""

# not on every system; Python ignores the signal all the same, unless a program wants it
_NO_SIGNAL: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)

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
        """`version` is what the other end has sent as its version."""
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
        """Begin without a byte."""
        self.bytes_max = bytes_max
        self._unread = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self._unread += data

    def next_frame(self) -> bytes | None:
        """Return the next frame; None: it is not whole yet.

        Raises `ConnectionError`: it is longer than `bytes_max`.
        """
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

    def __init__(self, open_socket: socket.socket) -> None:
        """Take over an open socket; until `allow_messages` no frame is longer than a greeting."""
        open_socket.setblocking(False)
        self._socket = open_socket
        self._frames = Frames()
        self._send_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._is_broken = False  # what arrived could not be handled

    def send(self, make_frame: Callable[[], bytes]) -> None:
        """Send the frame that `make_frame` returns; nothing if that is empty.

        One thread sends at a time. The frame is made in its turn, so that of several threads the
        last one sends the newest state.

        Raises `OSError`: the other end has gone, or takes nothing; the connection is over then.
        """
        if not self._send_lock.acquire(timeout=2 * SEND_MS_MAX / 1000):
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
            self._send_lock.release()

    def _send_all(self, unsent: memoryview) -> None:
        """Send all bytes; `TimeoutError` if the other end takes none of them for `SEND_MS_MAX`."""
        while unsent:
            try:
                sent_bytes = self._socket.send(unsent, _NO_SIGNAL)
                unsent = unsent[sent_bytes:]
            except BlockingIOError:
                if not _is_ready(self._socket, select.POLLOUT, SEND_MS_MAX):
                    raise TimeoutError(f"the other end took nothing for {SEND_MS_MAX} ms") from None

    def wait(self, wait_ms: int) -> bool:
        """Wait until something arrives, or the other end has gone.

        False: neither within `wait_ms`.
        """
        return _is_ready(self._socket, select.POLLIN, wait_ms)

    def handle_arrived(self, handle: Callable[[bytes], None]) -> None:
        """Call `handle` with each frame that has arrived, in their order, one thread at a time.

        When it returns, every frame is handled that was sent before the call. When it raises
        anything but `TimeoutError`, the connection is over, and the next call raises `EOFError`.

        Raises:
            EOFError: the other end has closed the connection, or ended.
            OSError: it sends what is no frame, or the connection is over.
            TimeoutError: another thread is handling frames, and has not come to an end.
            ValueError: `handle` refuses a frame.
        """
        if not self._read_lock.acquire(timeout=SEND_MS_MAX / 1000):
            raise TimeoutError("another thread takes what has arrived, and does not come to an end")
        try:
            if self._is_broken:
                raise EOFError("what came by it before was no message")
            self._read_and_handle(handle)
        except BaseException:
            self._is_broken = True
            self.end()
            raise
        finally:
            self._read_lock.release()

    def _read_and_handle(self, handle: Callable[[bytes], None]) -> None:
        """Read until nothing more has arrived, and handle each frame.

        Raises `EOFError`: the other end has closed, which is handled behind its last frame.
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

    def next_greeting(self, deadline_s: float) -> bytes:
        """Return the next frame of a greeting; wait for it until `deadline_s`, by `time.monotonic`.

        Raises `OSError` or `EOFError`: none came until then, or the other end has gone.
        """
        while (frame := self._frames.next_frame()) is None:
            left_ms = int((deadline_s - time.monotonic()) * 1000)
            if left_ms <= 0 or not self.wait(left_ms):
                raise TimeoutError("the other end has not said its greeting in time")
            # byte by byte, so that nothing behind the frame is read: a message may follow, which
            # may be longer than a greeting
            with suppress(BlockingIOError):
                data = self._socket.recv(1)
                if not data:
                    raise EOFError("the other end has closed the connection")
                self._frames.feed(data)
        return frame

    def allow_messages(self) -> None:
        """Allow frames of `MESSAGE_BYTES_MAX` from now on; call it when both ends have greeted."""
        self._frames.bytes_max = MESSAGE_BYTES_MAX

    def end(self) -> None:
        """End the connection at both ends; a thread that waits for it wakes up, and sees that."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, and close its descriptor.

        The thread that reads from it calls this last.
        """
        self.end()
        # A thread that sends or reads sees the end now, and is waited for, at most `SEND_MS_MAX`
        # each:
        # once the descriptor is closed, its number may be another file's.
        locks = (self._send_lock, self._read_lock)
        acquired_locks = [lock for lock in locks if lock.acquire(timeout=SEND_MS_MAX / 1000)]
        _close(self._socket)
        for lock in acquired_locks:
            lock.release()


def _is_ready(open_socket: socket.socket, event: int, wait_ms: int) -> bool:
    """Wait at most `wait_ms`; return whether a socket is ready to read or write.

    `event` is one of poll(): POLLIN or POLLOUT. Raises `ConnectionResetError`: it is closed.
    """
    if open_socket.fileno() < 0:
        raise ConnectionResetError("the connection is closed")
    poll = select.poll()  # not select(), which takes no descriptor beyond the first 1,024 of a process
    poll.register(open_socket, event)
    return bool(poll.poll(wait_ms))


def greet_driver(connection: Connection, key: bytes, hello: bytes) -> None:
    """Greet the driver, and say in `hello` who this is; then messages may follow.

    Each end proves that it knows the key by a digest of both nonces, so that no proof can be used
    a second time. The steps are those at the head of this module.

    Raises `OtherVersion`, or `OSError`, `EOFError` or `ValueError`: nobody greets back who
    knows the key.
    """
    deadline_s = time.monotonic() + GREETING_MS_MAX / 1000
    # step 1: version and nonce
    nonce = secrets.token_hex(_NONCE_BYTES)
    connection.send(lambda: _greeting(version=LINK_VERSION, nonce=nonce))
    # step 2: the driver's version, nonce and proof
    answer = _greeting_of(connection.next_greeting(deadline_s))
    if answer.get("version") != LINK_VERSION:
        raise OtherVersion(answer.get("version"))
    both_nonces = nonce + _text_of(answer, "nonce")
    if not hmac.compare_digest(_text_of(answer, "proof"), _proof(key, "driver", both_nonces)):
        raise ConnectionRefusedError("who listens on the driver's socket does not know its key")
    # step 3: our own proof, and who this is
    proof = _proof(key, "planner", both_nonces)
    connection.send(lambda: _greeting(proof=proof, hello=hello.decode()))
    connection.allow_messages()


def greet_planner(connection: Connection, key: bytes) -> bytes:
    """Greet the planning process that has connected to the driver; return its `hello`.

    The steps are those at the head of this module. Raises `OtherVersion`, or `OSError`,
    `EOFError` or `ValueError`: it does not know the key.
    """
    deadline_s = time.monotonic() + GREETING_MS_MAX / 1000
    # step 1: its version and nonce
    greeting = _greeting_of(connection.next_greeting(deadline_s))
    if greeting.get("version") != LINK_VERSION:
        connection.send(lambda: _greeting(version=LINK_VERSION))
        raise OtherVersion(greeting.get("version"))
    # step 2: the driver's version, nonce and proof
    nonce = secrets.token_hex(_NONCE_BYTES)
    both_nonces = _text_of(greeting, "nonce") + nonce
    proof = _proof(key, "driver", both_nonces)
    connection.send(lambda: _greeting(version=LINK_VERSION, nonce=nonce, proof=proof))
    # step 3: its proof, and who it is
    answer = _greeting_of(connection.next_greeting(deadline_s))
    if not hmac.compare_digest(_text_of(answer, "proof"), _proof(key, "planner", both_nonces)):
        raise ConnectionRefusedError("who has connected does not know the driver's key")
    connection.allow_messages()
    return _text_of(answer, "hello").encode()


def _proof(key: bytes, who: str, nonces: str) -> str:
    """Return the proof that one end, `driver` or `planner`, knows the key."""
    # `who` is part of it, or a stranger could send the driver's own proof back to it
    return hmac.digest(key, f"{who} {nonces}".encode(), "sha256").hex()


def _greeting(**fields: str | int) -> bytes:
    """Return a greeting as the bytes of a frame."""
    return json.dumps(fields).encode()


def _greeting_of(frame: bytes) -> dict[str, object]:
    """Return the fields of a greeting; `ValueError`: the frame is none."""
    fields: object = json.loads(frame)
    if not isinstance(fields, dict):
        raise ValueError("this is no greeting")
    return fields


def _text_of(fields: dict[str, object], name: str) -> str:
    """Return a text that a greeting must have; `ValueError`: it has not."""
    text = fields.get(name)
    if not isinstance(text, str) or not text.isascii():
        raise ValueError(f"a greeting without {name}")
    return text


class ListeningSocket:
    """The driver's socket in a folder; a cleaner of temporary files may remove it.

    Raises `OSError`: it cannot be made there; `UsageError`: as `private_folder`.
    """

    def __init__(self, folder: str) -> None:
        """Make the socket in a folder, and listen."""
        self._path = Path(folder, SOCKET_NAME)
        self._socket = _new_socket()
        try:
            with private_folder(folder) as short_folder:
                # Bound under another name, and renamed when it listens: this replaces a socket that
                # somebody has left under the name.
                new_path = short_folder / f".{SOCKET_NAME}.{os.getpid()}"
                new_path.unlink(missing_ok=True)
                self._socket.bind(os.fspath(new_path))
                self._socket.listen(BACKLOG)
                new_path.rename(short_folder / SOCKET_NAME)
                self._inode = (short_folder / SOCKET_NAME).stat().st_ino
        except BaseException:
            self.close()
            raise

    @property
    def is_there(self) -> bool:
        """Whether the socket is still in the folder, where planning processes look for it."""
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
        with _FORK_LOCK:
            try:
                accepted_socket, _ = self._socket.accept()
            except BlockingIOError:  # whoever connected has gone again
                return None
            _SOCKETS[id(accepted_socket)] = accepted_socket
        return Connection(accepted_socket)

    def close(self) -> None:
        """Stop listening; the file in the folder stays."""
        _close(self._socket)


def connect(folder: str) -> Connection:
    """Connect to the driver that listens in a folder.

    Raises `OSError`: nobody listens there; `UsageError`: as `private_folder`.
    """
    new_socket = _new_socket()
    try:
        with private_folder(folder) as short_folder:
            new_socket.connect(os.fspath(short_folder / SOCKET_NAME))
    except BaseException:
        _close(new_socket)
        raise
    return Connection(new_socket)


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
        # a path by the descriptor leads to this folder, whoever renames a folder above it
        short_folder = DESCRIPTORS / str(descriptor)
        # not `Path.is_dir`, which raises before Python 3.14 where it may not look
        yield short_folder if os.path.isdir(short_folder) else Path(folder)
    except OSError as error:
        if error.errno is None and "path too long" in str(error):
            raise UsageError(
                f"{folder} is too long a path for a Unix socket: set TMPDIR to a shorter one"
            ) from error
        raise
    finally:
        os.close(descriptor)


_SOCKETS: Final[dict[int, socket.socket]] = {}
"""All open sockets of this process, by the object's id. A child that is forked closes its copies,
and shuts nothing down."""

_FORK_LOCK = threading.RLock()
"""Held from when a socket is made until it is in `_SOCKETS`: no fork comes between. Nobody waits
while he holds it."""


def _new_socket() -> socket.socket:
    """Return a new Unix socket, which a child that is forked will close."""
    with _FORK_LOCK:
        new_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        new_socket.setblocking(False)
        _SOCKETS[id(new_socket)] = new_socket
    return new_socket


def _close(open_socket: socket.socket) -> None:
    """Close a socket, and forget it."""
    with _FORK_LOCK:
        _SOCKETS.pop(id(open_socket), None)
        open_socket.close()


def _leave_to_the_parent() -> None:
    """Close the child's copies of all sockets; called in a child that was forked."""
    for open_socket in _SOCKETS.values():
        open_socket.close()
    _SOCKETS.clear()
    _FORK_LOCK.release()


os.register_at_fork(
    before=_FORK_LOCK.acquire,
    after_in_parent=_FORK_LOCK.release,
    after_in_child=_leave_to_the_parent,
)
