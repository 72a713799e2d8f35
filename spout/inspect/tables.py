"""The output of commands, as a table for people or as JSON or YAML for programs: the only place for ``-o``.

A row is a mapping. JSON and YAML are one list of all rows, with all keys; a table shows the columns that fit
a screen. None means that a value is unknown, which is not the same as 0 or an empty text: ``unknown`` in a
table, ``null`` in JSON and YAML. Text from a topic cannot send commands to the terminal.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import typer

from acker.wire.causes import without_place

Row = Mapping[str, Any]

UNKNOWN: Final = "unknown"


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


As = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print it.")]


class Column(NamedTuple):
    """A column of a table: its title, its key in the rows, its format, and the text for None."""

    title: str
    key: str
    text: Callable[[Any], str] = str
    none: str = UNKNOWN


def count(value: int | str) -> str:
    """Format a number with thousands separators; a word such as ``none`` is returned unchanged."""
    return value if isinstance(value, str) else f"{value:,}"


def span(value_ms: int | str) -> str:
    """Format a duration in its largest unit; a word in its place is returned unchanged."""
    if isinstance(value_ms, str):
        return value_ms
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if abs(value_ms) >= size_ms:
            return f"{value_ms / size_ms:.1f} {unit}"
    return f"{value_ms} ms"


OF_A_FILE: Final = ("validate", "acls", "topics create", "topics check", "topics repair")
"""Commands of ours whose topics.yaml is an argument; of others it is the option ``--config``."""

OF_NO_FILE: Final = ("size", "demo", "submit")
"""Commands of ours that need no topics.yaml."""

_QUOTED: Final = re.compile(r"`(windhover [^`]+)`")


def with_config(command: str, config: Path | None) -> str:
    """Return a command of ours as it has to be typed where a topics.yaml has another name than the default.

    `config` is what the reader gave to ``--config``; None: nothing, and the command is right as it is.
    """
    words = f"{command.removeprefix('windhover ')} "
    is_complete = "--config " in words or "--help " in words
    if config is None or is_complete or words.startswith(tuple(f"{name} " for name in OF_NO_FILE)):
        return command
    is_argument = words.startswith(tuple(f"{name} " for name in OF_A_FILE))
    return f"{command} {'' if is_argument else '--config '}{shlex.quote(str(config))}"


def with_configs(text: str, config: Path | None) -> str:
    """Return a text with its commands, which are between backticks, as `with_config` has them."""
    return _QUOTED.sub(lambda found: f"`{with_config(found[1], config)}`", text)


def printable(text: str) -> str:
    """Escape characters that control a terminal or break a line."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def cut_to(limit: int) -> Callable[[Any], str]:
    """Return a function that cuts a text to `limit` characters."""
    return lambda value: text if len(text := str(value)) <= limit else text[: limit - 1] + "…"


def cut_message(limit: int) -> Callable[[Any], str]:
    """Return a function that cuts a cause's message to `limit` characters, but keeps the place at its end."""

    def text_of(value: Any) -> str:
        if len(text := str(value)) <= limit:
            return text
        message, place = without_place(text)
        return message[: max(0, limit - 1 - len(place))] + "…" + place

    return text_of


def write(rows: Sequence[Row], columns: Sequence[Column], output: OutputFormat) -> None:
    """Print rows on stdout; of a table without rows nothing."""
    if output is not OutputFormat.TABLE:
        typer.echo(encoded(rows, output).rstrip("\n"))
    elif rows:
        _print_table(rows, columns)


def encoded(value: object, output: OutputFormat) -> str:
    if output is OutputFormat.JSON:
        return json.dumps(value, ensure_ascii=False, indent=2)
    import yaml

    return str(yaml.safe_dump(value, allow_unicode=True, sort_keys=False))


def _print_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        justify: Literal["right", "left"] = "right" if column.text in (count, span) else "left"
        table.add_column(column.title, justify=justify, overflow="fold")
    for row in rows:
        texts = (
            absent_text(column, row) if row[column.key] is None else printable(column.text(row[column.key]))
            for column in columns
        )
        table.add_row(*map(Text, texts))
    console = Console()
    if not console.is_terminal:  # a pipe has no width: nothing is folded there
        console = Console(width=console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table)


def absent_text(column: Column, row: Row) -> str:
    """Return the text for None: it is unknown where the row says why."""
    return UNKNOWN if column.key in row.get("unknown", ()) else column.none
