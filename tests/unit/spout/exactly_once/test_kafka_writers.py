"""The writers of a store in Kafka: when each is closed, and what it does behind an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import Aborted, ConfigError, LogError, StoreFenced, Unreachable, UsageError
from acker.kafka.port import Outgoing, Transactions
from spout.exactly_once.kafka_store import KafkaStore
from spout.exactly_once.sink_records import SinkOpened, sink_codec
from spout.exactly_once.store import StoreGrant, refuse_exact
from tests.support.exact_batches import key_of
from tests.support.memory.clients import FailingByPlan, Faults, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.kafka_stores import PLACE, TOPICS, KafkaStoreWorld


class Kept(MemoryLog):
    """A log that remembers its transactional writers, and whether it was closed."""

    def __init__(self, world: KafkaStoreWorld, faults: Faults | None = None) -> None:
        super().__init__(world.cluster, faults or NoFaults())
        self.writers: list[Transactions] = []
        self.is_closed = False

    def transactions(self, transactional_id: str) -> Transactions:
        """Make one, and remember it."""
        self.writers.append(super().transactions(transactional_id))
        return self.writers[-1]

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True

    def closed(self) -> list[bool]:
        """Return of each writer whether it was closed."""
        return [_is_closed(writer) for writer in self.writers]


def _is_closed(writer: Transactions) -> bool:
    try:
        writer.begin()
    except LogError as error:
        return "is closed" in str(error)
    writer.abort(0)
    return False


def words(*names: str) -> pa.Table:
    return pa.table({"word": list(names)})


def test_each_group_has_one_writer_and_all_are_closed_with_the_store() -> None:
    world = KafkaStoreWorld()
    log = Kept(world)
    store = world.store(log=log)
    store.close()
    assert not log.is_closed, "nothing was open"
    store.open("g", 1)
    store.open("another", 1)
    assert log.closed() == [False, False]
    store.open("g", 1)
    assert log.closed() == [True, False, False]
    store.close()
    assert (log.closed(), log.is_closed) == ([True] * 3, True)


def test_a_store_that_was_closed_connects_again() -> None:
    world = KafkaStoreWorld()
    logs = [Kept(world), Kept(world)]
    to_connect = iter(logs)
    store = KafkaStore(TOPICS, "words", connect=lambda: next(to_connect))
    for epoch in (1, 2):
        assert store.open("g", 1).epoch == epoch
        store.close()
    assert [len(log.writers) for log in logs] == [1, 1]
    assert all(log.is_closed for log in logs)


def test_a_broker_that_refuses_a_start_for_another_reason_is_quoted() -> None:
    refused = LogError("refused by b: CLUSTER_AUTHORIZATION_FAILED")
    store = KafkaStoreWorld().store(faults=FailingByPlan("init", refused, [True]))
    with pytest.raises(LogError, match="CLUSTER_AUTHORIZATION_FAILED") as raised:
        store.open("g", 1)
    assert not isinstance(raised.value, ConfigError)


@pytest.mark.parametrize("operation", ["init", "starts", "ends", "poll", "commit"])
def test_a_start_that_fails_leaves_no_writer_behind(operation: str) -> None:
    world = KafkaStoreWorld()
    world.store().open("g", 1)  # there is something to be read
    log = Kept(world, FailingByPlan(operation, Unreachable("no answer"), [True]))
    store = world.store(log=log)
    with pytest.raises(Unreachable):
        store.open("g", 1)
    assert log.closed() == [True]
    assert store.open("g", 1).epoch >= 2
    assert log.closed() == [True, False]


@pytest.mark.parametrize("error", [Unreachable("no answer"), Aborted("moved")])
def test_a_writer_of_which_nobody_knows_what_it_wrote_writes_nothing_more(error: Exception) -> None:
    """One that is sure to have written nothing goes on."""
    world = KafkaStoreWorld()
    log = Kept(world, FailingByPlan("commit", error, [False, *[True] * 3]))
    store = world.store(log=log)
    store.open("g", 1)
    with pytest.raises(type(error)):
        store.commit(key_of(), words("lost"), b"1")
    is_dead = isinstance(error, Unreachable)
    if is_dead:
        with pytest.raises(
            StoreFenced, match="epoch 0 is granted to this store for group g, and the batch has 1"
        ):
            store.commit(key_of(batch=1), words("later"), b"2")
    assert log.closed() == [is_dead]


def test_a_writer_whose_rows_cannot_be_encoded_ends_its_transaction_and_goes_on() -> None:
    """Rows before the bad one were sent already."""
    world = KafkaStoreWorld()
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    store = world.store(value=schema)
    store.open("g", 1)
    with pytest.raises(UsageError, match="row 9000 of the batch"):
        store.commit(key_of(), pa.table({"n": [0] * 9_000 + [None]}), b"1")
    store.commit(key_of(batch=1), pa.table({"n": [1]}), b"2")
    assert [record.value for record in world.records()] == [b"\x02"]


def test_an_epoch_whose_transaction_was_aborted_was_not_granted() -> None:
    world = KafkaStoreWorld()
    writer = world.cluster.log().transactions("somebody")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing(*PLACE, sink_codec().encode(SinkOpened(40)), b"state/g"))
    writer.abort(0)
    assert world.store().open("g", 1) == StoreGrant(1, None)


def test_another_groups_transaction_is_waited_for_as_long_as_a_broker_lets_it_be_open() -> None:
    world = KafkaStoreWorld()
    another = world.cluster.log().transactions("another")
    another.init(0)
    another.begin()
    another.send(Outgoing(*PLACE, b"?", b"state/another"))
    with pytest.raises(Unreachable, match=re.escape("for 74000 ms")):
        world.store().open("g", 1)


class Store:
    """What a store has, and no more."""

    def open(self) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Do nothing."""


class ExactSink:
    """Says that it writes exactly once."""

    is_exact = True


class File:
    """Has a method of a store, and is none."""

    is_exact = False

    def open(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("write", "is_refused"), [(Store(), True), (ExactSink(), True), (File(), False), (print, False)]
)
def test_a_store_is_no_function_of_a_batchs_rows(write: Callable[..., Any], is_refused: bool) -> None:
    if not is_refused:
        refuse_exact(write, "sink")
        return
    with pytest.raises(UsageError, match="sink does not write exactly once, as a store is written"):
        refuse_exact(write, "sink")
