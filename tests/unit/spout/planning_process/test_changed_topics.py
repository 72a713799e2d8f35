"""Topics that an operator changes under our feet: partitions added, a topic deleted and created again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acker.config.topics import parse
from acker.errors import DataLoss, Disagreement, TopicError, WindhoverError
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Taken
from replay.worker.service import ReplayService
from spout.planning.journal import BEGINNING, Journal, journal_of
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import FLUSH_MS, STEP_MS, YAML, World, batch, positions

LOOK_MS = 31_000
A = source_of(1, 0)
COPY = source_of(1, 0, replay=True)
COPIES = "sentences.g.replay"


@pytest.fixture
def world() -> World:
    """An acker, a replay worker and a topic of two partitions."""
    world = World()
    world.start_replays()
    return world


def start_spout(world: World) -> None:
    """Open a planning process."""
    world.planner()


def start_replay_worker(world: World) -> None:
    """Let a further replay worker look at the topics."""
    ReplayService(world.cluster.log(), world.topics, jitter=lambda: 0.0).step(world.now_ms)


def stopped(world: World, ms: int) -> list[WindhoverError]:
    """Let time pass for every part by itself; return what each was stopped by."""
    parts: dict[str, Callable[[], object]] = {
        "acker": lambda: world.acker and world.acker.step(world.now_ms),
        "replay": lambda: world.replays and world.replays.step(world.now_ms),
        **{
            f"spout {number}": lambda one=planner: one.step(one.poll(0), world.now_ms)
            for number, planner in enumerate(world.planners)
        },
    }
    errors: dict[str, WindhoverError] = {}
    for _ in range(ms // STEP_MS):
        world.cluster.now_ms += STEP_MS
        for name, step in parts.items():
            if name not in errors:
                try:
                    step()
                except WindhoverError as error:
                    errors[name] = error
    return list(errors.values())


@pytest.mark.parametrize(
    ("topic", "parts"),
    [("init", 2), ("ack", 2), ("fail", 2), ("verdict", 3), ("state", 1), ("quarantine", 1), ("due", 1)],
)
def test_partitions_added_to_an_ack_topic_stop_every_process_that_uses_it_while_it_runs(
    world: World, topic: str, parts: int
) -> None:
    """Section 4: the way out stands in the message; within half a minute, and whatever is open."""
    world.produce(10)
    batch(world.ready(), BEGINNING, world)
    world.cluster.add_partitions(getattr(world.topics.ack_topics, topic), 5)
    errors = stopped(world, LOOK_MS)
    assert [type(error) for error in errors] == [Disagreement] * parts
    for error in errors:
        assert f"_ack_{topic} has 5 partitions" in str(error)
        assert "another acker.topic_prefix" in str(error)


@pytest.mark.parametrize(
    ("topic", "start"),
    [
        ("init", World.start_acker), ("ack", World.start_acker), ("fail", World.start_acker),
        ("verdict", World.start_acker), ("state", World.start_acker), ("quarantine", World.start_acker),
        ("init", start_spout), ("ack", start_spout), ("fail", start_spout), ("verdict", start_spout),
        ("verdict", start_replay_worker), ("due", start_replay_worker),
    ],
)  # fmt: skip
def test_partitions_added_to_an_ack_topic_refuse_the_start_of_every_process_that_uses_it(
    world: World, topic: str, start: Callable[[World], None]
) -> None:
    """Section 4: N stands in topics.yaml, and the broker agrees."""
    world.cluster.add_partitions(getattr(world.topics.ack_topics, topic), 5)
    with pytest.raises(Disagreement, match=r"N is fixed for life.*another acker\.topic_prefix"):
        start(world)


def test_partitions_added_to_a_source_topic_wait_for_those_of_its_replay_topic(world: World) -> None:
    """The query goes on, says once what it waits for, and then reads the new ones from their start."""
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first)
    world.cluster.add_partitions("sentences", 4)
    world.produce(4, partition=3)
    world.produce(1)
    world.run(LOOK_MS)
    assert world.told.count("new_partitions_wait") == 1
    second = batch(planner, first, world)
    assert positions(first, second) == [(A, 10, 11)]
    world.publish(first, second)
    world.cluster.add_partitions(COPIES, 4)
    world.run(LOOK_MS)
    third = batch(planner, second, world)
    assert positions(second, third) == [(source_of(1, 3), 0, 4)]
    world.publish(second, third)
    world.run(LOOK_MS)
    assert world.committed(partition=3) == 4
    assert world.lost("ABANDONED") == 0


def test_what_a_new_partition_lost_while_no_query_ran_is_no_silent_loss(world: World) -> None:
    """A restart begins it at 0, as a running query does, and not where its log begins by then."""
    end = grow_while_no_query_runs(world)
    world.produce(10, partition=2)
    world.log.delete_before({TopicPartition("sentences", 2): 4})
    again = world.ready(end)
    with pytest.raises(DataLoss, match=r"sentences/2 no longer holds offsets 0 to 3"):
        batch(again, end, world)
    world.kill(again)
    skips = world.ready(end, fail_on_data_loss=False)
    assert positions(end, batch(skips, end, world)) == [(source_of(1, 2), 4, 10)]


def test_a_new_session_begins_a_partition_that_its_group_never_read_at_0(world: World) -> None:
    """`start: latest` is for inputs without history: between two queries its records were left out."""
    grow_while_no_query_runs(world)
    world.produce(4, partition=2)
    fresh = world.ready(start="latest", take_over=True)
    assert positions(BEGINNING, batch(fresh, BEGINNING, world)) == [(source_of(1, 2), 0, 4)]


def test_an_ending_query_leaves_a_partition_that_came_meanwhile_to_the_next_one(world: World) -> None:
    """P17: while producers go on it would never end."""
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    grow(world)
    world.produce(4, partition=2)
    world.run(LOOK_MS)
    assert batch(planner, end, world) is end
    assert planner.is_drained()
    world.kill(planner)
    later = world.ready(end, stops_at_ends=True)
    assert positions(end, batch(later, end, world)) == [(source_of(1, 2), 0, 4)]


def test_a_new_partition_that_an_acker_refuses_stops_the_query_with_the_reason(world: World) -> None:
    """An answer that refuses names no source."""
    planner = world.ready()
    world.kill_acker()
    grow(world)
    world.run(3_000)
    producer = world.log.producer()
    session = planner.status(world.now_ms).session
    refusal = Taken("g", session, 1, session, "input 1 has another topic", 0, 1, 0, (), ())
    for partition in range(world.topics.acker.partitions):
        verdict = world.topics.ack_topics.verdict
        producer.send(Outgoing(verdict, partition, wire_codec().encode(refusal)))
    producer.flush(FLUSH_MS)
    with pytest.raises(Disagreement, match=r"acker partition \d refuses .*another topic; make topics\.yaml"):
        world.run(1_000)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_log_that_ends_before_what_was_read_stops_the_query(world: World, tracked: bool) -> None:
    """Other records get the offsets of those that it lost, and would never be read."""
    world.produce(10)
    planner = world.ready(tracked=tracked)
    end = batch(planner, BEGINNING, world)
    if tracked:
        world.publish(BEGINNING, end)
    world.run(1_000)
    world.cluster.partition(TopicPartition("sentences", 0)).cut(7)
    with pytest.raises(
        Disagreement, match=r"sentences/0 ends at 7, .* read it to 10: the log was cut.*reset"
    ):
        batch(planner, end, world)


def grow(world: World) -> None:
    """Add a partition to a topic and to its replay topic."""
    world.cluster.add_partitions(COPIES, 3)
    world.cluster.add_partitions("sentences", 3)


def grow_while_no_query_runs(world: World) -> Journal:
    """End a query behind its first batch, then add a partition; return where the checkpoint is."""
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    world.kill(planner)
    grow(world)
    return end


def test_a_replay_topic_with_fewer_partitions_than_its_source_refuses_a_query(world: World) -> None:
    """A copy of the surplus ones would have no place."""
    world.cluster.add_partitions("sentences", 4)
    with pytest.raises(TopicError, match=COPIES):
        start_spout(world)


def recreate(world: World, topic: str, count: int) -> None:
    """Delete a topic, create it again, and write other records into it."""
    world.cluster.delete_topic(topic)
    world.cluster.create_topic(topic, 2)
    world.produce(count, topic=topic)


def drain(world: World, planner: Planner, start: Journal) -> Journal:
    """Plan and publish until nothing is pending or due; return the offset that was come to."""
    for _ in range(100):
        end = batch(planner, start, world)
        if end != start:
            marker = [run for run in end.ranges if run.source == COPY]
            absent = [run._replace(start=run.end - 1) for run in marker]  # the end of the copies' transaction
            world.publish(start, end, absent=absent)
            start = end
        world.run(500)
        if planner.is_drained():
            return start
    raise TimeoutError("the query is not done")


def records(world: World, topic: str) -> list[Record]:
    """Return what stands in a topic of two partitions, committed."""
    reader = world.log.reader(committed=True)
    reader.assign({TopicPartition(topic, partition): 0 for partition in range(2)})
    return list(reader.poll(0, 10_000))


@pytest.mark.parametrize("count", [0, 3, 40])
def test_a_source_topic_created_again_while_trees_are_open_stops_the_query_and_a_reset_converges(
    world: World, count: int
) -> None:
    """Be the new one shorter or longer: no position of the old one is settled by the new one's records."""
    world.produce(20)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, fail=(2,), skip=(3, 7))
    world.run(500)
    recreate(world, "sentences", count)
    [error] = stopped(world, 3_000)
    assert isinstance(error, Disagreement)
    assert "sentences was re-created" in str(error)
    assert "offsets reset" in str(error)
    world.kill(planner)
    world.rewind("earliest")
    fresh = world.ready()
    drain(world, fresh, BEGINNING)
    status = fresh.status(world.now_ms)
    assert (status.pending, status.acked) == (0, count)
    assert world.committed() == count
    new = [run for verdicts in world.verdicts() for run in verdicts.acked if run.start >= position_at(1, 0)]
    assert sum(run.end - run.start for run in new) == count
    letters = records(world, "sentences.g.dlq")
    assert sorted(dict(letter.headers)["windhover.origin"] for letter in letters) == [
        b"sentences/0@2",
        b"sentences/0@3",
        b"sentences/0@7",
    ]
    assert {dict(letter.headers)["windhover.dead"] for letter in letters} == {b"RECREATED"}
    assert records(world, COPIES) == [], "no record of the new topic was taken for one of the old"


