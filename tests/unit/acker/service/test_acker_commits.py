"""Several partitions of one acker commit side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from acker.config.limits import AckerLimits
from acker.errors import LogError
from acker.kafka.port import UnderWay
from acker.ledger.output import AckerEventKind
from tests.support.memory.clients import MemoryCall
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.acker_world import World

T = TypeVar("T")


class Noting(MemoryLog):
    """Notes how many calls are begun before somebody waits; lets the first commit of all fail if told."""

    def __init__(self, world: World, error: LogError | None = None) -> None:
        """Look at a world's cluster."""
        super().__init__(world.cluster, self)
        self.begun = 0
        self.sizes: list[int] = []
        self.error = error

    def before(self, operation: str) -> None:
        """Raise the error at the first commit."""
        error, self.error = (self.error, None) if operation == "commit" else (None, self.error)
        if error is not None:
            raise error

    def after(self, _operation: str) -> None:
        """Do nothing."""

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        """Begin a call."""
        self.begun += 1
        return NotedCall(self, call)


class NotedCall(MemoryCall[T]):
    """Notes at the first wait how many calls were begun since the one before."""

    def __init__(self, log: Noting, call: Callable[[], T]) -> None:
        """Begin the call."""
        self._log = log
        super().__init__(call)

    def is_over(self, wait_ms: int = 0) -> bool:
        """Note what was begun by now."""
        if wait_ms and self._log.begun:
            self._log.sizes.append(self._log.begun)
            self._log.begun = 0
        return super().is_over(wait_ms)


def world_of(partitions: int, commits_at_once: int) -> World:
    """Make a world whose acker commits so many partitions at once."""
    limits = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, commits_at_once=commits_at_once)
    return World(partitions=partitions, limits=limits)


def test_so_many_partitions_commit_side_by_side_as_the_limit_says() -> None:
    world = world_of(5, 2)
    log = Noting(world)
    world.crash(log=log)
    world.settle()  # it owns all of them now
    log.sizes.clear()
    world.session().take()
    world.settle()
    assert log.sizes == [2, 2, 1]
    assert [len(world.taken(partition)) for partition in range(5)] == [1] * 5


def test_what_has_committed_is_told_before_the_error_of_another_partition_ends_the_acker() -> None:
    world = world_of(3, 16)
    world.crash(log=Noting(world, LogError("drawn")))
    world.settle()
    world.session().take()
    with pytest.raises(LogError, match="drawn"):
        world.settle()
    assert [event.partition for event in world.events if event.kind is AckerEventKind.TAKEN] == [1, 2]
    assert [len(world.taken(partition)) for partition in range(3)] == [0, 1, 1]


def test_what_steps_have_put_off_is_committed_side_by_side_at_the_end() -> None:
    world = World(partitions=3, limits=AckerLimits(poll_ms=0, pace_ms=0))
    log = Noting(world)
    world.crash(log=log)
    writer = world.session()
    writer.take()
    world.settle()
    writer.tick(1)
    world.settle()
    log.sizes.clear()
    world.acker.close()
    assert log.sizes == [3]
