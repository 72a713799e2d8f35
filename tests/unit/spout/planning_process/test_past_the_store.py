"""Who takes a group that is written exactly once, and opens no store: it is refused, rule 12."""

from __future__ import annotations

import pytest

from acker.errors import SessionRefused
from spout.group.presence import SILENT_MS_MAX
from spout.inspect.operate import GroupSession, moves_of_rewind
from spout.planning.journal import BEGINNING
from tests.support.worlds.planning import World, batch


def granted(epoch_min: int) -> int:
    """Grant an epoch as a store does that has no rows yet."""
    return epoch_min


def killed_with_a_batch() -> World:
    """Return a world whose query died with three roots under way, which its store may have."""
    world = World()
    world.produce(3)
    first = world.ready(grant_epoch=granted)
    batch(first, BEGINNING, world)
    world.kill(first)
    world.run(SILENT_MS_MAX + 1_000)
    return world


def run_to_end(world: World, operation: GroupSession) -> None:
    """Step an operation until it is done."""
    try:
        while not operation.step(world.now_ms):
            world.run(100)
        operation.finish()
    finally:
        operation.close()


@pytest.mark.parametrize("resets", [False, True], ids=["release", "reset"])
@pytest.mark.parametrize("take_over", [False, True])
def test_a_release_and_a_reset_are_refused_and_abandon_nothing(resets: bool, take_over: bool) -> None:
    """D3206: they do so only where they are to take the group without its store."""
    world = killed_with_a_batch()
    rewind = moves_of_rewind(world.log, world.topics.input("sentences"), "earliest") if resets else ()
    refused = GroupSession(
        world.cluster.log(), world.topics, "g", new_id="op1", rewind=rewind, take_over=take_over
    )
    cure = "add --without-store to this command" if resets else "windhover release g --without-store"
    with pytest.raises(SessionRefused, match=cure):
        run_to_end(world, refused)
    world.run(1_000)
    assert world.lost("ABANDONED") == 0

    allowed = GroupSession(
        world.cluster.log(), world.topics, "g", new_id="op2", rewind=rewind, without_store=True
    )
    run_to_end(world, allowed)
    world.run(1_000)
    assert world.lost("ABANDONED") == 3


def test_a_query_without_the_store_is_refused_and_one_with_it_goes_on() -> None:
    """D3206."""
    world = killed_with_a_batch()
    plain = world.planner(take_over=True)
    with pytest.raises(SessionRefused, match="writes exactly once into a store"):
        world.run(1_000)
    assert not plain.is_ready
    world.kill(plain)
    assert world.ready(grant_epoch=granted).is_ready