def test_a_replay_topic_created_again_while_trees_are_open_stops_the_query_and_a_reset_converges(
    world: World,
) -> None:
    """The reset begins a new generation of it too: without, no session could be opened any more."""
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=(2,))
    world.run(3_000)
    second = batch(planner, first, world)
    assert [run.source for run in second.ranges] == [COPY]
    recreate(world, COPIES, 0)
    [error] = stopped(world, 3_000)
    assert f"{COPIES} was re-created" in str(error)
    world.kill(planner)
    with pytest.raises(Disagreement, match="offsets reset"):
        world.ready(second)
    world.planners.clear()
    world.rewind("earliest")
    fresh = world.ready()
    before = drain(world, fresh, BEGINNING)
    assert fresh.status(world.now_ms).pending == 0
    # the copy that was open went with its topic, and so did the marker behind it; which is which nobody can
    # tell any more. Its record is emitted again as all others.
    letters = records(world, "sentences.g.dlq")
    assert {dict(letter.headers)["windhover.dead"] for letter in letters} == {b"RECREATED"}
    assert world.committed() == 10
    world.produce(1)
    end = batch(fresh, before, world)
    world.publish(before, end, fail=(int(position_at(1, 10)),))
    world.run(3_000)
    [copy] = batch(fresh, end, world).ranges
    assert copy[:2] == (COPY, position_at(1, 0))


