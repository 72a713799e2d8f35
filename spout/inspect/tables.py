"""The output of commands, as a table for people or as JSON or YAML for programs: the only place for ``-o``.

A row is a mapping. JSON and YAML are one list of all rows, with all keys; a table shows the columns that fit
a screen. None means that a value is unknown, which is not the same as 0 or an empty text: ``unknown`` in a
table, ``null`` in JSON and YAML. Text from a topic cannot send commands to the terminal.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import typer

from acker.notation import is_visible
from acker.terminal import as_written, writes_all
from acker.units import rounded_duration_text
from acker.untrusted import sentence_line
from acker.wire.causes import without_code_line

Row = Mapping[str, Any]

UNKNOWN: Final = "unknown"


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


As = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print it.")]


class Column(NamedTuple):
    """A column of a table: its title, its key in the rows, its format, and the text of a row for None."""

    title: str
    key: str
    text: Callable[[Any], str] = str
    none: str | Callable[[Row], str] = UNKNOWN


def count(value: int | str) -> str:
    """Format a number with thousands separators; a word such as ``none`` is returned unchanged."""
    return value if isinstance(value, str) else f"{value:,}"


def span(value_ms: int | str) -> str:
    """Format a duration in its largest unit; a word in its place is returned unchanged."""
    return value_ms if isinstance(value_ms, str) else rounded_duration_text(value_ms)


OF_A_FILE: Final = ("validate", "acls", "topics create", "topics check", "topics repair")
"""Commands of ours whose topics.yaml is an argument; of others it is the option ``--config``."""

OF_NO_FILE: Final = ("explain", "size", "demo", "submit")
"""Commands of ours that need no topics.yaml."""

_LIKE_A_NUMBER: Final = re.compile(r"[-+]?\.?[0-9][-+.,:_0-9A-Za-z]*|[yYnN]")
"""Texts that one version of YAML or another may read as a number, a time or a truth.

PyYAML writes ``12e4``, ``0o17`` and ``089`` without quotation marks: they are texts in YAML 1.1. In
YAML 1.2, as Go's and JavaScript's programs read it, they are the numbers 120000, 15 and 89.
"""

_QUOTED: Final = re.compile(r"`(windhover [^`]+)`")


def with_config(command: str, config: Path | None) -> str:
    """Return a command of ours as it has to be typed where a topics.yaml has another name than the default.

    `config` is what the reader gave to ``--config``; None: nothing, and the command is right as it is.
    """
    words = f"{command.removeprefix('windhover ')} "
    is_complete = "--config " in words or "--help " in words
    if config is None or is_complete or words.startswith(tuple(f"{name} " for name in OF_NO_FILE)):
        return command
    if words.startswith(tuple(f"{name} " for name in OF_A_FILE)):
        return f"{command} {shlex.quote(str(config))}"  # these take the file as an argument
    return f"{command} --config {shlex.quote(str(config))}"


def with_configs(text: str, config: Path | None) -> str:
    """Return a text with its commands, which are between backticks, as `with_config` has them."""
    return _QUOTED.sub(lambda match: f"`{with_config(match[1], config)}`", text)


def cut_to(limit: int) -> Callable[[Any], str]:
    """Return a function that cuts a text to `limit` characters."""

    def text_of(value: Any) -> str:
        text = str(value)
        return text if len(text) <= limit else text[: limit - 1] + "…"

    return text_of


def cut_message(limit: int) -> Callable[[Any], str]:
    """Return a function that cuts a cause's message to `limit` characters, but keeps the place at its end."""

    def text_of(value: Any) -> str:
        text = str(value)
        if len(text) <= limit:
            return text
        message, place = without_code_line(text)  # a message ends with the place in the code
        return message[: max(0, limit - 1 - len(place))] + "…" + place

    return text_of


def write(rows: Sequence[Row], columns: Sequence[Column], output: OutputFormat) -> None:
    """Print rows on stdout; of a table without rows nothing."""
    if output is not OutputFormat.TABLE:
        print_encoded(rows, output)
    elif rows:
        _print_table(rows, columns)


def print_encoded(value: object, output: OutputFormat) -> None:
    """Print plain data on stdout as JSON or YAML."""
    is_seen = is_visible if writes_all(sys.stdout.encoding) else is_of_ascii
    typer.echo(encoded(value, output, is_seen).rstrip("\n"))


def is_of_ascii(character: str) -> bool:
    """Return whether a reader can see a character wherever it is written."""
    return character.isascii() and is_visible(character)


def encoded(value: object, output: OutputFormat, is_seen: Callable[[str], bool] = is_visible) -> str:
    """Return plain data as JSON or YAML, which gives back just these values.

    What nobody can see of a text is an escape of JSON or YAML: it sends no command to a terminal. `is_seen`
    decides that of a character.
    """
    if output is OutputFormat.JSON:
        return json_text(value, indent=2, is_seen=is_seen)
    import yaml

    class SeenDumper(yaml.SafeDumper):
        """Puts a text into quotation marks where a reader would take it for a number.

        One that needs escapes, too: YAML has escapes nowhere else.
        """

        def represent_seen(self, text: str) -> yaml.ScalarNode:
            style = "'" if _LIKE_A_NUMBER.fullmatch(text) else None
            if not all(map(is_seen, text)):
                style = '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    SeenDumper.add_representer(str, SeenDumper.represent_seen)
    text = yaml.dump(value, Dumper=SeenDumper, allow_unicode=True, sort_keys=False, width=inf)
    return _with_escapes(str(text), _yaml_escape, is_seen)


def json_text(value: object, indent: int | None = None, is_seen: Callable[[str], bool] = is_visible) -> str:
    """Return plain data as JSON, in one line without an indent; all of it can be seen."""
    return _with_escapes(json.dumps(value, ensure_ascii=False, indent=indent), _json_escape, is_seen)


def _with_escapes(text: str, escape: Callable[[str], str], is_seen: Callable[[str], bool]) -> str:
    """Return a document, its line breaks as they are, with an escape for all else that nobody can see."""
    return "".join(
        character if character == "\n" or is_seen(character) else escape(character) for character in text
    )


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _yaml_escape(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _print_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Print rows as a table, with what stdout's encoding lacks escaped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        justify: Literal["right", "left"] = "right" if column.text in (count, span) else "left"
        title = as_written(sentence_line(column.title), sys.stdout.encoding)
        table.add_column(Text(title), justify=justify, overflow="fold")
    for row in rows:
        texts: list[str] = []
        for column in columns:
            value = row[column.key]
            if value is None:
                texts.append(absent_text(column, row))
            else:
                texts.append(as_written(sentence_line(column.text(value)), sys.stdout.encoding))
        table.add_row(*map(Text, texts))
    console = Console()
    if not console.is_terminal:  # a pipe has no width: nothing is folded there
        console = Console(width=console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table)


def absent_text(column: Column, row: Row) -> str:
    """Return the text for None: it is unknown where the row says why."""
    if column.key in row.get("unknown", ()):
        return UNKNOWN
    return column.none if isinstance(column.none, str) else column.none(row)
