"""Which letters are found, and where they are looked for."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from acker.errors import TopicError, Unreachable
from acker.kafka.port import Outgoing, TopicPartition
from replay.handling.letter_box import find_letters, letter_partitions, letter_starts
from replay.records.letters import HANDLED, LETTER, Filter, LetterAction
from tests.support.memory.clients import NoFaults
from tests.support.worlds.letters_world import HOUR_MS, NOW_MS, SENTENCES, TOPICS, Kind, LettersWorld

INPUT = TOPICS.input("sentences")
FIRST, SECOND = (TopicPartition(SENTENCES, number) for number in range(2))
EVERY = Filter()


class Polls(NoFaults):
    """Counts how often a reader is polled."""

    def __init__(self) -> None:
        self.count = 0

    def before(self, operation: str) -> None:
        """Count it."""
        self.count += operation == "poll"


class Letters(NamedTuple):
    """What is found: the places of the letters that are kept, and how many are left out."""

    places: list[str]
    left_out: int


@pytest.fixture
def world() -> LettersWorld:
    return LettersWorld()


def let_die(world: LettersWorld, count: int, partition: int = 0, age_ms: int = HOUR_MS) -> list[str]:
    """Let records die; return the places of their letters."""
    return [world.let_die(SENTENCES, partition, Kind(), age_ms, b"k") for _ in range(count)]


def drop(world: LettersWorld, *places: str) -> None:
    """Write the marks of letters."""
    for place in places:
        world.handle(place, LetterAction.DROPPED)


def found(world: LettersWorld, kept_max: int, which: Filter = EVERY) -> Letters:
    box = find_letters(world.log, INPUT, which, wait_ms=100, kept_max=kept_max)
    return Letters([letter.place for letter in box.letters], box.left_out_count)


def test_a_letter_that_was_left_out_and_is_handled_is_not_found(world: LettersWorld) -> None:
    """It is left out at the first reading, and its mark comes behind it."""
    first, second, third, fourth = let_die(world, 4)
    drop(world, first, third)
    assert found(world, 2) == Letters([second, fourth], 0)


def test_what_is_left_out_of_each_partition_is_counted_once_and_by_its_own_marks(world: LettersWorld) -> None:
    """Both partitions are read twice; an offset that is handled in one may be open in the other."""
    letters = let_die(world, 4)
    others = let_die(world, 3, partition=1)
    drop(world, letters[0], others[1], others[2])
    assert found(world, 2) == Letters(letters[1:3], 2)
    assert found(world, 9) == Letters([*letters[1:], others[0]], 0)


def test_a_mark_about_a_letter_of_another_partition_or_topic_hides_none_of_this_one(
    world: LettersWorld,
) -> None:
    first, second, third = let_die(world, 3)
    for place in (f"{SENTENCES}/1@2", "words.h.dlq/0@2"):
        headers = ((HANDLED, b"DROPPED"), (LETTER, place.encode()))
        world.put(Outgoing(SENTENCES, 0, None, None, headers, NOW_MS))
    drop(world, first)
    assert found(world, 2) == Letters([second, third], 0)


@pytest.mark.parametrize("which", [EVERY, Filter(handled=True)], ids=["open ones", "handled ones too"])
def test_a_partition_is_read_twice_only_where_marks_have_made_room(
    world: LettersWorld, which: Filter
) -> None:
    letters = let_die(world, 3)
    if which.handled:
        drop(world, letters[0])
    counts: list[int] = []
    for kept_max in (1, 9):
        polls = Polls()
        find_letters(world.cluster.log(polls), INPUT, which, wait_ms=100, kept_max=kept_max)
        counts.append(polls.count)
    assert counts[0] == counts[1]


def test_what_an_aborted_transaction_wrote_is_neither_a_letter_nor_a_mark(world: LettersWorld) -> None:
    letters = let_die(world, 2)
    reader = world.log.reader(committed=True)
    reader.assign({FIRST: 0})
    letter, _ = reader.poll(0)
    writer = world.log.transactions("somebody")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing(SENTENCES, 0, b"x", None, letter.headers))
    mark_headers = ((HANDLED, b"DROPPED"), (LETTER, letters[0].encode()))
    writer.send(Outgoing(SENTENCES, 0, None, None, mark_headers))
    writer.abort(0)
    assert found(world, 9) == Letters(letters, 0)


def test_letters_since_a_time_are_read_from_the_first_one_of_that_time(world: LettersWorld) -> None:
    let_die(world, 2, age_ms=3 * HOUR_MS)
    let_die(world, 1)
    since = Filter(since_ms=NOW_MS - 2 * HOUR_MS)
    assert letter_starts(world.log, INPUT, EVERY) == {FIRST: 0, SECOND: 0}
    assert letter_starts(world.log, INPUT, since) == {FIRST: 2, SECOND: 0}
    named = Filter(since_ms=since.since_ms, places=frozenset([f"{SENTENCES}/0@0"]))
    assert letter_starts(world.log, INPUT, named) == {FIRST: 2}


def test_letters_that_are_named_are_read_from_the_first_one_of_each_partition(world: LettersWorld) -> None:
    let_die(world, 3)

    def starts(*names: str) -> dict[TopicPartition, int]:
        return dict(letter_starts(world.log, INPUT, Filter(places=frozenset(names))))

    assert starts(f"{SENTENCES}/0@2", f"{SENTENCES}/0@1") == {FIRST: 1}
    assert starts(f"{SENTENCES}/0@7") == {FIRST: 7}, "whoever reads finds that it is not there"
    assert starts(f"{SENTENCES}/7@0") == {}, "the topic has no such partition"
    assert starts("sentences/1@3") == {FIRST: 0, SECOND: 0}
    assert starts("sentences/2@3") == {FIRST: 0}
    assert starts("no place") == {FIRST: 0}
    world.delete_before(SENTENCES, 0, 2)
    assert starts(f"{SENTENCES}/0@1") == starts("sentences/0@100") == {FIRST: 2}


@pytest.mark.parametrize(
    ("origin", "count", "partitions"),
    [(5, 3, {0, 1, 2}), (5, 2, {0, 1}), (5, 1, {0}), (7, 4, {0, 1, 3}), (0, 3, {0})],
)
def test_a_letter_may_be_where_any_former_number_of_partitions_had_it_go(
    origin: int, count: int, partitions: set[int]
) -> None:
    assert letter_partitions(origin, count) == partitions


def test_records_of_others_are_counted_once_and_none_of_ours_is(world: LettersWorld) -> None:
    """The partition is read twice, and audit records of redrives are in it."""
    letters = let_die(world, 3)
    world.begin_redrive(SENTENCES, "r1")
    world.put_strangers(SENTENCES, [b"hello", b""])
    drop(world, letters[0])
    box = find_letters(world.log, INPUT, EVERY, wait_ms=100, kept_max=1)
    assert (len(box.letters), box.left_out_count, box.other_record_count) == (1, 1, 2)


def test_a_letter_that_is_meant_though_it_is_handled_has_its_mark(world: LettersWorld) -> None:
    letters = let_die(world, 2)
    drop(world, letters[1])
    box = find_letters(world.log, INPUT, Filter(handled=True), wait_ms=100)
    assert [letter.place for letter in box.letters] == letters
    marks = [letter.mark for letter in box.letters]
    assert marks[0] is None
    assert marks[1] is not None
    assert (marks[1].action, marks[1].by) == (LetterAction.DROPPED, "kim")


def test_whoever_handles_letters_waits_for_marks_behind_an_open_transaction_and_who_looks_does_not(
    world: LettersWorld,
) -> None:
    letters = let_die(world, 2)
    writer = world.log.transactions("somebody")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing(SENTENCES, 0, b"x"))
    drop(world, letters[0])
    assert found(world, 9) == Letters(letters, 0)
    with pytest.raises(Unreachable, match="goes on to 4"):
        find_letters(world.log, INPUT, EVERY, wait_ms=100, waits_for_open=True)
    writer.abort(0)
    box = find_letters(world.log, INPUT, EVERY, wait_ms=100, waits_for_open=True)
    assert [letter.place for letter in box.letters] == letters[1:]


def test_a_dead_letter_topic_that_is_missing_is_named_with_the_way_out(world: LettersWorld) -> None:
    world.cluster.delete_topic(SENTENCES)
    with pytest.raises(TopicError, match=f"dead-letter topic {SENTENCES} of input sentences does not exist"):
        letter_starts(world.log, INPUT, EVERY)
