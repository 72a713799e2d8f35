"""The clock of a session that writes exactly once: it stands while a batch is under way, rule 12."""

from __future__ import annotations

import pytest

from acker.errors import Unreachable
from spout.planning.journal import BEGINNING
from tests.support.worlds.planning import FlushesLeft, World, batch

TIMEOUT_MS = 4_000


def granted(epoch_min: int) -> int:
    """Grant an epoch as a store does that has no rows yet."""
    return epoch_min


def test_no_root_of_a_batch_that_is_not_published_times_out() -> None:
    world = World()
    world.produce(3)
    planner = world.ready(grant_epoch=granted)
    end = batch(planner, BEGINNING, world)
    world.run(3 * TIMEOUT_MS)
    assert planner.status(world.now_ms).timed_out == 0

    world.publish(BEGINNING, end, skip=[1])
    planner.restart_clock(end)
    world.run(TIMEOUT_MS - 500)
    assert (planner.status(world.now_ms).acked, planner.status(world.now_ms).timed_out) == (2, 0)
    world.run(2_000)
    assert planner.status(world.now_ms).timed_out == 1, "what the batch left open has its whole timeout"


def test_the_clock_of_another_query_moves_as_ever() -> None:
    world = World()
    world.produce(3)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    world.run(TIMEOUT_MS + 1_500)
    assert planner.status(world.now_ms).timed_out == 3


def test_where_there_was_nothing_to_plan_the_clock_goes_on() -> None:
    world = World()
    world.produce(3)
    planner = world.ready(grant_epoch=granted)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[0])
    planner.restart_clock(end)
    for _ in range(13):
        assert batch(planner, end, world) is end
        world.run(500)
    assert planner.status(world.now_ms).timed_out == 1


def test_the_publication_of_another_batch_lets_no_clock_go_on() -> None:
    world = World()
    world.produce(3)
    planner = world.ready(grant_epoch=granted)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first)
    planner.restart_clock(first)
    world.produce(2)
    batch(planner, first, world)
    planner.restart_clock(first)
    world.run(2 * TIMEOUT_MS)
    assert planner.status(world.now_ms).timed_out == 0


def test_the_clock_stands_behind_an_init_of_which_nobody_knows_whether_it_is_durable() -> None:
    world = World()
    world.produce(3)
    flushes = FlushesLeft()
    planner = world.ready(faults=flushes, grant_epoch=granted)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, skip=[0])
    planner.restart_clock(first)
    world.produce(2)
    world.run(500)
    flushes.left = 0
    with pytest.raises(Unreachable):
        batch(planner, first, world)
    flushes.left = 1_000
    clock_ms = planner.status(world.now_ms).clock
    world.run(2_000)
    assert planner.status(world.now_ms).clock == clock_ms


def test_a_start_abandons_what_the_one_before_left_open() -> None:
    """It comes again as copies; of the batch that Spark runs again nothing is written."""
    world = World()
    world.produce(3)
    first = world.ready(grant_epoch=granted)
    end = batch(first, BEGINNING, world)
    world.kill(first)
    second = world.ready(end, grant_epoch=granted)
    assert second.status(world.now_ms).epoch == end.epoch + 1
    world.run(1_000)
    assert second.status(world.now_ms).pending == 0
    assert world.lost("ABANDONED") == 3


def test_a_batch_without_records_leaves_the_clock_as_it_is() -> None:
    """Of such a batch nothing is committed, so nobody would let the clock go on."""
    world = World()
    world.produce(3)
    planner = world.ready(grant_epoch=granted)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, skip=[0])
    planner.restart_clock(first)
    world.kill(planner)
    second = world.ready(first, grant_epoch=granted)
    empty = batch(second, first, world)
    assert not empty.ranges
    assert second.unpublished is None
    world.produce(2)
    end = batch(second, empty, world)
    world.publish(empty, end, skip=[3])
    second.restart_clock(end)
    assert batch(second, end, world) is end
    world.run(TIMEOUT_MS + 2_000)
    assert second.status(world.now_ms).timed_out == 1


def test_a_batch_that_does_not_end_is_named_each_minute() -> None:
    """D3208."""
    world = World()
    world.produce(3)
    planner = world.ready(grant_epoch=granted)
    end = batch(planner, BEGINNING, world)
    world.run(59_000)
    assert world.told.count("batch_is_under_way") == 0
    world.run(62_000)
    assert world.told.count("batch_is_under_way") == 2
    assert planner.unpublished == end

    world.publish(BEGINNING, end)
    planner.restart_clock(end)
    world.run(70_000)
    assert world.told.count("batch_is_under_way") == 2
