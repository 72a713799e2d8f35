"""The commands of an operator: ``windhover release`` and ``windhover offsets reset``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from spout.cli.common import DEFAULT_CONFIG, Config, Execute, opened, say, wall_ms

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from acker.kafka.port import Log
    from spout.inspect.operate import GroupSession, Move

offsets_app = typer.Typer(help="Where a group stands.", no_args_is_help=True)

To = Annotated[
    str,
    typer.Option(
        "--to",
        help="earliest, latest, an offset, a time such as 2026-07-01T00:00:00Z, or 24h for so long ago. An"
        " offset that a partition does not hold becomes the nearest that it holds, and the output says so.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the group even from a query that lives; it stops, and what it has open is replayed.",
    ),
]


def release(
    group: Annotated[str, typer.Argument(help="A group of topics.yaml.")],
    config: Config = DEFAULT_CONFIG,
    take_over: TakeOver = False,
) -> int:
    """Take a group over without a successor: its open roots are replayed."""
    with opened(config, "release") as (topics, log):
        from spout.inspect.operate import run_to_end

        run_to_end(_operation(log, topics, group, "release", take_over=take_over), wall_ms)
    say(f"group {group} is released; {_NEXT}")
    return 0


@offsets_app.command("reset")
def offsets_reset(
    name: Annotated[str, typer.Argument(metavar="INPUT", help="An input of topics.yaml, by its name.")],
    to: To,
    config: Config = DEFAULT_CONFIG,
    execute: Execute = False,
    take_over: TakeOver = False,
) -> int:
    """Let an input begin at another place; offsets from there on are emitted. Safe with open trees."""
    place, at_ms = _place(to)
    with opened(config, "offsets-reset") as (topics, log):
        from spout.inspect.operate import moves, run_to_end, tracked_input

        found = tracked_input(topics, name)
        plan = moves(log, found, place, at_ms=at_ms)
        for move in plan:
            say(str(move))
        say(_IDENTITY)
        if not execute:
            say("nothing was changed; with --execute it is done")
            return 0
        operation = _operation(log, topics, found.group, "offsets reset", rewind=plan, take_over=take_over)
        run_to_end(operation, wall_ms)
    say(f"input {name} is reset; {_NEXT}")
    return 0


_IDENTITY = (
    "what is emitted again keeps its origin and its record_id. Where the topic was created again, is another"
    " cluster's, or was cut, new records have origins of old ones: an upsert by message_id.record_id keeps"
    " both rows, one by message_id.origin replaces the old"
)

_NEXT = (
    "start its query with a fresh checkpoint, or from the old one with spout.read_stream(..., take_over=True)"
)


def _place(to: str) -> tuple[str | int, int | None]:
    """Parse the place: a name or an offset; otherwise the text, and its wall time in ms."""
    from acker.units import past_ms

    if to in ("earliest", "latest"):
        return to, None
    if to.isascii() and to.isdigit():
        return int(to), None
    try:
        return to, past_ms(to, wall_ms())
    except ValueError as error:
        raise typer.BadParameter(
            f"--to {to}: {error}; give earliest, latest, an offset, a time such as 2026-07-01T00:00:00Z, or"
            " 24h for so long ago"
        ) from error


def _operation(
    log: Log, topics: Topics, group: str, command: str, *, take_over: bool, rewind: Sequence[Move] = ()
) -> GroupSession:
    """Return the operation of a command; it reports on stderr the group's owner that it waits for."""
    from spout.group.presence import Who
    from spout.inspect.operate import GroupSession

    def report(event: str, fields: Mapping[str, object]) -> None:
        say(f"{event}: {', '.join(f'{name} {value}' for name, value in fields.items())}", err=True)

    return GroupSession(
        log,
        topics,
        group,
        new_id=uuid.uuid4().hex[:16],
        rewind=rewind,
        take_over=take_over,
        who=Who.here(f"windhover {command}", wall_ms()),
        report=report,
    )
