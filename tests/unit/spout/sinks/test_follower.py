"""What the follower finds committed, and what it makes of it, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from acker.errors import Unreachable
from acker.wire.events import SourceRun
from spout.planning.journal import BEGINNING, Journal, SourceMark
from spout.planning_process.sink_watch import SinkWatch
from spout.publishing.publish import BATCH_SKIPPED, BatchLane, Publication
from spout.publishing.report_accumulator import BatchReports
from spout.sinks import follower
from spout.sinks.follower import CommittedBatches, FollowedRun, RunFollower
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import Logged
from tests.support.linked import LinkedDriver

SOURCE = 1 << 16


@dataclass
class FakeBatches:
    """A run of a query: which batches Spark remembers a progress of, has planned, and has committed.

    `asked` has the batches for which the commit log was asked.
    """

    remembered: list[int] = field(default_factory=list)
    planned: int | None = None
    committed: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)

    def first_reported(self) -> int | None:
        """Return the oldest progress."""
        return self.remembered[0] if self.remembered else None

    def last_reported(self) -> int | None:
        """Return the newest progress."""
        return self.remembered[-1] if self.remembered else None

    def last_planned(self) -> int | None:
        """Return the batch that runs."""
        return self.planned

    def is_committed(self, batch: int) -> bool:
        """Look into the commit log."""
        self.asked.append(batch)
        return batch in self.committed


def test_a_batch_is_found_once_when_spark_has_reported_it() -> None:
    spark = FakeBatches()
    found = CommittedBatches(spark)
    assert (list(found.take_reported()), list(found.take_committed())) == ([], [])
    spark.planned = 4  # a checkpoint that goes on
    assert (list(found.take_reported()), list(found.take_committed())) == ([], []), "it runs"
    spark.remembered = [4]
    assert list(found.take_reported()) == [4]
    assert (list(found.take_reported()), list(found.take_committed())) == ([], [])


def test_the_commit_log_answers_where_spark_remembers_no_progress() -> None:
    """D203: `spark.sql.streaming.numRecentProgressUpdates` may be 1, and then Spark remembers none."""
    spark = FakeBatches(planned=0)
    found = CommittedBatches(spark)
    assert list(found.take_committed()) == []
    spark.committed.add(0)
    assert list(found.take_reported()) == [], "nothing is reported, and the store is not asked"
    assert list(found.take_committed()) == [0]
    spark.planned = 1
    assert list(found.take_committed()) == []
    spark.committed.add(1)
    assert list(found.take_committed()) == [1]


def test_batches_that_end_between_two_looks_are_all_found_in_their_order() -> None:
    """Batches without records follow each other while nobody looks."""
    spark = FakeBatches(planned=2)
    found = CommittedBatches(spark)
    assert list(found.take_committed()) == []
    spark.planned = 5
    assert list(found.take_committed()) == [2, 3, 4], "Spark runs one batch at a time"
    spark.remembered = [2, 3, 4, 5]
    assert list(found.take_committed()) == [5]


def test_a_first_batch_that_ended_before_the_first_look_is_found() -> None:
    spark = FakeBatches(remembered=[7], planned=8)
    found = CommittedBatches(spark)
    assert list(found.take_reported()) == [7]
    spark.committed.add(8)
    assert list(found.take_committed()) == [8]


def test_the_store_is_asked_only_for_a_batch_that_runs() -> None:
    """A query that waits for records costs no request."""
    spark = FakeBatches(planned=0)
    found = CommittedBatches(spark)
    list(found.take_committed())
    spark.remembered = [0]
    for _ in range(5):
        list(found.take_committed())
    assert spark.asked == [0]


def offset(end: int, *ranges: SourceRun, session: str = "s") -> Journal:
    """Make the offset behind a batch."""
    return Journal(session, 1, 7, 2, MappingProxyType({SOURCE: SourceMark(0, end)}), ranges)


FIRST, SECOND = offset(10, SourceRun(SOURCE, 0, 10)), offset(15, SourceRun(SOURCE, 10, 15))


class FakeLedger:
    """A ledger to which no task has added anything."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.ended: list[tuple[str, int]] = []

    def streams(self, query: str, batch: int) -> frozenset[str]:
        """Return no streams."""
        return frozenset()

    def read(self, query: str, batch: int, without: Collection[str] = ()) -> BatchReports:
        """Return no reports."""
        return BatchReports(frozenset(), (), has_untracked=False)

    def forget(self, query: str, batch: int) -> None:
        """Note the batch that is forgotten."""
        self.ended.append((query, batch))

    def forget_all(self, query: str) -> None:
        """Note the query that is forgotten."""
        self.forgotten.append(query)


