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
from spout.local.embedded import EmbeddedBroker, free_port, in_thread, is_free
from spout.local.embedded_cluster import EmbeddedCluster
from spout.local.jars import cache_directory
from spout.runtime.child import Child, Kind
from spout.runtime.scrape import metrics_address
from spout.ui.serve import INSTALL, UI_PORT, missing_libraries

BOOTSTRAP = "KAFKA_BOOTSTRAP"
"""Environment variable that a topics.yaml refers to for the broker's address."""

KINDS: tuple[Kind, ...] = ("acker", "replay")

DRIVER_METRICS = f"{HOST}:9103"
"""Here the driver whose topology the page draws serves its metrics; docs/ let drivers do so."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What to start.

    Attributes:
        port: of the first broker; None: a free one.
        directory: for the brokers' data; None: a temporary one.
        drivers: the addresses of drivers' metrics, which the page asks.
    """

    config: Path = Path("topics.yaml")
    port: int | None = None
    directory: Path | None = None
    broker_only: bool = False
    brokers: int = 1
    drivers: Sequence[str] = (DRIVER_METRICS,)

    def __post_init__(self) -> None:
        for driver in self.drivers:
            metrics_address(driver)  # raises where it is none


class Interrupted(BaseException):
    """A signal asked this process to end. No Exception, so that no handler of errors swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def run_up(options: UpOptions, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Run everything until a signal arrives or a part dies; then end all parts.

    One of several brokers is started again if it dies, and the rest goes on without the page.
    Return the exit code after a clean stop: 130 for Ctrl-C, 143 for SIGTERM.
    """
    if not options.broker_only:
        # refuse a config that names another broker before anything is started; without a named
        # port 0 and on stand for those that are chosen later
        first_port = options.port or 0
        own_brokers = [f"{HOST}:{first_port + index}" for index in range(options.brokers)]
        topics_of_own_broker(options.config, environ, ",".join(own_brokers), "up")
    return interruptible(lambda: _run_until_one_ends(options, environ, say))


def _run_until_one_ends(
    options: UpOptions, environ: Mapping[str, str], say: Callable[[str], None]
) -> NoReturn:
    """Start all parts, and raise `Unreachable` when one of them has ended, with how it ended."""
    with ExitStack() as stack:
        # 1. start them; the page's address is said first, before anything takes time
        page_port = None if options.broker_only else announce_page(say)
        kafka, brokers = _start_kafka(stack, options, say)
        environ = {**environ, BOOTSTRAP: kafka.bootstrap}
        services: list[Child] = []
        if not options.broker_only:
            services = _start_services(stack, options.config, kafka.directory, environ, say)
        start_page(stack, page_port, options.config, environ, say, options.drivers)
        # 2. say what a user needs to know
        if page_port is not None:
            drivers = ", ".join(options.drivers)
            say(f"the page draws the driver that serves its metrics at {drivers}")
        installed_java = java.find(environ)
        if java.is_missed_by_spark(installed_java, environ):
            home = java.java_home_for_spark(installed_java, cache_directory(environ))
            quoted_home = shlex.quote(str(home))
            say(f"without it your Spark program finds no Java: export JAVA_HOME={quoted_home}")
        say(f"ready: bootstrap.servers={kafka.bootstrap} (Ctrl-C ends it)")
        # 3. wait; the others go on without one broker of several, until it is started again
        ended = _wait_for_first_end([*brokers, *services])
        while isinstance(ended, EmbeddedBroker) and len(brokers) > 1:
            say(f"{ended.how_it_ended().splitlines()[0]}; starting it again")
            ended.restart()
            ended = _wait_for_first_end([*brokers, *services])
        raise Unreachable(ended.how_it_ended())


def topics_of_own_broker(
    config: Path,
    environ: Mapping[str, str],
    bootstrap: str,
    command: str,
) -> Topics:
    """Load a topics.yaml for a broker that a command starts itself.

    Raises `ConfigError`: it names another broker.
    """
    topics = load_topics(config, {**environ, BOOTSTRAP: bootstrap})
    servers = topics.kafka.get("bootstrap.servers", bootstrap)
    if servers != bootstrap:
        raise ConfigError(
            f"{config}: kafka.bootstrap.servers is {servers}, but `{command}` starts a broker of its"
            f' own; write "${{{BOOTSTRAP}:-{servers}}}"'
        )
    return topics


