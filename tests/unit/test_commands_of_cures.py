"""Each command that a message of the product tells to type is typed: the real parser takes it.

A message is a template: ``windhover release {shell_word(self._group)}``. What it fills in is an expression,
and `VALUES` has one of its kind. A command that does not serve until it is ended is run as well, on a cluster
in memory.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from acker.config.topics import Topics
from acker.kafka.port import Log
from spout.cli import check as cli_check
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.cli import operate as cli_operate
from spout.cli import picture as cli_picture
from tests.support.documented import ROOT
from tests.support.worlds.planning import World, world_with_one_open

COMMAND = typer.main.get_command(cli.app)
USAGE_ERROR: Any = typer.BadParameter.__base__
"""That of click, which typer has within itself."""

QUOTED = re.compile(r"`(windhover [^`]+)`")
"""A command within a sentence."""

WHOLE = re.compile(r"windhover [a-z{][^\n`]*")
"""A text that is a command and nothing else."""

NO_COMMANDS = {
    "windhover alone, and the packages": re.compile(r"windhover (alone|and pyspark)"),
    "a mark of who wrote a record": re.compile(r"windhover \{(command|version|installed_version)"),
    "the name of the demo, which is a command all the same": re.compile(r"windhover demo$"),
}

VALUES = {
    r"file|shlex\.quote\(facts\.file\)": "topics.yaml",
    r"role": "acker",
    r"port": "9092",
    r"bootstrap": "localhost:9092",
    r"input_id|owner\.id": "9",
    r".*place|named|late_by\.record": "sentences/0@2",
    r".*group.*": "g",
    r".*(name|input)": "sentences",
    r"shell_word\(name\)": "sentences",
    r"options": "--to earliest --execute",
    r"self\.begin_text": "earliest",
    r"lag_hint": "",
}
"""What stands for an expression, the first that fits."""

COMMANDS_FILLED_IN = {"command": ("acker run", "replay run")}
"""Names of templates whose command itself is filled in."""

NAMED_ALONE = {
    "windhover offsets reset": "where the group is to begin, its operator decides; --help has the ways",
    "windhover release": "of which group stands before it, and in the log",
    "windhover dlq": "a group of commands, which have the letters of an input in common",
    "windhover acker free": "whether by its id, or by group, depends on who has no right to it",
    "windhover acker free --group": "the group that has no right to be there",
    "windhover replay drop": "its --id stands in the sentence",
}
"""Commands that a message names without all they need, and why."""

NOT_RUN = {"acker run", "replay run", "ui", "up", "demo", "release", "offsets reset"}
"""They serve until they are ended, or wait for ackers that answer."""

WRONG_CALLS = ("defect", "No such", "Missing", "Got unexpected", "Invalid value")

NEEDS_A_BROKER = {"topics create", "topics check", "topics repair", "doctor"}


class Cure(NamedTuple):
    """A command in a message, with its place in the code."""

    place: str
    template: str
    command: str


def templates(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module with their lines, expressions in braces; no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    apart = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    apart |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(part_text, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.lineno, node.value


def part_text(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return f"{{{ast.unparse(part.value)}}}"
    assert isinstance(part, ast.Constant)
    return str(part.value)


def value_of(expression: str) -> str:
    for pattern, value in VALUES.items():
        if re.fullmatch(pattern, expression):
            return value
    raise AssertionError(f"{{{expression}}} in a command: add a value of its kind to VALUES")


def filled(template: str) -> list[str]:
    """Return the commands that a template stands for, with values in place of its expressions."""
    for name, commands in COMMANDS_FILLED_IN.items():
        if f"{{{name}}}" in template:
            return [text for each in commands for text in filled(template.replace(f"{{{name}}}", each))]
    return [re.sub(r"\{([^{}]+)\}", lambda found: value_of(found[1]), template)]


def cures() -> Iterator[Cure]:
    for path in sorted(path for part in ("acker", "replay", "spout") for path in (ROOT / part).rglob("*.py")):
        for line, text in templates(path):
            found = QUOTED.findall(text) or WHOLE.findall(text if WHOLE.fullmatch(text) else "")
            for template in found:
                if any(pattern.match(template) for pattern in NO_COMMANDS.values()):
                    continue
                for command in filled(template.partition("  #")[0]):
                    yield Cure(f"{path.relative_to(ROOT)}:{line}", template, command)


CURES = list(cures())


def parse(words: list[str]) -> None:
    """Let the real parser take a command. Raises `USAGE_ERROR`: it does not."""
    command: Any = COMMAND
    context: Any = typer.Context(command, info_name="windhover", obj=[])
    while hasattr(command, "commands"):
        name, *words = words or [""]
        if name not in command.commands:
            raise USAGE_ERROR(f"'{name}' is no command")
        command = command.commands[name]
        if hasattr(command, "commands"):
            context = typer.Context(command, info_name=name, parent=context, obj=[])
    with suppress(typer.Exit):  # of --help
        command.make_context(name, words, parent=context)


def usage_error(words: list[str]) -> str:
    """Return why the parser does not take a command; empty: it does."""
    try:
        parse(words)
    except USAGE_ERROR as error:
        return error.format_message() or type(error).__name__
    return ""


@pytest.mark.parametrize("cure", CURES, ids=lambda cure: f"{cure.place} {cure.command}")
def test_each_command_of_a_message_can_be_typed(cure: Cure) -> None:
    """Words, arguments and options, each with a value that it takes."""
    wrong = usage_error(shlex.split(cure.command)[1:])
    assert not wrong or cure.template in NAMED_ALONE, f"{cure.place}: `{cure.command}`: {wrong}"


def test_there_are_commands_to_be_found() -> None:
    assert len(CURES) > 100
    assert {"status", "roots --group g", "inspect sentences/0@2 --watch 2"} <= {
        cure.command.removeprefix("windhover ") for cure in CURES
    }


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the commands see a cluster in memory, with an open root."""
    made = world_with_one_open()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield made.topics, made.cluster.log()

    for module in (cli, cli_check, cli_dlq, cli_inspect, cli_operate, cli_picture):
        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "wall_ms", lambda: made.now_ms)
    return made


@pytest.mark.usefixtures("world")
def test_what_is_named_alone_is_named_somewhere_and_cannot_be_typed_so() -> None:
    """So that the list only shrinks."""
    named = {cure.template for cure in CURES}
    for template in NAMED_ALONE:
        assert template in named, template
        assert cli.run(shlex.split(template)[1:]) == 2, template


def to_run() -> list[str]:
    """Return the commands that can be run here, each once."""
    commands = dict.fromkeys(cure.command for cure in CURES if cure.template not in NAMED_ALONE)
    others = tuple(f"windhover {name}" for name in NOT_RUN | NEEDS_A_BROKER)
    return [command for command in commands if not command.startswith(others) and "--watch" not in command]


@pytest.mark.parametrize("command", to_run())
@pytest.mark.usefixtures("world")
def test_each_command_of_a_message_that_can_be_run_here_runs(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may find nothing, or refuse what is not so here; it is no wrong call, and no defect."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topics.yaml").write_text("inputs: {sentences: {id: 1, group: g}}\n")
    cli.run(shlex.split(command)[1:])
    errors = capsys.readouterr().err
    assert not [wrong for wrong in WRONG_CALLS if wrong in errors], errors
