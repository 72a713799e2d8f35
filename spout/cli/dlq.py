"""The commands ``windhover dlq``: list dead letters, show one, count them, replay them or drop them."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spout.cli.common import (
    DEFAULT_CONFIG,
    FOUND,
    INTERRUPTED,
    Config,
    Execute,
    ExitCode,
    not_default,
    opened,
    parse_duration,
    parse_time,
    print_notes,
    say,
    system_user,
    wall_ms,
)
from spout.inspect.tables import As, OutputFormat, print_encoded, with_configs, write

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from acker.kafka.port import Log
    from replay.handling.redrive import Redrive, RedriveLimits, RedriveProgress
    from replay.records.letters import Filter, LetterAction
    from spout.questions.letters import LetterPicture

PROGRESS_EVERY_MS: Final = 5_000
"""How often a running command reports its progress."""

_STDERR: Final = 2

dlq_app = typer.Typer(help="Dead letters: what died, why, and how to emit it again.", no_args_is_help=True)

Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="PLACE…", help="Letters, by their place or their origin (sentences/3@1042)."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "--topic", help="An input by its name, topic or dead-letter topic."),
]
Error = Annotated[
    str | None,
    typer.Option("--error", "--cause", help="Class of the last error, or FAILED, TIMED_OUT, ABANDONED."),
]
Operator = Annotated[str | None, typer.Option(help="The bolt that failed it last.")]
Reason = Annotated[
    str | None,
    typer.Option(
        "--dead", "--reason", help="Why it was given up: ATTEMPTS, ABANDONED, GONE, …; in any case."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="The record's key as it is shown: %FF for a byte, null for no key."),
]
Since = Annotated[
    str | None,
    typer.Option(help="Died at this time or later: 2026-07-01T00:00:00Z; 2h: two hours ago."),
]
Until = Annotated[str | None, typer.Option(help="Died before this time.")]
All = Annotated[bool, typer.Option("--all", help="Show letters that were replayed or dropped before, too.")]
Again = Annotated[
    bool, typer.Option("--again", help="Show letters that were replayed or dropped before, too.")
]
By = Annotated[str | None, typer.Option("--by", help="Who does it; default: the system's user.")]
Why = Annotated[str, typer.Option("--why", help="The reason; it is kept with the letters.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Letters shown at most.")]
AtOnce = Annotated[
    int | None,
    typer.Option(
        "--at-once",
        min=1,
        help="How many letters may be open at once; others wait. Default: 1,000.",
    ),
]
DiedMax = Annotated[
    int | None,
    typer.Option("--max-died", min=1, help="Stop when so many letters have died again. Default: 10."),
]
Wait = Annotated[str, typer.Option(help="At the end, wait at most so long for the last verdicts: 5m.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.001, help="Letters a second at most.")]


@dlq_app.command("list")
def dlq_list(
    places: Places = None,
    inputs: Inputs = None,
    cause: Error = None,
    operator: Operator = None,
    reason: Reason = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    with_handled: All = False,
    limit: Limit = 100,
    exit_code: ExitCode = False,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """List dead letters, the latest last; letters that were handled before are left out."""
    with opened(config, "dlq") as (topics, log):
        from spout.inspect.letter_rows import LIST, hexadecimal_note

        letter_filter = _filter(cause, operator, reason, key, since, until, handled=with_handled)
        log.share_deadline()
        with _letters_read(topics, log, inputs, places, letter_filter) as letters:
            rows = letters.rows(limit)
        why_none: list[str] = []  # notes that may explain why there is no letter
        if not letters.total:
            why_none = [*_no_worker_notes(topics, log), *hexadecimal_note(key)]
    columns = LIST if with_handled else LIST[:-1]  # the last column says who has handled a letter
    write(rows, columns, output)
    _print_missing(letters, shown_count=len(rows))
    print_notes([*letters.left_unread, *why_none], config)
    return FOUND if exit_code and letters.total else 0


@dlq_app.command("show")
def dlq_show(places: Places = None, output: As = OutputFormat.TABLE, config: Config = DEFAULT_CONFIG) -> int:
    """Print all details of letters: every attempt, cause, headers, and the beginning of the payload."""
    if not places:
        raise typer.BadParameter("name a letter: sentences.word-count.dlq/0@17, or its origin")
    with opened(config, "dlq-show") as (topics, log):
        from spout.questions.letters import details_of

        log.share_deadline()
        details = details_of(log, topics, places)
    if output is not OutputFormat.TABLE:
        print_encoded(details, output)
        return 0
    for letter in details:
        _print_letter(letter)
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
    with_handled: All = False,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Count dead letters and dropped records by input, reason, error, operator, age and key."""
    with opened(config, "dlq") as (topics, log):
        from spout.inspect.letter_rows import STATS

        letter_filter = _filter(cause, operator, reason, key, since, until, handled=with_handled)
        letter_filter = replace(letter_filter, notes=True)  # to count dropped records, too
        # all questions from here on take the time of one at most
        log.share_deadline()
        with _letters_read(topics, log, inputs, places=None, letter_filter=letter_filter) as letters:
            rows = letters.counts(wall_ms())
        # without a match it may be that no worker lives to write letters
        notes_on_workers = [] if letters.total else _no_worker_notes(topics, log)
    write(rows, STATS, output)
    _print_missing(letters, shown_count=letters.total)
    print_notes([*letters.left_unread, *notes_on_workers], config)
    return 0


