"""The commands ``windhover sql`` and ``windhover picture``: what the topics say, in SQL."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from acker.errors import NoRoom, QueryRefused
from acker.terminal import as_written
from spout.cli.common import (
    DEFAULT_CONFIG,
    Config,
    not_default,
    opened,
    parse_time,
    say,
    wall_ms,
)
from spout.inspect.tables import Column, OutputFormat, with_configs, write

if TYPE_CHECKING:
    from spout.picture.database import Picture
    from spout.picture.query import Answer, Cell, Query

NULL: Final = "NULL"
"""How a table shows that there is no value, or that it is unknown: the column says which."""

PROMPT: Final = "windhover> "

GRACE_S: Final = 15.0
"""How long after its limit a query may go on; then the process is ended with it."""


_HELP: Final = (
    "A query ends with a semicolon, Ctrl-D ends all; `SELECT sql FROM sqlite_schema;` lists tables."
)

Sql = Annotated[str | None, typer.Argument(metavar="[QUERY]", help="In SQL; without it: a prompt")]
PictureFile = Annotated[
    Path | None, typer.Option("--picture", help="Ask a file of `windhover picture --out FILE`.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "--topic", help="An input by its name, topic or dead-letter topic."),
]
Groups = Annotated[list[str] | None, typer.Option("--group", help="The inputs of a group.")]
Since = Annotated[
    str | None,
    typer.Option(help="Verdicts and letters since 2026-07-01T00:00:00Z; or 2h: two hours ago."),
]
Out = Annotated[Path, typer.Option("--out", help="The file to write.")]
WithPayloads = Annotated[
    bool, typer.Option("--with-payloads", help="Keep payloads and headers of dead letters.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the answer as CSV.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Rows shown at most.")]


def sql(
    query: Sql = None,
    picture: PictureFile = None,
    inputs: Inputs = None,
    groups: Groups = None,
    since: Since = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    limit: Limit = 1_000,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Ask in SQL what the topics say: docs/reference/picture.md has the tables. It only reads."""
    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    form = _Form(as_json, as_csv, limit)
    if picture is not None:
        if inputs or groups or since:
            raise typer.BadParameter("a file is as it is: ask with WHERE in place of these options")
        with _query_on_file(picture) as query_on_file:
            _answer(query_on_file, query, form)
        return 0
    with _picture_of_topics(config, inputs or (), groups or (), since, has_payloads=True) as new_picture:
        from spout.picture.query import Query

        _print_unknown_note(new_picture, config)
        _answer(Query(new_picture.connection, _monotonic_ms), query, form)
    return 0


def picture(
    out: Out,
    inputs: Inputs = None,
    groups: Groups = None,
    since: Since = None,
    with_payloads: WithPayloads = False,
    config: Config = DEFAULT_CONFIG,
) -> int:
    """Write all that the topics say to a file, which `windhover sql --picture` asks."""
    from spout.picture.database import open_picture

    if out.exists():
        # it raises for any other file: only a picture is replaced
        open_picture(out, may_lack_tables=True).close()
    elif not out.resolve().parent.is_dir():
        cure = "make it, or name a file elsewhere with --out"
        raise NoRoom(f"{out}: there is no folder {out.parent}; {cure}")
    picture_of_topics = _picture_of_topics(
        config, inputs or (), groups or (), since, has_payloads=with_payloads
    )
    with picture_of_topics as new_picture:
        new_picture.write_file(out)
        _print_unknown_note(new_picture, config)
    with_or_without = "with" if with_payloads else "without"
    say(f"{out}: {out.stat().st_size:,} bytes, {with_or_without} payloads")
    return 0


class _Form(NamedTuple):
    """How an answer is printed: as JSON, as CSV, or else as a table of `rows_max` rows at most."""

    as_json: bool
    as_csv: bool
    rows_max: int


@contextmanager
def _picture_of_topics(
    config: Path,
    inputs: Sequence[str],
    groups: Sequence[str],
    since: str | None,
    *,
    has_payloads: bool,
) -> Iterator[Picture]:
    """Read the topics into a picture in memory, which is there as long as the context lasts.

    A picture without payloads may be given to others, so it hides what looks like a secret, too.
    Without `inputs` and `groups` it has all inputs; `since` None: it begins with the topics.
    Raises `Unreachable`: no broker answered anything.
    """
    now_ms = wall_ms()
    since_ms = parse_time("--since", since, now_ms)
    with opened(config, "sql") as (topics, log):
        from spout.inspect.dead_letters import topics_of_some
        from spout.picture.database import Picture
        from spout.picture.loader import PictureLoader
        from spout.picture.reading import Limits

        input_names: list[str] | None = None  # all of them
        if inputs or groups:
            input_names = list(topics_of_some(topics, inputs, groups).inputs)
        log.share_deadline()
        new_picture = Picture(has_payloads=has_payloads, hides_secrets=not has_payloads)
        with closing(new_picture):
            loader = PictureLoader(
                log,
                topics,
                new_picture,
                _monotonic_ms,
                limits=Limits(since_ms=since_ms),
                input_names=input_names,
            )
            with closing(loader):
                loader.read(now_ms)
                if loader.no_answer is not None:
                    # tables without a row would answer 0 to every question
                    raise loader.no_answer
            yield new_picture


