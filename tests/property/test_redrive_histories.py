"""A redrive that is killed between any two calls, and repeated, loses no letter and doubles none."""

from __future__ import annotations

import contextlib
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from acker.kafka.port import Log
from replay.handling.letter_box import find_letters
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.outcomes import LetterOutcome, RedriveOutcomes, find_redrives
from replay.handling.redrive import Redrive, RedriveLimits
from replay.records.letters import LETTER, Filter, LetterAction
from replay.records.redrives import redrive_of
from tests.support.memory.clients import Faults, NoFaults
from tests.support.worlds.replay_world import Crash, CrashAt, World, topics

ONE_LIFE = topics(attempts=1)
INPUT = ONE_LIFE.input("sentences")
EVERY = Filter()


def with_letters(count: int) -> World:
    """Return a world with some dead letters in two partitions."""
    world = World()
    worker = world.worker(of=ONE_LIFE)
    for number in range(count):
        world.lose(world.emit(b"%d" % number, partition=number % 2))
    world.settle(worker)
    worker.close()
    return world


def run(world: World, name: str, chunk: int, faults: Faults, *, cancelled_after: int = 10**9) -> None:
    order = Order(LetterAction.REPLAYED, EVERY, "kim", "", name)
    pace = RateLimit(None, world.now_ms, chunk)
    log = world.cluster.log(faults)
    one = Redrive(log, ONE_LIFE, [(INPUT, EVERY)], order, pace, RedriveLimits(at_once=100))
    for step in range(200):
        if one.is_done:
            one.close()
            return
        if step == cancelled_after:
            one.cancel()
        world.now_ms += max(1, one.step(world.now_ms))
    raise AssertionError("it does not end")


def check(world: World, count: int, log: Log) -> None:
    """Each letter has one copy; the redrives' audit agrees with what is in the log."""
    assert find_letters(log, INPUT, EVERY, wait_ms=100).letters == []
    copies = world.copies()
    letters = [dict(copy.headers)[LETTER] for copy in copies]
    assert len(letters) == len(set(letters)) == count
    assert Counter(copy.value for copy in copies) == Counter(b"%d" % number for number in range(count))
    records = find_redrives(log, INPUT, wait_ms=100)
    followed = RedriveOutcomes(log, ONE_LIFE, INPUT, [each.begun for each in records])
    followed.read()
    for record in records:
        name = record.begun.redrive
        own = [copy for copy in copies if redrive_of(copy.headers) == name]
        assert followed.handled_count(name) == len(own) == followed.count_by_outcome(name)[LetterOutcome.OPEN]
        if record.ended is not None:
            assert record.ended.handled == len(own)
    assert sum(followed.handled_count(each.begun.redrive) for each in records) == count


def test_a_redrive_that_is_killed_before_or_after_any_call_and_repeated_does_each_letter_once() -> None:
    calls = 0
    while True:
        world = with_letters(5)
        try:
            run(world, "first", 2, CrashAt(calls))
        except Crash:
            run(world, "second", 2, NoFaults())
            check(world, 5, world.cluster.log())
            calls += 1
            continue
        check(world, 5, world.cluster.log())
        break
    assert calls > 40, "each of its calls was the last one once"


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 12)), max_size=5),
)
def test_any_history_of_kills_and_cancels_does_each_letter_once(
    count: int, chunk: int, tries: list[tuple[int, int]]
) -> None:
    world = with_letters(count)
    for number, (calls, cancelled_after) in enumerate(tries):
        with contextlib.suppress(Crash):
            run(world, f"try {number}", chunk, CrashAt(calls), cancelled_after=cancelled_after)
    run(world, "last", chunk, NoFaults())
    check(world, count, world.cluster.log())
