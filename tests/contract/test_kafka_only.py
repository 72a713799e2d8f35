"""What the port promises when Kafka is away, and what only the real one can be asked."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from acker.errors import ConfigError, RecordRefused, Unreachable
from acker.kafka import headers
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, Outgoing, OutgoingColumns, Record, TopicPartition
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker
from tests.contract.clusters import TIMEOUT_MS, KafkaCluster, read_count, values
from tests.support.brokers import Broker
from tests.support.odd_records import NAMES
from tests.support.waiting import eventually
from tests.torture.stage.proxy import Proxy

SECRET = "hunter2-and-more"
NOWHERE = TopicPartition("nowhere", 0)


@pytest.fixture
def dead() -> Iterator[str]:
    """An address at which nobody listens, and nobody will while the test runs."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


@pytest.fixture
def lost(dead: str) -> Log:
    """A log of a cluster that does not answer, with a secret among its settings."""
    settings = {"bootstrap.servers": dead, "sasl.password": SECRET, "ssl.key.password": SECRET}
    return KafkaLog(settings, operation_timeout_ms=1000)


def _poll_reader(log: Log) -> None:
    reader = log.reader(committed=True)
    reader.assign({NOWHERE: 0})
    reader.poll(100)


def _poll_member(log: Log) -> None:
    member = log.join("group", ["nowhere"])
    eventually(lambda: member.poll(100) == {0})


def _write(log: Log) -> None:
    producer = log.producer()
    producer.send(Outgoing("nowhere", 0, b"v"))
    producer.flush(500)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "call",
    [
        lambda log: log.ends([NOWHERE]),
        lambda log: log.offsets_at([NOWHERE], 5),
        lambda log: log.topics(["nowhere"]),
        lambda log: log.committed("group", [NOWHERE]),
        lambda log: log.commit("group", {NOWHERE: 1}),
        lambda log: log.delete_before({NOWHERE: 1}),
        lambda log: log.transactions("owner").init(500),
        _poll_reader,
        _poll_member,
        _write,
    ],
    ids=[
        "ends",
        "offsets_at",
        "topics",
        "committed",
        "commit",
        "delete",
        "init",
        "reader",
        "member",
        "write",
    ],
)
def test_a_cluster_that_does_not_answer_is_unreachable_after_the_deadline(
    lost: Log, dead: str, call: Callable[[Log], None]
) -> None:
    """The message names the address, and no secret."""
    with pytest.raises(Unreachable) as raised:
        call(lost)
    assert dead in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_log_does_not_show_its_secrets(lost: Log, dead: str) -> None:
    """Nor do the readers and writers that it made."""
    shown = [repr(each) for each in (lost, lost.reader(committed=True), lost.producer())]
    assert dead in shown[0]
    assert not any(SECRET in text for text in shown)


def test_a_setting_that_librdkafka_refuses_is_an_error_of_the_configuration(dead: str) -> None:
    """It names the setting, not its value."""
    log = KafkaLog({"bootstrap.servers": dead, "fetch.wait.max.ms": SECRET})
    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms") as raised:
        log.reader(committed=True)
    assert SECRET not in str(raised.value)


def test_settings_that_a_guarantee_rests_on_cannot_be_overruled(broker: Broker, prefix: str) -> None:
    """A reader with auto.offset.reset from outside still refuses to jump."""
    cluster = KafkaCluster(prefix, broker.bootstrap)
    partition = TopicPartition(cluster.topic(), 0)
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "latest", "acks": "0"}
    reader = KafkaLog(settings).reader(committed=True)
    reader.assign({partition: 77})
    with pytest.raises(Exception, match="not in the log"):
        eventually(lambda: bool(reader.poll(100)))
    reader.close()
    cluster.close()


def test_what_the_client_itself_refuses_is_a_refused_record_too(broker: Broker, prefix: str) -> None:
    """O211: before, it was an aborted transaction, which is tried again until the worker ends."""
    opened = KafkaCluster(prefix, broker.bootstrap)
    topic = opened.topic()
    log = KafkaLog({"bootstrap.servers": broker.bootstrap, "message.max.bytes": "2000"})
    owner = log.transactions(f"{prefix}small")
    try:
        owner.init(TIMEOUT_MS)
        for _ in range(2):
            owner.begin()
            owner.send_all([Outgoing(topic, 0, b"good"), Outgoing(topic, 0, bytes(5_000))])
            with pytest.raises(RecordRefused) as refused:
                owner.commit(TIMEOUT_MS)
            assert refused.value.reason == "MSG_SIZE_TOO_LARGE: Broker: Message size too large"
        opened.commit(owner, Outgoing(topic, 0, b"good"))
        place = TopicPartition(topic, 0)
        assert values(read_count(opened.reader({place: 0}), 1)) == [b"good"]
    finally:
        owner.close()
        opened.close()
        log.close()


