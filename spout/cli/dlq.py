"""The commands ``windhover dlq``: list dead letters, show one, count them, replay them or drop them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spout.cli.common import (
    DEFAULT_CONFIG,
    FOUND,
    Config,
    Execute,
    ExitCode,
    opened,
    parse_time,
    system_user,
    wall_ms,
)
from spout.inspect.tables import As, OutputFormat, encoded, printable, write

if TYPE_CHECKING:
    from acker.config.settings import Input
    from acker.config.topics import Topics
    from acker.kafka.port import Log
    from replay.records.letters import Filter, LetterAction
    from spout.inspect.dead_letters import FoundLetters

PROGRESS_EVERY_MS: Final = 5_000
"""How often a running command reports its progress."""

dlq_app = typer.Typer(help="Dead letters: what died, why, and its second life.", no_args_is_help=True)

Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="PLACE…", help="FoundLetters, by their place or their origin (sentences/3@1042)."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "--topic", help="An input by its name, topic or dead-letter topic."),
]
Error = Annotated[
    str | None,
    typer.Option("--error", "--cause", help="Class of the last error; else FAILED, TIMED_OUT, ABANDONED."),
]
Operator = Annotated[str | None, typer.Option(help="The operator that failed it last.")]
Reason = Annotated[
    str | None,
    typer.Option(
        "--dead", "--reason", help="Why it was given up: ATTEMPTS, ABANDONED, GONE, …; in any case."
    ),
]
Key = Annotated[str | None, typer.Option(help="The record's key; 0x… for bytes that are no text.")]
Since = Annotated[
    str | None, typer.Option(help="Died at this time or later: 2026-07-01T00:00:00Z, or 2h for so long ago.")
]
Until = Annotated[str | None, typer.Option(help="Died before this time.")]
All = Annotated[bool, typer.Option("--all", help="Also those that were replayed or dropped before.")]
Again = Annotated[bool, typer.Option("--again", help="Also those that were replayed or dropped before.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it; default: the system's user.")]
Why = Annotated[str, typer.Option("--why", help="For what reason; it is kept.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="FoundLetters shown at most.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.001, help="FoundLetters a second at most.")]


@dlq_app.command("list")
def dlq_list(
    places: Places = None, inputs: Inputs = None, cause: Error = None, operator: Operator = None,
    reason: Reason = None, key: Key = None, since: Since = None, until: Until = None, all_: All = False,
    limit: Limit = 100, exit_code: ExitCode = False, output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:  # fmt: skip
    """List dead letters, the latest last; letters that were handled before are left out."""
    from spout.inspect.letter_rows import LIST, letter_row

    matching = _filter(cause, operator, reason, key, since, until, handled=all_)
    with opened(config, "dlq") as (topics, log):
        letters = _read(topics, log, inputs, places, matching)
    shown = letters.found[-limit:]
    columns = LIST if all_ else LIST[:-1]
    write([letter_row(found) for found in shown], columns, output)
    _print_missing(letters, len(letters.found) - len(shown))
    return FOUND if exit_code and letters.found else 0


@dlq_app.command("show")
def dlq_show(places: Places = None, output: As = OutputFormat.TABLE, config: Config = DEFAULT_CONFIG) -> int:
    """Print all details of letters: every attempt, cause, headers, and the beginning of the payload."""
    from acker.errors import UsageError
    from replay.records.letters import Filter
    from spout.inspect.dead_letters import records_of
    from spout.inspect.letter_rows import letter_details

    if not places:
        raise typer.BadParameter("name a letter: sentences.word-count.dlq/0@17, or its origin")
    with opened(config, "dlq-show") as (topics, log):
        limits = topics.replay.limits
        letters = _read(topics, log, None, places, Filter(handled=True))
        details = [letter_details(found, record) for found, record in records_of(log, letters.found, limits)]
    if not details:
        raise UsageError(f"no dead letter at {', '.join(places)}; see `windhover dlq list --all`")
    if output is not OutputFormat.TABLE:
        typer.echo(encoded(details, output).rstrip("\n"))
        return 0
    for one in details:
        _print_letter(one)
    return 0


@dlq_app.command("stats")
def dlq_stats(
    inputs: Inputs = None,
    cause: Error = None,
    operator: Operator = None,
    reason: Reason = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    all_: All = False,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Count dead letters by input, reason, error, operator, age and key."""
    from spout.inspect.letter_rows import STATS, stats_of

    matching = _filter(cause, operator, reason, key, since, until, handled=all_)
    with opened(config, "dlq") as (topics, log):
        letters = _read(topics, log, inputs, None, matching)
    write(stats_of(letters.found, wall_ms()), STATS, output)
    _print_missing(letters, 0)
    return 0


@dlq_app.command("replay")
def dlq_replay(
    places: Places = None, inputs: Inputs = None, cause: Error = None, operator: Operator = None,
    reason: Reason = None, key: Key = None, since: Since = None, until: Until = None, again: Again = False,
    rate: Rate = None, why: Why = "", by: By = None, execute: Execute = False,
    config: Config = DEFAULT_CONFIG,
) -> int:  # fmt: skip
    """Emit dead letters again, unchanged; their attempts are counted from 1 again."""
    from replay.records.letters import LetterAction

    matching = _filter(cause, operator, reason, key, since, until, handled=again)
    return _handle(LetterAction.REPLAYED, config, inputs, places, matching, rate, why, by, execute=execute)


