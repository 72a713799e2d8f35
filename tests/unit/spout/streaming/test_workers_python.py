"""Which Python Spark's workers run, where nobody said it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spout.streaming.stream import let_workers_be_this_python


def context(master: str = "local[2]", python: str = "python3", **conf: str) -> Any:
    """Make as much of a context as is looked at."""
    return SimpleNamespace(master=master, pythonExec=python, getConf=lambda: conf)


def test_workers_of_this_machine_run_the_python_that_has_the_package(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """`python3` of the PATH need not have it; that another one runs is said, with the way to choose."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    other = tmp_path / "python3"
    other.touch(0o755)
    for path, word in ((tmp_path, str(other)), (tmp_path / "none", "not there")):
        monkeypatch.setenv("PATH", str(path))
        local = context()
        let_workers_be_this_python(local)
        assert local.pythonExec == sys.executable
        said = caplog.messages.pop()
        assert sys.executable in said
        assert word in said
        assert "PYSPARK_PYTHON" in said


def test_nothing_is_named_where_the_path_has_this_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As under `uv run` and in an environment that is active."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    local = context(python=Path(sys.executable).name)
    let_workers_be_this_python(local)
    assert local.pythonExec == sys.executable
    assert not caplog.messages


def test_what_somebody_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark's setting, by the environment; and a cluster has paths of its own."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    contexts = [context(**{"spark.pyspark.python": "/opt/python"}), context("spark://host:7077")]
    for each in contexts:
        let_workers_be_this_python(each)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    contexts.append(context(python="/opt/python"))
    let_workers_be_this_python(contexts[-1])
    assert [each.pythonExec for each in contexts] == ["python3", "python3", "/opt/python"]
