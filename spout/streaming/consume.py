"""Reads exact ranges of offsets from one Kafka partition, in a task of Spark.

A range may end in control records or records of aborted transactions, which a client never shows: reading
ends with the first message at or behind the end, or with the partition's EOF event. A consumer costs 5 to
12 ms to make, so one that stands where the next batch goes on is kept in the worker process; a `seek` would
cost as much, and throw away what was fetched ahead.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from acker.errors import DataLoss, Disagreement, WindhoverError
from acker.kafka.client import SILENT, Background, KafkaClient
from acker.kafka.refusals import Use
from acker.kafka.rights import Operation

CHUNK_RECORDS = 8_192
"""Messages taken at a time; also the size of the batches that bolts see."""

WAIT_MS = 200
"""A chunk that is not full is handed on after this."""

STALL_MS = 60_000
"""A broker that sends nothing for so long does not answer."""

CONSUMERS_KEPT = 4
"""Idle consumers kept in a worker process; each may hold some MB that were fetched ahead."""

SETTINGS: Mapping[str, Any] = {
    "group.id": "windhover-read",  # required by the client; nothing is ever committed under it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # Nobody serves the log of a consumer that is kept; what matters comes as an exception.
    **SILENT,
    # By default the client idles for up to a second whenever its queue was full.
    "fetch.queue.backoff.ms": 5,
    # What is fetched beyond a range is lost when the next one is read by another worker. A tenth of the
    # default is as fast, with 40 ms of slack at 250,000 records/s.
    "queued.min.messages": 10_000,
}


NOT_OURS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""The client looks for the coordinator of its group, of which nothing is ever asked; it need not find it."""


class Place(NamedTuple):
    """Where a kept consumer stands, and of which cluster."""

    cluster: str
    topic: str
    partition: int
    offset: int


class Kept:
    """Consumers that wait for the next batch, the longest waiting first."""

    def __init__(self, limit: int = CONSUMERS_KEPT) -> None:
        """Keep at most `limit` consumers."""
        self._limit = limit
        self._idle: dict[Place, Consumer] = {}

    def take(self, place: Place) -> Consumer | None:
        """Take out the consumer that stands at a place, or None."""
        return self._idle.pop(place, None)

    def put(self, place: Place, consumer: Consumer) -> None:
        """Keep a consumer; the longest waiting one is closed when there are too many."""
        self._idle[place] = consumer
        if len(self._idle) > self._limit:
            self._idle.pop(next(iter(self._idle))).close()


_KEPT = Kept()
# A worker process has no owner that could hold this: tasks come and go in it.


class Share(NamedTuple):
    """The offsets [start, end) of one partition, and whether what has left the log is passed over."""

    topic: str
    partition: int
    start: int
    end: int
    skips_loss: bool = False


