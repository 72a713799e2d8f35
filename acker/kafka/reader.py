"""Reading from Kafka: assigned partitions, exact positions, loss as an error.

A position moves by the records that are returned and, at the end of a partition, by librdkafka's EOF
event: its offset lies behind the markers and aborted records that no record tells of. The event comes
when a fetch returns empty, which the broker delays by ``fetch.wait.max.ms``; hence its low value here.

Where a batch cannot be read, its partition is taken from the client at once, whatever that has fetched behind
it: only the first event of a damaged batch can be believed (`acker.kafka.client.DAMAGE`). The client may ask
for offsets that there are none of, and stop fetching the partition when the answer comes, whatever it was
assigned meanwhile. So it is replaced before that partition is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar, cast

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from acker.errors import TOO_LARGE, Damaged, LogError, TopicError, WindhoverError
from acker.hot_paths import tuple_maker, uncollected
from acker.kafka.client import CHECKED, DAMAGE, LOGGED, Background, KafkaClient, Use
from acker.kafka.damage import first_behind_damage
from acker.kafka.headers import headers_of
from acker.kafka.port import NO_EPOCH, DamagedRun, Operation, Picked, Record, TopicPartition

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
PATIENT: Mapping[str, Any] = MappingProxyType({**DEFAULTS, "fetch.wait.max.ms": 600})
"""Of a reader that follows: the broker answers at once when there is a record, and else after 600 ms."""

ONE_BATCH: Mapping[str, Any] = MappingProxyType(
    {"max.partition.fetch.bytes": 1_048_576, "fetch.max.bytes": 1_048_576}
)
"""Of a reader of topics that anybody may write. The client unpacks an answer as a whole, whatever comes out
of it, and gzip packs a gigabyte into a megabyte. So an answer may have as much as one batch may by default
(`max.message.bytes`): one fetch unpacks to no more than one batch does."""

PICKING: Mapping[str, Any] = MappingProxyType(
    {
        **DEFAULTS,
        **ONE_BATCH,
        "max.partition.fetch.bytes": 65_536,
        # The next answer comes when nearly all of the last one was taken, so two are hardly ever held.
        "queued.max.messages.kbytes": 1_024,
    }
)
"""Of a reader of single records. One that fetches far ahead pays for each jump: with 8 MB of a partition
under way it takes 170 ms, with 64 KB 3 to 10 ms, and it reads straight on as fast; the broker sends whole
batches all the same."""

LOOKING: Mapping[str, Any] = MappingProxyType(
    {
        **PICKING,
        # The broker answers so late that there is nothing; then a position passes what ends a partition.
        "fetch.wait.max.ms": 20,
        # One answer is fetched ahead of what was asked for: what comes next will be read by somebody else.
        "queued.min.messages": 1,
    }
)
"""Of a reader of offsets: 100,000 aborted records of 100 bytes take it 30 to 70 ms, a jump 3 to 10 ms."""

T = TypeVar("T", list[Record], dict[TopicPartition, list[Message]])

TAKEN_BYTES_MAX = 16 << 20
"""Of so many bytes of values, and the next record, a poll returns no more: each is copied into Python."""

VALUE_BYTES_MAX = 100_000_000
"""A record with a larger value is handed out to nobody who works on it: it can neither be copied nor become a
dead letter (`message.max.bytes` of `acker.kafka.writer`), and each step of its work would hold it anew."""

_FIRST_TAKEN = 32
_TAKEN_GROWTH = 4

FORCED: Mapping[str, Any] = MappingProxyType(
    {
        **LOGGED,
        **CHECKED,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # required by librdkafka and never used: partitions are assigned by hand, nothing is committed
        "group.id": "windhover-reader",
        # the largest there is: somebody who reads by hand holds no place that a pause could cost
        "max.poll.interval.ms": 86_400_000,
    }
)


class KafkaReader:
    """Reads assigned partitions; implements `acker.kafka.port.Reader`.

    `poll` returns early, without records, when a position passed control records at a partition's end.
    """

    def __init__(
        self, client: KafkaClient, *, committed: bool, defaults: Mapping[str, Any] = DEFAULTS
    ) -> None:
        self._client = client
        self._background = Background(client.clock)
        isolation = "read_committed" if committed else "read_uncommitted"
        self._settings = defaults, {**FORCED, "isolation.level": isolation}
        self._consumer = self._new_consumer()
        self._positions: dict[TopicPartition, int] = {}
        self._unread: set[TopicPartition] = set()
        self._failed: dict[TopicPartition, WindhoverError] = {}
        self._damaged: dict[TopicPartition, Damaged] = {}  # not assigned to the client
        self._untold: list[Damaged] = []
        self._counts: dict[str, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        if self._damaged.keys() & positions.keys():
            self._replace_consumer()
        old = self._positions
        gone = [p for p in old if positions.get(p) != old[p] or p in self._failed]
        new = [p for p in positions if old.get(p) != positions[p] or p in self._failed]
        not_fetched = self._unread | self._damaged.keys()
        if fetched := [client_partition(p) for p in gone if p not in not_fetched]:
            self._consumer.incremental_unassign(fetched)
        self._unread = (self._unread | set(new)) & positions.keys()
        self._positions = dict(positions)
        self._failed, self._damaged, self._untold = {}, {}, []

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        return self._wait(timeout_ms, lambda first: self._records(first, max_records)) or ()

    def poll_messages(self, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[Message]]:
        """Do as `poll` does, and leave the records in the client's own form: making ours costs a third."""
        return self._wait(timeout_ms, lambda first: self._messages(first, max_records)) or {}

    def _wait(self, timeout_ms: int, take: Callable[[Message], tuple[T, bool]]) -> T | None:
        """Wait for a first message and return what `take` makes of it; None when there is nothing.

        `take` returns records, and whether a position moved without one.
        """
        self._raise_what_stopped()
        self._begin()
        deadline = self._client.deadline(timeout_ms)
        while True:
            try:
                first = self._consumer.poll(deadline.left_s)
            except KafkaException as error:  # only what is fatal for the whole client
                raise self._client.error(error.args[0], "reading") from error
            if first is None:
                self._client.check_answers(self._consumer, "", "reading", self._background)
                if deadline.is_over:
                    self._raise_damage()
                    return None
                continue
            records, moved = take(first)
            if records:
                return records
            self._raise_what_stopped()
            if deadline.is_over:
                self._raise_damage()
            if moved or deadline.is_over:
                return None

    def _raise_what_stopped(self) -> None:
        """Raise why a partition cannot be read on; of damage once."""
        if self._failed:
            raise next(iter(self._failed.values()))
        if self._untold:
            raise self._untold.pop(0)

    def _raise_damage(self) -> None:
        """Raise of damage again, where there is nothing else to return."""
        if self._damaged:
            raise next(iter(self._damaged.values()))

    def position(self, partition: TopicPartition) -> int:
        try:
            return self._positions[partition]
        except KeyError:
            raise LogError(f"{partition} is not assigned to this reader") from None

    def pass_over(self, partition: TopicPartition) -> DamagedRun:
        start = self.position(partition)
        end = first_behind_damage(self._client, partition, start)
        damaged = self._damaged.get(partition)
        why = "nothing of it can be read" if damaged is None else damaged.why
        self._replace_consumer()
        self._positions[partition] = end
        run = DamagedRun(*partition, start, end, why)
        self._client.note_passed_over(run)
        return run

    def close(self) -> None:
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        defaults, forced = self._settings
        return self._client.make(Consumer, defaults, forced, self._background)

    def _replace_consumer(self) -> None:
        """Read all partitions by a new client, from their positions on; what this one has fetched is lost."""
        self._consumer.close()
        self._consumer = self._new_consumer()
        self._unread = set(self._positions)
        self._failed, self._damaged, self._untold = {}, {}, []

    def _records(self, first: Message, max_records: int) -> tuple[list[Record], bool]:
        with uncollected():
            messages, events = self._queued(first, max_records)
            records = [record_of(message) for message in messages]
            last = {(record[0], record[1]): record[2] for record in records}
        self._advance(last)
        return records, self._note(events)

    def _queued(self, first: Message, max_records: int) -> tuple[list[Message], list[Message]]:
        self._client.answered(self._background)
        messages = [first]
        if max_records > 1 and first.error() is None:
            messages = ready_messages(self._consumer, first, max_records, TAKEN_BYTES_MAX)
        events = list(filter(Message.error, messages))
        if not events:
            return messages, events
        if any(is_damage(event) for event in events):
            messages = before_damage(messages)
            events = list(filter(Message.error, messages))
        return [message for message in messages if not message.error()], events

    def _advance(self, last: Mapping[tuple[str, int], int]) -> None:
        for name, offset in last.items():
            partition = TopicPartition(*name)
            self._positions[partition] = max(self._positions[partition], offset + 1)

    def _messages(self, first: Message, max_records: int) -> tuple[dict[TopicPartition, list[Message]], bool]:
        with uncollected():
            messages, events = self._queued(first, max_records)
            groups = by_partition(messages)
        self._advance({name: group[-1].offset() or 0 for name, group in groups.items()})
        return groups, self._note(events)

    def _note(self, events: list[Message]) -> bool:
        moved = False
        for event in events:
            error = cast("KafkaError", event.error())
            partition = _place_of(event)
            if error.code() == KafkaError._PARTITION_EOF:
                offset = event.offset()
                if offset is not None and offset > self._positions.get(partition, offset):
                    self._positions[partition] = offset
                    moved = True
            elif partition in self._damaged:
                continue  # what the client makes of bytes within the batch
            elif partition in self._positions and is_damage(event):
                self._stop_at_damage(partition, error)
            elif partition in self._positions:
                doing = f"reading {partition.topic}/{partition.partition} at {self._positions[partition]}"
                use = Use(Operation.READ, topic=partition.topic)
                self._failed[partition] = self._client.error(error, doing, use=use)
            elif error.fatal():
                raise self._client.error(error, "reading")
        return moved

    def _stop_at_damage(self, partition: TopicPartition, error: KafkaError) -> None:
        damaged = self._client.damage(error, partition, self._positions[partition])
        self._damaged[partition] = damaged
        self._untold.append(damaged)
        self._consumer.incremental_unassign([client_partition(partition)])

    def _begin(self) -> None:
        """Begin to fetch new partitions, once it is certain that they are there.

        In this order: a broker answers the requests of a connection one after another, so a question that
        is sent behind a fetch waits as long as the fetch, `fetch.wait.max.ms` where there are no records.
        """
        for topic in sorted({p.topic for p in self._unread if self._counts.get(p.topic, 0) <= p.partition}):
            self._counts[topic] = self._client.partitions_of(self._consumer, topic, self._background)
            highest = max(p.partition for p in self._positions if p.topic == topic)
            if highest >= self._counts[topic]:
                raise TopicError(f"reading {topic}/{highest}: it has {self._counts[topic]} partitions")
        if self._unread:
            self._consumer.incremental_assign([client_partition(p, self._positions[p]) for p in self._unread])
            self._unread = set()


