"""Views of acker partitions: a reader that lives on sees what a new one sees, and reads each verdict once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acker.kafka.port import Record
from acker.service import view
from acker.service.view import ViewReader
from spout.planning.journal import BEGINNING, Journal
from tests.support.memory.clients import MemoryReader
from tests.support.memory.cluster import MemoryCluster, MemoryLog, NoFaults
from tests.support.worlds.planning import World, batch, yaml_of

Open = list[tuple[int, int, tuple[int, ...]]]


class CountedReader(MemoryReader):
    """Notes from which topics it got records."""

    def __init__(self, cluster: MemoryCluster, topics: list[str], *, committed: bool) -> None:
        super().__init__(cluster, NoFaults(), committed=committed)
        self._topics = topics

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        found = super().poll(timeout_ms, max_records)
        self._topics += [record.topic for record in found]
        return found


class CountedLog(MemoryLog):
    """Notes from which topics its readers got records."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster, NoFaults())
        self._cluster = cluster
        self.read: list[str] = []

    def reader(self, *, committed: bool, patient: bool = False) -> CountedReader:
        return CountedReader(self._cluster, self.read, committed=committed)


def reader_of(world: World, log: CountedLog | None = None) -> ViewReader:
    acker = world.topics.acker
    return ViewReader(log or world.cluster.log(), acker.topics, acker.partitions, acker.limits)


def open_in(reader: ViewReader) -> Open:
    """Return what is open in all acker partitions."""
    views = [view for number in range(3) if (view := reader.view(number)) is not None]
    return [
        (open_range.source, open_range.start, tuple(int(index) for index in open_range.at))
        for view in views
        for open_range in view.open_ranges()
    ]


def batches(world: World, numbers: range, start: Journal) -> Journal:
    """Let batches of ten records go through, the first record of each but the last one in order left open."""
    [planner] = world.planners
    for number in numbers:
        world.produce(10)
        world.run(300)
        end = batch(planner, start, world)
        world.publish(start, end, skip=(10 * number,), fail=(10 * number + 4,))
        world.run(300)
        start = end
    return start


@pytest.fixture
def world() -> World:
    world = World(yaml_of(timeout="1h"))
    world.ready()
    return world


def test_a_reader_that_lives_on_sees_what_a_new_one_sees(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, forgetful = reader_of(world), reader_of(world)
    end = BEGINNING
    for number in range(8):
        end = batches(world, range(number, number + 1), end)
        found = open_in(reader_of(world))
        assert sum(len(at) for _, _, at in found) == number + 1
        assert open_in(living) == found
        monkeypatch.setattr(view, "RUNS_MAX", 1)
        assert open_in(forgetful) == found
        monkeypatch.undo()
    world.kill_acker()
    world.start_acker()
    world.run(2_000)
    assert open_in(living) == open_in(reader_of(world))


def test_a_root_that_is_open_for_long_lets_no_verdict_be_read_twice(world: World) -> None:
    log = CountedLog(world.cluster)
    reader = reader_of(world, log)
    end = batches(world, range(5), BEGINNING)
    open_in(reader)
    assert log.read.count("_ack_verdict") > 1
    log.read.clear()
    open_in(reader)
    assert log.read.count("_ack_verdict") == 0
    batches(world, range(5, 6), end)
    open_in(reader)
    assert 1 <= log.read.count("_ack_verdict") <= 2
