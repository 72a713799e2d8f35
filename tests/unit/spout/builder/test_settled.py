"""A topology that is stopped waits for statuses of after that, whatever the wall clock shows."""

from __future__ import annotations

import pytest

from spout.builder.settled import HELD_MS, SettledWatch
from spout.planning_process.status import PlannerStatus
from tests.support.steady_clock import SteadyClock

HOUR_MS = 3_600_000
BEGAN_MS = 1_800_000_000_000


def status(wall_ms: int, pending: int) -> PlannerStatus:
    return PlannerStatus("running", "g", wall=wall_ms, pending=pending)


@pytest.mark.parametrize("set_ms", [0, -HOUR_MS, HOUR_MS], ids=["right", "set back", "set ahead"])
@pytest.mark.parametrize("at", [1, 2, 3], ids="the clock is set before status {}".format)
def test_the_second_status_of_after_that_counts_whatever_the_clock_shows(set_ms: int, at: int) -> None:
    """D413: by a clock that was set back a stop waited for its whole time."""
    watch = SettledWatch(has_keyed_bolt=False)
    walls_ms = [BEGAN_MS + 250 * n + (set_ms if n >= at else 0) for n in range(4)]
    assert [watch.record_status(status(wall_ms, 0)) for wall_ms in walls_ms] == [False, False, True, True]


def test_the_same_status_counts_once_and_none_not_at_all() -> None:
    watch = SettledWatch(has_keyed_bolt=False)
    assert not watch.record_status(None)
    assert [watch.record_status(status(BEGAN_MS, 0)) for _ in range(3)] == [False] * 3
    assert not watch.record_status(status(BEGAN_MS + 250, 0))
    assert not watch.record_status(None)
    assert watch.record_status(status(BEGAN_MS + 500, 0))


@pytest.mark.parametrize("has_keyed_bolt", [False, True])
def test_what_a_keyed_bolt_holds_is_not_waited_for_after_two_seconds(has_keyed_bolt: bool) -> None:
    """By a clock that nobody can set."""
    clock = SteadyClock()
    watch = SettledWatch(has_keyed_bolt=has_keyed_bolt, clock_ms=lambda: int(clock.now_s * 1000))
    for n in range(4):
        assert not watch.record_status(status(BEGAN_MS + n * HOUR_MS, 1))
    clock.now_s += HELD_MS / 1000
    assert not watch.record_status(status(BEGAN_MS, 1))
    clock.now_s += 0.001
    assert watch.record_status(status(BEGAN_MS + 1, 1)) is has_keyed_bolt
