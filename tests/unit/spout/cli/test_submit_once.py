"""``windhover submit --once``: it ends when all is done, and as without the option in all other cases."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spout
from acker.errors import UsageError, WindhoverError
from spout.cli import main as cli
from spout.cli.submit import submit_topology
from tests.support.waiting import eventually

DEADLINE_S = 60


class Query:
    """A query that runs until somebody stops it."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return not self.ended.is_set()


class Running:
    """A submitted topology; `stop` ends its query."""

    def __init__(self) -> None:
        self.query = Query()
        self.steps: list[str] = []
        self.error = ""

    def explain(self) -> str:
        return "the plan"

    def await_termination(self, _timeout_s: int) -> bool:
        return self.query.ended.wait(0.01)

    def pause(self) -> None:
        self.steps.append("pause")

    def stop(self) -> spout.TopologyStatus:
        self.steps.append("stop")
        self.query.ended.set()
        state = "failed" if self.error else "stopped"
        return spout.TopologyStatus(state, spout=None, counts={}, error=self.error)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Running:
    """The topology of every file; Spark is not started."""
    running = Running()
    builder = SimpleNamespace(submit=lambda _spark, **_options: running)
    section = SimpleNamespace(spark={}, name="t")
    topology = SimpleNamespace(builder=builder, sink=None, options={}, file_section=section)

    def load(_file: Path, _environ: Mapping[str, str]) -> Any:
        return topology

    monkeypatch.setattr("spout.builder.flux.load_topology", load)
    session = SimpleNamespace(stop=lambda: running.steps.append("Spark ends"))
    monkeypatch.setattr("spout.local.spark_session.local_session", lambda *_arguments, **_more: session)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("sys.path", list(sys.path))
    return running


def ends_by(monkeypatch: pytest.MonkeyPatch, run_once: Callable[[Running], bool]) -> None:
    """Set what `spout.run_once` does."""
    monkeypatch.setattr("spout.builder.ending.run_once", run_once)


def submit(*options: str) -> int:
    """Run the command."""
    return submit_topology(Path("topology.yaml"), once="--once" in options)


def test_it_ends_with_0_when_all_is_done(submitted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_once(running: Running) -> bool:
        assert running is submitted
        running.query.ended.set()
        return True

    ends_by(monkeypatch, run_once)
    assert submit("--once") == 0
    assert submitted.steps == ["stop", "Spark ends"]


def test_without_the_option_nothing_ends_it_but_itself(
    submitted: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_once(_running: Running) -> bool:
        raise AssertionError("nobody asked for it")

    ends_by(monkeypatch, run_once)
    submitted.query.ended.set()
    assert submit() == 0


def test_one_that_would_never_be_done_is_stopped_and_named(
    submitted: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not left running without an end, and the error is that of `run_once`."""

    def run_once(_running: Running) -> bool:
        raise UsageError("group g: there is always a batch to come")

    ends_by(monkeypatch, run_once)
    with pytest.raises(UsageError, match="always a batch to come"):
        submit("--once")
    assert submitted.steps == ["stop", "Spark ends"]


def test_one_that_fails_ends_with_its_error(submitted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted.error = "the table is away"

    def run_once(running: Running) -> bool:
        running.query.ended.set()
        raise ConnectionError("the table is away, says Spark")

    ends_by(monkeypatch, run_once)
    with pytest.raises(WindhoverError, match="the topology failed: the table is away"):
        submit("--once")


def test_a_signal_ends_it_before_all_is_done(submitted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def run_once(running: Running) -> bool:
        eventually(lambda: signal.getsignal(signal.SIGTERM) is not before)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        assert running.query.ended.wait(DEADLINE_S), "the signal did not stop it"
        return False

    ends_by(monkeypatch, run_once)
    assert submit("--once") == 128 + signal.SIGTERM
    assert submitted.steps == ["pause", "stop", "Spark ends"]


def test_the_command_has_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    arguments: Sequence[str] = ["submit", "--help"]
    assert cli.run(arguments) == 0
    assert "--once" in capsys.readouterr().out
