"""Reading from Kafka: assigned partitions, exact positions, loss as an error.

A position moves by the records that are returned and, at the end of a
partition, by librdkafka's EOF event: its offset lies behind the markers and
aborted records, which are not returned. The event comes when a fetch returns
empty, which the broker delays by ``fetch.wait.max.ms``; hence its low value
here.

If a batch cannot be read, its partition is taken from the client at once,
whatever that has fetched behind it: only the first event of a damaged batch
can be believed (`acker.kafka.client.DAMAGE`). The client may ask for offsets
that do not exist, and stop fetching the partition when the answer comes,
whatever it was assigned meanwhile. So the client is replaced before that
partition is read again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

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
        # default 1,000 ms: a fast reader stands idle up to a second whenever
        # its queue was full
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 100,
        "fetch.max.bytes": 52_428_800,
        "max.partition.fetch.bytes": 8_388_608,
        "queued.max.messages.kbytes": 65_536,
        "queued.min.messages": 100_000,
    }
)
PATIENT: Mapping[str, Any] = MappingProxyType({**DEFAULTS, "fetch.wait.max.ms": 600})
"""Of a patient reader: the broker answers at once when there is a record, and else after 600 ms."""

ONE_BATCH: Mapping[str, Any] = MappingProxyType(
    {"max.partition.fetch.bytes": 1_048_576, "fetch.max.bytes": 1_048_576}
)
"""Of a reader of topics that anybody may write. The client unpacks an answer
as a whole, whatever comes out of it, and gzip packs a gigabyte into a
megabyte. So an answer may have as much as one batch may by default
(`max.message.bytes`): one fetch unpacks to no more than one batch does."""

PICKING: Mapping[str, Any] = MappingProxyType(
    {
        **DEFAULTS,
        **ONE_BATCH,
        "max.partition.fetch.bytes": 65_536,
        # The next answer comes when nearly all of the last one was taken, so
        # two are hardly ever held.
        "queued.max.messages.kbytes": 1_024,
    }
)
"""Of a reader of single records. One that fetches far ahead pays for each
jump: with 8 MB of a partition under way it takes 170 ms, with 64 KB 3 to 10
ms, and it reads straight on as fast; the broker sends whole batches all the
same."""

LOOKING: Mapping[str, Any] = MappingProxyType(
    {
        **PICKING,
        # The broker answers so late that there is nothing; then a position
        # passes what ends a partition.
        "fetch.wait.max.ms": 20,
        # One answer is fetched ahead of what was asked for: what comes next
        # will be read by somebody else.
        "queued.min.messages": 1,
    }
)
"""Of a reader of offsets: 100,000 aborted records of 100 bytes take it 30 to 70 ms, a jump 3 to 10 ms."""

T = TypeVar("T", list[Record], dict[TopicPartition, list[Message]])


class _Taken(NamedTuple, Generic[T]):
    """What a poll took from the client: records, and whether a position moved without one.

    Without records, and without a move, the poll goes on waiting.
    """

    records: T
    has_moved: bool


class _Fetched(NamedTuple):
    """What a poll took from the client.

    Attributes:
        messages: those with a record; their values have `value_bytes` in all.
        events: those with an error, or with the end of a partition.
    """

    messages: list[Message]
    events: list[Message]
    value_bytes: int


TAKEN_BYTES_MAX: Final = 16 << 20
"""A poll takes no further record once it has so many bytes of values: each is copied into Python."""

VALUE_BYTES_MAX: Final = 100_000_000
"""A record with a larger value is not handed out: it can neither be copied
nor become a dead letter (`message.max.bytes` of `acker.kafka.writer`), and
each step of its work would hold it anew."""

_FIRST_COUNT: Final = 32
_COUNT_GROWTH: Final = 4
"""The consumer is asked for 32 messages behind the first one, then for at most four times as many."""

FORCED: Mapping[str, Any] = MappingProxyType(
    {
        **LOGGED,
        **CHECKED,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # required by librdkafka and never used: partitions are assigned by
        # hand, nothing is committed
        "group.id": "windhover-reader",
        # the largest there is: a reader has no place in a group that a pause
        # could cost it
        "max.poll.interval.ms": 86_400_000,
    }
)


class KafkaReader:
    """Reads assigned partitions; implements `acker.kafka.port.Reader`.

    `poll` returns early, without records, when a position passed control
    records at a partition's end.
    """

    def __init__(
        self, client: KafkaClient, *, committed: bool, defaults: Mapping[str, Any] = DEFAULTS
    ) -> None:
        """Make the consumer; no partition is assigned to this reader yet.

        Args:
            client: what the clients of one view of a cluster share.
            committed: whether to read only what was committed; else all
                records are read, those of open and aborted transactions too.
            defaults: settings of the consumer; the user's settings replace
                them.
        """
        self._client = client
        self._background = Background(client.clock)  # what the consumer's own threads report
        isolation = "read_committed" if committed else "read_uncommitted"
        self._defaults = defaults
        # settings that the user's may not replace
        self._forced = {**FORCED, "isolation.level": isolation}
        self._consumer = self._new_consumer()
        # by assigned partition, the offset of the record that is returned next; at an end without a
        # further record, the offset of that end
        self._positions: dict[TopicPartition, int] = {}
        # partitions of `_positions` that the consumer does not have yet: the next poll assigns them
        self._not_yet_at_consumer: set[TopicPartition] = set()
        # why partitions cannot be read on; each poll raises one of them until `_forget_errors`
        self._error_by_partition: dict[TopicPartition, WindhoverError] = {}
        # damage at which partitions stand; the consumer does not read these any more
        self._damage_by_partition: dict[TopicPartition, Damaged] = {}
        self._unraised_damage: list[Damaged] = []  # damage that no poll has raised yet
        # as the broker answered last; a partition number below it exists
        self._partition_count_by_topic: dict[str, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, each from its position; see `acker.kafka.port.Assigned`."""
        # A consumer that met damage may ask for offsets that do not exist, so a new one reads on.
        if self._damage_by_partition.keys() & positions.keys():
            self._replace_consumer()
        former_positions = self._positions
        # A partition that stays where it is keeps what was fetched, unless it
        # failed. One that moves is taken from the consumer, and assigned to it
        # again by the next poll (`_assign_to_consumer`).
        partitions_to_stop = {
            partition
            for partition in former_positions
            if positions.get(partition) != former_positions[partition]
        }
        partitions_to_start = {
            partition
            for partition, position in positions.items()
            if former_positions.get(partition) != position
        }
        partitions_to_stop |= self._error_by_partition.keys() & former_positions.keys()
        partitions_to_start |= self._error_by_partition.keys() & positions.keys()
        # the consumer does not have these: they were not assigned to it yet, or damage has stopped
        # them
        partitions_to_stop -= self._not_yet_at_consumer | self._damage_by_partition.keys()
        if partitions_to_stop:
            self._consumer.incremental_unassign(
                [client_partition(partition) for partition in partitions_to_stop]
            )
        self._not_yet_at_consumer |= partitions_to_start
        self._not_yet_at_consumer &= positions.keys()
        self._positions = dict(positions)
        self._forget_errors()

    def _forget_errors(self) -> None:
        """Forget why partitions stopped: all are assigned anew."""
        self._error_by_partition = {}
        self._damage_by_partition = {}
        self._unraised_damage = []

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        return self._poll_until(timeout_ms, lambda message: self._take_records(message, max_records)) or ()

    def poll_messages(self, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[Message]]:
        """Poll as `poll` does, and return the client's own messages: to make records costs a third."""
        return self._poll_until(timeout_ms, lambda message: self._take_messages(message, max_records)) or {}

    def _poll_until(self, timeout_ms: int, take: Callable[[Message], _Taken[T]]) -> T | None:
        """Wait for a message, and return the records that `take` makes of it and of what is
        fetched behind.

        None: no message came until the timeout, or only such as moved a
        position without a record. An error of a partition is raised at once, by
        each call. Damage is raised at once the first time; later only when there
        is nothing else to return.
        """
        self._raise_error_or_new_damage()
        self._assign_to_consumer()
        deadline = self._client.deadline(timeout_ms)
        while True:
            try:
                message = self._consumer.poll(deadline.left_s)
            except KafkaException as error:  # only what is fatal for the whole client
                raise self._client.error(error.args[0], "reading") from error
            if message is None:
                # raises `Unreachable` if all brokers have been down for long
                self._client.require_answers(self._consumer, "", "reading", self._background)
                if deadline.is_over:
                    self._raise_damage_again()
                    return None
                continue
            records, has_moved = take(message)
            if records:
                return records
            self._raise_error_or_new_damage()
            if deadline.is_over:
                self._raise_damage_again()
            if has_moved or deadline.is_over:
                return None

    def _raise_error_or_new_damage(self) -> None:
        """Raise why a partition cannot be read on. Returns if there is nothing to raise.

        An error of a partition is raised at each call until all partitions are
        assigned anew. Damage is raised here only once, as soon as it was met.
        """
        if self._error_by_partition:
            raise next(iter(self._error_by_partition.values()))
        if self._unraised_damage:
            raise self._unraised_damage.pop(0)

    def _raise_damage_again(self) -> None:
        """Raise the damage of a partition again: for a call that has nothing else to return.

        Returns if there is none.
        """
        if self._damage_by_partition:
            raise next(iter(self._damage_by_partition.values()))

    def position(self, partition: TopicPartition) -> int:
        try:
            return self._positions[partition]
        except KeyError:
            raise LogError(f"{partition} is not assigned to this reader") from None

    def pass_over(self, partition: TopicPartition) -> DamagedRun:
        """Go on behind the damage at the position of a partition.

        See `acker.kafka.port.Assigned`.
        """
        start = self.position(partition)
        end = first_behind_damage(self._client, partition, start)
        damage = self._damage_by_partition.get(partition)
        # None: no event has named the damage, the partition just brought nothing
        why = "nothing of it can be read" if damage is None else damage.why
        self._replace_consumer()
        self._positions[partition] = end
        run = DamagedRun(*partition, start, end, why)
        self._client.record_passed_over(run)
        return run

    def close(self) -> None:
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return self._client.make_client(Consumer, self._defaults, self._forced, self._background)

    def _replace_consumer(self) -> None:
        """Read all partitions by a new consumer, from their positions on.

        What this one has fetched, and not returned, is fetched again.
        """
        self._consumer.close()
        self._consumer = self._new_consumer()
        self._not_yet_at_consumer = set(self._positions)
        self._forget_errors()

    def _take_records(self, message: Message, max_records: int) -> _Taken[list[Record]]:
        """Return a message and what is fetched behind it, as records, and move the positions behind them."""
        with uncollected():
            messages, events, _ = self._take_fetched(message, max_records)
            records = [record_of(message) for message in messages]
            # By (topic, partition) the last offset: offsets ascend, so a partition's last record is
            # the one that stays. By index, since an attribute costs more, and this is done for each
            # record: 0 is the topic, 1 the partition, 2 the offset.
            last_offsets = {(record[0], record[1]): record[2] for record in records}
        self._move_positions(last_offsets)
        return _Taken(records, self._apply_events(events))

    def _take_messages(
        self, message: Message, max_records: int
    ) -> _Taken[dict[TopicPartition, list[Message]]]:
        """Return a message and what is fetched behind it, by partition.

        Move the positions behind the last message of each partition. `_take_records` does the
        same, and returns records.
        """
        with uncollected():
            # the third is how many bytes the values have: only `KafkaPicker` needs it
            messages, events, _ = self._take_fetched(message, max_records)
            messages_by_partition = by_partition(messages)
        self._move_positions(_last_offsets(messages_by_partition))
        return _Taken(messages_by_partition, self._apply_events(events))

    def _take_fetched(self, message: Message, max_records: int) -> _Fetched:
        """Take what the client has fetched behind a message.

        Events are messages with an error, or with the end of a partition. What
        comes behind damage in its partition is in neither: it cannot be believed.
        """
        self._client.record_answer(self._background)
        ready = ReadyMessages([message], len(message))
        if max_records > 1 and message.error() is None:
            ready = ready_messages(self._consumer, message, max_records, TAKEN_BYTES_MAX)
        messages = ready.messages
        events = list(filter(Message.error, messages))
        if not events:
            return _Fetched(messages, events, ready.value_bytes)
        if any(is_damage(event) for event in events):
            messages = before_damage(messages)
            events = list(filter(Message.error, messages))
        with_record = [message for message in messages if not message.error()]
        return _Fetched(with_record, events, sum(map(len, with_record)))

    def _move_positions(
        self, last_offsets: Mapping[tuple[str, int], int] | Mapping[TopicPartition, int]
    ) -> None:
        """Move positions behind the last records that are returned, never backwards.

        `last_offsets` has by partition, or by its topic and number, the offset of that record.
        """
        for topic_and_number, offset in last_offsets.items():
            partition = TopicPartition(*topic_and_number)
            self._positions[partition] = max(self._positions[partition], offset + 1)

    def _apply_events(self, events: list[Message]) -> bool:
        """Keep the errors of partitions, to be raised.

        Return whether a position moved to an end.
        """
        has_moved = False
        for event in events:
            error = cast("KafkaError", event.error())
            partition = _partition_of(event)
            if error.code() == KafkaError._PARTITION_EOF:
                # without a position the partition was taken from this reader meanwhile
                end = event.offset()
                if end is not None and end > self._positions.get(partition, end):
                    self._positions[partition] = end
                    has_moved = True
            elif partition in self._damage_by_partition:
                continue  # behind damage the client takes bytes within the batch for batches, and errs
            elif partition in self._positions and is_damage(event):
                self._stop_at_damage(partition, error)
            elif partition in self._positions:
                doing = f"reading {partition.name} at {self._positions[partition]}"
                use = Use(Operation.READ, topic=partition.topic)
                self._error_by_partition[partition] = self._client.error(error, doing, use=use)
            elif error.fatal():  # of the whole client; else the partition is not read any more
                raise self._client.error(error, "reading")
        return has_moved

    def _stop_at_damage(self, partition: TopicPartition, error: KafkaError) -> None:
        """Make the client stop reading a damaged partition, and keep the error to be raised."""
        damage = self._client.damage_error(error, partition, self._positions[partition])
        self._damage_by_partition[partition] = damage
        self._unraised_damage.append(damage)
        self._consumer.incremental_unassign([client_partition(partition)])

    def _assign_to_consumer(self) -> None:
        """Begin to fetch new partitions, once it is certain that they exist; else raise
        `TopicError`.

        In this order: a broker answers the requests of a connection one after
        another, so a question that is sent behind a fetch waits as long as
        the fetch, `fetch.wait.max.ms` where there are no records.
        """
        if not self._not_yet_at_consumer:
            return
        # how many partitions a topic has is asked only if it had too few at the last question
        topics_to_ask: set[str] = set()
        for partition in self._not_yet_at_consumer:
            if partition.partition >= self._partition_count_by_topic.get(partition.topic, 0):
                topics_to_ask.add(partition.topic)
        for topic in sorted(topics_to_ask):
            count = self._client.partition_count(self._consumer, topic, self._background)
            self._partition_count_by_topic[topic] = count
            numbers = [partition.partition for partition in self._positions if partition.topic == topic]
            highest = max(numbers)
            if highest >= count:
                raise TopicError(f"reading {topic}/{highest}: it has {count} partitions")
        to_fetch = [client_partition(place, self._positions[place]) for place in self._not_yet_at_consumer]
        self._consumer.incremental_assign(to_fetch)
        self._not_yet_at_consumer = set()


