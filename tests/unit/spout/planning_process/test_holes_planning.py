"""Positions without a record in planning: a limit counts records, and a hole is passed in one look."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from acker.errors import Unreachable
from acker.identity import source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.events import SourceRun
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.supply import HOLE_MIN
from spout.planning_process.planner import Planner
from tests.support.holes import Aborted, Each, Records, Stretch, write_stretches
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.planning import WALL_MS, YAML, FlushesLeft, World, batch, positions

A, B = source_of(1, 0), source_of(1, 1)
REPLAY = source_of(1, 0, replay=True)
FIRST, SECOND = TopicPartition("sentences", 0), TopicPartition("sentences", 1)
BATCHES_MAX = 200


def empty_parts(world: World, runs: tuple[SourceRun, ...]) -> tuple[list[SourceRun], int]:
    """Return what of a batch's ranges holds no record, as its read tasks find out, and how many do."""
    empty: list[SourceRun] = []
    records = 0
    for source, start, end in runs:
        topic = "sentences.g.replay" if source == REPLAY else "sentences"
        log = world.cluster.partition(TopicPartition(topic, source & 0xFFFF))
        there = {record.offset for record in log.read(start, end - start, committed=True)[0]}
        records += len(there & set(range(start, end)))
        empty += [SourceRun(source, at, at + 1) for at in range(start, end) if at not in there]
    return empty, records


def run_to_the_end(
    world: World, planner: Planner, limit: int | None, start: Journal = BEGINNING
) -> list[int]:
    """Plan and publish until nothing is left; return how many records each batch had."""
    sizes: list[int] = []
    for _ in range(BATCHES_MAX):
        end = batch(planner, start, world, limit)
        if end == start:
            if planner.is_drained():
                return sizes
            world.run(100)
            continue
        empty, records = empty_parts(world, batch_ranges(start, end))
        sizes.append(records)
        world.publish(start, end, absent=empty)
        world.run(300)
        start = end
    raise TimeoutError(f"not at the end after {BATCHES_MAX} plannings: {sizes}")


