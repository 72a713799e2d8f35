"""What driver and planning processes know of each other, and what they know when somebody comes or goes."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from acker.errors import Unreachable
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.link import connection as connection_of_link
from spout.link import driver_link
from spout.link.connection import SOCKET_NAME, Connection, connect, greet_driver
from spout.link.driver_link import DriverLink
from spout.link.messages import (
    SESSIONS_MAX,
    BatchPublished,
    DriverState,
    Hello,
    Message,
    Published,
    from_frame,
    to_frame,
)
from spout.planning.order import NotAcked
from spout.streaming.options import SourceOptions, tasks_now
from tests.support.linked import LinkedDriver, batch_plan, linked_driver, others_run_again
from tests.support.waiting import eventually

SOURCE = 65_536
ENDED_S = 60
"""So long a test waits for threads that end at once."""

FIRST, SECOND = (SourceRun(SOURCE, 0, 10),), (SourceRun(SOURCE, 10, 20),)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[LinkedDriver]:
    """A driver that listens in a folder."""
    with linked_driver(tmp_path / "sinks") as driver:
        yield driver


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """Make the driver's folder."""
    path = tmp_path / "sinks"
    path.mkdir(mode=0o700)
    return path


def test_a_planning_process_that_connects_knows_all_that_holds(driver: LinkedDriver) -> None:
    """D302: a message that nobody has read yet is not lost; a second process hears the same as the first."""
    link = driver.link
    link.set_follower_failure("")
    link.put_cores(6)
    link.deactivate(for_good=True)
    not_acked, damaged = (NotAcked(SOURCE, 3, None, -1),), (DamagedRun("t", 0, 4, 5, "bent"),)
    held = (SourceRun(SOURCE, 5, 7),)
    link.put_published(batch_plan("s", FIRST), not_acked, damaged, held)
    link.answer_that_workers_run("p")
    for process, has_workers in (("p", True), ("q", False)):
        planner = driver.planner(process)
        assert (planner.is_inactive, planner.ends_for_good, planner.follower_failure) == (True, True, "")
        assert (planner.cores, planner.has_workers) == (6, has_workers)
        assert planner.published("s", FIRST) == Published(not_acked, damaged, held)
        assert planner.published("s", SECOND) is None


def test_what_a_process_has_done_for_an_earlier_request_to_end_counts_for_no_later_one(
    driver: LinkedDriver,
) -> None:
    """A process of the run before may be connected still, and hear the next request."""
    link = driver.link
    assert not link.is_drained
    before = driver.planner("p")
    link.request_end()
    eventually(lambda: before.end_number == 1)
    before.put_drained(1)
    eventually(lambda: link.is_drained)
    link.drop_request()
    eventually(lambda: before.end_number == 0)
    link.request_end()
    assert not link.is_drained
    now = driver.planner("q")
    assert now.end_number == 2
    before.put_drained(1)
    now.put_drained(2)
    eventually(lambda: link.is_drained)


def test_what_the_driver_did_before_is_known_when_a_callback_has_caught_up(driver: LinkedDriver) -> None:
    """The next batch may not be planned by what was said before the last one was published."""
    planner = driver.planner()
    for start in range(0, 2_000, 10):
        ranges = (SourceRun(SOURCE, start, start + 10),)
        (driver.link.deactivate if start % 20 else driver.link.activate)()
        driver.link.put_published(batch_plan("s", ranges))
        planner.catch_up()
        assert planner.published("s", ranges) == Published(None)
        assert planner.is_inactive is bool(start % 20)


