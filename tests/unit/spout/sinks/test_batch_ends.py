"""The end of a batch: which stream it is of, what is settled, published, counted and logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from acker.config.topics import parse
from acker.errors import TrackingError, UsageError
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from acker.wire.passed_calls import PassedCall
from spout.publishing.batch_warnings import LOGGED_MAX
from spout.publishing.fold import BatchOutcome, Missing, TaskReport
from spout.publishing.publish import BatchLane, Publication
from spout.publishing.report_accumulator import BatchReports
from spout.publishing.root_marks import RootMark, RootMarks, roots_of
from spout.publishing.watermarks import NOTHING_DROPPED, Dropped, WatermarkStats
from spout.sinks import batch_end, drain, dropped_rows
from spout.sinks.batch_end import BatchEnd
from spout.sinks.drain import Drain, Unread
from spout.streaming.application import Application, Stream
from spout.streaming.batch_log import Logged
from spout.tuples.failures import Cause
from spout.tuples.poison import WORKER_DIED
from tests.support.linked import LinkedDriver, batch_plan, linked_driver
from tests.support.reports import Held, task_report

SOURCE = 1 << 16
TOPICS = parse(
    "kafka: {bootstrap.servers: 'a:1'}\nacker: {partitions: 4}\n"
    "inputs: {lines: {id: 1, group: g, partitions: 1}}",
    file="topics.yaml",
    environ={},
)
PLAN = batch_plan("s", (SourceRun(SOURCE, 0, 1_000),))
LANE = BatchLane("q", 7)


class Publisher:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.published: list[tuple[Publication, int]] = []

    def publish(self, publication: Publication, partitions: int) -> None:
        self.published.append((publication, partitions))


class World:
    """An application of streams `a` and `b`, and `untracked`, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.publisher = Publisher()
        self.application = Application.__new__(Application)
        self.application._links = {}
        self.application._folder = SimpleNamespace(name=str(folder))  # type: ignore[assignment]
        self.application._context = SimpleNamespace(defaultParallelism=3)  # type: ignore[assignment]
        self.application.streams = {
            name: self._stream(name, tracked=name != "untracked") for name in ("untracked", "a", "b")
        }
        self.stream = self.application.streams["a"]
        self.end = BatchEnd(self.application, LANE)

    def _stream(self, name: str, *, tracked: bool) -> Stream:
        publisher: Any = self.publisher
        stream = Stream(name, "g", tracked, 4, publisher, None)  # type: ignore[arg-type]
        stream.inputs = tuple(TOPICS.inputs.values())
        return stream


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[World, LinkedDriver]]:
    """An application, and a driver to which its planning processes are linked."""
    made = World(tmp_path)
    for stream in made.application.streams.values():
        made.application.link(stream)
    with linked_driver(tmp_path, made.application._links) as driver:
        yield made, driver


def reports_of(*streams: str, tasks: tuple[TaskReport, ...] = (TaskReport("read_stream"),)) -> BatchReports:
    return BatchReports(frozenset(streams), tasks, has_untracked="untracked" in streams)


# which stream -----------------------------------------------------------------------------------------------


def test_a_batch_is_of_the_one_tracked_stream_that_has_reported(world: tuple[World, LinkedDriver]) -> None:
    made, driver = world
    assert (
        made.end.record_and_find_stream(reports_of("b", "untracked", "of another application"))
        is made.application.streams["b"]
    )
    assert {name for name, stream in made.application.streams.items() if stream.queries} == {"b", "untracked"}
    planner = driver.planner("p", "a")
    planner.catch_up()
    assert planner.cores == 3, "of all streams, since executors may have come or gone"


def test_a_batch_without_reports_of_tasks_is_of_no_stream_and_its_query_is_remembered(
    world: tuple[World, LinkedDriver],
) -> None:
    made, _ = world
    assert made.end.record_and_find_stream(reports_of("a", tasks=())) is None
    assert made.stream.queries == {"q"}
    assert made.end.record_and_find_stream(reports_of(tasks=())) is None


def test_a_batch_of_two_tracked_streams_or_of_none_is_refused(world: tuple[World, LinkedDriver]) -> None:
    made, _ = world
    for streams, count in ((("a", "b"), 2), (("untracked",), 0)):
        with pytest.raises(TrackingError, match=f"batch 7 reads {count} tracked streams; a query"):
            made.end.record_and_find_stream(reports_of(*streams))


def test_where_nothing_of_ours_has_reported_nobody_counts_cores(world: tuple[World, LinkedDriver]) -> None:
    made, _ = world
    made.application._context = None  # type: ignore[assignment]
    assert made.end.record_and_find_stream(reports_of("of another application", tasks=())) is None


