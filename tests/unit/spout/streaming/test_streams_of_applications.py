"""What an application has of its streams: publishers, links, the keeper, reports, folders, counts of work."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acker.config.topics import parse
from acker.errors import UsageError
from spout.publishing.report_accumulator import BatchReports
from spout.streaming import application as application_module
from spout.streaming import keeper
from spout.streaming.application import ERRORS_KEPT, Application, OwnFolder, Stream, WorkDone
from spout.streaming.keeper import KeptStream, start_a_worker
from spout.tuples.anchors import AnchorForm
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.failures import Cause
from spout.tuples.tuple import StreamId
from tests.support.refusals import not_refused
from tests.support.waiting import eventually

TOPICS = parse(
    'kafka: {bootstrap.servers: "127.0.0.1:1"}\nacker: {partitions: 3}\ninputs: {a: {id: 1, group: g}}',
    file="topics.yaml",
    environ={},
)


class Socket:
    """Counts how often it was started."""

    address = "here"

    def __init__(self, folder: str, link_of: Any, has_ended: Any) -> None:
        self.started = 0
        self.link_of = link_of

    def start(self) -> None:
        self.started += 1


class NotedKeeper:
    """Keeps what it serves."""

    made: list[NotedKeeper]

    def __init__(self, folder: object, streams: Any) -> None:
        self.streams = streams
        self.is_over: Any = None
        NotedKeeper.made.append(self)

    def run(self, is_over: Any) -> None:
        self.is_over = is_over


class Ledger:
    """Stands for the accumulator of reports: which streams have some, and how they were read."""

    def __init__(self, context: object) -> None:
        self.reported: frozenset[str] = frozenset()
        self.reads: list[tuple[str, int, set[str]]] = []

    def streams(self, query: str, batch: int) -> frozenset[str]:
        return self.reported

    def read(self, query: str, batch: int, *, without: set[str]) -> BatchReports:
        self.reads.append((query, batch, without))
        return BatchReports(self.reported, (), has_untracked=False)


class Publisher:
    """Counts its closings."""

    made: list[Publisher]

    def __init__(self, _log: object, ack_topics: object, *, durable_ms: int) -> None:
        self.closings = 0
        self.durable_ms = durable_ms
        Publisher.made.append(self)

    def close(self) -> None:
        self.closings += 1


class Context:
    """A SparkContext with two cores."""

    defaultParallelism = 2  # noqa: N815 - Spark's name
    _jsc: object | None = object()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """An application without Spark; its folder is in that of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    NotedKeeper.made = []
    Publisher.made = []
    for name, kind in (
        ("DriverSocket", Socket),
        ("Keeper", NotedKeeper),
        ("ReportLedger", Ledger),
        ("Publisher", Publisher),
    ):
        monkeypatch.setattr(application_module, name, kind)
    return Application(cast("Any", Context()))


def session_of(*queries: str) -> Any:
    return SimpleNamespace(streams=SimpleNamespace(active=[SimpleNamespace(id=query) for query in queries]))


def read(made: Application, group: str = "g", *, tracked: bool = True, session: Any = None) -> Stream:
    return made.new_stream(session or session_of(), TOPICS, group, tracked=tracked)


def test_a_stream_has_what_its_query_needs_and_the_first_one_starts_the_keeper(made: Any) -> None:
    assert (made.streams, made.sunk, made.started, made.follower) == ({}, set(), {}, None)
    session = session_of()
    first = made.new_stream(session, TOPICS, "g", tracked=True, root_form=AnchorForm.WIDE)
    second = read(made, "h")
    assert list(made.streams) == [first.id, second.id]
    assert (len(first.id), first.id != second.id) == (12, True)
    assert (first.group, first.tracked, first.partitions, first.root_form) == ("g", True, 3, AnchorForm.WIDE)
    assert (first.session, second.root_form, first.publisher) == (
        session,
        AnchorForm.PACKED,
        Publisher.made[0],
    )
    [keeper] = NotedKeeper.made
    assert made._socket.started == 1
    assert keeper.streams() == [
        KeptStream(made.link(first), first.session, first.id),
        KeptStream(made.link(second), second.session, second.id),
    ]
    assert not keeper.is_over()
    assert made._socket.link_of(first.id) is made.link(first)
    assert made.link(first) is made.link(first) is not made.link(second)
    assert (made.link(first).group, made.address, made.sink_folder.is_dir()) == ("g", "here", True)