class ReadyMessages(NamedTuple):
    """What a client had ready; `value_bytes` are those of the messages' values, all together."""

    messages: list[Message]
    value_bytes: int


def ready_messages(
    consumer: Consumer, first_message: Message, count_max: int, bytes_max: int
) -> ReadyMessages:
    """Return a message and those that the client has fetched behind it, without waiting.

    They are `count_max` messages at most, and have hardly more bytes of
    values than `bytes_max`.

    A consumer copies all messages that it is asked for, and nobody knows their
    sizes before. So it is asked for few, then for more: 32, 128, 512 and so
    on, but no more than would fit by the mean size of the last ones.
    """
    messages = [first_message]
    value_bytes = len(first_message)  # a message's length is that of its value
    next_count = _FIRST_COUNT
    while len(messages) < count_max and value_bytes < bytes_max:
        requested_count = min(next_count, count_max - len(messages))
        taken = consumer.consume(requested_count, 0)
        messages += taken
        taken_bytes = sum(map(len, taken))
        value_bytes += taken_bytes
        if len(taken) < requested_count:  # no more is fetched
            break
        # as many as fit if they are as large as these were, on average
        fitting_count = (bytes_max - value_bytes) * len(taken) // max(1, taken_bytes)
        next_count = max(1, min(next_count * _COUNT_GROWTH, fitting_count))
    return ReadyMessages(messages, value_bytes)


