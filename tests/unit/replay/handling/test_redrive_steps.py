"""Redrives step by step: of several inputs, at the very moments at which they wait, read, stop and end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from acker.config.settings import Input
from acker.errors import Fenced, LogError, TopicError, UsageError
from acker.kafka.port import Log, TopicPartition, Transactions
from replay.handling.letter_handling import CHUNK_MAX, Left, Order, RateLimit
from replay.handling.outcomes import LetterOutcome, find_redrives
from replay.handling.redrive import (
    STEP_MS_MAX,
    Redrive,
    RedriveLimits,
    RedriveProgress,
    cancel_redrive,
    outcome_text,
)
from replay.records.letters import Filter, LetterAction
from replay.records.redrives import RedriveEnd
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.letters_world import GONE, HOUR_MS, NOW_MS, ORDERS, SENTENCES, TOPICS, Kind
from tests.support.worlds.redrives_world import CopyPlace, RedrivesWorld

SENTENCES_INPUT, ORDERS_INPUT = TOPICS.input("sentences"), TOPICS.input("orders")
OPEN, ACKED, DIED = LetterOutcome.OPEN, LetterOutcome.ACKED, LetterOutcome.DIED
KIND = Kind()


@pytest.fixture
def world() -> RedrivesWorld:
    """Return a world with four letters of one input."""
    return with_letters(4)


def with_letters(count: int, others: int = 0, gone: int = 0) -> RedrivesWorld:
    """Return a world with letters of one input and of another one, and of both some without payloads."""
    world = RedrivesWorld()
    for topic, number in ((SENTENCES, count), (ORDERS, others)):
        for _ in range(number):
            world.let_die(topic, 0, KIND, HOUR_MS, b"k")
        for _ in range(gone):
            world.let_die(topic, 0, GONE, HOUR_MS, b"k")
    return world


def redrive(
    world: RedrivesWorld,
    limits: RedriveLimits = RedriveLimits(),  # noqa: B008  # frozen
    *,
    inputs: Sequence[Input] = (SENTENCES_INPUT,),
    action: LetterAction = LetterAction.REPLAYED,
    rate: float | None = None,
    chunk: int = CHUNK_MAX,
    name: str = "r1",
    log: Log | None = None,
) -> Redrive:
    """Prepare a redrive at `NOW_MS`."""
    order = Order(action, Filter(), "kim", "fixed", name)
    meant = [(input, Filter()) for input in inputs]
    return Redrive(log or world.log, TOPICS, meant, order, RateLimit(rate, NOW_MS, chunk), limits)


def copies(world: RedrivesWorld) -> list[CopyPlace]:
    """Return the copies of the first input's letters."""
    reader = world.cluster.log().reader(committed=True)
    reader.assign({TopicPartition(SENTENCES_INPUT.replay_topic, 0): 0})
    return [CopyPlace(SENTENCES_INPUT, 0, record.offset) for record in reader.poll(0)]


def states(world: RedrivesWorld, input: Input) -> list[str]:
    """Return how the redrives of an input stand, the oldest first."""
    return [record.state for record in find_redrives(world.log, input, wait_ms=100)]


def test_the_inputs_are_redriven_one_after_the_other_and_summed_up() -> None:
    world = with_letters(3, others=2, gone=1)
    one = redrive(world, inputs=[SENTENCES_INPUT, ORDERS_INPUT])
    assert (one.is_done, one.progress) == (False, RedriveProgress())
    one.step(NOW_MS)
    first = one.progress
    assert (first.letter_count, first.handled_count, first.end) == (4, 3, None)
    assert (states(world, SENTENCES_INPUT), states(world, ORDERS_INPUT)) == (["NOT ENDED"], [])
    assert one.step(NOW_MS) == 0, "nothing is waited for"
    assert one.progress == first
    one.step(NOW_MS)
    assert (states(world, SENTENCES_INPUT), states(world, ORDERS_INPUT)) == (["DONE"], ["NOT ENDED"])
    assert not one.is_done
    assert one.step(NOW_MS) == 0
    assert one.is_done
    assert one.progress == RedriveProgress(
        letter_count=7,
        handled_count=5,
        left_by_why=Counter({Left.NO_PAYLOAD: 2}),
        left_out_count=0,
        outcomes=Counter({OPEN: 5}),
        end=RedriveEnd.DONE,
    )
    assert str(one.progress) == "5 of 7 handled; 0 acked, 0 died again, 5 open"
    assert (one.step(NOW_MS), one.progress.handled_count) == (0, 5)
    assert not world.log.open_readers


