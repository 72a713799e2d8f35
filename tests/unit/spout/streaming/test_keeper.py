"""What the driver's thread does for its planning processes, without Spark."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spout.link.driver_link import DriverLink
from spout.link.planner_link import PlannerLink
from spout.streaming import keeper
from spout.streaming.application import OwnFolder
from spout.streaming.keeper import Keeper, KeptStream
from tests.support.linked import LinkedDriver, linked_driver
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


class World:
    """A keeper of one stream, whose driver listens in a folder of its own."""

    def __init__(self, driver: LinkedDriver, folder: OwnFolder) -> None:
        self.driver = driver
        self.folder = folder
        self.planner: DriverLink = driver.planner()

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder.name)

    def keeper(self, jobs: Jobs) -> Keeper:
        """Make the keeper, which starts a first worker by `jobs`."""
        session: Any = None
        return Keeper(self.folder, lambda: [KeptStream(self.driver.link, session)], jobs)

    def is_told(self) -> bool:
        """Return whether a planning process that connects now hears that the stream is inactive."""
        return self.driver.planner("another").is_inactive


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A driver, its folder, and a planning process."""
    folder = OwnFolder(f"windhover-{tmp_path.name}-")
    with linked_driver(Path(folder.name)) as driver:
        yield World(driver, folder)
    folder.cleanup()


@pytest.mark.parametrize(
    "error",
    [None, Py4JError("no Python on the executor"), PySparkException("Job aborted due to stage failure")],
    ids=["none", "py4j", "pyspark"],
)
def test_who_asks_is_answered_when_spark_has_run_a_task_or_cannot(
    world: World, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """D105: Spark says by the query's own tasks why it cannot run one."""
    jobs, planner = Jobs(error), world.planner
    made = world.keeper(jobs)
    made.step()
    assert jobs.started == 0, "nobody asks"
    planner.ask_for_workers()
    eventually(world.driver.link.processes_waiting_for_workers)
    for _ in range(3):
        made.step()
    eventually(lambda: jobs.started, 60)
    assert not planner.has_workers
    jobs.may_end.set()
    eventually(lambda: planner.has_workers, 60)
    made.step()
    assert jobs.started == 1
    expected = [] if error is None else [f"no_worker_started: {error}"]
    assert [record.getMessage() for record in caplog.records] == expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [EOFError("the socket of the rows"), ValueError("what nobody thought of")])
def test_who_asks_is_answered_whatever_a_first_job_ends_by(world: World, error: Exception) -> None:
    """D105: without an answer nothing would be emitted for ten minutes."""
    jobs, planner = Jobs(error), world.planner
    jobs.may_end.set()
    planner.ask_for_workers()
    eventually(world.driver.link.processes_waiting_for_workers)
    world.keeper(jobs).step()
    eventually(lambda: planner.has_workers, 60)


def test_who_asks_is_answered_where_there_is_no_thread_for_a_first_job(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D308: the keeper goes on; it makes the folder again, and finds the streams that are read next."""

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(keeper, "InheritableThread", NoThread)
    planner, made = world.planner, world.keeper(Jobs())
    planner.ask_for_workers()
    eventually(world.driver.link.processes_waiting_for_workers)
    made.step()
    eventually(lambda: planner.has_workers, 60)
    made.step()
    assert caplog.messages == ["no_worker_started: can't start new thread"]


def test_a_folder_that_a_cleaner_removed_is_there_again_with_its_lock_until_its_process_ends(
    world: World, tmp_path: Path
) -> None:
    """D302: without a lock nobody would ever remove what this process may leave behind."""
    made, path = world.keeper(Jobs()), world.path
    world.driver.link.deactivate()
    shutil.rmtree(path)
    made.step()
    assert world.is_told()
    with OwnFolder(f"windhover-{tmp_path.name}-"):
        assert path.is_dir(), "its process lives"
    world.folder.cleanup()
    made.step()
    assert not path.exists()


def test_a_folder_that_cannot_be_made_again_is_named_once_until_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = world.keeper(Jobs())
    world.driver.link.deactivate()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(OwnFolder, "restore", refuse)
            made.step()
            made.step()
        made.step()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["folder_cannot_be_restored: [Errno 28] No space left on device"] * 2
    assert world.is_told()


def test_a_folder_that_is_removed_while_it_is_made_is_made_at_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D303: the cleaner comes between the folder and its lock."""
    made, path = world.keeper(Jobs()), world.path
    world.driver.link.deactivate()
    shutil.rmtree(path)

    def refuse(*_: object) -> int:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr("spout.streaming.application.os.open", refuse)
        made.step()
        assert world.folder._lock_descriptor == -1, (
            "to close it once more would close what has its number by then"
        )
    made.step()
    assert (path / "lock").exists()
    assert world.is_told()


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
    kept = KeptStream(PlannerLink(Path(folder.name), "stream", "g"), shown)
    kept_streams = Keeper(folder, lambda: [kept, kept], Jobs())
    session.queries.active = [_SlowQuery()]
    kept_streams.log_slow_starts()
    session.queries.active = []
    kept_streams.log_slow_starts()
    assert [line.partition(":")[0] for line in caplog.messages] == ["worker_too_slow"]
    session.is_gone = True
    kept_streams.log_slow_starts()  # it ends no thread


def test_the_store_is_opened_once_for_a_process_that_asks_whether_it_may_take_the_group(world: World) -> None:
    """Rule 12: in a thread, since a store may not answer for a minute."""
    may_end, opened = threading.Event(), list[int]()

    def open_store(epoch_min: int) -> int:
        opened.append(epoch_min)
        assert may_end.wait(60)
        return epoch_min

    link, planner = world.driver.link, world.planner
    link.expect_store(open_store)
    made = world.keeper(Jobs())
    made.step()
    assert opened == [], "nobody asks"
    planner.ask_for_epoch(3)
    eventually(link.epoch_questions)
    for _ in range(3):
        made.step()
    eventually(lambda: opened)
    assert not planner.granted_epoch
    may_end.set()
    eventually(lambda: planner.granted_epoch == 3)
    made.step()
    assert opened == [3]


def test_a_store_that_no_thread_can_open_is_named_once_and_opened_as_soon_as_one_can(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link, planner = world.driver.link, world.planner
    link.expect_store(lambda epoch_min: epoch_min)
    planner.ask_for_epoch(3)
    eventually(link.epoch_questions)
    made = world.keeper(Jobs())

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        made.step()
        made.step()
    assert caplog.text.count("store_not_opened group=g: can't start new thread") == 1
    made.step()
    eventually(lambda: planner.granted_epoch == 3)
