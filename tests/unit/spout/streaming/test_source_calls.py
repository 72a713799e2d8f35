"""Spark's calls of the source, and the runner behind them, by a planner that a test scripts."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from acker.config.topics import parse
from acker.errors import SessionRefused, TrackingError, UsageError
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.planning.journal import BEGINNING, Journal, SourceMark
from spout.planning_process.status import PlannerStatus, read_status
from spout.streaming import source
from spout.streaming.options import SourceOptions
from spout.streaming.source import (
    ASKING_SECONDS,
    STATUS_EVERY_MS,
    Runner,
    SparkTask,
    WindhoverReader,
    WindhoverSource,
)
from tests.support.linked import LinkedDriver, batch_plan, linked_driver, others_run_again
from tests.support.waiting import eventually

YAML = """
kafka: {bootstrap.servers: "127.0.0.1:1"}
acker: {partitions: 1}
inputs:
  a: {id: 1, group: g, partitions: 1}
"""
TOPICS = parse(YAML, file="topics.yaml", environ={})
SOURCE = 1 << 16


def offset(end: int) -> Journal:
    """Return the offset behind a batch of ten records."""
    marks = {SOURCE: SourceMark(0, end)}
    return Journal("s", 1, 0, 1, marks, (SourceRun(SOURCE, end - 10, end),))


FIRST, SECOND, THIRD = offset(10), offset(20), offset(30)


@dataclass
class Planner:
    """Plans what a test has put into `ends`, and then nothing; writes its calls down.

    Attributes:
        fails: what the next step of the thread raises.
        drained_after: after so many looks nothing is pending.
    """

    ends: list[Journal] = field(default_factory=list)
    fails: BaseException | None = None
    refuses: Exception | None = None
    drained_after: int = 0
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    polled: threading.Event = field(default_factory=threading.Event)
    hangs: threading.Event = field(default_factory=threading.Event)  # not set: a poll does not return
    is_hanging: bool = False
    polls: int = 0
    pending: int = 0
    is_open: bool = False
    is_ready: bool = True
    is_idle: bool = False
    is_reading: bool = True
    under_way: Journal | None = None
    unpublished: Journal | None = None

    def open(self, journal: Journal, now_ms: int, *, runs_again: bool, grant_epoch: object) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.is_open = True
        self.calls.append(("open", journal, runs_again, grant_epoch is None))

    def __post_init__(self) -> None:
        self.hangs.set()

    def poll(self, wait_ms: int) -> tuple[()]:
        self.polls += 1
        if self.is_reading:
            self.polled.wait(0.01)
        self.is_hanging = not self.hangs.is_set()
        self.hangs.wait(60)
        return ()

    def step(self, records: object, now_ms: int) -> None:
        self.polled.set()
        if self.fails is not None:
            raise self.fails

    def plan(self, start: Journal, rows_max: int | None, now_ms: int, tasks_max: int) -> Journal:
        self.calls.append(("plan", start, rows_max))
        return self.ends.pop(0) if self.ends else start

    def wait_for_records(self, wait_ms: int) -> bool:
        return False

    def report_verdict_wait(self, now_ms: int) -> None:
        self.calls.append(("report_verdict_wait",))

    def stop_at_ends(self) -> None:
        self.calls.append(("stop_at_ends",))

    def is_drained(self) -> bool:
        self.drained_after -= 1
        return self.drained_after < 0

    def record_publication(self, end: Journal, not_acked: object) -> None:
        self.calls.append(("record_publication", end, not_acked))

    def record_held_roots(self, held: object) -> None:
        self.calls.append(("record_held_roots", held))
        self.under_way = None

    def restart_clock(self, end: Journal) -> None:
        self.calls.append(("restart_clock", end))
        self.unpublished = None

    def leave(self) -> None:
        self.calls.append(("leave",))

    def close(self) -> None:
        self.calls.append(("close",))

    def status(self, now_ms: int, error: str) -> PlannerStatus:
        return PlannerStatus("running", "g", pending=self.pending, error=error, wall=now_ms)

    def calls_of(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the calls of these names."""
        return [call for call in self.calls if call[0] in names]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[LinkedDriver]:
    """A driver of the stream that the runners of these tests read."""
    with linked_driver(tmp_path) as driver:
        yield driver


