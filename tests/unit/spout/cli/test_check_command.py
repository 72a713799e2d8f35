"""The command ``windhover check``: what cannot be checked is 3, the monitor's UNKNOWN, in every case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spout.cli import main as cli


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


def test_a_broken_file_is_a_line_for_the_monitor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("inputs: {a: {id: 0, group: g}}")
    assert cli.run(["check", "--config", str(file)]) == 3
    assert capsys.readouterr().out.startswith("WINDHOVER UNKNOWN - ")
    assert cli.run(["check", "--config", str(file), "-o", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["state"] == "UNKNOWN"
