"""What a process answers to its supervisor: ``/metrics``, ``/livez``, ``/readyz``, and systemd.

No answer asks Kafka: the loop writes down what it does, and a thread reads it. So a broker that
is away restarts no process.

Source: docs/operate/deploy.md.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from acker.errors import UsageError
from acker.redaction import cut
from acker.untrusted import Untrusted
from spout.runtime.metrics import Scraped, build_info
from spout.serving.connections import ConnectionLimits
from spout.serving.hosts import PORT_MAX, AllowedHosts, split_address
from spout.serving.wsgi import ANSWER_S, Application, metrics_server

EVERY_ADDRESS: Final = "0.0.0.0"
STANDBY_S: Final = 10.0
"""A process that the group assigns nothing for this long is a standby, and ready; a rebalance
takes less."""

NOTIFY_EVERY_S: Final = 1.0
"""systemd is notified at most this often."""

Probe = Callable[[], str]
"""Returns why a probe fails; empty: it succeeds."""


class OwnedPartitions(Protocol):
    """What readiness needs from a status."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that are restored."""

    @property
    def assigned(self) -> int:
        """Return how many partitions the group has assigned."""


class Health:
    """Whether a service is live, and whether it is ready; read by the serving thread."""

    def __init__(
        self,
        quiet_s: Callable[[], float],
        live_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Judge a loop: it is not live if `quiet_s`, the seconds since it last went on, exceeds
        `live_s`.
        """
        self._quiet_s = quiet_s
        self._live_s = live_s
        self._clock = clock
        self._began_s = clock()
        self._status: OwnedPartitions | None = None  # None: no step has ended yet

    def update(self, status: OwnedPartitions) -> None:
        """Keep a new status, which the next probe reads."""
        self._status = status

    def live(self) -> str:
        """Return why the loop is not live, as a `Probe`."""
        quiet_s = self._quiet_s()
        if quiet_s > self._live_s:
            return f"the loop has not gone on for {quiet_s:.0f} s"
        return ""

    def ready(self) -> str:
        """Return why the assigned partitions are not served, as a `Probe`."""
        why_not_live = self.live()
        if why_not_live:
            return why_not_live
        status = self._status
        if status is None:
            return "no step has ended yet"
        restored_count = len(status.partitions)
        if status.assigned > restored_count:
            return f"{restored_count} of {status.assigned} partitions are restored"
        is_standby = self._clock() - self._began_s >= STANDBY_S
        if status.assigned == 0 and not is_standby:
            return "the group has assigned no partition yet"
        return ""

    def probes(self) -> dict[str, Probe]:
        """Return the probes by their paths."""
        return {"/livez": self.live, "/readyz": self.ready}


class SystemdNotifier:
    """Notifies systemd that the service runs, goes on and stops; does nothing elsewhere.

    Source: the manual page sd_notify(3).
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        if path.startswith("@"):
            path = f"\0{path[1:]}"  # an abstract socket, which is in no folder
        self._path = path  # of systemd's socket; empty: systemd did not start this process
        self._clock = clock
        self._next_alive_s = clock()
        self._was_systemd_there = False  # True: its socket took a message once

    def alive(self) -> None:
        """Notify that the loop goes on, which puts the watchdog off.

        At most every `NOTIFY_EVERY_S`.
        """
        if not self._path:
            return
        now_s = self._clock()
        if now_s >= self._next_alive_s:
            self._next_alive_s = now_s + NOTIFY_EVERY_S
            self.notify("WATCHDOG=1")

    def notify(self, state: str) -> None:
        """Send ``READY=1``, ``STOPPING=1`` or ``WATCHDOG=1``.

        Raises `UsageError`: systemd was never there. If it goes away later, nothing is raised: the
        service must not end for that in the midst of a step, and systemd's watchdog decides.
        """
        if not self._path:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(state.encode(), self._path)
            self._was_systemd_there = True
        except OSError as error:
            if self._was_systemd_there:
                return
            raise UsageError(
                f"NOTIFY_SOCKET {self._path!r}: {error.strerror}; systemd sets it for Type=notify,"
                " elsewhere unset it"
            ) from error


def address_of(address: int | str) -> tuple[str, int]:
    """Return host and port of the value of ``--metrics-port``; a port alone means all addresses.

    >>> address_of("[::1]:9100"), address_of(9100)
    (('::1', 9100), ('0.0.0.0', 9100))

    Raises `UsageError`: it is no port, and no address with a port.
    """
    text = str(address)
    host_and_port = split_address(text if ":" in text else f"{EVERY_ADDRESS}:{text}")
    if host_and_port is None:
        wrong_address = Untrusted(cut(str(address)))
        raise UsageError(
            f"--metrics-port {wrong_address}: it is a port from 1 to {PORT_MAX}, or an address"
            " with one: 9100, 127.0.0.1:9100, [::1]:9100"
        )
    return host_and_port


def serve(
    collector: Collector,
    address: int | str,
    probes: Mapping[str, Probe] | None = None,
    allow_hosts: Iterable[str] = (),
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve a collector's metrics, and probes by path, over HTTP on a thread.

    It answers requests for this machine and for `allow_hosts`; see `spout.serving.hosts`.
    `limits` are those of its connections; None: what the process has room for.

    Raises `UsageError`: the address is none of this machine, or is in use; one of `allow_hosts`
    is no host.
    """
    host, port = address_of(address)
    hosts = AllowedHosts.of(host, socket.gethostname(), allow_hosts)
    limits = ConnectionLimits.of_process(ANSWER_S) if limits is None else limits
    application = _application(collector, dict(probes or {}))
    try:
        server = metrics_server(host, port, application, hosts, limits)
    except OSError as error:
        cure = "give another port, or an address of this machine"
        raise UsageError(f"--metrics-port {address}: {error.strerror}; {cure}") from error
    Thread(target=server.serve_forever, name="windhover-metrics", daemon=True).start()


def registry_of(collector: Collector) -> CollectorRegistry:
    """Return a registry with the metrics of a collector, and those that every process has."""
    registry = CollectorRegistry()
    registry.register(collector)
    registry.register(Scraped(lambda: [build_info()]))
    ProcessCollector(registry=registry)
    return registry


def _application(collector: Collector, probes: Mapping[str, Probe]) -> Application:
    """Return the WSGI application: ``/metrics``, and 200 or 503 for a probe."""
    metrics: Application = make_wsgi_app(registry_of(collector))

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in probes:  # of a driver it is every other path
            status = "404 Not Found"
            text = f"here are {', '.join(['/metrics', *probes])}"
        else:
            why_failed = probes[path]()
            status = "503 Service Unavailable" if why_failed else "200 OK"
            text = why_failed or "ok"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer
