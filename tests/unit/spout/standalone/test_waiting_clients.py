"""How many records are kept ready for clients that wait: for as long as they wait, and however often."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import Message

from acker.config.topics import parse
from acker.identity import source_of
from spout.standalone.client import Client
from spout.standalone.queues import ClientLimits, QueueCollection
from spout.standalone.store import WINDOW_MS_MAX
from tests.support.worlds.kestrel_world import YAML

A = source_of(1, 0)
WAKES = 45
"""So often a client that waits is woken, and finds nothing."""


class Guard(AbstractContextManager["Guard"]):
    """A condition whose waits take time by the clock of a test, and let something happen."""

    def __init__(self, waits: Callable[[], None]) -> None:
        self._waits = waits

    def __exit__(self, *_error: object) -> None: ...

    def wait(self, _timeout_s: float) -> None:
        """Let something happen."""
        self._waits()

    def notify_all(self) -> None:
        """Wake nobody: all run in one thread."""


class Engine:
    """Stands for the engine of a spout: a clock that the test moves, and what happens in each wait."""

    def __init__(self) -> None:
        inputs = [parse(YAML, file="topics.yaml", environ={}).input("sentences")]
        self.queues = QueueCollection(inputs)
        self.queue = self.queues.queue("sentences")
        self.lock = nullcontext()
        self.guard = Guard(self._wait)
        self.is_usable = True
        self.is_publishing_idle = False
        self.now = 1_000
        self.wake_ms = 10
        self.waits = 0
        self.happens: Callable[[int], None] = lambda _number: None

    def _wait(self) -> None:
        self.now += self.wake_ms
        self.waits += 1
        self.happens(self.waits)

    def now_ms(self) -> int:
        """Return the time."""
        return self.now

    def check(self) -> None:
        """Go on."""

    def wake_planning(self) -> None:
        """Do nothing: the test plans."""

    def add_orphan(self, _client: str, _closed: Callable[[str], None]) -> None:
        """Forget it."""

    def client(self, name: str, max_open: int = 1_000) -> Client:
        """Make a client."""
        return Client(cast("Any", self), ClientLimits(name, max_open), lambda _name: None)

    def lacking(self) -> int:
        """Return how many more records are to be planned."""
        return self.queues.lacking_count_by_input(self.now).get("sentences", 0)

    def put(self, count: int, first: int = 0) -> None:
        """Let records be ready."""
        self.queues.put(A, [Message() for _ in range(count)], np.arange(first, first + count))


@pytest.mark.parametrize("wake_ms", [0, 10, WINDOW_MS_MAX // 2, WINDOW_MS_MAX, 3 * WINDOW_MS_MAX])
@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize(("count", "max_open", "expected"), [(10, 1_000, 10), (10, 4, 4), (1, 1_000, 1)])
def test_what_is_kept_ready_for_a_client_that_waits_does_not_grow(
    wake_ms: int, times: int, count: int, max_open: int, expected: int
) -> None:
    """What it requests now, and as many again as it requested just before; not so many with each look."""
    engine = Engine()
    client = engine.client("worker", max_open)
    engine.wake_ms = wake_ms
    lacking: set[int] = set()
    woken = [0]

    def happens(_number: int) -> None:
        lacking.add(engine.lacking())
        woken[0] += 1
        if woken[0] >= WAKES:
            engine.now += 10**9

    engine.happens = happens
    for _ in range(times):
        woken[0] = 0
        assert len(client.open(count, wait_ms=10**9)) == 0
        engine.now += 5  # the next one comes at once
    assert lacking <= {expected, 2 * expected}
    assert engine.queue.requested_count == 0
    engine.now += 2 * WINDOW_MS_MAX
    assert engine.lacking() == 0, "nobody waits any more"


def test_for_several_clients_that_wait_so_many_are_kept_ready_as_all_of_them_request() -> None:
    engine = Engine()
    first, second = engine.client("first"), engine.client("second")
    lacking: list[int] = []

    def both_wait(_number: int) -> None:
        lacking.append(engine.lacking())
        if len(lacking) >= WAKES:
            engine.now += 10**9

    def one_waits(_number: int) -> None:
        engine.happens = both_wait
        second.open(20, wait_ms=10**9)

    engine.happens = one_waits
    assert len(first.open(10, wait_ms=10**9)) == 0
    assert set(lacking) == {10 + 20 + 20}
    assert engine.queue.requested_count == 0


@pytest.mark.parametrize("at", [1, 2, WAKES])
def test_a_client_that_waited_gets_what_comes_and_the_next_one_begins_anew(at: int) -> None:
    """Twice: what the first wait left behind would be kept ready by the second."""
    engine = Engine()
    client = engine.client("worker")
    for turn in range(3):
        lacking: list[int] = []

        def happens(_number: int, turn: int = turn, lacking: list[int] = lacking) -> None:
            lacking.append(engine.lacking())
            if len(lacking) == at:
                engine.put(10, first=10 * turn)

        engine.happens = happens
        items = client.open(10, wait_ms=10**9)
        assert len(items) == 10
        assert engine.queue.requested_count == 0
        assert max(lacking) <= 10 + 10 * (turn + 1), "requested now, and as many as were opened before"
        assert engine.queue.store.waiting_count == 0


@pytest.mark.parametrize("pause_ms", [0, WINDOW_MS_MAX // 2, WINDOW_MS_MAX, 3 * WINDOW_MS_MAX])
@pytest.mark.parametrize(("max_open", "expected"), [(1_000, 500), (200, 200)])
def test_a_client_that_once_got_less_than_it_requested_gets_as_much_as_there_is_later(
    pause_ms: int, max_open: int, expected: int
) -> None:
    """A client works on what it got, and requests more; by then a backlog has come.

    It once was given as many as the time before, 3 of 500, at each call.
    """
    engine = Engine()
    client = engine.client("worker", max_open)
    engine.put(3)
    got = [len(first := client.open(500))]
    client.confirm(first)
    planned = 3

    for _ in range(2):
        engine.now += 5
        planned += (more := engine.lacking())
        if more:  # the log has more than anybody requests
            engine.put(more, planned - more)
        engine.now += pause_ms
        got.append(len(items := client.open(500)))
        client.confirm(items)

    assert got == [3, expected, expected]
