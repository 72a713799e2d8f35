"""What an operator does from outside: release a group, rewind an input; safe while trees are open."""

from __future__ import annotations

import pytest

from acker.errors import (
    Disagreement,
    LogError,
    PartitionStands,
    SessionRefused,
    SessionSuperseded,
    UsageError,
)
from acker.identity import position_at
from acker.kafka.port import TopicPartition
from spout.group.presence import SILENT_MS_MAX
from spout.inspect.operate import GroupSession, Move, RewindTarget, inputs_of, moves_of_rewind, tracked_input
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import READY_STEPS_MAX, STEP_MS, World, batch, positions

A, B = 65_536, 65_537


def running(world: World, *, skip: tuple[int, ...] = ()) -> tuple[Planner, Journal]:
    """Let ten records of a partition be emitted and acked, but for some that stay open."""
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=skip)
    world.run(1_000)
    return planner, end


def do(world: World, operation: GroupSession) -> None:
    """Step an operation to its end, and what else runs beside it."""
    for _ in range(READY_STEPS_MAX):
        if operation.step(world.now_ms):
            operation.finish()
            return
        world.run(STEP_MS)
    raise TimeoutError("the operation did not come to its end")


def reset(world: World, to: RewindTarget, *, at_ms: int | None = None, take_over: bool = False) -> list[Move]:
    """Rewind the one input."""
    plan = moves_of_rewind(world.log, world.topics.inputs["sentences"], to, at_ms=at_ms)
    log, new_id = world.cluster.log(), f"op-{to}"
    do(world, GroupSession(log, world.topics, "g", new_id=new_id, rewind=plan, take_over=take_over))
    return plan


def release(world: World, *, take_over: bool = False) -> None:
    """Release the one group."""
    do(
        world,
        GroupSession(world.cluster.log(), world.topics, "g", new_id="op-release", take_over=take_over),
    )


def test_a_release_abandons_what_is_open_and_stops_the_query_that_holds_the_group() -> None:
    world = World()
    planner, _ = running(world, skip=(3, 7))
    release(world, take_over=True)
    with pytest.raises(SessionSuperseded):
        world.run(STEP_MS)
    world.kill(planner)
    world.run(1_000)
    assert world.lost("ABANDONED") == 2
    world.produce(1)
    assert positions(BEGINNING, batch(world.ready(), BEGINNING, world)) == [(A, 10, 11)]


def test_a_release_and_a_reset_leave_a_group_alone_that_a_living_query_holds() -> None:
    world = World()
    planner, _ = running(world)
    with pytest.raises(SessionRefused, match=r"1/s1.*--take-over"):
        release(world)
    with pytest.raises(SessionRefused, match=r"1/s1.*--take-over"):
        reset(world, "earliest")
    world.run(1_000)
    assert (planner.status(world.now_ms).state, world.committed()) == ("running", 10)


def test_a_query_that_a_reset_stops_leaves_the_commits_of_the_reset_as_they_are() -> None:
    """Its last commit, behind them, would be the group's until the new generation has come so far."""
    world = World()
    planner, end = running(world)
    world.produce(5)
    end = batch(planner, end, world)
    world.publish(BEGINNING, end)
    reset(world, "earliest", take_over=True)
    with pytest.raises(SessionSuperseded, match=r"Stop it, if it is a query, and start this one again"):
        world.run(STEP_MS)
    planner.close()
    assert world.committed() == 0


def test_a_reset_whose_commit_is_refused_is_done_and_says_so() -> None:
    world = World()
    planner, _ = running(world)
    world.kill(planner)
    world.run(SILENT_MS_MAX + 500)
    stranger = world.cluster.log().join("g", ["sentences"])
    stranger.poll(0)
    with pytest.raises(LogError, match=r"the reset is done, .* group g, .* are the old ones: .* has members"):
        reset(world, 5)
    stranger.close()
    assert positions(BEGINNING, batch(world.ready(), BEGINNING, world)) == [
        (A, position_at(1, 5), position_at(1, 10))
    ]


def test_a_release_of_a_group_that_nobody_runs_leaves_its_offsets_where_they_belong() -> None:
    """P15: a committed offset that someone moved is refused; a release puts it back."""
    world = World()
    planner, _ = running(world)
    world.kill(planner)
    world.log.commit("g", {TopicPartition("sentences", 0): 4})
    with pytest.raises(Disagreement, match="release g"):
        world.ready()
    world.planners.clear()
    release(world)
    assert world.committed() == 10
    world.produce(1)
    assert positions(BEGINNING, batch(world.ready(), BEGINNING, world)) == [(A, 10, 11)]


@pytest.mark.parametrize(("to", "first"), [("earliest", 0), (4, 4), ("latest", 10), (99, 10)])
def test_a_reset_begins_a_new_generation_at_the_requested_place(to: RewindTarget, first: int) -> None:
    """An offset that the log does not hold becomes the nearest that it holds."""
    world = World()
    planner, _ = running(world)
    world.kill(planner)
    reset(world, to)
    assert world.committed() == first
    world.produce(2)
    fresh = world.ready()
    end = batch(fresh, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, position_at(1, first), position_at(1, 12))]
    world.publish(BEGINNING, end)
    world.run(5_000)
    assert world.committed() == 12
    assert fresh.status(world.now_ms).pending == 0


@pytest.mark.parametrize(("to", "first"), [(99, 10), (1, 4)])
def test_an_offset_that_the_log_does_not_hold_is_named_with_what_it_became(to: int, first: int) -> None:
    world = World()
    running(world)
    world.log.delete_before({TopicPartition("sentences", 0): 4})
    move = next(
        each for each in moves_of_rewind(world.log, world.topics.inputs["sentences"], to) if each.source == A
    )
    assert (move.offset, move.requested) == (first, to)
    assert str(move).endswith(f"; {to} was asked for, and the log begins at 4 and ends at 10 here")


