"""What a planning process announces, and when that is durable."""

from __future__ import annotations

import pytest

from acker.errors import Unreachable
from acker.identity import ACKER_BLOCK_BITS, acker_partition
from acker.kafka.port import Outgoing, Producer, TopicPartition
from acker.root_sets.root_set import RootSet
from acker.wire.codec import wire_codec
from acker.wire.events import Init, SourceRun, Tick
from spout.group.announce import Announcer
from spout.group.sources import SourceSpec, sources_of
from spout.planning.session import SessionName
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.planning import FlushesLeft

NAME = SessionName(1, "s")
FIRST, SECOND = 1 << 16, (1 << 16) + 1


class Flushes(NoFaults):
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def before(self, operation: str) -> None:
        self.count += operation == "flush"


class Producers(MemoryLog):
    """Notes which partitions each of its producers writes to."""

    def __init__(self, cluster: MemoryCluster, faults: NoFaults) -> None:
        super().__init__(cluster, faults)
        self.made: list[set[TopicPartition]] = []

    def producer(self) -> Producer:
        """Make one whose partitions are noted."""
        places: set[TopicPartition] = set()
        self.made.append(places)
        made = super().producer()
        send = made.send

        def noted(record: Outgoing) -> None:
            places.add(TopicPartition(record.topic, record.partition))
            send(record)

        made.send = noted  # type: ignore[method-assign]  # a producer of a test
        return made


@pytest.fixture
def world() -> KestrelWorld:
    return KestrelWorld()


@pytest.fixture
def specs(world: KestrelWorld) -> dict[int, SourceSpec]:
    return dict(sources_of(world.log, [world.topics.input("sentences")], tracked=True))


def inits(world: KestrelWorld) -> list[SourceRun]:
    """Return the runs that are durable, by acker partition."""
    reader = world.log.reader(committed=False)
    found: list[SourceRun] = []
    for number in range(world.topics.acker.partitions):
        reader.assign({TopicPartition("_ack_init", number): 0})
        events = [wire_codec().decode(record.value) for record in reader.poll(0)]
        found += [run for event in events if isinstance(event, Init) for run in event.runs]
    return found


def announcer_of(world: KestrelWorld, faults: NoFaults) -> Announcer:
    return Announcer(world.cluster.log(faults), world.topics.ack_topics, "g", world.topics.acker.partitions)


def test_inits_of_several_sources_are_waited_for_at_once(
    world: KestrelWorld, specs: dict[int, SourceSpec]
) -> None:
    """Nothing of them is durable before the end of `together`; outside of it each is at once."""
    flushes = Flushes()
    announcer = announcer_of(world, flushes)
    with announcer.together():
        for source in (FIRST, SECOND):
            announcer.send_init(NAME, 0, 0, RootSet.of_runs([SourceRun(source, 0, 5)]), specs)
        assert (flushes.count, inits(world)) == (0, [])
    assert flushes.count == 1
    assert sorted(inits(world)) == [SourceRun(FIRST, 0, 5), SourceRun(SECOND, 0, 5)]
    announcer.send_init(NAME, 0, 0, RootSet.of_runs([SourceRun(FIRST, 5, 6)]), specs)
    assert flushes.count == 2
    with announcer.together():
        pass
    assert flushes.count == 2


