"""What the spout commits for its group."""

from __future__ import annotations

import pytest

from acker.identity import position_at, source_of
from acker.kafka.port import TopicPartition
from spout.group.commits import VERIFY_EVERY_MS, Committer
from spout.group.sources import sources_of
from spout.group.starting import COMMITTED_BY
from spout.group.tenure import Tenure
from spout.planning.intake import SourceCursor
from spout.planning.session import SessionClock, SessionName
from tests.support.worlds.planning import World

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


@pytest.mark.parametrize(("text", "stands"), [(COMMITTED_BY, 9), ("by hand", 4)])
def test_what_a_zombie_commits_is_put_right_and_what_a_person_moves_stays(text: str, stands: int) -> None:
    """S153. Found by the simulation: an idle group showed a lag of one record for ever."""
    world = World()
    specs = sources_of(world.log, tuple(world.topics.inputs.values()), tracked=False)
    committer = Committer(world.log, "g", specs)
    done = {A: position_at(0, 9)}
    assert committer.step(lambda: done, 0, idle=True)
    world.log.commit("g", {TopicPartition("sentences", 0): 4}, text)
    committer.step(lambda: done, VERIFY_EVERY_MS - 1, idle=True)
    assert world.committed() == 4
    committer.step(lambda: done, VERIFY_EVERY_MS + 1_000, idle=True)
    assert world.committed() == stands


def test_nothing_is_committed_beyond_what_was_never_emitted() -> None:
    """A crash between two parts of an Init leaves a gap below what is settled."""
    cursor = SourceCursor(0, 10)
    cursor.use(13, 20)
    tenure = Tenure(SessionName(1, "s"), SessionClock(0, 0), {A: cursor}, 1)
    assert tenure.committable() == {A: 10}
