"""librdkafka's consumer over logs in memory: what a fetch brings, by a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from acker.kafka.damage import NAMELESS
from acker.kafka.port import TopicPartition
from tests.support.given_client import GivenClient
from tests.support.steady_clock import SteadyClock

SILENT_DAMAGE: Final = 0
"""The damage of a batch of which no event comes at all."""

CREATED: Final = 1
"""The client's number for a time that the producer gave a record."""


@dataclass(frozen=True)
class Batch:
    """A batch of a log: which offsets have records, and where the next batch begins.

    Attributes:
        damage: the code of the event in place of the records; None: it can be read.
        size: how many bytes each value has.
    """

    start: int
    next: int
    offsets: tuple[int, ...] = ()
    damage: int | None = None
    size: int = 1


def batch(start: int, next_: int, *, damage: int | None = None, size: int = 1) -> Batch:
    """Return a batch with a record at each of its offsets."""
    return Batch(start, next_, tuple(range(start, next_)), damage, size)


@dataclass
class FakeKafka:
    """The logs that consumers fetch from.

    Attributes:
        logs: the batches of each partition.
        log_starts: the first offset of a log that has lost its beginning; of others it is 0.
        partition_counts: how many partitions a topic has, where it is not those of `logs`.
        errors: by partition, the event that comes in place of all that it has.
        silent: whether no question is answered.
        dying: what the next poll raises.
        topics_asked: the topics that consumers have asked for.
        on_assign: what happens when a consumer is assigned anew; None: it reads as the client does.
        consumers: all that were made.
    """

    clock: SteadyClock = field(default_factory=SteadyClock)
    logs: dict[TopicPartition, list[Batch]] = field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    silent: bool = False
    dying: KafkaError | None = None
    topics_asked: list[str] = field(default_factory=list)
    on_assign: Callable[[FakeConsumer, list[confluent_kafka.TopicPartition]], None] | None = None
    consumers: list[FakeConsumer] = field(default_factory=list)

    def client(self, settings: Mapping[str, str] | None = None, timeout_ms: int = 30_000) -> GivenClient:
        """Return a client whose consumers fetch from here."""

        def make(made_by: dict[str, Any]) -> FakeConsumer:
            self.consumers.append(FakeConsumer(self, made_by))
            return self.last

        return GivenClient(make, timeout_ms, self.clock, kafka_sleep(self.clock), settings)

    @property
    def last(self) -> FakeConsumer:
        """The newest consumer."""
        return self.consumers[-1]

    def end(self, place: TopicPartition) -> int:
        """Return where a log ends."""
        batches = self.logs.get(place, [])
        return batches[-1].next if batches else 0

    def fetched(self, place: TopicPartition, position: int, *, is_one_batch: bool) -> Iterator[Message]:
        """Yield what a consumer gets of a partition from a position on."""
        if place in self.errors:
            yield event(place, self.errors[place], position)
            return
        if position < self.log_starts.get(place, 0):
            yield event(place, KafkaError(KafkaError._AUTO_OFFSET_RESET), position)
            return
        for fetched_batch in self.logs.get(place, []):
            if fetched_batch.next <= position:
                continue
            if fetched_batch.damage == SILENT_DAMAGE:
                return
            if fetched_batch.damage is not None:
                named = position if fetched_batch.damage in NAMELESS else fetched_batch.start
                yield event(place, KafkaError(fetched_batch.damage), named)
                # the client goes on in the middle of the batch, and takes what it finds there for batches
                yield message(place, fetched_batch.next + 1_000)
                yield event(place, KafkaError(KafkaError._BAD_MSG), fetched_batch.next + 2_000)
                yield event(place, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE), fetched_batch.next + 3_000)
                return
            offsets = [offset for offset in fetched_batch.offsets if offset >= position]
            if is_one_batch and offsets:
                yield message(place, offsets[0], fetched_batch.size)
                return
            for offset in offsets:
                yield message(place, offset, fetched_batch.size)
        yield event(place, KafkaError(KafkaError._PARTITION_EOF), self.end(place))


def message(place: TopicPartition, offset: int, size: int = 1) -> Message:
    """Return a record of the client."""
    return Message(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        value=bytes(size),
        timestamp=(CREATED, 1_000 + offset),
    )


