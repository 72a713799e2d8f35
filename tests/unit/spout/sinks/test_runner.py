"""What the planning process says of itself, and how it waits where there is nothing to plan."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acker.config.topics import parse
from acker.errors import Unreachable
from acker.waits import LOGGED_EVERY_MS
from acker.wire.events import SourceRun
from spout.link.planner_link import PlannerLink
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.status import PlannerStatus, read_status
from spout.streaming import source
from spout.streaming.options import SourceOptions
from spout.streaming.source import (
    ASKING_SECONDS,
    IDLE_POLL_MS,
    POLL_MS,
    WORKERS_MS_MAX,
    Runner,
)
from tests.support.linked import LinkedDriver, batch_plan, linked_driver
from tests.support.waiting import eventually

YAML = """
kafka: {bootstrap.servers: "127.0.0.1:1"}
acker: {partitions: 1}
inputs:
  a: {id: 1, group: g, partitions: 1}
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[LinkedDriver]:
    """A driver of the stream that the runners of these tests read."""
    with linked_driver(tmp_path) as driver:
        yield driver


def options_of(driver: LinkedDriver, **more: Any) -> SourceOptions:
    """Return the options of its stream."""
    topics = parse(YAML, file="topics.yaml", environ={})
    return SourceOptions(
        topics, ("a",), "stream", sink_folder=str(driver.folder), driver=driver.address, **more
    )


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
    pending: int, inactive: bool, commits: bool, driver: LinkedDriver
) -> None:
    """The driver ends the query as soon as it reads so, and Spark kills this process then."""
    path = driver.folder / "status.json"
    planner: Any = Planner(pending)
    if inactive:
        driver.link.deactivate()
    runner = Runner(options_of(driver, status_path=str(path)), planner)
    runner._driver_link.wait_for_state()
    runner._write_status(1_000)
    found = read_status(path)
    assert found is not None
    assert found.pending == pending
    assert planner.committed is commits
    close(runner)


def close(runner: Runner) -> None:
    """Leave driver and Kafka."""
    runner._driver_link.close()
    runner._kafka_log.close()


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
    runner._write_status(1_000)
    assert ("the status file cannot be written" in caplog.text) is lives
    runner._kafka_log.close()