def test_a_group_that_is_read_again_closes_the_publisher_of_its_query_before(made: Any) -> None:
    """A restart of that query would open it again."""
    read(made)
    read(made, "h")
    read(made, tracked=False)
    assert [publisher.closings for publisher in Publisher.made] == [0, 0, 0]
    read(made)
    assert [publisher.closings for publisher in Publisher.made] == [1, 0, 0, 0]


def test_a_group_is_read_by_one_tracked_query_at_a_time(made: Any) -> None:
    stream = read(made, session=session_of("q", "p"))
    with not_refused("a group whose stream no query reads yet"):
        made.refuse_second("g")
    stream.queries.add("ended")
    with not_refused("a group whose query has ended"):
        made.refuse_second("g")
    stream.queries.add("p")
    with pytest.raises(UsageError, match="group 'g' is read by a query of this application already"):
        read(made)
    with not_refused("the group untracked"):
        read(made, tracked=False)
    assert len(made.streams) == 2


def test_of_two_streams_of_a_group_that_have_reports_the_later_one_counts(made: Any) -> None:
    """The older one's query ended between its tasks and its publication."""
    older, other, newer = read(made), read(made, "h"), read(made)
    untracked = read(made, tracked=False)
    cases: list[tuple[list[Stream], list[Stream]]] = [
        ([older, newer], [older]),
        ([older, other, newer, untracked], [older]),
        ([older, other], []),
        ([], []),
    ]
    for reported, outdated in cases:
        made.ledger.reported = frozenset(stream.id for stream in reported)
        made.reports("q", 7)
        assert made.ledger.reads[-1] == ("q", 7, {stream.id for stream in outdated})


# work -------------------------------------------------------------------------------------------------------


def test_work_is_added_up_and_the_last_errors_stay() -> None:
    acked = Counted(What.ACKED, "it", StreamId("it"))
    failed = Counted(What.FAILED, "it", StreamId("it"))
    causes = [Cause("it", "", str(number)) for number in range(ERRORS_KEPT + 3)]
    work = WorkDone()
    work.add({acked: Measure(2)}, tuple(causes[:2]), {"HUNG": 1})
    work.add({acked: Measure(3), failed: Measure(1)}, tuple(causes[2:]), {"HUNG": 2, "WORKER_DIED": 1})
    assert work.counts == {acked: Measure(5), failed: Measure(1)}
    assert work.errors == tuple(causes[3:])
    assert dict(work.isolated) == {"HUNG": 3, "WORKER_DIED": 1}


# folders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let folders be made in that of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_that_is_there_is_left_alone_and_one_that_is_gone_is_made_again(
    temporary: Path,
) -> None:
    folder = OwnFolder("own-")
    lock = Path(folder.name) / "lock"
    (Path(folder.name) / "kept").touch()
    before = lock.stat().st_ino
    assert folder.restore()
    assert lock.stat().st_ino == before
    assert [path.name for path in Path(folder.name).iterdir() if path.name != "lock"] == ["kept"]
    lock.unlink()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert folder.restore()
        lock.unlink()
    assert len(os.listdir("/proc/self/fd")) == descriptors, "the lock before is given up"
    assert folder.restore()
    assert (Path(folder.name).stat().st_mode & 0o777, lock.stat().st_mode & 0o777) == (0o700, 0o600)
    folder.cleanup()
    assert not Path(folder.name).exists()
    assert not folder.restore(), "it is removed for good"
    assert list(temporary.iterdir()) == []
    folder.cleanup()


