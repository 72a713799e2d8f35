"""`windhover up`: a broker, the topics, an acker and a replay worker in the foreground, for experiments."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from acker import provision
from acker.errors import ConfigError, Unreachable
from acker.topics import load
from spout.broker_settings import HOST
from spout.child import Child, Kind
from spout.embedded import EmbeddedBroker

BOOTSTRAP = "KAFKA_BOOTSTRAP"
"""Environment variable that a topics.yaml refers to for the broker's address."""

KINDS: tuple[Kind, ...] = ("acker", "replay")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What to start. `directory` None: a temporary one; `port` None: a free one."""

    config: Path = Path("topics.yaml")
    port: int | None = None
    directory: Path | None = None
    broker_only: bool = False


class Interrupted(BaseException):
    """A signal asked this process to end. Not an Exception: nothing that handles errors may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def up(options: UpOptions, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Run all of it until a signal comes or a part of it dies; what was started is ended before it returns.

    1. Start the broker. 2. Create the topics. 3. Start an acker and a replay worker, and wait until they
    are ready. 4. Say the address. 5. Wait.

    Args:
        options: what to start.
        environ: this process's environment; the children get it with the broker's address added.
        say: shows a line to the user.

    Returns:
        The exit code after a clean stop: 130 for Ctrl-C, 143 for SIGTERM.

    Raises:
        UsageError: the port is taken, or there is no such file.
        ConfigError: topics.yaml is wrong.
        Unreachable: the broker or a child does not come up, or ended.
    """
    if not options.broker_only:
        _check(options, environ)
    try:
        with ending_on_signals(), ExitStack() as stack:
            broker = stack.enter_context(EmbeddedBroker(options.directory, options.port, progress=say))
            say(f"broker is ready (process {broker.pid}, log {broker.log})")
            children = [] if options.broker_only else _start(stack, options, broker, environ, say)
            say(f"ready: bootstrap.servers={broker.bootstrap} (Ctrl-C ends it)")
            raise Unreachable(_first_to_end(broker, children))
    except Interrupted as interrupted:
        return interrupted.exit_code


def _check(options: UpOptions, environ: Mapping[str, str]) -> None:
    """Refuse a file that cannot be read, or names another broker than the one to be started."""
    ours = f"{HOST}:{options.port or 0}"
    named = load(options.config, {**environ, BOOTSTRAP: ours}).kafka.get("bootstrap.servers", ours)
    if named != ours:
        raise ConfigError(
            f"{options.config}: kafka.bootstrap.servers is {named}, but `up` starts a broker of its own; "
            f'write "${{{BOOTSTRAP}:-{named}}}"'
        )


def _start(
    stack: ExitStack,
    options: UpOptions,
    broker: EmbeddedBroker,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> list[Child]:
    """Create the topics and start an acker and a replay worker on them."""
    environ = {**environ, BOOTSTRAP: broker.bootstrap}
    for line in provision.create_topics(load(options.config, environ)):
        say(line)
    children = [
        stack.enter_context(
            Child(kind, options.config, log=broker.directory / f"{kind}.log", environ=environ)
        )
        for kind in KINDS
    ]
    for child in children:
        child.wait_ready()
        say(f"{child.kind} is ready (process {child.pid}, log {child.log})")
    return children


def _first_to_end(broker: EmbeddedBroker, children: list[Child]) -> str:
    """Sleep until one of the processes ends, and say which and how."""
    pids: dict[int | None, Callable[[], str]] = {child.pid: child.obituary for child in children}
    pids[broker.pid] = broker.obituary
    with ExitStack() as stack:
        watched = {}
        for pid, obituary in pids.items():
            if pid is None:
                return obituary()
            descriptor = os.pidfd_open(pid)
            stack.callback(os.close, descriptor)
            watched[descriptor] = obituary
        ended, _, _ = select.select(list(watched), [], [])
        return watched[ended[0]]()


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Raise `Interrupted` in the main thread at the first SIGINT or SIGTERM; the second ends it at once.

    Nothing has to be cleaned up then: every process that was started dies with this one.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    previous = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
