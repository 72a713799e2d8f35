"""The key of a record, and its value, in each record that is made of it: null stays null, empty empty."""

from __future__ import annotations

import pytest

from acker.kafka.port import Outgoing, Record
from replay.records.letters import Letter, LetterAction, Mark, copy_of_letter, mark_record, parse_letter
from tests.support.odd_keys import KEYS, VALUES
from tests.support.worlds.replay_world import COPIES, LETTERS, Emission, World

of_each_key = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
of_each_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)


@pytest.fixture
def world() -> World:
    """A cluster of its own for each test."""
    return World()


def has(record: Record | Outgoing) -> tuple[bytes | None, bytes | None]:
    """Return key and value of a record."""
    return record.key, record.value


def lost_for_good(world: World, *roots: Emission) -> list[Record]:
    """Let roots fail at each attempt; return all copies that were written on the way."""
    worker = world.worker()
    lives = list(roots)
    seen = 0
    for _ in range(3):
        for root in lives:
            world.lose(root)
        world.settle(worker, until_ms=world.now_ms + 600_000)
        copies = world.copies()
        lives = [world.emission_of(copy) for copy in copies[seen:]]
        seen = len(copies)
    assert len(world.letters()) == len(roots)
    return world.copies()


@of_each_value
@of_each_key
def test_copies_the_dead_letter_and_what_a_redrive_writes_have_the_record_s_key_and_value(
    world: World, key: bytes | None, value: bytes | None
) -> None:
    """Who reads a compacted topic, or joins by key, takes an empty key for one of its own."""
    root = world.emit(value, key=key)
    copies = lost_for_good(world, root)
    assert list(map(has, copies)) == [(key, value)] * 2
    [letter_record] = world.letters()
    assert has(letter_record) == (key, value)
    letter = parse_letter(letter_record)
    assert isinstance(letter, Letter)
    assert letter.key == key
    again = copy_of_letter(letter, letter_record, COPIES, "r1")
    assert has(again) == (key, value)
    mark = mark_record(letter, LETTERS, Mark(str(letter.place), LetterAction.REPLAYED, "me", "why", 5))
    assert has(mark) == (None, None)


def test_records_of_one_partition_keep_each_its_own_key(world: World) -> None:
    """One beside the other, in one transaction, and each twice."""
    roots = [world.emit(b"v", key=key) for key in (*KEYS.values(), *KEYS.values())]
    copies = lost_for_good(world, *roots)
    assert len(copies) == 4 * len(KEYS)
    for key in KEYS.values():
        assert [copy.key for copy in copies].count(key) == 4
        assert [letter.key for letter in world.letters()].count(key) == 2


@of_each_value
@pytest.mark.parametrize("key", [key for key in KEYS.values() if key is not None], ids=[*KEYS][1:])
def test_what_others_write_to_ack_due_hides_no_root_that_waits(
    world: World, key: bytes, value: bytes | None
) -> None:
    """A tombstone of another key ends nothing, and what is no entry is passed over, also after a restart.

    A record without a key is in no compacted topic: the broker refuses it.
    """
    root = world.emit(b"x", key=b"k")
    worker = world.worker()
    world.lose(root)
    world.settle(worker)
    for partition in range(2):
        world.send_due(key, value, partition)  # type: ignore[arg-type]
    world.kill(worker)
    world.settle(world.worker(), until_ms=world.now_ms + 60_000)
    assert list(map(has, world.copies())) == [(b"k", b"x")]
