"""The command ``windhover doctor``: its parts, its formats and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spout.cli import main as cli
from spout.doctor.machine import DiskFacts

RIGHT = "inputs: {a: {id: 1, group: g}}\n"
DOUBTFUL = "inputs: {a: {id: 1, group: g, timeout: 0}}\n"
WRONG = "kafka: {sasl.password: hunter2}\ninputs: {a: {id: 0, group: g}}\n"

GIB = 1 << 30
EMPTY_DISK = DiskFacts("temporary files", "/t", free_bytes=90 * GIB, size_bytes=100 * GIB)
NEARLY_FULL_DISK = DiskFacts("temporary files", "/t", free_bytes=2 * GIB, size_bytes=100 * GIB)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a topics.yaml, on a machine whose Spark and disk judge nothing."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("spout.doctor.machine.disk_facts", lambda environ, checkpoint: [EMPTY_DISK])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "topics.yaml"


def codes_of(text: str) -> set[str]:
    return {row["code"] for row in json.loads(text)}


def test_before_an_installation_only_the_machine_is_checked(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So it needs no topics.yaml."""
    assert cli.run(["doctor", "--pre", "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert codes_of(printed.out) == {"WH001", "WH002", "WH003"}
    assert printed.err == "3 checks: 3 ok, 0 warning, 0 failed, 0 unknown\n"


def test_right_files_end_with_0_and_one_closing_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(RIGHT)
    assert cli.run(["doctor", "--only", "files"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "10 checks: 10 ok, 0 warning, 0 failed, 0 unknown"


def test_a_wrong_file_ends_with_1_and_shows_no_secret(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(WRONG)
    assert cli.run(["doctor", "--only", "files"]) == 1
    printed = capsys.readouterr().out
    assert f"failed   WH010 topics.yaml, {file.name}: {file.name}:2: inputs.a.id = 0: is too low" in printed
    assert "hunter2" not in printed


def test_a_warning_ends_with_0_or_where_it_is_asked_for_with_5(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(DOUBTFUL)
    assert cli.run(["doctor", "--only", "files"]) == 0
    assert cli.run(["doctor", "--only", "files", "--exit-code"]) == 5
    file.write_text(RIGHT)
    assert cli.run(["doctor", "--only", "files", "--exit-code"]) == 0


def test_a_disk_that_is_nearly_full_is_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spout.doctor.machine.disk_facts", lambda environ, checkpoint: [NEARLY_FULL_DISK])
    file.write_text(RIGHT)
    assert cli.run(["doctor", "--only", "files", "--exit-code"]) == 5
    printed = capsys.readouterr().out
    assert "warning  WH015 disk, folder of temporary files /t: the disk is nearly full: 2.0 GiB" in printed


def test_executors_need_the_name_of_their_cluster(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--only", "executors"]) == 2
    assert "--only executors needs --master" in capsys.readouterr().err
