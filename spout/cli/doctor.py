"""The command ``windhover doctor``: what is wrong with an installation, each with a code and a cure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spout.cli.common import DEFAULT_CONFIG, FOUND, Config, loaded, wall_ms
from spout.inspect.tables import As, OutputFormat, encoded, printable

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from spout.doctor.codes import CheckResult


class Only(StrEnum):
    """A part of the checks."""

    FILES = "files"
    LIVE = "live"


Pre = Annotated[
    bool, typer.Option("--pre", help="Before installing: Python, platform and Java alone; no topics.yaml.")
]
OnlyPart = Annotated[
    Only | None, typer.Option("--only", help="Machine and files alone, or the broker alone; default: both.")
]
RoleName = Annotated[
    str | None, typer.Option("--role", help="Whose user this is: a right that the role lacks is a failure.")
]
Doubts = Annotated[
    bool, typer.Option("--exit-code", help="End with 5 if nothing failed, but there is a warning or a doubt.")
]


def doctor(
    pre: Pre = False,
    only: OnlyPart = None,
    role: RoleName = None,
    exit_code: Doubts = False,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Check machine, files and broker, and print what is wrong, with a code and a cure. Changes nothing."""
    from spout.doctor.codes import CheckHealth, closing_line

    results = []
    for each in _results(pre, only, role, config):
        results.append(each)
        if output is OutputFormat.TABLE:
            typer.echo("\n".join(printable(line) for line in each.lines()))
    if output is not OutputFormat.TABLE:
        typer.echo(encoded([each.row() for each in results], output).rstrip("\n"))
    typer.echo(closing_line(results), err=output is not OutputFormat.TABLE)
    found = {each.health for each in results}
    if CheckHealth.FAILED in found:
        return 1
    return FOUND if exit_code and found != {CheckHealth.OK} else 0


def _results(pre: bool, only: Only | None, role: str | None, config: Path) -> Iterator[CheckResult]:
    """Check one part after the other; each is imported in its turn, so that the first result comes soon."""
    if only is not Only.LIVE:
        from spout.doctor.machine import judge_machine, machine_facts

        yield from judge_machine(machine_facts(os.environ))
    if pre:
        return
    topics, problem = _read(config)
    if only is not Only.LIVE or topics is None:
        from spout.doctor.files import file_facts, judge_files

        yield from judge_files(file_facts(config, topics, problem, os.environ, [os.getcwd(), *sys.path]))
    if only is not Only.FILES and topics is not None:
        from acker.provisioning.roles import Role
        from spout.doctor.broker import BrokerProbe
        from spout.doctor.live import judge_live

        if role is not None and role not in set(Role):
            raise typer.BadParameter(f"--role {role}: there is none; the roles are {', '.join(Role)}")
        facts = BrokerProbe(topics, wall_ms).facts(str(config))
        yield from judge_live(facts, topics, None if role is None else Role(role))


def _read(config: Path) -> tuple[Topics | None, str]:
    """Return topics.yaml, or None and what is wrong with it."""
    from acker.errors import ConfigError, UsageError

    try:
        return loaded(config), ""
    except (ConfigError, UsageError) as error:
        return None, str(error)
