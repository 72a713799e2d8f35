"""A group that reads a thousand partitions, and a session with more of them than one record can name."""

from __future__ import annotations

import json

import pytest

from acker.identity import source_of
from acker.kafka.port import TopicPartition
from acker.root_sets.root_set import RootSet
from acker.service.state import StatePart, state_codec
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import SourceRun, Take, TakeSource
from spout.group.announce import Announcer
from spout.group.sources import sources_of
from spout.planning.journal import BEGINNING, journal_of
from spout.planning.session import Answers, SessionName
from tests.support.cpu_time import within
from tests.support.worlds.acker_world import GROUP, TOPIC, TOPICS
from tests.support.worlds.acker_world import World as AckerWorld
from tests.support.worlds.planning import World, batch

PARTITIONS = 1_000
THOUSAND = """
acker: {partitions: 4}
inputs:
  sentences: {id: 1, group: g, partitions: 1000, timeout: 30s, max_spout_pending: 60000}
"""


@pytest.fixture
def world() -> World:
    """A group on a thousand partitions of 100 records each."""
    made = World(THOUSAND)
    for partition in range(PARTITIONS):
        made.produce(100, partition=partition)
    return made


def test_a_thousand_partitions_are_planned_settled_and_committed(world: World) -> None:
    """Fair shares, up to what may be pending; S121, S122: the rest when there is room again.

    One root fails, one stays open: neither holds back any other partition.
    """
    with within(cpu_seconds=10):
        planner = world.ready()
        first = batch(planner, BEGINNING, world)
        assert {run.end - run.start for run in first.ranges} == {10}
        second = batch(planner, first, world)
        assert batch(planner, second, world, limit=None) == second
        assert sum(run.end - run.start for run in (*first.ranges, *second.ranges)) == 60_000
        world.publish(BEGINNING, first, fail=[3], skip=[7])
        world.publish(first, second)
        world.run(4_000)
        status = planner.status(world.now_ms)
        third = batch(planner, second, world)
    assert (status.pending, status.acked, status.failed) == (1, 59_998, 1)
    assert [world.committed(partition=p) for p in (0, 1, 999)] == [7, 60, 60]
    assert sum(run.end - run.start for run in third.ranges) == 40_000
    assert len(json.dumps(third.to_json())) < 200_000
    assert journal_of(json.loads(json.dumps(third.to_json()))) == third


def test_the_state_of_two_thousand_sources_is_a_few_kilobytes_a_step(world: World) -> None:
    """Source and replay topic; it is written with every step, and restored in one look."""
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[7])
    world.run(1_000)
    reader = world.log.reader(committed=True)
    reader.assign({TopicPartition(TOPICS.state, p): 0 for p in range(4)})
    parts = [state_codec().decode(record.value) for record in reader.poll(0, 100_000)]
    assert max(len(part.body) for part in parts if isinstance(part, StatePart)) < 30_000
    world.kill_acker()
    world.start_acker()
    with within(cpu_seconds=3):
        world.run(200)
    world.publish(BEGINNING, end)
    world.run(1_000)
    assert planner.status(world.now_ms).pending == 0


def test_more_sources_than_one_record_can_name_are_taken_in_several() -> None:
    """A Take is one record of the wire; that of 20,000 sources was refused by the broker as too large.

    Each part is a Take of its own, which changes nothing for the sources that are known. The session goes
    on with an answer that names them all; what was open before is abandoned once.
    """
    world = AckerWorld()
    before = world.session("s0", 1)
    before.take()
    before.init((0, 5))
    world.settle()
    sources = [
        TakeSource(source_of(1, p, replay=replay), f"{TOPIC}{'.replay' * replay}", "i" * 22, 0, 0)
        for replay in (False, True)
        for p in range(10_000)
    ]
    announcer = Announcer(world.cluster.log(), TOPICS, GROUP, 1)
    announcer.send_take(SessionName(2, "s1"), 5, sources, range(1))
    written = [record.value or b"" for record in world.read(TOPICS.init)]
    world.settle()
    takes = [event for event in map(wire_codec().decode, written) if isinstance(event, Take)][1:]
    assert len(takes) > 1
    assert [source for take in takes for source in take.sources] == sources
    assert max(map(len, written)) < RECORD_BYTES_MAX
    answers = Answers(GROUP, "s1", 1, [source.source for source in sources])
    whole = [answers.add_part(0, taken) for taken in world.taken()]
    assert whole.count(True) == 1
    assert answers.sources().keys() >= {source.source for source in sources}
    assert (answers.refusals, answers.pending_runs) == ({}, ())
    assert world.of() == dict.fromkeys(range(5), "ABANDONED")
    assert max(len(record.value or b"") for record in world.read(TOPICS.verdict)) < RECORD_BYTES_MAX
    assert world.status().sessions == ("word-count/s1",)


def test_an_init_of_very_many_ranges_is_written_in_parts_that_fit() -> None:
    """30,000 ranges of single records, far apart: a group on many quiet partitions."""
    world = World(THOUSAND)
    specs = sources_of(world.log, tuple(world.topics.inputs.values()), tracked=True)
    runs = [SourceRun(source_of(1, 0), at << 20, (at << 20) + 1) for at in range(30_000)]
    announcer = Announcer(world.cluster.log(), world.topics.ack_topics, "g", 4)
    announcer.send_init(SessionName(1, "s1"), 0, 0, RootSet.of_runs(runs), specs)
    inits = world.inits()
    assert sum(len(init.runs) for init in inits) == len(runs)
    assert max(len(wire_codec().encode(init)) for init in inits) < RECORD_BYTES_MAX
