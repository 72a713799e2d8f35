"""Whether a batch was published by the sink, or went past it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from acker.errors import TrackingError, UsageError
from acker.wire.events import SourceRun
from spout.planner.mailbox import Mailbox
from spout.planner.sink_watch import FOLLOWER_LATE_MS, LATE_MS, SinkWatch
from spout.planner.status import PlannerStatus, read_status, write_status
from spout.planning.journal import BEGINNING, Journal, SourceMark, journal_of
from spout.planning.plan import BatchPlan
from spout.streaming.options import SourceOptions, tasks_now

SOURCE = 65_536


def batch(start: int, end: int, session: str = "s") -> Journal:
    """Make the offset behind a batch of one range, without positions where it has none."""
    ranges = (SourceRun(SOURCE, start, end),) if start < end else ()
    return Journal(session, 1, 0, 1, {SOURCE: SourceMark(0, end)}, ranges)


def journalled(offset: Journal) -> Journal:
    """Take an offset through Spark's journal."""
    return journal_of(json.loads(json.dumps(offset.to_json())))


def publish(folder: Path, offset: Journal) -> None:
    """Do what the sink does when it has published a batch."""
    plan = BatchPlan("g", offset.session, offset.epoch, 1, 0, 0, True, offset.ranges)
    Mailbox(folder, "stream", "g").put_published(plan)


@pytest.fixture
def watch(tmp_path: Path) -> SinkWatch:
    """A watch over an empty folder."""
    return SinkWatch(Mailbox(tmp_path, "stream", "g"))


def test_a_batch_is_owed_until_its_sink_has_published_it(watch: SinkWatch, tmp_path: Path) -> None:
    first, second = batch(0, 10), batch(10, 20)
    watch.planned(first)
    assert watch.is_owed(journalled(first))
    publish(tmp_path, first)
    assert not watch.is_owed(journalled(first))
    watch.planned(second)
    assert watch.is_owed(journalled(second)), "what the sink published before is not this batch"
    publish(tmp_path, second)
    assert not watch.is_owed(journalled(second))
    assert not watch.is_owed(journalled(second)), "Spark asks again and again while there is nothing new"


def test_the_driver_says_after_each_batch_how_many_cores_the_next_one_has(tmp_path: Path) -> None:
    """Executors register after the query was built, and come and go."""
    topics = cast("Any", None)
    options = SourceOptions(topics, ("lines",), "s", parallelism=2, sink_folder=str(tmp_path))
    assert tasks_now(options) == 2, "nobody has said anything yet"
    for cores in (6, 1):
        Mailbox(tmp_path, "s", "g").put_cores(cores)
        assert tasks_now(options) == cores
    assert tasks_now(replace(options, min_partitions=8)) == 8


