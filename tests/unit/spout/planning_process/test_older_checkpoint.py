"""A checkpoint that is older than what its query did, and restarts that look like one and are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.errors import Disagreement
from acker.identity import source_of
from acker.kafka.port import TopicPartition
from acker.wire.events import PositionRun
from spout.group.presence import SILENT_MS_MAX
from spout.planning.journal import BEGINNING, Journal, SourceMark
from tests.support.memory.clients import NoFaults
from tests.support.worlds.planning import YAML, World, batch, positions

A, B = source_of(1, 0), source_of(1, 1)
OLDER = (
    r"of sentences/0 offsets {} to {} are ACKED.*fresh checkpoint.*offsets reset sentences.*take_over=True"
)


class Looks(NoFaults):
    """Counts how often verdicts are looked for by their time; at a restart nothing else is."""

    count = 0

    def before(self, operation: str) -> None:
        """Count one."""
        self.count += operation == "offsets_at"


def emit(world: World, start: Journal, *, skip: tuple[int, ...] = ()) -> Journal:
    """Let a query read ten records more and publish them, all but some acked, then die."""
    world.produce(10)
    planner = world.ready(start)
    end = batch(planner, start, world)
    world.publish(start, end, skip=skip)
    world.run(1_000)
    world.kill(planner)
    return end


def test_an_older_copy_of_a_checkpoint_is_refused_by_its_positions_and_with_the_cures() -> None:
    """Its query would publish under batch numbers that count no more, and nothing of it would be acked."""
    world = World()
    copy = emit(world, BEGINNING)
    emit(world, copy)
    with pytest.raises(Disagreement, match=OLDER.format(10, 19)):
        world.ready(copy)


def test_with_take_over_a_new_session_goes_on_from_the_copy_and_nothing_is_lost() -> None:
    """Its batch numbers come again, and count; what was open comes back as copies."""
    world = World()
    world.start_replays()
    copy = emit(world, BEGINNING)
    emit(world, copy, skip=(15,))
    world._seq = 1  # Spark counts on from the copy
    again = world.ready(copy, take_over=True)
    assert (again.status(0).session, again.status(0).epoch) == ("s3", 2)
    assert "checkpoint_is_older" in world.told
    world.run(1_000)
    assert world.lost("ABANDONED") == 1
    world.produce(5)
    end = batch(again, copy, world)
    assert (A, 20, 25) in positions(copy, end)
    assert source_of(1, 0, replay=True) in {run.source for run in end.ranges}
    world.publish(copy, end)
    world.run(1_000)
    assert again.status(world.now_ms).pending == 0
    assert world.ready(end).status(0).session == "s3"


def test_a_copy_is_noticed_too_where_it_lacks_only_what_lay_in_a_gap() -> None:
    world = World()
    end = emit(world, BEGINNING)
    with pytest.raises(Disagreement, match=OLDER.format(3, 4)):
        world.ready(replace(end, sources={A: SourceMark(0, 10, (PositionRun(3, 5),))}))


def test_verdicts_are_read_from_the_last_batch_on_or_all_where_its_time_is_missing() -> None:
    """The first offsets of Windhover had none."""
    world = World()
    copy = emit(world, BEGINNING)
    emit(world, copy)
    with pytest.raises(Disagreement, match="older than what its query did"):
        world.ready(replace(copy, at_ms=0))
    world.planners.clear()
    assert world.ready(replace(copy, at_ms=world.now_ms + SILENT_MS_MAX + 1)).is_ready


def test_a_restart_whose_last_batch_is_acked_already_reads_no_verdicts() -> None:
    """Spark had not committed the batch, and runs it again; copies were acked, and what failed waits."""
    world = World()
    world.start_replays()
    world.produce(10)
    world.produce(10, partition=1)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=(2, 4))
    world.run(3_000)
    second = batch(planner, first, world)
    assert {run.source for run in second.ranges} == {source_of(1, 0, replay=True)}
    world.publish(first, second)
    world.run(1_000)
    world.kill(planner)
    looks = Looks()
    assert world.ready(second, faults=looks).status(0).session == "s1"
    assert looks.count == 0


def test_what_was_initialised_and_never_journalled_is_no_sign_of_it_be_it_open_or_timed_out() -> None:
    """The driver died between the two, and once more before the next process could plan it."""
    world = World()
    end = emit(world, BEGINNING)
    world.produce(10)
    planner = world.ready(end)
    batch(planner, end, world)
    world.kill(planner)
    looks = Looks()
    second = world.ready(end, faults=looks)
    assert looks.count == 0, "what is open was never acked"
    world.run(8_000)
    world.kill(second)
    assert world.lost("TIMED_OUT") == 10
    assert world.ready(end, faults=looks, take_over=True).status(0).session == "s1"
    assert looks.count == 1


def test_what_left_the_log_before_its_batch_was_journalled_is_no_sign_of_it() -> None:
    world = World(YAML + "    on_data_loss: skip\n")
    end = emit(world, BEGINNING)
    world.produce(10)
    world.log.delete_before({TopicPartition("sentences", 0): 15})
    planner = world.ready(end)
    batch(planner, end, world)
    world.run(1_000)
    world.kill(planner)
    assert sum(len(verdicts.absent) for verdicts in world.verdicts()) == 1
    again = world.ready(end, take_over=True)
    assert again.status(0).session == "s1"
    assert positions(end, batch(again, end, world)) == [(A, 15, 20)]


def test_another_driver_that_is_at_its_last_batch_is_no_sign_of_it() -> None:
    """It journals and acks while its successor has read the checkpoint, whose next batch Spark refuses."""
    world = World()
    end = emit(world, BEGINNING)
    world.produce(10)
    former = world.ready(end)
    successor = world.planner(end, take_over=True)
    world.publish(end, batch(former, end, world))
    world.run(3_000)
    assert (successor.is_ready, successor.status(0).session) == (True, "s1")
    assert successor.first_uninitialised_positions()[A] == 20


def test_what_another_session_read_of_an_input_before_this_one_read_it_is_no_sign_of_it() -> None:
    world = World(YAML + "  words: {id: 2, group: g, partitions: 2}\n")
    world.produce(10, topic="words")
    emit(world, BEGINNING)
    world.produce(10)
    planner = world.ready(inputs=(world.topics.inputs["sentences"],))
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    world.kill(planner)
    assert world.ready(end, take_over=True).status(0).session == end.session == "s2"