class RangeReader:
    """Reads a share of a batch.

    Attributes:
        lost: how many offsets had left the log before they were read, and were passed over.
    """

    def __init__(self, settings: Mapping[str, str], share: Share, kept: Kept = _KEPT) -> None:
        """Prepare; the broker is first asked by `chunks`."""
        self.lost = 0
        self._client = KafkaClient(settings, "windhover-read", STALL_MS, time.monotonic)
        self._background = Background(time.monotonic)
        self._topic, self._partition, self._next, self._end, self._skips_loss = share
        self._kept = kept
        self._is_lost = False

    @property
    def _place(self) -> Place:
        return Place(self._client.bootstrap, self._topic, self._partition, self._next)

    def chunks(self) -> Iterator[list[Message]]:
        """Return the records of the range, in order, in lists of at most `CHUNK_RECORDS`.

        Raises:
            DataLoss: the log begins behind a wanted offset, which the share does not pass over.
            Disagreement: the log ends before a wanted offset.
            NotAuthenticated: the broker does not let us in.
            NotAuthorized: it does not let us read.
            Unreachable: it sent nothing for a minute.
            LogError: it refused.
        """
        consumer = self._kept.take(self._place)
        fresh = consumer is None
        if consumer is None:
            consumer = self._open()
        try:
            idle_ms = 0
            seen_end = False
            while self._next < self._end:
                messages = consumer.consume(min(CHUNK_RECORDS, self._end - self._next), WAIT_MS / 1000)
                records, end = self._accept(messages)
                if records:
                    yield records
                if self._is_lost:
                    self._pass_over(consumer)
                    consumer.close()
                    consumer, fresh, seen_end = self._open(), True, False
                    continue
                if end is not None and (fresh or end >= self._end):
                    break
                # A kept consumer may bring the event of the batch before. When nothing follows it, only a
                # consumer without a past can tell.
                seen_end = seen_end or end is not None
                idle_ms = 0 if messages else idle_ms + WAIT_MS
                if messages:
                    self._background.heard()
                elif idle_ms >= STALL_MS or self._background.is_hopeless:
                    raise self._stalled(consumer, idle_ms)
                if idle_ms and seen_end and not fresh:
                    consumer.close()
                    consumer, fresh = self._open(), True
        except KafkaException as error:
            consumer.close()
            raise self._refusal(error.args[0]) from error
        except (GeneratorExit, WindhoverError):
            consumer.close()
            raise
        self._keep(consumer)

    def _open(self) -> Consumer:
        consumer: Consumer = self._client.make(Consumer, SETTINGS, {}, self._background)
        consumer.assign([TopicPartition(self._topic, self._partition, self._next)])
        return consumer

    def _accept(self, messages: list[Message]) -> tuple[list[Message], int | None]:
        """Split off events: return the records of the range, and where the partition ended, if it did."""
        end: int | None = None
        events = [message for message in messages if message.error() is not None]
        if events:
            for event in events:
                if self._is_end(event.error()):
                    end = event.offset() or 0
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return messages, end
        last = messages[-1].offset() or 0
        self._next = last + 1
        if last >= self._end:
            messages = [message for message in messages if (message.offset() or 0) < self._end]
        return messages, end

    def _is_end(self, error: KafkaError | None) -> bool:
        """Tell whether an event is the partition's end; note that the next offset is not in the log."""
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in NOT_OURS:
            return False
        if error.code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self._refusal(error)
        self._is_lost = True
        return False

    def _pass_over(self, consumer: Consumer) -> None:
        """Go on where the log begins now; at the end of the share if that lies behind it."""
        self._is_lost = False
        place = TopicPartition(self._topic, self._partition)
        first, end = consumer.get_watermark_offsets(place, STALL_MS / 1000, cached=False)
        if first <= self._next:
            raise Disagreement(
                f"{self._where()}: the log holds {first} to {end}: the topic was created again, or cut; run"
                " `windhover offsets reset` for its input"
            )
        if not self._skips_loss:
            raise DataLoss(
                f"{self._where()} left the log, which begins at {first}, after the batch was planned; set"
                " on_data_loss: skip to go on without such records, or raise the topic's retention"
            )
        self.lost += min(first, self._end) - self._next
        self._next = min(first, self._end)

    def _refusal(self, error: KafkaError) -> WindhoverError:
        return self._client.error(error, self._where(), use=Use(Operation.READ, topic=self._topic))

    def _stalled(self, consumer: Consumer, idle_ms: int) -> WindhoverError:
        """Say why nothing comes; a topic that we may not know of is silent too, until it is asked for."""
        if not self._background.is_hopeless:
            self._client.partitions_of(consumer, self._topic, self._background)
        return self._client.unreachable(self._where(), idle_ms, "nothing came", self._background)

    def _keep(self, consumer: Consumer) -> None:
        if self._next == self._end:
            self._kept.put(self._place, consumer)
        else:
            consumer.close()

    def _where(self) -> str:
        return f"{self._topic}/{self._partition}@{self._next}"
