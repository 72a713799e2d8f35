"""What a Spark session is started with, and which workers it may have."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from acker.errors import UsageError
from spout.cli import main as cli
from spout.local.spark_session import local_settings
from spout.streaming.application import refuse_workers
from tests.support.refusals import not_refused


def test_the_settings_of_a_topology_file_go_before_those_of_a_local_session(tmp_path: Path) -> None:
    found = local_settings(tmp_path, {"spark.sql.shuffle.partitions": 7, "spark.my.own": True})
    assert (found["spark.sql.shuffle.partitions"], found["spark.my.own"]) == (7, True)
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.sql.objectHashAggregate.sortBased.fallbackThreshold"] == "100000"


@pytest.mark.parametrize("python", [sys.executable, "python3", ""])
def test_workers_that_can_start_are_left_alone(python: str) -> None:
    """A name without a folder is looked for on each machine."""
    with not_refused(python):
        refuse_workers(python, "")
        refuse_workers(python, "bolts.zip,more.py")


def test_a_wheel_is_refused_with_what_spark_puts_on_the_path() -> None:
    with pytest.raises(
        UsageError, match=r"--py-files b\.whl: Spark puts \.zip, .* and no wheel\. Install it"
    ):
        refuse_workers("python3", "a.zip,b.whl")


@pytest.mark.parametrize("python", ["./environment.pex", "./environment/bin/python"])
def test_an_environment_that_is_not_beside_the_driver_is_refused_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """Client mode brings it to executors alone, and the planning process runs here."""
    monkeypatch.chdir(tmp_path)
    refused = rf"^{re.escape(python)}, .* from {tmp_path}: .* --files and --archives to executors alone: put"
    with pytest.raises(UsageError, match=refused):
        refuse_workers(python, "")
    program = tmp_path / python
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch(mode=0o644)
    with pytest.raises(UsageError, match=rf"{refused} .* and executable"):
        refuse_workers(python, "")
    program.chmod(0o755)
    refuse_workers(python, "")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("no/such.zip", "no such file"),
        ("w.whl", "no wheel"),
        ("README.md", "import .zip, .egg and .py files"),
    ],
)
def test_what_workers_cannot_import_is_refused_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").touch()
    assert cli.run(["submit", "topology.yaml", "--py-files", named]) == UsageError.exit_code
    assert says in capsys.readouterr().err
