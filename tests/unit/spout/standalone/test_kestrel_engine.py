"""The threads of a spout: when they wake up, and what is the case when one of them has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from acker.errors import LogError, SessionSuperseded, Unreachable, UsageError
from spout.standalone import client as clients
from spout.standalone import engine as engines
from spout.standalone.client import Client
from spout.standalone.queues import ClientLimits
from spout.standalone.service import SpoutService
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.kestrel_world import KestrelWorld, MemoryMessages
from tests.support.worlds.planning import STEP_MS
from tests.support.worlds.quiet_spout import Quiet, engine_of

WAIT_S = 10.0


class Superseded(Quiet):
    """A service whose group another session takes as soon as it plans."""

    is_ready = False

    def read(self, now_ms: int, wait_ms: int) -> bool:
        """Find that another session has the group."""
        raise SessionSuperseded("another session took group g")


class Steps(Quiet):
    """A service whose steps a test lets go on, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def step(self, now_ms: int) -> bool:
        """Wait until the test has done what comes meanwhile."""
        self.begun.release()
        self.goes_on.acquire(timeout=WAIT_S)
        return False


class Hanging(Quiet):
    """A service whose publication ends when the test says so, and with an error if it has one."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.begun, self.ends, self.error = threading.Event(), threading.Event(), error

    def publish(self) -> None:
        """Wait for the broker."""
        self.begun.set()
        self.ends.wait(WAIT_S)
        if self.error is not None:
            raise self.error


class Uncommitted(Hanging):
    """A service that fails to publish, and whose last commit is refused."""

    def close(self) -> None:
        """Fail to commit."""
        raise LogError("the commit was refused")


def frames(error: BaseException) -> Iterator[object]:
    """Yield the frames of an error's trace."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def test_a_request_during_a_step_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits then who could be woken up, so the request must be remembered."""
    monkeypatch.setattr(engines, "IDLE_MS", 1_000 * WAIT_S)
    service = Steps()
    engine = engine_of(service)
    engine.start(5_000)
    try:
        assert service.begun.acquire(timeout=WAIT_S)
        with engine.guard:
            engine.wake_planning()
        service.goes_on.release()
        assert service.begun.acquire(timeout=WAIT_S / 2)
    finally:
        service.goes_on.release(10)
        engine.stop()


def test_a_spout_that_cannot_publish_in_time_does_not_close_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "CLOSE_MS", 50)
    service = Hanging()
    engine = engine_of(service)
    engine.start(5_000)
    with pytest.raises(Unreachable, match=r"not durable after .* next session .* look at the broker"):
        engine.stop()
    assert not service.is_closed
    service.ends.set()
    monkeypatch.setattr(engines, "CLOSE_MS", 1_000 * WAIT_S)
    engine.stop()
    assert service.is_closed


def test_to_close_raises_an_error_that_no_call_has_raised() -> None:
    """What was confirmed without waiting, and is not durable, would be lost in silence."""
    service = Hanging(Unreachable("no broker"))
    engine = engine_of(service)
    engine.start(5_000)
    assert service.begun.wait(WAIT_S)
    service.ends.set()
    with pytest.raises(Unreachable, match="no broker"):
        engine.stop()
    assert service.is_closed
    engine.stop()


def test_a_last_commit_that_fails_does_not_hide_what_stopped_the_spout() -> None:
    service = Uncommitted(Unreachable("what was settled is not durable"))
    engine = engine_of(service)
    engine.start(5_000)
    assert service.begun.wait(WAIT_S)
    service.ends.set()
    with pytest.raises(Unreachable, match="what was settled is not durable"):
        engine.stop()
    with pytest.raises(LogError, match="the commit was refused"):
        engine.stop()


def test_a_status_says_that_a_spout_was_stopped_and_why() -> None:
    engine = engine_of(service := Superseded())
    with pytest.raises(SessionSuperseded):
        engine.start(5_000)
    group = engine.status().group
    assert (group.state, group.error) == ("failed", "another session took group g")
    engine.stop()
    assert service.is_closed
    quiet = engine_of(Quiet())
    quiet.start(5_000)
    quiet.stop()
    assert (quiet.status().group.state, quiet.status().group.error) == ("closed", "")


