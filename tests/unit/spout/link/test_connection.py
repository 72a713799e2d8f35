"""Who may connect, and what a connection does where other end, folder or machine is not as it should be."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import Unreachable, UsageError
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.link import connection as transport
from spout.link import driver_link, driver_socket
from spout.link.connection import (
    GREETING_BYTES_MAX,
    LINK_VERSION,
    SOCKET_NAME,
    Connection,
    DriverAddress,
    Frames,
    ListeningSocket,
    connect,
    greet_planner,
)
from spout.link.driver_link import DriverLink
from spout.link.messages import (
    BatchPublished,
    DriverState,
    Hello,
    Message,
    PlannerState,
    Published,
    from_frame,
    to_frame,
)
from spout.planning.order import NotAcked
from tests.support.linked import LinkedDriver, NewThreads, batch_plan, linked_driver
from tests.support.waiting import Watch, eventually

RANGES = (SourceRun(65_536, 0, 10),)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[LinkedDriver]:
    """A driver that listens in a folder."""
    with linked_driver(tmp_path) as driver:
        yield driver


def frame_of(body: bytes) -> bytes:
    """Put the length before a frame."""
    return struct.pack("!I", len(body)) + body


def stranger(folder: Path) -> socket.socket:
    """Connect to the driver's socket as anybody can who may enter the folder."""
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(60)
    end.connect(os.fspath(folder / SOCKET_NAME))
    return end


def read_to_end(end: socket.socket) -> bytes:
    """Return what comes until the other end closes, within the socket's timeout."""
    parts = []
    try:
        while part := end.recv(65_536):
            parts.append(part)
    except ConnectionResetError:  # it closes without having read all
        pass
    return b"".join(parts)


# -- frames and messages


@given(st.lists(st.binary(max_size=50)), st.integers(1, 7))
def test_frames_are_cut_as_they_were_put_together_however_they_arrive(bodies: list[bytes], step: int) -> None:
    frames, stream, cut = Frames(50), b"".join(map(frame_of, bodies)), []
    for start in range(0, len(stream), step):
        frames.feed(stream[start : start + step])
        while (body := frames.next_frame()) is not None:
            cut.append(body)
    assert cut == bodies


@pytest.mark.parametrize("length", [51, (1 << 32) - 1])
def test_a_frame_that_is_too_long_is_refused_by_its_length_alone(length: int) -> None:
    frames = Frames(50)
    frames.feed(struct.pack("!I", length))
    with pytest.raises(ConnectionAbortedError, match="longer than 50"):
        frames.next_frame()


