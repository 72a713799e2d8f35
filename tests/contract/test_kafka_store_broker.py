"""The store in topics of Kafka, on a real broker: transactions that take too long, or are refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pyarrow as pa
import pytest

from acker.config.topics import Topics, parse
from acker.errors import ConfigError, RecordRefused, StoreFenced
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, OutgoingColumns, TopicPartition, Transactions
from spout.exactly_once.kafka_store import KafkaStore
from spout.exactly_once.sink_records import sink_partition
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant
from tests.contract.clusters import KafkaCluster
from tests.support.brokers import Broker
from tests.support.waiting import committed, eventually

pytestmark = pytest.mark.kafka

SHORT_MS: Final = 2_000
"""A timeout of transactions; the broker looks every ten seconds for those that are over."""


class Installation:
    """Topics of a test's own, with the settings that its clients have."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.cluster = KafkaCluster(prefix, broker.bootstrap)
        self.topic = self.cluster.topic(name="words", settings={"max.message.bytes": "20000"})
        self._bootstrap = broker.bootstrap
        self._logs: list[Log] = []
        self.cluster.create(self.topics().ack_topics.sink, 1, compacted=True)

    def topics(self, **kafka: object) -> Topics:
        settings = {"bootstrap.servers": self._bootstrap, **kafka}
        text = f"""
            kafka: {settings}
            acker: {{partitions: 1, topic_prefix: "{self.cluster.name("")}"}}
        """
        return parse(text, file="topics.yaml", environ={})

    def store(self, before_commit: Callable[[], object] = lambda: None, **kafka: object) -> KafkaStore:
        """Return a store that does something between its rows and its commit."""
        topics = self.topics(**kafka)

        def connect() -> Log:
            self._logs.append(KafkaLog(topics.kafka))
            return cast("Log", _Interrupted(self._logs[-1], before_commit))

        return KafkaStore(topics, self.topic, connect=connect)

    def values(self) -> list[bytes | None]:
        records = committed(self.cluster.log, [TopicPartition(self.topic, 0)])
        return [record.value for record in records]

    def values_of_any_reader(self) -> list[bytes | None]:
        """Return the values that a reader sees which does not ask for committed records."""
        place = TopicPartition(self.topic, 0)
        end = self.cluster.log.ends([place])[place]
        values: list[bytes | None] = []
        reader = self.cluster.log.reader(committed=False)
        reader.assign({place: 0})

        def is_read() -> bool:
            values.extend(record.value for record in reader.poll(200))
            return reader.position(place) >= end

        eventually(is_read)
        reader.close()
        return values

    def close(self) -> None:
        for log in self._logs:
            log.close()
        self.cluster.close()


class _Interrupted:
    """A log, or its transactions, that does something before a commit with rows."""

    def __init__(self, inner: object, before_commit: Callable[[], object]) -> None:
        self._inner = inner
        self._before_commit = before_commit
        self._has_rows = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transactions(self, transactional_id: str) -> Transactions:
        made = cast("Log", self._inner).transactions(transactional_id)
        return cast("Transactions", _Interrupted(made, self._before_commit))

    def begin(self) -> None:
        self._has_rows = False
        cast("Transactions", self._inner).begin()

    def send_columns(self, columns: OutgoingColumns) -> None:
        self._has_rows = True
        cast("Transactions", self._inner).send_columns(columns)

    def commit(self, timeout_ms: int) -> None:
        transactions = cast("Transactions", self._inner)
        if self._has_rows:
            transactions.flush(timeout_ms)
            self._before_commit()
        transactions.commit(timeout_ms)


@pytest.fixture
def installation(broker: Broker, prefix: str) -> Iterator[Installation]:
    made = Installation(broker, prefix)
    yield made
    made.close()


def key_of(epoch: int = 1, batch: int = 0, group: str = "g") -> BatchKey:
    return BatchKey(group, epoch, "s", "q", batch)


