"""Reading from Kafka: assigned partitions, exact positions, loss as an error.

A position moves by the records that are returned and, at the end of a partition, by librdkafka's EOF
event: its offset lies behind the markers and aborted records that no record tells of. The event comes
when a fetch returns empty, which the broker delays by ``fetch.wait.max.ms``; hence its low value here.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from acker.errors import LogError, TopicError, WindhoverError
from acker.kafka_client import LOGGED, Background, KafkaClient
from acker.log import Record, TopicPartition

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        # default 1,000 ms: a fast reader stands idle up to a second whenever its queue was full
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 100,
        "fetch.max.bytes": 52_428_800,
        "max.partition.fetch.bytes": 8_388_608,
        "queued.max.messages.kbytes": 65_536,
        "queued.min.messages": 100_000,
    }
)
FORCED: Mapping[str, Any] = MappingProxyType(
    {
        **LOGGED,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        # required by librdkafka and never used: partitions are assigned by hand, nothing is committed
        "group.id": "windhover-reader",
        # the largest there is: somebody who reads by hand holds no place that a pause could cost
        "max.poll.interval.ms": 86_400_000,
    }
)


class KafkaReader:
    """Reads assigned partitions; implements `acker.log.Reader`.

    `poll` returns early, without records, when a position passed control records at a partition's end,
    so that who reads to an end need not wait out the timeout.
    """

    def __init__(self, client: KafkaClient, *, committed: bool) -> None:
        """Make a consumer without partitions.

        Args:
            client: settings and deadlines.
            committed: read_committed if true, else read_uncommitted.
        """
        self._client = client
        self._background = Background(client.clock)
        isolation = "read_committed" if committed else "read_uncommitted"
        self._consumer: Consumer = client.make(
            Consumer, DEFAULTS, {**FORCED, "isolation.level": isolation}, self._background
        )
        self._positions: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, WindhoverError] = {}
        self._unchecked: set[str] = set()
        self._counts: dict[str, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment; what stays at its position keeps what was fetched for it."""
        old = self._positions
        gone = [p for p in old if positions.get(p) != old[p] or p in self._failed]
        new = [p for p in positions if old.get(p) != positions[p] or p in self._failed]
        if gone:
            self._consumer.incremental_unassign([_at(p, 0) for p in gone])
        if new:
            self._consumer.incremental_assign([_at(p, positions[p]) for p in new])
        self._positions = dict(positions)
        self._failed = {}
        self._unchecked = {p.topic for p in new if self._counts.get(p.topic, 0) <= p.partition}

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        """Return records as soon as there are any."""
        if self._failed:
            raise next(iter(self._failed.values()))
        self._check_topics()
        deadline = self._client.deadline(timeout_ms)
        while True:
            try:
                first = self._consumer.poll(deadline.left_s)
            except KafkaException as error:  # only what is fatal for the whole client
                raise self._client.error(error.args[0], "reading") from error
            if first is None:
                self._check_answers()
                if deadline.is_over:
                    return ()
                continue
            records, moved = self._take(first, max_records)
            if records:
                return records
            if self._failed:
                raise next(iter(self._failed.values()))
            if moved or deadline.is_over:
                return ()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset up to which everything was returned, control records passed."""
        try:
            return self._positions[partition]
        except KeyError:
            raise LogError(f"{partition} is not assigned to this reader") from None

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _take(self, first: Message, max_records: int) -> tuple[list[Record], bool]:
        """Turn a message and what is queued behind it into records; note ends and errors."""
        self._background.heard()
        with _uncollected():
            messages = [first]
            if max_records > 1 and first.error() is None:
                messages += self._consumer.consume(max_records - 1, 0)
            events = [message for message in messages if message.error()]
            if events:
                messages = [message for message in messages if not message.error()]
            records = [_record(message) for message in messages]
            last = {(record[0], record[1]): record[2] for record in records}
        for name, offset in last.items():
            partition = TopicPartition(*name)
            self._positions[partition] = max(self._positions[partition], offset + 1)
        return records, self._note(events)

    def _note(self, events: list[Message]) -> bool:
        """Keep what events say; tell whether one moved a position."""
        moved = False
        for event in events:
            error = event.error()
            if error is None:
                continue
            partition = TopicPartition(event.topic() or "", event.partition() or 0)
            if error.code() == KafkaError._PARTITION_EOF:
                offset = event.offset()
                if offset is not None and offset > self._positions.get(partition, offset):
                    self._positions[partition] = offset
                    moved = True
            elif partition in self._positions:
                doing = f"reading {partition.topic}/{partition.partition} at {self._positions[partition]}"
                self._failed[partition] = self._client.error(error, doing)
            elif error.fatal():
                raise self._client.error(error, "reading")
        return moved

    def _check_topics(self) -> None:
        """Ask once for each topic how many partitions it has."""
        for topic in sorted(self._unchecked):
            self._counts[topic] = self._client.partitions_of(self._consumer, topic)
            highest = max((p.partition for p in self._positions if p.topic == topic), default=0)
            if highest >= self._counts[topic]:
                raise TopicError(f"reading {topic}/{highest}: it has {self._counts[topic]} partitions")
        self._unchecked = set()

    def _check_answers(self) -> None:
        """Raise when all brokers have been down for longer than an operation may take."""
        limit_ms = self._client.operation_timeout_ms
        if self._background.silent_ms() < limit_ms:
            return
        try:
            self._consumer.list_topics("", 1.0)
        except KafkaException as error:
            raise self._client.unreachable("reading", limit_ms, str(error.args[0])) from error
        self._background.heard()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector while thousands of messages live for a moment.

    Each would count towards a collection that finds nothing; the pause makes reading a third faster.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _record(message: Message) -> Record:
    headers = message.headers()
    return Record(
        message.topic(),  # type: ignore[arg-type]  # None in errors only, which were sorted out
        message.partition(),  # type: ignore[arg-type]
        message.offset(),  # type: ignore[arg-type]
        message.key(),
        message.value(),
        () if headers is None else tuple(headers),  # type: ignore[arg-type]  # a list of pairs, as read
        message.timestamp()[1],
    )


def _at(partition: TopicPartition, offset: int) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