def too_large_runs(messages: Sequence[Message]) -> list[DamagedRun]:
    """Return for each record that is too large to be handled a run of its one offset, with the reason."""
    if max(map(len, messages), default=0) <= VALUE_BYTES_MAX:  # a message's length is that of its value
        return []
    return [_too_large_run(message) for message in messages if len(message) > VALUE_BYTES_MAX]


def _too_large_run(message: Message) -> DamagedRun:
    """Return a run of the offset of a message that is too large."""
    offset = message.offset() or 0
    size = len(message)
    why = f"{TOO_LARGE}a record of {size:,} bytes, more than the {VALUE_BYTES_MAX:,} that can be handled"
    return DamagedRun(*_partition_of(message), start=offset, end=offset + 1, why=why)


def by_partition(messages: list[Message]) -> dict[TopicPartition, list[Message]]:
    """Return messages by their partition, in order.

    Messages of one topic come in runs of a partition, which are cut by
    arrays: of 10,000 messages in 4 runs Python touches 4.
    """
    messages_by_partition: defaultdict[TopicPartition, list[Message]] = defaultdict(list)
    if not messages:
        return messages_by_partition
    topics = list(map(Message.topic, messages))
    if topics.count(topics[0]) < len(topics):
        for message in messages:
            messages_by_partition[_partition_of(message)].append(message)
        return messages_by_partition
    topic = topics[0] or ""
    partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
    # of the partitions 5 5 7 7 7 5 the runs begin at 0, 2 and 5
    later_starts = (np.flatnonzero(partitions[1:] != partitions[:-1]) + 1).tolist()
    for start, end in pairwise([0, *later_starts, len(messages)]):
        messages_by_partition[TopicPartition(topic, int(partitions[start]))] += messages[start:end]
    return messages_by_partition