MESSAGES: list[Message] = [
    DriverState(),
    DriverState("broken", True, True, 3, 8, True, True, True, 7, "locked", "OneTimeTrigger", 2),
    PlannerState(),
    PlannerState(True, 3, "s/65536@0", 5, True, 2),
    Hello("stream", "p"),
    BatchPublished("s", "s/65536@0", Published(None)),
    BatchPublished("s", "s/65536@0", Published((NotAcked(1, 2, None, -1),), (), (SourceRun(1, 2, 3),))),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert from_frame(to_frame(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_with_a_field_more_less_or_of_another_kind_is_none(message: Message) -> None:
    fields = json.loads(to_frame(message))
    bent: list[object] = [{**fields, "more": 1}, [fields], None, 7]
    for name in fields:
        bent.append({key: value for key, value in fields.items() if key != name})
        bent.append({**fields, name: {}})
    for values in bent:
        with pytest.raises(ValueError, match=r"\w"):
            from_frame(json.dumps(values).encode())


@given(st.binary(max_size=200))
def test_what_is_no_message_is_refused_and_nothing_else_happens(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_frame(garbage)


def test_a_message_that_is_nested_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="nested"):
        from_frame(b"[" * 200_000)


def test_of_a_batch_with_more_roots_than_a_message_may_name_it_is_unknown_which() -> None:
    """The query goes on: of a batch that nobody can tell more of, too, these are unknown."""
    rows = tuple(NotAcked(65_536, position, None, -1) for position in range(1_000))
    message = BatchPublished("s", "s/65536@0", Published(rows, (), RANGES))
    assert from_frame(to_frame(message, 1_000)) == BatchPublished("s", "s/65536@0", Published(None, (), None))


def test_what_is_damaged_is_said_also_where_a_message_may_not_name_all_of_it() -> None:
    """Else the connection would end by it, and the next one, and no error would name the record."""
    damaged = tuple(DamagedRun("t", 0, offset, offset + 1, "bent") for offset in range(1_000))
    message = BatchPublished("s", "s/65536@0", Published((), damaged, RANGES))
    frame = to_frame(message, 1_000)
    read = from_frame(frame)
    assert len(frame) <= 1_000
    assert isinstance(read, BatchPublished)
    assert len(read.published.damaged) > 1
    assert read == BatchPublished(
        "s", "s/65536@0", Published(None, damaged[: len(read.published.damaged)], None)
    )
    one = BatchPublished("s", "s/65536@0", Published((), damaged[:1], None))
    assert from_frame(to_frame(one, 1)) == BatchPublished(
        "s", "s/65536@0", Published(None, damaged[:1], None)
    )


# -- strangers


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!Q", 10 << 30) + b"x" * 100,
        struct.pack("!I", (1 << 32) - 1) + b"x" * 100,
        frame_of(b"[" * 500),
        frame_of(b"[]"),
        frame_of(b"\xff\xfe"),
        frame_of(b'{"version": 1}'),
        frame_of(json.dumps({"version": LINK_VERSION, "nonce": "\u00e9"}).encode()),
        frame_of(json.dumps({"version": LINK_VERSION, "nonce": "0"}).encode())
        + frame_of(
            json.dumps({"proof": "0" * 64, "hello": to_frame(Hello("stream", "odd")).decode()}).encode()
        ),
    ],
    ids=[
        "nothing",
        "a byte",
        "http",
        "10 GB",
        "4 GB",
        "nested",
        "list",
        "no utf-8",
        "no nonce",
        "odd",
        "no key",
    ],
)
def test_a_stranger_is_dropped_in_time_and_changes_nothing(
    driver: LinkedDriver, said: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D304: whoever may enter the folder and does not know the key, whatever he says or does not say."""
    monkeypatch.setattr(transport, "GREETING_MS_MAX", 300)
    planner = driver.planner()
    with stranger(driver.folder) as end:
        end.settimeout(20)
        end.sendall(said)
        read_to_end(end)
    eventually(lambda: "stranger_dropped" in caplog.text)
    driver.link.deactivate()
    planner.catch_up()
    assert planner.is_inactive
    assert planner.is_connected


def test_a_stranger_who_says_a_byte_now_and_then_has_no_longer_than_others(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D304: the time is for the whole greeting."""
    monkeypatch.setattr(transport, "GREETING_MS_MAX", 500)
    pause, began = threading.Event(), time.monotonic()
    with stranger(driver.folder) as end, pytest.raises(OSError, match=r"."):  # noqa: PT012 - it says on
        end.sendall(struct.pack("!I", GREETING_BYTES_MAX))
        while time.monotonic() - began < 60:
            end.sendall(b"x")
            pause.wait(0.05)
    # to its end the greeting would have taken 25 s
    assert time.monotonic() - began < 15


def test_many_strangers_keep_no_planning_process_out(driver: LinkedDriver) -> None:
    """D304: they say nothing, all at once."""
    driver.link.deactivate()
    ends = [stranger(driver.folder) for _ in range(30)]
    assert driver.planner().is_inactive
    for end in ends:
        end.close()


def test_a_planning_process_of_no_stream_is_dropped(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    planner = DriverLink(driver.address, Hello("unknown", "p"), "g")
    planner.start()
    eventually(lambda: "there is no such stream" in caplog.text)
    planner.close()
    eventually(lambda: len(driver.threads()) == 1)


def test_who_listens_in_the_driver_s_place_and_does_not_know_its_key_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D304: a folder that a cleaner has removed may be made again by somebody else."""
    with linked_driver(tmp_path) as false_driver:
        false_driver.link.deactivate()
        address = DriverAddress(os.fspath(tmp_path), b"another key")
        planner = DriverLink(address, Hello("stream", "p"), "g")
        planner.start()
        try:
            eventually(lambda: "does not know its key" in planner._why_not_connected, 20)
            monkeypatch.setattr(driver_link, "CONNECT_MS_MAX", 1)
            with pytest.raises(Unreachable, match="does not know its key"):
                planner.wait_for_state()
            assert not planner.is_inactive
        finally:
            planner.close()


def test_a_driver_that_answers_nothing_ends_the_query_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D305: it hangs, and its kernel takes connections for it."""
    monkeypatch.setattr(transport, "GREETING_MS_MAX", 200)
    threads = NewThreads()
    listener = ListeningSocket(os.fspath(tmp_path))
    planner = DriverLink(DriverAddress(os.fspath(tmp_path), b"key"), Hello("stream", "p"), "g")
    planner.start()
    eventually(lambda: "not said its greeting" in planner._why_not_connected)
    monkeypatch.setattr(driver_link, "CONNECT_MS_MAX", 1)
    with pytest.raises(Unreachable, match=r"not said its greeting in time\); no batch is planned before"):
        planner.wait_for_state()
    planner.close()
    listener.close()
    eventually(lambda: not threads())


def test_a_planning_process_that_says_what_is_no_message_is_dropped(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    """D304: one that knows the key, too."""
    for garbage in (b"garbage", to_frame(DriverState())):
        end = connect(os.fspath(driver.folder))
        transport.greet_driver(end, driver.address.key, to_frame(Hello("stream", "odd")))
        end.send(lambda frame=garbage: frame)  # type: ignore[misc]
        eventually(lambda: "planning_process_dropped stream=stream" in caplog.text)
        caplog.clear()
        end.close()
    assert not driver.planner().is_inactive


# -- versions


def test_a_planning_process_of_another_version_is_told_so_by_the_driver(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    """D307: the driver answers with its own version, and drops it."""
    with stranger(driver.folder) as end:
        end.sendall(frame_of(json.dumps({"version": 99, "other": "x"}).encode()))
        answer = read_to_end(end)
    assert json.loads(answer[4:]) == {"version": LINK_VERSION}
    eventually(
        lambda: f"speaks version 99 of the link, and this process version {LINK_VERSION}" in caplog.text
    )


def test_a_driver_of_another_version_ends_the_query_with_both_and_the_cure(tmp_path: Path) -> None:
    """D307: at once, since it will not change."""
    listener = ListeningSocket(os.fspath(tmp_path))

    def answer() -> None:
        other = listener.accept(60_000)
        assert other is not None
        other.next_greeting(time.monotonic() + 60)
        other.send(lambda: json.dumps({"version": 99}).encode())
        other.close()

    answering = threading.Thread(target=answer)
    answering.start()
    planner = DriverLink(DriverAddress(os.fspath(tmp_path), b"key"), Hello("stream", "p"), "g")
    planner.start()
    with pytest.raises(
        UsageError, match=rf"version 99 of the link.*version {LINK_VERSION}: install one version of Windhover"
    ):
        planner.wait_for_state()
    answering.join(60)
    listener.close()


# -- folders


def test_a_folder_with_a_long_path_has_a_socket_all_the_same(tmp_path: Path) -> None:
    """D308: a socket's path has at most 107 bytes; TMPDIR may be longer."""
    folder = tmp_path
    for _ in range(4):
        folder /= "x" * 60
        folder.mkdir(mode=0o700)
    with linked_driver(folder) as driver:
        driver.link.deactivate()
        assert driver.planner().is_inactive


def test_where_a_long_path_has_no_short_one_the_error_names_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D308: without /proc."""
    monkeypatch.setattr(transport, "DESCRIPTORS", tmp_path / "none")
    folder = tmp_path / ("x" * 120)
    folder.mkdir(mode=0o700)
    with pytest.raises(UsageError, match="too long a path for a Unix socket: set TMPDIR to a shorter one"):
        LinkedDriver(folder)
    with linked_driver(tmp_path) as driver:
        assert not driver.planner().is_inactive


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_refused_by_both_ends(tmp_path: Path, mode: int) -> None:
    """D304."""
    with linked_driver(tmp_path) as driver:
        tmp_path.chmod(mode)
        planner = DriverLink(driver.address, Hello("stream", "p"), "g")
        planner.start()
        with pytest.raises(UsageError, match=f"mode {mode:04o}, and has to be user .* with 0700: remove it"):
            planner.wait_for_state()
        with pytest.raises(UsageError, match=f"mode {mode:04o}"):
            ListeningSocket(os.fspath(tmp_path))
        tmp_path.chmod(0o700)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D304: somebody else has made it again, behind a cleaner."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to user"):
        connect(os.fspath(tmp_path))


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    with pytest.raises(OSError, match=r"."):
        connect(os.fspath(link))


# -- what a machine runs out of


def test_a_driver_without_descriptors_serves_again_when_it_has_some(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D308: it says so once, and does not spin."""
    tries: list[float] = []
    accept = ListeningSocket.accept

    def refuse(listener: ListeningSocket, wait_ms: int) -> Connection | None:
        if not driver.is_listening_in_this_thread():
            return accept(listener, wait_ms)
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ListeningSocket, "accept", refuse)
    eventually(lambda: len(tries) >= 5)
    monkeypatch.setattr(ListeningSocket, "accept", accept)
    assert tries[4] - tries[0] > 0.3
    driver.link.deactivate()
    assert driver.planner().is_inactive
    lines = [line for line in caplog.messages if line.startswith("planning_processes_cannot_connect")]
    assert lines == ["planning_processes_cannot_connect: OSError: [Errno 24] Too many open files"]


def test_where_no_thread_can_be_started_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D308: of the driver, of the planning process; neither leaves a descriptor."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with linked_driver(tmp_path) as driver:
        open_before = set(os.listdir("/dev/fd"))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            planner = DriverLink(driver.address, Hello("stream", "p"), "g")
            with pytest.raises(Unreachable, match=r"cannot start a thread .*ulimit -u, pids.max"):
                planner.start()
            with pytest.raises(UsageError, match=r"cannot start a thread .*ulimit -u, pids.max"):
                driver_socket.DriverSocket(os.fspath(tmp_path), driver.links.get, lambda: True).start()
        assert not set(os.listdir("/dev/fd")) - open_before


def test_a_connection_for_which_the_driver_has_no_thread_is_dropped_and_comes_again(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D308."""
    start, refused = threading.Thread.start, threading.Event()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "windhover-hears-planner" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    driver.link.deactivate()
    assert driver.planner().is_inactive
    assert refused.is_set()
    assert "planning_processes_cannot_connect: RuntimeError: can't start new thread" in caplog.text


def test_who_takes_nothing_is_dropped_and_told_all_when_he_comes_again(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D305: a planning process that stands still holds up no sink for longer than that."""
    monkeypatch.setattr(transport, "SEND_MS_MAX", 200)
    end = connect(os.fspath(driver.folder))
    transport.greet_driver(end, driver.address.key, to_frame(Hello("stream", "still")))
    rows = [NotAcked(65_536, position, None, -1) for position in range(100_000)]
    began = time.monotonic()
    driver.link.put_published(batch_plan("s", RANGES), rows)
    assert time.monotonic() - began < 30
    end.close()
    heard = driver.planner().published("s", RANGES)
    assert heard is not None
    assert heard.not_acked is not None
    assert len(heard.not_acked) == 100_000


def test_who_takes_a_message_slowly_misses_none_of_what_is_said_meanwhile(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D305: whoever may not wait until it is taken ends the connection, and does not go on without."""
    monkeypatch.setattr(transport, "SEND_MS_MAX", 500)
    end = connect(os.fspath(driver.folder))
    transport.greet_driver(end, driver.address.key, to_frame(Hello("stream", "slow")))
    eventually(lambda: driver.link._process_by_connection)
    rows = [NotAcked(65_536, position, None, -1) for position in range(400_000)]
    heard: list[Message] = []
    is_over, is_deactivated, pause = threading.Event(), threading.Event(), threading.Event()

    def take_slowly() -> None:
        while data := end._socket.recv(100_000):
            end._frames.feed(data)
            while (frame := end._frames.next_frame()) is not None:
                heard.append(from_frame(frame))
            if not is_deactivated.is_set():
                pause.wait(0.05)
        is_over.set()

    publishing = threading.Thread(target=driver.link.put_published, args=(batch_plan("s", RANGES), rows))
    end._socket.settimeout(60)
    taking = threading.Thread(target=take_slowly)
    publishing.start()
    eventually(next(iter(driver.link._process_by_connection))._send_lock.locked)
    taking.start()
    driver.link.deactivate()
    is_deactivated.set()
    eventually(lambda: is_over.is_set() or any(state_of(message).is_inactive for message in heard), 30)
    publishing.join(30)
    end.end()
    taking.join(30)
    end.close()


def state_of(message: Message) -> DriverState:
    """Return what a message says holds; nothing does where it says something else."""
    return message if isinstance(message, DriverState) else DriverState()


def test_a_descriptor_is_given_back_when_nobody_uses_it_any_more() -> None:
    """D308: it may be another file's in a moment, and a message would be written there."""
    one, two = socket.socketpair()
    with one, two:
        connection, sends, ends = Connection(one), threading.Event(), threading.Event()

        def make_frame() -> bytes:
            sends.set()
            assert ends.wait(30)
            return b"late"

        def send() -> None:
            with pytest.raises(OSError, match=r"."):
                connection.send(make_frame)

        sending = threading.Thread(target=send)
        closing = threading.Thread(target=connection.close)
        sending.start()
        assert sends.wait(30)
        closing.start()
        closing.join(0.2)
        was_open = one.fileno() >= 0
        ends.set()
        sending.join(30)
        closing.join(30)
        assert was_open
        assert one.fileno() < 0


def test_a_frame_that_is_refused_ends_the_connection_for_each_thread_that_takes() -> None:
    """D304: it may have been the callback's thread; and what comes behind it is not believed either."""
    one, two = socket.socketpair()
    with one, two:
        connection, handled = Connection(one), list[bytes]()

        def refuse(_: bytes) -> None:
            raise ValueError("no message")

        two.sendall(frame_of(b"bent") + frame_of(b"next"))
        with pytest.raises(ValueError, match="no message"):
            connection.handle_arrived(refuse)
        for _ in range(2):
            with pytest.raises(EOFError):
                connection.handle_arrived(handled.append)
        assert handled == []
        assert read_to_end(two) == b""


def test_threads_that_let_the_driver_listen_at_once_make_one_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D308: two listeners would take the name from each other as long as the application lives."""
    made: list[str] = []

    class SlowSocket(ListeningSocket):
        def __init__(self, folder: str) -> None:
            made.append(folder)
            threading.Event().wait(0.1)
            super().__init__(folder)

    monkeypatch.setattr(driver_socket, "ListeningSocket", SlowSocket)
    is_over = threading.Event()
    threads = NewThreads()
    driver = driver_socket.DriverSocket(os.fspath(tmp_path), {}.get, is_over.is_set)
    starting = [threading.Thread(target=driver.start) for _ in range(3)]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join(30)
    assert len(threads()) == 1
    is_over.set()
    eventually(lambda: not threads())
    assert len(made) == 1


@pytest.mark.parametrize(
    "lacks", [MemoryError(), OSError(errno.EMFILE, "none left"), RuntimeError("no thread")]
)
def test_a_driver_that_lacks_something_for_a_moment_listens_again(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, lacks: Exception
) -> None:
    """D308: its thread ends by none of it; without it no query of the application would start any more."""
    accept, is_refused = ListeningSocket.accept, threading.Event()

    def refuse_once(listener: ListeningSocket, wait_ms: int) -> Connection | None:
        if driver.is_listening_in_this_thread() and not is_refused.is_set():
            is_refused.set()
            raise lacks
        return accept(listener, wait_ms)

    monkeypatch.setattr(ListeningSocket, "accept", refuse_once)
    eventually(is_refused.is_set)
    assert not driver.planner().is_inactive


def test_nothing_is_left_of_connections_that_have_ended(driver: LinkedDriver) -> None:
    """D308: neither a thread nor a descriptor of either end, however often planning processes come and go."""

    def come_and_go() -> None:
        driver.planner().close()
        stranger(driver.folder).close()
        eventually(lambda: len(driver.threads()) == 1)

    come_and_go()
    open_before = len(os.listdir("/dev/fd"))
    for _ in range(10):
        come_and_go()
    eventually(lambda: len(os.listdir("/dev/fd")) <= open_before)
    driver.end()
    eventually(lambda: not driver.threads())
    assert len(os.listdir("/dev/fd")) < open_before


# -- processes that fork, or are killed

DRIVER = """
import os, sys, threading
from tests.support.linked import LinkedDriver
from pathlib import Path
driver = LinkedDriver(Path(sys.argv[1]))
driver.link.deactivate()
print(driver.address.key.hex(), flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    threading.Event().wait(120)
    os._exit(0)
print(child, flush=True)
threading.Event().wait(120)
"""


def test_a_driver_that_is_killed_is_seen_at_once_even_while_a_child_of_it_lives(tmp_path: Path) -> None:
    """D305: a child has copies of all descriptors; neither connection nor socket may stay open by them."""
    program, threads = [sys.executable, "-c", DRIVER, os.fspath(tmp_path)], NewThreads()
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        key = bytes.fromhex(process.stdout.readline())
        planner = DriverLink(DriverAddress(os.fspath(tmp_path), key), Hello("stream", "p"), "g")
        planner.start()
        planner.wait_for_state()
        process.stdin.write("\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        watch = Watch(child)
        process.kill()
        eventually(lambda: planner.has_gone, 10)
        assert planner.is_inactive, "what it said last holds"
        assert not watch.ended(0), "the child lives"
        eventually(lambda: is_refused(tmp_path), 10)
        assert not watch.ended(0), "the child lives"
        os.kill(child, 9)
        watch.close()
        planner.close()
    eventually(lambda: not threads())


def is_refused(folder: Path) -> bool:
    """Return whether nobody listens any more on the socket that lies in a folder."""
    try:
        connect(os.fspath(folder)).close()
    except ConnectionRefusedError:
        return True
    return False


PLANNER = """
import sys, threading
from spout.link.connection import DriverAddress
from spout.link.driver_link import DriverLink
from spout.link.messages import Hello
planner = DriverLink(DriverAddress(sys.argv[1], bytes.fromhex(sys.argv[2])), Hello("stream", "killed"), "g")
planner.start()
planner.wait_for_state()
planner.report_that_it_runs_again("s", ())
print("linked", flush=True)
threading.Event().wait(120)
"""


def test_a_planning_process_that_is_killed_is_seen_at_once_by_the_driver(driver: LinkedDriver) -> None:
    """D305: what it ran again is nobody's any more, and its mark may go."""
    program = [sys.executable, "-c", PLANNER, driver.address.folder, driver.address.key.hex()]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "linked\n"
        other = driver.planner("other")
        eventually(lambda: not _may_drop(other), 10)
        process.kill()
        eventually(lambda: _may_drop(other), 10)


def _may_drop(planner: DriverLink) -> bool:
    planner.catch_up()
    return not planner._driver_state.others_run_again


def test_a_forked_child_shuts_nothing_down_that_its_parent_has(driver: LinkedDriver) -> None:
    """D305: it closes its copies, and the connection goes on."""
    planner = driver.planner()
    child = os.fork()
    if child == 0:
        os._exit(0 if not transport._SOCKETS else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    driver.link.deactivate()
    planner.catch_up()
    assert planner.is_inactive
    assert planner.is_connected


def test_a_connection_that_another_thread_ends_wakes_who_waits_for_it(tmp_path: Path) -> None:
    one, two = socket.socketpair()
    with one, two:
        connection = Connection(one)
        waiting = threading.Thread(target=connection.wait, args=(60_000,))
        waiting.start()
        connection.end()
        waiting.join(30)
        assert not waiting.is_alive()
        with pytest.raises(EOFError):
            connection.handle_arrived(lambda _: None)
        with pytest.raises(TimeoutError):
            Connection(two).next_greeting(time.monotonic())
        with pytest.raises((OSError, EOFError)):
            greet_planner(Connection(two), b"key")


@pytest.mark.parametrize("value", [7, None, "\u00e9", ["a"]], ids=str)
@pytest.mark.parametrize("name", ["nonce", "proof"])
def test_a_greeting_whose_text_is_of_another_kind_is_refused_by_its_name(name: str, value: object) -> None:
    """A digest cannot be compared with such a text, and what that raises nobody expects."""
    one, two = socket.socketpair()
    greetings: list[dict[str, object]] = [
        {"version": LINK_VERSION, "nonce": "0"},
        {"proof": "0" * 64, "hello": "x"},
    ]
    with one:
        for greeting in greetings:
            sent = {**greeting, name: value} if name in greeting else greeting
            one.sendall(frame_of(json.dumps(sent).encode()))
        connection = Connection(two)
        with pytest.raises(ValueError, match=f"^a greeting without {name}$"):
            greet_planner(connection, b"key")
        connection.close()


def test_who_sends_to_an_end_that_has_gone_learns_it() -> None:
    one, two = socket.socketpair()
    connection = Connection(one)
    two.close()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            connection.send(lambda: frame_of(b"{}"))
    connection.close()


def test_who_cannot_connect_keeps_no_descriptor(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            transport.connect(str(folder))
    assert len(os.listdir("/dev/fd")) == before


def test_a_driver_that_is_there_has_not_gone_and_one_that_never_was_has_not_either(
    driver: LinkedDriver,
) -> None:
    planner = driver.planner()
    assert planner.is_connected
    assert not planner.has_gone
    alone = DriverLink(None, Hello("stream", "p"), "g", driver.link.mark)
    assert (alone.is_connected, alone.has_gone) == (False, False)
