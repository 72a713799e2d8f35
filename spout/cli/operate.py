"""The commands of an operator: ``windhover release`` and ``windhover offsets reset``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from spout.cli.common import DEFAULT_CONFIG, Config, Execute, opened, say, wall_ms

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from acker.kafka.port import Log
    from acker.service.freeing import Claim
    from spout.inspect.operate import GroupSession, Move

offsets_app = typer.Typer(help="Move the offsets at which a group begins.", no_args_is_help=True)
acker_app = typer.Typer(help="Ackers: give each root its verdict.", no_args_is_help=True)

To = Annotated[
    str,
    typer.Option(
        "--to",
        help="earliest, latest, an offset, a time such as 2026-07-01T00:00:00Z, or 24h for so long"
        " ago. An offset that a partition does not hold becomes the nearest that it holds, and the"
        " output says so.",
    ),
]
Partition = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        min=0,
        help="Only this partition; the others stay where they are. It may be given several times.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the group even from a query that lives. It stops, and its open records are replayed.",
    ),
]

WithoutStore = Annotated[
    bool,
    typer.Option(
        "--without-store",
        help="Take a group that is written exactly once, though its store is not opened: what is"
        " open may be in the store already, and is written again.",
    ),
]


def release(
    group: Annotated[str, typer.Argument(help="A group of topics.yaml.")],
    config: Config = DEFAULT_CONFIG,
    take_over: TakeOver = False,
    without_store: WithoutStore = False,
) -> int:
    """Take a group over without a successor: its open roots are replayed."""
    with opened(config, "release") as (topics, log):
        from spout.inspect.operate import run_to_end

        session = _group_session(
            log, topics, group, "release", take_over=take_over, without_store=without_store
        )
        run_to_end(session, wall_ms)
    say(f"group {group} is released; {_NEXT}")
    return 0


@offsets_app.command("reset")
def offsets_reset(
    name: Annotated[str, typer.Argument(metavar="INPUT", help="An input of topics.yaml, by its name.")],
    to: To,
    config: Config = DEFAULT_CONFIG,
    partition: Partition = None,
    execute: Execute = False,
    take_over: TakeOver = False,
    without_store: WithoutStore = False,
) -> int:
    """Let an input begin at another place; offsets from there on are emitted. Safe with open trees."""
    place, at_ms = _parsed_place(to)  # `at_ms` None: it is no time
    with opened(config, "offsets-reset") as (topics, log):
        from spout.inspect.operate import moves_of_rewind, run_to_end, tracked_input

        moved_input = tracked_input(topics, name)
        planned_moves = moves_of_rewind(log, moved_input, place, at_ms=at_ms, partitions=partition or ())
        for move in planned_moves:
            say(str(move))
        say(_IDENTITY)
        if not execute:
            say("nothing was changed; with --execute it is done")
            return 0
        session = _group_session(
            log,
            topics,
            moved_input.group,
            "offsets reset",
            rewind=planned_moves,
            take_over=take_over,
            without_store=without_store,
        )
        run_to_end(session, wall_ms)
    say(f"input {name} is reset; {_NEXT}")
    return 0


@acker_app.command("free")
def acker_free(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT]", help="An input of topics.yaml. Another group has its id."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Free all ids that this group has, and that topics.yaml does not give to it.",
        ),
    ] = None,
    execute: Execute = False,
    without_store: WithoutStore = False,
) -> int:
    """Show which input ids a group has without a right to them; with --execute, free them."""
    if (name is None) == (group is None):
        raise typer.BadParameter("give an INPUT, or --group GROUP")
    with opened(config, "acker-free") as (topics, log):
        from acker.service.freeing import Freeing
        from spout.inspect.operate import tracked_input

        # 1. the claims: a claim is an id that a group has, by the ackers' State, without a right to it
        rightful_group_by_id = {input.id: input.group for input in topics.inputs.values()}
        # None: all ids that `group` has
        chosen_id = None if name is None else tracked_input(topics, name).id

        def is_to_free(input_id: int, holder: str) -> bool:
            """Return whether an id was chosen, and its holder, a group, has no right to it."""
            is_chosen = holder == group if chosen_id is None else input_id == chosen_id
            return is_chosen and rightful_group_by_id.get(input_id) != holder

        settings = topics.acker
        freeing = Freeing(log, topics.ack_topics, settings.partitions, settings.group, settings.limits)
        claims = freeing.read_claims(is_to_free)
        for claim in claims:
            say(str(claim))
        if not claims and group is None:
            say(f"no other group has the id of input {name}")
            return 0
        if not execute:
            say(
                "nothing was changed; with --execute the ackers forget these claims, and abandon the"
                " group's open roots; the next query that takes such an id gets it. The command"
                " needs the rights of an acker"
            )
            return 0
        # 2. with --execute
        if not without_store:
            _refuse_stores_of(claims)
        changed_count = freeing.free(is_to_free, claims, () if group is None else (group,))
    say(
        f"{changed_count} acker partitions are changed; ackers that run take them up again within"
        " some seconds. Start the query of each input now, with a fresh checkpoint"
    )
    return 0


def _refuse_stores_of(claims: Iterable[Claim]) -> None:
    """Raise `SessionRefused` if a group that is written exactly once has roots open under an id.

    The store may have their rows already, and nobody would publish that.
    """
    from acker.errors import SessionRefused
    from acker.untrusted import UntrustedName
    from spout.planning.session import SessionName

    for claim in claims:
        if claim.owner is None or not claim.open_roots:
            continue
        session = SessionName(claim.owner.epoch, claim.owner.id)
        if session.has_store:
            raise SessionRefused(
                f"group {UntrustedName(claim.group)} is of session {session}, which writes exactly once"
                f" into a store, and {claim.open_roots} roots of input id {claim.input_id} are open. The"
                " store may have them already, and they would be abandoned: nothing is freed. If"
                " the group is yours, give it the input in topics.yaml again, and let its query"
                " run to an end (spout.exact_sink, availableNow). If it is a stranger's, or the"
                " store is gone, add --without-store"
            )


_IDENTITY = (
    "records that are emitted again keep their origin and their record_id. If the topic was created"
    " again, or its log was cut, or it is on another cluster, new records have the origins of old"
    " ones: an upsert by message_id.record_id keeps both rows, an upsert by message_id.origin"
    " replaces the old one"
)

_NEXT = (
    "start its query with a fresh checkpoint, or from the old one with spout.read_stream(..., take_over=True)"
)


def _parsed_place(to: str) -> tuple[str | int, int | None]:
    """Return the place that ``--to`` names, and its wall time in ms; None: it is not a time.

    "latest" is ("latest", None), "42" is (42, None), and "24h" is ("24h", the time a day ago).
    Raises `BadParameter`: it is none of these.
    """
    from acker.units import past_ms

    if to in ("earliest", "latest"):
        return to, None
    if to.isascii() and to.isdigit():
        return int(to), None
    try:
        return to, past_ms(to, wall_ms())
    except ValueError as error:
        raise typer.BadParameter(
            f"--to {to}: {error}; give earliest, latest, an offset, a time such as"
            " 2026-07-01T00:00:00Z, or 24h for so long ago"
        ) from error


def _group_session(
    log: Log,
    topics: Topics,
    group: str,
    command: str,
    *,
    take_over: bool,
    without_store: bool,
    rewind: Sequence[Move] = (),
) -> GroupSession:
    """Return the session that a command begins to take a group; it is not taken yet.

    Prints on stderr what it waits for, such as the group's owner.

    Args:
        take_over: also from a query that lives.
        without_store: also from a query that writes exactly once, whose store the command does not open.
        rewind: partitions that begin a new generation.
    """
    from spout.group.presence import Who
    from spout.inspect.operate import GroupSession

    def report(event: str, fields: Mapping[str, object]) -> None:
        """Print an event of the session with its fields, by name."""
        fields_text = ", ".join(f"{name} {value}" for name, value in fields.items())
        say(f"{event}: {fields_text}", err=True)

    return GroupSession(
        log,
        topics,
        group,
        new_id=uuid.uuid4().hex[:16],  # the id of this session
        rewind=rewind,
        take_over=take_over,
        without_store=without_store,
        who=Who.here(f"windhover {command}", wall_ms()),
        report=report,
    )
