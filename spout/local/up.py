"""`windhover up`: a broker, the topics, an acker, a replay worker and the page, for experiments."""

from __future__ import annotations

import errno
import os
import select
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from acker.config.topics import Topics, load_topics
from acker.errors import ConfigError, Unreachable
from acker.provisioning import provision
from spout.local import java
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker, aside, free_port, is_free
from spout.local.embedded_cluster import EmbeddedCluster
from spout.local.jars import cache_directory
from spout.runtime.child import Child, Kind
from spout.runtime.scrape import metrics_address
from spout.ui.serve import INSTALL, UI_PORT, missing_libraries

BOOTSTRAP = "KAFKA_BOOTSTRAP"
"""Environment variable that a topics.yaml refers to for the broker's address."""

KINDS: tuple[Kind, ...] = ("acker", "replay")

DRIVER_METRICS = f"{HOST}:9103"
"""The page draws the topology of the driver that serves its metrics here; docs/ let drivers do so."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What to start. `directory` None: a temporary one; `port` None: a free one, else the first broker's.

    `drivers` are the addresses of drivers' metrics, which the page asks.
    """

    config: Path = Path("topics.yaml")
    port: int | None = None
    directory: Path | None = None
    broker_only: bool = False
    brokers: int = 1
    drivers: Sequence[str] = (DRIVER_METRICS,)

    def __post_init__(self) -> None:
        for each in self.drivers:
            metrics_address(each)


class Interrupted(BaseException):
    """A signal asked this process to end. Not an Exception: nothing that handles errors may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def run_up(options: UpOptions, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Run everything until a signal arrives or a part dies; all parts are ended before this returns.

    One of several brokers is started again if it dies, and the rest goes on without the page. Return the exit
    code after a clean stop: 130 for Ctrl-C, 143 for SIGTERM.
    """
    if not options.broker_only:
        ours = ",".join(f"{HOST}:{(options.port or 0) + number}" for number in range(options.brokers))
        topics_of_own_broker(options.config, environ, ours, "up")
    return interruptible(lambda: _run(options, environ, say))


def _run(options: UpOptions, environ: Mapping[str, str], say: Callable[[str], None]) -> NoReturn:
    with ExitStack() as stack:
        port = None if options.broker_only else announce_page(say)
        kafka, brokers = _start_kafka(stack, options, say)
        environ = {**environ, BOOTSTRAP: kafka.bootstrap}
        children = [] if options.broker_only else _start(stack, options.config, kafka.directory, environ, say)
        start_page(stack, port, options.config, environ, say, options.drivers)
        if port is not None:
            say(f"the page draws the driver that serves its metrics at {', '.join(options.drivers)}")
        found = java.find(environ)
        if java.is_missed_by_spark(found, environ):
            home = java.java_home_for_spark(found, cache_directory(environ))
            say(f"without it your Spark program finds no Java: export JAVA_HOME={shlex.quote(str(home))}")
        say(f"ready: bootstrap.servers={kafka.bootstrap} (Ctrl-C ends it)")
        ended = _first_to_end([*brokers, *children])
        while isinstance(ended, EmbeddedBroker) and len(brokers) > 1:
            say(f"{ended.how_it_ended().splitlines()[0]}; starting it again")
            ended.restart()
            ended = _first_to_end([*brokers, *children])
        raise Unreachable(ended.how_it_ended())


def topics_of_own_broker(config: Path, environ: Mapping[str, str], bootstrap: str, command: str) -> Topics:
    """Load a topics.yaml for a broker that a command starts itself; `ConfigError`: it names another one."""
    topics = load_topics(config, {**environ, BOOTSTRAP: bootstrap})
    named = topics.kafka.get("bootstrap.servers", bootstrap)
    if named != bootstrap:
        raise ConfigError(
            f"{config}: kafka.bootstrap.servers is {named}, but `{command}` starts a broker of its own; write"
            f' "${{{BOOTSTRAP}:-{named}}}"'
        )
    return topics


def _start_kafka(
    stack: ExitStack, options: UpOptions, say: Callable[[str], None]
) -> tuple[EmbeddedBroker | EmbeddedCluster, tuple[EmbeddedBroker, ...]]:
    if options.brokers == 1:
        broker = stack.enter_context(EmbeddedBroker(options.directory, options.port, progress=say))
        say(f"broker is ready (process {broker.pid}, log {broker.log})")
        return broker, (broker,)
    cluster = stack.enter_context(
        EmbeddedCluster(options.directory, options.brokers, options.port, progress=say)
    )
    for each in cluster.brokers:
        say(f"broker {each.node_id} is ready (process {each.pid}, log {each.log})")
    return cluster, cluster.brokers


def _start(
    stack: ExitStack, config: Path, logs: Path, environ: Mapping[str, str], say: Callable[[str], None]
) -> list[Child]:
    for line in aside(lambda: provision.create_topics(load_topics(config, environ))):
        say(line)
    children = [
        stack.enter_context(Child(kind, config, log=logs / f"{kind}.log", environ=environ)) for kind in KINDS
    ]
    for child in children:
        child.wait_ready()
        say(f"{child.kind} is ready (process {child.pid}, log {child.log})")
    return children


def announce_page(say: Callable[[str], None]) -> int | None:
    """Choose a port for the page and say its address; None: there is no page, since a library is missing."""
    if missing := missing_libraries():
        say(f"no page: {', '.join(missing)} not installed; {INSTALL}")
        return None
    port = UI_PORT if is_free(UI_PORT) else free_port()
    say(f"page: http://{HOST}:{port}/ answers as soon as Kafka runs")
    return port


def start_page(
    stack: ExitStack,
    port: int | None,
    config: Path,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    drivers: Sequence[str],
) -> None:
    """Start the page in a process that `stack` ends. If it does not start, the rest goes on without it.

    If another process has taken the port since it was named, the page gets another one, and says so.
    """
    if port is None:
        return
    options = ["--config", str(config), "--port", str(port)]  # as it was given: the page names it so
    for each in drivers:
        options += ["--driver", each]
    program = ("-m", "spout.cli", "ui", *options)
    page = stack.enter_context(Child("ui", config, environ=environ, program=program))
    try:
        page.wait_ready()
    except Unreachable as error:
        # its own words, since by now the port may be free again
        if os.strerror(errno.EADDRINUSE) not in str(error):
            say(f"no page: {error}")
            return
        say(f"page: http://{HOST}:{(other := free_port())}/ for another process has taken port {port}")
        start_page(stack, other, config, environ, say, drivers)
        return
    say(f"page is ready (process {page.pid}, log {page.log})")


def _first_to_end(parts: Sequence[EmbeddedBroker | Child]) -> EmbeddedBroker | Child:
    with ExitStack() as stack:
        watched = {}
        poll = select.poll()  # `select` takes no descriptor above 1,023
        for part in parts:
            if part.pid is None:
                return part
            descriptor = os.pidfd_open(part.pid)
            stack.callback(os.close, descriptor)
            watched[descriptor] = part
            poll.register(descriptor, select.POLLIN)
        return watched[poll.poll()[0][0]]


def interruptible(command: Callable[[], int]) -> int:
    """Run a command whose parts end when a signal unwinds it; return its exit code, or that of the signal.

    The first SIGINT or SIGTERM raises `Interrupted` in the main thread, the second ends the process at once,
    with which every process dies that it started.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    previous = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        return command()
    except Interrupted as interrupted:
        return interrupted.exit_code
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