class KeepingPublisher:
    """Keeps what is published; says that Kafka is away when it is told to."""

    def __init__(self) -> None:
        self.published: list[Publication] = []
        self.is_away = False

    def publish(self, publication: Publication, partitions: int) -> None:
        """Keep it."""
        if self.is_away:
            raise Unreachable("no broker")
        self.published.append(publication)


class World:
    """A follower of one run of a query; `logged` is what Spark's offset log has."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.publisher = KeepingPublisher()
        self.stream = Stream("stream", "g", True, 4, self.publisher, None)  # type: ignore[arg-type]
        self.application = Application.__new__(Application)
        self.application._links = {}
        self.ledger = FakeLedger()
        self.application.ledger = self.ledger  # type: ignore[assignment]
        self.application.streams = {"stream": self.stream}
        self.application.started, self.application.sunk = {}, set()
        self.application._folder = SimpleNamespace(name=str(folder))  # type: ignore[assignment]
        self.follower = RunFollower(self.application)
        self.application.link(self.stream)
        self.driver = LinkedDriver(folder, self.application._links)
        self.planner = self.driver.planner()
        self._watch = SinkWatch(self.planner)
        self.logged: dict[int, Logged] = {}
        monkeypatch.setattr(follower, "logged", self._logged)
        self.run = self.register("r")

    @property
    def watch(self) -> SinkWatch:
        """What the planning process has heard."""
        self.planner.catch_up()
        return self._watch

    def register(
        self, run: str, query: str = "q", stream: Stream | None = None, *, is_active: bool = True
    ) -> FollowedRun:
        """Register a run of a query, by default of the one of this world."""
        started: Any = SimpleNamespace(id=query, runId=run, isActive=is_active)
        return self.follower.begin_and_register(stream or self.stream, lambda: started)

    def another_stream(self, name: str, group: str) -> Stream:
        """Add a stream that another query reads."""
        made = Stream(name, group, True, 4, self.publisher, None)  # type: ignore[arg-type]
        self.application.streams[name] = made
        return made

    def end(self, batch: int, start: Journal | None, end: Journal) -> None:
        """Let a batch end of which no task reported."""
        self.logged[batch] = Logged(start or BEGINNING, end, 0)
        self.follower.publish(self.run, range(batch, batch + 1))

    def _logged(self, _application: Application, lane: BatchLane) -> Logged | None:
        return self.logged.get(lane.seq)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A follower, and a planning process that is linked to its driver."""
    world = World(tmp_path, monkeypatch)
    yield world
    world.driver.close()


def test_a_first_batch_that_no_task_read_was_written_before_and_fails_its_roots(world: World) -> None:
    """A file sink that runs a batch again skips it: what its bolts did in the first run is not known."""
    world.end(3, FIRST, SECOND)
    [publication] = world.publisher.published
    assert [cause.error for record in publication.fails for cause in record.causes] == [BATCH_SKIPPED]
    assert publication.acks == ()
    world.planner.catch_up()
    assert world.planner.published("s", SECOND.ranges)
    assert world.stream.queries == {"q"}
    assert world.ledger.ended == [("q", 3)], "what its tasks reported is of no later batch"


def test_a_later_batch_that_no_task_read_stops_the_query(world: World) -> None:
    world.end(0, None, FIRST)
    world.end(1, FIRST, SECOND)
    assert len(world.publisher.published) == 1
    assert "none of its records was read" in str(world.watch.follower_error())


def test_what_the_publisher_raises_reaches_the_planning_process(world: World) -> None:
    world.publisher.is_away = True
    world.end(0, None, FIRST)
    assert "batch 0 of group g was written, and could not be published" in str(world.watch.follower_error())
    assert "no broker" in str(world.watch.follower_error())
    assert not world.planner.published("s", FIRST.ranges)


def test_what_spark_cannot_answer_reaches_the_planning_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D206: else it would wait for a publication that nobody will make."""

    def refuse(_query: object) -> None:
        raise Py4JError("there is no method lastExecution")

    monkeypatch.setattr(follower, "java_query", refuse)
    world.follower._run(world.run)
    failure = str(world.watch.follower_error())
    assert "Spark does not say which batches of group g it has committed" in failure
    assert "lastExecution" in failure


def test_a_jvm_that_has_ended_is_no_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it all queries have ended, and their planning processes."""

    def refuse(_query: object) -> None:
        raise Py4JNetworkError("answer from Java side is empty")

    monkeypatch.setattr(follower, "java_query", refuse)
    world.follower._run(world.run)
    assert world.watch.follower_error() is None


