"""A log is cut while a `KafkaSpout` reads it: it stops with its first lost offset, or goes on from there."""

from __future__ import annotations

import pytest

from acker.errors import Disagreement
from acker.kafka.port import TopicPartition
from spout import Client
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.planning import yaml_of

PLACE = TopicPartition("sentences", 0)
READ, CUT = 15, 10
SKIP = yaml_of(timeout="4s", on_data_loss="skip")


def handed_out(world: KestrelWorld, client: Client, ms: int = 3_000) -> list[tuple[int, bytes]]:
    """Confirm what comes within some time; return offsets and values of the first partition."""
    seen: list[tuple[int, bytes]] = []
    for _ in range(ms // 100):
        items = client.open(100)
        seen += [(int(item["offset"]), item["value"]) for item in items if item["partition"] == 0]
        client.confirm(items)
        world.run(100)
    return seen


def cut_and_grow(world: KestrelWorld, count: int) -> list[tuple[int, bytes]]:
    """Lose the last records, and write others; return these."""
    world.cluster.partition(PLACE).cut(CUT)
    world.produce(count)
    return [(CUT + number, b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("grown", [0, 2, 5, 20])
def test_a_log_that_is_cut_stops_the_spout_with_its_first_lost_offset(grown: int) -> None:
    """O618: whether it is shorter than what was read, as long, or longer."""
    world = KestrelWorld(yaml_of(timeout="4s"))
    world.produce(READ)
    client = world.spout().client("a")
    assert len(handed_out(world, client)) == READ
    cut_and_grow(world, grown)
    if grown == READ - CUT:
        world.produce(1)  # one that takes no other's place shows the new leader
    with pytest.raises(Disagreement, match=rf"sentences/0 .*\b{CUT}\b.*\b{READ}\b.*the log was cut"):
        handed_out(world, client)


@pytest.mark.parametrize("grown", [2, 20])
def test_with_skip_the_spout_goes_on_from_the_first_lost_offset(grown: int) -> None:
    """O619: each record of now is handed out, and none twice; other partitions go on."""
    world = KestrelWorld(SKIP)
    world.produce(READ)
    client = world.spout().client("a")
    assert len(handed_out(world, client)) == READ
    others = cut_and_grow(world, grown)
    assert handed_out(world, client, 8_000) == others
    world.produce(3)
    assert len(handed_out(world, client, 4_000)) == 3
    world.run(4_000)
    assert world.committed() == CUT + grown + 3


def test_another_leader_that_has_everything_is_nothing_to_a_spout() -> None:
    """O608: it goes on, however often."""
    world = KestrelWorld(yaml_of(timeout="4s"))
    client = world.spout().client("a")
    for number in range(3):
        world.produce(READ)
        assert [offset for offset, _ in handed_out(world, client)] == [
            *range(number * READ, (number + 1) * READ)
        ]
        world.cluster.elect_leader("sentences", 0, 1)
