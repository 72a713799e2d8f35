"""A damaged batch of an ack topic stops the acker partition that needs it, alone, until it is passed over."""

from __future__ import annotations

import pytest

from acker.errors import Damaged
from acker.identity import acker_partition
from acker.kafka.port import TopicPartition
from acker.ledger.output import AckerEventKind
from acker.service.passed_over import passed_over_mark
from tests.support.worlds.acker_world import SOURCE, TOPICS, World, Writer

BLOCK = 65_536
RETRY_MS = 1_000_000
READ_ON = [TOPICS.init, TOPICS.ack, TOPICS.fail]
RESTORED = [TOPICS.state, TOPICS.verdict]


@pytest.fixture
def world() -> World:
    return World(partitions=2)


def roots_in(partition: int) -> int:
    """Return the first of ten positions that are of an acker partition of two."""

    return next(
        block * BLOCK for block in range(100) if acker_partition(SOURCE, block * BLOCK, 2) == partition
    )


def began(world: World) -> Writer:
    writer = world.session()
    writer.take()
    for partition in range(2):
        first = roots_in(partition)
        writer.init((first, first + 10))
    world.settle()
    return writer


def contribute(writer: Writer, partition: int, seq: int = 0) -> None:
    first = roots_in(partition)
    writer.acks(runs=[(first, first + 5)], seq=seq)
    writer.fails(first + 5, seq=seq)


def end_of(world: World, topic: str, partition: int) -> int:
    place = TopicPartition(topic, partition)
    return world.writer_log.ends([place])[place]


def damage_next(world: World, topic: str, partition: int) -> int:
    """Let the record that is written next be unreadable; return its offset."""
    end = end_of(world, topic, partition)
    world.cluster.partition(TopicPartition(topic, partition)).damage(end, end + 1)
    return end


def mark(world: World, topic: str, offset: int) -> None:
    producer = world.writer_log.producer()
    producer.send(passed_over_mark(TopicPartition(topic, 0), offset, "gone", "me", until=offset + 1))
    producer.flush(0)


def reports(world: World) -> list[str]:
    return [event.detail for event in world.events if event.kind is AckerEventKind.DAMAGED]


@pytest.mark.parametrize("topic", READ_ON)
def test_a_damaged_batch_in_what_an_acker_reads_stops_its_partition_and_no_other(
    world: World, topic: str
) -> None:
    """O344: the event names place and way out; the marked batch is passed over, and the rest counts."""
    writer = began(world)
    offset = damage_next(world, topic, 0)
    if topic == TOPICS.init:
        writer.tick(1)
    contribute(writer, 0)
    contribute(writer, 1)
    world.settle()
    first, other = roots_in(0), roots_in(1)
    verdicts = world.of()
    assert [verdicts.get(other + row) for row in range(6)] == ["ACKED"] * 5 + ["FAILED"]
    [report] = reports(world)
    assert f"{topic}/0@{offset}" in report
    assert "topics repair" in report
    mark(world, topic, offset)
    world.now_ms += RETRY_MS
    world.settle()
    contribute(writer, 0, seq=1)
    world.settle()
    verdicts = world.of()
    assert [verdicts.get(first + row) for row in range(6)] == ["ACKED"] * 5 + ["FAILED"]
    assert world.quarantined(0) == [], "a mark is no garbage"


@pytest.mark.parametrize("topic", RESTORED)
def test_a_damaged_batch_in_what_a_restart_reads_stops_its_partition_and_no_other(
    world: World, topic: str
) -> None:
    """O345: no verdict is guessed; the other partition is restored and goes on."""
    writer = began(world)
    contribute(writer, 0)
    contribute(writer, 1)
    world.settle()
    end = end_of(world, topic, 0)
    world.cluster.partition(TopicPartition(topic, 0)).damage(0, end)
    world.crash()
    first, other = roots_in(0), roots_in(1)
    writer.acks(runs=[(first + 6, first + 10)], seq=1)
    writer.acks(runs=[(other + 6, other + 10)], seq=1)
    world.settle()
    assert any(f"{topic}/0@" in report for report in reports(world))
    world.cluster.partition(TopicPartition(topic, 0)).mend()
    verdicts = world.of()
    assert [verdicts.get(other + row) for row in range(10)].count("ACKED") == 9
    assert [verdicts.get(first + row) for row in range(10)].count("ACKED") == 5
    world.now_ms += RETRY_MS
    world.settle()
    assert [world.of().get(first + row) for row in range(10)].count("ACKED") == 9


def test_an_acker_of_which_every_partition_is_damaged_ends_with_the_error(world: World) -> None:
    """O346: with the place and the way out."""
    writer = began(world)
    for partition in range(2):
        damage_next(world, TOPICS.ack, partition)
        contribute(writer, partition)
    with pytest.raises(Damaged, match=r"_ack_ack/\d@0: .* `windhover topics repair` shows the batch"):
        world.settle()