def test_an_input_without_a_letter_is_over_at_once(world: RedrivesWorld) -> None:
    one = redrive(world, inputs=[ORDERS_INPUT, SENTENCES_INPUT])
    assert (one.step(NOW_MS), one.is_done) == (0, False)
    assert states(world, ORDERS_INPUT) == []
    one.step(NOW_MS)
    one.step(NOW_MS)
    assert (one.progress.end, one.progress.handled_count) == (RedriveEnd.DONE, 4)


def test_behind_one_that_is_cancelled_no_further_input_is_begun() -> None:
    world = with_letters(3, others=2)
    one = redrive(world, inputs=[SENTENCES_INPUT, ORDERS_INPUT], chunk=2)
    one.step(NOW_MS)
    one.cancel()
    one.cancel()
    one.step(NOW_MS)
    assert (one.is_done, one.progress.end, one.progress.handled_count) == (True, RedriveEnd.CANCELLED, 2)
    assert (states(world, SENTENCES_INPUT), states(world, ORDERS_INPUT)) == (["CANCELLED"], [])
    assert one.step(NOW_MS) == 0


def test_one_that_ended_by_itself_is_not_cancelled_any_more() -> None:
    world = with_letters(3, others=2)
    one = redrive(world, RedriveLimits(at_once=1, died_max=1), inputs=[SENTENCES_INPUT, ORDERS_INPUT])
    one.step(NOW_MS)
    world.die_again(copies(world)[0])
    one.step(NOW_MS + STEP_MS_MAX)
    one.cancel()
    assert (one.is_done, one.progress.end) == (True, RedriveEnd.DIED_AGAIN)
    assert states(world, ORDERS_INPUT) == []


@pytest.mark.parametrize("died_max", [1, 3])
def test_it_stops_at_just_so_many_that_died_again(died_max: int) -> None:
    world = with_letters(5)
    one = redrive(world, RedriveLimits(at_once=1, died_max=died_max))
    now_ms = NOW_MS
    while not one.is_done:
        one.step(now_ms)
        now_ms += STEP_MS_MAX
        if len(copies(world)) > one.progress.outcomes[DIED]:
            world.die_again(copies(world)[-1])
    assert one.progress.end is RedriveEnd.DIED_AGAIN
    assert (one.progress.handled_count, one.progress.outcomes[DIED]) == (died_max, died_max)


def test_it_is_stalled_when_none_was_handled_for_just_so_long(world: RedrivesWorld) -> None:
    one = redrive(world, RedriveLimits(at_once=2, stalled_ms=1_000))
    one.step(NOW_MS)
    one.step(NOW_MS + STEP_MS_MAX)
    one.step(NOW_MS + 999)
    assert (one.is_done, one.progress.handled_count) == (False, 2)
    one.step(NOW_MS + 1_000)
    assert one.progress.end is RedriveEnd.STALLED


@pytest.mark.parametrize("wait_ms", [0, 1_000])
def test_the_last_outcomes_are_waited_for_just_so_long(world: RedrivesWorld, wait_ms: int) -> None:
    one = redrive(world, RedriveLimits(wait_ms=wait_ms))
    one.step(NOW_MS)
    if wait_ms:
        one.step(NOW_MS + 999)
        assert not one.is_done
    one.step(NOW_MS + wait_ms)
    assert one.progress.end is RedriveEnd.DONE


def test_outcomes_are_read_twice_a_second_and_when_it_ends(world: RedrivesWorld) -> None:
    one = redrive(world, RedriveLimits(wait_ms=HOUR_MS))
    one.step(NOW_MS)
    all_copies = copies(world)
    assert len(all_copies) == 4

    def acked(at_ms: int) -> int:
        """Step it; return how many of its letters count as acked."""
        one.step(NOW_MS + at_ms)
        return one.progress.outcomes[ACKED]

    world.settle(all_copies[0])
    assert [acked(499), acked(500)] == [0, 1]
    world.settle(all_copies[1])
    assert [acked(501), acked(999), acked(1_000)] == [1, 1, 2]
    # a clock that was set back by an hour
    world.settle(all_copies[2])
    assert acked(-HOUR_MS) == 3
    world.settle(all_copies[3])
    one.cancel()
    one.step(NOW_MS - HOUR_MS + 1)
    (record,) = find_redrives(world.log, SENTENCES_INPUT, wait_ms=100)
    assert record.ended is not None
    assert (record.ended.acked, record.ended.died, record.ended.handled) == (4, 0, 4)


def test_letters_that_are_dropped_over_a_long_time_have_no_outcomes_to_be_read(world: RedrivesWorld) -> None:
    one = redrive(world, action=LetterAction.DROPPED, chunk=1)
    for number in range(5):
        one.step(NOW_MS + number * HOUR_MS)
    assert (one.progress.end, one.progress.handled_count) == (RedriveEnd.DONE, 4)
    assert not one.progress.outcomes
    assert copies(world) == []


