"""What several commands share: options, the file and its cluster, times, and who runs them."""

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
    """Record which topics.yaml a command has, and return it.

    An error of the command then names the file in the commands that it proposes.
    """
    # without a list nobody prints the command's errors, as when a shell completes a line
    if isinstance(context.obj, list):
        context.obj.append(not_default(config))
    return config


Config = Annotated[Path, typer.Option("--config", help="A topics.yaml.", callback=_name_file)]
File = Annotated[Path, typer.Argument(help="A topics.yaml.", show_default=True, callback=_name_file)]
Execute = Annotated[bool, typer.Option("--execute", help="Do it. Without this option nothing changes.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="End with 5 if the list has an entry.")]


_log = logging.getLogger(__name__)


def not_default(config: Path) -> Path | None:
    """Return the topics.yaml that a proposed command has to name; None: it is the default one."""
    return None if config == DEFAULT_CONFIG else config


def loaded(config: Path, warn: Callable[[str], None] = _log.warning) -> Topics:
    """Load a topics.yaml with this process's environment.

    `warn` gets a line for each key that has no meaning any more.
    """
    from acker.config.topics import load_topics

    return load_topics(config, os.environ, warn)


def named_role(role: str | None) -> Role | None:
    """Return the role that ``--role`` names; None: the option was left out.

    Raises `BadParameter`: there is no such role.
    """
    if role is None:
        return None
    from acker.provisioning.roles import Role

    if role not in set(Role):
        raise typer.BadParameter(f"--role {role}: there is none; the roles are {', '.join(Role)}")
    return Role(role)


@contextmanager
def opened(config: Path, command: str) -> Iterator[tuple[Topics, KafkaLog]]:
    """Load a topics.yaml and connect to its cluster, as long as the context lasts.

    First it prints on a terminal which brokers are asked: Kafka's client takes a moment to load,
    and a broker that is away makes a command wait for half a minute. So a command imports what is
    slow to load inside the context. At the end, records that could not be read are named on stderr.
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
            notes = []
            for run in log.passed_over():  # neighbouring records with one reason
                phrase = unreadable_kind(run.why).phrase
                notes.append(f"not read is {run}: the record {phrase} ({Untrusted(run.why)})")
            print_notes(notes, config)


def parse_time(option: str, text: str | None, now_ms: int) -> int | None:
    """Parse a time, or a duration before now, into wall time in ms; None: the option was left out.

    Raises `BadParameter`, which names the option: the text is neither.
    """
    from acker.errors import UsageError
    from acker.units import named_past_ms

    try:
        return None if text is None else named_past_ms(option, text, now_ms)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


def parse_duration(option: str, text: str, such_as: str = "10s or 5m") -> int:
    """Parse a duration into ms; `BadParameter`, with the examples `such_as`: the text is none."""
    from acker.units import duration_ms

    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text}: {error}; give {such_as}") from error


def say(line: str, *, err: bool = False) -> None:
    """Print one line; a line break or a command for the terminal in it is printed as an escape.

    `err`: on stderr.
    """
    output = sys.stderr if err else sys.stdout
    typer.echo(as_written(sentence_line(line), output.encoding), err=err)


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines as `say` does."""
    for line in lines:
        say(line, err=err)


def print_notes(notes: Iterable[str], config: Path) -> None:
    """Print notes on what is unknown on stderr, so that stdout has only rows.

    Commands in the notes name the topics.yaml, unless it is the default one.
    """
    from spout.inspect.tables import with_configs

    for note in notes:
        say(f"note: {with_configs(note, not_default(config))}", err=True)


def when_fenced_workers_go_on(topics: Topics) -> str:
    """Return when replay workers that this command has fenced go on: "at most 11 s from now"."""
    fenced_s = topics.replay.limits.fenced_pause_ms // 1_000
    return f"at most {fenced_s + 1} s from now"


def wall_ms() -> int:
    """Return the wall time in ms."""
    return time.time_ns() // 1_000_000


def system_user() -> str:
    """Return who runs this process: ``system user ann``, or the number of a user without a name."""
    try:
        return f"system user {getpass.getuser()}"
    except (KeyError, OSError):  # in a container a user may have no name
        return f"system user {os.getuid()}"
