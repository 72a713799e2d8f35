"""Serves the pages over HTTP until a signal arrives."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Final

from acker.config.topics import Topics
from acker.errors import UsageError
from acker.kafka.port import Log
from acker.redaction import cut
from acker.untrusted import Untrusted, trace_lines
from spout.inspect.overview import Overview
from spout.runtime.process import Signals
from spout.runtime.scrape import metrics_address, read_metrics
from spout.serving.accept_errors import AcceptErrors
from spout.serving.connections import ConnectionLimits
from spout.serving.hosts import AllowedHosts, is_loopback
from spout.ui.jobs import Actions, RedriveJobs
from spout.ui.topology import Drivers
from spout.ui.watch import PAGE_READ_MAX, CauseWatch, ServedPages, Site, TopicsFile, Watch

if TYPE_CHECKING:
    import uvicorn

    from spout.ui.pages import Pages

LIBRARIES: Final = ("jinja2", "sse_starlette", "starlette", "uvicorn")
"""What the extra ``ui`` brings."""

INSTALL: Final = (
    f"run `pip install {' '.join(LIBRARIES)}`, or `uv add --extra ui ../windhover` in a project of uv"
)
"""What to do about `missing_libraries`; the windhover of PyPI is another project."""

UI_PORT: Final = 8_095

LOOPBACK: Final = AllowedHosts()
"""What a page answers for that nobody but this machine can reach."""

READINGS_STOP_S: Final = 2
"""Readings that still wait for a broker after this time, when nothing is served any more, are cut off."""

FAILED: Final = 1
"""The exit code of a process that an error ends while something still waits for a broker."""


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where the page listens, and for whom it answers.

    Attributes:
        host: an address or a name of this machine.
        port: 0: a free one.
        allow_hosts: further hosts that a request may name; see `spout.serving.hosts`.
    """

    host: str
    port: int
    allow_hosts: Sequence[str] = ()

    @property
    def shown_host(self) -> str:
        """The host as an address has it."""
        name = self.host
        return f"[{name}]" if ":" in name else name

    def exposure(self) -> str:
        """Return what others than this machine can read here; empty: nothing."""
        if is_loopback(self.host):
            return ""
        return (
            "whoever reaches this address reads keys, payloads, headers and errors of all inputs, without a"
            " login: put it behind a proxy that knows who may, or listen on 127.0.0.1"
        )


def serve_pages(
    open_log: Callable[[Topics], Log],
    topics: Topics,
    address: PageAddress,
    now_ms: Callable[[], int],
    say: Callable[[str], None],
    alive: Callable[[], None] = lambda: None,
    actions: Actions | None = None,
    drivers: Sequence[str] = (),
    config: Path | None = None,
    file: TopicsFile | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; `say` gets the address as soon as it answers.

    `alive` is called every second while requests are served. Without `actions` the page is read-only.
    `drivers` are the addresses of drivers' metrics. `config` is the topics.yaml that commands to copy name;
    None: the default one. `file` is what `topics` were loaded from: when it changes, so does the page.

    Redrives that run here are ended first. What still reads then waits for a broker that does not answer, for
    half a minute or longer, and a thread cannot be stopped: after `READINGS_STOP_S` the process ends with it.

    Returns:
        The exit code, 143 for SIGTERM and 130 for SIGINT.

    Raises:
        UsageError: the address is in use, or is none of this machine; one of `drivers` is none; a host to
            allow is none; or a library is missing.
    """
    if missing := missing_libraries():
        raise UsageError(f"the page needs {', '.join(missing)}; {INSTALL}")
    from spout.serving.asgi import page_server

    hosts = AllowedHosts.of(address.host, socket.gethostname(), address.allow_hosts)
    with ExitStack() as stack:
        cut_off = _CutOff(stack.enter_context(Signals()))
        stack.callback(cut_off.timer.cancel)  # when all below is closed
        listener = stack.enter_context(closing(listening(address.host, address.port)))

        def build(of_pages: ExitStack, shown: Topics) -> ServedPages:
            pages, watch, jobs = _opened(
                of_pages, partial(open_log, shown), shown, now_ms, actions, drivers, config
            )
            return ServedPages(pages.application(hosts), watch, jobs.is_idle, jobs.close)

        site = stack.enter_context(closing(Site(build, topics, file)))

        def stop() -> None:
            site.stop()
            cut_off.timer.start()

        server = page_server(site, ConnectionLimits.of_process(), alive)
        say(f"http://{address.shown_host}:{listener.getsockname()[1]}/")
        try:
            asyncio.run(serve_watched(server, site, listener, stop))
        except BaseException as error:
            cut_off.error = error
            raise
    return cut_off.exit_code


class _CutOff:
    """Ends the process `READINGS_STOP_S` after `timer` was started, whatever still waits for a broker.

    Attributes:
        error: what ended the pages; None: a signal did.
    """

    def __init__(self, signals: Signals) -> None:
        self.error: BaseException | None = None
        self.timer = Timer(READINGS_STOP_S, self._cut)
        self.timer.daemon = True
        self._signals = signals

    @property
    def exit_code(self) -> int:
        return 0 if self._signals.received is None else 128 + self._signals.received

    def _cut(self) -> None:
        if self.error is None:
            os._exit(self.exit_code)
        sys.stderr.write("\n".join([*trace_lines(self.error), ""]))
        os._exit(FAILED)


def _opened(
    stack: ExitStack,
    open_log: Callable[[], Log],
    topics: Topics,
    now_ms: Callable[[], int],
    actions: Actions | None,
    drivers: Sequence[str],
    config: Path | None,
) -> tuple[Pages, Watch, RedriveJobs]:
    """Build the pages with what reads for them and the redrives they start; `stack` closes all of it."""
    from spout.ui.log_pages import LogPages
    from spout.ui.pages import Pages
    from spout.ui.redrive_pages import RedrivePages

    # one client for the thread that reads everything, and one for the requests
    watched, requested = (stack.enter_context(closing(open_log())) for _ in range(2))
    overview = stack.enter_context(closing(Overview(watched, topics, read_max=PAGE_READ_MAX)))
    causes = stack.enter_context(closing(CauseWatch(watched, topics)))
    watch = Watch(overview.snapshot, topics, now_ms, causes.read, causes.rates, causes.is_filling)
    graphs = Drivers([metrics_address(each) for each in drivers], read_metrics)
    log_pages = LogPages(topics, requested, now_ms, graphs, config)
    stack.callback(log_pages.thread.shutdown, cancel_futures=True)
    jobs = stack.enter_context(closing(RedriveJobs(open_log, topics, now_ms)))
    redrives = RedrivePages(topics, log_pages.log, now_ms, log_pages.answering, jobs, actions)
    return Pages(topics, watch, log_pages, redrives, graphs, config), watch, jobs


def missing_libraries() -> list[str]:
    """Return what the page needs and does not find."""
    return [name for name in LIBRARIES if find_spec(name) is None]


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"--host {Untrusted(cut(host))} --port {port}: {error.strerror or error}; give another port, or"
            " an address of this machine"
        ) from error


async def serve_watched(
    server: uvicorn.Server,
    watch: Watch | Site,
    listener: socket.socket,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve and read at the same time; the end of one, or its error, ends the other.

    `stop` is called when nothing is served any more, while a last reading may still run.
    """
    asyncio.get_running_loop().set_exception_handler(AcceptErrors().of_loop)
    watch.is_over = lambda: server.should_exit
    reading = asyncio.create_task(watch.run())

    def end(_: asyncio.Task[None]) -> None:
        server.should_exit = True

    reading.add_done_callback(end)
    await server.serve([listener])
    stop()
    await reading
