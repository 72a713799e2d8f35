"""What an acker waits for, and how often it asks: an installation idles most of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from acker.config.limits import AckerLimits
from acker.kafka.port import Record, TopicPartition
from acker.service.service import AckerService
from tests.support.memory.clients import MemoryReader
from tests.support.memory.cluster import MemoryCluster, MemoryLog, NoFaults
from tests.support.worlds.acker_world import TOPICS, World, edge

LIMITS = AckerLimits(poll_ms=50, pace_ms=0, put_off_ms=0)


class NotedReader(MemoryReader):
    """Notes for how long it is polled, and which topics it reads then."""

    def __init__(self, cluster: MemoryCluster, waits: list[tuple[str, int]]) -> None:
        """Note in `waits`."""
        super().__init__(cluster, NoFaults(), committed=False)
        self._waits = waits
        self._topics: frozenset[str] = frozenset()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self._topics = frozenset(place.topic for place in positions)
        super().assign(positions)

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        """Note a wait."""
        if timeout_ms:
            self._waits.append(("acks" if TOPICS.ack in self._topics else "inits", timeout_ms))
        return super().poll(timeout_ms, max_records)


class NotedLog(MemoryLog):
    """Notes the waits of its readers, and how often it is asked for ends."""

    def __init__(self, cluster: MemoryCluster) -> None:
        """Look at a cluster."""
        super().__init__(cluster, self)
        self._cluster = cluster
        self.waits: list[tuple[str, int]] = []
        self.calls: list[str] = []

    def reader(self, *, committed: bool, patient: bool = False) -> NotedReader:
        """Make a reader."""
        return NotedReader(self._cluster, self.waits)

    def before(self, operation: str) -> None:
        """Note a call."""
        self.calls.append(operation)

    def after(self, operation: str) -> None:
        """Do nothing."""


@pytest.fixture
def world() -> World:
    """Four acker partitions whose owner notes what it waits for."""
    world = World(partitions=4, limits=LIMITS)
    world.acker._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
    world.acker = AckerService(
        NotedLog(world.cluster), TOPICS, 4, group="windhover-acker", limits=LIMITS, report=world.events.append
    )
    world.settle()
    return world


def waits_of(world: World) -> list[tuple[str, int]]:
    """Return what the next step waits for."""
    log = world.acker._log
    assert isinstance(log, NotedLog)
    log.waits.clear()
    world.step()
    return list(log.waits)


def test_while_no_root_is_open_it_waits_longer_and_for_inits(world: World) -> None:
    assert waits_of(world) == [("inits", LIMITS.quiet_ms)]
    assert LIMITS.quiet_ms > LIMITS.poll_ms


def test_while_a_root_is_open_it_waits_for_contributions(world: World) -> None:
    writer = world.session()
    writer.take()
    writer.init((0, 2))
    world.settle()
    assert waits_of(world) == [("acks", LIMITS.poll_ms)]
    writer.acks(values=[(0, edge(0)), (1, edge(1))])
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED"}
    assert waits_of(world) == [("inits", LIMITS.quiet_ms)]


def test_contributions_that_come_one_after_the_other_do_not_wait_for_inits(world: World) -> None:
    """They are of roots that are settled already; to drop a million of them one by one would take days."""
    writer = world.session()
    writer.take()
    world.settle()
    writer.acks(values=[(0, edge(0))])
    world.step()
    assert waits_of(world) == [("acks", LIMITS.poll_ms)]


def test_the_ends_of_all_partitions_are_asked_for_at_once(world: World) -> None:
    writer = world.session()
    writer.take()
    log = world.acker._log
    assert isinstance(log, NotedLog)
    log.calls.clear()
    world.step()
    assert log.calls.count("ends") == 1
    world.settle()
    assert [len(world.taken(partition)) for partition in range(4)] == [1, 1, 1, 1]
