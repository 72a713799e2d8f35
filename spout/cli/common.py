"""What several commands share: options, the file and its cluster, times, and who runs the command."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acker.terminal import as_written
from acker.untrusted import sentence_line

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from acker.kafka.cluster import KafkaLog
    from acker.provisioning.roles import Role


DEFAULT_CONFIG: Final = Path("topics.yaml")

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""

FOUND: Final = 5
"""The exit code where the condition of ``--exit-code`` is true."""


def _name_file(context: typer.Context, config: Path) -> Path:
    """Let what the command raises name the file in the commands that it says to type next."""
    if isinstance(context.obj, list):  # else nobody prints its errors: a shell that completes, for one
        context.obj.append(not_default(config))
    return config


Config = Annotated[Path, typer.Option("--config", help="A topics.yaml.", callback=_name_file)]
File = Annotated[Path, typer.Argument(help="A topics.yaml.", show_default=True, callback=_name_file)]
Execute = Annotated[bool, typer.Option("--execute", help="Do it. Without this option nothing changes.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="End with 5 if the list has an entry.")]


_log = logging.getLogger(__name__)


def not_default(config: Path) -> Path | None:
    """Return the topics.yaml that a command to copy has to name; None: the default one."""
    return None if config == DEFAULT_CONFIG else config


def loaded(config: Path, warn: Callable[[str], None] = _log.warning) -> Topics:
    """Load a topics.yaml with this process's environment; `warn` gets what means nothing any more."""
    from acker.config.topics import load_topics

    return load_topics(config, os.environ, warn)


def named_role(role: str | None) -> Role | None:
    """Return the role of an option ``--role``, None without one; `BadParameter`: there is no such role."""
    if role is None:
        return None
    from acker.provisioning.roles import Role

    if role not in set(Role):
        raise typer.BadParameter(f"--role {role}: there is none; the roles are {', '.join(Role)}")
    return Role(role)


@contextmanager
def opened(config: Path, command: str) -> Iterator[tuple[Topics, KafkaLog]]:
    """Load a topics.yaml and connect to its cluster, as long as the context lasts.

    On a terminal it says first which brokers are asked: what asks them takes a moment to load, and a broker
    that is away lets a command wait for half a minute. So what is heavy is imported inside the context.
    """
    topics = loaded(config)
    if sys.stderr.isatty():
        say(f"asking {topics.kafka.get('bootstrap.servers', 'no broker')} ...", err=True)
    from acker.errors import unreadable_kind
    from acker.kafka.cluster import KafkaLog
    from acker.untrusted import Untrusted

    process = f"{socket.gethostname()}-{os.getpid()}"
    with closing(KafkaLog(topics.kafka, client_id=f"windhover-{command}", process=process)) as log:
        try:
            yield topics, log
        finally:
            notes = [
                f"not read is {run}: the record {unreadable_kind(run.why).phrase} ({Untrusted(run.why)})"
                for run in log.passed_over()
            ]
            print_notes(notes, config)


def parse_time(option: str, text: str | None, now_ms: int) -> int | None:
    """Parse a time, or a duration before now; None without a text."""
    from acker.errors import UsageError
    from acker.units import named_past_ms

    try:
        return None if text is None else named_past_ms(option, text, now_ms)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


def parse_duration(option: str, text: str, such_as: str = "10s or 5m") -> int:
    from acker.units import duration_ms

    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text}: {error}; give {such_as}") from error


def say(line: str, *, err: bool = False) -> None:
    """Print one line: where a text in it has a line break or a command for the terminal, an escape."""
    output = sys.stderr if err else sys.stdout
    typer.echo(as_written(sentence_line(line), output.encoding), err=err)


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        say(line, err=err)


def print_notes(notes: Iterable[str], config: Path) -> None:
    """Print on stderr what is not known, so that stdout has only rows."""
    from spout.inspect.tables import with_configs

    for note in notes:
        say(f"note: {with_configs(note, not_default(config))}", err=True)


def wall_ms() -> int:
    """Return wall time, for the services that a command runs."""
    return time.time_ns() // 1_000_000


def system_user() -> str:
    try:
        return f"system user {getpass.getuser()}"
    except (KeyError, OSError):  # a container may run under a number without a name
        return f"system user {os.getuid()}"