def test_a_topic_created_again_while_new_partitions_wait_for_an_acker_stops_the_query(world: World) -> None:
    """Nobody looked for it meanwhile: what the new topic holds was read as the old one's."""
    world.produce(10)
    batch(world.ready(), BEGINNING, world)
    world.kill_acker()
    grow(world)
    world.run(3_000)
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 3)
    [error] = stopped(world, 3_000)
    assert "sentences was re-created" in str(error)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_checkpoint_of_a_topic_created_again_is_refused_before_its_last_batch_is_read_again(
    world: World, tracked: bool
) -> None:
    """Spark runs the last batch again first: read from the new topic, its records would ack the old one's."""
    world.produce(10)
    planner = world.ready(tracked=tracked)
    end = journal_of(batch(planner, BEGINNING, world).to_json())
    world.kill(planner)
    recreate(world, "sentences", 20)
    with pytest.raises(Disagreement, match=r"re-created.*fresh checkpoint"):
        world.planner(end, tracked=tracked)


def test_with_take_over_too_a_last_batch_is_not_read_again_from_another_topic(world: World) -> None:
    """The session may still own the group, where nobody has reset it."""
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    recreate(world, "sentences", 20)
    again = world.make(take_over=True)
    with pytest.raises(Disagreement, match=r"re-created.*fresh checkpoint"):
        again.open(end, world.now_ms, runs_again=True)


