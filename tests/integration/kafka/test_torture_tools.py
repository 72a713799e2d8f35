"""What a torture hurts with: the proxy that can be cut, process families, stepped clocks, small disks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spout.local.broker_settings import HOST
from spout.local.embedded import free_port
from tests.support.waiting import eventually
from tests.torture.stage.clock import SteppedClock
from tests.torture.stage.disk import DISK_BYTES, small_disk
from tests.torture.stage.family import family_of, is_there, signal_all
from tests.torture.stage.proxy import Proxy

TIMEOUT_S = 10.0
HOUR_MS = 3_600_000

PARENT = """
import subprocess, sys
children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
print("started", flush=True)
children[0].wait()
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """A server on this machine that sends back what it gets; its port."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=reply, args=(connection,), daemon=True).start()

        def reply(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(1024):
                        connection.sendall(data)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    """A proxy before that server."""
    with Proxy() as made:
        made.connect_to(echo)
        yield made


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), TIMEOUT_S)


def answers(client: socket.socket) -> bool:
    """Whether what is sent comes back."""
    try:
        client.sendall(b"hello")
        return client.recv(1024) == b"hello"
    except OSError:
        return False


def test_a_proxy_passes_on_what_it_gets(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert answers(client)


def test_a_cut_closes_every_connection_and_new_ones_until_it_heals(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert answers(client)
        proxy.cut()
        eventually(lambda: not answers(client), TIMEOUT_S)
    with connect(proxy) as client:
        assert not answers(client)
    proxy.heal()
    with connect(proxy) as client:
        eventually(lambda: answers(client), TIMEOUT_S)


def test_a_silent_proxy_holds_back_what_was_sent_and_delivers_it_when_it_heals(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert answers(client)
        proxy.silence()
        client.settimeout(0.3)
        client.sendall(b"late")
        with pytest.raises(TimeoutError):
            client.recv(1024)
        proxy.heal()
        client.settimeout(TIMEOUT_S)
        assert client.recv(1024) == b"late"


def test_a_connection_to_a_server_that_is_down_is_closed() -> None:
    with Proxy() as proxy:
        proxy.connect_to(free_port())
        with connect(proxy) as client:
            assert not answers(client)


def test_a_family_is_a_process_with_its_children_and_dies_together() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        members = family_of(parent.pid)
        assert len(members) == 3
        signal_all(members, signal.SIGSTOP)
        signal_all(members, signal.SIGCONT)
        assert all(map(is_there, members))
        signal_all(members, signal.SIGKILL)
    eventually(lambda: not any(map(is_there, members)), TIMEOUT_S)
    signal_all(members, signal.SIGKILL)  # of those that are gone nobody is hit
    assert family_of(parent.pid) == []


def wall_ms_of(process: subprocess.Popen[str]) -> int:
    """Ask a process for its wall time."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def test_a_stepped_clock_moves_the_wall_time_of_a_running_process_forth_and_back(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path / "skew")
    told = "import sys, time\nfor _ in sys.stdin: print(time.time_ns() // 10**6, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environ(os.environ),
    ) as process:
        for skew_ms in (0, HOUR_MS, -HOUR_MS, 0):
            clock.step(skew_ms)
            assert abs(wall_ms_of(process) - skew_ms - time.time_ns() // 1_000_000) < HOUR_MS / 2
        assert process.stdin is not None
        process.stdin.close()


def test_a_small_disk_is_full_when_it_is_filled_and_takes_writes_again_afterwards(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("a tmpfs cannot be mounted here")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "disk" / "file").write_bytes(bytes(100_000))
        disk.free()
        (tmp_path / "disk" / "file").write_bytes(bytes(100_000))
        assert DISK_BYTES > 100_000
    assert not (tmp_path / "disk" / "file").exists()
