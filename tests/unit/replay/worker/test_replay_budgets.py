"""What a replay worker puts up with a number of times in a row begins again after a success."""

from __future__ import annotations

import pytest

from acker.errors import Aborted, LogError, Unreachable
from replay.worker.worker import Worker
from tests.support.memory.clients import FailingByPlan
from tests.support.worlds.replay_world import LIMITS, World, limits, topics

ABORTS = 3


@pytest.mark.parametrize("in_a_row", [1, ABORTS])
def test_aborts_far_apart_do_not_end_a_worker(in_a_row: int) -> None:
    """Sixteen of a year are no reason: each transaction that commits lets it begin to count anew."""
    world = World()
    failing = FailingByPlan("commit", Aborted("record too large"), [*[True] * in_a_row, False] * 8)
    worker = world.worker(failing, limits=limits(aborts_max=ABORTS))
    for number in range(8):
        world.lose(world.emit(b"%d" % number))
        world.settle(worker, until_ms=world.now_ms + 10_000)
    assert failing.failures == 8 * in_a_row
    assert sorted(copy.value or b"" for copy in world.copies()) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("before", [0, 2 * ABORTS], ids=["at first", "after others far apart"])
def test_one_abort_too_many_in_a_row_ends_it(before: int) -> None:
    plan = [*[True, False] * before, *[True] * (ABORTS + 1)]
    world = World()
    failing = FailingByPlan("commit", Aborted("record too large"), plan)
    worker = world.worker(failing, limits=limits(aborts_max=ABORTS))

    def lose_one_after_another() -> None:
        for number in range(before + 2):
            world.lose(world.emit(b"%d" % number))
            world.settle(worker, until_ms=world.now_ms + 10_000)

    with pytest.raises(LogError, match=f"{ABORTS + 1} transactions in a row"):
        lose_one_after_another()


def test_each_outage_has_the_whole_time_for_itself() -> None:
    world = World()
    silence = FailingByPlan("membership", Unreachable("gone"), [True, True, False] * 5)
    worker = world.worker(silence)
    for _ in range(5):
        for _ in range(2):
            worker.step(world.now_ms)
            world.now_ms += LIMITS.unreachable_ms // 2
        worker.step(world.now_ms)
    assert silence.failures == 10
    assert [event.name for event in world.events].count("unreachable") == 5


@pytest.mark.parametrize("troubles", [1, 2, 6])
def test_an_input_that_went_on_is_left_alone_for_the_first_time_again(troubles: int) -> None:
    """Twice as long each time, and from the beginning once something of it was written."""
    waits: list[list[int]] = []
    world = World()
    worker = Worker(
        world.cluster.log(), topics(), lambda: 0.0, LIMITS, lambda *_args, **_fields: None, lambda _at: None
    )
    for _ in range(2):
        now_ms, found = 1_000_000, []
        for _ in range(troubles):
            worker.record_trouble(1, LogError("no such topic"), now_ms)
            until_ms = worker.ready_ms(1)
            assert until_ms is not None
            found.append(until_ms - now_ms)
            now_ms = until_ms
        waits.append(found)
        worker.record_success([1], [1])
        assert worker.ready_ms(1) == 0
    assert waits[0] == waits[1]
    assert waits[0] == sorted(waits[0])
