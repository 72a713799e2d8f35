"""What the driver's thread does for its planning processes, without Spark."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spout.planner.mailbox import Mailbox
from spout.streaming import keeper
from spout.streaming.application import OwnFolder
from spout.streaming.keeper import Keeper, KeptStream
from tests.support.waiting import eventually


class Jobs:
    """Runs a first task when it is let, and fails where it is to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started = 0
        self.may_end = threading.Event()

    def __call__(self, _session: SparkSession) -> None:
        """Wait for a worker."""
        self.started += 1
        assert self.may_end.wait(60)
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def plain_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without Spark's kind of threads, which ask its JVM."""
    monkeypatch.setattr(keeper, "InheritableThread", threading.Thread)


def world(tmp_path: Path, jobs: Jobs) -> tuple[Keeper, Mailbox, Mailbox, OwnFolder]:
    """Make a keeper of one stream, its driver's and its planning process's mailbox, and their folder."""
    folder = OwnFolder(f"windhover-{tmp_path.name}-")
    driver, planner = (Mailbox(Path(folder.name), "stream", "g") for _ in range(2))
    session: Any = None
    return Keeper(folder, lambda: [KeptStream(driver, session)], jobs), driver, planner, folder


@pytest.mark.parametrize(
    "error",
    [None, Py4JError("no Python on the executor"), PySparkException("Job aborted due to stage failure")],
    ids=["none", "py4j", "pyspark"],
)
def test_who_asks_is_answered_when_spark_has_run_a_task_or_cannot(
    tmp_path: Path, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """D105: Spark says by the query's own tasks why it cannot run one."""
    jobs = Jobs(error)
    made, _, planner, folder = world(tmp_path, jobs)
    made.step()
    assert jobs.started == 0, "nobody asks"
    planner.ask_for_workers("p")
    for _ in range(3):
        made.step()
    eventually(lambda: jobs.started, 60)
    assert not planner.has_workers("p")
    jobs.may_end.set()
    eventually(lambda: planner.has_workers("p"), 60)
    made.step()
    assert jobs.started == 1
    expected = [] if error is None else [f"no_worker_started: {error}"]
    assert [record.getMessage() for record in caplog.records] == expected
    folder.cleanup()


def test_a_folder_that_a_cleaner_removed_is_there_again_with_its_lock_until_its_process_ends(
    tmp_path: Path,
) -> None:
    """D302: without a lock nobody would ever remove what this process may leave behind."""
    made, driver, planner, folder = world(tmp_path, Jobs())
    driver.deactivate()
    path = Path(folder.name)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    made.step()
    assert planner.is_inactive()
    with OwnFolder(f"windhover-{tmp_path.name}-"):
        assert path.is_dir(), "its process lives"
    folder.cleanup()
    made.step()
    assert not path.exists()


def test_messages_that_cannot_be_written_again_are_named_once_until_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, driver, planner, folder = world(tmp_path, Jobs())
    driver.deactivate()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Mailbox, "restore", refuse)
            made.step()
            made.step()
        made.step()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["messages_cannot_be_restored: [Errno 28] No space left on device"] * 2
    assert planner.is_inactive()
    folder.cleanup()


def test_a_folder_that_is_removed_while_it_is_made_is_made_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D303: the cleaner comes between the folder and its lock."""
    made, driver, planner, folder = world(tmp_path, Jobs())
    driver.deactivate()
    path = Path(folder.name)
    shutil.rmtree(path)

    def refuse(*_: object) -> int:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr("spout.streaming.application.os.open", refuse)
        made.step()
        assert folder._lock == -1, "to close it once more would close what has its number by then"
    made.step()
    assert (path / "lock").exists()
    assert planner.is_inactive()
    folder.cleanup()


class _Streams:
    def __init__(self) -> None:
        self.active: list[object] = []


class _Session:
    """A session whose queries are listed, or cannot be, as when its JVM ends."""

    def __init__(self) -> None:
        self.queries = _Streams()
        self.is_gone = False

    @property
    def streams(self) -> _Streams:
        if self.is_gone:
            raise ConnectionRefusedError("the JVM is gone")
        return self.queries


class _SlowQuery:
    id, runId = "q", "r"  # noqa: N815 - Spark's name

    def exception(self) -> Exception:
        return PySparkException("Python worker failed to connect back")


def test_a_later_query_that_ends_by_a_slow_worker_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D2119."""
    session = _Session()
    folder = OwnFolder(f"windhover-{tmp_path.name}-")
    shown: Any = session
    kept = KeptStream(Mailbox(Path(folder.name), "stream", "g"), shown)
    kept_streams = Keeper(folder, lambda: [kept, kept], Jobs())
    session.queries.active = [_SlowQuery()]
    kept_streams.name_slow_starts()
    session.queries.active = []
    kept_streams.name_slow_starts()
    assert [line.partition(":")[0] for line in caplog.messages] == ["worker_too_slow"]
    session.is_gone = True
    kept_streams.name_slow_starts()  # it ends no thread
