"""The command ``windhover explain``: what a key of topics.yaml does, as the reference has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spout.cli.common import say, say_lines
from spout.inspect.tables import As, Column, OutputFormat, print_encoded, write

if TYPE_CHECKING:
    from acker.provisioning.key_texts import KeyText

SUMMARIES: Final = (Column("key", "path"), Column("what it does", "summary"))

Key = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="timeout, retry.attempts, inputs.orders.timeout; default: list all."),
]


def explain_key(key: Key = None, output: As = OutputFormat.TABLE) -> int:
    """Explain a key of topics.yaml: what it does, its default, range, example, and who must restart."""
    from acker.provisioning.key_texts import key_texts, key_texts_named

    texts = list(key_texts()) if key is None else key_texts_named(key)
    if output is not OutputFormat.TABLE:
        print_encoded([asdict(text) for text in texts], output)
    elif key is None:
        write([{"path": text.path, "summary": text.summary} for text in texts], SUMMARIES, output)
    else:
        _print_texts(texts)
    return 0


def _print_texts(texts: Sequence[KeyText]) -> None:
    """Print the texts of keys, with an empty line between two of them."""
    for number, text in enumerate(texts):
        if number:
            say("")
        say(text.path)
        say("")
        say_lines(text.lines())
