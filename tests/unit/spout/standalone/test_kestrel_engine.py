"""The threads of a spout: what is the case when one of them has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from acker.errors import SessionSuperseded
from spout.standalone.engine import Engine
from spout.standalone.queues import QueueCollection
from spout.standalone.service import SpoutService
from tests.support.worlds.kestrel_world import KestrelWorld


class Superseded:
    """A service whose group another session takes as soon as it plans."""

    is_ready = False
    durable = 0

    def __init__(self) -> None:
        self.queues = QueueCollection(list(KestrelWorld().topics.inputs.values()))

    def open(self, now_ms: int) -> None:
        """Begin."""

    def read(self, now_ms: int, wait_ms: int) -> bool:
        """Find that another session has the group."""
        raise SessionSuperseded("another session took group g")

    def publish(self) -> None:
        """Have nothing to publish."""

    def close(self) -> None:
        """Leave."""


def test_the_items_of_a_spout_that_an_error_stopped_are_late() -> None:
    """S163: nothing can be settled there any more, so a client that reconnects may hand them over."""
    service = Superseded()
    engine = Engine(lambda _: cast("SpoutService", cast("Any", service)))
    stores = [queue.store for queue in service.queues.by_name.values()]
    assert [store.is_closed for store in stores] == [False]
    with pytest.raises(SessionSuperseded):
        engine.start(5_000)
    assert [store.is_closed for store in stores] == [True]
    engine.stop()
