"""A member in a group in which none should be: it is named, and so is what it commits."""

from __future__ import annotations

import pytest

from acker.errors import Disagreement, LogError
from acker.kafka.port import GroupMember, Membership, TopicPartition
from spout.group.commits import VERIFY_EVERY_MS
from spout.group.strangers import (
    STRANGER_CHECK_MS,
    MovedCommit,
    StrangerWatch,
    members_text,
    moved_cure,
    stranger_texts,
    strangers_of,
)
from spout.inspect.operate import GroupSession, run_to_end
from spout.inspect.overview import Overview
from spout.planning.journal import BEGINNING, Journal
from spout.ui.attention import Thresholds, problems
from tests.support.worlds.planning import World, batch

CONSOLE = GroupMember("console-consumer on 10.0.0.7", frozenset({0, 1}), "console-consumer-4f1c")
MINUTE_MS = 60_000
SENTENCES = TopicPartition("sentences", 0)


class Hearing(World):
    """A world that keeps what its planners report, with the fields."""

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.heard: list[tuple[str, dict[str, object]]] = []
        super().__init__()

    def _hear(self, event: str, fields: object) -> None:
        """Note it."""
        assert isinstance(fields, dict)
        self.heard.append((event, dict(fields)))

    def said(self, event: str) -> list[dict[str, object]]:
        """Return the fields of all reports of an event."""
        return [fields for name, fields in self.heard if name == event]

    def stranger(self) -> Membership:
        """Let somebody join the group, as `kafka-console-consumer --group` does."""
        member = self.cluster.log().join("g", ["sentences"])
        member.poll(0)
        return member


def done(world: World, count: int = 10) -> Journal:
    """Let a query do some records, and die behind its commit; return its checkpoint."""
    world.produce(count)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(5_000)
    assert world.committed() == count
    world.kill(planner)
    return end


def test_a_stranger_that_keeps_commits_back_is_named_each_minute_until_it_leaves() -> None:
    """D1101: at once where it keeps a commit back; the records are done all the same."""
    world = Hearing()
    planner = world.ready()
    member = world.stranger()
    world.produce(10)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(2_000)
    assert planner.status(world.now_ms).acked == 10
    assert world.committed() is None
    first = world.said("stranger_in_group")
    assert len(first) == 1
    assert (first[0]["group"], first[0]["member"]) == ("g", "windhover-member-2")
    assert "commits stand still" in str(first[0]["effect"])
    assert first[0]["error"]
    world.run(2 * MINUTE_MS)
    assert [line["since_s"] for line in world.said("stranger_in_group")] == [0, 60, 120]
    member.close()
    world.run(STRANGER_CHECK_MS + 1_000)
    assert len(world.said("stranger_left_group")) == 1
    assert world.committed() == 10


def test_a_stranger_in_the_group_of_a_quiet_query_is_named_too() -> None:
    """D1102: nothing is to be committed, so nothing is refused."""
    world = Hearing()
    world.ready()
    world.stranger()
    world.run(STRANGER_CHECK_MS + 1_000)
    assert len(world.said("stranger_in_group")) == 1


def test_a_commit_that_a_stranger_moves_is_reported_with_from_to_and_when() -> None:
    """D1103: by the query that lives, once for each."""
    world = Hearing()
    planner = world.ready()
    world.produce(10)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(5_000)
    world.log.commit("g", {SENTENCES: 4}, "")
    world.run(2 * VERIFY_EVERY_MS + 2_000)
    lines = world.said("commit_was_moved")
    assert [line["moved"] for line in lines] == ["sentences/0 from 10 to 4"]
    assert str(lines[0]["seen"]).startswith("2027-01-15T08:0")
    assert "`windhover release g`" in str(lines[0]["next_step"])


@pytest.mark.parametrize("is_fresh", [False, True])
def test_the_next_start_says_what_moved_from_where_to_where_when_and_what_helps(is_fresh: bool) -> None:
    """D1104: with who is in the group now; be the checkpoint the old one or a fresh one."""
    world = Hearing()
    end = done(world)
    world.run(20_000)  # the query before is gone for certain
    world.log.commit("g", {SENTENCES: 4}, "")
    world.stranger()
    with pytest.raises(Disagreement) as raised:
        world.ready(BEGINNING if is_fresh else end)
    text = str(raised.value)
    assert "sentences/0 from 10 to 4" in text
    assert "seen at 2027-01-15T08:0" in text
    assert ("after 2027-01-15T08:00:0" in text) is not is_fresh
    assert "In the group is now windhover-member-2: first end it" in text
    assert "`windhover release g`" in text
    assert "`windhover offsets reset sentences --partition 0 --to 4 --execute`" in text