@pytest.mark.parametrize("to", ["earliest", "latest", 4, 7, 10])
def test_an_offset_that_the_log_holds_is_named_as_it_is(to: RewindTarget) -> None:
    world = World()
    running(world)
    world.log.delete_before({TopicPartition("sentences", 0): 4})
    move = next(
        each for each in moves_of_rewind(world.log, world.topics.inputs["sentences"], to) if each.source == A
    )
    assert "asked" not in str(move)


def test_a_reset_of_one_partition_leaves_the_others_where_they_are() -> None:
    """O365: the way past a damaged batch: its own partition begins behind it."""
    world = World()
    world.produce(10, partition=1)
    planner, _ = running(world)
    world.kill(planner)
    plan = moves_of_rewind(world.log, world.topics.inputs["sentences"], 7, partitions=[1])
    assert [str(move.place) for move in plan] == [str(TopicPartition("sentences", 1))]
    do(world, GroupSession(world.cluster.log(), world.topics, "g", new_id="op", rewind=plan))
    committed = world.log.committed("g", [TopicPartition("sentences", number) for number in range(2)])
    assert list(committed.values()) == [10, 7]
    world.produce(2)
    fresh = world.ready()
    again = batch(fresh, BEGINNING, world)
    assert positions(BEGINNING, again) == [
        (A, 10, 12),
        (B, position_at(1, 7), position_at(1, 10)),
    ]


@pytest.mark.parametrize("partitions", [[2], [0, 7]])
def test_a_reset_of_a_partition_that_there_is_not_is_refused(partitions: list[int]) -> None:
    """O366: with those that there are."""
    world = World()
    with pytest.raises(UsageError, match=rf"has no partition {partitions[-1]}; it has 0 to 1"):
        moves_of_rewind(world.log, world.topics.inputs["sentences"], "earliest", partitions=partitions)


def test_a_reset_is_safe_while_trees_are_open() -> None:
    """What was open is put back once; the records are emitted again in the new generation besides."""
    world = World()
    world.start_replays()
    planner, _ = running(world, skip=(3,))
    world.kill(planner)
    reset(world, "earliest")
    world.run(2_000)
    assert world.lost("ABANDONED") == 1
    end = batch(world.ready(), BEGINNING, world)
    emitted = positions(BEGINNING, end)
    assert (A, position_at(1, 0), position_at(1, 10)) in emitted
    assert len(emitted) == 2, "and the copy of the one that was open"


def test_a_reset_is_the_way_out_where_a_topic_was_re_created() -> None:
    world = World()
    planner, _ = running(world)
    world.kill(planner)
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 2)
    with pytest.raises(Disagreement, match=r"re-created.*offsets reset"):
        world.ready()
    world.planners.clear()
    reset(world, "earliest")
    world.produce(3)
    assert positions(BEGINNING, batch(world.ready(), BEGINNING, world)) == [
        (A, position_at(1, 0), position_at(1, 3))
    ]


def test_a_checkpoint_from_before_a_reset_goes_on_at_the_requested_place_with_take_over() -> None:
    world = World()
    planner, end = running(world)
    world.kill(planner)
    reset(world, 6)
    again = world.ready(end, take_over=True)
    assert positions(end, batch(again, end, world)) == [(A, position_at(1, 6), position_at(1, 10))]


def test_a_reset_without_execute_changes_nothing_and_shows_what_would_be_emitted_again() -> None:
    world = World()
    planner, _ = running(world)
    world.run(5_000)
    plan = moves_of_rewind(world.log, world.topics.inputs["sentences"], 4)
    assert [str(move) for move in plan] == [
        "sentences/0: 10 to 4, 6 offsets are emitted again",
        "sentences/1: nothing committed, begins at 0; 4 was asked for, and the log begins at 0 and ends at 0"
        " here",
    ]
    ahead = Move(A, TopicPartition("sentences", 0), 10, 12)
    assert str(ahead) == "sentences/0: 10 to 12, 2 offsets are left out"
    world.run(1_000)
    assert world.committed() == 10
    assert planner.status(world.now_ms).state == "running"


def test_a_reset_to_a_time_begins_at_the_first_record_from_then_on() -> None:
    world = World()
    world.produce(3)
    world.run(60_000)
    world.produce(3)
    [first, other] = moves_of_rewind(
        world.log, world.topics.inputs["sentences"], "", at_ms=world.now_ms - 30_000
    )
    assert (first.offset, other.offset) == (3, 0)


def test_what_topics_yaml_does_not_have_is_refused_by_name() -> None:
    world = World()
    with pytest.raises(UsageError, match=r"no input 'nope'.*sentences"):
        tracked_input(world.topics, "nope")
    with pytest.raises(UsageError, match="group 'nope'; it has g"):
        inputs_of(world.topics, "nope")


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_release_needs_no_leader_of_a_source(*, has_begun: bool) -> None:
    """O416: it waited for half a minute, and then did nothing."""
    world = World()
    world.produce(10, partition=1)
    if has_begun:
        planner, _ = running(world, skip=(3,))
        world.kill(planner)
    world.cluster.lose_leader("sentences", 1)
    release(world, take_over=True)
    world.run(1_000)
    assert world.lost("ABANDONED") == int(has_begun)


def test_a_reset_names_the_partition_that_has_no_leader_and_changes_nothing() -> None:
    world = World()
    planner, _ = running(world)
    world.kill(planner)
    world.cluster.lose_leader("sentences", 1)
    takes = world.takes()
    with pytest.raises(PartitionStands, match="sentences/1 has no leader"):
        reset(world, "earliest", take_over=True)
    assert (world.takes(), world.committed()) == (takes, 10)