def test_a_runner_stops_in_time_although_its_thread_hangs(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D305: Spark calls `stop` in the thread that runs the query; it would never end."""
    monkeypatch.setattr(source, "JOIN_SECONDS", 0.1)
    planner: Any = Planner(0)
    runner = Runner(options_of(driver), planner)
    locked, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        with runner._condition:
            locked.set()
            may_end.wait(60)

    hanging = threading.Thread(target=hang)
    hanging.start()
    assert locked.wait(60)
    runner.stop()
    assert "planner_not_closed group=g" in caplog.text
    may_end.set()
    hanging.join(60)


class Clock:
    """Shows the time that it is set to."""

    now_s = 0.0

    def __call__(self) -> float:
        """Show it."""
        return self.now_s


class Idle:
    """Has nothing to plan; counts how often that was looked for, and how often a record was waited for."""

    is_open = is_ready = True
    under_way = unpublished = None

    def __init__(self) -> None:
        self.looks = self.waits = 0
        self.comes = False

    def plan(self, start: Journal, *_: object) -> Journal:
        """Find nothing."""
        self.looks += 1
        return start

    def report_verdict_wait(self, now_ms: int) -> None:
        """Note nothing."""

    def wait_for_records(self, wait_ms: int) -> bool:
        """Return whether something comes."""
        self.waits += 1
        return self.comes


class Stepped:
    """Is idle until it was polled once; notes how long each poll was to wait."""

    is_open = False
    is_idle = is_ready = is_reading = True
    under_way = unpublished = None

    def __init__(self) -> None:
        self.waits_ms: list[int] = []
        self.was_busy = threading.Event()

    def open(self, journal: Journal, now_ms: int, *, runs_again: bool, grant_epoch: object) -> None:
        """Open."""

    def poll(self, wait_ms: int) -> tuple[()]:
        """Note it."""
        self.waits_ms.append(wait_ms)
        if len(self.waits_ms) == 2:
            self.was_busy.set()
        self.is_idle = False
        return ()

    def step(self, records: object, now_ms: int) -> None:
        """Do nothing."""


def test_the_thread_is_in_no_hurry_while_nothing_is_pending(tmp_path: Path) -> None:
    topics = parse(YAML, file="topics.yaml", environ={})
    found = Stepped()
    planner: Any = found
    runner = Runner(SourceOptions(topics, ("a",), "s", sink_folder=str(tmp_path)), planner)
    runner.take_group(BEGINNING)
    assert found.was_busy.wait(60)
    runner.stop()
    assert found.waits_ms[:2] == [IDLE_POLL_MS, POLL_MS]


def test_a_query_with_nothing_to_do_looks_for_a_second_and_then_waits_until_a_record_comes(
    driver: LinkedDriver,
) -> None:
    """A reader that was just taken off its partitions would have a record late."""
    found = Idle()
    planner: Any = found
    clock = Clock()
    runner = Runner(options_of(driver), planner, clock_s=clock)

    def plan_at(now_s: float) -> tuple[bool, int]:
        """Plan; return whether that looked for something to plan, and how often records were waited for."""
        clock.now_s = now_s
        before = found.looks
        assert runner.plan(BEGINNING, None) is BEGINNING
        return found.looks > before, found.waits

    assert plan_at(0.0) == (True, 0)
    assert plan_at(ASKING_SECONDS - 0.1) == (True, 0)
    assert plan_at(ASKING_SECONDS) == (False, 1)
    assert plan_at(ASKING_SECONDS + 10) == (False, 2)
    found.comes = True
    assert plan_at(ASKING_SECONDS + 20) == (True, 3)
    assert plan_at(2 * ASKING_SECONDS + 19.9) == (True, 3)
    driver.link.deactivate()
    plan_at(2 * ASKING_SECONDS + 30)
    assert found.waits == 3
    close(runner)


class Opens:
    """Notes whether the group was taken when Spark had run a task; then there is nothing to plan."""

    is_ready = True
    is_idle = is_reading = False
    under_way = unpublished = None

    def report_verdict_wait(self, now_ms: int) -> None:
        """Note nothing."""

    def __init__(self, driver: PlannerLink) -> None:
        self.driver = driver
        self.asked: list[str] = []
        self.is_open = False
        self.was_answered: bool | None = None

    def open(self, journal: Journal, now_ms: int, *, runs_again: bool, grant_epoch: object) -> None:
        """Take the group."""
        self.is_open = True
        self.was_answered = bool(self.asked) and not self.driver.processes_waiting_for_workers()

    def plan(self, start: Journal, *_: object) -> Journal:
        """Find nothing."""
        assert self.asked
        assert not self.driver.processes_waiting_for_workers(), (
            "a record that is emitted now would age unseen"
        )
        return start

    def poll(self, wait_ms: int) -> tuple[()]:
        """Find nothing."""
        return ()

    def step(self, records: object, now_ms: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Leave the group."""

    def status(self, now_ms: int, error: str) -> PlannerStatus:
        """Tell nothing."""
        return PlannerStatus("running", "g", wall=now_ms)


class Closes(Opens):
    """Is open until it is closed; its status tells which."""

    under_way = unpublished = None

    def close(self) -> None:
        self.is_open = False

    def status(self, now_ms: int, error: str) -> PlannerStatus:
        return PlannerStatus("running" if self.is_open else "ended", "g", wall=now_ms)


def test_the_last_status_is_that_of_the_closed_planner_however_late_the_one_before_is(
    driver: LinkedDriver,
) -> None:
    """What was written less than `STATUS_EVERY_MS` ago stood there for good."""
    path = driver.folder / "status.json"
    planner: Any = Closes(driver.link)
    planner.is_open = True
    runner = Runner(options_of(driver, status_path=str(path)), planner)
    runner._write_status(time.time_ns() // 1_000_000)
    runner.stop()
    last = read_status(path)
    assert last is not None
    assert last.state == "ended"


class Ends(Opens):
    """Reads the ends when it shall stop there; from its third look on it is drained."""

    is_open = True
    looks = 0

    def __init__(self, driver: PlannerLink) -> None:
        super().__init__(driver)
        self.asked = ["nothing"]
        self.is_open = True
        self.calls: list[str] = []

    def stop_at_ends(self) -> None:
        """Note it."""
        self.calls.append("ends")

    def is_drained(self) -> bool:
        """Look."""
        self.looks += 1
        self.calls.append("drained" if self.looks >= 3 else "waits")
        return self.looks >= 3

    def leave(self) -> None:
        """Note it."""
        self.calls.append("committed")


def test_the_ends_are_read_once_for_each_request_and_the_driver_hears_when_all_before_is_committed(
    driver: LinkedDriver,
) -> None:
    """`spout.run_once`: also for a process that has read without end before."""
    ends = Ends(driver.link)
    planner: Any = ends
    runner = Runner(options_of(driver), planner)
    assert runner.plan(BEGINNING, None) is BEGINNING
    assert ends.calls == [], "it reads without end"
    driver.link.request_end()
    assert runner.plan(BEGINNING, None) is BEGINNING
    assert ends.calls == ["ends", "waits", "waits", "drained", "committed"]
    eventually(lambda: driver.link.is_drained)
    assert runner.plan(BEGINNING, None) is BEGINNING
    assert ends.calls[5:] == ["drained", "committed"], "as long as Spark asks"
    driver.link.request_end()
    assert not driver.link.is_drained
    assert runner.plan(BEGINNING, None) is BEGINNING
    assert ends.calls[7:] == ["ends", "drained", "committed"]
    eventually(lambda: driver.link.is_drained)
    close(runner)


class Passing(Clock):
    """Moves by a second whenever somebody looks."""

    def __call__(self) -> float:
        """Move, and show it."""
        self.now_s += 1.0
        return self.now_s


@pytest.mark.parametrize("session", ["", "s"], ids=["fresh", "restart"])
def test_the_first_batch_waits_until_spark_has_run_a_task(session: str, driver: LinkedDriver) -> None:
    """D105: a restart takes its group only then, since open roots age from there on."""
    found = Opens(driver.link)
    planner: Any = found
    runner = Runner(options_of(driver, awaits_workers=True), planner)
    start = replace(BEGINNING, session=session)
    planning = threading.Thread(target=runner.plan, args=(start, None))
    planning.start()
    try:
        eventually(driver.link.processes_waiting_for_workers, 20)
        found.asked = driver.link.processes_waiting_for_workers()
        driver.link.answer_that_workers_run(found.asked[0])
        planning.join(60)
        assert not planning.is_alive()
        if session:
            assert found.was_answered is True
    finally:
        runner.stop()


def test_a_pause_that_begins_while_the_query_ends_is_answered_too(driver: LinkedDriver) -> None:
    """Else who ends the query would wait for that answer until its time is over."""
    planner: Any = Idle()
    runner = Runner(options_of(driver), planner)
    driver.link.deactivate(for_good=True)
    planning = threading.Thread(target=runner.plan, args=(BEGINNING, None))
    planning.start()
    try:
        eventually(lambda: driver.link.is_idle, 20)
        driver.link.deactivate()
        eventually(lambda: driver.link.is_idle, 20)
        assert planning.is_alive()
    finally:
        driver.link.activate()
        planning.join(60)
        close(runner)


def test_the_end_of_a_query_is_waited_for_as_long_as_time_passes_whatever_the_wall_clock_shows(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set ahead, it would let batches run again that the end of the query interrupts."""
    wall = Passing()
    monkeypatch.setattr(time, "time_ns", lambda: int(wall() * 1e13))
    planner: Any = Idle()
    runner = Runner(options_of(driver), planner)
    driver.link.deactivate(for_good=True)
    planning = threading.Thread(target=runner.plan, args=(BEGINNING, None))
    planning.start()
    eventually(lambda: driver.link.is_idle, 20)
    planning.join(0.5)
    was_waiting = planning.is_alive()
    driver.link.activate()
    planning.join(60)
    close(runner)
    assert was_waiting


def test_a_wait_for_workers_is_said_each_minute_and_ends(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D106: it names what is missing, and what does not run meanwhile."""
    monkeypatch.setattr(source, "DRIVER_WAIT_MS", 1)
    found = Idle()
    planner: Any = found
    runner = Runner(options_of(driver, awaits_workers=True), planner, clock_s=Passing())
    runner.plan(BEGINNING, None)
    assert found.looks == 2
    lines = [record.getMessage() for record in caplog.records if "waits_for_workers" in record.getMessage()]
    assert len(lines) == WORKERS_MS_MAX / LOGGED_EVERY_MS
    assert "waited_s=60: Spark has run no task yet. Nothing is emitted and no timeout runs" in lines[0]
    close(runner)


def test_a_wait_for_the_driver_s_publication_is_said_each_minute(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D901: a follower may take minutes where the broker is away; until then no batch is planned."""
    monkeypatch.setattr(source, "DRIVER_WAIT_MS", 1)
    planner: Any = Idle()
    driver.link.set_follower_failure("")
    runner = Runner(options_of(driver), planner, clock_s=Passing())
    end = replace(BEGINNING, session="s", ranges=(SourceRun(1, 0, 10),))
    runner._sink_watch.expect(end)
    planning = threading.Thread(target=runner.plan, args=(end, None))
    planning.start()
    eventually(lambda: "waits_for_publication group=g waited_s=120" in caplog.text, 60)
    driver.link.put_published(batch_plan("s", end.ranges))
    planning.join(60)
    assert not planning.is_alive()
    close(runner)


class Exact(Stepped):
    """Asks for the epoch of its session in its first step, and has one batch under way."""

    is_ready = False
    end = replace(BEGINNING, session="s", ranges=(SourceRun(1, 0, 10),))
    unpublished: Journal | None = end  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.grant_epoch: Any = None
        self.was_closed = False

    def open(self, journal: Journal, now_ms: int, *, runs_again: bool, grant_epoch: object) -> None:
        """Remember whom to ask."""
        self.grant_epoch = grant_epoch

    def step(self, records: object, now_ms: int) -> None:
        """Ask."""
        if not self.epochs:
            self.epochs.append(self.grant_epoch(5))

    def restart_clock(self, end: Journal) -> None:
        """Let the clock go on."""
        assert end == self.end
        self.unpublished = None


def test_a_process_whose_stream_has_a_store_takes_the_group_with_the_epoch_that_is_granted(
    driver: LinkedDriver,
) -> None:
    """Rule 12; and it learns when the batch under way is published."""
    driver.link.expect_store(lambda epoch_min: epoch_min + 2)
    found = Exact()
    planner: Any = found
    runner = Runner(options_of(driver), planner)
    runner._driver_link.wait_for_state()
    runner.take_group(BEGINNING)
    eventually(driver.link.epoch_questions)
    assert found.epochs == []
    driver.link.grant_epoch(driver.link.epoch_questions()[0])
    eventually(lambda: found.epochs == [7])
    assert found.unpublished is not None
    driver.link.put_published(batch_plan("s", found.end.ranges))
    eventually(lambda: found.unpublished is None)
    runner.stop()


def test_a_process_of_another_stream_asks_nobody(driver: LinkedDriver) -> None:
    found = Exact()
    planner: Any = found
    runner = Runner(options_of(driver), planner)
    runner._driver_link.wait_for_state()
    runner.take_group(BEGINNING)
    assert found.grant_epoch is None
    assert driver.link.epoch_questions() == []
    runner.stop()


def refuse(epoch_min: int) -> int:
    raise Unreachable("the file is locked")


@pytest.mark.parametrize(
    ("answers", "clock", "error"),
    [
        (True, Clock(), "group g is not taken.*Unreachable: the file is locked"),
        (False, Passing(), "has not opened the store within 600 s"),
    ],
    ids=["refused", "silent"],
)
def test_a_process_ends_by_name_where_the_store_cannot_be_opened(
    answers: bool, clock: Clock, error: str, driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3209."""
    monkeypatch.setattr(source, "POLL_MS", 1)
    driver.link.expect_store(refuse)
    found = Exact()
    planner: Any = found
    runner = Runner(options_of(driver), planner, clock_s=clock)
    runner._driver_link.wait_for_state()
    runner.take_group(BEGINNING)
    if answers:
        eventually(driver.link.epoch_questions)
        driver.link.grant_epoch(driver.link.epoch_questions()[0])
    eventually(lambda: runner._error)
    assert re.search(error, str(runner._error))
    runner.stop()


def test_a_process_that_is_stopped_waits_for_no_store(driver: LinkedDriver) -> None:
    driver.link.expect_store(refuse)
    planner: Any = Exact()
    runner = Runner(options_of(driver), planner)
    runner._driver_link.wait_for_state()
    runner.take_group(BEGINNING)
    eventually(driver.link.epoch_questions)
    runner.stop()
    assert not runner._thread.is_alive()