def test_the_commands_that_the_refusal_names_put_it_right() -> None:
    """D1105: a release commits what is settled again, and the old checkpoint goes on where it was."""
    world = Hearing()
    end = done(world)
    world.run(20_000)
    world.log.commit("g", {SENTENCES: 4}, "")
    with pytest.raises(Disagreement):
        world.ready(end)
    world.planners.clear()
    run_to_end(GroupSession(world.cluster.log(), world.topics, "g", new_id="op"), lambda: now(world))
    assert world.committed() == 10
    planner = world.ready(end, take_over=True)
    assert batch(planner, end, world).ranges == ()


def now(world: World) -> int:
    """Let the ackers answer, and return the time."""
    world.run(100)
    return world.now_ms


def test_a_release_that_a_stranger_keeps_from_committing_says_so() -> None:
    """D1106: else the next start would be refused again, and again."""
    world = Hearing()
    done(world)
    world.run(20_000)
    world.log.commit("g", {SENTENCES: 4}, "")
    world.stranger()
    operation = GroupSession(world.cluster.log(), world.topics, "g", new_id="op")
    with pytest.raises(LogError, match=r"release is done.*not put right.*windhover-member-2: end it"):
        run_to_end(operation, lambda: now(world))


def test_status_and_check_name_a_stranger() -> None:
    """D1107: `check` as a warning."""
    world = Hearing()
    done(world)
    overview = Overview(world.cluster.log(), world.topics)
    before = overview.snapshot(world.now_ms)
    world.stranger()
    snapshot = overview.snapshot(world.now_ms)
    overview.close()
    assert not before.strangers
    text = snapshot.strangers["g"]
    assert text.startswith("group g has a member that is not Windhover's, windhover-member-2: its commits")
    assert text in snapshot.troubles()
    names = [flag.name for flag in problems(snapshot, world.topics)]
    assert "stranger: g" in names
    critical = [flag.name for flag in problems(snapshot, world.topics, Thresholds(strangers=False))]
    assert "stranger: g" not in critical


def test_a_stranger_among_ackers_or_replay_workers_is_told_apart_by_its_client_id() -> None:
    """D1108: the group gives it partitions, and nobody works on them."""
    own = GroupMember("windhover-acker-host-7 on 10.0.0.2", frozenset({2}))
    assert strangers_of([own, CONSOLE], has_own=True) == [CONSOLE]
    texts = stranger_texts({"g": []}, {"windhover-acker": [own, CONSOLE], "windhover-replay": [own]})
    assert list(texts) == ["windhover-acker"]
    assert "console-consumer on 10.0.0.7 (member console-consumer-4f1c)" in texts["windhover-acker"]
    assert "wait" in texts["windhover-acker"]


def test_of_many_members_some_are_named() -> None:
    """A line stays a line."""
    many = [CONSOLE._replace(name=f"c{number}", id="") for number in range(12)]
    assert members_text(many) == "c0; c1; c2; c3; c4; and 7 more"


def test_a_group_whose_members_nobody_may_see_is_not_called_empty() -> None:
    """What was there may be there still."""
    world = Hearing()
    heard: list[str] = []
    log = world.cluster.log()
    watch = StrangerWatch(log, "g", lambda event, _fields: heard.append(event))
    world.stranger()
    watch.step("refused", 0)

    def refuse(group: str) -> list[GroupMember]:
        raise LogError(group)

    log.members = refuse  # type: ignore[method-assign]
    watch.step("", STRANGER_CHECK_MS)
    assert heard == ["stranger_in_group"]


def test_a_commit_that_was_deleted_is_put_back_from_the_beginning() -> None:
    """There is no offset to name."""
    moved = MovedCommit(SENTENCES, 10, None)
    assert str(moved) == "sentences/0 from 10 to nothing"
    assert "--to earliest" in moved_cure("g", "sentences", moved)