@dataclass
class World:
    """A driver, a planner, and runners of it, which are stopped with the test."""

    driver: LinkedDriver
    planner: Planner = field(default_factory=Planner)
    runners: list[Runner] = field(default_factory=list)

    @property
    def status_path(self) -> Path:
        return self.driver.folder / "status.json"

    def runner(self, **more: Any) -> Runner:
        options = SourceOptions(
            TOPICS,
            ("a",),
            "stream",
            sink_folder=str(self.driver.folder),
            driver=self.driver.address,
            status_path=str(self.status_path),
            **more,
        )
        planner: Any = self.planner
        self.runners.append(Runner(options, planner))
        return self.runners[-1]

    def status(self) -> PlannerStatus:
        """Return the status that was written last."""
        status = read_status(self.status_path)
        assert status is not None
        return status

    def publish(self, end: Journal, **more: Any) -> None:
        """Let the driver say that a batch is published."""
        self.driver.link.put_published(batch_plan("s", end.ranges), **more)


@pytest.fixture
def world(driver: LinkedDriver) -> Iterator[World]:
    world = World(driver)
    yield world
    for runner in world.runners:
        runner.stop()


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the wall clock stand: a status is written once, and then only where it has to be at once."""
    monkeypatch.setattr(source.time, "time_ns", lambda: 10**18)


# the runner -------------------------------------------------------------------------------------------------


def test_the_first_batch_takes_the_group_and_the_next_ones_wait_for_its_publication(
    world: World,
) -> None:
    """What it did not ack is passed to the planner once."""
    world.planner.ends = [FIRST, SECOND, THIRD]
    runner = world.runner()
    assert runner.plan(BEGINNING, 7) == FIRST
    planning = threading.Thread(target=runner.plan, args=(FIRST, 8))
    planning.start()
    planning.join(0.3)
    assert planning.is_alive(), "the batch is not published"
    world.publish(FIRST, not_acked=())
    planning.join(60)
    world.publish(SECOND)
    assert runner.plan(SECOND, None) == THIRD
    assert world.planner.calls_of("open", "plan", "record_publication") == [
        ("open", BEGINNING, False, True),
        ("plan", BEGINNING, 7),
        ("record_publication", FIRST, ()),
        ("plan", FIRST, 8),
        ("plan", SECOND, None),
    ]


def test_a_batch_that_another_process_has_planned_runs_again_and_the_others_are_told(
    world: World,
) -> None:
    world.planner.ends = [SECOND]
    runner, watcher = world.runner(), world.driver.planner("another")
    assert runner.begin_batch(FIRST) is True
    assert runner.begin_batch(FIRST) is True, "none was planned here"
    eventually(lambda: others_run_again(watcher))
    assert runner.plan(FIRST, None) == SECOND
    assert runner.begin_batch(SECOND) is False
    assert world.planner.calls_of("open") == [("open", FIRST, True, True)]


def test_a_batch_that_runs_again_waits_until_spark_has_workers(world: World) -> None:
    """From when the group is taken the clock of its roots moves."""
    runner = world.runner(awaits_workers=True)
    beginning = threading.Thread(target=runner.begin_batch, args=(FIRST,))
    beginning.start()
    eventually(world.driver.link.processes_waiting_for_workers)
    assert not world.planner.is_open
    world.driver.link.answer_that_workers_run(world.driver.link.processes_waiting_for_workers()[0])
    beginning.join(60)
    assert world.planner.is_open


def test_a_group_that_is_refused_ends_the_query_with_the_reason_each_time(world: World) -> None:
    world.planner.refuses = SessionRefused("another query has it")
    runner = world.runner()
    for _ in range(2):
        with pytest.raises(SessionRefused, match="another query has it"):
            runner.plan(BEGINNING, None)
    assert world.planner.calls == []


@pytest.mark.usefixtures("still_clock")
def test_what_ends_the_thread_ends_the_query_at_its_next_call_and_is_in_the_status(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    runner = world.runner()
    assert runner.plan(BEGINNING, None) is BEGINNING
    world.planner.fails = TrackingError("the log is gone")
    eventually(lambda: "planner stopped: the log is gone" in caplog.text)
    eventually(lambda: world.status().error == "the log is gone")
    with pytest.raises(TrackingError, match="the log is gone"):
        runner.plan(BEGINNING, None)


def test_a_wait_for_a_publication_ends_with_the_thread(world: World) -> None:
    world.planner.ends = [FIRST]
    runner = world.runner()
    runner.plan(BEGINNING, None)
    raised: list[BaseException] = []

    def plan() -> None:
        try:
            runner.plan(FIRST, None)
        except TrackingError as error:
            raised.append(error)

    planning = threading.Thread(target=plan)
    planning.start()
    world.planner.fails = TrackingError("the log is gone")
    planning.join(60)
    assert [str(error) for error in raised] == ["the log is gone"]


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("failure", ["", "the store refuses it"])
def test_a_batch_that_is_not_published_in_time_ends_the_query(
    world: World, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whose follower says why not; the status has the reason."""
    monkeypatch.setattr("spout.planning_process.sink_watch.LATE_MS", 200)
    world.planner.ends = [FIRST]
    runner = world.runner()
    runner.plan(BEGINNING, None)
    if failure:
        world.driver.link.set_follower_failure(failure)
    with pytest.raises(TrackingError, match=failure or "nothing of it was acked or failed"):
        runner.plan(FIRST, None)
    assert (failure or "nothing of it was acked or failed") in world.status().error