@contextmanager
def _query_on_file(path: Path) -> Iterator[Query]:
    """Open a file with a picture, and yield what asks it; the context closes the file."""
    from spout.picture.database import open_picture
    from spout.picture.query import Query

    with closing(open_picture(path)) as connection:
        yield Query(connection, _monotonic_ms)


def _monotonic_ms() -> int:
    """Return the time in ms of a clock that nobody sets back."""
    return time.monotonic_ns() // 1_000_000


def _print_unknown_note(picture: Picture, config: Path) -> None:
    """Print on stderr how many values of a picture are unknown; nothing if none is."""
    (count,) = picture.connection.execute("SELECT count(*) FROM unknown").fetchone()
    if count:
        note = f"note: {count:,} holes in what is known: `windhover sql 'SELECT * FROM unknown'`"
        say(with_configs(note, not_default(config)), err=True)


def _answer(picture_query: Query, query: str | None, form: _Form) -> None:
    """Answer a query; None: answer those that are typed at the prompt, or come by a pipe."""
    if query is not None:
        _ask_and_print(picture_query, query, form)
    elif sys.stdin.isatty():
        say(_HELP, err=True)
        _answer_at_prompt(picture_query, form)
    else:
        if isinstance(sys.stdin, TextIOWrapper):
            # bytes that are no UTF-8 refuse their statement alone, as they do in an argument
            sys.stdin.reconfigure(errors="surrogateescape")
        for statement in _statements(sys.stdin):
            _ask_and_print(picture_query, statement, form)


def _ask_and_print(picture_query: Query, statement: str, form: _Form) -> None:
    """Ask one query, and print its answer.

    A query ends at its limit, or at Ctrl-C, but only between two steps of SQLite. One step may
    take hours, as `instr` in a text of megabytes does: only the end of the process ends that.
    """
    watchdog = threading.Timer(picture_query.ends_after_s + GRACE_S, _end_process)
    watchdog.daemon = True
    watchdog.start()
    try:
        answer = picture_query.ask(statement, form.rows_max)
    finally:
        watchdog.cancel()
    _print_answer(answer, form)


def _end_process() -> None:
    """End the process at once: it has files open for reading alone, so nothing is damaged."""
    say(
        "windhover: SQLite does not end the query at its limit, so the command ends; ask for less",
        err=True,
    )
    os._exit(QueryRefused.exit_code)


def _answer_at_prompt(picture_query: Query, form: _Form) -> None:
    """Answer queries until Ctrl-D; go on after one that is refused or interrupted."""
    for statement in _statements(_typed_lines()):
        try:
            _ask_and_print(picture_query, statement, form)
        except QueryRefused as error:
            say(f"windhover: {error}", err=True)
        except KeyboardInterrupt:
            say("windhover: the query was ended", err=True)


def _typed_lines() -> Iterator[str]:
    """Yield the lines that somebody types, until Ctrl-D."""
    # once it is imported, `input` lets people edit a line and recall earlier ones
    import readline  # noqa: F401

    while True:
        try:
            yield f"{input(PROMPT)}\n"
        except EOFError:
            return


def _statements(lines: Iterator[str]) -> Iterator[str]:
    """Yield the statements in some lines.

    A statement ends with a semicolon at the end of a line; the last one may end without.
    """
    from sqlite3 import complete_statement

    text = ""
    for line in lines:
        text += line
        # SQLite judges only UTF-8, so other characters are replaced for it
        if complete_statement(text.encode("utf-8", "replace").decode()):
            yield text
            text = ""
    if text.strip():
        yield text


def _print_answer(answer: Answer, form: _Form) -> None:
    """Print an answer; if it has more rows than were asked for, a line on stderr says so."""
    names = _distinct(answer.columns)
    if form.as_csv:
        _write_csv(names, answer)
    else:
        rows = [dict(zip(names, row, strict=True)) for row in answer.rows]
        columns = [Column(name, name, str, NULL) for name in names]
        output = OutputFormat.JSON if form.as_json else OutputFormat.TABLE
        write(rows, columns, output)
        if not rows:
            say("no row", err=True)
    if answer.is_cut:
        say(f"there are more than {form.rows_max:,} rows; see --limit", err=True)


def _distinct(columns: Sequence[str]) -> list[str]:
    """Return the names of columns, each only once: of two columns `n` the second one is `n_2`."""
    names: list[str] = []
    for column in columns:
        name = column
        number = 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _write_csv(names: Sequence[str], answer: Answer) -> None:
    """Print an answer as CSV: NULL is an empty field; characters that nobody sees are escaped."""
    from csv import writer

    from acker.untrusted import sentence_line

    def escaped(cell: Cell) -> Cell:
        """Return a text as it can be printed; any other value as it is."""
        if not isinstance(cell, str):
            return cell
        return as_written(sentence_line(cell), sys.stdout.encoding)

    csv_writer = writer(sys.stdout, lineterminator="\n")
    csv_writer.writerow(map(escaped, names))
    csv_writer.writerows(map(escaped, row) for row in answer.rows)