def test_the_trace_of_an_error_does_not_grow_with_each_call_that_raises_it() -> None:
    """A client that calls again and again would fill the memory with the frames of its calls."""
    engine = engine_of(Superseded())
    with pytest.raises(SessionSuperseded) as first:
        engine.start(5_000)
    client = Client(engine, ClientLimits("a", 1), lambda _: None)
    for _ in range(100):
        with pytest.raises(SessionSuperseded):
            client.open(1)
    assert len(list(frames(first.value))) < 20


def test_a_spout_that_was_closed_says_so() -> None:
    """It cannot be opened again, so that is no cure."""
    engine = engine_of(Quiet())
    with pytest.raises(UsageError, match=r"not open; open\(\) it"):
        engine.check()
    engine.start(5_000)
    engine.stop()
    with pytest.raises(UsageError, match="closed; make another one"):
        engine.check()


def test_the_items_of_a_spout_that_an_error_stopped_are_late() -> None:
    """S163: nothing can be settled there any more, so a client that reconnects may hand them over."""
    service = Superseded()
    engine = engine_of(service)
    stores = [queue.store for queue in service.queues.by_name.values()]
    assert [store.is_closed for store in stores] == [False]
    with pytest.raises(SessionSuperseded):
        engine.start(5_000)
    assert [store.is_closed for store in stores] == [True]
    engine.stop()


class RefusesAtLast(NoFaults):
    """Lets every write succeed until `is_over`."""

    is_over = False

    def before(self, operation: str) -> None:
        """Refuse a write."""
        if self.is_over and operation == "flush":
            raise LogError("the topic was deleted")


def test_a_service_that_cannot_say_that_it_leaves_closes_all_that_it_has_open() -> None:
    world, faults, logs = KestrelWorld(), RefusesAtLast(), list[MemoryLog]()

    def log() -> MemoryLog:
        logs.append(world.cluster.log(faults))
        return logs[-1]

    inputs = list(world.topics.inputs.values())
    service = SpoutService(
        log,
        lambda: MemoryMessages(log()),
        world.topics,
        inputs,
        threading.Condition(),
        new_id="s",
        report=lambda *_: None,
    )
    service.open(world.now_ms)
    while not service.is_ready:
        world.run(STEP_MS)
        service.step(world.now_ms)
    assert [len(each.open_readers) for each in logs] == [1, 1, 1]
    faults.is_over = True
    with pytest.raises(LogError):
        service.close()
    assert [len(each.open_readers) for each in logs] == [0, 0, 0]


class Untaken(Quiet):
    """A service whose group is not taken, since an acker partition is silent."""

    is_ready = False

    def waits_for(self) -> str:
        """Name it."""
        return "acker partition 2 to answer; where no acker runs, start one with `windhover acker run`"


def test_a_spout_that_is_not_ready_in_time_says_what_it_waits_for() -> None:
    """D908: it may be the ackers, or the silence of the holder before it."""
    engine = engine_of(Untaken())
    with pytest.raises(Unreachable, match=r"not taken within 10 ms: .* acker partition 2 to answer"):
        engine.start(10)
    engine.stop()


def test_a_client_that_waits_for_an_item_says_each_minute_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D908: nothing is ready; or it has as many open as it may have."""
    monkeypatch.setattr(clients, "LOGGED_EVERY_MS", 10)
    engine = engine_of(Quiet())
    times_ms = iter(range(0, 10_000_000, 20_000))
    engine.start(1_000)
    monkeypatch.setattr(engine, "now_ms", lambda: next(times_ms))
    caplog.set_level("INFO", "windhover.spout")
    client = Client(engine, ClientLimits("worker-1", 10), lambda _name: None)
    assert not client.open(1, wait_ms=1_000_000)
    engine.stop()
    lines = [record.getMessage() for record in caplog.records if "waits_for_items" in record.getMessage()]
    assert len(lines) > 1
    assert "client=worker-1" in lines[0]
    assert "no record is ready, and 0 are open with clients" in lines[0]
