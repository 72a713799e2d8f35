"""A partition of an input has no leader: the others go on, nothing of it is skipped, and it is named."""

from __future__ import annotations

import pytest

from acker.config.limits import STANDS_MS
from acker.config.settings import UNREACHABLE_MS
from acker.errors import PartitionStands
from acker.identity import acker_partition, source_of
from acker.kafka.port import TopicPartition
from spout.group.starting import WRITERS_WAIT_MS
from spout.planning.journal import BEGINNING, Journal, journal_of
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import World, batch, positions, yaml_of

A, B = source_of(1, 0), source_of(1, 1)
LOST = TopicPartition("sentences", 1)
COPIES_OF_A, COPIES_OF_B = (source_of(1, number, replay=True) for number in range(2))
NOTICED_MS = STANDS_MS + 10_000
DELETED, COMMITTED, RECORDS = 3, 5, 10

STARTS = [
    pytest.param("earliest", 0, id="at the earliest record"),
    pytest.param("latest", RECORDS, id="behind the latest"),
    pytest.param("committed", COMMITTED, id="at its commit"),
    pytest.param("1970-01-01T00:00:00Z", 0, id="at a time"),
]
"""Where a group begins that has no history, and the first offset of the lost partition."""


def filled(**settings: object) -> World:
    """Return a world with ten records in each partition."""
    world = World(yaml_of(timeout="4s", max_spout_pending="200000", **settings))
    for partition in range(2):
        world.produce(RECORDS, partition=partition, keys=[b"key"])
    return world


def read_all(world: World, planner: Planner, start: Journal) -> tuple[Journal, list[tuple[int, int, int]]]:
    """Plan and publish until there is nothing more; return the last offset, and what was emitted."""
    emitted: list[tuple[int, int, int]] = []
    while (end := batch(planner, start, world)) != start:
        emitted += positions(start, end)
        world.publish(start, end)
        world.run(1_000)
        start = end
    return start, emitted


def test_the_others_are_read_on_and_it_goes_on_where_it_stood() -> None:
    """O409: the batch took as long as a question may, and then the query ended."""
    world = filled()
    planner = world.ready()
    end, emitted = read_all(world, planner, BEGINNING)
    assert emitted == [(A, 0, RECORDS), (B, 0, RECORDS)]
    for partition in range(2):
        world.produce(4, partition=partition)
    world.cluster.lose_leader(*LOST)
    end, emitted = read_all(world, planner, end)
    assert emitted == [(A, 10, 14)]
    assert planner.status(world.now_ms).stands == {
        "sentences/1": "has no leader: its replicas are on broker 1"
    }
    assert "partition_stands" not in world.told, "not at once: an election may be under way"
    world.run(NOTICED_MS)
    assert world.told.count("partition_stands") == 1
    world.cluster.elect_leader(*LOST)
    end, emitted = read_all(world, planner, end)
    assert emitted == [(B, 10, 14)]
    world.run(1_000)
    assert planner.status(world.now_ms).stands == {}
    assert world.told[-1] == "partition_goes_on"
    assert world.committed(partition=1) == 14


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize(("start", "first"), STARTS)
def test_a_group_begins_without_it_and_it_begins_where_it_would_have(
    start: str, first: int, *, tracked: bool
) -> None:
    """O410: its own first offset cannot be asked, so it comes later, as a new partition does."""
    setting = {} if start == "committed" else {"start": start}
    world = filled(**setting)
    if start == "committed":
        world.log.commit("g", {LOST: COMMITTED})
    world.cluster.now_ms += 2 * WRITERS_WAIT_MS
    world.cluster.lose_leader(*LOST)
    planner = world.ready(tracked=tracked)
    end, emitted = read_all(world, planner, BEGINNING)
    own = [] if start == "latest" else [(A, 0, RECORDS)]
    assert [run for run in emitted if run[0] == A] == own
    assert all(source == A for source, *_ in emitted)
    assert list(planner.status(world.now_ms).stands) == ["sentences/1"]

    world.cluster.elect_leader(*LOST)
    world.produce(2, partition=1)
    world.run(5_000)
    end, emitted = read_all(world, planner, end)
    assert emitted == [(B, first, RECORDS + 2)]
    assert end.waits == ()
    assert planner.status(world.now_ms).stands == {}


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("when", ["while it has none", "when it has one again"])
def test_a_restart_does_not_take_what_was_left_out_for_a_new_partition(start: str, when: str) -> None:
    """O411: a new one begins at offset 0, and what is gone of it is lost; it begins as the others did."""
    world = filled(start=start)
    world.log.delete_before({LOST: DELETED})
    world.cluster.now_ms += 2 * WRITERS_WAIT_MS
    world.cluster.lose_leader(*LOST)
    planner = world.ready()
    world.produce(1)
    end, _ = read_all(world, planner, BEGINNING)
    assert end.waits == (B,)
    world.kill(planner)
    if when == "when it has one again":
        world.cluster.elect_leader(*LOST)
    planner = world.ready(journal_of(end.to_json()))
    world.cluster.elect_leader(*LOST)
    world.produce(2, partition=1)
    world.run(5_000)
    end, emitted = read_all(world, planner, end)
    first = DELETED if start == "earliest" else RECORDS
    assert [run for run in emitted if run[0] == B] == [(B, first, RECORDS + 2)]


