"""What the spout commits for its group."""

from __future__ import annotations

from acker.identity import position_at, source_of
from spout.commits import Committer
from spout.sources import sources_of
from tests.planning import World

A = source_of(1, 0)


def test_a_commit_never_goes_back_but_to_the_beginning_of_a_later_generation() -> None:
    """S100: what is below the last commit of its generation is not written."""
    world = World()
    specs = sources_of(world.log, tuple(world.topics.inputs.values()), tracked=False)
    committer = Committer(world.log, "g", specs)
    assert committer.commit({A: position_at(0, 7)})
    assert not committer.commit({A: position_at(0, 5)})
    assert not committer.commit({A: position_at(0, 7)})
    assert (world.committed(), committer.committed()) == (7, {A: 7})
    assert committer.commit({A: position_at(1, 2)})
    assert world.committed() == 2