def test_what_the_driver_did_is_known_also_where_the_connection_has_ended_meanwhile(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D305: the driver drops who stands still; what it says then comes by the next connection."""
    # on a machine without time for this test a connection may take longer than a planning process waits
    monkeypatch.setattr(driver_link, "RECONNECT_MS_MAX", 1_000 * ENDED_S)
    planner = driver.planner()
    for number in range(20):
        (driver.link.activate if number % 2 else driver.link.deactivate)()
        eventually(lambda: driver.link._process_by_connection)
        for connection in tuple(driver.link._process_by_connection):
            connection.end()
        ranges = (SourceRun(SOURCE, number, number + 1),)
        (driver.link.deactivate if number % 2 else driver.link.activate)()
        driver.link.put_published(batch_plan("s", ranges))
        planner.catch_up()
        assert planner.is_inactive is bool(number % 2)
        assert planner.published("s", ranges) == Published(None)


def test_who_connects_hears_what_holds_when_it_knows_all_batches(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D302: also if something changes while it is told: who knows what holds plans."""
    driver.link.put_published(batch_plan("s", FIRST))
    send = Connection.send

    def change_and_send(connection: Connection, make_frame: Callable[[], bytes]) -> None:
        if driver.link._process_by_connection and not driver.link.is_inactive:
            driver.link.deactivate()
        send(connection, make_frame)

    monkeypatch.setattr(Connection, "send", change_and_send)
    end = connect(str(driver.folder))
    greet_driver(end, driver.address.key, to_frame(Hello("stream", "p")))
    heard: list[Message] = []
    while not any(isinstance(message, DriverState) for message in heard):
        assert end.wait(20_000)
        end.handle_arrived(lambda frame: heard.append(from_frame(frame)))
    end.close()
    assert [type(message) for message in heard] == [BatchPublished, DriverState]
    assert heard[-1] == DriverState(is_inactive=True, pauses=1)


@pytest.mark.parametrize("error", [ValueError("no message"), MemoryError("64 MiB")], ids=str)
def test_a_message_that_cannot_be_taken_ends_the_connection_and_all_is_said_again(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """D305: nothing is passed over, and nobody listens to nothing for ever."""
    is_to_refuse, is_refused = threading.Event(), threading.Event()
    handle_frame = DriverLink.handle_frame

    def refuse_once(link: DriverLink, frame: bytes) -> None:
        if is_to_refuse.is_set() and not is_refused.is_set():
            is_refused.set()
            raise error
        handle_frame(link, frame)

    # before it connects: its thread may still take the first message with the method that was there then
    monkeypatch.setattr(DriverLink, "handle_frame", refuse_once)
    planner = driver.planner()
    is_to_refuse.set()
    driver.link.deactivate()
    eventually(lambda: planner.is_inactive)
    assert is_refused.is_set()
    planner.catch_up()
    assert planner.is_connected


def test_what_was_said_wakes_who_waits_for_it(driver: LinkedDriver) -> None:
    planner = driver.planner()
    said = planner.changes
    driver.link.put_published(batch_plan("s", FIRST))
    planner.wait(said, 60_000)
    assert planner.published("s", FIRST) is not None
    said = planner.changes
    planner.wake()
    planner.wait(said, 60_000)
    assert planner.changes == said + 1


def test_of_each_session_the_last_batch_is_remembered_and_not_of_all_sessions(driver: LinkedDriver) -> None:
    planner = driver.planner()
    for number in range(SESSIONS_MAX + 1):
        for ranges in (FIRST, SECOND):
            driver.link.put_published(batch_plan(f"s{number}", ranges))
    planner.catch_up()
    for known in (planner, driver.planner("later")):
        assert known.published("s0", SECOND) is None, "of a session that has ended"
        for number in range(1, SESSIONS_MAX + 1):
            assert known.published(f"s{number}", FIRST) is None
            assert known.published(f"s{number}", SECOND) is not None


def test_a_stream_is_idle_when_the_planning_process_has_answered(driver: LinkedDriver) -> None:
    link, planner = driver.link, driver.planner()
    link.deactivate()
    planner.catch_up()
    assert planner.is_inactive
    assert not link.is_idle
    planner.put_idle()
    eventually(lambda: link.is_idle)
    link.deactivate()
    assert not link.is_idle, "the answer was to the message before"
    link.activate()
    planner.catch_up()
    assert not planner.is_inactive
    link.deactivate()
    assert not link.is_idle


def test_threads_that_change_what_holds_at_once_do_not_wait_for_each_other(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower's thread and the user's: what is sent last is what both have left."""
    # whoever waited for the other one would do so for longer than the test does for both
    monkeypatch.setattr(connection_of_link, "SEND_MS_MAX", 1_000 * ENDED_S)
    link, planner = driver.link, driver.planner()

    def pause_and_resume() -> None:
        for _ in range(300):
            link.deactivate()
            link.activate()

    def follow() -> None:
        for number in range(600):
            link.set_follower_failure(f"failure {number}")

    with ThreadPoolExecutor(2) as threads:
        for work in [threads.submit(pause_and_resume), threads.submit(follow)]:
            work.result(ENDED_S)
    planner.catch_up()
    assert (planner.is_inactive, planner.follower_failure) == (False, "failure 599")
    assert planner.is_connected


def test_a_stop_for_good_is_not_taken_back_by_a_pause(driver: LinkedDriver) -> None:
    """Or the batches of ticks would go on, and the end of the query would interrupt one."""
    link, planner = driver.link, driver.planner()

    def heard() -> tuple[bool, bool]:
        planner.catch_up()
        return planner.is_inactive, planner.ends_for_good

    link.deactivate()
    assert heard() == (True, False)
    link.deactivate(for_good=True)
    link.deactivate()
    assert heard() == (True, True)
    link.activate()
    assert heard() == (False, False)


def test_a_process_that_asks_for_workers_waits_for_its_own_answer(driver: LinkedDriver) -> None:
    """D105: what Spark has run for the process before proves nothing; of two at once each is answered."""
    first, second = driver.planner("first"), driver.planner("second")
    assert driver.link.processes_waiting_for_workers() == []
    first.ask_for_workers()
    eventually(lambda: driver.link.processes_waiting_for_workers() == ["first"])
    second.ask_for_workers()
    eventually(lambda: driver.link.processes_waiting_for_workers() == ["first", "second"])
    driver.link.answer_that_workers_run("first")
    first.catch_up()
    second.catch_up()
    assert (first.has_workers, second.has_workers) == (True, False)
    driver.link.answer_that_workers_run("second")
    for planner in (first, second):
        planner.catch_up()
        assert planner.has_workers
    assert driver.link.processes_waiting_for_workers() == []


def test_the_driver_says_after_each_batch_how_many_cores_the_next_one_has(driver: LinkedDriver) -> None:
    """Executors register after the query was built, and come and go."""
    planner = driver.planner()
    options = SourceOptions(cast("Any", None), ("lines",), "stream", parallelism=2)
    assert tasks_now(options, planner.cores) == 2, "nobody has said anything yet"
    for cores in (6, 1):
        driver.link.put_cores(cores)
        planner.catch_up()
        assert tasks_now(options, planner.cores) == cores
    assert tasks_now(replace(options, min_partitions=8), planner.cores) == 8


def test_each_stream_has_messages_of_its_own(driver: LinkedDriver) -> None:
    other = driver.stream("other", "h")
    planners = driver.planner(), driver.planner("q", "other")
    other.deactivate()
    driver.link.put_published(batch_plan("s", FIRST))
    for planner in planners:
        planner.catch_up()
    assert [planner.is_inactive for planner in planners] == [False, True]
    assert [planner.published("s", FIRST) is not None for planner in planners] == [True, False]
    planners[0].report_that_it_runs_again("s", FIRST)
    assert not other.runs_again(batch_plan("s", FIRST))


def test_a_batch_stays_one_that_runs_again_whichever_process_comes_and_goes(driver: LinkedDriver) -> None:
    """D306: Spark may start another planning process while the sink of the batch still writes."""
    plan, link = batch_plan("s", FIRST), driver.link
    first = driver.planner("first")
    assert not link.runs_again(plan)
    first.report_that_it_runs_again("s", FIRST)
    assert link.runs_again(plan)
    assert not link.runs_again(batch_plan("s", SECOND))
    assert link.mark.exists()
    second = driver.planner("second")
    second.report_that_it_plans()  # it plans, or is refused as the second start of a query
    assert link.runs_again(plan)
    assert link.mark.exists(), "tasks of the first one look at it still"
    second.close()
    first.close()
    assert link.runs_again(plan), "its sink has not asked yet"
    third = driver.planner("third")
    assert link.mark.exists()
    # the driver notices a while later that the first one has gone, and says so
    eventually(lambda: not others_run_again(third))
    third.report_that_it_plans()
    assert not link.mark.exists(), "nobody who lives runs a batch again"


def test_a_mark_that_a_cleaner_has_removed_is_there_again(driver: LinkedDriver, folder: Path) -> None:
    planner = driver.planner()
    planner.keep_mark()
    assert not driver.link.mark.exists(), "nothing runs again"
    planner.report_that_it_runs_again("s", FIRST)
    clean(folder)
    planner.keep_mark()
    assert not folder.exists(), "the driver makes it, and removes it at its end"
    folder.mkdir(mode=0o700)
    planner.keep_mark()
    assert driver.link.mark.exists()
    planner.report_that_it_plans()
    planner.keep_mark()
    assert not driver.link.mark.exists()


def test_a_mark_is_not_there_again_behind_the_batch(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner's thread keeps it while Spark's callback removes it; the next batch would be isolated."""
    planner = driver.planner()
    planner.report_that_it_runs_again("s", FIRST)
    touch, touches, goes_on = Path.touch, threading.Event(), threading.Event()

    def touch_late(path: Path) -> None:
        touches.set()
        assert goes_on.wait(30)
        touch(path)

    monkeypatch.setattr(Path, "touch", touch_late)
    keeping = threading.Thread(target=planner.keep_mark)
    dropping = threading.Thread(target=planner.report_that_it_plans)
    keeping.start()
    assert touches.wait(30)
    dropping.start()
    dropping.join(0.2)
    goes_on.set()
    keeping.join(30)
    dropping.join(30)
    assert not driver.link.mark.exists()


def test_a_mark_that_can_neither_be_written_nor_removed_is_named_once_and_ends_no_query(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else has made the folder again, behind a cleaner."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    planner = driver.planner()
    planner.report_that_it_runs_again("s", FIRST)
    planner.report_that_it_plans()
    planner.report_that_it_plans()
    assert [message for message in caplog.messages if "not yours" in message] == [
        "the mark of a batch that is run again cannot be written or removed: not yours"
    ]
    monkeypatch.undo()


def clean(folder: Path) -> None:
    """Do what a cleaner of temporary files does."""
    shutil.rmtree(folder)


def test_a_cleaner_ends_no_connection_and_changes_nothing(driver: LinkedDriver, folder: Path) -> None:
    """D301: a topology that is paused stays paused, and is resumed by who paused it."""
    link, planner = driver.link, driver.planner()
    link.set_follower_failure("")
    link.deactivate(for_good=True)
    planner.catch_up()
    clean(folder)
    planner.catch_up()
    assert (planner.is_inactive, planner.ends_for_good, planner.follower_failure) == (True, True, "")
    assert planner.is_connected
    planner.put_idle()
    eventually(lambda: link.is_idle)
    link.activate()
    planner.catch_up()
    assert not planner.is_inactive
    link.deactivate()
    link.put_published(batch_plan("s", FIRST))
    planner.catch_up()
    assert planner.is_inactive
    assert planner.published("s", FIRST) is not None
    planner.report_that_it_runs_again("s", FIRST)
    assert link.runs_again(batch_plan("s", FIRST))
    assert not folder.exists()


def test_a_driver_whose_socket_was_removed_makes_it_again(driver: LinkedDriver, folder: Path) -> None:
    """D302: a planning process that Spark starts behind a cleaner finds the driver; the first one goes on."""
    first = driver.planner("first")
    driver.link.deactivate()
    for remove in (lambda: clean(folder), (folder / SOCKET_NAME).unlink):
        remove()
        folder.mkdir(mode=0o700, exist_ok=True)
        second = driver.planner("second")
        assert second.is_inactive
        second.close()
    driver.link.activate()
    first.catch_up()
    assert not first.is_inactive
    assert first.is_connected


def test_what_somebody_has_left_in_the_folder_is_in_nobody_s_way(driver: LinkedDriver, folder: Path) -> None:
    """It is the socket's name that somebody else's file has, a moment before the driver makes it again."""
    (folder / SOCKET_NAME).unlink()
    (folder / SOCKET_NAME).write_text("not a socket")
    (folder / f".{SOCKET_NAME}.{os.getpid()}").write_text("nor this")
    (folder / "a file of others").write_text("x")
    driver.link.deactivate()
    assert driver.planner().is_inactive
    assert (folder / "a file of others").exists()


def test_the_end_of_one_process_is_seen_at_once_by_the_other_and_changes_nothing(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    """D305: the driver forgets a planning process that has gone; the planning process keeps what was said."""
    caplog.set_level("DEBUG", "windhover.spout")
    planner = driver.planner("first")
    planner.report_that_it_runs_again("s", FIRST)
    other = driver.planner("second")
    eventually(lambda: not tells_alone(other))
    planner.close()
    eventually(lambda: tells_alone(other))
    assert "planning_process_has_gone stream=stream" in caplog.text
    driver.link.deactivate()
    other.catch_up()
    driver.end()
    eventually(lambda: other.has_gone)
    eventually(lambda: "driver_has_gone group=g" in caplog.text)
    other.catch_up()
    assert other.is_inactive


def tells_alone(planner: Any) -> bool:
    """Return whether the driver says that no other process of the stream runs a batch again."""
    planner.catch_up()
    return not planner._driver_state.others_run_again


def test_a_planning_process_that_asks_for_an_epoch_gets_that_of_the_store(driver: LinkedDriver) -> None:
    """Rule 12: each process has an answer of its own, also after its connection has ended."""
    asked: list[int] = []

    def open_store(epoch_min: int) -> int:
        asked.append(epoch_min)
        return epoch_min + 2

    planner, other = driver.planner("p"), driver.planner("q")
    assert not planner.has_store
    driver.link.expect_store(open_store)
    eventually(lambda: planner.has_store)
    assert driver.link.epoch_questions() == []

    planner.ask_for_epoch(5)
    eventually(driver.link.epoch_questions)
    [question] = driver.link.epoch_questions()
    assert (question.process, question.epoch_min) == ("p", 5)
    driver.link.grant_epoch(question)
    eventually(lambda: planner.granted_epoch == 7)
    assert asked == [5]
    assert driver.link.epoch_questions() == []
    assert (other.granted_epoch, other.not_granted) == (0, "")

    for connection in tuple(driver.link._process_by_connection):
        connection.end()
    eventually(lambda: planner.is_connected)
    planner.catch_up()
    assert planner.granted_epoch == 7


def test_a_planning_process_hears_why_the_store_could_not_be_opened(driver: LinkedDriver) -> None:
    def open_store(epoch_min: int) -> int:
        raise Unreachable(f"the file is locked, {epoch_min}")

    planner = driver.planner()
    driver.link.expect_store(open_store)
    planner.ask_for_epoch(5)
    eventually(driver.link.epoch_questions)
    driver.link.grant_epoch(driver.link.epoch_questions()[0])
    eventually(lambda: planner.not_granted)
    assert (planner.granted_epoch, planner.not_granted) == (0, "Unreachable: the file is locked, 5")


def test_a_planning_process_is_answered_whatever_the_store_raises(driver: LinkedDriver) -> None:
    """Unanswered, the query would wait for ten minutes."""

    def open_store(epoch_min: int) -> int:
        raise KeyError(epoch_min)

    planner = driver.planner()
    driver.link.expect_store(open_store)
    planner.ask_for_epoch(5)
    eventually(driver.link.epoch_questions)
    with pytest.raises(KeyError):
        driver.link.grant_epoch(driver.link.epoch_questions()[0])
    eventually(lambda: planner.not_granted)
    assert "see its log" in planner.not_granted
