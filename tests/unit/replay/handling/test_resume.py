"""Inputs that their breakers have paused: which are, where, and that they go on."""

from __future__ import annotations

import pytest

from acker.errors import Disagreement, Fenced
from acker.kafka.port import Outgoing
from acker.wire.clusters import CLUSTER
from replay.handling.resume import pauses, resume
from replay.records.due import PROGRESS_KEY, Pause, due_codec, pause_key
from tests.support.worlds.replay_world import INPUT_ID, World, topics

OTHER_ID = 7
THREE = Pause(INPUT_ID, 5, "3 in a row")
OTHER = Pause(OTHER_ID, 6, "2 of 3")


@pytest.fixture
def world() -> World:
    """Return a world in which one input is paused in one partition, and two are in the other one."""
    world = World()
    pause(world, OTHER, 0)
    pause(world, OTHER, 1)
    pause(world, THREE, 1)
    return world


def pause(world: World, paused: Pause, partition: int) -> None:
    """Write that an input is paused."""
    world.send_due(pause_key(paused.input), due_codec().encode(paused), partition)


def all_pauses(world: World) -> dict[int, dict[int, Pause]]:
    by_partition = pauses(world.cluster.log(), topics())
    return {number: dict(by_input) for number, by_input in by_partition.items()}


def test_each_pause_is_found_in_its_partition_and_under_its_input(world: World) -> None:
    assert all_pauses(world) == {0: {OTHER_ID: OTHER}, 1: {OTHER_ID: OTHER, INPUT_ID: THREE}}
    assert dict(pauses(World().cluster.log(), topics())) == {}


def test_an_input_is_resumed_wherever_it_is_paused_and_no_other_one_is(world: World) -> None:
    """The first partition has a pause of another input alone."""
    log = world.cluster.log()
    assert dict(resume(log, topics(), INPUT_ID)) == {1: THREE}
    assert all_pauses(world) == {0: {OTHER_ID: OTHER}, 1: {OTHER_ID: OTHER}}
    assert dict(resume(log, topics(), INPUT_ID)) == {}
    assert dict(resume(log, topics(), OTHER_ID)) == {0: OTHER, 1: OTHER}
    assert all_pauses(world) == {}


def test_the_owner_of_a_partition_is_fenced_only_where_something_is_resumed(world: World) -> None:
    """Else it could write the pause anew."""
    owners = [world.cluster.log().transactions(f"windhover-replay-{number}") for number in range(2)]
    for owner in owners:
        owner.init(0)
    resume(world.cluster.log(), topics(), INPUT_ID)
    for number, owner in enumerate(owners):
        owner.begin()
        owner.send(Outgoing("_ack_due", number, None, PROGRESS_KEY))
    owners[0].commit(0)
    with pytest.raises(Fenced):
        owners[1].commit(0)


def test_a_pause_that_was_aborted_is_none(world: World) -> None:
    writer = world.cluster.log().transactions("somebody")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing("_ack_due", 0, due_codec().encode(THREE), pause_key(INPUT_ID)))
    writer.send(Outgoing("_ack_due", 0, None, pause_key(OTHER_ID)))
    writer.abort(0)
    assert all_pauses(world)[0] == {OTHER_ID: OTHER}


def test_a_pause_of_another_cluster_is_refused(world: World) -> None:
    producer = world.cluster.log().producer()
    value = due_codec().encode(THREE)
    headers = ((CLUSTER, b"elsewhere"),)
    producer.send(Outgoing("_ack_due", 0, value, pause_key(INPUT_ID), headers))
    producer.flush(0)
    with pytest.raises(Disagreement, match="written in cluster elsewhere"):
        pauses(world.cluster.log(), topics())
