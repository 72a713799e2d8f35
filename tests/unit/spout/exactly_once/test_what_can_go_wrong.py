"""What becomes of "exactly once" where somebody works around it: each line of the guide's table."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from acker.errors import SessionRefused, StoreFenced
from acker.kafka.port import Outgoing
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive
from replay.records.letters import Filter, LetterAction
from spout.inspect.dead_letters import carry_out, filters_of_inputs
from spout.inspect.operate import GroupSession, RewindTarget, moves_of_rewind
from tests.support.worlds.exact_world import ExactStart, ExactWorld

LINES = ("a b", "c", "d")
WORDS = ["a", "b", "c", "d"]


@pytest.fixture
def world(tmp_path: Path) -> ExactWorld:
    """Have lines that no query has read."""
    world = ExactWorld(tmp_path)
    world.produce_words(*LINES)
    return world


def reset(
    world: ExactWorld, to: RewindTarget = "earliest", *, at_ms: int | None = None, without_store: bool = True
) -> None:
    """Reset the offsets of the input."""
    plan = moves_of_rewind(world.log, world.topics.input("sentences"), to, at_ms=at_ms)
    log = world.cluster.log()
    operation = GroupSession(log, world.topics, "g", new_id="op", rewind=plan, without_store=without_store)
    world.past_the_store(operation)


def test_a_start_that_lives_is_taken_over_and_writes_nothing_more(world: ExactWorld) -> None:
    """D3212: the other one has a fresh checkpoint and ``take_over``; the first one has a batch under way."""
    first = ExactStart(world)
    evaluated = first.evaluate()
    assert evaluated is not None
    world.planners.clear()
    second = ExactStart(world, take_over=True)
    with pytest.raises(StoreFenced):
        first.commit(evaluated)
    second.write_all()
    assert world.words() == WORDS


def test_dead_letters_that_are_redriven_are_written_once(world: ExactWorld) -> None:
    """D3213: nothing of them was in the store, though each attempt had rows before it failed."""
    world.bad_words = {"b", "d"}
    start = ExactStart(world)
    start.write_all()
    assert (world.words(), sorted(world.letters())) == (["c"], ["a b", "d"])
    world.bad_words = {"d"}
    redrive(world)
    start.write_all()
    assert (world.words(), sorted(world.letters())) == (["a", "b", "c"], ["a b", "d", "d"])


def redrive(world: ExactWorld) -> None:
    """Replay all dead letters."""
    topics = world.topics
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "fixed", "r")
    meant = filters_of_inputs([topics.input("sentences")], (), Filter())
    operation = Redrive(world.cluster.log(), topics, meant, order, RateLimit(None, world.now_ms))
    carry_out(operation, clock=lambda: world.now_ms, sleep_ms=world.run, progress=lambda _: None)


def test_records_of_a_topic_that_is_made_again_are_written_beside_those_of_the_old_one(
    world: ExactWorld,
) -> None:
    """D3214: they are other records, whatever their offsets; the query needs a reset before."""
    start = ExactStart(world)
    start.write_all()
    start.die()
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 2)
    world.produce_words("e", "a")
    reset(world)
    ExactStart(world).write_all()
    assert world.words() == ["a", "a", "b", "c", "d", "e"]


def test_rows_of_records_behind_earlier_offsets_are_written_again(world: ExactWorld) -> None:
    """D3215: the command says that it does so, and is refused without `--without-store`."""
    start = ExactStart(world)
    start.write_all()
    start.die()
    with pytest.raises(SessionRefused, match="add --without-store to this command, then start") as refused:
        reset(world, without_store=False)
    assert "windhover release" not in str(refused.value), "that would not move the offsets"
    reset(world)
    ExactStart(world).write_all()
    assert world.words() == sorted(2 * WORDS)


def test_a_store_that_is_restored_lacks_rows_until_the_offsets_are_reset_far_enough(
    world: ExactWorld, tmp_path: Path
) -> None:
    """D3216: to before the oldest record that was open at the time of the backup, not to that time."""
    world.bad_words = {"c"}
    start = ExactStart(world)
    evaluated = start.evaluate()
    assert evaluated is not None
    start.publish(start.commit(evaluated))
    begin_ms = world.now_ms - 3_600_000
    world.run(50)
    backup_ms = world.now_ms
    backup = tmp_path / "backup.sqlite"
    shutil.copy(world.store, backup)  # `c` is lost, and waits for its replay
    world.bad_words = set()
    world.run(100)
    world.produce_words("e")
    start.write_all()
    assert world.words() == [*WORDS, "e"]
    start.die()
    shutil.copy(backup, world.store)

    start = ExactStart(world)
    start.write_all()
    assert world.words() == ["a", "b", "d"], "the records since are acked"
    start.die()
    reset(world, at_ms=backup_ms)
    start = ExactStart(world)
    start.write_all()
    assert world.words() == ["a", "b", "d", "e"], "`c` is older than the backup"
    start.die()
    reset(world, at_ms=begin_ms)
    delete_rows(world)
    ExactStart(world).write_all()
    assert world.words() == [*WORDS, "e"]


def delete_rows(world: ExactWorld) -> None:
    """Delete the rows of all records from which on the offsets are reset; here that is all of them."""
    with closing(sqlite3.connect(world.store)) as connection, connection:
        connection.execute("DELETE FROM words")


def test_a_store_that_is_deleted_stays_empty_until_the_offsets_are_reset(world: ExactWorld) -> None:
    """D3216."""
    start = ExactStart(world)
    start.write_all()
    start.die()
    world.store.unlink()
    world.make_store()
    start = ExactStart(world)
    start.write_all()
    assert world.words() == []
    start.die()
    reset(world)
    ExactStart(world).write_all()
    assert world.words() == WORDS


@pytest.mark.parametrize("is_released", [False, True])
def test_what_is_released_without_the_store_may_be_written_twice(
    is_released: bool, world: ExactWorld
) -> None:
    """D3217: the batch was committed and not published. A start alone publishes it, and writes nothing."""
    start = ExactStart(world)
    evaluated = start.evaluate()
    assert evaluated is not None
    start.commit(evaluated)
    start.die()
    if is_released:
        release(world)
    ExactStart(world).write_all()
    assert world.words() == sorted(2 * WORDS if is_released else WORDS)


def release(world: ExactWorld) -> None:
    """Take the group without its store, as `windhover release --without-store` does."""
    world.past_the_store(
        GroupSession(world.cluster.log(), world.topics, "g", new_id="op", without_store=True)
    )


def test_records_of_a_batch_that_ends_each_start_die_and_nothing_of_them_is_in_the_store(
    world: ExactWorld,
) -> None:
    """D3218: where Spark tries a task once, a record that ends its worker ends the query."""
    for _ in range(world.topics.input("sentences").retry.max_abandoned + 1):
        start = ExactStart(world)
        while start.evaluate() is None:
            world.run(500)
        start.die()
    ExactStart(world).write_all()
    assert sorted(world.letters()) == sorted(LINES)
    assert world.words() == []


def test_a_record_that_was_lost_and_has_two_copies_is_written_twice(world: ExactWorld) -> None:
    """D3219: so it is said in section 5.3 of the protocol; nobody knows the one copy from the other."""
    start = ExactStart(world)
    start.evaluate()
    start.die()
    start = ExactStart(world)
    world.run(2_000)
    [copy] = [record for record in world.copies() if record.value == b"c"]
    producer = world.log.producer()
    producer.send(Outgoing(copy.topic, copy.partition, copy.value, copy.key, copy.headers))
    producer.flush(1_000)
    start.write_all()
    assert world.words() == ["a", "b", "c", "c", "d"]