@pytest.mark.parametrize(
    ("settings", "odd_value"),
    [({"queue.buffering.max.messages": "700"}, b"4321"), ({"message.max.bytes": "2000"}, bytes(5_000))],
    ids=["the queue is full", "a record is refused at once"],
)
def test_what_the_client_does_not_take_among_columns_is_queued_later_or_told(
    broker: Broker, prefix: str, settings: dict[str, str], odd_value: bytes
) -> None:
    """O211"""
    opened = KafkaCluster(prefix, broker.bootstrap)
    topic = opened.topic()
    log = KafkaLog({"bootstrap.servers": broker.bootstrap, **settings})
    owner = log.transactions(f"{prefix}columns")
    sent = [b"%d" % number for number in range(10_000)]
    with closing(log), closing(opened), closing(owner):
        owner.init(TIMEOUT_MS)
        owner.begin()
        owner.send_columns(OutgoingColumns(topic, [0] * 10_000, [*sent[:4321], odd_value, *sent[4322:]]))
        if len(odd_value) > 2_000:
            with pytest.raises(RecordRefused, match="MSG_SIZE_TOO_LARGE"):
                owner.commit(TIMEOUT_MS)
            owner.begin()
            owner.send_columns(OutgoingColumns(topic, [0] * 10_000, sent))
        owner.commit(TIMEOUT_MS)
        assert values(read_count(opened.reader({TopicPartition(topic, 0): 0}), 10_000)) == sent


def test_a_readers_first_question_does_not_wait_behind_its_fetch(broker: Broker, prefix: str) -> None:
    """A broker answers a connection's requests one after another, and a fetch of nothing is held back."""
    held_back = {"bootstrap.servers": broker.bootstrap, "fetch.wait.max.ms": "30000"}
    log = KafkaLog(held_back, operation_timeout_ms=5_000)
    cluster = KafkaCluster(prefix, broker.bootstrap)
    place = TopicPartition(cluster.topic(), 0)
    reader = log.reader(committed=True)
    reader.assign({place: 0})
    cluster.write(Outgoing(place.topic, 0, b"v"))
    read_count(cluster.reader({place: 0}), 1)  # by then the first one would fetch, too
    assert values(reader.poll(5_000)) == [b"v"]
    reader.close()
    cluster.close()
    log.close()


@pytest.mark.slow
def test_readers_and_writers_go_on_when_the_broker_is_back(prefix: str) -> None:
    """P60: while it is away they raise `Unreachable`; nothing that was sent is lost or read twice."""
    with EmbeddedBroker() as broker:
        cluster = KafkaCluster(prefix, broker.bootstrap)
        topic = cluster.topic()
        log = KafkaLog({"bootstrap.servers": broker.bootstrap}, operation_timeout_ms=1000)
        reader, producer = log.reader(committed=True), log.producer()
        owner = cluster.owner()
        cluster.commit(owner, Outgoing(topic, 0, b"before"))
        reader.assign({TopicPartition(topic, 0): 0})
        assert values(read_count(reader, 1)) == [b"before"]

        broker.kill()
        producer.send(Outgoing(topic, 0, b"while away"))
        with pytest.raises(Unreachable):
            producer.flush(500)
        with pytest.raises(Unreachable):
            eventually(lambda: bool(reader.poll(100)))
        owner.begin()
        owner.send(Outgoing(topic, 0, b"in a transaction"))

        broker.restart()
        producer.flush(TIMEOUT_MS)
        owner.commit(TIMEOUT_MS)
        found: list[Record] = []

        def both_are_read() -> bool:
            with suppress(Unreachable):  # its connection may still be on its way back
                found.extend(reader.poll(100))
            return len(found) >= 2

        eventually(both_are_read)
        assert {record.value for record in found} == {b"in a transaction", b"while away"}
        assert len(found) == 2
        for each in (reader, producer, cluster):
            each.close()


@pytest.mark.slow
def test_questions_about_offsets_are_answered_again_when_the_broker_is_back(prefix: str) -> None:
    """A broker that was killed leads with a higher epoch; librdkafka goes on asking with the one it knew.

    It looks again by itself when nobody listens at the broker's address for a while. Behind a proxy, or a
    service of Kubernetes, somebody always does.
    """
    with Proxy() as proxy, EmbeddedBroker(listeners={"PROXIED": proxy.port}) as broker:
        proxy.connect_to(broker.listener_port("PROXIED"))
        cluster = KafkaCluster(prefix, broker.bootstrap)
        partition = TopicPartition(cluster.topic(), 0)
        log = KafkaLog({"bootstrap.servers": f"{HOST}:{proxy.port}"})
        assert log.ends([partition]) == {partition: 0}

        broker.kill()
        broker.restart()
        producer = KafkaLog({"bootstrap.servers": broker.bootstrap}).producer()
        producer.send(Outgoing(partition.topic, 0, b"under another leader"))
        producer.flush(TIMEOUT_MS)
        assert log.ends([partition]) == {partition: 1}
        assert log.stable_ends([partition]) == {partition: 1}
        assert log.starts([partition]) == {partition: 0}
        for each in (producer, log, cluster):
            each.close()