def _last_offsets(
    messages_by_partition: Mapping[TopicPartition, list[Message]],
) -> dict[TopicPartition, int]:
    """Return by partition the offset of its last message."""
    offsets: dict[TopicPartition, int] = {}
    for partition, messages in messages_by_partition.items():
        offsets[partition] = _offset_of(messages[-1])
    return offsets


def is_damage(event: Message) -> bool:
    """Return whether a message is the event of a batch that cannot be read."""
    error = event.error()
    return error is not None and error.code() in DAMAGE


def before_damage(messages: list[Message]) -> list[Message]:
    """Return messages without those that come behind a damaged batch of their partition.

    Its event stays.
    """
    damaged: set[TopicPartition] = set()
    credible: list[Message] = []
    for message in messages:
        partition = _partition_of(message)
        if partition not in damaged:
            credible.append(message)
        if is_damage(message):
            damaged.add(partition)
    return credible


def _partition_of(message: Message) -> TopicPartition:
    """Return the partition of a message."""
    return TopicPartition(message.topic() or "", message.partition() or 0)


_record = tuple_maker(Record)


def record_of(message: Message) -> Record:
    """Return a message of the client as a record of the port."""
    timestamp_type, timestamp_ms = message.timestamp()
    leader_epoch = message.leader_epoch()
    return _record(
        (
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            headers_of(message),
            timestamp_ms,
            timestamp_type - 1,  # the client counts from 0: unknown, created, appended
            NO_EPOCH if leader_epoch is None else leader_epoch,
        )
    )


