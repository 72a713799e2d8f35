"""Serves the pages over HTTP until a signal arrives."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
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
from spout.ui.graph import Drivers
from spout.ui.jobs import Actions, RedriveJobs
from spout.ui.watch import PAGE_READ_MAX, CauseWatch, ServedPages, Site, TopicsFile, Watch

if TYPE_CHECKING:
    import uvicorn

    from spout.questions.letters import ReadsLetters
    from spout.ui.pages import Pages

LIBRARIES: Final = ("jinja2", "sse_starlette", "starlette", "uvicorn")
"""What the extra ``ui`` brings."""

INSTALL: Final = (
    f"run `pip install {' '.join(LIBRARIES)}`, or `uv add --extra ui ../windhover` in a project of uv"
)
"""What to do about `missing_libraries`; the windhover of PyPI is another project."""

UI_PORT: Final = 8_095

LOOPBACK: Final = AllowedHosts()
"""The hosts of a page that only this machine can reach."""

READINGS_STOP_S: Final = 2
"""How long the end of the process waits for readings that wait for a broker."""

FAILED: Final = 1
"""The exit code where an error ended the pages, and the process is cut off."""


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where the page listens, and for whom it answers.

    Attributes:
        host: an address or a name of this machine.
        port: 0: the system chooses a free one.
        allow_hosts: further hosts that a request may name; see `spout.serving.hosts`.
    """

    host: str
    port: int
    allow_hosts: Sequence[str] = ()

    @property
    def shown_host(self) -> str:
        """The host as a URL has it: ``[::1]`` for an address of IP 6."""
        address = self.host
        is_ipv6 = ":" in address
        return f"[{address}]" if is_ipv6 else address

    def exposure(self) -> str:
        """Return a warning if other machines can read the page; empty: they cannot."""
        if is_loopback(self.host):
            return ""
        return (
            "whoever reaches this address reads keys, payloads, headers and errors of all inputs,"
            " without a login: put it behind a proxy that knows who may, or listen on 127.0.0.1"
        )


@dataclass(frozen=True, slots=True)
class ShownInstallation:
    """What the page shows, and what may be done by it.

    Attributes:
        open_log: opens a client of Kafka.
        actions: what may be done by the page; None: it is read-only.
        drivers: the addresses of drivers' metrics.
        config: the topics.yaml that is named in commands to copy; None: the default one.
        file: what `topics` were loaded from: when it changes, so does the page; None: it does
            not change.
        keep: the file in which dead letters are kept for the next start; None: none are.
    """

    open_log: Callable[[Topics], Log]
    topics: Topics
    actions: Actions | None = None
    drivers: Sequence[str] = ()
    config: Path | None = None
    file: TopicsFile | None = None
    keep: Path | None = None


def serve_pages(
    shown: ShownInstallation,
    address: PageAddress,
    now_ms: Callable[[], int],
    say: Callable[[str], None],
    alive: Callable[[], None] = lambda: None,
) -> int:
    """Serve the pages until SIGINT or SIGTERM.

    Then redrives that run here are ended. A reading may still wait for a broker that does not
    answer, for half a minute or longer, and a thread cannot be stopped. So the process is cut off
    after `READINGS_STOP_S`.

    Args:
        now_ms: returns wall time.
        say: is called with the page's URL as soon as it answers.
        alive: is called every second while requests are served.

    Returns:
        The exit code, 143 for SIGTERM and 130 for SIGINT.

    Raises:
        UsageError: the address is in use, or is not of this machine; the address of a driver,
            or a host to allow, cannot be parsed; or a library is missing.
    """
    missing = missing_libraries()
    if missing:
        raise UsageError(f"the page needs {', '.join(missing)}; {INSTALL}")
    from spout.questions.kept_letters import KeptLetters
    from spout.questions.letters import letters_read
    from spout.serving.asgi import page_server

    hosts = AllowedHosts.of(address.host, socket.gethostname(), address.allow_hosts)
    with ExitStack() as stack:
        cut_off = _CutOff(stack.enter_context(Signals()))
        # a stack closes what it has entered last first: the timer runs until all below is closed
        stack.callback(cut_off.timer.cancel)
        listener = stack.enter_context(closing(listening(address.host, address.port)))

        reads_letters: ReadsLetters = letters_read
        if shown.keep is not None:
            reads_letters = stack.enter_context(closing(KeptLetters(shown.keep))).letters_read

        def build(pages_stack: ExitStack, topics: Topics) -> ServedPages:
            """Build the pages of a topics.yaml; `pages_stack` closes what they open."""
            shown_now = replace(shown, topics=topics)
            pages, watch, jobs = _open_pages(pages_stack, shown_now, now_ms, reads_letters)
            return ServedPages(pages.application(hosts), watch, jobs.is_idle, jobs.close)

        site = stack.enter_context(closing(Site(build, shown.topics, shown.file)))

        def stop() -> None:
            """End the redrives, and start the timer that ends the process if a reading still waits."""
            site.stop()
            cut_off.timer.start()

        server = page_server(site, ConnectionLimits.of_process(), alive)
        say(f"http://{address.shown_host}:{listener.getsockname()[1]}/")
        try:
            asyncio.run(serve_watched(server, site, listener, stop))
        except BaseException as error:
            cut_off.error = error  # the timer then ends the process with its trace
            raise
    return cut_off.exit_code