def test_a_folder_whose_process_has_ended_is_removed_and_those_that_cannot_be_opened_are_not(
    temporary: Path,
) -> None:
    ended = temporary / "own-ended"
    ended.mkdir()
    (ended / "lock").touch()
    odd = temporary / "own-odd"
    (odd / "lock").mkdir(parents=True)  # a folder cannot be opened for writing
    stranger = temporary / "other-ended"
    stranger.mkdir()
    (stranger / "lock").touch()
    descriptors = len(os.listdir("/proc/self/fd"))
    with OwnFolder("own-") as first, OwnFolder("own-") as second:
        assert Path(first).is_dir()
        assert Path(second).is_dir()
        assert (ended.exists(), odd.exists(), stranger.exists()) == (False, True, True)
        assert len(os.listdir("/proc/self/fd")) == descriptors + 2
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_two_processes_that_begin_at_once_may_remove_the_same_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = temporary / "own-ended"
    ended.mkdir()
    (ended / "lock").touch()
    remove = shutil.rmtree

    def remove_twice(path: Path, **how: Any) -> None:
        remove(path)  # the other process is quicker
        remove(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(application_module.shutil, "rmtree", remove_twice)
        folder = OwnFolder("own-")
    assert not ended.exists()
    folder.cleanup()


def test_a_process_that_was_forked_leaves_the_folder_to_its_parent(temporary: Path) -> None:
    folder = OwnFolder("own-")
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        left_alone = not folder.restore()
        folder.cleanup()
        os._exit(0 if left_alone and Path(folder.name).is_dir() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Path(folder.name).is_dir()
    # the same in this process, as `register_for_forks` calls it
    other = OwnFolder("own-")
    other.forked()
    assert not other.restore()
    other.cleanup()
    assert Path(other.name).is_dir()
    folder.cleanup()


# the keeper -------------------------------------------------------------------------------------------------


class Kept:
    """A link that nobody asks anything by."""

    group = "g"

    def __init__(self) -> None:
        self.looks = 0

    def processes_waiting_for_workers(self) -> list[str]:
        self.looks += 1
        return []

    processes_waiting_for_trigger = epoch_questions = lambda self: []


def test_the_keeper_looks_again_and_again_until_the_context_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks Spark for its queries less often than it looks for files."""
    monkeypatch.setattr(keeper, "KEEP_EVERY_S", 0.001)
    monkeypatch.setattr(keeper, "QUERIES_EVERY_S", 3_600)
    kept, over, listings = Kept(), threading.Event(), [0]

    class Streams:
        @property
        def active(self) -> list[object]:
            listings[0] += 1
            return []

    session: Any = SimpleNamespace(streams=Streams())
    link: Any = kept
    folder: Any = SimpleNamespace(restore=lambda: True)
    serving = keeper.Keeper(folder, lambda: [KeptStream(link, session), KeptStream(link, session)])
    serving.run(over.is_set)
    eventually(lambda: kept.looks > 20)
    over.set()
    eventually(lambda: not any(thread.name == "windhover-keeper" for thread in threading.enumerate()))
    assert listings == [1], "at once, and then in an hour; both streams have one session"


def test_a_folder_that_is_removed_for_good_ends_the_service() -> None:
    kept = Kept()
    link: Any = kept
    folder: Any = SimpleNamespace(restore=lambda: False)
    keeper.Keeper(folder, lambda: [KeptStream(link, cast("Any", None))]).step()
    assert kept.looks == 0


def test_the_first_task_runs_in_python_and_imports_what_a_read_task_needs() -> None:
    ran: list[object] = []

    def map_in_arrow(function: Any, schema: str) -> Any:
        assert list(function(iter(["rows"]))) == ["rows"]
        return SimpleNamespace(collect=lambda: ran.append(schema))

    described: list[str] = []
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(setJobDescription=described.append),
        range=lambda *bounds: SimpleNamespace(mapInArrow=map_in_arrow) if bounds == (0, 1, 1, 1) else None,
    )
    start_a_worker(session)
    assert ran == ["id long"]
    assert described == ["windhover: waits for Spark's first worker"]
