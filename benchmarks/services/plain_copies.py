"""What the replay worker is held against: a plain loop of confluent-kafka that copies the same records.

It reads the partition from its first wanted record on, as committed, and writes each wanted record with
headers like those of a copy, in transactions of as many records as the worker's. It knows nothing of due
times, histories or the topic's id, and writes no tombstones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import confluent_kafka

from acker.config.limits import ReplayLimits
from acker.errors import CheckFailed
from acker.identity import I64
from acker.kafka.client import CHECKED

PATIENCE_S = 30.0
CONSUMED = 10_000

_HEADERS: list[tuple[str, str | bytes | None]] = [
    ("windhover.origin", b"bench/0@123456"), ("windhover.attempt", b"2"), ("windhover.abandoned", b"0"),
    ("windhover.reason", b"FAILED"), ("windhover.cause", b"ValueError: a line without words"),
    ("windhover.operator", b"split"), ("windhover.first-emitted", b"1800000000000"),
    ("windhover.history", b"x" * 200),
]  # fmt: skip


def copies_a_second(kafka: Mapping[str, str], topic: str, to: str, wanted: I64) -> float:
    """Copy the records at ascending offsets of partition 0.

    Raises:
        CheckFailed: one does not come.
    """
    reading = {
        **kafka,
        "group.id": "bench-plain-copies",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.queue.backoff.ms": 5,
        **CHECKED,
    }
    writing = {**kafka, "transactional.id": "bench-plain-copies", "linger.ms": 5, "compression.type": "lz4"}
    consumer, producer = confluent_kafka.Consumer(reading), confluent_kafka.Producer(writing)
    producer.init_transactions(PATIENCE_S)
    begun = time.perf_counter()
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, int(wanted[0]))])
    left, size = set(wanted.tolist()), ReplayLimits().fire_max
    heard, in_transaction = time.monotonic(), 0
    while left:
        for message in consumer.consume(CONSUMED, 0.05):
            heard = time.monotonic()
            if message.offset() not in left:
                continue
            if not in_transaction:
                producer.begin_transaction()
            left.discard(message.offset() or 0)
            producer.produce(to, message.value(), message.key(), 0, headers=_HEADERS)
            in_transaction += 1
            if in_transaction == size or not left:
                producer.commit_transaction(PATIENCE_S)
                in_transaction = 0
        if time.monotonic() - heard > PATIENCE_S:
            raise CheckFailed(f"a plain consumer did not find {len(left):,} records")
    rate = len(wanted) / (time.perf_counter() - begun)
    consumer.close()
    return rate