def test_a_step_says_when_the_next_one_is_due(world: RedrivesWorld) -> None:
    """When the rate lets the next letter through, and after half a second at the latest."""
    quick = redrive(world, rate=1_000, chunk=1)
    assert [quick.step(NOW_MS), quick.step(NOW_MS)] == [1, 1]
    slow = redrive(world, rate=4, name="r2")
    assert [slow.step(NOW_MS), slow.step(NOW_MS + 100)] == [250, 150]
    slowest = redrive(world, rate=0.1, name="r3")
    assert [slowest.step(NOW_MS), slowest.step(NOW_MS + 1)] == [STEP_MS_MAX, STEP_MS_MAX]


def test_one_that_waits_for_outcomes_is_stepped_each_half_second(world: RedrivesWorld) -> None:
    one = redrive(world, RedriveLimits(at_once=4, wait_ms=HOUR_MS))
    assert one.step(NOW_MS) == 0, "the next letter may be handled at once"
    assert one.step(NOW_MS) == STEP_MS_MAX


class Kept(MemoryLog):
    """A log that remembers its transactional writers."""

    def __init__(self, world: RedrivesWorld) -> None:
        super().__init__(world.cluster, NoFaults())
        self.writers: list[Transactions] = []

    def transactions(self, transactional_id: str) -> Transactions:
        """Make one, and remember it."""
        self.writers.append(super().transactions(transactional_id))
        return self.writers[-1]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_all_that_it_opened_is_closed_wherever_it_is_left(world: RedrivesWorld, steps: int) -> None:
    log = Kept(world)
    one = redrive(world, RedriveLimits(wait_ms=HOUR_MS if steps < 2 else 0), log=log)
    for _ in range(steps):
        one.step(NOW_MS)
    one.close()
    assert not log.open_readers
    for writer in log.writers:
        with pytest.raises(LogError, match="is closed"):
            writer.begin()
    assert len(log.writers) == min(steps, 1)


def test_one_that_cannot_begin_has_found_no_letter(world: RedrivesWorld) -> None:
    """It is closed as one that runs is."""
    world.cluster.delete_topic(SENTENCES_INPUT.replay_topic)
    log = Kept(world)
    one = redrive(world, log=log)
    with pytest.raises(TopicError, match=r"replay topic sentences.g.replay of input .* does not exist"):
        one.step(NOW_MS)
    assert (one.is_done, one.progress) == (False, RedriveProgress())
    one.close()
    with pytest.raises(LogError, match="is closed"):
        log.writers[0].begin()


def test_one_that_a_later_one_has_ended_cannot_be_cancelled(world: RedrivesWorld) -> None:
    for name in ("r1", "r2"):
        redrive(world, name=name, chunk=1).step(NOW_MS)
    with pytest.raises(UsageError, match="r1 of input sentences cannot be cancelled: it is INTERRUPTED"):
        cancel_redrive(world.log, TOPICS, SENTENCES_INPUT, "r1", "lee", NOW_MS)
    assert states(world, SENTENCES_INPUT) == ["INTERRUPTED", "NOT ENDED"]


def test_who_cancels_one_from_elsewhere_does_not_know_how_far_it_is(world: RedrivesWorld) -> None:
    one = redrive(world, chunk=1)
    one.step(NOW_MS)
    log = Kept(world)
    cancel_redrive(log, TOPICS, SENTENCES_INPUT, "r1", "lee", NOW_MS + 5)
    with pytest.raises(Fenced):
        one.step(NOW_MS)
    (record,) = find_redrives(world.log, SENTENCES_INPUT, wait_ms=100)
    assert record.ended is not None
    assert (record.ended.handled, record.ended.acked, record.ended.died) == (-1, -1, -1)
    assert (record.ended.by, record.ended.at_ms) == ("lee", NOW_MS + 5)
    with pytest.raises(LogError, match="is closed"):
        log.writers[0].begin()


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ({}, "0 acked, 0 died again"),
        ({OPEN: 1}, "0 acked, 0 died again, 1 open"),
        ({DIED: 1_000, LetterOutcome.GONE: 2}, "0 acked, 1,000 died again, 2 gone"),
        ({ACKED: 1, LetterOutcome.UNKNOWN: 3}, "1 acked, 0 died again, 3 unknown"),
    ],
)
def test_outcomes_as_a_text(outcomes: dict[LetterOutcome, int], text: str) -> None:
    assert outcome_text(Counter(outcomes)) == text