@pytest.mark.slow
def test_a_commit_that_is_asked_for_while_the_broker_is_away_goes_through_when_it_is_back(
    prefix: str,
) -> None:
    """librdkafka's request for the coordinator that it knew would wait out whatever time it is given."""
    with Proxy() as proxy, EmbeddedBroker(listeners={"PROXIED": proxy.port}) as broker:
        proxy.connect_to(broker.listener_port("PROXIED"))
        cluster = KafkaCluster(prefix, broker.bootstrap)
        partition = TopicPartition(cluster.topic(), 0)
        log = KafkaLog({"bootstrap.servers": f"{HOST}:{proxy.port}"})
        log.commit(prefix, {partition: 1})

        broker.kill()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(log.commit, prefix, {partition: 2})
            broker.restart()
            asked.result()
        assert log.committed(prefix, [partition]) == {partition: 2}
        for each in (log, cluster):
            each.close()


MEETS_AGAIN = """
import gc, os, signal, sys
from acker.errors import Unreachable
from acker.kafka.cluster import KafkaLog

bootstrap, pid = sys.argv[1], int(sys.argv[2])
gc.disable()  # the collector may come long after the broker
log = KafkaLog({"bootstrap.servers": bootstrap}, operation_timeout_ms=1000)
os.kill(pid, signal.SIGSTOP)
try:
    log.members("group")
except Unreachable as error:
    kept = error
os.kill(pid, signal.SIGCONT)
for _ in range(30):
    KafkaLog({"bootstrap.servers": bootstrap}).members("group")
print(kept)
"""


@pytest.mark.slow
def test_a_process_outlives_the_return_of_a_broker_that_it_asked_for_a_group_in_vain() -> None:
    """An assertion of librdkafka ended it, when the client of that question met the broker again."""
    with EmbeddedBroker() as broker:
        command = [sys.executable, "-c", MEETS_AGAIN, broker.bootstrap, str(broker.pid)]
        try:
            ended = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=TIMEOUT_MS / 1_000
            )
        finally:
            os.kill(broker.pid or 0, signal.SIGCONT)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("members of group group: no answer from Kafka")


def test_the_clients_own_messages_come_by_partition_and_move_the_positions(
    broker: Broker, prefix: str
) -> None:
    """What a spout without Spark reads: markers are passed, as `poll` passes them."""
    cluster = KafkaCluster(prefix, broker.bootstrap)
    topic = cluster.topic(2)
    log = KafkaLog({"bootstrap.servers": broker.bootstrap})
    producer = log.producer()
    for number in range(6):
        producer.send(Outgoing(topic, number % 2, b"%d" % number))
    producer.flush(TIMEOUT_MS)
    transactions = log.transactions(f"{prefix}t")
    transactions.init(TIMEOUT_MS)
    transactions.begin()
    transactions.send(Outgoing(topic, 0, b"6"))
    transactions.commit(TIMEOUT_MS)
    reader = log.message_reader()
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    reader.assign(dict.fromkeys(places, 0))
    found: dict[TopicPartition, list[bytes | None]] = {place: [] for place in places}

    def all_passed() -> bool:
        for place, messages in reader.poll_messages(100, 4).items():
            found[place] += [message.value() for message in messages]
        return [reader.position(place) for place in places] == [5, 3]  # a marker ends the first

    eventually(all_passed)
    assert found == {places[0]: [b"0", b"2", b"4", b"6"], places[1]: [b"1", b"3", b"5"]}
    for client in (reader, producer, transactions, log):
        client.close()


def test_the_first_odd_name_of_a_topic_is_logged_with_its_place(
    broker: Broker, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O103: one line for a topic, not for each record; another topic has a line of its own."""
    with closing(KafkaCluster(prefix, broker.bootstrap)) as cluster:
        places = [TopicPartition(cluster.topic(name=name), 0) for name in ("first", "second")]
        for place in (places[0], places[0], places[1]):
            cluster.write(Outgoing(*place, b"sound"))
            cluster.write_raw(place, NAMES[0])
        with caplog.at_level(logging.WARNING, headers.__name__):
            for place, count in zip(places, (4, 2), strict=True):
                read_count(cluster.reader({place: 0}), count)
    lines = [line.getMessage() for line in caplog.records if line.name == headers.__name__]
    first, second = lines
    assert f"header_name_unreadable record={places[0].topic}/0@1 names='\\\\xff\\\\xfe'" in first
    assert f"record={places[1].topic}/0@1" in second