class _CutOff:
    """Ends the process `READINGS_STOP_S` after `timer` was started, whatever still waits.

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
        """128 and the signal's number, as shells have it: 143 for SIGTERM; 0 without a signal."""
        return 0 if self._signals.received is None else 128 + self._signals.received

    def _cut(self) -> None:
        # sys.exit would wait for the threads that read
        if self.error is None:
            os._exit(self.exit_code)
        sys.stderr.write("\n".join([*trace_lines(self.error), ""]))
        os._exit(FAILED)


def _open_pages(
    stack: ExitStack,
    shown: ShownInstallation,
    now_ms: Callable[[], int],
    reads_letters: ReadsLetters,
) -> tuple[Pages, Watch, RedriveJobs]:
    """Open the pages; `stack` closes all of it.

    Returns the pages, the watch that reads for them, and what runs their redrives.
    """
    from spout.ui.log_pages import LogPages
    from spout.ui.pages import Pages
    from spout.ui.redrive_pages import RedrivePages

    topics, config = shown.topics, shown.config
    open_log = partial(shown.open_log, topics)
    # the thread that reads everything has a client of its own, so that no request waits for it
    watch_log = stack.enter_context(closing(open_log()))
    request_log = stack.enter_context(closing(open_log()))
    overview = stack.enter_context(closing(Overview(watch_log, topics, read_max=PAGE_READ_MAX)))
    causes = stack.enter_context(closing(CauseWatch(watch_log, topics)))
    watch = Watch(
        overview.snapshot,
        topics,
        now_ms,
        causes=causes.read,
        rates=causes.rates,
        is_filling=causes.is_filling,
    )
    drivers = Drivers([metrics_address(driver) for driver in shown.drivers], read_metrics)
    log_pages = LogPages(topics, request_log, now_ms, drivers, config, reads_letters=reads_letters)
    # a page that still waits for its turn is not built any more
    stack.callback(log_pages.thread.shutdown, cancel_futures=True)
    jobs = stack.enter_context(closing(RedriveJobs(open_log, topics, now_ms)))
    redrive_pages = RedrivePages(
        topics,
        log_pages.log_if_reachable,
        now_ms,
        log_pages.build_showing_errors,
        jobs,
        shown.actions,
        reads_letters,
    )
    return Pages(topics, watch, log_pages, redrive_pages, drivers, config), watch, jobs


def missing_libraries() -> list[str]:
    """Return the libraries that the page needs and that are not installed."""
    return [name for name in LIBRARIES if find_spec(name) is None]


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; `UsageError`: the port or the host cannot be listened at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        problem = f"--host {Untrusted(cut(host))} --port {port}: {error.strerror or error}"
        cure = "give another port, or an address of this machine"
        raise UsageError(f"{problem}; {cure}") from error


async def serve_watched(
    server: uvicorn.Server,
    watch: Watch | Site,
    listener: socket.socket,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve and read at the same time; if one of both ends or fails, the other one ends, too.

    `stop` is called when nothing is served any more; a last reading may still go on.
    """
    asyncio.get_running_loop().set_exception_handler(AcceptErrors().handle_loop_error)
    watch.is_over = lambda: server.should_exit
    reading = asyncio.create_task(watch.run())

    def end_server(_reading: asyncio.Task[None]) -> None:
        server.should_exit = True

    reading.add_done_callback(end_server)
    await server.serve([listener])
    stop()
    await reading