def _start_kafka(
    stack: ExitStack, options: UpOptions, say: Callable[[str], None]
) -> tuple[EmbeddedBroker | EmbeddedCluster, tuple[EmbeddedBroker, ...]]:
    """Start one broker or a cluster, which `stack` ends; return it, and the brokers one by one."""
    if options.brokers == 1:
        broker = stack.enter_context(EmbeddedBroker(options.directory, options.port, progress=say))
        say(f"broker is ready (process {broker.pid}, log {broker.log})")
        return broker, (broker,)
    cluster = stack.enter_context(
        EmbeddedCluster(options.directory, options.brokers, options.port, progress=say)
    )
    for broker in cluster.brokers:
        say(f"broker {broker.node_id} is ready (process {broker.pid}, log {broker.log})")
    return cluster, cluster.brokers


def _start_services(
    stack: ExitStack, config: Path, logs: Path, environ: Mapping[str, str], say: Callable[[str], None]
) -> list[Child]:
    """Make the topics, start acker and replay worker, which `stack` ends, and wait until they are
    ready.

    `logs` is the folder for their logs.
    """
    for line in in_thread(lambda: provision.create_topics(load_topics(config, environ))):
        say(line)
    services: list[Child] = []
    for kind in KINDS:
        log = logs / f"{kind}.log"
        services.append(stack.enter_context(Child(kind, config, log=log, environ=environ)))
    for service in services:
        service.wait_ready()
        say(f"{service.kind} is ready (process {service.pid}, log {service.log})")
    return services


def announce_page(say: Callable[[str], None]) -> int | None:
    """Choose a port for the page, and say its address; None: a library is missing for the page."""
    libraries = missing_libraries()
    if libraries:
        say(f"no page: {', '.join(libraries)} not installed; {INSTALL}")
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
    """Start the page in a process that `stack` ends; if it does not start, go on without it.

    If another process has taken the port since it was announced, the page gets another one, and
    says so.

    Args:
        port: the announced one; None: there is no page.
        drivers: the addresses of drivers' metrics.
    """
    if port is None:
        return
    # the config as it was given: the page names it so
    options = ["--config", str(config), "--port", str(port)]
    for driver in drivers:
        options += ["--driver", driver]
    program = ("-m", "spout.cli", "ui", *options)
    page = stack.enter_context(Child("ui", config, environ=environ, program=program))
    try:
        page.wait_ready()
    except Unreachable as error:
        # the process's own words tell, since by now the port may be free again
        is_port_taken = os.strerror(errno.EADDRINUSE) in str(error)
        if not is_port_taken:
            say(f"no page: {error}")
            return
        new_port = free_port()
        say(f"page: http://{HOST}:{new_port}/ for another process has taken port {port}")
        start_page(stack, new_port, config, environ, say, drivers)
        return
    say(f"page is ready (process {page.pid}, log {page.log})")


def _wait_for_first_end(parts: Sequence[EmbeddedBroker | Child]) -> EmbeddedBroker | Child:
    """Wait until the process of one part has ended, and return that part."""
    with ExitStack() as stack:
        part_by_descriptor: dict[int, EmbeddedBroker | Child] = {}
        poll = select.poll()  # `select` takes no descriptor above 1,023
        for part in parts:
            if part.pid is None:
                return part
            descriptor = os.pidfd_open(part.pid)
            stack.callback(os.close, descriptor)
            part_by_descriptor[descriptor] = part
            poll.register(descriptor, select.POLLIN)
        ended_descriptor, _event = poll.poll()[0]
        return part_by_descriptor[ended_descriptor]


def interruptible(command: Callable[[], int]) -> int:
    """Run a command whose parts end when a signal unwinds it; return its exit code, or the signal's.

    The first SIGINT or SIGTERM raises `Interrupted` in the main thread, the second ends the process at once,
    with which every process dies that it started.
    """

    signal_numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for signal_number in signal_numbers:
            signal.signal(signal_number, signal.SIG_DFL)  # the second one ends the process
        raise Interrupted(number)

    previous_handlers = {number: signal.signal(number, interrupt) for number in signal_numbers}
    try:
        return command()
    except Interrupted as interrupted:
        return interrupted.exit_code
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