@dlq_app.command("replay")
def dlq_replay(
    places: Places = None,
    inputs: Inputs = None,
    cause: Error = None,
    operator: Operator = None,
    reason: Reason = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    again: Again = False,
    rate: Rate = None,
    at_once: AtOnce = None,
    died_max: DiedMax = None,
    wait: Wait = "0s",
    why: Why = "",
    by: By = None,
    execute: Execute = False,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Emit dead letters again, unchanged; their attempts are counted from 1 again."""
    from replay.handling.redrive import AT_ONCE, DIED_MAX, RedriveLimits
    from replay.records.letters import LetterAction

    # --again: letters that were handled before match, too
    letter_filter = _filter(cause, operator, reason, key, since, until, handled=again)
    limits = RedriveLimits(
        at_once=at_once or AT_ONCE,
        died_max=died_max or DIED_MAX,
        wait_ms=parse_duration("--wait", wait, "30s or 5m"),
    )
    return _handle_letters(
        LetterAction.REPLAYED,
        config,
        inputs,
        places,
        letter_filter=letter_filter,
        rate=rate,
        why=why,
        by=by,
        limits=limits,
        execute=execute,
    )


@dlq_app.command("drop")
def dlq_drop(
    places: Places = None,
    inputs: Inputs = None,
    cause: Error = None,
    operator: Operator = None,
    reason: Reason = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    rate: Rate = None,
    why: Why = "",
    by: By = None,
    execute: Execute = False,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Give dead letters up for good: they stay in their topic, marked with who did it and why."""
    from replay.records.letters import LetterAction

    if not why:
        cure = "say why they are given up, with --why; it is kept with each letter"
        raise typer.BadParameter(cure)
    return _handle_letters(
        LetterAction.DROPPED,
        config,
        inputs,
        places,
        letter_filter=_filter(cause, operator, reason, key, since, until, handled=False),
        rate=rate,
        why=why,
        by=by,
        execute=execute,
    )


@dlq_app.command("redrives")
def dlq_redrives(
    inputs: Inputs = None,
    since: Since = None,
    output: As = OutputFormat.TABLE,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """List who let letters be replayed or dropped, why, how it ended, and what became of the letters."""
    since_ms = parse_time("--since", since, wall_ms()) or 0
    with opened(config, "dlq-redrives") as (topics, log):
        from spout.inspect.dead_letters import inputs_named
        from spout.inspect.letter_rows import REDRIVES
        from spout.questions.redrives import redrive_rows

        log.share_deadline()
        rows = redrive_rows(log, topics, inputs_named(topics, inputs or ()), since_ms)
    write(rows, REDRIVES, output)
    if not rows:
        say("no redrive was found", err=True)
    return 0


@dlq_app.command("cancel")
def dlq_cancel(
    redrive: Annotated[str, typer.Argument(help="A redrive, as `dlq redrives` lists it.")],
    by: By = None,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Cancel a redrive that runs elsewhere; what it has emitted stays emitted."""
    with opened(config, "dlq-cancel") as (topics, log):
        from spout.inspect.dead_letters import cancel_everywhere

        names = cancel_everywhere(log, topics, redrive, by or system_user(), wall_ms())
    say(f"redrive {redrive} is cancelled: {', '.join(names)}")
    return 0


def _handle_letters(
    action: LetterAction,
    config: Path,
    inputs: Sequence[str] | None,
    places: Sequence[str] | None,
    *,
    letter_filter: Filter,
    rate: float | None,
    why: str,
    by: str | None,
    limits: RedriveLimits | None = None,
    execute: bool,
) -> int:
    """Replay or drop the letters that match, and return the exit code.

    Without `execute` print some of them, and change nothing. `limits` None: letters are dropped,
    and no limit applies to these. The other arguments are the options of the command.
    """
    from replay.handling.letter_handling import Order, RateLimit
    from replay.handling.redrive import Redrive, RedriveLimits
    from spout.inspect.dead_letters import carry_out, filters_of_inputs, inputs_named
    from spout.inspect.letter_rows import LIST

    if execute and not places and not inputs and letter_filter.is_everything:
        cure = "name places, --input, or a filter"
        raise typer.BadParameter(f"that means every letter of every input: {cure}")
    with opened(config, f"dlq-{action.lower()}") as (topics, log):
        # 1. without --execute: a sample
        if not execute:
            with _letters_read(topics, log, inputs, places, letter_filter) as letters:
                sample = letters.sample()
            write(sample, LIST[:-1], OutputFormat.TABLE)
            _print_missing(letters, shown_count=len(sample))
            print_notes(letters.left_unread, config)
            matching_text = _letter_count(letters.total)
            say(f"{matching_text} would be {action.lower()}; with --execute it is done")
            return 0
        # 2. with --execute: a redrive, which Ctrl-C cancels
        redrive_name = uuid.uuid4().hex[:8]
        redrive = Redrive(
            log,
            topics,
            filters_of_inputs(inputs_named(topics, inputs or ()), places or (), letter_filter),
            Order(action, letter_filter, by or system_user(), why, redrive_name),
            RateLimit(rate, wall_ms()),
            limits or RedriveLimits(),
        )
        with _cancelled_by_interrupt(redrive):
            outcome = carry_out(
                redrive,
                clock=wall_ms,
                sleep_ms=lambda wait_ms: time.sleep(wait_ms / 1000),
                progress=_progress_printer(),
            )
    waits = limits is not None and limits.wait_ms > 0
    return print_end_of_redrive(redrive_name, action, outcome, config, waits=waits)


def print_end_of_redrive(
    name: str, action: LetterAction, outcome: RedriveProgress, config: Path, *, waits: bool
) -> int:
    """Print how a redrive ended, and return the exit code.

    `name` is the redrive's, `waits` whether it waited for what becomes of its letters. Raises
    `CheckFailed`: it stopped by itself; or it waited, and some letters died again.
    """
    from acker.errors import CheckFailed
    from replay.handling.outcomes import LetterOutcome
    from replay.handling.redrive import outcome_text
    from replay.records.letters import LetterAction
    from replay.records.redrives import RedriveEnd

    # 1. what was done, and what was left
    outcomes = outcome_text(outcome.outcomes)  # such as "4 acked, 1 died again"
    say(f"{_letter_count(outcome.handled_count)} {action.lower()}")
    if outcome.handled_count and action is LetterAction.REPLAYED:
        text = f"redrive {name}: {outcomes}; see `windhover dlq redrives`"
        say(with_configs(text, not_default(config)), err=True)
    for why_not, count in outcome.left_by_why.items():
        say(f"{count:,} left as they are: {why_not}")
    if outcome.left_out_count:
        say(f"{outcome.left_out_count:,} more match; repeat the command")
    # 2. whether it ended well
    if outcome.end is RedriveEnd.DIED_AGAIN:
        raise CheckFailed(
            f"redrive {name} stopped: {outcomes}. Repair what fails them, and repeat the command;"
            " --max-died raises the limit"
        )
    if outcome.end is RedriveEnd.STALLED:
        raise CheckFailed(
            f"redrive {name} stopped: {outcomes}, and none was settled for long. See `windhover status`;"
            " --at-once raises how many may be open"
        )
    if waits and outcome.end is not RedriveEnd.CANCELLED and outcome.outcomes[LetterOutcome.DIED]:
        cure = "`windhover dlq list` has those that died again"
        raise CheckFailed(f"redrive {name}: {outcomes}; {cure}")
    return INTERRUPTED if outcome.end is RedriveEnd.CANCELLED else 0


@contextmanager
def _cancelled_by_interrupt(redrive: Redrive) -> Iterator[None]:
    """Cancel a redrive at the first Ctrl-C, between transactions; a second one ends the process."""
    # Python lets only the main thread set a handler of signals
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(_number: int, _frame: object) -> None:
        redrive.cancel()
        signal.signal(signal.SIGINT, former_handler)
        note = b"cancelled as soon as this transaction is written; Ctrl-C ends it at once\n"
        # print may be what the signal interrupts, and must not be called again inside itself
        os.write(_STDERR, note)

    former_handler = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former_handler)


def _filter(*texts: str | None, handled: bool) -> Filter:
    """Return a filter by options: error, operator, reason, key, since and until, in this order.

    `handled`: letters that were replayed or dropped before match, too. Raises `BadParameter`: a
    text means nothing.
    """
    from acker.errors import UsageError
    from spout.inspect.dead_letters import parse_filter

    names = ("error", "operator", "reason", "key", "since", "until")
    texts_by_name = dict(zip(names, texts, strict=True))
    try:
        return parse_filter(texts_by_name, wall_ms(), handled=handled, option="--")
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


def _letter_count(count: int) -> str:
    """Return a number of letters in words."""
    return "1 letter" if count == 1 else f"{count:,} letters"


def _print_missing(letters: LetterPicture, *, shown_count: int) -> None:
    """Print on stderr what the output leaves out, so that stdout has only rows."""
    hidden_count = letters.total - shown_count
    if not letters.total:
        say("no dead letter matches", err=True)
    if hidden_count:
        say(f"{hidden_count:,} more are not shown; see --limit", err=True)
    if letters.other_records_text:
        say(letters.other_records_text, err=True)


def _no_worker_notes(topics: Topics, log: Log) -> list[str]:
    """Return a note that no replay worker lives, so that nobody writes letters; empty: one does."""
    from spout.inspect.overview import missing_members

    return missing_members(log, topics, topics.acker.replay_group)


def _progress_printer() -> Callable[[RedriveProgress], None]:
    """Return a function that prints a redrive's progress, at most every `PROGRESS_EVERY_MS`."""
    printed_ms = wall_ms()

    def print_progress(progress: RedriveProgress) -> None:
        nonlocal printed_ms
        if abs(wall_ms() - printed_ms) >= PROGRESS_EVERY_MS:  # the clock may be set back
            printed_ms = wall_ms()
            say(str(progress), err=True)

    return print_progress


def _print_letter(letter: dict[str, Any]) -> None:
    """Print the details of a letter, a line for each, and behind them its history as a table."""
    from spout.inspect.letter_rows import HISTORY, bytes_text, field_text

    # these have lines of their own below; the headers in `windhover` are in JSON alone
    shown_apart = ("stack", "history", "headers", "windhover")
    for name, value in letter.items():
        # empty values are left out; an empty key or payload is shown
        is_shown = value not in ("", 0) or name in ("key", "payload")
        if name not in shown_apart and is_shown:
            say(f"{name.replace('_', ' '):>14}  {field_text(letter, name)}")
    for header in letter["headers"]:
        say(f"{'header':>14}  {header['name']}: {bytes_text(header['value'])}")
    for line in letter["stack"].splitlines():
        say(f"{'stack':>14}  {line}")
    write(letter["history"], HISTORY, OutputFormat.TABLE)


def _letters_read(
    topics: Topics,
    log: Log,
    inputs: Sequence[str] | None,
    places: Sequence[str] | None,
    letter_filter: Filter,
) -> AbstractContextManager[LetterPicture]:
    """Read the letters that match a filter, of some inputs and at some places.

    `inputs` None: of all inputs; `places` None: at any place.
    """
    from spout.inspect.dead_letters import filters_of_inputs, inputs_named
    from spout.questions.letters import letters_read

    filters = filters_of_inputs(inputs_named(topics, inputs or ()), places or (), letter_filter)
    return letters_read(log, topics, filters)
