"""What a message tells a person to do can be done: options, functions and commands that it names exist."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import spout
from spout.cli import main as cli
from spout.standalone.kafka_spout import KafkaSpout
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION
from spout.streaming.stream import ReadOptions
from tests.support.documented import ROOT

FILES = sorted(path for part in ("acker", "replay", "spout") for path in (ROOT / part).rglob("*.py"))
COMMANDS = typer.main.get_command(cli.app)
ARGUMENTS = {
    "read_stream": set(ReadOptions.__annotations__),
    "KafkaSpout": set(inspect.signature(KafkaSpout).parameters),
}
SPARKS_OWN = {"checkpointLocation", "path", "topic", "kafka.bootstrap.servers"}
COMMAND = re.compile(r"(?:`|\$ |uv run )windhover((?: [a-z][a-z-]*)+)((?: --[a-z-]+)*)")
QUOTED = re.compile(r"'windhover [^']*'")
FOREIGN = re.compile(
    r"\b(?:pip install|uvx|uv add)\b[^`\n]*[ '\"]windhover(?![\w-])"
    r"|\bwindhover\[[a-z,]+\]"
    r"|\bwindhover-(?:\*|[0-9.]+)[\w-]*\.whl"
)
CALL = re.compile(r"\b(read_stream|KafkaSpout)\(([^()]*=[^()]*)\)")
OPTION = re.compile(r"\.option\(\s*[\"']([^\"']+)[\"']")
NAME = re.compile(r"\bspout\.([A-Za-z_]+)\(")


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module, those of an f-string whole, with ``{}`` for what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(e.value) if isinstance(e, ast.Constant) else "{}" for e in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


@cache
def messages() -> list[tuple[Path, str]]:
    """Return the texts of code and pages; a test asks for them, collection does not."""
    pages = (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    of_code = [(path, text) for path in FILES for text in texts(path)]
    return of_code + [(path, path.read_text(encoding="utf-8")) for path in pages]


def wrong_in(text: str) -> list[str]:
    """Return what a text tells to do and nobody can."""
    wrong = [f"{call}({name}=)" for call, name in _arguments(text) if name not in ARGUMENTS[call]]
    known = {BOLTS_OPTION, STREAM_OPTION, *SPARKS_OWN}
    wrong += [f".option({name})" for name in OPTION.findall(text) if name not in known]
    wrong += [f"spout.{name}()" for name in NAME.findall(text) if name not in spout.__all__]
    wrong += [f"{each}: only between backticks it gets the name of the file" for each in QUOTED.findall(text)]
    wrong += [f"{each}: the windhover of PyPI is another project" for each in FOREIGN.findall(text)]
    return wrong + [
        f"windhover{words}{options}"
        for words, options in COMMAND.findall(text)
        if not _is_command(words.split(), options.split())
    ]


def _arguments(text: str) -> list[tuple[str, str]]:
    return [(call, name) for call, inner in CALL.findall(text) for name in re.findall(r"(\w+)=", inner)]


def _is_command(words: list[str], options: list[str]) -> bool:
    """Tell whether words are a command, perhaps with arguments, that has the options."""
    command: Any = COMMANDS
    for word in words:
        if not hasattr(command, "commands"):
            break
        if word not in command.commands:
            return False
        command = command.commands[word]
    return set(options) <= {name for each in command.params for name in each.opts}


def test_what_messages_and_pages_tell_to_do_exists() -> None:
    all_wrong = [(path, each) for path, text in messages() for each in wrong_in(text)]
    wrong = [f"{path.relative_to(ROOT)}: {each}" for path, each in all_wrong]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        'start this one with .option("take_over", "true")',
        "spout.read_stream(..., takeover=True)",
        "KafkaSpout(..., takeover=True)",
        "spout.start_over(...)",
        "run `windhover topics mend`",
        "create them with 'windhover topics create'",
        "run `windhover offsets reset --really`",
        "run `pip install 'windhover[ui]'`",
        "uvx pex windhover -o environment.pex",
        "uv pip install --python /opt/windhover/bin/python windhover",
        "a store in PostgreSQL needs psycopg; install windhover[postgres]",
        "uv pip install dist/windhover-*.whl",
    ],
)
def test_a_cure_that_does_not_exist_is_found(text: str) -> None:
    """So the test above is worth something."""
    assert wrong_in(text)


def test_cures_are_there_to_be_found() -> None:
    """The messages of a session that is refused, superseded or moved are among what is looked at."""
    named = {
        (path.name, call)
        for path, text in messages()
        for call, name in _arguments(text)
        if name == "take_over"
    }
    assert {
        (name, "read_stream") for name in ("sources.py", "operate.py", "a-second-query-of-a-group.md")
    } <= named
    assert ("service.py", "KafkaSpout") in named
    assert sum(len(COMMAND.findall(text)) for _, text in messages()) > 20