def test_a_batch_without_data_or_of_a_run_with_a_sink_of_ours_is_left_alone(world: World) -> None:
    world.end(0, FIRST, FIRST)
    world.application.sunk.add("r")
    world.end(1, FIRST, SECOND)
    assert (world.publisher.published, world.watch.follower_error()) == ([], None)


def test_a_run_that_has_ended_is_forgotten_with_what_its_tasks_reported(world: World) -> None:
    assert world.application.started.keys() == {"q"}
    world.follower.forget_run(world.run)
    assert world.application.started == {}
    assert world.ledger.forgotten == ["q"], "what its tasks reported of a batch that failed"
    assert world.watch.follower_error() is None


def test_the_end_of_a_run_forgets_nothing_of_the_next_run_of_its_query(world: World) -> None:
    world.register("r2")
    world.follower.forget_run(world.run)
    assert world.ledger.forgotten == []


def test_a_query_that_does_not_start_is_not_followed(world: World) -> None:
    world.follower.forget_run(world.run)

    def begin() -> Any:
        raise ValueError("no such sink")

    with pytest.raises(ValueError, match="no such sink"):
        world.follower.start(world.stream, begin)
    assert "spout.start" in str(world.watch.late_error()), "nobody follows it"


def test_a_second_start_that_spark_refuses_takes_the_follower_from_no_run(world: World) -> None:
    """D306: nor does it make a planning process forget why the run that goes on could not be published."""

    def begin() -> Any:
        raise ValueError("a query with this checkpoint runs already")

    for failure in ("", "batch 3 could not be published"):
        world.application.link(world.stream).set_follower_failure(failure)
        with pytest.raises(ValueError, match="runs already"):
            world.follower.start(world.stream, begin)
        world.planner.catch_up()
        assert world.planner.follower_failure == failure


def is_followed(world: World, stream: Stream) -> bool:
    """Return whether a planning process of a stream is told of a follower."""
    return world.driver.planner("asks", stream.id).follower_failure is not None


def test_of_two_runs_of_a_stream_the_last_to_end_takes_its_follower_away(world: World) -> None:
    """A run that is started again while the one before still publishes its last batch is followed."""
    second = world.register("r2")
    assert is_followed(world, world.stream)
    world.follower.forget_run(world.run)
    assert is_followed(world, world.stream)
    world.follower.forget_run(second)
    assert not is_followed(world, world.stream)
    assert world.ledger.forgotten == ["q"]


@pytest.mark.parametrize("ends_first", [0, 1])
def test_of_two_queries_the_end_of_one_forgets_nothing_of_the_other(world: World, ends_first: int) -> None:
    other = world.another_stream("other", "h")
    runs = [world.run, world.register("p1", "p", other)]
    queries, streams = ["q", "p"], [world.stream, other]
    world.follower.forget_run(runs[ends_first])
    stays = 1 - ends_first
    assert world.ledger.forgotten == [queries[ends_first]]
    assert world.application.started.keys() == {queries[stays]}
    assert is_followed(world, streams[stays])
    assert not is_followed(world, streams[ends_first])
    world.follower.forget_run(runs[stays])
    assert world.application.started == {}
    assert not is_followed(world, streams[stays])


def test_a_batch_is_published_whatever_other_run_has_a_sink_of_ours(world: World) -> None:
    world.application.sunk |= {"q", "stream", "another run"}
    world.end(0, None, FIRST)
    assert len(world.publisher.published) == 1


def test_each_query_and_each_session_has_a_lane_of_its_own(world: World) -> None:
    """Rule 5: in one lane the batch 0 of a second query, or after a reset, would count as seen already."""
    runs = [world.run, world.register("p1", "p", world.another_stream("other", "h"))]
    for session in ("s", "t"):
        for run in runs:
            world.run, run.has_ended_a_batch = run, False
            world.end(0, None, offset(10, SourceRun(SOURCE, 0, 10), session=session))
    lanes = [(record.lane, record.seq) for each in world.publisher.published for record in each.fails]
    assert lanes == [("q/s", 0), ("p/s", 0), ("q/t", 0), ("p/t", 0)]


def test_a_start_waits_for_ended_runs_of_its_own_group_alone(world: World) -> None:
    """One that runs would be waited for in vain, and one of another group publishes by itself."""
    joined: list[str] = []

    def with_thread(run: FollowedRun) -> None:
        name = run.query.runId
        run.thread = SimpleNamespace(join=lambda _timeout_s: joined.append(name))  # type: ignore[assignment]

    other = world.another_stream("other", "h")
    with_thread(world.register("ended", "a", is_active=False))
    with_thread(world.register("runs", "b"))
    with_thread(world.register("ended elsewhere", "c", other, is_active=False))
    world.register("without a thread", "d", is_active=False)
    world.follower._finish_ended("g")
    assert joined == ["ended"]
