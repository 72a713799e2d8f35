"""A `KafkaSpout` before positions without a record, and with copies that fail again and again."""

from __future__ import annotations

import pytest

from acker.kafka.port import Outgoing, TopicPartition
from spout.standalone.client import Client
from spout.standalone.items import Item
from tests.support.holes import Aborted, Each, Records, Stretch, write_stretches
from tests.support.worlds.kestrel_world import YAML, KestrelWorld

FIRST = TopicPartition("sentences", 0)
COPIES = TopicPartition("sentences.g.replay", 0)


def world_with(stretches: list[Stretch], text: str = YAML) -> tuple[KestrelWorld, Client, int]:
    """Return a world with stretches in the first partition, a client, and how many records there are."""
    world = KestrelWorld(text)
    records = write_stretches(world.log, FIRST, stretches)
    return world, world.spout().client("a"), records


@pytest.mark.parametrize("count", [1, 10])
def test_a_hole_is_passed_at_once(count: int) -> None:
    """O501: each of its positions counted as a record that the client had asked for."""
    world, client, _ = world_with([Aborted(100_000), Records(10)])
    assert not client.open(count)
    world.run(200)
    assert [int(item["value"]) for item in client.open(count)] == list(range(count))


@pytest.mark.parametrize(
    "stretches",
    [
        [Each(40)],
        [Records(5), Aborted(300), Each(15), Aborted(20_000), Records(20)],
        [Records(40), Aborted(20_000)],
        [Aborted(30), Aborted(30), Records(40)],
    ],
)
def test_a_client_gets_as_many_as_it_asks_for_and_all_is_settled(stretches: list[Stretch]) -> None:
    """O502."""
    world, client, records = world_with(stretches)
    sizes: list[int] = []
    for _ in range(40):
        items = client.open(10)
        if items:
            sizes.append(len(items))
        client.confirm(items)
        world.run(200)
    assert sizes == [10] * (records // 10)
    world.run(4_000)
    assert world.committed() == world.log.ends([FIRST])[FIRST]
    group = world.latest.status().group
    assert (group.acked, group.pending) == (records, 0)


def test_what_is_empty_takes_none_of_what_may_be_pending() -> None:
    """O504."""
    world, client, _ = world_with([Each(40)], YAML.replace("200000", "10"))
    client.open(20)
    world.run(200)
    assert len(client.open(20)) == 10


def test_what_left_the_log_is_passed_at_once() -> None:
    """`on_data_loss: skip`: each position of it took a round."""
    world, client, _ = world_with([Records(5_010)], YAML + "    on_data_loss: skip\n")
    world.run(200)
    world.cluster.delete_before(FIRST, 5_000)
    client.open(1)
    world.run(300)
    assert [int(item["value"]) for item in client.open(1)] == [5_000]
    assert world.latest.status().group.lost_from_log == 5_000


def write_copies(world: KestrelWorld, first: int, count: int) -> None:
    """Write copies that nobody has asked for: what failed comes back."""
    producer = world.log.producer()
    for number in range(first, first + count):
        producer.send(Outgoing(*COPIES, b"%d" % number))
    producer.flush(0)


def is_copy(item: Item) -> bool:
    return item["topic"] == COPIES.topic


@pytest.mark.parametrize(("text", "count"), [(YAML, 20), (YAML, 1), (YAML.replace("200000", "8"), 100)])
def test_copies_that_never_end_leave_a_quarter_to_new_records(text: str, count: int) -> None:
    """O507, O508: be it the client or `max_spout_pending` that limits what comes."""
    world, client, _ = world_with([Records(2_000)], text)
    kinds: list[bool] = []
    for number in range(60):
        write_copies(world, 200 * number, 200)
        items = client.open(count)
        kinds += [is_copy(item) for item in items]
        client.confirm(items)
        world.run(200)
    new = kinds.count(False)
    assert 0.2 * len(kinds) <= new <= 0.3 * len(kinds), f"{new} new records of {len(kinds)}"


def test_thousands_of_copies_that_were_fetched_keep_no_new_record_waiting() -> None:
    """O507: a client returns what it fetched in its order, so one reader would bring 5,000 copies first."""
    world, client, _ = world_with([Records(10)])
    write_copies(world, 0, 5_000)
    client.open(8)
    world.run(200)
    assert [is_copy(item) for item in client.open(8)].count(False) == 2
