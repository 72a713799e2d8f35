"""A cluster in memory, and stores that write into its topics."""

from __future__ import annotations

import json
from typing import Any, Final

from acker.config.topics import parse
from acker.kafka.port import Record, TopicPartition
from spout.exactly_once.kafka_store import KafkaStore
from spout.exactly_once.sink_records import sink_partition
from tests.support.memory.clients import Faults
from tests.support.memory.cluster import MemoryCluster, MemoryLog

TOPICS: Final = parse(
    "{kafka: {transaction.timeout.ms: 59000}, acker: {partitions: 2},"
    " inputs: {lines: {id: 1, group: g}, others: {id: 2, group: h}}}",
    file="topics.yaml",
    environ={},
)
SINK: Final = TOPICS.ack_topics.sink
PLACE: Final = sink_partition(SINK, 2, "g")


class KafkaStoreWorld:
    """A cluster with the topics of rows."""

    def __init__(self, **settings: str) -> None:
        self.cluster = MemoryCluster(now_ms=1_000)
        self.cluster.create_topic(SINK, 2, compacted=True)
        self.cluster.create_topic("words", 3, settings=settings)
        self.cluster.create_topic("verbs", 1)

    def store(
        self, *, faults: Faults | None = None, log: MemoryLog | None = None, **options: Any
    ) -> KafkaStore:
        made = log or self.cluster.log(faults)
        return KafkaStore(TOPICS, "words", connect=lambda: made, **options)

    def records(self, topic: str = "words") -> list[Record]:
        """Return the committed records of a topic, by partition."""
        log = self.cluster.log()
        reader = log.reader(committed=True)
        places = [TopicPartition(topic, number) for number in range(3 if topic == "words" else 1)]
        reader.assign(dict.fromkeys(places, 0))
        records: list[Record] = []
        while batch := reader.poll(10):
            records += batch
        return sorted(records)

    def values(self, topic: str = "words") -> list[Any]:
        return [json.loads(record.value or b"") for record in self.records(topic)]
