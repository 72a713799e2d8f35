"""Whether a batch was published by the sink, or went past it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from acker.errors import TrackingError
from acker.wire.events import SourceRun
from spout.planning.journal import BEGINNING, Journal, SourceMark, journal_of
from spout.planning_process.sink_watch import FOLLOWER_LATE_MS, LATE_MS, SinkWatch
from tests.support.linked import LinkedDriver, batch_plan, linked_driver
from tests.support.waiting import eventually

SOURCE = 65_536


def batch(start: int, end: int, session: str = "s") -> Journal:
    """Make the offset behind a batch of one range, without positions where it has none."""
    ranges = (SourceRun(SOURCE, start, end),) if start < end else ()
    return Journal(session, 1, 0, 1, {SOURCE: SourceMark(0, end)}, ranges)


def journalled(offset: Journal) -> Journal:
    """Take an offset through Spark's journal."""
    return journal_of(json.loads(json.dumps(offset.to_json())))


class World:
    """A driver, and the watch of its planning process."""

    def __init__(self, driver: LinkedDriver) -> None:
        self.driver = driver
        self.planner = driver.planner()
        self.watch = SinkWatch(self.planner, durable_ms=40_000)

    def publish(self, offset: Journal) -> None:
        """Do what the sink does when it has published a batch."""
        self.driver.link.put_published(batch_plan(offset.session, offset.ranges))

    def is_owed(self, offset: Journal) -> bool:
        """Ask as Spark's callback does, which has caught up before."""
        self.planner.catch_up()
        return self.watch.check_owed(journalled(offset))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A watch over a driver that has said nothing yet."""
    with linked_driver(tmp_path) as driver:
        yield World(driver)


def test_a_batch_is_owed_until_its_sink_has_published_it(world: World) -> None:
    first, second = batch(0, 10), batch(10, 20)
    world.watch.expect(first)
    assert world.is_owed(first)
    world.publish(first)
    assert not world.is_owed(first)
    world.watch.expect(second)
    assert world.is_owed(second), "what the sink published before is not this batch"
    world.publish(second)
    assert not world.is_owed(second)
    assert not world.is_owed(second), "Spark asks again and again while there is nothing new"


def test_a_batch_that_spark_has_not_run_yet_is_not_owed(world: World) -> None:
    """Spark asks again from where it stood: it did not journal what was planned."""
    world.watch.expect(batch(10, 20))
    assert not world.is_owed(batch(0, 10))
    assert not world.is_owed(BEGINNING)


def test_nothing_is_owed_of_batches_without_positions_or_tracking_or_of_an_earlier_process(
    world: World,
) -> None:
    """The batch that a restart runs again was planned by another process."""
    assert not world.is_owed(batch(0, 10))
    for none in (batch(10, 10), batch(0, 10, session="")):
        world.watch.expect(none)
        assert not world.is_owed(none)
    world.publish(batch(10, 10))  # nothing was read, so nothing is said of it
    world.planner.catch_up()
    assert world.planner.published("s", ()) is None


def test_another_session_on_the_same_stream_pays_for_itself_only(world: World) -> None:
    world.watch.expect(batch(0, 10, session="ours"))
    world.publish(batch(0, 10, session="theirs"))
    assert world.is_owed(batch(0, 10, session="ours"))


def test_the_error_names_the_group_and_the_cure(world: World) -> None:
    text = str(world.watch.late_error())
    assert "group g" in text
    assert "foreachBatch(spout.sink(write))" in text


def test_the_error_of_a_driver_that_has_gone_sends_nobody_to_change_his_query(world: World) -> None:
    """D305: where the driver is gone, nobody can know what it has published."""
    world.driver.end()
    eventually(lambda: world.planner.has_gone)
    text = str(world.watch.late_error())
    assert "group g: the driver has gone" in text
    assert "spout." not in text


def test_a_follower_has_longer_and_says_when_it_fails(world: World) -> None:
    """D206: nobody sees what a follower raises; the link is the only way to the planning process."""
    link, watch = world.driver.link, world.watch
    other = world.driver.stream("other")

    def heard() -> tuple[int, str | None]:
        world.planner.catch_up()
        failure = watch.follower_error()
        return watch.late_ms, None if failure is None else str(failure)

    assert heard() == (LATE_MS, None)
    link.set_follower_failure("")
    # it flushes fails, then acks; a planner that gives up before would hide the reason
    assert heard() == (2 * 40_000 + FOLLOWER_LATE_MS, None)
    other.set_follower_failure("not ours")
    assert heard()[1] is None
    link.set_follower_failure("batch 3 could not be published")
    assert heard()[1] == "batch 3 could not be published"
    # somebody who has called spout.start is not sent to call it
    assert "spout.start" not in str(watch.late_error())
    with pytest.raises(TrackingError, match="batch 3 could not be published"):
        raise watch.follower_error() or AssertionError("it says nothing")
    link.set_follower_failure(None)
    link.set_follower_failure(None)
    assert heard() == (LATE_MS, None)
