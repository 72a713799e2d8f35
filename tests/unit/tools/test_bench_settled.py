"""What benchmarks rest on: every root acked, or no figure."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from acker.errors import CheckFailed
from acker.identity import source_of
from acker.wire.events import SourceRun, Verdicts
from benchmarks.settled import Settled
from tests.support.worlds.replay_world import INPUT_ID, World, topics

SOURCE = source_of(INPUT_ID, 0)
OTHER = source_of(INPUT_ID + 1, 0)


@pytest.fixture
def world() -> World:
    """A cluster with verdicts from before."""
    world = World()
    world.ack(SOURCE, 0, 100)
    return world


def settled(world: World, clock_s: Callable[[], float] = time.monotonic) -> Settled:
    """Count from now on."""
    return Settled(world.cluster.log(), topics(), topics().inputs["sentences"], clock_s=clock_s)


def test_what_was_acked_is_named_in_the_order_in_which_it_came(world: World) -> None:
    came: list[SourceRun] = []
    log, found = world.cluster.log(), topics()
    counter = Settled(log, found, found.inputs["sentences"], acked=came.append)
    world.verdict(Verdicts((SourceRun(SOURCE, 100, 104), SourceRun(OTHER, 0, 50)), (), ()))
    world.ack(SOURCE, 104, 110)
    counter.wait_for(10, 60)
    assert came == [SourceRun(SOURCE, 100, 104), SourceRun(SOURCE, 104, 110)]


def test_the_first_ack_has_the_time_at_which_its_acker_wrote_it(world: World) -> None:
    """It is read much later, so that nobody reads while something is measured."""
    counter = settled(world)
    assert counter.first_acked_ms is None
    for partition, now_ms, source in ((0, 5_000, OTHER), (1, 7_000, SOURCE), (0, 6_000, SOURCE)):
        world.cluster.now_ms = now_ms
        world.ack(source, 100 + partition, 101 + partition, partition)
    counter.wait_for(2, 60)
    assert counter.first_acked_ms == 6_000


def test_roots_of_the_input_are_counted_from_then_on(world: World) -> None:
    counter = settled(world)
    before = time.monotonic()
    world.verdict(Verdicts((SourceRun(SOURCE, 100, 104), SourceRun(OTHER, 0, 50)), (), ()))
    world.ack(SOURCE, 104, 110)
    first_at, last_at = counter.wait_for(10, 60)
    assert before <= first_at <= last_at


def test_verdicts_that_do_not_come_are_an_error_with_what_came(world: World) -> None:
    seconds = iter([0.0, 0.0, 0.0, 2.0])  # begun, looked, seen, looked
    counter = settled(world, seconds.__next__)
    world.ack(OTHER, 0, 10)
    world.ack(SOURCE, 100, 104)
    with pytest.raises(CheckFailed, match="4 of 10 roots were acked in 1 s"):
        counter.wait_for(10, 1)


def test_a_lost_root_is_an_error_that_says_why(world: World) -> None:
    counter = settled(world)
    world.lose(world.emit(b"line"))
    with pytest.raises(CheckFailed, match="roots were lost: FAILED"):
        counter.wait_for(1, 60)