def event(place: TopicPartition, error: KafkaError, offset: int) -> Message:
    """Return an event of a partition."""
    return Message(topic=place.topic, partition=place.partition, offset=offset, error=error)


class FakeConsumer:
    """Hands out what its assigned partitions have, one partition after the other.

    Attributes:
        settings: those that it was made with.
        assigned: the partitions that it reads, each with the offset from which it was told to read it.
        calls: what was assigned and unassigned, in order.
        waits_s: how long each question was to wait for its answer.
        is_closed: whether it was closed.
    """

    def __init__(self, kafka: FakeKafka, settings: Mapping[str, Any]) -> None:
        """Begin without a partition."""
        self.settings = dict(settings)
        self.assigned: dict[TopicPartition, int] = {}
        self.calls: list[tuple[str, dict[TopicPartition, int]]] = []
        self.waits_s: list[float] = []
        self.is_closed = False
        self.queue: list[Message] = []
        self._kafka = kafka

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Read further partitions; as the client does, refuse one that is read already."""
        positions = {TopicPartition(part.topic, part.partition): part.offset for part in partitions}
        self.calls.append(("assign", positions))
        assert not self.is_closed
        assert not positions.keys() & self.assigned.keys(), "the client refuses it"
        self.assigned |= positions
        is_one_batch = self.settings.get("max.partition.fetch.bytes") == 1
        for place, position in sorted(positions.items()):
            self.queue += self._kafka.fetched(place, position, is_one_batch=is_one_batch)

    def assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Read these partitions, in place of all others."""
        if self._kafka.on_assign is not None:
            self._kafka.on_assign(self, partitions)
            return
        self.assigned.clear()
        self.queue.clear()
        self.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Read partitions no longer; refuse one that is not read."""
        places = {TopicPartition(part.topic, part.partition): 0 for part in partitions}
        self.calls.append(("unassign", places))
        assert not self.is_closed
        assert places.keys() <= self.assigned.keys(), "the client refuses it"
        for place in places:
            del self.assigned[place]
        self.queue = [fetched for fetched in self.queue if place_of(fetched) not in places]

    def poll(self, timeout_s: float) -> Message | None:
        """Return the next message; without one, wait."""
        assert not self.is_closed
        if self._kafka.dying is not None:
            raise KafkaException(self._kafka.dying)
        if self.queue:
            return self.queue.pop(0)
        self._kafka.clock.now_s += timeout_s
        return None

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        """Return the next messages; nobody waits for more."""
        assert timeout_s == 0
        taken, self.queue = self.queue[:most], self.queue[most:]
        return taken

    def list_topics(self, topic: str, timeout: float = -1) -> object:
        """Return the metadata of a topic."""
        self._kafka.topics_asked.append(topic)
        self.waits_s.append(timeout)
        if self._kafka.silent:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no answer"))
        numbers = [place.partition for place in self._kafka.logs if place.topic == topic]
        count = self._kafka.partition_counts.get(topic, max(numbers, default=-1) + 1)
        partitions = {number: SimpleNamespace(leader=1, replicas=[1]) for number in range(count)}
        error = None if count else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        brokers = {1: SimpleNamespace(host="kafka-1", port=9092)}
        return SimpleNamespace(
            topics={topic: SimpleNamespace(partitions=partitions, error=error)}, brokers=brokers
        )

    def get_watermark_offsets(
        self, partition: confluent_kafka.TopicPartition, timeout_s: float, *, cached: bool
    ) -> tuple[int, int]:
        """Return where a partition begins and ends."""
        assert not cached
        self.waits_s.append(timeout_s)
        if self._kafka.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        place = TopicPartition(partition.topic, partition.partition)
        return self._kafka.log_starts.get(place, 0), self._kafka.end(place)

    def close(self) -> None:
        """End."""
        self.is_closed = True


def place_of(fetched: Message) -> TopicPartition:
    """Return the partition of a message."""
    return TopicPartition(fetched.topic() or "", fetched.partition() or 0)


def kafka_sleep(clock: SteadyClock) -> Callable[[float], None]:
    """Return a sleep that moves a clock."""

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    return sleep
