"""How long a run needed after a blow, from what the topics say."""

from __future__ import annotations

from acker.identity import Position, Root, Source
from tests.support.worlds.torture_world import SOURCE, World
from tests.torture.judging.causes import Strike
from tests.torture.judging.recovery import Recovery, recoveries
from tests.torture.schedule import Deed, Victim

OTHER = SOURCE + 1
"""The source of the other partition."""


def acked(world: World, source: int, position: int, began_ms: int, acked_ms: int) -> None:
    """Let a root of an input's partition go through."""
    world.init(source, position, began_ms)
    world.acked(source, position, acked_ms)
    assert Root(Source(source), Position(position)) in world.evidence.verdicts


def struck(victim: Victim, deed: Deed | None, began_ms: int) -> Strike:
    return Strike(victim, deed, began_ms, began_ms + 1)


def test_a_blow_is_over_when_each_partition_has_acked_a_record_that_began_after_it() -> None:
    world = World()
    acked(world, SOURCE, 1, 900, 1_500)  # it began before: that it is acked proves nothing
    acked(world, SOURCE, 2, 1_100, 9_000)
    acked(world, SOURCE, 3, 2_000, 3_000)
    acked(world, OTHER, 1, 4_000, 5_000)

    found = recoveries(world.evidence, [struck(Victim.BROKER_2, Deed.KILL, 1_000)])

    assert found == {"broker: SIGKILL": Recovery(faults=1, median_s=4.0, max_s=4.0, open=0)}


def test_blows_of_a_kind_are_counted_together_whichever_of_several_was_hit() -> None:
    world = World()
    for position, at_ms in enumerate((1_000, 3_000, 7_000)):
        acked(world, SOURCE, position, at_ms, at_ms + 500)

    blows = [struck(victim, Deed.KILL, at) for victim, at in ((Victim.ACKER_1, 0), (Victim.ACKER_2, 3_500))]

    assert recoveries(world.evidence, blows) == {
        "acker: SIGKILL": Recovery(faults=2, median_s=2.8, max_s=4.0, open=0)
    }


def test_a_blow_that_nothing_follows_is_open_and_an_ending_is_no_blow() -> None:
    world = World()
    acked(world, SOURCE, 1, 1_000, 2_000)

    blows = [struck(Victim.EXECUTOR, Deed.KILL, 5_000), struck(Victim.DRIVER, None, 0)]

    assert recoveries(world.evidence, blows) == {
        "executor: SIGKILL": Recovery(faults=1, median_s=0.0, max_s=0.0, open=1)
    }