# settling ---------------------------------------------------------------------------------------------------

NO_HELD = task_report("read_stream", plan=PLAN, ranges=PLAN.ranges)
HOLDS = task_report("hold", held=Held(np.array([0]), np.array([7], np.uint64), np.array([9])))


@pytest.mark.parametrize(
    ("tasks", "asks"),
    [
        pytest.param((NO_HELD,), False, id="records"),
        pytest.param((NO_HELD, HOLDS), True, id="records that are held"),
        pytest.param((task_report("bolt"),), True, id="no records"),
    ],
)
def test_spark_is_asked_for_the_moment_of_a_batch_only_where_something_is_held_or_nothing_was_read(
    tasks: tuple[TaskReport, ...],
    asks: bool,
    world: tuple[World, LinkedDriver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = world
    moments: list[object] = []
    monkeypatch.setattr(batch_end, "logged", lambda _application, lane: f"batch {lane.seq}")
    monkeypatch.setattr(batch_end, "moment_of", lambda stream, batch: (stream.id, batch))

    def settle(_tasks: object, _loose: object, _tasks_of: object, moment: object) -> BatchOutcome:
        moments.append(moment)
        return BatchOutcome(PLAN)

    monkeypatch.setattr(batch_end, "settle", settle)
    made.end.settle(made.stream, reports_of("a", tasks=tasks))
    monkeypatch.setattr(batch_end, "logged", lambda _application, _lane: None)
    made.end.settle(made.stream, reports_of("a", tasks=tasks))
    assert moments == [("a", "batch 7") if asks else None, None]


@pytest.mark.parametrize("settles", [True, False])
def test_an_aggregate_that_is_written_again_is_refused_only_where_it_acks(
    settles: bool, world: tuple[World, LinkedDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = world
    refused: list[BatchLane] = []
    monkeypatch.setattr(batch_end, "refuse_repeats", lambda _application, lane: refused.append(lane))
    monkeypatch.setattr(batch_end, "settle", lambda *_: BatchOutcome(PLAN))
    kind = RootMark.RELEASED if settles else RootMark.LEFT_OPEN
    marks = RootMarks.of_roots(kind, roots_of(SOURCE, np.array([3])))
    made.end.settle(made.stream, reports_of("a", tasks=(NO_HELD, task_report("bolt", marks=marks))))
    assert refused == ([LANE] if settles else [])


# publishing -------------------------------------------------------------------------------------------------


def test_what_is_published_goes_into_the_lane_of_its_session_and_is_told_to_the_planning_process(
    world: tuple[World, LinkedDriver],
) -> None:
    made, driver = world
    made.end.publish(made.stream, BatchOutcome(PLAN))
    [(publication, partitions)] = made.publisher.published
    assert partitions == PLAN.partitions
    assert {(record.lane, record.seq) for record in publication.acks} == {("q/s", 7)}
    planner = driver.planner("p", "a")
    planner.catch_up()
    assert planner.published("s", PLAN.ranges)
    assert (made.stream.late, made.stream.dropped) == (0, 0)


def test_a_stream_of_a_store_is_published_by_nothing_else(world: tuple[World, LinkedDriver]) -> None:
    made, _ = world
    made.application.link(made.stream).expect_store(lambda _epoch: 1)
    with pytest.raises(UsageError, match="batch 7 went past the store that takes the rows of group g"):
        made.end.publish(made.stream, BatchOutcome(PLAN))
    assert made.publisher.published == []


def test_what_came_too_late_is_counted_and_said_with_the_next_batch_that_has_records(
    world: tuple[World, LinkedDriver], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch without records has none to say it by."""
    made, _ = world
    monkeypatch.setattr(batch_end, "logged", lambda _application, _lane: Logged(None, None, 5_000))  # type: ignore[arg-type]
    empty = batch_plan("s", ())
    stats = WatermarkStats("time", "", delay_ms=1_000, highest_ms=6_000)
    made.end.publish(made.stream, BatchOutcome(PLAN), Dropped(0, (stats,)))
    assert "too_late" not in caplog.text
    made.end.publish(made.stream, BatchOutcome(empty, late_count=2), Dropped(5))
    assert (made.stream.late, made.stream.dropped) == (2, 3)
    assert made.stream.watermarks.unpublished_row_count == 3
    assert "too_late group=g tuples=2 rows=3 watermark=1970-01-01T00:00:05Z" in caplog.text
    made.end.publish(made.stream, BatchOutcome(PLAN), Dropped(1))
    assert (made.stream.late, made.stream.dropped) == (2, 4)
    assert made.stream.watermarks.unpublished_row_count == 0
    [late] = [publication.too_late for publication, _ in made.publisher.published if publication.too_late]
    [(_, note)] = late.items()
    assert note.rows == 4
    assert note.watermark == 5_000
    assert note.mover is not None
    made.end.publish(made.stream, BatchOutcome(PLAN))
    assert not made.publisher.published[-1][0].too_late, "it was said"


def test_a_batch_of_which_spark_knows_nothing_more_is_late_by_no_watermark(
    world: tuple[World, LinkedDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = world
    monkeypatch.setattr(batch_end, "logged", lambda _application, _lane: None)
    made.end.publish(made.stream, BatchOutcome(PLAN, late_count=1), Dropped(2))
    [(publication, _)] = made.publisher.published
    assert [(note.watermark, note.rows) for note in publication.too_late.values()] == [(0, 1)]
    assert (made.stream.late, made.stream.dropped) == (1, 1)


DAMAGE = DamagedRun("lines", 0, 5, 7, "its checksum is wrong")


def isolated(count: int) -> RootMarks:
    """Return marks of roots that ended a process."""
    return RootMarks.of_roots(
        RootMark.FAILED, roots_of(SOURCE, np.arange(count)), cause=Cause("split", WORKER_DIED, "SIGSEGV")
    )


def test_the_work_of_published_batches_is_added_up(world: tuple[World, LinkedDriver]) -> None:
    made, driver = world
    errors = (Cause("split", "ValueError", "no"),)
    for _ in range(2):
        made.end.send_publication(made.stream, BatchOutcome(PLAN, isolated(3), errors=errors))
    assert made.stream.work.errors == errors * 2
    assert dict(made.stream.work.isolated) == {WORKER_DIED: 6}
    planner = driver.planner("p", "a")
    planner.catch_up()
    assert planner.published("s", PLAN.ranges)


@pytest.mark.parametrize("stops", [True, False])
def test_only_damage_that_failed_records_ends_the_query(
    stops: bool, world: tuple[World, LinkedDriver]
) -> None:
    made, _ = world
    damaged = Cause("read_stream", "DAMAGED", "its checksum is wrong")
    marks = RootMarks.of_roots(RootMark.FAILED, roots_of(SOURCE, np.array([5])), cause=damaged)
    outcome = BatchOutcome(PLAN, missing=Missing(damaged=(DAMAGE,)))
    told: list[object] = []
    link: Any = SimpleNamespace(put_published=lambda *told_now: told.append(told_now))
    made.application._links["a"] = link
    made.end.send_publication(made.stream, replace(outcome, marks=marks) if stops else outcome)
    [(plan, _, damage, _)] = told
    assert plan is PLAN
    assert tuple(damage) == ((DAMAGE,) if stops else ())


# the log ----------------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    """Return the log's lines of an event."""
    return [record for record in caplog.records if record.getMessage().startswith(event)]


def test_what_was_lost_and_what_passed_when_it_came_again_is_logged(
    world: tuple[World, LinkedDriver], caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = world
    call = PassedCall("split", "HUNG", "60 s", (SourceRun(SOURCE, 3, 5),))
    missing = Missing(lost_count=4, damaged=(DAMAGE,))
    made.end.log_losses(made.stream, BatchOutcome(PLAN, missing=missing, passed=(call,) * (LOGGED_MAX + 5)))
    assert [record.getMessage() for record in lines(caplog, "records_left")] == [
        "records_left_the_log batch=7 records=4"
    ]
    [damaged] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "place=lines/0@5 to=7 batch=7 why='its checksum is wrong'" in damaged.getMessage()
    passed = lines(caplog, "call_passed_again bolt=split error=HUNG how='60 s' batch=7 records=lines/0@3")
    assert len(passed) == LOGGED_MAX


def test_what_was_lost_is_logged_with_its_publication_and_what_is_left_open_when_it_is_settled(
    world: tuple[World, LinkedDriver], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = world
    made.end.publish(made.stream, BatchOutcome(PLAN, missing=Missing(lost_count=1)))
    assert len(lines(caplog, "records_left_the_log batch=7 records=1")) == 1
    warned: list[object] = []
    made.stream.left_open = SimpleNamespace(warn=lambda *arguments: warned.append(arguments))  # type: ignore[assignment]
    monkeypatch.setattr(batch_end, "settle", lambda *_: BatchOutcome(PLAN))
    made.end.settle(made.stream, reports_of("a", tasks=(NO_HELD,)))
    assert warned == [("q", (NO_HELD,), BatchOutcome(PLAN), made.stream.inputs)]


def test_a_batch_without_losses_logs_nothing(
    world: tuple[World, LinkedDriver], caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = world
    made.end.publish(made.stream, BatchOutcome(PLAN))
    assert caplog.records == []


@pytest.mark.parametrize("count", [1, LOGGED_MAX + 1])
def test_isolated_records_are_named_one_by_one_up_to_a_hundred(
    count: int, world: tuple[World, LinkedDriver], caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = world
    made.end.send_publication(made.stream, BatchOutcome(PLAN, isolated(count)))
    logged = lines(caplog, "record_isolated")
    assert len(logged) == min(count, LOGGED_MAX)
    assert logged[0].getMessage() == (
        f"record_isolated record=lines/0@0 bolt=split error={WORKER_DIED} how='SIGSEGV' batch=7"
    )


# what Spark counted -----------------------------------------------------------------------------------------


def count_of(column: str, highest_ms: int) -> Any:
    return SimpleNamespace(column=column, delay_ms=5, highest_ms=highest_ms)


@pytest.mark.parametrize(
    ("holds", "watermarks", "expected"),
    [
        (("h",), [count_of("t", 9)], [WatermarkStats("t", "h", 5, 9)]),
        (
            ("h", ""),
            [count_of("t", 9), count_of("u", 8)],
            [WatermarkStats("t", "h", 5, 9), WatermarkStats("u", "", 5, 8)],
        ),
        (("h", "i"), [None, count_of("u", 8)], [WatermarkStats("u", "i", 5, 8)]),
        (("h", "i"), [count_of("u", 8)], [WatermarkStats("u", "", 5, 8)]),
        (("h",), [], []),
    ],
    ids=["one", "two", "one without rows", "one that Spark took out", "none left"],
)
def test_a_watermark_is_that_of_its_hold_where_spark_has_left_all_of_them_in(
    holds: tuple[str, ...],
    watermarks: list[Any],
    expected: list[WatermarkStats],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = SimpleNamespace(watermarks=watermarks, dropped=4)
    monkeypatch.setattr(dropped_rows, "counts_of_plan", lambda plan: counts if plan == "executed" else None)
    execution: Any = SimpleNamespace(lastExecution=lambda: SimpleNamespace(executedPlan=lambda: "executed"))
    assert dropped_rows.dropped_rows(execution, holds) == Dropped(4, tuple(expected))


def test_without_a_hold_spark_is_not_asked_and_without_a_batch_it_has_counted_nothing() -> None:
    faked: Any = None
    assert dropped_rows.dropped_rows(faked, ()) == NOTHING_DROPPED
    execution: Any = SimpleNamespace(lastExecution=lambda: None)
    assert dropped_rows.dropped_rows(execution, ("h",)) == NOTHING_DROPPED


# what was read to its end -----------------------------------------------------------------------------------


class Rows:
    """Rows of some partitions, of which some have a row; jobs that look for one are noted."""

    def __init__(self, *have_rows: bool) -> None:
        self.have_rows = have_rows
        self.looked: list[list[int]] = []
        self.rdd = SimpleNamespace(context=SimpleNamespace(runJob=self._run))

    def select(self, _column: object) -> Rows:
        return self

    def _run(self, _evaluated: object, function: Any, numbers: list[int]) -> list[bool]:
        self.looked.append(numbers)
        return [flag for number in numbers for flag in function(iter([1] * self.have_rows[number]))]


@pytest.mark.parametrize(
    ("reported", "unread", "looked"),
    [((), 2, [[0, 1, 2]]), ((0,), 1, [[1, 2]]), ((0, 2), 0, [[1]]), ((0, 1, 2), 0, []), ((1,), 2, [[0, 2]])],
)
def test_a_partition_that_nobody_reported_was_not_read_if_it_has_a_row(
    reported: tuple[int, ...], unread: int, looked: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows(True, False, True)
    monkeypatch.setattr(drain, "partition_count_of", lambda of: len(of.have_rows))
    monkeypatch.setattr(drain, "sql", SimpleNamespace(lit=lambda value: value))
    value: dict[Any, dict[str, tuple[str, bytes]]] = {}
    ledger: Any = SimpleNamespace(accumulator=SimpleNamespace(value=value))
    followed = Drain(ledger, "q", 7)
    other = Drain(ledger, "q", 7)
    assert followed.ended_partitions == frozenset()
    value["drain of q", 7] = {str(number): (followed._run_id, str(number).encode()) for number in reported}
    value["drain of q", 7]["x"] = (other._run_id, b"1")
    value["drain of q", 8] = {"y": (followed._run_id, b"2")}
    value["drain of p", 7] = {"z": (followed._run_id, b"0")}
    assert followed.ended_partitions == set(reported)
    faked: Any = rows
    assert followed.find_unread(faked) == Unread(unread, 3)
    assert rows.looked == looked
    followed.forget()
    followed.forget()
    assert value.keys() == {("drain of q", 8), ("drain of p", 7)}