def client_partition(partition: TopicPartition, offset: int = 0) -> confluent_kafka.TopicPartition:
    """Return a partition, with an offset, as the client wants it."""
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)


_OffsetsByPartition = Mapping[TopicPartition, Sequence[int]]
"""Offsets of partitions, ascending."""


class KafkaPicker(KafkaReader):
    """Reads single committed records; implements `acker.kafka.port.Picker`."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(client, committed=True, defaults=PICKING)
        # of the call of `pick` under way: the offsets to return, and how many
        # other records it has passed on its way, and of how many bytes
        self._offsets_to_return: _OffsetsByPartition = {}
        self._passed_count = 0
        self._passed_bytes = 0

    def pick(
        self,
        timeout_ms: int,
        offsets: _OffsetsByPartition,
        max_records: int = 1000,
    ) -> Picked:
        self._offsets_to_return = offsets
        self._passed_count = 0
        self._passed_bytes = 0
        records = self.poll(timeout_ms, max_records)
        return Picked(records, self._passed_count, self._passed_bytes)

    def _take_records(self, message: Message, max_records: int) -> _Taken[list[Record]]:
        """Take messages as `KafkaReader._take_records` does.

        Return only those at the offsets of this call of `pick`. A message that is passed over
        counts as a moved position, so that the poll returns without waiting for more.
        """
        with uncollected():
            messages, events, value_bytes = self._take_fetched(message, max_records)
            messages_by_partition = self._by_partition(messages)
            picked = self._messages_to_return(messages_by_partition)
            records = [record_of(message) for message in picked]
            # how many bytes the values of the others have: `len` of a message is that of its value
            self._passed_bytes += value_bytes - sum(map(len, picked))
        self._passed_count += len(messages) - len(picked)
        self._move_positions(_last_offsets(messages_by_partition))
        has_moved = self._apply_events(events) or bool(messages)
        return _Taken(records, has_moved)

    def _by_partition(self, messages: list[Message]) -> dict[TopicPartition, list[Message]]:
        """Return messages by their partition."""
        # The usual case: one partition is read, so there is nothing to group. Messages of one that
        # was read before may still come: then the first or the last is of another.
        if messages and len(self._positions) == 1:
            partition = _partition_of(messages[0])
            if partition in self._positions and _partition_of(messages[-1]) == partition:
                return {partition: messages}
        return by_partition(messages)

    def _messages_to_return(
        self, messages_by_partition: Mapping[TopicPartition, list[Message]]
    ) -> list[Message]:
        """Return the messages at the offsets that this call of `pick` was asked for."""
        picked: list[Message] = []
        for partition, messages in messages_by_partition.items():
            picked += messages_at(self._offsets_to_return.get(partition, ()), messages)
        return picked


def _offset_of(message: Message) -> int:
    """Return the offset of a message that has a record."""
    return message.offset() or 0


def messages_at(offsets: Sequence[int], messages: Sequence[Message]) -> list[Message]:
    """Return those messages of a partition, at least one, that lie at some offsets; both ascend.

    Mostly few of thousands are asked for. So each is looked up where it must
    be, and the others are not touched: of messages at 5, 6, 7 and 9 that at 7
    is the third one, as 7 - 5 says. Behind a hole it comes sooner: that at 9
    is the fourth one, not the fifth.
    """
    first_offset = _offset_of(messages[0])
    last_offset = _offset_of(messages[-1])
    begin, end = bisect_left(offsets, first_offset), bisect_right(offsets, last_offset)
    matching: list[Message] = []
    for offset in offsets[begin:end]:
        index = min(offset - first_offset, len(messages) - 1)
        if messages[index].offset() != offset:  # there are holes before it
            index = bisect_left(messages, offset, hi=index, key=_offset_of)
        if messages[index].offset() == offset:  # else it has no record
            matching.append(messages[index])
    return matching


class KafkaOffsetReader(KafkaReader):
    """Reads which offsets hold a committed record; implements `acker.kafka.port.OffsetReader`."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(client, committed=True, defaults=LOOKING)

    def offsets(self, timeout_ms: int, max_records: int = 1000) -> Mapping[TopicPartition, Sequence[int]]:
        offsets_by_partition: dict[TopicPartition, list[int]] = {}
        for partition, messages in self.poll_messages(timeout_ms, max_records).items():
            offsets_by_partition[partition] = list(map(_offset_of, messages))
        return offsets_by_partition

    @property
    def troubled(self) -> Collection[TopicPartition]:
        return self._error_by_partition.keys()
