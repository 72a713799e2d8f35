"""A damaged batch under a `KafkaSpout`: all else is handed out and can be settled, then it ends."""

from __future__ import annotations

import pytest

from acker.errors import Damaged
from acker.kafka import reader
from acker.kafka.port import TopicPartition
from acker.wire.causes import DAMAGED
from spout.standalone.client import Client
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.planning import yaml_of

PLACE = TopicPartition("sentences", 0)
SKIPPING = yaml_of(timeout="4s", on_data_loss="skip")


def opened_to_the_end(world: KestrelWorld, client: Client) -> tuple[list[int], Damaged | None]:
    """Open and confirm until nothing comes, or the spout ends; return the values, and the error."""
    values: list[int] = []
    for _ in range(60):
        try:
            items = client.open(3)
        except Damaged as error:
            return values, error
        values += [int(item["value"]) for item in items]
        client.confirm(items)
        world.run(100)
    return values, None


def causes(world: KestrelWorld) -> list[tuple[str, str, int]]:
    return [
        (lost.error, lost.message.partition(":")[0], len(lost.positions) // 8)
        for verdicts in world.verdicts()
        for lost in verdicts.lost
    ]


def test_all_but_the_damaged_batch_is_opened_and_then_the_spout_says_why_it_ends() -> None:
    """O358: what it could not read is FAILED by name; the next spout goes on behind it."""
    world = KestrelWorld()
    world.produce(10)
    world.cluster.partition(PLACE).damage(4, 6)
    spout_ = world.spout()
    values, error = opened_to_the_end(world, spout_.client("a"))
    assert error is not None
    assert str(error).startswith("sentences/0@4: a batch there is damaged on its broker's disk")
    assert values[:4] == [0, 1, 2, 3]
    assert not {4, 5} & set(values)
    world.run(2_000)
    assert causes(world) == [(DAMAGED, "offsets 4 to 5 of sentences/0 cannot be read", 2)]
    with pytest.raises(Damaged):
        spout_.client("b").open(1)
    spout_.close()
    world.run(1_000)
    more, error = opened_to_the_end(world, world.spout().client("c"))
    assert (sorted(values + more), error) == ([0, 1, 2, 3, 6, 7, 8, 9], None)


def test_an_open_item_can_be_settled_after_the_spout_has_ended() -> None:
    """O359: a client may hold one that lay before the damaged batch."""
    world = KestrelWorld()
    world.produce(3)
    world.cluster.partition(PLACE).damage(1, 3)
    spout_ = world.spout()
    client = spout_.client("a")
    for _ in range(30):
        if items := client.open(1):
            break
        world.run(100)
    _, error = opened_to_the_end(world, spout_.client("b"))
    assert error is not None
    assert client.confirm(items) == 1
    world.run(2_000)
    assert spout_.status().group.acked == 1


def test_with_on_data_loss_skip_a_spout_goes_on_and_they_are_absent() -> None:
    """O360: each batch that is passed over is reported."""
    world = KestrelWorld(SKIPPING)
    world.produce(10)
    world.cluster.partition(PLACE).damage(4, 6)
    spout_ = world.spout()
    values, error = opened_to_the_end(world, spout_.client("a"))
    assert (values, error) == ([0, 1, 2, 3, 6, 7, 8, 9], None)
    world.run(2_000)
    group = spout_.status().group
    assert (group.acked, group.absent, group.failed, group.pending) == (8, 2, 0, 0)
    [(_, fields)] = [report for report in world.reports if report[0] == "batch_is_damaged"]
    assert (fields["records"], str(fields["place"])) == (2, "sentences/0@4 to 5")


def test_records_that_are_too_large_fail_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """O1918: neither their cause nor the log calls them damaged."""
    monkeypatch.setattr(reader, "VALUE_BYTES_MAX", 1)
    world = KestrelWorld()
    world.produce(11)  # the last one has a number of two digits
    values, error = opened_to_the_end(world, world.spout().client("a"))
    assert values == list(range(10))
    assert "the record there cannot be handled, since it is too large" in str(error)
    world.run(2_000)
    assert causes(world) == [("OVERSIZED", "offset 10 of sentences/0 cannot be read", 1)]
    assert [name for name, _ in world.reports if name.startswith(("batch", "record"))] == [
        "record_is_too_large"
    ]


def test_records_that_are_too_large_are_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """O1914: as a damaged batch, with place and size; whoever read ahead does not keep them."""
    monkeypatch.setattr(reader, "VALUE_BYTES_MAX", 1)
    world = KestrelWorld(SKIPPING)
    world.produce(12)  # the last two have numbers of two digits
    spout_ = world.spout()
    values, error = opened_to_the_end(world, spout_.client("a"))
    assert (values, error) == (list(range(10)), None)
    world.run(2_000)
    group = spout_.status().group
    assert (group.acked, group.absent, group.failed, group.pending) == (10, 2, 0, 0)
    reports = [fields for name, fields in world.reports if name == "record_is_too_large"]
    assert "sentences/0@10" in str(reports[0]["place"])
    assert "a record of 2 bytes, more than the 1 that can be handled" in str(reports[0]["why"])
