"""What somebody writes in the name of another's group: what is bounded, believed, and what heals it."""

from __future__ import annotations

import pytest

from acker.config.settings import AckTopics
from tests.support.forged import FORGERIES, UNHARMED, Forgery, Plot
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.acker_world import World

NOW_MS = 1_800_000_000_000


def plot_of(*forgeries: Forgery) -> tuple[Plot, World]:
    """Let sessions begin in a world, one for each forgery."""
    world = World(cluster=MemoryCluster(NOW_MS), now_ms=NOW_MS)
    return Plot(world.writer_log, AckTopics.with_prefix(""), world.settle, lambda: NOW_MS, forgeries), world


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forged_record_does_what_the_table_says_and_a_new_session_has_all_again(
    forgery: Forgery, crashes: bool
) -> None:
    """O1801: quarantined and named with its place, or believed; after each of them the group can go on."""
    plot, world = plot_of(forgery)
    [victim] = plot.victims
    plot.forge()
    if crashes:
        world.crash()
    plot.go_on()

    reason = plot.reasons().get(plot.places[0], "")
    outcomes = plot.outcomes(victim)
    assert (forgery.why in reason, bool(reason)) == (True, bool(forgery.why)), reason
    assert (outcomes == UNHARMED) == forgery.goes_on, outcomes

    if crashes:
        world.crash()
    [successor] = plot.succeed()
    assert plot.outcomes(successor) == {0: "ACKED", 1: "TIMED_OUT"}
