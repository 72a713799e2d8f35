"""What was read and is not planned yet: what of it may be planned, what leaves, what is gone."""

from __future__ import annotations

from itertools import product

import pytest

from acker.config.topics import parse
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.events import SourceRun
from spout.group.sources import SourceSpec, sources_of
from spout.standalone.read_ahead import GroupReach, ReadAhead
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.kestrel_world import YAML, MemoryMessages

A, B, COPIES = source_of(1, 0), source_of(1, 1), source_of(1, 0, replay=True)
PLACE = TopicPartition("sentences", 0)


class ReadWorld:
    """Two partitions and their replay topic, read from the beginning."""

    def __init__(self, free: int = 0) -> None:
        self.cluster = MemoryCluster(0)
        self.log = self.cluster.log()
        found = parse(YAML, file="topics.yaml", environ={}).input("sentences")
        for topic in (found.topic, found.replay_topic):
            self.cluster.create_topic(topic, 2)
        self.sources: dict[int, SourceSpec] = sources_of(self.log, [found], tracked=True)
        self.ahead = ReadAhead(MemoryMessages(self.log), self.log)
        self.ahead.add_sources(self.sources, dict.fromkeys(self.sources, free))

    def produce(self, count: int, topic: str = "sentences", partition: int = 0) -> None:
        producer = self.log.producer()
        for number in range(count):
            producer.send(Outgoing(topic, partition, b"%d" % number))
        producer.flush(0)


def offsets(world: ReadWorld, start: int, end: int) -> tuple[list[int], list[SourceRun]]:
    """Take [start, end) of the first partition; return the offsets that came, and what is absent."""
    taken, absent, _ = world.ahead.take_run(PLACE, SourceRun(A, start, end))
    return [message.offset() or 0 for part in taken for message in part.messages], absent


def test_only_what_is_shown_and_was_read_may_be_planned() -> None:
    world = ReadWorld()
    world.produce(5)
    world.produce(3, partition=1)
    reach = GroupReach([world.ahead])
    places = [PLACE, TopicPartition("sentences", 1)]
    assert dict(reach.stable_ends(places)) == dict.fromkeys(places, 0)
    assert world.ahead.poll(0, 100) == 8
    world.ahead.plan_only([A])
    assert dict(reach.stable_ends(places)) == {places[0]: 5, places[1]: 0}
    assert dict(reach.starts(places)) == dict.fromkeys(places, 0)


def test_copies_come_before_everything_else() -> None:
    """P9: what is to be replayed is planned first."""
    world = ReadWorld()
    world.produce(1, partition=1)
    world.produce(1, topic="sentences.g.replay")
    world.ahead.poll(0, 100)
    assert world.ahead.source_groups(3)[0] == [COPIES]
    assert sorted(world.ahead.source_groups(3)[1]) == [B]


def test_a_plan_takes_its_records_and_leaves_the_others() -> None:
    world = ReadWorld()
    world.produce(6)
    world.ahead.poll(0, 4)
    world.ahead.poll(0, 4)
    assert offsets(world, 0, 5) == ([0, 1, 2, 3, 4], [])
    assert world.ahead.count == 1
    assert offsets(world, 5, 6) == ([5], [])
    assert world.ahead.source_groups(3) == []


def test_what_was_initialised_before_is_dropped_and_makes_room() -> None:
    """A predecessor left a gap below what it initialised; only the gap is planned."""
    world = ReadWorld()
    world.produce(10)
    world.ahead.poll(0, 100)
    assert offsets(world, 0, 2) == ([0, 1], [])
    world.ahead.drop_below({A: 8})
    assert world.ahead.count == 2
    assert offsets(world, 8, 10) == ([8, 9], [])


def test_what_was_initialised_beyond_what_was_read_is_not_read() -> None:
    """Records that nobody may plan would fill the buffer, until nothing more is read."""
    world = ReadWorld()
    world.produce(30)
    world.ahead.poll(0, 6)
    assert offsets(world, 0, 2) == ([0, 1], [])
    world.ahead.drop_below({A: 20})
    assert world.ahead.count == 0
    assert world.ahead.poll(0, 4) == 4
    assert world.ahead.source_groups(3) == [[A]]
    assert offsets(world, 20, 24) == ([20, 21, 22, 23], [])


