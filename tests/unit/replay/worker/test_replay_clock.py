"""A clock that is set back keeps a replay worker from nothing for longer than it takes anyway."""

from __future__ import annotations

import pytest

from acker.errors import Fenced, TopicError, Unreachable
from acker.kafka.port import TopicPartition
from tests.support.worlds.replay_world import LIMITS, FailOnce, World, limits

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    """A world late enough for a clock that is set back by an hour."""
    world = World()
    world.now_ms += 10 * HOUR_MS
    return world


def test_a_partition_that_another_worker_held_for_a_moment_is_taken_again(world: World) -> None:
    fence = FailOnce("commit", Fenced("another worker owns this transactional id"))
    worker = world.worker(fence)
    world.lose(world.emit(b"x"))
    while not fence.happened:
        worker.step(world.now_ms)
    world.now_ms -= HOUR_MS
    worker.step(world.now_ms)
    assert worker.status().partitions == (0, 1)


def test_an_input_in_trouble_is_tried_again(world: World) -> None:
    trouble = FailOnce("commit", TopicError("no such topic"), skip=1)
    worker = world.worker(trouble)
    world.lose(world.emit(b"x"))
    while not trouble.happened:
        world.now_ms += 1_000
        worker.step(world.now_ms)
    world.now_ms -= HOUR_MS
    world.lose(world.emit(b"y"))
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"y"]


def test_what_was_taken_over_is_committed_all_the_same(world: World) -> None:
    worker = world.worker(limits=limits(position_interval_ms=1_000))
    world.ack(65_536, 0, 5)
    world.settle(worker)
    world.now_ms -= HOUR_MS
    world.ack(65_536, 5, 9)
    world.settle(worker)
    verdict = TopicPartition("_ack_verdict", 0)
    log = world.cluster.log()
    assert log.committed("windhover-replay", [verdict]) == log.ends([verdict])


@pytest.mark.parametrize("by_ms", [0, -HOUR_MS, HOUR_MS], ids=["right", "set back", "set ahead"])
def test_a_worker_without_a_broker_waits_for_it_as_long_as_ever(world: World, by_ms: int) -> None:
    """D412: a clock that was set ahead by an hour ended it at the next step."""

    class Silence(FailOnce):
        def before(self, operation: str) -> None:
            if operation == "membership":
                raise Unreachable("gone")

    worker = world.worker(Silence("membership", Unreachable("gone")))
    worker.step(world.now_ms)
    world.set_clock(by_ms)
    worker.step(world.now_ms)
    world.now_ms += LIMITS.unreachable_ms
    worker.step(world.now_ms)
    world.now_ms += 1
    with pytest.raises(Unreachable):
        worker.step(world.now_ms)
