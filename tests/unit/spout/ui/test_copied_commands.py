"""Commands that a page or a command names: right to be copied, also where topics.yaml has another name."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import unescape
from pathlib import Path

import pytest
import typer
from starlette.testclient import TestClient
from typer.core import TyperGroup

from acker.config.topics import Topics
from acker.errors import ConfigError, UsageError
from acker.kafka.port import Log
from spout.cli import check as cli_check
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.cli.check import UNKNOWN_CODE
from spout.inspect.overview import Overview
from spout.inspect.tables import OF_A_FILE, OF_NO_FILE, with_config, with_configs
from spout.ui.serve import LOOPBACK
from spout.ui.watch import Watch
from tests.support.page_server import pages_of
from tests.support.worlds.planning import World, world_with_one_open

ODD = Path("it's <a> folder/topics.yaml")
"""A name that a shell, and HTML, would take for something else."""


PAGES = ("/", "/record/sentences/0@2", "/failures", "/letters", "/redrives", "/latency", "/machinery")


def commands(of: TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Yield each command of ours by its words, with the names of its options and arguments."""
    for name, command in of.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), {str(each.name) for each in command.params}


def test_each_command_takes_its_file_as_it_is_named_to_it() -> None:
    group = typer.main.get_command(cli.app)
    assert isinstance(group, TyperGroup)
    found = dict(commands(group))
    of_a_file = {name for name, names in found.items() if "config" not in names and "file" in names}
    assert of_a_file - {"submit"} == set(OF_A_FILE), "what is submitted names its topics.yaml itself"
    assert {name for name, names in found.items() if not names & {"config", "file"}} <= set(OF_NO_FILE)
    for name in found.keys() - set(OF_NO_FILE):
        words = shlex.split(with_config(f"windhover {name}", ODD))
        assert words[-1] == str(ODD)
        assert ("--config" in words) is (name not in OF_A_FILE)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("windhover status", "windhover status --config b.yaml"),
        ("windhover inspect a/0@1 --watch 2", "windhover inspect a/0@1 --watch 2 --config b.yaml"),
        ("windhover topics create", "windhover topics create b.yaml"),
        ("windhover offsets reset a --help", "windhover offsets reset a --help"),
        ("windhover roots --config c.yaml", "windhover roots --config c.yaml"),
        ("windhover size", "windhover size"),
    ],
)
def test_a_command_names_its_file_once_and_where_it_reads_one(command: str, named: str) -> None:
    assert with_config(command, Path("b.yaml")) == named
    assert with_config(command, None) == command
    text = f"so run `{command}`; `windhover` alone, and windhover status, are no commands to copy"
    assert with_configs(text, Path("b.yaml")) == text.replace(command, named, 1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the commands see a cluster in memory, at its time: no acker lives, and one root is open."""
    world = world_with_one_open()
    world.kill_acker()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log()

    for module in (cli_inspect, cli_check, cli_dlq):
        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "wall_ms", lambda: world.now_ms)
    return world


def test_what_inspect_and_status_and_check_tell_to_type_next_names_the_file(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    named = f"windhover acker run --config {shlex.quote(str(ODD))}"
    for config, command in ((["--config", str(ODD)], named), ([], "windhover acker run")):
        assert cli.run(["inspect", "sentences/0@2", "-o", "json", *config]) == 0
        assert json.loads(capsys.readouterr().out)[0]["next"] == command
        assert cli.run(["status", *config]) == 0
        assert f"start one with `{command}`" in capsys.readouterr().err
        assert cli.run(["check", "-o", "json", *config]) == 2
        (problem,) = json.loads(capsys.readouterr().out)["problems"]
        assert f"start one with `{command}`" in problem["text"]


def test_what_an_error_tells_to_type_next_names_the_file(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for config, named in ((["--config", str(ODD)], f" --config {shlex.quote(str(ODD))}"), ([], "")):
        assert cli.run(["dlq", "show", "sentences/0@2", *config]) == UsageError.exit_code
        assert f"see `windhover dlq list --all{named}`" in capsys.readouterr().err


def test_an_error_in_a_file_names_it_in_the_command_to_type_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ODD.name
    file.write_text("kafka: {allow.auto.create.topics: true}\n")
    for words in (["validate", str(file)], ["status", "--config", str(file)]):
        assert cli.run(words) == ConfigError.exit_code
        assert f"use `windhover topics create {shlex.quote(str(file))}`" in capsys.readouterr().err
    assert cli.run(["check", "--config", str(file)]) == UNKNOWN_CODE
    assert f"use `windhover topics create {shlex.quote(str(file))}`" in capsys.readouterr().out


def test_every_command_of_every_page_names_the_file(world: World) -> None:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        watch = Watch(overview.snapshot, world.topics, lambda: world.now_ms)
        watch.read()
        world.cluster.now_ms += 2_000
        watch.read()
        pages, jobs = pages_of(world, watch, config=ODD)
        with closing(jobs):
            client = TestClient(pages.application(LOOPBACK), base_url="http://localhost")
            found: list[str] = []
            for path in PAGES:
                found += re.findall(r"<code>(windhover [^<]*)</code>", client.get(path).text)
            story = client.get("/record/sentences/0@2", headers={"accept": "application/json"}).json()[0]
    assert len(found) >= 6
    assert [shlex.split(unescape(each))[-2:] for each in found] == [["--config", str(ODD)]] * len(found)
    assert story["next"] == f"windhover acker run --config {shlex.quote(str(ODD))}"