@dlq_app.command("drop")
def dlq_drop(
    places: Places = None, inputs: Inputs = None, cause: Error = None, operator: Operator = None,
    reason: Reason = None, key: Key = None, since: Since = None, until: Until = None,
    rate: Rate = None, why: Why = "", by: By = None, execute: Execute = False,
    config: Config = DEFAULT_CONFIG,
) -> int:  # fmt: skip
    """Give dead letters up for good: they stay in their topic, marked with who did it and why."""
    from replay.records.letters import LetterAction

    if not why:
        raise typer.BadParameter("say why they are given up, with --why; it is kept with each letter")
    matching = _filter(cause, operator, reason, key, since, until, handled=False)
    return _handle(LetterAction.DROPPED, config, inputs, places, matching, rate, why, by, execute=execute)


def _handle(
    action: LetterAction, config: Path, inputs: Sequence[str] | None, places: Sequence[str] | None,
    matching: Filter, rate: float | None, why: str, by: str | None, *, execute: bool,
) -> int:  # fmt: skip
    from replay.handling.letter_handling import Order, RateLimit
    from spout.inspect.dead_letters import by_place, carry_out, inputs_named
    from spout.inspect.letter_rows import LIST, letter_row

    if execute and not places and not inputs and matching.is_everything:
        raise typer.BadParameter("that means every letter of every input: name places, --input, or a filter")
    with opened(config, f"dlq-{action.lower()}") as (topics, log):
        if not execute:
            letters = _read(topics, log, inputs, places, matching)
            write([letter_row(found) for found in letters.found[:_SHOWN]], LIST[:-1], OutputFormat.TABLE)
            _print_missing(letters, max(0, len(letters.found) - _SHOWN))
            typer.echo(f"{_many(len(letters.found))} would be {action.lower()}; with --execute it is done")
            return 0
        outcome = carry_out(
            log,
            topics,
            by_place(inputs_named(topics, inputs or ()), places or (), matching),
            Order(action, matching, by or system_user(), why),
            RateLimit(rate, wall_ms()),
            clock=wall_ms,
            sleep_ms=lambda wait_ms: time.sleep(wait_ms / 1000),
            progress=_progress(),
        )
    typer.echo(f"{_many(outcome.done)} {action.lower()}")
    for left, count in outcome.left.items():
        typer.echo(f"{count:,} left as they are: {left}")
    if outcome.left_out:
        typer.echo(f"up to {outcome.left_out:,} more match; repeat the command")
    return 0


_SHOWN: Final = 20
"""How many letters a dry run lists."""


def _filter(
    cause: str | None,
    operator: str | None,
    reason: str | None,
    key: str | None,
    since: str | None,
    until: str | None,
    *,
    handled: bool,
) -> Filter:
    from replay.policy.disposition import DeadReason
    from replay.records.letters import Filter
    from spout.inspect.letter_rows import parse_key

    now_ms = wall_ms()
    try:
        key_bytes = None if key is None else parse_key(key)
    except ValueError as error:
        raise typer.BadParameter(f"--key {key}: is no hexadecimal number; give text, or 0x6b6579") from error
    try:
        dead = None if reason is None else DeadReason(reason.upper())
    except ValueError as error:
        raise typer.BadParameter(f"--reason {reason}: is none; give {', '.join(DeadReason)}") from error
    return Filter(
        error=cause,
        operator=operator,
        dead=dead,
        key=key_bytes,
        since_ms=parse_time("--since", since, now_ms),
        until_ms=parse_time("--until", until, now_ms),
        handled=handled,
    )


def _many(count: int) -> str:
    return "1 letter" if count == 1 else f"{count:,} letters"


def _print_missing(letters: FoundLetters, hidden: int) -> None:
    """Print on stderr what is missing in the output, so that stdout has only rows."""
    if hidden:
        typer.echo(f"{hidden:,} more are not shown; see --limit", err=True)
    if letters.left_out:
        typer.echo(f"up to {letters.left_out:,} more match and were not kept: narrow the filter", err=True)
    if letters.others:
        typer.echo(f"{letters.others:,} records are no letters of Windhover's and are left alone", err=True)


def _progress() -> Callable[[int], None]:
    printed_ms = wall_ms()

    def progress(done: int) -> None:
        nonlocal printed_ms
        if wall_ms() - printed_ms >= PROGRESS_EVERY_MS:
            printed_ms = wall_ms()
            typer.echo(f"{done:,} so far", err=True)

    return progress


def _print_letter(one: dict[str, Any]) -> None:
    from spout.inspect.letter_rows import HISTORY

    lists = ("history", "headers", "windhover")
    for name, value in one.items():
        if name not in lists and value not in ("", 0):
            written = "unknown" if value is None else printable(str(value))
            typer.echo(f"{name.replace('_', ' '):>14}  {written}")
    for header in one["headers"]:
        typer.echo(f"{'header':>14}  {printable(header['name'])}: {printable(header['value'])}")
    write(one["history"], HISTORY, OutputFormat.TABLE)


def _read(
    topics: Topics, log: Log, inputs: Sequence[str] | None, places: Sequence[str] | None, matching: Filter
) -> FoundLetters:
    from spout.inspect.dead_letters import by_place, inputs_named, matching_letters

    meant: list[tuple[Input, Filter]] = by_place(inputs_named(topics, inputs or ()), places or (), matching)
    return matching_letters(log, meant, wait_ms=topics.replay.limits.operation_timeout_ms)