@pytest.mark.parametrize("take_over", [True, False])
def test_a_last_batch_is_not_read_again_from_a_topic_of_another_name(world: World, take_over: bool) -> None:
    """The ackers refuse it, later: by then its records would have acked those of the old topic."""
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    for topic in ("lines", "lines.g.replay"):
        world.cluster.create_topic(topic, 2)
    renamed = parse(YAML + "    topic: lines\n", file="topics.yaml", environ={})
    again = world.make(inputs=tuple(renamed.inputs.values()), take_over=take_over)
    with pytest.raises(Disagreement, match=r"input sentences, id 1, has topic lines now.*read sentences"):
        again.open(end, world.now_ms, runs_again=True)


def test_an_untracked_query_stops_too_where_its_topic_was_created_again(world: World) -> None:
    """It has no history with the ackers that a reset could begin anew: its checkpoint is all there is."""
    world.produce(10)
    planner = world.ready(tracked=False)
    batch(planner, BEGINNING, world)
    recreate(world, "sentences", 20)
    [error] = stopped(world, 3_000)
    assert "re-created" in str(error)
    assert "fresh checkpoint" in str(error)


def test_a_partition_that_comes_back_to_a_topic_created_again_is_not_taken_for_the_old_one(
    world: World,
) -> None:
    """The ackers know it: below the old one's watermark its records would have been left out in silence."""
    world.produce(10)
    world.produce(10, partition=1)
    planner = world.ready()
    world.publish(BEGINNING, batch(planner, BEGINNING, world))
    world.run(500)
    world.kill(planner)
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 1)
    world.rewind("earliest")
    planner = world.ready()
    world.cluster.add_partitions("sentences", 2)
    world.produce(4, partition=1)
    [error] = stopped(world, 4_000)
    assert "re-created" in str(error)
    world.kill(planner)
    world.rewind("earliest")
    fresh = world.ready()
    drain(world, fresh, BEGINNING)
    assert (fresh.status(world.now_ms).acked, world.committed(partition=1)) == (4, 4)


def test_a_topic_that_is_gone_stops_the_query_and_is_named(world: World) -> None:
    """Nothing is forgotten: created again, it is another one."""
    world.produce(10)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    world.cluster.delete_topic("sentences")
    [error] = stopped(world, 3_000)
    assert isinstance(error, TopicError)
    assert "topic sentences" in str(error)


def test_a_query_that_reads_fewer_inputs_than_the_group_has_history_of_leaves_the_others_alone() -> None:
    """The ackers name every source of the group; what is not read is neither planned nor committed."""
    world = World(
        "acker: {partitions: 3}\ninputs:\n"
        "  a: {id: 1, group: g, topic: sentences, partitions: 1}\n  b: {id: 2, group: g, partitions: 1}\n"
    )
    world.produce(5)
    world.produce(5, topic="b")
    both = world.ready()
    end = batch(both, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(4_000)
    world.kill(both)
    world.produce(2)
    one = world.ready(inputs=(world.topics.input("a"),))
    end = batch(one, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, 5, 7)]
    world.publish(BEGINNING, end)
    world.run(4_000)
    assert (world.committed(), world.committed("b")) == (7, 5)
