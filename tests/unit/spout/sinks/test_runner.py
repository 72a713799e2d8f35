"""What the planning process says of itself, and what it does before it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acker.config.topics import parse
from spout.planner.mailbox import PlannerStatus, read_status
from spout.streaming.options import SourceOptions
from spout.streaming.source import Runner

YAML = """
kafka: {bootstrap.servers: "127.0.0.1:1"}
acker: {partitions: 1}
inputs:
  a: {id: 1, group: g, partitions: 1}
"""


class Planner:
    """Has so many roots pending, and commits when it is told to."""

    def __init__(self, pending: int) -> None:
        self.pending, self.committed = pending, False

    def status(self, now_ms: int, error: str) -> PlannerStatus:
        """Tell it."""
        return PlannerStatus("running", "g", pending=self.pending, error=error, wall=now_ms)

    def leave(self) -> None:
        """Commit."""
        self.committed = True


@pytest.mark.parametrize(
    ("pending", "inactive", "commits"), [(0, True, True), (1, True, False), (0, False, False)]
)
def test_who_drains_reads_that_nothing_is_pending_when_it_is_committed(
    pending: int, inactive: bool, commits: bool, tmp_path: Path
) -> None:
    """The driver ends the query as soon as it reads so, and Spark kills this process then."""
    topics = parse(YAML, file="topics.yaml", environ={})
    path = tmp_path / "status.json"
    planner: Any = Planner(pending)
    options = SourceOptions(topics, ("a",), "s", status_path=str(path), sink_folder=str(tmp_path))
    runner = Runner(options, planner)
    if inactive:
        runner._mailbox.deactivate()
    runner._publish(1_000)
    found = read_status(path)
    assert found is not None
    assert found.pending == pending
    assert planner.committed is commits
    runner._log.close()


@pytest.mark.parametrize("lives", [True, False])
def test_a_status_that_cannot_be_written_is_a_warning_as_long_as_the_driver_lives(
    lives: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that ends removes its folder, and this process goes on for a moment."""
    folder = tmp_path / "sinks"
    if lives:
        folder.mkdir()
    topics = parse(YAML, file="topics.yaml", environ={})
    planner: Any = Planner(0)
    options = SourceOptions(
        topics, ("a",), "s", status_path=str(tmp_path / "gone" / "status.json"), sink_folder=str(folder)
    )
    runner = Runner(options, planner)
    runner._publish(1_000)
    assert ("the status file cannot be written" in caplog.text) is lives
    runner._log.close()
