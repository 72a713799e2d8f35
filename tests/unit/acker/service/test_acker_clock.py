"""The wall clock is set back under an acker: nothing waits until it has come where it was."""

from __future__ import annotations

import pytest

from acker.config.limits import AckerLimits
from acker.errors import Fenced, Unreachable
from acker.kafka.port import TimestampType, TopicPartition
from acker.ledger.output import AckerEventKind
from acker.service.step_reader import BURST, StepReader
from tests.support.memory.clients import Failing
from tests.support.worlds.acker_world import TOPICS, World

HOUR_MS = 3_600_000


def late_world() -> World:
    world = World(now_ms=2 * HOUR_MS)
    world.session().take()
    world.settle()
    return world


def test_a_partition_that_another_acker_took_is_not_left_alone_for_longer() -> None:
    world = late_world()
    fence = Failing("commit", Fenced("another process owns this transactional id"))
    world.crash(fence)
    fence.is_on = True
    world.session().take()
    while AckerEventKind.FENCED not in {event.kind for event in world.events}:
        world.step()
    fence.is_on = False
    world.now_ms -= HOUR_MS
    world.settle()
    assert world.status().partitions == (0,)


def test_logs_are_shortened_all_the_same() -> None:
    world = late_world()
    world.now_ms -= HOUR_MS
    world.step()
    world.now_ms += world.limits.retention_interval_ms
    world.step()
    inits = TopicPartition(TOPICS.init, 0)
    assert world.writer_log.starts([inits])[inits] == 1


@pytest.mark.parametrize("by_ms", [0, -HOUR_MS, HOUR_MS], ids=["right", "set back", "set ahead"])
def test_an_acker_without_a_broker_waits_for_it_as_long_as_ever(by_ms: int) -> None:
    """D412: a clock that was set ahead by an hour ended it at the next step."""
    world = late_world()
    silence = Failing("membership", Unreachable("gone"))
    world.crash(silence)
    silence.is_on = True
    world.step()
    world.set_clock(by_ms)
    world.step()
    world.now_ms += world.limits.unreachable_ms - 1_000
    world.step()
    world.now_ms += 1_000
    with pytest.raises(Unreachable):
        world.step()


def test_contributions_that_wait_for_an_answer_are_not_applied_before_their_inits() -> None:
    """They were fetched, the ends of the other topics were not; by the new time a rest begins."""
    world = World()
    silence = Failing("ends", Unreachable("gone"))
    limits = AckerLimits(poll_ms=0, pace_ms=1_000)
    reader = StepReader(world.cluster.log(silence), TOPICS, limits)
    reader.assign({0: (0, 0, 0)})
    for number in range(BURST + 1):
        world.write_raw(TOPICS.ack, b"earlier")
        reader.fetch(1_000 + number)
        assert reader.take_ready(0).acks
    world.write_raw(TOPICS.ack, b"there")
    silence.is_on = True
    with pytest.raises(Unreachable):
        reader.fetch(3_000)
    silence.is_on = False
    for _ in range(300):
        world.write_raw(TOPICS.init, b"init")
    reader.fetch(1_500)
    found = reader.take_ready(0)
    assert len(found.inits) == 300 or not found.acks


def test_a_clock_that_differs_from_the_brokers_is_reported_by_its_kind() -> None:
    """D404: what stands in the log is the sentence of the watch."""
    world = late_world()
    world.cluster.partition(TopicPartition(TOPICS.init, 0)).timestamp_type = TimestampType.APPENDED
    writer = world.session()
    for _ in range(200):
        world.step()
        world.now_ms += 1_000
        world.cluster.now_ms = world.now_ms - 2 * HOUR_MS
        writer.tick(world.now_ms)
        world.step()
    clocks = [event.detail for event in world.events if event.kind is AckerEventKind.CLOCK]
    assert len(clocks) == 1
    assert "ahead of the broker's" in clocks[0]