def test_a_restart_emits_what_it_had_initialised_when_it_can_be_read() -> None:
    """What was not journalled waits; of others nothing does."""
    world = filled()
    planner = world.ready()
    first = batch(planner, BEGINNING, world, 4)
    world.publish(BEGINNING, first)
    world.run(1_000)
    batch(planner, first, world, 4)  # initialised, and the process dies before it is journalled
    world.kill(planner)
    world.cluster.lose_leader(*LOST)
    planner = world.ready(first)
    end = batch(planner, first, world)
    assert {run[0] for run in positions(first, end)} == {A}
    world.publish(first, end)
    world.cluster.elect_leader(*LOST)
    end, emitted = read_all(world, planner, end)
    assert sum(stop - start for _, start, stop in emitted) == 8
    assert planner.status(world.now_ms).pending == 0


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
@pytest.mark.parametrize("topic", ["sentences", "sentences.g.replay"])
def test_a_partition_of_either_topic_stops_only_itself(topic: str, ordering: str) -> None:
    """O412: ordered or not. Its order is kept: no new record passes copies that nobody can read."""
    world = filled(ordering=ordering)
    world.start_replays()
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    for source in (A, B):
        assert source in {run[0] for run in positions(BEGINNING, end)}
    world.publish(BEGINNING, end, fail=(2,), of=B)
    world.run(10_000)
    world.cluster.lose_leader(topic, 1)
    for partition in range(2):
        try:
            world.produce(4, partition=partition, keys=[b"key"])
        except PartitionStands:
            assert topic == "sentences"
    emitted: list[tuple[int, int, int]] = []
    for _ in range(5):
        following = batch(planner, end, world)
        emitted += positions(end, following)
        world.publish(end, following)
        world.run(1_000)
        end = following
    assert (A, 10, 14) in emitted
    if topic == "sentences":
        assert all(source != B for source, *_ in emitted)
    elif ordering == "none":
        assert (B, 10, 14) in emitted
    else:
        assert all(source not in (B, COPIES_OF_B) for source, *_ in emitted)
    assert f"{topic}/1" in planner.status(world.now_ms).stands
    world.cluster.elect_leader(topic, 1)
    if topic == "sentences":
        world.produce(4, partition=1, keys=[b"key"])
    batches: list[list[tuple[int, int, int]]] = []
    for _ in range(20):
        following = batch(planner, end, world)
        batches.append(positions(end, following))
        world.publish(end, following)
        world.run(1_000)
        end = following
    emitted += [run for planned in batches for run in planned]
    assert (B, 10, 14) in emitted
    assert len([run for run in emitted if run[0] == COPIES_OF_B]) == 1
    if ordering != "none" and topic != "sentences":
        new = next(number for number, planned in enumerate(batches) if (B, 10, 14) in planned)
        copies = next(
            number for number, planned in enumerate(batches) if any(run[0] == COPIES_OF_B for run in planned)
        )
        assert copies <= new, "a batch has the copies first"
    assert planner.status(world.now_ms).pending == 0


def test_a_query_that_ends_reads_all_else_and_then_says_what_it_waits_for() -> None:
    """O413: it does not end as if nothing were left, nor wait for ever."""
    world = filled()
    world.cluster.lose_leader(*LOST)
    planner = world.ready(stops_at_ends=True)
    end, emitted = read_all(world, planner, BEGINNING)
    assert emitted == [(A, 0, RECORDS)]
    for _ in range((UNREACHABLE_MS - 10_000) // 1_000):
        assert not planner.is_drained()
        assert batch(planner, end, world) == end
        world.run(1_000)
    world.run(20_000)
    said = r"sentences/1 stands since .*: it has no leader: .*All else is done, and nothing was passed over"
    with pytest.raises(PartitionStands, match=said):
        planner.is_drained()


def test_a_query_that_ends_reads_a_partition_to_the_end_that_it_has_with_its_leader() -> None:
    world = filled()
    world.start_replays()
    world.cluster.lose_leader(*LOST)
    planner = world.ready(stops_at_ends=True)
    end, _ = read_all(world, planner, BEGINNING)
    assert not planner.is_drained()
    world.cluster.elect_leader(*LOST)
    world.run(5_000)
    end, emitted = read_all(world, planner, end)
    world.produce(5, partition=1)
    end, more = read_all(world, planner, end)
    assert emitted == [(B, 0, RECORDS)]
    assert more == []
    world.run(2_000)
    assert planner.is_drained()


def test_an_idle_query_is_woken_up_when_it_has_a_leader_and_does_not_ask_all_the_time() -> None:
    world = filled()
    planner = world.ready()
    end, _ = read_all(world, planner, BEGINNING)
    world.cluster.lose_leader(*LOST)
    assert batch(planner, end, world) == end
    assert not planner.wait_for_records(0)
    world.cluster.elect_leader(*LOST)
    assert not planner.wait_for_records(0)
    world.produce(1, partition=1)
    assert planner.wait_for_records(0)


def test_verdicts_of_the_others_are_read_and_the_partition_that_stands_is_told() -> None:
    """O414: roots of one acker partition stay pending, and nobody said why."""
    world = filled()
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    owner = acker_partition(A, 0, 3)
    world.cluster.fall_silent("_ack_verdict", owner)
    world.publish(BEGINNING, end)
    world.run(2 * NOTICED_MS)
    assert "partition_stands" in world.told
    status = planner.status(world.now_ms)
    assert (status.pending, status.acked) == (RECORDS, RECORDS)
    assert list(status.stands) == [f"_ack_verdict/{owner}"]
    world.cluster.speak_again("_ack_verdict", owner)
    world.run(1_000)
    assert planner.status(world.now_ms).pending == 0
    assert world.told[-1] == "partition_goes_on"