@pytest.mark.usefixtures("still_clock")
def test_damage_in_a_batch_ends_the_query_behind_it(world: World) -> None:
    damaged = DamagedRun("a", 0, 3, 5, "its checksum is wrong")
    world.planner.ends = [FIRST]
    runner = world.runner()
    runner.plan(BEGINNING, None)
    world.publish(FIRST, damaged=(damaged,))
    for _ in range(2):
        with pytest.raises(Exception, match="its checksum is wrong"):
            runner.plan(FIRST, None)
    assert "its checksum is wrong" in world.status().error


def test_what_spark_holds_and_what_a_store_has_is_passed_on_once_the_batch_is_published(
    world: World,
) -> None:
    world.planner.under_way = world.planner.unpublished = FIRST
    runner = world.runner()
    runner.plan(BEGINNING, None)
    assert world.planner.calls_of("record_held_roots", "restart_clock") == []
    world.publish(FIRST)
    eventually(lambda: len(world.planner.calls_of("record_held_roots", "restart_clock")) == 2)


@pytest.mark.usefixtures("still_clock")
def test_a_query_that_reads_up_to_the_ends_goes_on_until_nothing_is_pending(world: World) -> None:
    """A replay that becomes due is a batch of its own; then the process leaves the group."""
    runner = world.runner()
    runner.stop_at_ends()
    world.planner.drained_after = 2
    world.planner.ends = [BEGINNING, BEGINNING, FIRST]
    assert runner.plan(BEGINNING, None) == FIRST
    assert world.planner.calls_of("leave", "report_verdict_wait") == []
    world.publish(FIRST)
    world.planner.pending = 4
    assert runner.plan(FIRST, None) is FIRST
    assert world.status().pending == 4, "Spark kills this process now"
    assert world.planner.calls_of("leave", "stop_at_ends", "report_verdict_wait") == [
        ("stop_at_ends",),
        ("leave",),
    ]


def test_nothing_to_plan_is_looked_for_twice_and_then_the_wait_for_verdicts_is_reported(
    world: World,
) -> None:
    runner = world.runner()
    world.planner.ends = [BEGINNING, FIRST]
    assert runner.plan(BEGINNING, None) == FIRST
    assert world.planner.calls_of("report_verdict_wait") == []
    world.publish(FIRST)
    assert runner.plan(FIRST, None) is FIRST
    assert len(world.planner.calls_of("report_verdict_wait")) == 1


def test_a_runner_that_is_stopped_closes_its_planner_and_writes_a_last_status(world: World) -> None:
    runner = world.runner()
    runner.stop()
    assert world.planner.calls_of("close") == [], "it has no group"
    world.runners.clear()
    runner = world.runner()
    runner.plan(BEGINNING, None)
    ahead_ns = time.time_ns() + 10**12  # the last status is older than the interval
    with pytest.MonkeyPatch.context() as patch:
        world.planner.hangs.clear()
        eventually(lambda: world.planner.is_hanging)
        world.planner.pending = 9
        patch.setattr(source.time, "time_ns", lambda: ahead_ns)
        patch.setattr(Planner, "step", lambda *_: None)
        threading.Timer(0.1, world.planner.hangs.set).start()
        runner.stop()
    world.runners.clear()
    assert world.status().pending == 9
    assert world.planner.calls_of("close") == [("close",)]
    assert not any(thread.name == "windhover-planner" for thread in threading.enumerate())