def words(*names: str) -> pa.Table:
    return pa.table({"word": list(names)})


def test_a_driver_that_sleeps_before_its_commit_is_fenced_by_its_successor(
    installation: Installation,
) -> None:
    successor = installation.store()
    slow = installation.store(lambda: successor.open("g", 1))
    slow.open("g", 1)
    with pytest.raises(StoreFenced, match="a later start has opened the store of group g; nothing"):
        slow.commit(key_of(1), words("late"), b"late")
    successor.commit(key_of(2), words("successor"), b"2")

    assert installation.values() == [b'{"word":"successor"}']
    assert installation.store().open("g", 1) == StoreGrant(3, LastBatch(key_of(2), b"2"))


def test_a_reader_that_does_not_ask_for_committed_records_sees_aborted_rows_beside_those_that_count(
    installation: Installation,
) -> None:
    """D3220: the start after the one that died writes the batch's records anew."""
    successor = installation.store()
    first = installation.store(lambda: successor.open("g", 1))
    first.open("g", 1)
    with pytest.raises(StoreFenced):
        first.commit(key_of(1), words("hawk"), b"1")
    successor.commit(key_of(2), words("hawk"), b"2")

    assert installation.values() == [b'{"word":"hawk"}']
    assert installation.values_of_any_reader() == [b'{"word":"hawk"}'] * 2


@pytest.mark.slow
def test_a_transaction_that_the_broker_ends_is_not_taken_for_a_later_start(
    installation: Installation,
) -> None:
    log = installation.cluster.log
    place = TopicPartition(installation.topic, 0)

    def until_the_broker_ends_it() -> None:
        eventually(lambda: log.stable_ends([place]) == log.ends([place]))

    store = installation.store(until_the_broker_ends_it, **{"transaction.timeout.ms": SHORT_MS})
    store.open("g", 1)
    with pytest.raises(StoreFenced, match=r"may take 2,000: raise `kafka\.transaction\.timeout\.ms`"):
        store.commit(key_of(), words("late"), b"1")
    assert installation.values() == []
    assert store.open("g", 1) == StoreGrant(2, None)


@pytest.mark.slow
def test_a_transaction_of_another_group_that_hangs_is_waited_for(installation: Installation) -> None:
    """Its writer has died with records in the partition of `_ack_sink`; ours is committed behind them."""
    store = installation.store()
    store.open("g", 1)
    topics = installation.topics(**{"transaction.timeout.ms": SHORT_MS})
    dead = KafkaLog(topics.kafka).transactions("dead")
    dead.init(20_000)
    dead.begin()
    dead.send(Outgoing(*sink_partition(topics.ack_topics.sink, 1, "h"), b"?", b"state/h"))
    dead.flush(20_000)
    dead.close()
    store.commit(key_of(), words("hawk"), b"hidden")

    assert installation.store().open("g", 1) == StoreGrant(2, LastBatch(key_of(), b"hidden"))


def test_a_timeout_that_the_broker_does_not_take_is_named(installation: Installation) -> None:
    store = installation.store(**{"transaction.timeout.ms": 900_001})
    with pytest.raises(ConfigError, match=r"900001 ms: lower `kafka\.transaction\.timeout\.ms`"):
        store.open("g", 1)


def test_a_record_that_its_topic_refuses_is_named_and_the_writer_goes_on(
    installation: Installation,
) -> None:
    """The client packs small rows into batches that are as small as the topic's limit, too."""
    store = installation.store(**{"batch.size": 10_000})
    store.open("g", 1)
    with pytest.raises(RecordRefused, match=r"2 rows for .*words: raise max\.message\.bytes there"):
        store.commit(key_of(), pa.table({"word": ["fits", os.urandom(40_000).hex()], "n": [1, 2]}), b"1")
    assert installation.values() == []
    store.commit(key_of(batch=1), words(*["w" * 1_000] * 100), b"2")
    assert len(installation.values()) == 100
