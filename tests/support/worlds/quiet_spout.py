"""A spout with its threads, whose service has its group and nothing to do."""

from __future__ import annotations

from typing import Any, cast

from spout.planning_process.status import PlannerStatus
from spout.standalone.engine import Engine
from spout.standalone.queues import QueueCollection
from spout.standalone.service import SpoutService
from tests.support.worlds.kestrel_world import KestrelWorld


class Quiet:
    """A service that has its group, and nothing to read or to publish."""

    is_ready = True
    durable = 0

    def __init__(self) -> None:
        self.queues = QueueCollection(list(KestrelWorld().topics.inputs.values()))
        self.is_closed = False

    def open(self, now_ms: int) -> None:
        """Begin."""

    def read(self, now_ms: int, wait_ms: int) -> bool:
        """Read nothing."""
        return False

    def step(self, now_ms: int) -> bool:
        """Plan nothing."""
        return False

    def publish(self) -> None:
        """Have nothing to publish."""

    def status(self, now_ms: int) -> PlannerStatus:
        """Say that it runs."""
        return PlannerStatus("running", "g")

    def close(self) -> None:
        """Leave."""
        self.is_closed = True


def engine_of(service: Quiet) -> Engine:
    """Return an engine that runs a service."""
    return Engine(lambda _: cast("SpoutService", cast("Any", service)))
