"""A torture's producer, on a cluster in memory."""

from __future__ import annotations

import itertools

import pytest

from acker.kafka.port import TopicPartition
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.waiting import eventually
from tests.torture.stage.producer import NumberedProducer
from tests.torture.workload import NUMBER, UNDONE

NOBODY = "127.0.0.1:1"
"""No broker is there: what no client can write is left open."""


@pytest.fixture
def log() -> MemoryLog:
    cluster = MemoryCluster()
    cluster.create_topic("t", 2)
    return cluster.log()


def test_what_the_broker_acknowledged_is_in_the_topic_and_what_was_undone_is_not(log: MemoryLog) -> None:
    clock = itertools.count(0, 1_000)  # a second between two looks
    producer = NumberedProducer(log, "t", 2, 10.0, lambda: next(clock), NOBODY)
    producer.start()
    eventually(lambda: len(producer.durable) > 100, 20)
    producer.stop()
    places = [TopicPartition("t", partition) for partition in range(2)]
    found = {True: set[int](), False: set[int]()}
    for committed, numbers in found.items():
        reader = log.reader(committed=committed)
        reader.assign(dict.fromkeys(places, 0))
        while records := reader.poll(0):
            numbers |= {int(dict(record.headers)[NUMBER] or b"") for record in records}
            assert not committed or UNDONE.encode() not in {record.value for record in records}
        reader.close()
    assert found[True] == producer.durable
    assert len(found[False] - found[True]) >= 5
