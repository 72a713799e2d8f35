"""A redrive that is slow moves, and is no stalled one; whatever the clock shows meanwhile."""

from __future__ import annotations

import pytest

from acker.waits import READING_MS_MAX
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.outcomes import LetterOutcome
from replay.handling.redrive import STEP_MS_MAX, Redrive, RedriveLimits
from replay.records.letters import Filter, LetterAction
from replay.records.redrives import RedriveEnd
from tests.support.worlds.replay_world import World, topics

ONE_LIFE = topics(attempts=1)
STALLED_MS = 10_000
SLOW_MS = 7_000
"""Between two things that a slow redrive or query does: less than what counts as stalled."""

HOUR_MS = 3_600_000
LETTERS = 8


class SlowQuery:
    """Acks, or fails, one copy after another: each so long after the one before, or after what is written."""

    def __init__(self, world: World, every_ms: int, *, fails: bool) -> None:
        """Begin with nothing read."""
        self._world, self._every_ms, self._fails = world, every_ms, fails
        self._worker = world.worker(of=ONE_LIFE)
        self._read = 0
        self._waited_ms = 0

    def step(self, passed_ms: int) -> None:
        """Let time pass for it."""
        copies = self._world.copies()
        self._waited_ms = self._waited_ms + passed_ms if len(copies) > self._read else 0
        if len(copies) > self._read and self._waited_ms >= self._every_ms:
            copy = copies[self._read]
            root = self._world.emission_of(copy)
            self._read += 1
            self._waited_ms = 0
            if self._fails:
                self._world.lose(root)
            else:
                self._world.ack(root.source, copy.offset, copy.offset + 1)
        self._world.settle(self._worker)


def driven(
    world: World, limits: RedriveLimits, rate: float | None, query_ms: int | None, *, fails: bool = False,
    steps_ms: tuple[int, ...] = (),
) -> tuple[Redrive, int]:  # fmt: skip
    """Step a redrive to its end, beside a query; return it, and how long it took.

    Args:
        query_ms: how long the query takes for a copy; None: there is no query.
        steps_ms: by how much the clock is set, once each, beginning when half of the limit is over.
    """
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "fixed in 1.3", "r1")
    inputs = [(ONE_LIFE.input("sentences"), Filter())]
    pace = RateLimit(rate, world.now_ms)
    redrive = Redrive(world.cluster.log(), ONE_LIFE, inputs, order, pace, limits)
    query = None if query_ms is None else SlowQuery(world, query_ms, fails=fails)
    took_ms, steps = 0, list(steps_ms)
    for _ in range(3_000):
        if redrive.is_done:
            redrive.close()
            return redrive, took_ms
        passed_ms = max(1, redrive.step(world.now_ms))
        assert passed_ms <= STEP_MS_MAX
        took_ms += passed_ms
        world.now_ms += passed_ms
        if steps and took_ms >= STALLED_MS // 2:
            world.now_ms += steps.pop(0)
        if query is not None:
            query.step(passed_ms)
    raise AssertionError(f"it does not end: {redrive.progress}")


def world_of_letters() -> World:
    world = World()
    world.now_ms += 10 * HOUR_MS
    worker = world.worker(of=ONE_LIFE)
    world.lose(*(world.emit(b"%d" % number) for number in range(LETTERS)))
    world.settle(worker)
    worker.close()
    return world


@pytest.mark.parametrize("at_once", [1, 3], ids=["one open", "three open"])
@pytest.mark.parametrize(
    ("rate", "query_ms"),
    [(None, SLOW_MS), (1_000 / SLOW_MS, 0), (1_000 / SLOW_MS, SLOW_MS)],
    ids=["slow query", "slow rate", "both slow"],
)
@pytest.mark.parametrize("fails", [False, True], ids=["acked", "fail again"])
def test_one_that_is_slow_is_not_stalled(
    at_once: int, rate: float | None, query_ms: int, fails: bool
) -> None:
    world = world_of_letters()
    limits = RedriveLimits(at_once=at_once, stalled_ms=STALLED_MS, wait_ms=HOUR_MS, died_max=LETTERS + 1)
    redrive, took_ms = driven(world, limits, rate, query_ms, fails=fails)
    outcome = LetterOutcome.DIED if fails else LetterOutcome.ACKED
    assert (redrive.progress.end, redrive.progress.outcomes[outcome]) == (RedriveEnd.DONE, LETTERS)
    assert took_ms > 4 * STALLED_MS, "it was slow"


@pytest.mark.parametrize("step_ms", [0, -HOUR_MS, HOUR_MS], ids=["no step", "back", "ahead"])
@pytest.mark.parametrize("rate", [None, 1_000 / SLOW_MS], ids=["at once", "slow rate"])
def test_without_a_query_it_is_stalled_after_the_limit_by_any_clock(step_ms: int, rate: float | None) -> None:
    """D3002: the time counts from the last letters that it could handle."""
    world = world_of_letters()
    limits = RedriveLimits(at_once=2, stalled_ms=STALLED_MS)
    redrive, took_ms = driven(world, limits, rate, None, steps_ms=(step_ms,))
    assert (redrive.progress.end, redrive.progress.handled_count) == (RedriveEnd.STALLED, 2)
    # the second one a slow rate lets through later, once more later where the clock is set back before
    handled_ms = 0 if rate is None else 2 * SLOW_MS
    assert STALLED_MS - READING_MS_MAX <= took_ms <= handled_ms + STALLED_MS + 3 * STEP_MS_MAX


@pytest.mark.parametrize("step_ms", [0, -HOUR_MS, HOUR_MS], ids=["no step", "back", "ahead"])
@pytest.mark.parametrize("is_slow", [False, True], ids=["query in time", "query too slow"])
def test_the_last_letters_are_waited_for_as_long_as_asked_for_by_any_clock(
    step_ms: int, is_slow: bool
) -> None:
    world = world_of_letters()
    query_ms = 2_000 if is_slow else 500
    limits = RedriveLimits(wait_ms=STALLED_MS)
    redrive, took_ms = driven(world, limits, None, query_ms, steps_ms=(step_ms,))
    acked = redrive.progress.outcomes[LetterOutcome.ACKED]
    assert redrive.progress.end is RedriveEnd.DONE
    if is_slow:
        assert STALLED_MS - READING_MS_MAX <= took_ms <= STALLED_MS + 3 * STEP_MS_MAX
        assert 0 < acked < LETTERS
    else:
        assert acked == LETTERS
