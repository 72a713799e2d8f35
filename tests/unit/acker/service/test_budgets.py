"""What an acker puts up with some times in a row begins again after a success, however long it lives."""

from __future__ import annotations

import pytest

from acker.config.limits import AckerLimits
from acker.errors import Aborted, LogError, Unreachable, WindhoverError
from acker.ledger.output import AckerEventKind
from acker.service.silent import SilentPartitions
from tests.support.memory.clients import FailingByPlan
from tests.support.worlds.acker_world import World

ATTEMPTS = 3


def worked(world: World, roots: int) -> None:
    """Let an acker settle roots one after another, each in a transaction of its own."""
    writer = world.session()
    writer.take()
    for position in range(roots):
        writer.init((position, position + 1))
        writer.acks(runs=[(position, position + 1)], seq=position)
        for _ in range(4 * ATTEMPTS):  # a partition that is given up is restored in the next step
            world.step()
    world.settle()


@pytest.mark.parametrize("error", [Aborted("refused"), Unreachable("no answer")], ids=["aborted", "unknown"])
@pytest.mark.parametrize("in_a_row", [1, ATTEMPTS])
def test_transactions_that_fail_far_apart_do_not_end_an_acker(error: WindhoverError, in_a_row: int) -> None:
    """Twenty of a year are no reason; each success lets it begin to count anew."""
    plan = [*[True] * in_a_row, False] * 7
    failing = FailingByPlan("commit", error, plan)
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, restore_attempts=ATTEMPTS))
    world.crash(failing)
    worked(world, roots=8)
    assert failing.failures == 7 * in_a_row > ATTEMPTS
    assert set(world.of().values()) == {"ACKED"}
    kinds = [event.kind for event in world.events]
    assert kinds.count(AckerEventKind.ABORTED) == failing.failures


@pytest.mark.parametrize("before", [0, 2 * ATTEMPTS], ids=["at first", "after others far apart"])
def test_one_failure_too_many_in_a_row_ends_it(before: int) -> None:
    plan = [*[True, False] * before, *[True] * (ATTEMPTS + 1)]
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, restore_attempts=ATTEMPTS))
    world.crash(FailingByPlan("commit", Aborted("refused"), plan))
    with pytest.raises(LogError, match="refused"):
        worked(world, roots=before + 4)


@pytest.mark.parametrize("outages", [1, 3])
def test_each_outage_has_the_whole_time_for_itself(outages: int) -> None:
    limits = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0)
    world = World(limits=limits)
    for _ in range(outages):
        silence = FailingByPlan("membership", Unreachable("gone"), [True] * 2)
        world.crash(silence)
        world.step()
        world.now_ms += limits.unreachable_ms - 10
        world.step()
        assert silence.failures == 2
        world.step()  # it answers
        world.now_ms += limits.unreachable_ms


def test_one_acker_lives_through_many_outages() -> None:
    """None of them counts for the next one."""
    limits = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0)
    world = World(limits=limits)
    world.crash(FailingByPlan("membership", Unreachable("gone"), [True, True, False] * 5))
    for _ in range(5):
        for _ in range(2):
            world.step()
            world.now_ms += limits.unreachable_ms // 2
        world.step()
    world.settle()
    unreachable = [event for event in world.events if event.kind is AckerEventKind.UNREACHABLE]
    assert len(unreachable) == 5, "each is reported"


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_partition_that_came_up_is_left_alone_for_the_first_time_again(failures: int) -> None:
    """Twice as long each time, and from the beginning once it has come up."""
    silent = SilentPartitions(100, 1_000)
    for _ in range(3):
        now_ms = 0
        for number in range(failures):
            silent.record_failure(7, now_ms)
            wait_ms = min(1_000, 100 << number) if number else 100
            assert silent.partitions_to_try([7], now_ms + wait_ms - 1, others_work=True) == []
            assert silent.partitions_to_try([7], now_ms + wait_ms, others_work=True) == [7]
            now_ms += wait_ms
        silent.partitions_to_try([], now_ms, others_work=True)  # it came up
