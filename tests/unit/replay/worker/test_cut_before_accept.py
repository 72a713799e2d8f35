"""A log that was cut after a record was emitted, and before a replay worker read that it was lost."""

from __future__ import annotations

import pytest

from acker.kafka.port import Outgoing, Record, TopicPartition
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import COPIES, World, batch, positions, yaml_of
from tests.support.worlds.replay_world import header

PLACE = TopicPartition("sentences", 0)
REPLAYS = TopicPartition("sentences.g.replay", 0)
LETTERS = "sentences.g.dlq"
YAML = yaml_of(timeout="4s", max_spout_pending="1000", retry="{initial: 100ms, jitter: 0}")
WRITTEN, CUT = 6, 3


def records_of(world: World, topic: str) -> list[Record]:
    """Return the committed records of a topic's first partition."""
    reader = world.log.reader(committed=True)
    reader.assign({TopicPartition(topic, 0): 0})
    return list(reader.poll(0, 1_000))


def outcomes(world: World) -> list[tuple[str | None, bytes | None]]:
    """Return the dead letters: why, and what they have."""
    return [(header(letter, "windhover.dead"), letter.value) for letter in records_of(world, LETTERS)]


def lost_in_part(world: World) -> tuple[Planner, Journal]:
    """Emit six records; three are acked, 4 fails at once, and 3 and 5 time out. No worker has read that."""
    world.produce(WRITTEN)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, fail=[4], skip=[3, 5])
    world.run(8_000)
    assert (world.lost("FAILED"), world.lost("TIMED_OUT")) == (1, 2)
    return planner, end


def cut_and_grow(world: World) -> None:
    """Lose the last three records, and write others."""
    world.cluster.partition(PLACE).cut(CUT)
    world.produce(10)


def restart_acker(world: World) -> None:
    """Kill the acker; the next one reads State."""
    world.kill_acker()
    world.run(1_000)
    world.start_acker()
    world.run(1_000)


def replay(world: World) -> None:
    """Let a worker read the verdicts, and do what is due."""
    world.start_replays()
    world.run(5_000)


def test_no_copy_is_made_of_a_record_that_took_the_place_before_the_verdict_was_read() -> None:
    """O622: each lost record is a dead letter `RECREATED` without payload, whatever it was lost by."""
    world = World(YAML)
    lost_in_part(world)
    cut_and_grow(world)
    replay(world)
    assert records_of(world, REPLAYS.topic) == []
    assert outcomes(world) == [("RECREATED", None)] * 3


def abort_some(world: World, records: int) -> None:
    """Write records whose transaction is aborted: they and its marker are offsets without a record."""
    transactions = world.log.transactions("somebody")
    transactions.init(1_000)
    transactions.begin()
    for _ in range(records):
        transactions.send(Outgoing("sentences", 0, b"aborted"))
    transactions.abort(1_000)


def test_what_was_aborted_after_the_cut_does_not_hide_what_was_there() -> None:
    """O628. Found by the simulation: the place had no record now, so it counted as one that never had any."""
    world = World(YAML)
    lost_in_part(world)
    world.cluster.partition(PLACE).cut(CUT)
    abort_some(world, 10)
    replay(world)
    assert records_of(world, REPLAYS.topic) == []
    assert outcomes(world) == [("RECREATED", None)] * 3


@pytest.mark.parametrize("is_elected", [False, True])
def test_a_place_that_never_had_a_record_is_no_loss_whoever_leads(is_elected: bool) -> None:
    """O628: an election alone loses nothing, and a dead letter for a marker would be about nothing."""
    world = World(YAML)
    world.produce(2)
    abort_some(world, 2)
    world.produce(1)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[2, 3, 4])
    world.run(8_000)
    assert world.lost("TIMED_OUT") == 3
    if is_elected:
        world.cluster.elect_leader("sentences", 0)
        world.produce(3)
    replay(world)
    assert (records_of(world, REPLAYS.topic), outcomes(world)) == ([], [])


def test_a_record_that_another_leader_has_as_well_is_copied() -> None:
    """O622: its election was after the emission, and the record is of the leader before."""
    world = World(YAML)
    lost_in_part(world)
    world.cluster.elect_leader("sentences", 0)
    world.produce(3)
    replay(world)
    assert sorted(copy.value or b"" for copy in records_of(world, REPLAYS.topic)) == [b"3", b"4", b"5"]
    assert outcomes(world) == []


@pytest.mark.parametrize("is_open", [True, False])
def test_an_acker_that_restarts_keeps_the_epoch_of_what_is_open(is_open: bool) -> None:
    """O623: State has it; of roots that were lost before, their verdicts have it."""
    world = World(YAML)
    world.produce(WRITTEN)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    # the acks of the others let State be written, so that the Init is not read again
    world.publish(BEGINNING, end, fail=[] if is_open else [4], skip=[4] if is_open else [])
    world.run(500)
    restart_acker(world)
    world.run(8_000)
    assert world.lost("TIMED_OUT" if is_open else "FAILED") == 1
    cut_and_grow(world)
    replay(world)
    assert (records_of(world, REPLAYS.topic), outcomes(world)) == ([], [("RECREATED", None)])


def test_records_that_several_leaders_wrote_are_copied_each() -> None:
    """O622: what is emitted later was there in a later epoch, though other roots of the source are older."""
    world = World(YAML)
    world.produce(2)
    planner = world.ready()
    end = BEGINNING
    for number in range(3):
        before, end = end, batch(planner, end, world)
        assert positions(before, end) == [(65_536, 2 * number, 2 * number + 2)]
        world.publish(before, end, fail=[2 * number])
        world.run(500)
        world.cluster.elect_leader("sentences", 0)
        world.produce(2)
    assert world.lost("FAILED") == 3
    replay(world)
    assert (len(records_of(world, REPLAYS.topic)), outcomes(world)) == (3, [])


def test_a_lost_copy_is_not_taken_for_another_one() -> None:
    """O626: the replay topic was cut, and has another record's copy there; that one's history is not read."""
    world = World(YAML)
    world.produce(2)
    world.start_replays()
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=[0])
    world.run(2_000)
    second = batch(planner, first, world)
    assert positions(first, second) == [(COPIES, 0, 2)]  # the copy, and the end of its transaction
    world.stop_replays()
    world.publish(first, second, fail=[0], of=COPIES)
    world.run(1_000)
    world.cluster.partition(REPLAYS).cut(0)
    world.produce(1, topic=REPLAYS.topic)
    replay(world)
    letters = [letter for letter in records_of(world, LETTERS) if header(letter, "windhover.dead")]
    assert [(header(letter, "windhover.dead"), letter.value) for letter in letters] == [("RECREATED", None)]


def test_what_a_former_acker_decided_is_compared_with_the_epoch_of_the_takeover() -> None:
    """O624: its verdicts have no header; a record that was cut off before is not told apart, as it was."""
    world = World(YAML)
    lost_in_part(world)
    verdicts = [
        partition
        for number in range(world.topics.acker.partitions)
        for partition in [world.cluster.partition(TopicPartition(world.topics.ack_topics.verdict, number))]
    ]
    for partition in verdicts:
        partition._records = [record._replace(headers=()) for record in partition._records]
    cut_and_grow(world)
    replay(world)
    assert len(records_of(world, REPLAYS.topic)) == 3