def ready_messages(consumer: Consumer, first: Message, most: int, bytes_max: int) -> list[Message]:
    """Return a message and what the client has fetched behind it: `most`, or some `bytes_max` of values.

    A client copies all messages that it is asked for, and nobody knows their sizes before. So it is asked for
    few, then for more: 32, 128, 512 and so on, while as many of the last ones' mean size would fit.
    """
    messages = [first]
    bytes_left = bytes_max - len(first)
    step = _FIRST_TAKEN
    while len(messages) < most and bytes_left > 0:
        requested = min(step, most - len(messages))
        more = consumer.consume(requested, 0)
        messages += more
        if len(more) < requested:
            break
        more_bytes = sum(map(len, more))
        bytes_left -= more_bytes
        fitting = bytes_left * len(more) // max(1, more_bytes)
        step = max(1, min(step * _TAKEN_GROWTH, fitting))
    return messages


def too_large_runs(messages: Sequence[Message]) -> list[DamagedRun]:
    """Return of each record that is larger than anybody can work on its place, and why."""
    if max(map(len, messages), default=0) <= VALUE_BYTES_MAX:  # a message's length is that of its value
        return []
    return [_too_large_run(message) for message in messages if len(message) > VALUE_BYTES_MAX]


def _too_large_run(message: Message) -> DamagedRun:
    offset = message.offset() or 0
    size = len(message)
    why = f"{TOO_LARGE}a record of {size:,} bytes, more than the {VALUE_BYTES_MAX:,} that can be handled"
    return DamagedRun(*_place_of(message), offset, offset + 1, why)


