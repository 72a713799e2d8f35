"""A log that was cut and grew again, as by an unclean leader election: the planning process finds out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from acker.errors import Disagreement
from acker.identity import generation_of, offset_of, position_at, source_of
from acker.kafka.port import NO_EPOCH, Log, ReadTo, TopicPartition
from spout.inspect.operate import RewindTarget
from spout.planning.journal import BEGINNING, Journal, SourceMark, batch_ranges, journal_of
from spout.planning_process.planner import Planner
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import Faults, MemoryLog
from tests.support.worlds.planning import World, batch, positions, yaml_of

A, B = source_of(1, 0), source_of(1, 1)
REPLAY = source_of(1, 0, replay=True)
PLACE = TopicPartition("sentences", 0)
READ = 150
CUT = 100
SKIP = yaml_of(timeout="4s", max_spout_pending="200000", on_data_loss="skip")


def read_and_acked(world: World, *, tracked: bool = True, **options: object) -> tuple[Planner, Journal]:
    """Let a planner read 150 records, which are all acked."""
    world.produce(READ)
    planner = world.ready(tracked=tracked, **options)
    end = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, 0, READ)]
    if tracked:
        world.publish(BEGINNING, end)
    world.run(4_000)
    return planner, end


def cut_and_grow(world: World, count: int = 100) -> None:
    """Lose the last 50 records, and write others."""
    world.cluster.partition(PLACE).cut(CUT)
    world.produce(count)


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("grown", [0, 20, 50, 100])
def test_a_log_that_was_cut_stops_the_query_with_its_first_lost_offset(tracked: bool, grown: int) -> None:
    """O606: whether it is shorter than what was read, as long, or longer."""
    world = World()
    planner, end = read_and_acked(world, tracked=tracked)
    cut_and_grow(world, grown)
    with pytest.raises(Disagreement, match=rf"sentences/0 .*\b{CUT}\b.*\b{READ}\b.*the log was cut.*reset"):
        batch(planner, end, world)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_log_that_was_cut_while_no_query_ran_is_found_at_the_start(tracked: bool) -> None:
    """O607: the checkpoint has the epoch."""
    world = World()
    planner, end = read_and_acked(world, tracked=tracked)
    planner.close()
    world.kill(planner)
    cut_and_grow(world)
    again = world.ready(journal_of(end.to_json()), tracked=tracked)
    with pytest.raises(Disagreement, match=r"the log was cut"):
        batch(again, end, world)


def test_a_fresh_checkpoint_finds_it_by_the_group_s_commit() -> None:
    """O607: so does each start of a `KafkaSpout`."""
    world = World()
    planner, _ = read_and_acked(world)
    planner.close()
    world.kill(planner)
    assert world.log.committed_epochs("g", [PLACE]) == {PLACE: 0}
    cut_and_grow(world)
    again = world.ready()
    with pytest.raises(Disagreement, match=r"the log was cut"):
        batch(again, BEGINNING, world)


def test_another_leader_that_has_everything_stops_nothing() -> None:
    """O608: however often; its epoch is kept from then on."""
    world = World()
    planner, end = read_and_acked(world)
    for number in range(3):
        world.cluster.elect_leader("sentences", 0, 1)
        world.produce(10)
        before, end = end, batch(planner, end, world)
        assert positions(before, end) == [(A, READ + 10 * number, READ + 10 * number + 10)]
        assert end.sources[A].leader_epoch == number + 1
        world.publish(before, end)
        world.run(1_000)


def test_it_is_asked_only_when_there_is_another_leader() -> None:
    """O608: an answer about an end has its epoch, which costs nothing."""

    class Asked(NoFaults):
        count = 0

        def before(self, operation: str) -> None:
            self.count += operation == "intact_to"

    world, asked = World(), Asked()
    planner, end = read_and_acked(world, faults=asked)
    for _ in range(5):
        world.produce(10)
        before, end = end, batch(planner, end, world)
        world.publish(before, end)
        world.run(1_000)
    assert asked.count == 0
    world.cluster.elect_leader("sentences", 0)
    batch(planner, end, world)
    assert asked.count == 1


def test_a_checkpoint_without_epochs_goes_on_unchecked_until_it_has_one() -> None:
    """O609: those of former versions are as they are."""
    world = World()
    planner, end = read_and_acked(world)
    planner.close()
    world.kill(planner)
    world.log.commit("g", {PLACE: READ}, "windhover")  # as a former version does
    mark = end.sources[A]
    former = replace(end, sources={**end.sources, A: mark._replace(leader_epoch=NO_EPOCH)})
    assert "epoch" not in former.to_json()["sources"][str(A)]
    cut_and_grow(world)
    again = world.ready(journal_of(former.to_json()))
    later = batch(again, former, world)
    assert positions(former, later) == [(A, READ, CUT + 100)]
    assert later.sources[A].leader_epoch == 1


def test_a_log_that_ends_before_what_was_read_is_found_without_epochs() -> None:
    """O609: as it always was."""
    world = World()
    planner, end = read_and_acked(world)
    mark = end.sources[A]
    world.kill(planner)
    world.log.commit("g", {PLACE: READ}, "windhover")
    former = replace(end, sources={**end.sources, A: mark._replace(leader_epoch=NO_EPOCH)})
    cut_and_grow(world, 7)
    again = world.ready(former)
    with pytest.raises(Disagreement, match=rf"sentences/0 ends at {CUT + 7}, .* read it to {READ}"):
        batch(again, former, world)


def test_an_epoch_of_a_batch_s_mark_is_in_the_journal_and_back() -> None:
    """O607: and where none is known, nothing of it is."""
    marks = {A: SourceMark(0, 7, (), 3), B: SourceMark(0, 9)}
    journal = Journal("s", 1, 5, 1, marks, ())
    assert journal_of(journal.to_json()).sources == marks
    assert journal.to_json()["sources"][str(B)] == {"from": 0, "next": 9, "gaps": []}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("grown", [0, 20, 50, 100])
def test_with_skip_it_goes_on_from_the_first_lost_offset(tracked: bool, grown: int) -> None:
    """O610: in a new generation, named once; other partitions are not held up."""
    world = World(SKIP)
    planner, end = read_and_acked(world, tracked=tracked)
    cut_and_grow(world, grown)
    world.produce(5, partition=1)
    before, end = end, batch(planner, end, world)
    assert [run for run in positions(before, end) if run[0] == B] == [(B, 0, 5)]
    if tracked:
        world.publish(before, end)
    world.run(1_000)
    assert world.told.count("log_was_cut") == 1

    before, end = end, batch(planner, end, world)
    runs = batch_ranges(before, end)
    read = [(run.source, generation_of(run.start), offset_of(run.start), offset_of(run.end)) for run in runs]
    assert read == ([(A, 1, CUT, CUT + grown)] if grown else [])
    if grown and tracked:
        world.publish(before, end)
        world.run(4_000)
        assert (planner.status(world.now_ms).pending, world.committed()) == (0, CUT + grown)
    assert world.told.count("log_was_cut") == 1


def test_with_skip_roots_of_lost_offsets_get_a_verdict() -> None:
    """O611: they are not in the log any more, so they are ABSENT and not replayed from other records."""
    world = World(SKIP)
    world.produce(READ)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[7, CUT, CUT + 20])
    world.run(1_000)
    assert planner.status(world.now_ms).pending == 3
    cut_and_grow(world)
    end = batch(planner, end, world)
    world.run(1_000)
    status = planner.status(world.now_ms)
    assert (status.pending, status.absent, status.lost_from_log) == (1, 2, 2)
    world.run(6_000)
    assert world.lost("TIMED_OUT") == 1


def test_a_restart_amid_the_skip_goes_on_once() -> None:
    """O612: whether the ackers had the new generation or not."""
    for wait_ms in (0, 100, 1_000):
        world = World(SKIP)
        planner, end = read_and_acked(world)
        cut_and_grow(world)
        end = batch(planner, end, world)
        if wait_ms:
            world.run(wait_ms)
        world.kill(planner)
        again = world.ready(end)
        emitted: list[tuple[int, int]] = []
        for _ in range(3):
            before, end = end, batch(again, end, world)
            emitted += [(offset_of(r.start), offset_of(r.end)) for r in batch_ranges(before, end)] * (
                before is not end
            )
            world.publish(before, end)
            world.run(1_000)
        assert emitted == [(CUT, CUT + 100)]
        assert end.sources[A].from_ == position_at(1, CUT)


def test_an_ordered_input_stops_whatever_is_to_be_skipped() -> None:
    """O613: nobody could say what waits behind what."""
    world = World(SKIP + "    ordering: key\n")
    world.produce(READ)
    world.start_replays()
    planner = world.ready()
    end = BEGINNING
    while not batch_ranges(BEGINNING, end):
        world.run(500)
        end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    planner.record_publication(end, ())
    world.run(1_000)
    cut_and_grow(world)
    with pytest.raises(Disagreement, match="the log was cut") as stopped:
        batch(planner, end, world)
    assert "on_data_loss" not in str(stopped.value)  # no cure that does not help


def test_a_partition_whose_leader_does_not_answer_the_question_waits_and_others_go_on() -> None:
    """O614: nothing of it is planned before it is known."""

    class Silent(MemoryLog):
        def intact_to(self, read: Mapping[TopicPartition, ReadTo]) -> Mapping[TopicPartition, int]:
            return {}

    class SilentWorld(World):
        def client(self, faults: Faults | None) -> Log:
            return Silent(self.cluster, NoFaults())

    world = SilentWorld()
    planner, end = read_and_acked(world)
    world.cluster.elect_leader("sentences", 0)
    world.produce(10)
    world.produce(10, partition=1)
    before, end = end, batch(planner, end, world)
    assert positions(before, end) == [(B, 0, 10)]


@pytest.mark.parametrize("to", ["earliest", CUT, READ, "latest"])
@pytest.mark.parametrize("from_checkpoint", [True, False])
def test_behind_a_reset_it_goes_on_where_that_says(to: RewindTarget, from_checkpoint: bool) -> None:
    """O620: though the log was cut below; what is read from there on is compared again."""
    world = World()
    planner, end = read_and_acked(world)
    cut_and_grow(world)
    with pytest.raises(Disagreement, match="the log was cut"):
        batch(planner, end, world)
    planner.close()
    world.kill(planner)
    world.rewind(to)
    start = end if from_checkpoint else BEGINNING
    again = world.ready(start, take_over=True)
    later = batch(again, start, world)
    first = {"earliest": 0, "latest": CUT + 100}.get(str(to), to)
    runs = [(offset_of(run.start), offset_of(run.end)) for run in batch_ranges(start, later)]
    assert runs == ([(first, CUT + 100)] if first != CUT + 100 else [])


def lost_copy(world: World) -> tuple[Planner, Journal]:
    """Let one record fail, its copy be acked, and the replay topic lose the copy; another record fails."""
    world.start_replays()
    world.produce(2)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=[0], skip=[1])
    world.run(2_500)
    second = batch(planner, first, world)
    assert positions(first, second) == [(REPLAY, 0, 2)]
    world.publish(first, second)
    world.run(1_000)
    world.cluster.partition(TopicPartition("sentences.g.replay", 0)).cut(0)
    return planner, second


def test_a_replay_topic_that_was_cut_stops_the_query_until_a_reset() -> None:
    """O621: copies may be lost that nobody has read; the reset lets it be read from the cut on."""
    world = World()
    planner, end = lost_copy(world)
    world.run(8_000)  # the other record times out, and its copy takes the place of the lost one
    with pytest.raises(Disagreement, match=r"sentences\.g\.replay/0 .*the log was cut"):
        batch(planner, end, world)
    planner.close()
    world.kill(planner)
    world.rewind(2)
    again = world.ready()
    later = batch(again, BEGINNING, world)
    assert [
        (run.source, generation_of(run.start), offset_of(run.start)) for run in batch_ranges(BEGINNING, later)
    ] == [(REPLAY, 1, 0)]


def test_with_skip_a_replay_topic_that_was_cut_is_read_from_there_on() -> None:
    """O621: so no copy waits unread."""
    world = World(SKIP)
    planner, end = lost_copy(world)
    world.run(8_000)
    end = batch(planner, end, world)
    world.run(1_000)
    runs = batch_ranges(end, batch(planner, end, world))
    assert [(run.source, generation_of(run.start), offset_of(run.start)) for run in runs] == [(REPLAY, 1, 0)]


def test_with_skip_a_fresh_checkpoint_begins_one_generation_though_its_commit_is_older_than_the_cut() -> None:
    """O627: the commit says nothing of the new generation, or each would be followed by another."""
    world = World(SKIP)
    world.produce(READ)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    open_root = CUT + 20
    world.publish(BEGINNING, end, skip=[open_root])
    world.run(3_000)
    assert world.log.committed("g", [PLACE]) == {PLACE: open_root}
    world.kill(planner)
    cut_and_grow(world)
    again = world.ready(take_over=True)
    emitted: list[tuple[int, int, int]] = []
    end = BEGINNING
    for _ in range(5):
        before, end = end, batch(again, end, world)
        runs = batch_ranges(before, end) if end is not before else ()
        emitted += [(generation_of(run.start), offset_of(run.start), offset_of(run.end)) for run in runs]
        world.run(1_000)
    assert emitted == [(1, CUT, CUT + 100)]