def test_the_sinks_of_two_queries_write_the_number_of_cores_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one file of the application: where one sink writes in the middle of another's writing, neither
    number is bent."""
    one, two = Mailbox(tmp_path, "one"), Mailbox(tmp_path, "two")
    between: list[int | None] = []

    def interrupted(path: Path, text: str, encoding: str) -> int:
        with path.open("w", encoding=encoding) as file:
            if not between:
                between.append(None)
                with ThreadPoolExecutor(1) as other:
                    other.submit(two.put_cores, 12).result(timeout=10)
            return file.write(text)

    def replaced(path: Path, target: Path) -> Path:
        between.append(two.cores())
        return replace_file(path, target)

    replace_file = Path.replace
    monkeypatch.setattr(Path, "write_text", interrupted)
    monkeypatch.setattr(Path, "replace", replaced)
    one.put_cores(7)
    assert between == [None, None, 12]  # before the first sink wrote, and after either has written beside
    assert one.cores() == two.cores() == 7


def test_a_batch_that_spark_has_not_run_yet_is_not_owed(watch: SinkWatch) -> None:
    """Spark asks again from where it stood: it did not journal what was planned."""
    watch.planned(batch(10, 20))
    assert not watch.is_owed(journalled(batch(0, 10)))
    assert not watch.is_owed(BEGINNING)


def test_nothing_is_owed_of_batches_without_positions_or_tracking_or_of_an_earlier_process(
    watch: SinkWatch,
) -> None:
    """The batch that a restart runs again was planned by another process."""
    assert not watch.is_owed(journalled(batch(0, 10)))
    for none in (batch(10, 10), batch(0, 10, session="")):
        watch.planned(none)
        assert not watch.is_owed(journalled(none))


def test_another_session_on_the_same_stream_pays_for_itself_only(watch: SinkWatch, tmp_path: Path) -> None:
    watch.planned(batch(0, 10, session="ours"))
    publish(tmp_path, batch(0, 10, session="theirs"))
    assert watch.is_owed(journalled(batch(0, 10, session="ours")))


def test_the_mark_is_left_where_the_folder_was_cleaned_away(tmp_path: Path) -> None:
    watch = SinkWatch(Mailbox(tmp_path / "gone", "stream", "g"))
    watch.planned(batch(0, 10))
    publish(tmp_path / "gone", batch(0, 10))
    publish(tmp_path / "gone", batch(10, 10))  # nothing was read, so nothing is said of it
    assert not watch.is_owed(journalled(batch(0, 10)))


def test_a_mark_that_cannot_be_written_stops_the_query(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match="cannot be written"):
        publish(tmp_path / "file", batch(0, 10))


def test_the_error_names_the_group_and_the_cure(watch: SinkWatch) -> None:
    text = str(watch.refusal())
    assert "group g" in text
    assert "foreachBatch(spout.sink(write))" in text


def test_a_follower_has_longer_and_says_when_it_fails(tmp_path: Path) -> None:
    """D206: nobody sees what a follower raises; its file is the only way to the planning process."""
    mailbox = Mailbox(tmp_path, "stream", "g")
    watch = SinkWatch(mailbox, durable_ms=40_000)
    assert (watch.late_ms, watch.failure()) == (LATE_MS, None)
    mailbox.put_follower()
    # it flushes fails, then acks; a planner that gives up before would hide the reason
    assert (watch.late_ms, watch.failure()) == (2 * 40_000 + FOLLOWER_LATE_MS, None)
    Mailbox(tmp_path, "other", "g").put_follower("not ours")
    assert watch.failure() is None
    mailbox.put_follower("batch 3 could not be published")
    # somebody who has called spout.start is not sent to call it
    assert "spout.start" not in str(watch.refusal())
    with pytest.raises(TrackingError, match="batch 3 could not be published"):
        raise watch.failure() or AssertionError("it says nothing")
    mailbox.drop_follower()
    mailbox.drop_follower()
    assert (watch.late_ms, watch.failure()) == (LATE_MS, None)


def test_a_stream_is_idle_when_the_planning_process_has_answered(tmp_path: Path) -> None:
    driver, planner = Mailbox(tmp_path, "stream"), Mailbox(tmp_path, "stream")
    driver.deactivate()
    assert planner.is_inactive()
    assert not driver.is_idle()
    planner.put_idle()
    assert driver.is_idle()
    driver.deactivate()
    assert not driver.is_idle(), "the answer was to the message before"
    driver.activate()
    assert not planner.is_inactive()


def test_a_status_is_read_as_it_was_written_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path, status = Mailbox(tmp_path, "s").status_path, PlannerStatus("running", "g", committed={"t/0": 7})
    assert read_status(path) is None
    write_status(path, replace(status, pending=3))
    write_status(path, status)
    assert read_status(path) == status
    assert [each.name for each in tmp_path.iterdir()] == ["s.status.json"]
    path.write_text('{"state": "running", "group": "g", "of_another_version": 1}', encoding="utf-8")
    assert read_status(path) == PlannerStatus("running", "g")


def clean(folder: Path) -> None:
    """Do what a cleaner of temporary files does."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_what_a_cleaner_removes_changes_nothing_that_was_read_before(tmp_path: Path) -> None:
    """D301: a topology that is paused stays paused, and a follower is there."""
    folder = tmp_path / "sinks"
    driver, planner = Mailbox(folder, "stream", "g"), Mailbox(folder, "stream", "g")
    driver.put_follower()
    driver.deactivate(for_good=True)
    assert (planner.is_inactive(), planner.is_for_good(), planner.follower()) == (True, True, "")
    clean(folder)
    for mailbox in (driver, planner):
        assert (mailbox.is_inactive(), mailbox.is_for_good(), mailbox.follower()) == (True, True, "")
    planner.put_idle()
    planner.ask_for_workers("p")
    planner.put_again()
    assert not folder.exists(), "the driver makes it, and removes it at its end"
    driver.activate()
    assert not planner.is_inactive()


def test_the_driver_writes_again_what_a_cleaner_has_removed(tmp_path: Path) -> None:
    """D302: a message that nobody has read yet is not lost."""
    folder = tmp_path / "sinks"
    driver, planner = Mailbox(folder, "stream", "g"), Mailbox(folder, "stream", "g")
    driver.put_cores(6)
    driver.deactivate()
    driver.put_published(BatchPlan("g", "s", 1, 1, 0, 0, True, batch(0, 10).ranges))
    clean(folder)
    driver.restore()
    assert (planner.is_inactive(), planner.cores()) == (True, 6)
    assert planner.published("s", batch(0, 10).ranges)
    driver.put_published(BatchPlan("g", "t", 2, 1, 0, 0, True, batch(10, 20).ranges))
    clean(folder)
    driver.restore()
    assert planner.published("s", batch(0, 10).ranges) is None, "of a session that has ended"
    assert planner.published("t", batch(10, 20).ranges)


def test_a_pause_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    mailbox = Mailbox(tmp_path / "file", "stream", "g")
    with pytest.raises(UsageError, match="the topology stays active"):
        mailbox.deactivate()
    assert not Mailbox(tmp_path, "stream", "g").is_inactive()


def test_a_process_that_asks_for_workers_waits_for_its_own_answer(tmp_path: Path) -> None:
    """D105: what Spark has run for the process before proves nothing."""
    driver, planner = Mailbox(tmp_path, "stream", "g"), Mailbox(tmp_path, "stream", "g")
    assert driver.asks_for_workers() is None
    planner.ask_for_workers("first")
    assert driver.asks_for_workers() == "first"
    driver.put_workers("first")
    assert planner.has_workers("first")
    assert not planner.has_workers("second")


def test_a_follower_that_goes_when_the_driver_has_cleaned_up_leaves_nothing_behind(tmp_path: Path) -> None:
    """D302: its thread ends a moment after the query, and the driver may be gone by then."""
    folder = tmp_path / "sinks"
    driver, planner = Mailbox(folder, "stream", "g"), Mailbox(folder, "stream", "g")
    driver.put_follower()
    driver.deactivate()
    clean(folder)
    driver.drop_follower()
    assert not folder.exists()
    driver.restore()
    assert (planner.is_inactive(), planner.follower()) == (True, None)