def test_the_status_is_written_in_intervals_and_at_once_where_the_wall_clock_was_set_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the wall clock, which the status shows: so who reads it sees how old it is."""
    now_ms = [1_000_000]
    monkeypatch.setattr(source.time, "time_ns", lambda: now_ms[0] * 1_000_000)
    written: list[int] = []
    monkeypatch.setattr(source, "write_status", lambda _path, status: written.append(status.wall))
    world.planner.is_idle = True
    runner = world.runner()
    runner.plan(BEGINNING, None)
    eventually(lambda: written == [1_000_000])
    for step_ms, count in ((STATUS_EVERY_MS - 1, 1), (1, 2), (-5_000, 3)):
        now_ms[0] += step_ms
        world.planner.polled.clear()
        eventually(world.planner.polled.is_set)
        eventually(lambda count=count: len(written) >= count)  # type: ignore[misc]  # bound at once
        assert len(written) == count
    assert written == [1_000_000, 1_000_250, 995_250]


def test_the_thread_waits_also_where_there_are_no_verdicts_to_read(world: World) -> None:
    """A poll returns at once then."""
    world.planner.is_reading = False
    runner = world.runner()
    runner.plan(BEGINNING, None)
    polls_before = world.planner.polls
    threading.Event().wait(0.5)
    assert world.planner.polls - polls_before <= 12


def test_an_error_of_the_thread_ends_a_query_that_waits_for_records(driver: LinkedDriver) -> None:
    """Also where nothing was planned for long, so that nobody looks for it."""
    planner = Planner()
    scripted: Any = planner
    clock_s = [0.0]
    options = SourceOptions(TOPICS, ("a",), "stream", sink_folder=str(driver.folder), driver=driver.address)
    runner = Runner(options, scripted, clock_s=lambda: clock_s[0])
    assert runner.plan(BEGINNING, None) is BEGINNING
    clock_s[0] = 2 * ASKING_SECONDS
    assert runner.plan(BEGINNING, None) is BEGINNING
    planner.fails = TrackingError("the log is gone")

    def plan_on() -> None:
        for _ in range(1_000):
            runner.plan(BEGINNING, None)
            planner.polled.wait(0.01)
            planner.polled.clear()

    with pytest.raises(TrackingError, match="the log is gone"):
        plan_on()
    runner.stop()


def test_a_trigger_is_looked_at_once(driver: LinkedDriver) -> None:
    looks: list[str] = []

    class Noted(dict[str, str]):
        def get(self, trigger: str, default: Any = None) -> Any:
            looks.append(trigger)
            return super().get(trigger, default)

    scripted: Any = Planner()
    options = SourceOptions(TOPICS, ("a",), "stream", sink_folder=str(driver.folder), driver=driver.address)
    runner = Runner(options, scripted, refused_triggers=Noted(OneTimeTrigger="why"))
    planning = threading.Thread(target=runner.plan, args=(BEGINNING, None))
    planning.start()
    eventually(driver.link.processes_waiting_for_trigger)
    driver.link.put_trigger(driver.link.processes_waiting_for_trigger()[0], "ProcessingTimeTrigger")
    planning.join(60)
    runner.plan(BEGINNING, None)
    assert looks == ["ProcessingTimeTrigger"]
    runner.stop()


# Spark's calls ----------------------------------------------------------------------------------------------


@dataclass
class Behind:
    """Stands for a runner: returns `end`, and writes its calls down."""

    options: SourceOptions
    refused_triggers: Any
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    end: Journal = FIRST
    planned_elsewhere: bool = False

    def plan(self, start: Journal, rows_max: int | None) -> Journal:
        self.calls.append(("plan", start, rows_max))
        return self.end

    def begin_batch(self, end: Journal) -> bool:
        self.calls.append(("begin_batch", end))
        return self.planned_elsewhere

    def stop_at_ends(self) -> None:
        self.calls.append(("stop_at_ends",))

    def stop(self) -> None:
        self.calls.append(("stop",))


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> list[Behind]:
    """The runners that readers make."""
    made: list[Behind] = []

    def make(options: SourceOptions, *, refused_triggers: Any) -> Behind:
        made.append(Behind(options, refused_triggers))
        return made[-1]

    monkeypatch.setattr(source, "Runner", make)
    return made


OPTIONS = SourceOptions(TOPICS, ("a",), "stream", max_offsets_per_trigger=5, schema="value binary")


def test_a_reader_makes_one_runner_when_it_plans_and_none_to_be_stopped(
    behind: list[Behind],
) -> None:
    reader = WindhoverReader(OPTIONS)
    assert reader.initialOffset() == BEGINNING.to_json()
    assert reader.rows_max == 5
    reader.stop()
    assert behind == []
    start = BEGINNING.to_json()
    assert reader.plan_batch(start, 3) == FIRST.to_json()
    behind[0].end = BEGINNING
    assert reader.plan_batch(start, None) is start, "there is nothing to do"
    reader.stop_at_ends()
    reader.commit(start)
    reader.stop()
    [runner] = behind
    assert runner.calls == [
        ("plan", BEGINNING, 3),
        ("plan", BEGINNING, None),
        ("stop_at_ends",),
        ("stop",),
    ]


def test_the_tasks_of_a_batch_say_whether_another_process_had_planned_it(
    behind: list[Behind],
) -> None:
    reader = WindhoverReader(OPTIONS)
    for planned_elsewhere in (False, True):
        [task] = reader.tasks_of_batch(BEGINNING.to_json(), FIRST.to_json())
        assert task.runs_again is planned_elsewhere
        assert task.task.ranges == (SourceRun(SOURCE, 0, 10),)
        behind[0].planned_elsewhere = True
    assert behind[0].calls == [("begin_batch", FIRST)] * 2


def test_triggers_are_refused_for_tracked_records_alone(
    behind: list[Behind], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindhoverReader, "refused_triggers", {"OneTimeTrigger": "why"}, raising=False)
    for tracked in (True, False):
        WindhoverReader(replace(OPTIONS, tracked=tracked)).plan_batch(BEGINNING.to_json(), None)
    assert [runner.refused_triggers for runner in behind] == [{"OneTimeTrigger": "why"}, {}]


def test_a_reader_travels_without_its_runner(behind: list[Behind]) -> None:
    reader = WindhoverReader(OPTIONS)
    reader.plan_batch(BEGINNING.to_json(), None)
    sent: WindhoverReader = pickle.loads(pickle.dumps(reader))
    sent.stop()
    assert sent.rows_max == 5
    assert behind[0].calls == [("plan", BEGINNING, None)]


def test_a_worker_reads_its_own_tasks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[object, object, bool]] = []

    def read_task(task: object, options: object, *, runs_again: bool) -> Iterator[Any]:
        read.append((task, options, runs_again))
        return iter(())

    monkeypatch.setattr("spout.streaming.read_task.read", read_task)
    reader = WindhoverReader(OPTIONS)
    task: Any = object()
    for runs_again in (True, False):
        assert list(reader.read(SparkTask(task, runs_again=runs_again))) == []
    assert read == [(task, OPTIONS, True), (task, OPTIONS, False)]
    with pytest.raises(TypeError, match="the source was given a InputPartition to read, not its own"):
        reader.read(InputPartition(1))


def test_a_source_has_a_name_for_each_session_and_needs_its_options() -> None:
    kinds = [WindhoverSource.of(OPTIONS, session) for session in (1, 2, 11)]
    assert [kind.name() for kind in kinds] == ["windhover", "windhover_2", "windhover_11"]
    made = kinds[1]({})
    assert made.schema() == "value binary"
    reader: Any = made.streamReader(None)  # type: ignore[arg-type]  # it is not looked at
    assert reader.rows_max == 5
    with pytest.raises(UsageError, match=r"is built by spout\.read_stream"):
        WindhoverSource({}).schema()


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ("session_began", logging.INFO),
        ("batch_over_timeout", logging.ERROR),
        ("partition_stands", logging.ERROR),
        ("verdicts_late", logging.WARNING),
    ],
)
def test_what_the_planner_reports_is_logged_by_its_weight_with_its_fields(
    event: str, level: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[Callable[[str, Any], None]] = []

    def make(*_arguments: object, report: Callable[[str, Any], None], **_more: object) -> Planner:
        reports.append(report)
        return Planner()

    monkeypatch.setattr(source, "Planner", make)
    runner = Runner(OPTIONS)
    with caplog.at_level(logging.DEBUG):
        reports[0](event, {"group": "g", "seconds": 3})
    assert caplog.record_tuples == [("windhover.spout", level, f"{event} group=g seconds=3")]
    runner.stop()
