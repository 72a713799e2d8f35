"""The command ``windhover check``: what cannot be checked is 3, the monitor's UNKNOWN, in every case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acker.config.topics import parse
from spout.cli import main as cli
from spout.inspect.dead_letters import topics_of_some


@pytest.mark.parametrize(
    "arguments",
    [["--no-such-option"], ["--dead-within", "soon"], ["-o", "graphite"], ["--config", "no-such-file.yaml"]],
    ids=" ".join,
)
def test_a_call_that_cannot_check_is_unknown(arguments: list[str]) -> None:
    assert cli.run(["check", *arguments]) == 3


def test_a_threshold_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    """What has no end could not be printed for any monitor."""
    assert cli.run(["check", "--oldest-warning", "inf"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "'--oldest-warning'" in line


TWO_GROUPS = """
inputs:
  a: {id: 1, group: g, topic: letters}
  b: {id: 2, group: g}
  c: {id: 3, group: h}
  d: {id: 4, group: h, ackers: 0}
"""


@pytest.mark.parametrize(
    ("names", "groups", "left"),
    [
        ([], [], ["a", "b", "c", "d"]),
        (["a"], [], ["a"]),
        (["letters"], [], ["a"]),
        (["a", "c"], [], ["a", "c"]),
        ([], ["g"], ["a", "b"]),
        ([], ["h"], ["c"]),
        (["b"], ["h"], ["b", "c"]),
    ],
)
def test_a_check_of_some_inputs_or_groups_sees_these_alone(
    names: list[str], groups: list[str], left: list[str]
) -> None:
    """D1203: each team has a monitor of its own."""
    topics = parse(TWO_GROUPS, file="topics.yaml", environ={})
    assert list(topics_of_some(topics, names, groups).inputs) == left


@pytest.mark.parametrize("arguments", [["--input", "nope"], ["--group", "nope"], ["--input", "d"]])
def test_a_check_of_what_is_not_there_is_unknown(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D1203: a name that is misspelt is never OK."""
    file = tmp_path / "topics.yaml"
    file.write_text(TWO_GROUPS)
    assert cli.run(["check", *arguments, "--config", str(file)]) == 3
    line = capsys.readouterr().out
    assert line.startswith("WINDHOVER UNKNOWN - ")
    assert arguments[1] in line


def test_a_broken_file_is_a_line_for_the_monitor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("inputs: {a: {id: 0, group: g}}")
    assert cli.run(["check", "--config", str(file)]) == 3
    assert capsys.readouterr().out.startswith("WINDHOVER UNKNOWN - ")
    assert cli.run(["check", "--config", str(file), "-o", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["state"] == "UNKNOWN"