def test_a_run_is_cut_where_an_acker_block_ends_and_the_next_one_has_another_owner() -> None:
    block, n = 1 << ACKER_BLOCK_BITS, 3
    owners = [acker_partition(FIRST, number * block, n) for number in range(30)]
    changes = [number * block for number in range(1, 30) if owners[number - 1] != owners[number]]

    def cut(start: int, end: int) -> list[tuple[int, int, int]]:
        by_owner = RootSet.of_runs([(FIRST, start, end)]).by_acker_partition(n)
        parts = [(owner, run.start, run.end) for owner, roots in by_owner.items() for run in roots.runs()]
        return sorted(parts, key=lambda part: part[1])

    for edge in changes:
        before, after = owners[edge // block - 1], owners[edge // block]
        assert cut(edge - 5, edge - 1) == [(before, edge - 5, edge - 1)]
        assert cut(edge - 5, edge) == [(before, edge - 5, edge)]
        assert cut(edge - 1, edge + 1) == [(before, edge - 1, edge), (after, edge, edge + 1)]
        assert cut(edge, edge + 5) == [(after, edge, edge + 5)]
    ends = [*changes, 30 * block]
    assert cut(0, 30 * block) == [
        (owners[start // block], start, end) for start, end in zip([0, *changes], ends, strict=True)
    ]


def test_parts_of_one_source_stay_in_order_when_several_are_announced_together(
    world: KestrelWorld, specs: dict[int, SourceSpec]
) -> None:
    """A part is sent when the one before it is durable: what is initialised of a source is a prefix."""
    n = world.topics.acker.partitions
    block = next(
        b
        for b in range(100)
        if acker_partition(FIRST, b << ACKER_BLOCK_BITS, n)
        < acker_partition(FIRST, (b + 1) << ACKER_BLOCK_BITS, n)
    )
    middle = (block + 1) << ACKER_BLOCK_BITS
    announcer = announcer_of(world, NoFaults())
    with announcer.together():
        announcer.send_init(NAME, 0, 0, RootSet.of_runs([SourceRun(FIRST, middle - 5, middle + 5)]), specs)
        assert inits(world) == [SourceRun(FIRST, middle - 5, middle)]
    assert len(inits(world)) == 2


def test_the_parts_of_many_sources_are_waited_for_together_and_those_of_one_after_each_other(
    world: KestrelWorld, specs: dict[int, SourceSpec]
) -> None:
    """With some hundred sources, one after another took a second for each batch."""
    n = world.topics.acker.partitions
    blocks = {
        source: next(
            b
            for b in range(100)
            if acker_partition(source, b << ACKER_BLOCK_BITS, n)
            != acker_partition(source, (b + 1) << ACKER_BLOCK_BITS, n)
        )
        for source in (FIRST, SECOND)
    }
    middles = {source: (block + 1) << ACKER_BLOCK_BITS for source, block in blocks.items()}
    flushes = Flushes()
    announcer = announcer_of(world, flushes)
    runs = [SourceRun(source, middle - 5, middle + 5) for source, middle in middles.items()]
    with announcer.together():
        announcer.send_init(NAME, 0, 0, RootSet.of_runs(runs), specs)
        assert flushes.count == 1
        assert sorted(run.source for run in inits(world)) == [FIRST, SECOND]
    assert flushes.count == 2
    assert len(inits(world)) == 4


def test_many_acker_partitions_have_several_producers_and_each_partition_one_of_them(
    world: KestrelWorld,
) -> None:
    """A producer writes to one partition at a time, and what one partition gets stays in order."""
    n = 20
    cluster = MemoryCluster()
    for name in ("_ack_init", "_ack_ack"):
        cluster.create_topic(name, n)
    log = Producers(cluster, NoFaults())
    announcer = Announcer(log, world.topics.ack_topics, "g", n)
    assert len(log.made) == 3
    for now in range(5):
        announcer.send_tick(NAME, now, range(n))
    reader = cluster.log().reader(committed=False)
    for number in range(n):
        reader.assign({TopicPartition("_ack_init", number): 0})
        ticks = [wire_codec().decode(record.value) for record in reader.poll(0)]
        assert [tick.now for tick in ticks if isinstance(tick, Tick)] == list(range(5))
    assert all(len({place.partition % 3 for place in places}) == 1 for places in log.made)


def test_a_contribution_never_comes_before_an_init_that_is_announced_together_with_others(
    world: KestrelWorld, specs: dict[int, SourceSpec]
) -> None:
    """What left the log is told as absent by the same producer."""
    flushes = Flushes()
    announcer = announcer_of(world, flushes)
    with announcer.together():
        announcer.send_init(NAME, 0, 0, RootSet.of_runs([SourceRun(FIRST, 0, 5)]), specs)
        announcer.send_absent(NAME, "lane", 1, 0, RootSet.of_runs([SourceRun(FIRST, 0, 2)]))
    assert flushes.count == 2  # the init, and what is absent


def test_nothing_is_handed_out_before_its_init_is_durable() -> None:
    """The spout stops, and its clients have got nothing."""
    world = KestrelWorld()
    world.produce(2)
    faults = FlushesLeft()
    client = world.spout(faults=faults).client("a")
    assert not client.open(10)
    faults.left = 0
    with pytest.raises(Unreachable):
        world.run(1_000)
    assert not client.open(10)
