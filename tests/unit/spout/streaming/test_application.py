"""What the driver knows of its streams: who reads a group, in whichever session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acker.errors import UsageError
from spout.publishing.publish import BatchLane
from spout.publishing.report_accumulator import BatchReports
from spout.sinks.batch_end import BatchEnd
from spout.streaming import application as application_module
from spout.streaming.application import Application, Stream
from tests.support.linked import linked_driver
from tests.support.refusals import not_refused
from tests.support.reports import reported, task_report


@dataclass
class Session:
    """A Spark session: it knows its own queries alone."""

    running: list[str] = field(default_factory=list)

    @property
    def streams(self) -> SimpleNamespace:
        """What manages its queries."""
        return SimpleNamespace(active=[SimpleNamespace(id=each) for each in self.running])


def stream(name: str, session: Session, *queries: str, group: str = "g", tracked: bool = True) -> Stream:
    """Make a stream that queries were seen to run."""
    made = Stream(name, group, tracked, 1, cast("Any", None), cast("Any", session))
    made.queries.update(queries)
    return made


def application(*streams: Stream) -> Application:
    """Make an application of streams, without Spark."""
    made = Application.__new__(Application)
    made._links = {}
    made.streams = {each.id: each for each in streams}
    return made


def all_at_once(call: Callable[[int], object]) -> list[Any]:
    """Let threads make a call at the same moment; return what each got."""
    barrier = threading.Barrier(4)

    def one(number: int) -> object:
        barrier.wait(30)
        return call(number)

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(one, range(4)))


def test_threads_that_are_the_first_at_once_get_one_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the streams of one would be in an application that nobody else knows."""
    made: list[object] = []

    def make(context: object) -> object:
        made.append(context)
        threading.Event().wait(0.05)
        return SimpleNamespace(_owner=SimpleNamespace(check=lambda: None))

    session = SimpleNamespace(sparkContext=object())
    monkeypatch.setattr(application_module, "Application", make)
    monkeypatch.setattr(application_module, "require_classic", lambda session: session)
    assert len({id(one) for one in all_at_once(lambda _: Application.of(cast("Any", session)))}) == 1
    application_module._APPLICATIONS.pop(cast("Any", session.sparkContext))
    assert len(made) == 1


def test_sessions_of_threads_that_read_at_once_have_numbers_of_their_own() -> None:
    """A format's name is registered in one session; by the number it has another name in the next."""

    class SlowSessions(dict[str, int]):
        def __len__(self) -> int:
            length = super().__len__()
            threading.Event().wait(0.05)
            return length

    known = application()
    known._session_numbers = SlowSessions()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application_module, "session_uuid", str)
        numbers = all_at_once(lambda number: known.number_of(cast("Any", number)))
    assert sorted(numbers) == [1, 2, 3, 4]


def test_threads_that_read_the_first_streams_at_once_start_one_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[object] = []
    known = application()
    known._keeper = None
    socket = SimpleNamespace(start=lambda: threading.Event().wait(0.05))
    known._socket, known._folder = cast("Any", socket), cast("Any", None)
    monkeypatch.setattr(
        application_module, "Keeper", lambda *_: SimpleNamespace(run=runs.append, step=lambda: None)
    )
    all_at_once(lambda _: known._start_keeper())
    assert len(runs) == 1


def test_a_group_that_a_query_of_any_session_reads_is_refused() -> None:
    one, two = Session(), Session()
    known = application(stream("first", one, "p"), stream("second", two, "q"))
    known.refuse_second("g")
    for session, query in ((one, "p"), (two, "q")):
        session.running = [query]
        with pytest.raises(UsageError, match="group 'g' is read by a query of this application already"):
            known.refuse_second("g")
        session.running = []
    known.refuse_second("g")


def test_other_groups_other_queries_and_untracked_streams_are_left_alone() -> None:
    session = Session(["q", "other", "untracked"])
    made = application(
        stream("ended", session, "gone"),
        stream("another group", session, "q", group="h"),
        stream("best effort", session, "untracked", tracked=False),
    )
    with not_refused("a first query that reads group g"):
        made.refuse_second("g")


def test_a_stream_may_be_read_while_another_thread_looks_who_reads_a_group() -> None:
    """Spark is asked for the queries of each session, which takes its time."""

    class Busy(Session):
        @property
        def streams(self) -> SimpleNamespace:
            made.streams["second"] = stream("second", Session(), "p")
            return super().streams

    made = application(stream("first", Busy(), "q"))
    made.refuse_second("g")
    assert len(made.all_streams()) == 2


def test_the_end_of_a_batch_says_how_many_cores_there_are_now(tmp_path: Path) -> None:
    """The planning process, which has no Spark, cuts the next batch for them."""
    made = application(stream("first", Session()), stream("second", Session(), group="h"))
    made._folder = cast("Any", SimpleNamespace(name=str(tmp_path)))
    for known in made.all_streams():
        made.link(known)
    with linked_driver(tmp_path, made._links) as driver:
        planners = [driver.planner(name, name) for name in ("first", "second")]
        for seq, cores in enumerate((2, 6)):
            made._context = cast("Any", SimpleNamespace(defaultParallelism=cores))
            BatchEnd(made, BatchLane("q", seq)).record_and_find_stream(
                BatchReports(frozenset({"first"}), (), has_untracked=False)
            )
            for planner in planners:
                planner.catch_up()
                assert planner.cores == cores, "each stream's next batch has them"


def test_a_query_publishes_its_tracked_stream_beside_one_that_is_not_tracked(tmp_path: Path) -> None:
    """Where the tracked one has nothing new, too: what it holds may match what the other brings."""
    session = Session()
    made = application(stream("free", session, tracked=False), stream("tracked", session))
    made._folder = cast("Any", SimpleNamespace(name=str(tmp_path)))
    made._context = cast("Any", SimpleNamespace(defaultParallelism=2))
    report = reported(0, 0, 0, task_report("read_stream"))
    reports = BatchReports(frozenset({"free", "tracked"}), (report,), has_untracked=True)
    assert BatchEnd(made, BatchLane("q", 1)).record_and_find_stream(reports) is made.streams["tracked"]


class Seq(list[SimpleNamespace]):
    """A Scala sequence as py4j hands it on."""

    def apply(self, place: int) -> SimpleNamespace:
        """Return what is at a place."""
        return self[place]

    def size(self) -> int:
        """Return how many there are."""
        return len(self)


@pytest.mark.parametrize(
    ("attempts", "tasks"), [([], None), ([4], 4), ([4, 1], 4), ([4, 1, 4, 2], 4)], ids=str
)
def test_a_stage_has_the_tasks_of_all_its_attempts(attempts: list[int], tasks: int | None) -> None:
    """After a lost executor Spark repeats what is missing, and calls that the stage's tasks."""
    last = SimpleNamespace(currentAttemptId=len(attempts) - 1, numTasks=attempts[-1]) if attempts else None
    store = SimpleNamespace(
        stageData=lambda stage, *_rest: Seq(SimpleNamespace(numTasks=lambda n=n: n) for n in attempts)
    )
    for place in range(2, 6):
        setattr(store, f"stageData$default${place}", lambda: None)
    made = application()
    made._context = cast(
        "Any",
        SimpleNamespace(
            statusTracker=lambda: SimpleNamespace(getStageInfo=lambda stage: last),
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)),
        ),
    )
    assert made.tasks_of(7) == tasks