def by_partition(messages: list[Message]) -> dict[TopicPartition, list[Message]]:
    """Group messages by partition, in order. They come in runs, so few are looked at one by one."""
    found: defaultdict[TopicPartition, list[Message]] = defaultdict(list)
    topics = list(map(Message.topic, messages))
    if topics.count(topics[0] if topics else None) < len(topics):
        for message in messages:
            found[_place_of(message)].append(message)
        return found
    numbers = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
    edges = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
    for start, end in pairwise([0, *edges, len(messages)] if messages else []):
        found[TopicPartition(topics[0] or "", int(numbers[start]))] += messages[start:end]
    return found


def is_damage(event: Message) -> bool:
    error = event.error()
    return error is not None and error.code() in DAMAGE


def before_damage(messages: list[Message]) -> list[Message]:
    """Return messages without those that come behind a damaged batch of their partition; its event stays."""
    stopped: set[TopicPartition] = set()
    believed: list[Message] = []
    for message in messages:
        place = _place_of(message)
        if place not in stopped:
            believed.append(message)
        if is_damage(message):
            stopped.add(place)
    return believed


def _place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


_record = tuple_maker(Record)


def record_of(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    return _record(
        (
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            headers_of(message),
            timestamp_ms,
            kind - 1,  # the client counts from 0: unknown, created, appended
            NO_EPOCH if (epoch := message.leader_epoch()) is None else epoch,
        )
    )


def client_partition(partition: TopicPartition, offset: int = 0) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)


