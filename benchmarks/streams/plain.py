"""The plain consumer that tracking is compared with: confluent-kafka, split and count, no guarantee.

Run as a process of its own, ``python -m benchmarks.streams.plain BOOTSTRAP TOPIC RECORDS``, so that its
CPU seconds are its own; it prints one JSON line.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import Counter

from confluent_kafka import Consumer, KafkaError, TopicPartition

from acker.errors import Unreachable
from acker.kafka.client import CHECKED

IDLE_SECONDS_MAX = 30.0
_RECORDS_PER_CALL = 10_000


def consume_and_count(bootstrap: str, topic: str, records: int) -> tuple[float, int]:
    """Read `records` records from the beginning, split them at blanks and count the words.

    Returns:
        Seconds from the first to the last record, and how many words there were.

    Raises:
        Unreachable: nothing came for `IDLE_SECONDS_MAX`.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "windhover-bench-plain",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,  # the same as the spout's: the default stands idle for a second
            "queued.max.messages.kbytes": 262_144,
            **CHECKED,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    counts: Counter[str] = Counter()
    left, started = records, 0.0
    gc.disable()  # thousands of Message objects trigger collections that find nothing
    while left > 0:
        messages = consumer.consume(min(left, _RECORDS_PER_CALL), timeout=IDLE_SECONDS_MAX)
        if not messages:
            raise Unreachable(f"{topic}: no record for {IDLE_SECONDS_MAX:.0f} s, {left} still to come")
        started = started or time.perf_counter()
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise Unreachable(f"{topic}: {error.str()}")
            counts.update((message.value() or b"").decode().split())
        left -= len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds, counts.total()


def main() -> None:
    """Run from the command line."""
    seconds, words = consume_and_count(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(json.dumps({"seconds": seconds, "words": words}) + "\n")


if __name__ == "__main__":
    main()
