"""What the spout commits for its group."""

from __future__ import annotations

import pytest

from acker.identity import position_at, source_of
from acker.kafka.port import TopicPartition
from spout.group.commits import COMMIT_AGAIN_MS, VERIFY_EVERY_MS, Committer
from spout.group.running_session import RunningSession
from spout.group.sources import sources_of
from spout.group.starting import COMMITTED_BY
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


def committer_of(world: World) -> Committer:
    specs = sources_of(world.log, tuple(world.topics.inputs.values()), tracked=False)
    return Committer(world.log, "g", specs)


def test_commits_of_another_installation_are_reported_with_its_prefix() -> None:
    """Both would handle each record, and each commit for itself."""
    world = World()
    specs = sources_of(world.log, tuple(world.topics.inputs.values()), tracked=False)
    committer = Committer(world.log, "g", specs, "windhover one-")
    done = {A: position_at(0, 9)}
    assert committer.step(lambda: done, 0, idle=True)
    assert world.log.commit_metadata("g", [TopicPartition("sentences", 0)]) == {
        TopicPartition("sentences", 0): "windhover one-"
    }
    world.log.commit("g", {TopicPartition("sentences", 0): 12}, "windhover two-")
    committer.step(lambda: done, VERIFY_EVERY_MS + 1_000, idle=True)
    assert [str(moved) for moved in committer.moved.values()] == [
        "sentences/0 from 9 to 12 by acker.topic_prefix two-"
    ]
    # ours again, as an older version marked it
    world.log.commit("g", {TopicPartition("sentences", 0): 12}, COMMITTED_BY)
    committer.step(lambda: done, 2 * VERIFY_EVERY_MS + 2_000, idle=True)
    assert committer.moved == {}


@pytest.mark.parametrize("by_an_earlier_run", [False, True])
def test_a_commit_that_the_broker_has_forgotten_is_made_again(by_an_earlier_run: bool) -> None:
    """D801: nothing came for a week, the lag showed 0, and the next start read all records again."""
    world = World()
    committer = committer_of(world)
    done = {A: position_at(0, 9)}
    committer.step(lambda: done, 0, idle=True)
    if by_an_earlier_run:
        committer = committer_of(world)
        committer.step(lambda: done, 0, idle=True)
    world.cluster.forget_commits("g")
    committer.step(lambda: done, VERIFY_EVERY_MS, idle=True)
    assert world.committed() == 9


def test_commits_of_a_quiet_group_are_renewed_before_they_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D802: each of them at most once in `COMMIT_AGAIN_MS`, and not what somebody has moved."""
    world = World()
    committer = committer_of(world)
    done = {A: position_at(0, 9)}
    committer.step(lambda: done, 0, idle=True)
    sent: list[int] = []
    commit = world.log.commit
    monkeypatch.setattr(
        world.log, "commit", lambda *arguments: (sent.extend(arguments[1].values()), commit(*arguments))
    )
    hour_ms = 3_600_000
    for now_ms in range(VERIFY_EVERY_MS, hour_ms, VERIFY_EVERY_MS):
        committer.step(lambda: done, now_ms, idle=True)
    assert sent == [9] * len(sent)
    assert hour_ms // COMMIT_AGAIN_MS - 2 <= len(sent) <= hour_ms // COMMIT_AGAIN_MS

    commit("g", {TopicPartition("sentences", 0): 4}, "by hand")
    sent.clear()
    for now_ms in range(hour_ms, 2 * hour_ms, VERIFY_EVERY_MS):
        committer.step(lambda: done, now_ms, idle=True)
    assert (sent, world.committed()) == ([], 4)


def test_a_clock_that_is_set_back_renews_commits_and_goes_on() -> None:
    """D802: hours later in the log are not waited for."""
    world = World()
    committer = committer_of(world)
    done = {A: position_at(0, 9)}
    for now_ms in (0, 10 * COMMIT_AGAIN_MS, COMMIT_AGAIN_MS):
        committer.step(lambda: done, now_ms, idle=True)
    world.cluster.forget_commits("g")
    committer.step(lambda: done, COMMIT_AGAIN_MS + VERIFY_EVERY_MS, idle=True)
    assert world.committed() == 9


def test_what_a_former_topic_had_is_not_committed_again_for_its_successor() -> None:
    """D803: the new topic begins below what the old one had."""
    world = World()
    committer = committer_of(world)
    committer.step(lambda: {A: position_at(0, 9)}, 0, idle=True)
    committer.allow_lower_commit(A)
    world.cluster.forget_commits("g")
    committer.step(lambda: {A: position_at(1, 0)}, COMMIT_AGAIN_MS, idle=True)
    committer.step(lambda: {A: position_at(1, 2)}, 2 * COMMIT_AGAIN_MS, idle=True)
    assert world.committed() == 2


def test_nothing_is_committed_beyond_what_was_never_emitted() -> None:
    """A crash between two parts of an Init leaves a gap below what is settled."""
    cursor = SourceCursor(0, 10)
    cursor.mark_initialised(13, 20)
    session = RunningSession(SessionName(1, "s"), SessionClock(0, 0), {A: cursor}, 1)
    assert session.committable() == {A: 10}
