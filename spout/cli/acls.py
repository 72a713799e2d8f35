"""The command ``windhover acls``: what each role must be allowed to do at the broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spout.cli.operate import DEFAULT_CONFIG

if TYPE_CHECKING:
    from acker.provisioning.roles import Role


def acls(
    file: Annotated[Path, typer.Argument(help="A topics.yaml.", show_default=True)] = DEFAULT_CONFIG,
    role: Annotated[
        str | None,
        typer.Option(help="operator, acker, replay, spout, observer or keeper; default: all of them."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Of the inputs, only those of this group.")] = None,
    principal: Annotated[
        str | None, typer.Option(help="Print the commands that grant it all, to this User:name.")
    ] = None,
) -> int:
    """Print the rights that each role needs, as lists or as commands. The broker is not contacted."""
    from acker.config.topics import load
    from acker.provisioning.roles import commands, rights, rights_text

    topics = load(file, os.environ)
    roles = _roles(role)
    if group is not None and not topics.inputs_of(group):
        groups = ", ".join(sorted({each.group for each in topics.inputs.values()})) or "none"
        raise typer.BadParameter(f"--group {group}: no input has it; the groups are {groups}")
    for each in roles:
        needed = rights(topics, each, group)
        if principal is None:
            shown = [f"{each}:", *(f"  {line}" for line in rights_text(needed))]
        else:
            shown = list(commands(needed, principal, topics.kafka.get("bootstrap.servers", "")))
        typer.echo("\n".join(shown))
    return 0


def _roles(name: str | None) -> list[Role]:
    from acker.provisioning.roles import Role

    if name is None:
        return list(Role)
    if name not in set(Role):
        raise typer.BadParameter(f"--role {name}: there is none; the roles are {', '.join(Role)}")
    return [Role(name)]
