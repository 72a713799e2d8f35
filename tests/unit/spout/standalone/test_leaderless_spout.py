"""A partition of a `KafkaSpout` has no leader, or nothing of it arrives: the others are handed out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acker.config.limits import STANDS_MS
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.kestrel_world import KestrelWorld

TOPIC, LOST = "sentences", 1
NOTICED_MS = STANDS_MS + 10_000

Change = Callable[[MemoryCluster, str, int], None]
WAYS = [
    pytest.param(MemoryCluster.lose_leader, MemoryCluster.elect_leader, id="no leader"),
    pytest.param(MemoryCluster.fall_silent, MemoryCluster.speak_again, id="silent"),
]


def handed_out(world: KestrelWorld, client: object, ms: int = 3_000) -> list[tuple[int, int]]:
    """Confirm what comes within some time; return partitions and offsets."""
    found: list[tuple[int, int]] = []
    for _ in range(ms // 100):
        items = client.open(100)  # type: ignore[attr-defined]
        found += [(int(item["partition"]), int(item["offset"])) for item in items]
        client.confirm(items)  # type: ignore[attr-defined]
        world.run(100)
    return found


@pytest.mark.parametrize("runs", [pytest.param(True, id="runs"), pytest.param(False, id="starts")])
@pytest.mark.parametrize(("begin", "end"), WAYS)
def test_the_others_are_handed_out_and_it_comes_when_it_can(
    begin: Change, end: Change, *, runs: bool
) -> None:
    """O415: also where the spout begins meanwhile; and it is named."""
    world = KestrelWorld()
    world.produce(5)
    spout_ = world.spout() if runs else None
    if spout_ is not None:
        client = spout_.client("a")
        assert handed_out(world, client) == [(0, number) for number in range(5)]
    for partition in range(2):
        world.produce(4, partition=partition)
    begin(world.cluster, TOPIC, LOST)
    if spout_ is None:
        spout_ = world.spout()
        client = spout_.client("a")
    first = 5 if runs else 0
    assert handed_out(world, client) == [(0, number) for number in range(first, 9)]
    assert "partition_stands" not in [event for event, _ in world.reports]

    assert handed_out(world, client, 2 * NOTICED_MS) == []
    stand = [fields for event, fields in world.reports if event == "partition_stands"]
    assert {fields["partition"] for fields in stand} == {"sentences/1"}
    assert len(stand) <= 2
    assert "sentences/1" in spout_.status().group.stands

    end(world.cluster, TOPIC, LOST)
    assert handed_out(world, client, 8_000) == [(1, number) for number in range(4)]
    assert world.reports[-1][0] == "partition_goes_on"
    assert spout_.status().group.stands == {}
    spout_.close()
    assert world.committed(partition=1) == 4


def test_a_slow_client_makes_no_partition_stand() -> None:
    """One opens a record in two seconds; those of the other partition are behind them in the client."""
    world = KestrelWorld()
    world.produce(500)
    client = world.spout().client("a")
    for _ in range(100):
        items = client.open(1)
        client.confirm(items)
        world.run(2_000)
    assert [event for event, _ in world.reports if event.startswith("partition")] == []


def test_a_client_that_keeps_what_it_has_makes_no_partition_stand() -> None:
    """Nothing more is read on purpose."""
    world = KestrelWorld()
    for partition in range(2):
        world.produce(50, partition=partition)
    client = world.spout().client("a", max_open=10)
    world.run(1_000)
    client.open(10)
    world.run(1_000)
    client.open(10)
    world.run(3 * NOTICED_MS)
    assert [event for event, _ in world.reports if event.startswith("partition")] == []
