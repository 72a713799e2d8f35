"""The contract of all stores: one transaction, whatever dies in it, and one writer, whoever is slow.

Each test runs on each store.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, permutations
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

from acker.errors import StoreFenced, Unreachable, UsageError
from spout.exactly_once.store import BatchKey, LastBatch, Store, StoreGrant
from tests.contract.clusters import Cluster, InMemoryCluster, KafkaCluster
from tests.contract.stores import (
    Row,
    TestedKafka,
    TestedPostgres,
    TestedSQLite,
    TestedStore,
    rows_of,
    words_of,
)

ANY_BYTES: Final = bytes(range(256))

STEPS_MAX: Final = 60
"""A start and a commit have fewer steps."""

SQLITE: Final = "sqlite"
MEMORY: Final = "kafka in memory"
KAFKA: Final = "kafka"

POSTGRES: Final = "postgres"

ON_KAFKA: Final = pytest.param(KAFKA, marks=pytest.mark.kafka)


@pytest.fixture(name="tested", params=[SQLITE, MEMORY, ON_KAFKA, POSTGRES])
def store_of_each_kind(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Iterator[TestedStore]:
    """A store of each kind, without rows."""
    cluster: Cluster
    match request.param:
        case "sqlite":
            yield TestedSQLite(tmp_path / "words.db")
            return
        case "postgres":
            yield TestedPostgres(request.getfixturevalue("database"), f"words-{uuid4().hex}")
            return
        case "kafka":
            cluster = KafkaCluster(prefix, request.getfixturevalue("broker").bootstrap)
        case _:
            cluster = InMemoryCluster(prefix)
    opened = TestedKafka(cluster)
    yield opened
    opened.close()
    cluster.close()


def key_of(epoch: int, batch: int = 0, group: str = "g") -> BatchKey:
    return BatchKey(group, epoch, "s", "q", batch)


def first_batch(tested: TestedStore) -> LastBatch:
    """Write a batch with epoch 1, and return it."""
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1), words_of("before"), b"1")
    return LastBatch(key_of(1), b"1")


def test_a_new_store_grants_what_it_is_asked_for_and_then_more(tested: TestedStore) -> None:
    assert tested.new().open("g", 7) == StoreGrant(7, None)
    assert tested.new().open("g", 3) == StoreGrant(8, None)
    assert tested.new().open("g", 20) == StoreGrant(20, None)
    assert tested.new().open("g", 20) == StoreGrant(21, None)


def test_one_store_may_be_opened_again_and_goes_on(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1), words_of("first"), b"1")
    assert store.open("g", 1) == StoreGrant(2, LastBatch(key_of(1), b"1"))

    with pytest.raises(StoreFenced):
        store.commit(key_of(1, batch=1), words_of("early"), b"2")
    store.commit(key_of(2), words_of("second"), b"3")
    assert tested.words() == ["first", "second"]


def test_rows_key_and_publication_are_there_together(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 7)
    store.commit(key_of(7), words_of("the", "hawk"), b"first")
    store.commit(key_of(7, batch=1), words_of("waits"), b"second")

    assert tested.words() == ["hawk", "the", "waits"]
    assert tested.new().open("g", 7) == StoreGrant(8, LastBatch(key_of(7, batch=1), b"second"))


def test_what_was_written_last_stays_while_only_starts_follow(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1, batch=5), words_of("the"), ANY_BYTES)
    for epoch in range(2, 6):
        assert tested.new().open("g", 1) == StoreGrant(epoch, LastBatch(key_of(1, batch=5), ANY_BYTES))


def test_a_batch_without_rows_keeps_its_publication(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1), words_of(), b"all failed")

    assert tested.words() == []
    assert tested.new().open("g", 1).last_batch == LastBatch(key_of(1), b"all failed")


def test_an_empty_publication_is_one(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1), words_of("the"), b"")

    assert tested.new().open("g", 1).last_batch == LastBatch(key_of(1), b"")


def test_a_large_publication_comes_back_and_a_small_one_replaces_it(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    large = ANY_BYTES * 10_000
    store.commit(key_of(1), words_of("the"), large)
    assert tested.new().open("g", 1).last_batch == LastBatch(key_of(1), large)
    last_writer = tested.new()
    assert last_writer.open("g", 1).last_batch == LastBatch(key_of(1), large)

    last_writer.commit(key_of(3, batch=1), words_of("hawk"), b"small")
    assert tested.new().open("g", 1).last_batch == LastBatch(key_of(3, batch=1), b"small")


@pytest.mark.sample(5)
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_several_writers_only_the_one_that_opened_last_writes(
    tested: TestedStore, order: tuple[int, ...]
) -> None:
    stores = [tested.new() for _ in range(3)]
    for store in stores:
        store.open("g", 1)
    for number in order:
        key, rows = key_of(number + 1), words_of(f"of writer {number}")
        if number == 2:
            stores[number].commit(key, rows, b"written")
        else:
            with pytest.raises(StoreFenced, match="group g"):
                stores[number].commit(key, rows, b"fenced")

    assert tested.words() == ["of writer 2"]
    assert tested.new().open("g", 1).last_batch == LastBatch(key_of(3), b"written")


def test_a_fenced_writer_stays_fenced(tested: TestedStore) -> None:
    slow = tested.new()
    slow.open("g", 1)
    slow.commit(key_of(1), words_of("first"), b"1")
    tested.new().open("g", 1)

    for batch in (1, 2):
        with pytest.raises(StoreFenced):
            slow.commit(key_of(1, batch=batch), words_of("late"), b"2")
    assert tested.words() == ["first"]


def test_a_writer_that_never_opened_the_store_writes_nothing(tested: TestedStore) -> None:
    tested.new().open("g", 1)
    with pytest.raises(StoreFenced):
        tested.new().commit(key_of(1, group="another"), words_of("stray"), b"1")

    assert tested.words() == []
    assert tested.new().open("g", 1) == StoreGrant(2, None)


def test_an_epoch_that_was_not_granted_writes_nothing(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 5)
    for epoch in (4, 6):
        with pytest.raises(StoreFenced):
            store.commit(key_of(epoch), words_of("stray"), b"1")
    store.commit(key_of(5), words_of("fit"), b"2")
    assert tested.words() == ["fit"]


def test_groups_neither_fence_nor_replace_each_other(tested: TestedStore) -> None:
    store = tested.new()
    groups = ("g", "G", "g ", "g/0", "g'; DROP TABLE words; --", 'a "group"', "ä\U0001f985", "g" * 255)
    for number, group in enumerate(groups):
        assert store.open(group, number + 1) == StoreGrant(number + 1, None)
    for number, group in enumerate(groups):
        store.commit(key_of(number + 1, group=group), words_of(f"{number}"), b"%d" % number)

    assert tested.words() == [f"{number}" for number in range(len(groups))]
    for number, group in enumerate(groups):
        last_batch = LastBatch(key_of(number + 1, group=group), b"%d" % number)
        assert tested.new().open(group, 1) == StoreGrant(number + 2, last_batch)


def test_a_key_comes_back_as_it_was_whatever_its_names_are(tested: TestedStore) -> None:
    store = tested.new()
    epoch = 1_790_000_000_123
    store.open("g", epoch)
    key = BatchKey("g", epoch, "s'\"\\ é\n", "\U0001f985" * 100, (1 << 53) - 1)
    store.commit(key, words_of("the"), b"1")
    assert tested.new().open("g", 1) == StoreGrant(epoch + 1, LastBatch(key, b"1"))


def test_odd_values_are_written_as_they_are(tested: TestedStore) -> None:
    rows = [
        Row("", 0, "", b""),
        Row("a null", 1, None, None),
        Row("bytes", -(1 << 63), "\\N", ANY_BYTES),
        Row("delimiters", (1 << 63) - 1, "\t,\"'\\.\n\r\\n", b"\\."),
        Row("ünï \U0001f985", 3, "\u2028", b"\n"),
    ]
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1), rows_of(*rows), b"1")
    assert tested.rows() == rows


def test_many_rows_are_written_in_one_batch_and_in_many_chunks(tested: TestedStore) -> None:
    rows = [Row(f"{number:05}", number, None, b"x" * 100) for number in range(20_000)]
    store = tested.new()
    store.open("g", 1)
    # a table of several chunks, one of them empty
    chunks = [rows_of(*rows[:7]), rows_of(), rows_of(*rows[7:])]
    store.commit(key_of(1), pa.concat_tables(chunks), b"1")
    assert tested.rows() == rows


def test_a_batch_that_is_refused_leaves_everything_and_the_writer_goes_on(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    store.commit(key_of(1), words_of("first"), b"1")
    with pytest.raises(UsageError):
        store.commit(key_of(1, batch=1), tested.unfit(), b"2")
    store.commit(key_of(1, batch=2), words_of("third"), b"3")

    assert tested.words() == ["first", "third"]
    assert tested.new().open("g", 1).last_batch == LastBatch(key_of(1, batch=2), b"3")


def test_two_columns_of_one_name_are_refused_since_one_would_be_lost(tested: TestedStore) -> None:
    store = tested.new()
    store.open("g", 1)
    with pytest.raises(UsageError, match="2 columns of the rows are called word"):
        store.commit(key_of(1), pa.table([["a"], ["b"]], names=["word", "word"]), b"1")
    assert tested.words() == []
    assert tested.new().open("g", 1) == StoreGrant(2, None)


@pytest.mark.sample(3)
def test_whoever_dies_at_any_step_leaves_a_whole_batch_or_nothing(tested: TestedStore) -> None:
    """A start that opens and commits is killed before each of its steps, until it has no more."""
    written = ["before"]
    last_batch = first_batch(tested)
    epoch = 1

    def work(store: Store) -> None:
        grant = store.open("g", 1)
        store.commit(key_of(grant.epoch), words_of("the", "hawk"), b"new")

    was_whole = set()
    for step in count():
        assert step < STEPS_MAX
        has_died = tested.dies(step, work)
        grant = tested.new().open("g", 1)
        assert grant.epoch in (epoch + 1, epoch + 2)
        is_whole = grant.last_batch != last_batch
        if is_whole:
            written += ["hawk", "the"]
            last_batch = LastBatch(key_of(grant.epoch - 1), b"new")
        assert grant.last_batch == last_batch
        assert tested.words() == sorted(written)
        was_whole.add((has_died, is_whole))
        epoch = grant.epoch
        if not has_died:
            break
    assert (True, False) in was_whole
    assert (False, True) in was_whole
    assert (False, False) not in was_whole


@pytest.mark.parametrize("is_done", [True, False], ids=["committed", "not committed"])
def test_a_commit_without_an_answer_is_in_doubt_and_the_next_start_finds_what_became_of_it(
    tested: TestedStore, is_done: bool
) -> None:
    last_batch = first_batch(tested)
    store = tested.new()
    store.open("g", 1)
    with tested.lost_answers(is_done=is_done), pytest.raises(Unreachable):
        store.commit(key_of(2), words_of("in doubt"), b"2")

    grant = tested.new().open("g", 1)
    assert grant == StoreGrant(3, LastBatch(key_of(2), b"2") if is_done else last_batch)
    assert tested.words() == (["before", "in doubt"] if is_done else ["before"])


@pytest.mark.parametrize("is_done", [True, False], ids=["granted", "not granted"])
def test_an_epoch_without_an_answer_is_not_granted_to_another_start(
    tested: TestedStore, is_done: bool
) -> None:
    last_batch = first_batch(tested)
    store = tested.new()
    with tested.lost_answers(is_done=is_done), pytest.raises(Unreachable):
        store.open("g", 1)
    assert tested.new().open("g", 1) == StoreGrant(3 if is_done else 2, last_batch)
    assert tested.words() == ["before"]