_Offsets = Mapping[TopicPartition, Container[int]]


class KafkaPicker(KafkaReader):
    """Reads single committed records; implements `acker.kafka.port.Picker`."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(client, committed=True, defaults=PICKING)
        self._offsets: _Offsets = {}
        self._passed = self._passed_bytes = 0

    def pick(self, timeout_ms: int, offsets: _Offsets, max_records: int = 1000) -> Picked:
        self._offsets, self._passed, self._passed_bytes = offsets, 0, 0
        return Picked(self.poll(timeout_ms, max_records), self._passed, self._passed_bytes)

    def _records(self, first: Message, max_records: int) -> tuple[list[Record], bool]:
        with uncollected():
            messages, events = self._queued(first, max_records)
            last, kept = self._sorted_out(messages)
            records = [record_of(message) for message in kept]
            # a message's length is that of its value
            self._passed_bytes += sum(map(len, messages)) - sum(map(len, kept))
        self._passed += len(messages) - len(kept)
        self._advance(last)
        return records, self._note(events) or bool(messages)

    def _sorted_out(self, messages: list[Message]) -> tuple[dict[tuple[str, int], int], list[Message]]:
        """Return the last offset of each partition, and the messages that are wanted."""
        ends = {_place_of(message) for message in (*messages[:1], *messages[-1:])}
        is_one = len(ends) == 1 and ends == self._positions.keys()  # the usual case: nothing to group
        groups = {ends.pop(): messages} if is_one else by_partition(messages)
        last: dict[tuple[str, int], int] = {p: group[-1].offset() or 0 for p, group in groups.items()}
        kept: list[Message] = []
        for place, group in groups.items():
            offsets = self._offsets.get(place, ())
            kept += [message for message in group if message.offset() in offsets]
        return last, kept


class KafkaOffsetReader(KafkaReader):
    """Reads which offsets hold a committed record; implements `acker.kafka.port.OffsetReader`."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(client, committed=True, defaults=LOOKING)

    def offsets(self, timeout_ms: int, max_records: int = 1000) -> Mapping[TopicPartition, Sequence[int]]:
        groups = self.poll_messages(timeout_ms, max_records)
        return {place: [message.offset() or 0 for message in messages] for place, messages in groups.items()}

    @property
    def troubled(self) -> Collection[TopicPartition]:
        return self._failed.keys()