def settled(world: World) -> Counter[str]:
    """Count positions by their verdict; each has one."""
    counts, seen = Counter[str](), set[tuple[int, int]]()
    for verdicts in world.verdicts():
        for name, runs in (("ACKED", verdicts.acked), ("ABSENT", verdicts.absent)):
            for source, start, end in runs:
                own = {(source, position) for position in range(start, end)}
                assert not own & seen
                seen |= own
                counts[name] += len(own)
        counts["LOST"] += sum(len(lost.positions) // 8 for lost in verdicts.lost)
    return counts


LAYOUTS: dict[str, list[Stretch]] = {
    "none": [Records(50)],
    "a hole at the start": [Aborted(500), Records(50)],
    "a hole at the end": [Records(50), Aborted(500)],
    "a hole between": [Records(25), Aborted(500), Records(25)],
    "two holes": [Aborted(500), Records(20), Aborted(500), Records(30)],
    "holes one after the other": [Records(1), Aborted(500), Aborted(500), Aborted(300), Records(49)],
    "a marker behind each record": [Each(50)],
    "holes and markers": [Each(10), Aborted(500), Each(10), Records(20), Aborted(20), Each(10)],
    "nothing else": [Aborted(500)],
    "across the blocks of ackers": [Records(3), Aborted(140_000), Records(47)],
}


@pytest.mark.sample(7)
@pytest.mark.parametrize("limit", [1, 10, 1_000])
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hole_min", [100, HOLE_MIN])
def test_a_limit_counts_records_whatever_lies_between_them(
    hole_min: int, layout: str, tracked: bool, limit: int
) -> None:
    """O501, O502: before, each position counted, and a hole took as many batches as it had limits."""
    world = World()
    records = write_stretches(world.log, FIRST, LAYOUTS[layout])
    planner = world.ready(tracked=tracked, hole_min=hole_min)
    sizes = run_to_the_end(world, planner, limit)
    end = world.log.ends([FIRST])[FIRST]
    holes = sum(isinstance(stretch, Aborted) for stretch in LAYOUTS[layout])
    assert sum(sizes) == records
    assert max(sizes) <= limit
    assert len(sizes) <= -(-records // limit) + holes + 1
    world.run(4_000)
    assert world.committed() == end
    status = planner.status(world.now_ms)
    assert (status.pending, status.emitted) == (0, end)
    if tracked:
        assert settled(world) == Counter(ACKED=records, ABSENT=end - records)


def test_the_first_batch_is_behind_the_hole() -> None:
    """O501: one look, and no batch for it."""
    world = World()
    write_stretches(world.log, FIRST, [Aborted(50_000), Records(100)])
    planner = world.ready()
    end = batch(planner, BEGINNING, world, 1_000)
    assert positions(BEGINNING, end) == [(A, 50_001, 50_101)]
    assert end.sources[A].next == 50_101
    assert [run for init in world.inits() for run in init.runs if run.start == 0] != []
    world.run(1_000)
    assert [run for verdicts in world.verdicts() for run in verdicts.absent] == [SourceRun(A, 0, 50_001)]


def test_a_partition_that_is_all_hole_leaves_its_share_to_the_others() -> None:
    """O503: before, the other one got half of each batch."""
    world = World()
    write_stretches(world.log, FIRST, [Aborted(300)])
    write_stretches(world.log, SECOND, [Records(300)])
    planner = world.ready()
    end = batch(planner, BEGINNING, world, 100)
    assert empty_parts(world, end.ranges)[1] == 100


def test_a_partition_with_fewer_records_than_positions_leaves_the_rest_to_the_others() -> None:
    world = World()
    write_stretches(world.log, FIRST, [Each(30)])
    write_stretches(world.log, SECOND, [Records(300)])
    end = batch(world.ready(), BEGINNING, world, 100)
    assert empty_parts(world, end.ranges)[1] == 100


def test_copies_count_and_the_markers_between_them_do_not() -> None:
    """O502: a replay worker writes in transactions, so each second position of its topic may be empty."""
    world = World()
    write_stretches(world.log, TopicPartition("sentences.g.replay", 0), [Aborted(200), Each(40)])
    end = batch(world.ready(), BEGINNING, world, 30)
    assert empty_parts(world, end.ranges)[1] == 30


def test_a_compacted_topic_fills_its_batches() -> None:
    """Every second record is gone."""
    cluster = MemoryCluster(WALL_MS)
    whole = World()
    for name in whole.topics.ack_topics.names():
        cluster.create_topic(name, 3)
    cluster.create_topic("sentences", 2, compacted=True)
    for name in ("sentences.g.replay", "sentences.g.dlq"):
        cluster.create_topic(name, 2)
    world = World(cluster=cluster)
    for number in range(100):
        world.produce(1, keys=(b"kept %d" % number,))
        world.produce(1, keys=(b"the same",))
    cluster.compact("sentences")
    assert run_to_the_end(world, world.ready(), 30) == [30, 30, 30, 11]


def test_what_is_empty_takes_none_of_what_may_be_pending() -> None:
    """O504: with `max_spout_pending` 10 and a marker behind each record a batch had five."""
    world = World(YAML.replace("200000", "10"))
    write_stretches(world.log, FIRST, [Each(30)])
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    empty, records = empty_parts(world, first.ranges)
    assert records == 10
    assert batch(planner, first, world) is first
    world.publish(BEGINNING, first, absent=empty, skip=(0, 2))
    world.run(500)
    second = batch(planner, first, world)
    assert empty_parts(world, batch_ranges(first, second))[1] == 8


def test_a_hole_that_has_no_verdict_yet_takes_none_of_it_either() -> None:
    """O504."""
    world = World(YAML.replace("200000", "1000"))
    write_stretches(world.log, FIRST, [Aborted(20_000), Records(50)])
    planner = world.ready()
    first = batch(planner, BEGINNING, world, 10)
    assert planner.status(world.now_ms).pending == 20_011
    assert positions(first, batch(planner, first, world, 10)) == [(A, 20_011, 20_021)]


def test_a_topic_that_is_empty_to_its_end_is_passed() -> None:
    """Else a query that shall end would not."""
    world = World()
    write_stretches(world.log, FIRST, [Aborted(20_000)])
    end = batch(world.ready(), BEGINNING, world, 10)
    assert (end.ranges, end.sources[A].next) == ((), 20_001)


def test_a_hole_longer_than_may_be_open_is_passed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is settled before the next one is initialised."""
    monkeypatch.setattr("spout.planning_process.choosing.HOLE_POSITIONS_MAX", 15_000)
    world = World()
    write_stretches(world.log, FIRST, [Aborted(40_000), Records(10)])
    planner = world.ready()
    first = batch(planner, BEGINNING, world, 100)
    assert (positions(BEGINNING, first), first.sources[A].next) == ([], 15_000)
    assert batch(planner, first, world, 100) is first, "there is no verdict yet"
    world.run(500)
    second = batch(planner, first, world, 100)
    assert second.sources[A].next == 30_000
    world.run(500)
    assert positions(second, batch(planner, second, world, 100)) == [(A, 40_001, 40_011)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("flushes", range(6))
def test_a_crash_while_a_hole_is_passed_leaves_nothing_open_and_nothing_twice(flushes: int) -> None:
    """O505: between the parts of its Init, and before its positions are reported as absent."""
    world = World()
    write_stretches(world.log, FIRST, [Records(5), Aborted(200_000), Records(20)])
    faults = FlushesLeft()
    planner = world.ready(faults=faults)
    first = batch(planner, BEGINNING, world, 3)
    world.publish(BEGINNING, first)
    world.run(300)
    faults.left = flushes
    end = first
    with suppress(Unreachable):
        end = batch(planner, first, world, 100)
    assert (end == first) == (flushes < 3), "two parts, and what is absent"
    world.kill(planner)
    again = world.ready(end)
    if end != first:
        world.publish(first, end)
        world.run(300)
    rest = run_to_the_end(world, again, 100, end)
    assert sum(rest) == (22 if end == first else 0)
    assert len(rest) <= 3
    world.run(4_000)
    assert settled(world) == Counter(ACKED=25, ABSENT=200_001)
    assert world.committed() == 200_026


@pytest.mark.parametrize("hole_min", [100, HOLE_MIN])
def test_a_session_that_follows_replays_no_position_of_a_hole_that_was_open(hole_min: int) -> None:
    """The one before died when a hole was initialised, and not reported as absent yet."""
    world = World()
    world.start_replays()
    write_stretches(world.log, FIRST, [Aborted(500), Records(20)])
    faults = FlushesLeft()
    planner = world.ready(faults=faults, hole_min=hole_min)
    faults.left = 1
    with suppress(Unreachable):
        batch(planner, BEGINNING, world, 10)
    world.kill(planner)
    world.run(1_000)
    assert sum(run_to_the_end(world, world.ready(), 10)) == 20
    assert world.log.ends([TopicPartition("sentences.g.dlq", 0)])[TopicPartition("sentences.g.dlq", 0)] == 0


def test_a_hole_at_the_end_is_journalled_so_that_a_restart_need_not_look_for_it() -> None:
    world = World()
    write_stretches(world.log, FIRST, [Records(10), Aborted(20_000)])
    planner = world.ready()
    first = batch(planner, BEGINNING, world, 10)
    world.publish(BEGINNING, first)
    world.run(300)
    second = first if first.sources[A].next > 10 else batch(planner, first, world, 10)
    assert second.sources[A].next == 20_011
    world.run(300)
    world.kill(planner)
    again = world.ready(second)
    assert batch(again, second, world, 10) == second
    assert again.is_drained()


class NoLooks(NoFaults):
    """Refuses to read records, as where a right is missing; ends are told."""

    def __init__(self) -> None:
        self.is_over = False

    def before(self, operation: str) -> None:
        if self.is_over and operation == "poll":
            raise Unreachable("nothing is sent")


def test_where_nothing_can_be_seen_positions_are_planned_one_for_one() -> None:
    """O506: a look is no condition; the read task says what is wrong."""
    world = World()
    write_stretches(world.log, FIRST, [Aborted(500), Records(20)])
    faults = NoLooks()
    planner = world.ready(faults=faults)
    faults.is_over = True
    assert positions(BEGINNING, batch(planner, BEGINNING, world, 10)) == [(A, 0, 10)]


def test_what_left_the_log_takes_no_part_of_a_batch() -> None:
    """`on_data_loss: skip`: 500 records went, and each batch of 10 began with ten of them."""
    world = World(YAML + "    on_data_loss: skip\n")
    world.produce(530)
    planner = world.ready()
    first = batch(planner, BEGINNING, world, 10)
    world.publish(BEGINNING, first)
    world.run(300)
    world.log.delete_before({FIRST: 510})
    second = batch(planner, first, world, 10)
    assert positions(first, second) == [(A, 510, 520)]
    world.publish(first, second)
    world.run(1_000)
    status = planner.status(world.now_ms)
    assert (status.lost_from_log, status.absent, status.pending) == (500, 500, 0)


def test_a_query_that_ends_reads_holes_up_to_the_ends_that_there_were() -> None:
    """`availableNow`."""
    world = World()
    records = write_stretches(world.log, FIRST, [Records(10), Aborted(20_000)])
    planner = world.ready(stops_at_ends=True)
    write_stretches(world.log, FIRST, [Aborted(20_000), Records(10)])
    assert sum(run_to_the_end(world, planner, 5)) == records
    assert planner.first_uninitialised_positions()[A] == 20_011


def test_a_batch_without_a_limit_is_planned_without_a_look() -> None:
    """Nothing that an ordinary topic has costs a fetch."""
    world = World()
    world.produce(1_000)
    made: list[str] = []

    class Counts(NoFaults):
        def before(self, operation: str) -> None:
            made.append(operation)

    planner = world.ready(faults=Counts())
    made.clear()
    assert positions(BEGINNING, batch(planner, BEGINNING, world)) == [(A, 0, 1_000)]
    assert "poll" not in made


# -- copies and new records


def with_copies(copies: int, new: int, pending: int = 200_000) -> World:
    """Return a world with so many copies and new records."""
    world = World(YAML.replace("200000", str(pending)))
    producer = world.log.producer()
    for number in range(copies):
        producer.send(Outgoing("sentences.g.replay", 0, b"%d" % number))
    producer.flush(0)
    world.produce(new)
    return world


def kinds(end: Journal, start: Journal = BEGINNING) -> tuple[int, int]:
    """Return how many copies and how many new records a batch has."""
    counts = Counter[bool]()
    for source, first, stop in batch_ranges(start, end):
        counts[source == REPLAY] += stop - first
    return counts[True], counts[False]


@pytest.mark.parametrize(("limit", "pending"), [(20, 200_000), (None, 20)])
def test_a_quarter_of_a_batch_stays_for_new_records(limit: int | None, pending: int) -> None:
    """O507: copies took the whole of it, be it the batch's limit or what may be pending that is reached."""
    world = with_copies(200, 500, pending)
    assert kinds(batch(world.ready(), BEGINNING, world, limit)) == (15, 5)


@pytest.mark.parametrize(
    ("copies", "new", "expected"), [(200, 0, (20, 0)), (200, 2, (18, 2)), (3, 500, (3, 17))]
)
def test_what_one_kind_does_not_need_the_other_gets(copies: int, new: int, expected: tuple[int, int]) -> None:
    """O507, O508: new records have all that copies leave."""
    world = with_copies(copies, new)
    assert kinds(batch(world.ready(), BEGINNING, world, 20)) == expected


@pytest.mark.parametrize(("limit", "expected"), [(1, (9, 3)), (2, (18, 6)), (3, (27, 9)), (5, (45, 15))])
def test_in_the_long_run_new_records_have_a_quarter_of_the_smallest_batches(
    limit: int, expected: tuple[int, int]
) -> None:
    """O507, O508: neither of them waits for ever, also where a batch has one record."""
    world = with_copies(200, 500)
    planner, start, total = world.ready(), BEGINNING, Counter[str]()
    for _ in range(12):
        end = batch(planner, start, world, limit)
        copies, new = kinds(end, start)
        total.update(copies=copies, new=new)
        world.publish(start, end)
        world.run(300)
        start = end
    assert (total["copies"], total["new"]) == expected