def test_positions_without_a_record_are_returned() -> None:
    """P6: an aborted record and the marker behind it."""
    world = ReadWorld()
    world.produce(2)
    transactions = world.log.transactions("t")
    transactions.init(0)
    transactions.begin()
    transactions.send(Outgoing("sentences", 0, b"never"))
    transactions.abort(0)
    world.produce(1)
    world.ahead.poll(0, 100)
    assert offsets(world, 0, 5) == ([0, 1, 4], [SourceRun(A, 2, 4)])


def test_what_left_the_log_shows_as_its_start() -> None:
    """S150: planning finds that the beginning is gone, and decides."""
    world = ReadWorld()
    world.produce(6)
    world.cluster.delete_before(PLACE, 4)
    assert world.ahead.poll(0, 100) == 0
    world.ahead.plan_only([A])
    assert (world.ahead.starts([PLACE])[PLACE], world.ahead.stable_ends([PLACE])[PLACE]) == (4, 4)
    assert world.ahead.poll(0, 100) == 2


def test_a_partition_that_is_shorter_than_what_was_read_is_refused() -> None:
    """Nothing comes of it, and planning finds out why, until the source begins a new generation."""
    world = ReadWorld(free=position_at(0, 5))
    assert world.ahead.poll(0, 100) == 0
    assert "no longer reaches" in str(world.ahead.out_of_range)
    world.produce(2)
    world.ahead.add_sources(world.sources, dict.fromkeys(world.sources, position_at(1, 0)))
    assert (world.ahead.out_of_range, world.ahead.poll(0, 100)) == (None, 2)


READ = 5
"""So far each partition was read that holds records, or held some."""


def read_to_five(world: ReadWorld, state: str, partition: int) -> None:
    """Bring a partition into a state in which it was read to offset 5, or is empty and was read from 0."""
    place = TopicPartition("sentences", partition)
    if state.startswith("empty"):
        return
    world.produce(READ + 2, partition=partition)
    if state == "gone":
        world.cluster.delete_before(place, READ + 1)
    elif state == "all gone":
        world.cluster.delete_before(place, READ + 2)
    elif state == "gone to where it was read":
        world.cluster.delete_before(place, READ)
    elif state == "cut":
        world.cluster.partition(place).cut(READ - 2)
    elif state == "cut to nothing":
        world.cluster.partition(place).cut(0)


STATES = {
    "whole": (READ, 2),
    "empty": (0, 0),
    "gone": (READ + 1, 1),
    "all gone": (READ + 2, 0),
    "gone to where it was read": (READ, 2),
    "cut": None,
    "cut to nothing": None,
}
"""States of a partition: from where it is read on, and how many records come; None: it was cut."""


@pytest.mark.parametrize(("first", "second"), list(product(STATES, repeat=2)))
def test_a_partition_that_was_cut_is_noticed_whatever_is_beside_it(first: str, second: str) -> None:
    """And what left the log is passed over, whatever is beside it; of a partition that is whole all comes."""
    world = ReadWorld()
    states = {A: first, B: second}
    for partition, state in enumerate((first, second)):
        read_to_five(world, state, partition)
    world.ahead = ReadAhead(MemoryMessages(world.log), world.log)
    begins = {source: 0 if state == "empty" else READ for source, state in states.items()}
    free = dict.fromkeys(world.sources, 0) | begins
    world.ahead.add_sources(world.sources, free)

    came = sum(world.ahead.poll(0, 100) for _ in range(4))

    is_cut = any(STATES[state] is None for state in states.values())
    assert (world.ahead.out_of_range is not None) == is_cut
    if not is_cut:
        expected = [STATES[state] or (0, 0) for state in states.values()]
        assert came == sum(count for _, count in expected)
        world.ahead.plan_only([A, B])
        places = [TopicPartition("sentences", partition) for partition in range(2)]
        starts = dict(world.ahead.starts(places))
        assert starts == {
            place: at if at > READ else 0 for place, (at, _) in zip(places, expected, strict=True)
        }
        ends = dict(world.ahead.stable_ends(places))
        assert ends == {place: at + count for place, (at, count) in zip(places, expected, strict=True)}
