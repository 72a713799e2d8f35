"""What `spout.start` starts, follows and refuses; how a run is followed; what Spark says of its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException

from acker.errors import UsageError
from spout.sinks import any_sink, follower
from spout.sinks.follower import (
    COMMITTED_EVERY_S,
    REPORTED_EVERY_S,
    BatchesOfExecution,
    FollowedRun,
    RunFollower,
)
from spout.tuples.columns import ANCHOR
from tests.support.waiting import eventually


class JavaError(Py4JJavaError):
    """An error of the JVM, without a JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.java_exception = SimpleNamespace(getMessage=lambda: text)

    def __str__(self) -> str:
        return "of Java"


@dataclass
class World:
    """A writer of a query, without Spark.

    Attributes:
        streams: the tracked streams behind the rows.
        columns: of the rows.
        trigger: of the query that is started.
        fails: what Spark raises when it starts.
        begun: how the query was started.
        followed: the streams whose queries are followed, and behind which holds.
        checked: what was asked before the start.
    """

    streams: list[Any] = field(default_factory=lambda: [SimpleNamespace(group="g")])
    columns: tuple[str, ...] = ("word",)
    trigger: str = "ProcessingTimeTrigger"
    fails: Exception | None = None
    begun: list[str] = field(default_factory=list)
    followed: list[tuple[Any, tuple[str, ...]]] = field(default_factory=list)
    checked: list[object] = field(default_factory=list)
    stopped: int = 0

    @property
    def query(self) -> Any:
        """The query that is started."""
        return SimpleNamespace(name="query", stop=self._stop)

    def _stop(self) -> None:
        self.stopped += 1

    @property
    def writer(self) -> Any:
        """The writer."""

        def begin(how: str) -> Any:
            if self.fails is not None:
                raise self.fails
            self.begun.append(how)
            return self.query

        return SimpleNamespace(start=lambda: begin("start"), toTable=lambda name: begin(f"table {name}"))

    def start(self, stream: Any, begin: Callable[[], Any], holds: tuple[str, ...]) -> Any:
        """Start and follow a query."""
        query = begin()
        self.followed.append((stream, holds))
        return query


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A query that reads one tracked stream."""
    made = World()
    session = SimpleNamespace(version="4.1")
    rows = SimpleNamespace(sparkSession=session)

    def rows_of(_writer: object) -> Any:
        rows.columns = made.columns
        return rows

    application = SimpleNamespace(refuse_second=lambda group: made.checked.append(("second", group)))
    monkeypatch.setattr(any_sink, "rows_of", rows_of)
    monkeypatch.setattr(any_sink, "streams_behind", lambda _rows: made.streams)
    monkeypatch.setattr(any_sink, "Application", SimpleNamespace(of=lambda _session: application))
    monkeypatch.setattr(any_sink, "logical_plan", lambda _rows: "plan")
    monkeypatch.setattr(any_sink, "refuse_query", lambda plan: made.checked.append(("plan", plan)))
    monkeypatch.setattr(any_sink, "log_unfit_rules_of", lambda plan, _: made.checked.append(("rules", plan)))
    monkeypatch.setattr(any_sink, "hold_name_of_each_watermark", lambda _plan: ("hold",))
    monkeypatch.setattr(any_sink, "RunFollower", SimpleNamespace(of=lambda _application: made))
    monkeypatch.setattr(any_sink, "trigger_of", lambda _query: made.trigger)
    return made


@pytest.mark.parametrize("table", [None, "words"])
def test_a_query_of_a_tracked_stream_is_checked_started_and_followed(world: World, table: str | None) -> None:
    assert any_sink.start(world.writer, table=table).name == "query"
    assert world.begun == ["start" if table is None else "table words"]
    assert world.followed == [(world.streams[0], ("hold",))]
    assert world.checked == [("second", "g"), ("plan", "plan"), ("rules", "plan")]
    assert world.stopped == 0


def test_a_query_of_no_tracked_stream_is_started_and_not_followed(world: World) -> None:
    world.streams, world.columns = [], ("word", ANCHOR)
    assert any_sink.start(world.writer).name == "query"
    assert (world.begun, world.followed, world.checked) == (["start"], [], [])


def test_a_query_of_two_tracked_streams_is_refused(world: World) -> None:
    world.streams = [SimpleNamespace(group="h"), SimpleNamespace(group="g")]
    with pytest.raises(UsageError, match=r"the query reads 2 tracked streams \(groups g, h\)"):
        any_sink.start(world.writer)
    assert world.begun == []


def test_rows_with_the_hidden_column_are_refused_before_anything_starts(world: World) -> None:
    world.columns = ("word", ANCHOR)
    with pytest.raises(UsageError, match=f"the hidden column '{ANCHOR}' would be written too"):
        any_sink.start(world.writer)
    assert world.begun == []


@pytest.mark.parametrize("trigger", ["ContinuousTrigger", "RealTimeTrigger"])
def test_a_query_that_runs_in_no_micro_batches_is_stopped_and_refused(world: World, trigger: str) -> None:
    world.trigger = trigger
    with pytest.raises(UsageError, match=f"{trigger}: a tracked stream runs in micro-batches"):
        any_sink.start(world.writer)
    assert world.stopped == 1


def real_time(condition: str | None) -> PySparkException:
    """Return what Spark raises with a condition."""
    error = PySparkException(message="refused")
    error.getCondition = lambda: condition  # type: ignore[method-assign]
    return error


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        (real_time("STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"), True),
        (UnsupportedOperationException("continuous"), True),
        (real_time("SOMETHING_ELSE"), False),
        (real_time(None), False),
        (AnalysisException("no such column"), False),
    ],
)
def test_what_spark_refuses_for_its_mode_says_which_mode_it_must_be(
    world: World, error: PySparkException, is_refused: bool
) -> None:
    world.fails = error
    expected: type[Exception] = UsageError if is_refused else type(error)
    with pytest.raises(expected) as raised:
        any_sink.start(world.writer)
    assert ("use trigger(processingTime=" in str(raised.value)) is is_refused


@pytest.mark.parametrize("text", ["[DATA_SOURCE_NOT_FOUND] no delta \n", "something else"])
def test_a_sink_that_spark_does_not_know_is_named_with_how_it_gets_it(world: World, text: str) -> None:
    world.fails = JavaError(text)
    if "NOT_FOUND" in text:
        with pytest.raises(UsageError, match=r"^\[DATA_SOURCE_NOT_FOUND\] no delta: give .* Spark 4\.1"):
            any_sink.start(world.writer)
    else:
        with pytest.raises(JavaError):
            any_sink.start(world.writer)


# what Spark says of batches ---------------------------------------------------------------------------------


def test_the_execution_of_a_query_says_what_it_has_reported_planned_and_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execution: Any = "execution"
    monkeypatch.setattr(follower, "first_reported_batch", lambda asked: 3 if asked is execution else None)
    monkeypatch.setattr(follower, "last_reported_batch", lambda asked: 5 if asked is execution else None)
    monkeypatch.setattr(follower, "last_planned_batch", lambda asked: 6 if asked is execution else None)
    monkeypatch.setattr(follower, "has_committed", lambda _asked, batch: batch <= 5)
    batches = BatchesOfExecution(execution)
    assert (batches.first_reported(), batches.last_reported(), batches.last_planned()) == (3, 5, 6)
    assert [batches.is_committed(batch) for batch in (5, 6)] == [True, False]

    def refuse(_asked: object, _batch: int) -> bool:
        raise JavaError("somebody has removed the checkpoint")

    monkeypatch.setattr(follower, "has_committed", refuse)
    assert not batches.is_committed(5)


# how a run is followed --------------------------------------------------------------------------------------


class Clock:
    """A monotonic clock that moves by sleeping alone; what happens meanwhile is planned by steps."""

    def __init__(self, run: Run) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self._run = run

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept.append(seconds)
        self._run.pass_time(self.now_s)


@dataclass
class Run:
    """A run of a query, and what Spark says of it as time goes by.

    Attributes:
        plan: by second, what happens then.
        reported: the batches with a progress.
        committed: the batches in the commit log.
        log_asked: when the commit log was asked.
    """

    plan: dict[float, Callable[[Run], None]] = field(default_factory=dict)
    reported: list[int] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    planned: int | None = 0
    has_reports: bool = False
    is_active: bool = True
    log_asked: list[float] = field(default_factory=list)
    asked_since: list[int] = field(default_factory=list)
    progress_asked: int = 0

    def pass_time(self, now_s: float) -> None:
        for at_s in sorted(self.plan):
            if at_s <= now_s:
                self.plan.pop(at_s)(self)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], list[tuple[float, list[int]]]]:
    """Follow a run by a clock that moves by sleeping; return what was found, and when."""

    def follow(run: Run) -> list[tuple[float, list[int]]]:
        clock = Clock(run)

        class Batches:
            """What the execution says."""

            def __init__(self, _execution: object) -> None:
                pass

            def first_reported(self) -> int | None:
                return run.reported[0] if run.reported else None

            def last_reported(self) -> int | None:
                run.progress_asked += 1
                return run.reported[-1] if run.reported else None

            def last_planned(self) -> int | None:
                return run.planned

            def is_committed(self, batch: int) -> bool:
                run.log_asked.append(round(clock.now_s, 2))
                return batch in run.committed

        def has_reports(query: str, since: int) -> bool:
            assert query == "q"
            run.asked_since.append(since)
            return run.has_reports

        monkeypatch.setattr(follower, "BatchesOfExecution", Batches)
        monkeypatch.setattr(follower, "java_query", lambda query: query)
        monkeypatch.setattr(follower, "time", clock)
        application: Any = SimpleNamespace(ledger=SimpleNamespace(has_reports=has_reports))

        class Query:
            """Tells whether it runs."""

            id = "q"

            @property
            def isActive(self) -> bool:  # noqa: N802 - PySpark's name
                return run.is_active

        query: Any = Query()
        stream: Any = None
        runs = RunFollower(application).committed_batches(FollowedRun(query, stream))
        finds = [(round(clock.now_s, 2), list(batches)) for batches in runs if batches]
        assert set(clock.slept) <= {REPORTED_EVERY_S}
        return finds

    return follow


def change(**values: Any) -> Callable[[Run], None]:
    """Return a change of what Spark says."""

    def apply(run: Run) -> None:
        for name, value in values.items():
            setattr(run, name, value)

    return apply


Followed = Callable[[Run], list[tuple[float, list[int]]]]


def test_a_batch_that_spark_reports_is_found_at_once_while_tasks_have_reported(followed: Followed) -> None:
    run = Run(
        {
            0.05: change(has_reports=True),
            0.07: change(reported=[0], planned=1),
            0.09: change(reported=[0, 1], planned=2),
            0.5: change(is_active=False),
        }
    )
    assert followed(run) == [(0.07, [0]), (0.09, [1])]
    assert run.asked_since[0] == 0
    assert run.asked_since[-1] == 2, "reports of what was found do not count"


def test_without_reports_of_tasks_only_the_log_is_asked_and_seldom(followed: Followed) -> None:
    run = Run({0.25: change(committed={0}), 0.95: change(is_active=False)})
    assert followed(run) == [(pytest.approx(2 * COMMITTED_EVERY_S, abs=0.02), [0])]
    assert len(run.log_asked) <= 6
    assert run.progress_asked <= 8


def test_what_was_committed_before_a_run_ended_is_found_at_its_end(followed: Followed) -> None:
    run = Run({0.1: change(committed={0}, is_active=False)})
    assert [batches for _, batches in followed(run)] == [[0]]


def test_a_run_that_has_ended_already_is_looked_at_once(followed: Followed) -> None:
    run = Run(committed={0}, is_active=False)
    assert followed(run) == [(0.0, [0])]
    assert run.asked_since == []


# threads ----------------------------------------------------------------------------------------------------


def test_a_started_query_is_followed_in_a_thread_that_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[tuple[str, list[int]]] = []
    application: Any = SimpleNamespace(
        follower=None,
        started={},
        link=lambda _stream: SimpleNamespace(
            follower_failure=None, set_follower_failure=lambda _message: None
        ),
        ledger=SimpleNamespace(forget_all=lambda query: published.append((query, []))),
    )
    runs = RunFollower.of(application)
    assert RunFollower.of(application) is runs
    assert application.follower is runs
    stream: Any = SimpleNamespace(id="s", group="g", queries=set())
    query: Any = SimpleNamespace(id="q", runId="r", isActive=True)

    class Following(RunFollower):
        """Finds two batches."""

        def committed_batches(self, run: FollowedRun) -> Iterator[range]:
            yield range(3, 5)

    runs = application.follower = Following(application)
    assert RunFollower.of(application) is runs
    monkeypatch.setattr(
        RunFollower, "publish", lambda _self, run, batches: published.append((run.query.id, list(batches)))
    )
    monkeypatch.setattr(follower, "InheritableThread", _thread)
    assert runs.start(stream, lambda: query, ("hold",)) is query
    eventually(lambda: len(published) == 2)
    assert published == [("q", [3, 4]), ("q", [])], "what it has found, then it is forgotten"
    assert application.started == {}
    assert stream.queries == {"q"}


def _thread(*, target: Callable[..., None], args: tuple[FollowedRun], name: str, daemon: bool) -> Any:
    """Return a thread that works when it is started."""
    assert (name, daemon) == ("windhover-follows-g", True)
    assert args[0].hold_name_of_each_watermark == ("hold",)
    return SimpleNamespace(start=lambda: target(*args))


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionError("gone")])
def test_with_the_jvm_a_run_is_forgotten_by_nobody(error: Exception) -> None:
    class Following(RunFollower):
        """Meets the end of the JVM."""

        def committed_batches(self, run: FollowedRun) -> Iterator[range]:
            raise error
            yield range(0)

    faked: Any = None
    run = FollowedRun(faked, faked)
    assert Following(faked)._run(run) is None, "no call to Spark follows"  # type: ignore[func-returns-value]
