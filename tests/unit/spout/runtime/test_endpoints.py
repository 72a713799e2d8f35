"""What a process answers to its supervisor: metrics and probes over HTTP, and systemd's notifications."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from acker.config.limits import AckerLimits, ReplayLimits
from acker.errors import UsageError
from spout.local.embedded import free_port
from spout.runtime import endpoints, metrics
from spout.serving.connections import ConnectionLimits
from tests.support.steady_clock import SteadyClock


@dataclass(frozen=True)
class Status:
    partitions: tuple[int, ...] = (0, 3)
    assigned: int = 2
    open_roots: int = 5


def collector() -> metrics.StatusCollector:
    """An acker's metrics, of one status."""
    made = metrics.StatusCollector(
        "acker",
        lambda status: [metrics.gauge("windhover_acker_open_roots", "roots", {(): status.open_roots}, ())],
    )
    made.update(Status())
    return made


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (9100, ("0.0.0.0", 9100)),
        ("9100", ("0.0.0.0", 9100)),
        ("127.0.0.1:9100", ("127.0.0.1", 9100)),
        ("[::1]:9100", ("::1", 9100)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_metrics_are_served_at_an_address(wanted: int | str, found: tuple[str, int]) -> None:
    assert endpoints.address_of(wanted) == found


@pytest.mark.parametrize(
    "wanted",
    [
        0, 65_536, "", "here", ":9100", "::1:9100", "[]:9100", "127.0.0.1:", "[::1:9100", "::1]:9100",
        "[127.0.0.1]:9100", "[here]:9100", "a b:9100", "٩١٠٠", "9" * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_those_that_are(wanted: int | str) -> None:
    with pytest.raises(UsageError, match=r"--metrics-port .*9100, 127\.0\.0\.1:9100, \[::1\]:9100"):
        endpoints.address_of(wanted)


def test_metrics_for_this_machine_alone_are_not_served_to_others() -> None:
    port = free_port()
    endpoints.serve(collector(), f"127.0.0.2:{port}")
    with urlopen(f"http://127.0.0.2:{port}/metrics", timeout=10) as answer:
        assert b"windhover_acker_open_roots 5.0" in answer.read()
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
    with pytest.raises(UsageError, match=r"--metrics-port 192\.0\.2\.99.*address of this machine"):
        endpoints.serve(collector(), f"192.0.2.99:{port}")


def test_metrics_are_served_and_a_port_in_use_is_a_usage_error() -> None:
    port = free_port()
    endpoints.serve(collector(), port)

    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"windhover_acker_open_roots 5.0" in answer.read()
    with pytest.raises(UsageError, match=f"--metrics-port {port}"):
        endpoints.serve(collector(), port)


def asked(port: int, path: str) -> tuple[int, str]:
    """Return the status and text of an answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_loop_that_does_not_go_on_is_not_live() -> None:
    quiet = SteadyClock(0.0)
    health = endpoints.Health(quiet, 30)
    assert health.live() == ""
    quiet.now_s = 31
    assert health.live() == "the loop has not gone on for 31 s"
    health.update(Status())
    assert health.ready() == health.live()


def test_a_loop_that_waits_for_an_answer_as_long_as_it_may_is_live() -> None:
    assert AckerLimits().live_ms == 30_000
    assert AckerLimits(operation_ms=60_000).live_ms == 60_000
    assert ReplayLimits(operation_timeout_ms=45_000).live_ms == 45_000


def test_a_service_is_ready_when_what_the_group_assigned_is_restored() -> None:
    health = endpoints.Health(lambda: 0.0, 30)
    assert health.ready() == "no step has ended yet"
    health.update(Status(partitions=(0,)))
    assert health.ready() == "1 of 2 partitions are restored"
    health.update(Status())
    assert health.ready() == ""


def test_a_standby_is_ready_after_the_time_that_a_rebalance_takes() -> None:
    clock = SteadyClock(0.0)
    health = endpoints.Health(lambda: 0.0, 30, clock)
    health.update(Status(partitions=(), assigned=0))
    assert health.ready() == "the group has assigned no partition yet"
    clock.now_s = endpoints.STANDBY_S
    assert health.ready() == ""


def test_probes_are_served_beside_metrics_and_other_paths_are_not() -> None:
    port, quiet = free_port(), SteadyClock(0.0)
    endpoints.serve(collector(), port, endpoints.Health(quiet, 30).probes())
    assert asked(port, "/livez") == (200, "ok\n")
    assert asked(port, "/readyz") == (503, "no step has ended yet\n")
    quiet.now_s = 31
    assert asked(port, "/livez") == (503, "the loop has not gone on for 31 s\n")
    assert asked(port, "/other") == (404, "here are /metrics, /livez, /readyz\n")
    assert "process_resident_memory_bytes" in asked(port, "/metrics")[1]


def test_a_client_that_says_nothing_keeps_no_thread() -> None:
    """A scanner of ports, or a connection that a firewall has forgotten, would keep one for ever."""
    port = free_port()
    limits = ConnectionLimits(request_s=0.1, answer_s=0.1)
    endpoints.serve(collector(), f"127.0.0.1:{port}", limits=limits)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
        assert silent.recv(1) == b"", "the server has closed it"


def test_a_client_that_breaks_off_leaves_no_trace_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    endpoints.serve(collector(), f"127.0.0.1:{port}")
    with socket.create_connection(("127.0.0.1", port)) as broken:
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200
    for each in threading.enumerate():
        if "process_request_thread" in each.name:
            each.join(10)
    assert capfd.readouterr().err == ""


def test_metrics_are_served_to_an_address_of_ip_6() -> None:
    port = free_port()
    endpoints.serve(collector(), f"[::1]:{port}")
    with urlopen(f"http://[::1]:{port}/metrics", timeout=10) as answer:
        assert b"windhover_acker_open_roots 5.0" in answer.read()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_hears_that_the_loop_goes_on_once_a_second(tmp_path: Path, is_abstract: bool) -> None:
    name = f"@windhover-{free_port()}" if is_abstract else str(tmp_path / "notify")
    clock = SteadyClock(0.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name[1:]}" if is_abstract else name)
        systemd.setblocking(False)
        notifier = endpoints.SystemdNotifier({"NOTIFY_SOCKET": name}, clock)
        notifier.notify("READY=1")
        notifier.alive()
        notifier.alive()
        assert [systemd.recv(64), systemd.recv(64)] == [b"READY=1", b"WATCHDOG=1"]
        with pytest.raises(BlockingIOError):
            systemd.recv(64)
        clock.now_s = 1.0
        notifier.alive()
        assert systemd.recv(64) == b"WATCHDOG=1"


def test_a_systemd_that_goes_away_ends_nobody(tmp_path: Path) -> None:
    clock, path = SteadyClock(0.0), tmp_path / "notify"
    notifier = endpoints.SystemdNotifier({"NOTIFY_SOCKET": str(path)}, clock)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        notifier.notify("READY=1")
    path.unlink()
    notifier.alive()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        clock.now_s = 1.0
        notifier.alive()
        assert systemd.recv(64) == b"WATCHDOG=1"


def test_without_systemd_nothing_is_sent_and_a_socket_that_is_gone_is_named(tmp_path: Path) -> None:
    endpoints.SystemdNotifier({}).notify("READY=1")
    with pytest.raises(UsageError, match=r"NOTIFY_SOCKET .*No such file"):
        endpoints.SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify("READY=1")
