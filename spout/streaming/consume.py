"""Reads exact ranges of offsets from Kafka partitions, in a Spark task.

A *share* is what a task reads of one partition: the offsets [start, end), of which some may hold
no record.

A range may end in control records or in records of aborted transactions, which a client never
returns. So reading ends with the first message at or behind the end of the range, or with an
EOF event there. An EOF event before it is no end: the replica that is read may learn later than
the planning process what is committed, as a follower does (`client.rack`), or a new leader.

A range may have a damaged batch. What lies before it and behind it is returned, and the offsets
between are noted: whoever reads the range decides what becomes of them.

A consumer has its first record 20 to 35 ms after it was created, so the worker process keeps a
consumer whose position is where the next batch begins. A `seek` to any other position would
take nearly as long, and would drop the records that were fetched ahead. Where none is kept,
since another worker read the batch before, the consumer of a task's next share is created
beside the work on the one before.

Spark gives the task of a small batch to the worker that waits longest, whose consumers are
where an earlier batch ended, and a task may have more ranges than consumers are kept. So small
ranges are read together, by one consumer that stays connected and has no partitions between two
tasks (`Together`).

Source: docs/design/protocol.md, section 5.1; docs/design/performance.md, "Latency".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from acker.errors import DataLoss, Disagreement, WindhoverError
from acker.kafka import port
from acker.kafka.client import CHECKED, DAMAGE, SILENT, TRANSIENT, Background, KafkaClient, Use
from acker.kafka.damage import first_behind_damage
from acker.kafka.port import DamagedRun, Operation
from acker.kafka.reader import (
    before_damage,
    by_partition,
    is_damage,
    ready_messages,
    too_large_runs,
)

CHUNK_RECORDS = 8_192
"""How many messages are taken at a time; it is also the size of the batches that bolts receive."""

CHUNK_BYTES = 64 << 20
"""A chunk with this many bytes of values is full, whatever else is fetched: Arrow has 2 GB for
a column."""

WAIT_MS = 200
"""A chunk that is not full is passed on after this time."""

STALL_MS = 60_000
"""A broker that sends nothing for this long counts as unreachable."""

CONSUMERS_KEPT = 4
"""Idle consumers that a worker process keeps; each may take some MB of memory with records
fetched ahead."""

SETTINGS: Mapping[str, Any] = {
    "group.id": "windhover-read",  # the client requires it; nothing is ever committed under it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # Nobody reads the client's log while a consumer is kept; errors that matter come as exceptions.
    **SILENT,
    # Without this the client idles for up to a second whenever its queue was full.
    "fetch.queue.backoff.ms": 5,
    # What is fetched beyond a range is lost when another worker reads the next range. A tenth
    # of the default is as fast, with 40 ms of slack at 250,000 records/s.
    "queued.min.messages": 10_000,
}

NOT_OURS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""The client tries to find the coordinator of its group, which we never use; so it may fail to
find it."""


class Place(NamedTuple):
    """The position of a kept consumer, and the cluster that it reads from."""

    cluster: str
    topic: str
    partition: int
    offset: int


class KeptConsumers:
    """Idle consumers that the next batch may use, the one that waits longest first."""

    def __init__(self, limit: int = CONSUMERS_KEPT) -> None:
        self._limit = limit
        self._idle: dict[Place, Consumer] = {}

    def take(self, place: Place) -> Consumer | None:
        """Take out the consumer with this position, or return None."""
        return self._idle.pop(place, None)

    def put(self, place: Place, consumer: Consumer) -> None:
        """Keep a consumer; if there are too many, close the one that has waited longest."""
        self._idle[place] = consumer
        if len(self._idle) > self._limit:
            # a dict keeps its keys in the order in which they came
            oldest_place = next(iter(self._idle))
            self._idle.pop(oldest_place).close()


_KEPT = KeptConsumers()
# Global, since nothing else in a worker process outlives a task.

COPIES_WAIT_MS = 20
"""How long the broker waits for records before it answers that there are none, where a reader
expects so."""

TOGETHER_RECORDS = 65_536
"""At most this many records of several ranges are read together; all of them are in memory then."""

TOGETHER_WAIT_MS = 1_000
"""If nothing comes for this long, ranges that are read together are read one by one. A client
may need as long to connect to a broker far away."""

TOGETHER: Mapping[str, Any] = {
    **SETTINGS,
    # What is fetched beyond a range is thrown away.
    "max.partition.fetch.bytes": 262_144,
    # What an answer unpacks to is then no more than what one batch may
    # (`acker.kafka.reader.ONE_BATCH`).
    "fetch.max.bytes": 1_048_576,
    "queued.min.messages": 1_000,
}

AT_ONCE: Mapping[str, Any] = {"fetch.wait.max.ms": COPIES_WAIT_MS}
"""A fetch behind the end of a range may be under way when its task ends, and keeps the next
task waiting."""


class Share(NamedTuple):
    """The offsets [start, end) of one partition.

    `skips_loss`: records that have left the log are skipped. `of_copies`: the partition is a
    replay topic's, where every transaction ends in a marker, so most ranges do. Only an answer
    without records shows that, and by default the broker gives it after half a second.
    """

    topic: str
    partition: int
    start: int
    end: int
    skips_loss: bool = False
    of_copies: bool = False


class FirstRecords(NamedTuple):
    """The first records of a share, which were read before, and the offset behind them, `next`."""

    records: list[Message]
    next: int


class Together:
    """Reads small shares together, by a consumer that a worker process keeps.

    Where anything is not as it should be it returns fewer records, and `RangeReader` finds out
    what is wrong.
    """

    def __init__(self) -> None:
        """Begin without a consumer; the first `read` connects one."""
        self._settings: Mapping[str, str] = {}  # those of the consumer
        self._consumer: Consumer | None = None
        self._client_topics: set[str] = set()  # whose leaders the consumer knows
        self._has_received = False  # whether the consumer has ever returned a message
        self._background = Background(time.monotonic)

    def read(self, settings: Mapping[str, str], shares: Sequence[Share]) -> dict[Share, FirstRecords]:
        """Read shares to their ends, or up to the first trouble; return how far each was read.

        Of a partition only its first share is read, and is in the answer.
        """
        progress = _Progress(shares)
        consumer = self._kept_or_new_consumer(settings)
        try:
            self._fetch_leaders(consumer, {topic for topic, _ in progress.unread})
            begins = [TopicPartition(*place, share.start) for place, share in progress.unread.items()]
            consumer.incremental_assign(begins)
            if self._fetch(consumer, progress):
                consumer.incremental_unassign([TopicPartition(*place) for place in progress.assigned])
            else:
                self._drop_consumer(consumer)
        except KafkaException:
            self._drop_consumer(consumer)
        return progress.first_records_by_share

    def _fetch_leaders(self, consumer: Consumer, topics: set[str]) -> None:
        """Have the client find the leaders of topics that are new to it.

        A connected client looks for them by itself only once a second.
        """
        for topic in topics - self._client_topics:
            consumer.list_topics(topic, timeout=TOGETHER_WAIT_MS / 1000)
            self._client_topics.add(topic)

    def _fetch(self, consumer: Consumer, progress: _Progress) -> bool:
        """Fetch into `progress` until all shares are read, or something is wrong.

        Return whether the consumer may be kept for the next task.
        """
        # Partitions that are read go on to send what is new, also where another one is silent:
        # so the time counts from the last record that was wanted.
        until_s = time.monotonic() + TOGETHER_WAIT_MS / 1000
        held_bytes = 0
        is_damaged = False
        while progress.unread and held_bytes < CHUNK_BYTES and time.monotonic() < until_s:
            message = consumer.poll(TOGETHER_WAIT_MS / 1000)
            if message is None:
                # The consumer may be unpacking a batch that takes longer, and would hold it while
                # `RangeReader`'s client unpacks it again. One that never received anything is
                # only connecting, and is ready for the next task.
                return not self._has_received
            self._has_received = True
            messages = [message]
            if message.error() is None:
                # with it what the client has ready by now: that takes no wait
                bytes_free = CHUNK_BYTES - held_bytes
                messages = ready_messages(consumer, message, CHUNK_RECORDS + 1, bytes_free)
            events, records = _split_events(messages)
            is_damaged = is_damaged or any(map(is_damage, events))
            held_bytes += sum(map(len, records))
            had_unread = progress.add_records(records)
            if had_unread:
                until_s = time.monotonic() + TOGETHER_WAIT_MS / 1000
            progress.end_shares(events)
            # Of batches larger than `max.partition.fetch.bytes` the broker sends one, and none
            # of another partition: a partition that is read, and goes on to send, would keep the
            # unread ones waiting.
            read_places = progress.assigned - progress.unread.keys()
            if progress.unread and read_places:
                consumer.incremental_unassign([TopicPartition(*place) for place in read_places])
                progress.assigned -= read_places
        # Of a damaged batch the client may go on in the middle, and stop there. Of a large one
        # it holds all that it has unpacked, while `RangeReader`'s client unpacks it again.
        return not is_damaged and held_bytes < CHUNK_BYTES

    def _drop_consumer(self, consumer: Consumer) -> None:
        """Close the consumer; the next task connects a new one."""
        self._consumer = None
        consumer.close()

    def _kept_or_new_consumer(self, settings: Mapping[str, str]) -> Consumer:
        """Return the consumer that is kept, or a new one if the settings are not those of before."""
        if self._consumer is not None and self._settings == settings:
            return self._consumer
        if self._consumer is not None:
            # dropped before the new one is made: that may
            # fail, and a closed one is never used again
            self._drop_consumer(self._consumer)
        client = KafkaClient(settings, "windhover-read", STALL_MS, time.monotonic)
        consumer: Consumer = client.make_client(Consumer, TOGETHER, {**AT_ONCE, **CHECKED}, self._background)
        self._consumer = consumer
        self._settings = settings
        self._client_topics = set()
        self._has_received = False
        return consumer


_TOGETHER = Together()
# Global, as `_KEPT` is.


class _Progress:
    """How far shares that are read together are read; of a partition only its first share is.

    Attributes:
        first_records_by_share: what was read so far; it begins with no record of each share.
        unread: the shares that are not read to their ends, by topic and partition.
        assigned: the topics and partitions that the consumer fetches.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        """Begin with all shares unread."""
        self.unread: dict[tuple[str, int], Share] = {}
        for share in shares:
            self.unread.setdefault((share.topic, share.partition), share)
        self.assigned = set(self.unread)
        self.first_records_by_share = {share: FirstRecords([], share.start) for share in self.unread.values()}

    def add_records(self, records: list[Message]) -> bool:
        """Add records to their unread shares; return whether any record was of an unread share.

        A share that is complete by them is unread no more.
        """
        had_unread = False
        for place, place_records in by_partition(records).items():
            share = self.unread.get(place)
            if share is None:
                continue
            had_unread = True
            # a record behind the share's end shows that nothing is left between
            next_offset = min((place_records[-1].offset() or 0) + 1, share.end)
            former_records = self.first_records_by_share[share].records
            new_records = _before(place_records, share.end)
            self.first_records_by_share[share] = FirstRecords(former_records + new_records, next_offset)
            if next_offset == share.end:
                del self.unread[place]
        return had_unread

    def end_shares(self, events: list[Message]) -> None:
        """Take the partitions of some events, such as EOF, out of the unread ones.

        A share whose partition ends before it keeps its `next`, from where `RangeReader` reads on.
        """
        for event in events:
            share = self.unread.pop((event.topic() or "", event.partition() or 0), None)
            if share is None:
                continue
            error = event.error()
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if is_end and (event.offset() or 0) >= share.end:
                # the last offsets of the share have no records
                first_records = self.first_records_by_share[share]
                self.first_records_by_share[share] = first_records._replace(next=share.end)


def _split_events(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Return the events and the records among what a consumer returned, which mostly are records alone.

    Of a partition with a damaged batch only what lies before that is returned.
    """
    events = [message for message in messages if message.error() is not None]
    if not events:
        return events, messages
    if any(map(is_damage, events)):
        messages = before_damage(messages)
        events = [message for message in messages if message.error() is not None]
    records = [message for message in messages if message.error() is None]
    return events, records


def _before(messages: list[Message], end: int) -> list[Message]:
    """Return the messages of one partition that are before an offset; in most cases all are."""
    if (messages[-1].offset() or 0) < end:
        return messages
    return [message for message in messages if (message.offset() or 0) < end]


def _poll_messages(consumer: Consumer, messages_max: int) -> list[Message]:
    """Return `messages_max` messages, or fewer: an event came, `CHUNK_BYTES`, or no more within `WAIT_MS`.

    `Consumer.consume` with a timeout waits it out unless all messages come, even behind the
    event that says that the partition ends; so only `poll` waits here, for one message.
    """
    messages: list[Message] = []
    held_bytes = 0
    while len(messages) < messages_max and held_bytes < CHUNK_BYTES:
        message = consumer.poll(WAIT_MS / 1000)
        if message is None:
            break
        received = [message]
        if message.error() is None:
            # with it what the client has ready by now: that takes no wait
            messages_free = messages_max - len(messages)
            received = ready_messages(consumer, message, messages_free, CHUNK_BYTES - held_bytes)
        messages += received
        if messages[-1].error() is not None:
            # an event, which the caller has to see before it waits for more
            break
        if len(messages) < messages_max:
            held_bytes += sum(map(len, received))
    return messages


def _grouped(shares: Sequence[Share]) -> list[list[Share]]:
    """Put neighbouring shares into groups that are read together, of `TOGETHER_RECORDS` at most.

    A share that is larger is a group of its own. The order stays.
    """
    groups: list[list[Share]] = []
    group_offsets = 0
    for share in shares:
        offsets = share.end - share.start
        if not groups or group_offsets + offsets > TOGETHER_RECORDS:
            groups.append([])
            group_offsets = 0
        groups[-1].append(share)
        group_offsets += offsets
    return groups


def _is_small(group: Sequence[Share]) -> bool:
    """Return whether a group of shares is read together.

    A single large one goes on where a batch ended.
    """
    return len(group) > 1 or group[0].end - group[0].start <= CHUNK_RECORDS


class TaskReader:
    """Reads the shares of one task.

    `lost` counts offsets that had left the log before they were read. `damaged` has the runs of
    offsets that cannot be read, each run before the first chunk behind it is returned.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        shares: Sequence[Share],
        kept_consumers: KeptConsumers = _KEPT,
        together: Together = _TOGETHER,
    ) -> None:
        """Prepare; `shares` are in the order in which they will be read."""
        self.lost = 0
        self.damaged: list[DamagedRun] = []
        self._settings = settings
        self._kept_consumers = kept_consumers
        self._together = together
        # by share: what of it was read together with others
        self._first_records: dict[Share, FirstRecords] = {}
        # by share: the reader that fetches it while the share before it is worked on
        self._fetching_readers: dict[Share, RangeReader] = {}
        groups = _grouped(shares)
        # by the first share of a group: the group, all of which is read with that share
        self._small_groups = {group[0]: group for group in groups if _is_small(group)}
        # by the share before: a large share, which a consumer begins to fetch while that is read
        self._large_by_former: dict[Share, Share] = {}
        for group, next_group in pairwise(groups):
            if not _is_small(next_group):
                self._large_by_former[group[-1]] = next_group[0]

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Yield the records of one of the shares as `RangeReader.chunks` does."""
        small_group = self._small_groups.get(share)
        if small_group is not None:
            self._first_records = self._together.read(self._settings, small_group)
        reader = self._fetching_readers.pop(share, None)
        if reader is None:
            first_records = self._first_records.pop(share, None)
            reader = RangeReader(self._settings, share, self._kept_consumers, first_records)
        reader.damaged = self.damaged
        following = self._large_by_former.get(share)
        if following is not None:
            reader.fetch()  # before the next one, whose records may wait
            self._fetching_readers[following] = RangeReader(self._settings, following, self._kept_consumers)
            self._fetching_readers[following].fetch()
        for messages in reader.chunks():
            yield from self._without_too_large(messages)
        self.lost += reader.lost

    def _without_too_large(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Yield the records before, between and behind those that are too large; add these to `damaged`.

        Each is added before what follows it is yielded.
        """
        for run in too_large_runs(messages):
            records_before = [message for message in messages if (message.offset() or 0) < run.start]
            if records_before:
                yield records_before
            self.damaged.append(run)
            messages = [message for message in messages if (message.offset() or 0) >= run.end]
        if messages:
            yield messages

    def close(self) -> None:
        """Close the consumers of shares that nobody has read."""
        for reader in self._fetching_readers.values():
            reader.close()


class _Opened(NamedTuple):
    """A consumer, and whether it is new: then no event of a batch before can come from it."""

    consumer: Consumer
    is_new: bool


class RangeReader:
    """Reads a share of a batch; `lost` and `damaged` are as in `TaskReader`."""

    def __init__(
        self,
        settings: Mapping[str, str],
        share: Share,
        kept_consumers: KeptConsumers = _KEPT,
        first_records: FirstRecords | None = None,
    ) -> None:
        """Prepare; `first_records` is what was read of the share already; None: nothing was."""
        self.lost = 0
        self.damaged: list[DamagedRun] = []
        self._first_records = first_records
        self._client = KafkaClient(settings, "windhover-read", STALL_MS, time.monotonic)
        self._background = Background(time.monotonic)
        self._topic = share.topic
        self._partition = share.partition
        self._next = share.start  # the offset that is read next
        self._end = share.end
        self._skips_loss = share.skips_loss
        self._is_of_copies = share.of_copies
        self._kept_consumers = kept_consumers
        # what the last events have reported at `_next`: it has left the log, or cannot be read
        self._has_left_log = False
        self._damage: KafkaError | None = None
        # what `fetch` has begun with; None: it was not called, or `chunks` uses its consumer
        self._opened: _Opened | None = None

    def fetch(self) -> None:
        """Begin to fetch beside what the caller does; what was read before needs no consumer."""
        if self._first_records is None and self._opened is None:
            self._opened = self._take_or_open_consumer()

    def close(self) -> None:
        """End what `fetch` began, if no chunk was taken."""
        if self._opened is not None:
            self._opened.consumer.close()

    @property
    def _place(self) -> Place:
        """Where a consumer has to stand to read on: at `_next`."""
        return Place(self._client.bootstrap, self._topic, self._partition, self._next)

    def chunks(self) -> Iterator[list[Message]]:
        """Yield the records of the range, in order, in lists of `CHUNK_RECORDS` or some `CHUNK_BYTES`.

        Raises:
            DataLoss: the log begins behind the next offset, and the share does not skip lost
                records.
            Disagreement: the log ends before the range.
            NotAuthenticated, NotAuthorized: the broker refuses our credentials, or we may not
                read the topic.
            Unreachable: it sent nothing for a minute.
            LogError: the broker returned any other error.
        """
        if self._first_records is not None:
            yield from self._first_chunks(self._first_records)
            if self._next >= self._end:
                return
        consumer, is_new = self._opened or self._take_or_open_consumer()
        self._opened = None
        try:
            idle_ms = 0
            has_end_event = False  # whether this consumer has said that the partition ends
            while self._next < self._end:
                # 1. take what the consumer has, and hand its records out
                messages = _poll_messages(consumer, min(CHUNK_RECORDS, self._end - self._next))
                records, end_offset = self._take_records(messages)
                if records:
                    yield records
                idle_ms = 0 if messages else idle_ms + WAIT_MS
                # 2. go on behind lost or damaged offsets, by a new consumer that stands there
                has_trouble = self._has_left_log or self._damage is not None
                if has_trouble or self._is_stuck_at_damage(consumer, idle_ms):
                    self._pass_over_trouble(consumer)
                    consumer.close()
                    consumer = self._open_consumer()
                    is_new = True
                    has_end_event = False
                    idle_ms = 0
                    continue
                # 3. end with the partition, if it does not end too early
                if end_offset is not None and end_offset >= self._end:
                    break
                if end_offset is not None and is_new:
                    self._require_end(consumer)
                has_end_event = has_end_event or end_offset is not None
                # 4. give up if the broker is silent
                if messages:
                    self._background.record_answer()
                elif idle_ms >= STALL_MS or self._background.is_hopeless:
                    raise self._stall_error(consumer, idle_ms)
                # 5. A kept consumer may still deliver the EOF event of the batch before. When
                # nothing follows it, a new one sees where the partition ends now.
                if idle_ms and has_end_event and not is_new:
                    consumer.close()
                    consumer = self._open_consumer()
                    is_new = True
        except KafkaException as error:
            consumer.close()
            raise self._error_of(error.args[0]) from error
        except (GeneratorExit, WindhoverError):
            consumer.close()
            raise
        # a kept consumer of copies would ask the broker fifty times a second (`COPIES_WAIT_MS`)
        if self._next == self._end and not self._is_of_copies:
            self._kept_consumers.put(self._place, consumer)
        else:
            consumer.close()

    def _first_chunks(self, first_records: FirstRecords) -> Iterator[list[Message]]:
        """Move `_next` behind what was read before, and yield that, in chunks."""
        self._next = first_records.next
        for begin in range(0, len(first_records.records), CHUNK_RECORDS):
            yield first_records.records[begin : begin + CHUNK_RECORDS]

    def _take_or_open_consumer(self) -> _Opened:
        """Take the consumer that is kept for this place, or open a new one."""
        kept_consumer = self._kept_consumers.take(self._place)
        if kept_consumer is not None:
            return _Opened(kept_consumer, is_new=False)
        return _Opened(self._open_consumer(), is_new=True)

    def _open_consumer(self) -> Consumer:
        """Return a new consumer that begins at the next offset."""
        settings = dict(SETTINGS)
        if self._is_of_copies:
            settings["fetch.wait.max.ms"] = COPIES_WAIT_MS
        consumer: Consumer = self._client.make_client(Consumer, settings, CHECKED, self._background)
        consumer.assign([TopicPartition(self._topic, self._partition, self._next)])
        return consumer

    def _take_records(self, messages: list[Message]) -> tuple[list[Message], int | None]:
        """Move `_next` behind some records; return those of the range, and where the partition ended.

        None instead of that offset: it did not end. A loss or a damage that an event reports is
        kept for `_pass_over_trouble`.
        """
        end_offset: int | None = None
        events, records = _split_events(messages)
        for event in events:
            error = event.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                end_offset = event.offset() or 0
            else:
                self._record_trouble(error)
        if records:
            self._next = (records[-1].offset() or 0) + 1
            records = _before(records, self._end)
        return records, end_offset

    def _record_trouble(self, error: KafkaError) -> None:
        """Record that the next offset is lost or damaged.

        Raise any other error that concerns this reader.
        """
        code = error.code()
        if code in DAMAGE:
            self._damage = error
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._has_left_log = True
        elif code not in NOT_OURS:
            raise self._error_of(error)

    def _is_stuck_at_damage(self, consumer: Consumer, idle_ms: int) -> bool:
        """Return whether nothing came for `idle_ms` because of a damaged batch that no event reported."""
        if idle_ms < STALL_MS or self._background.is_hopeless:
            return False
        try:
            log_start, log_end = self._bounds(consumer)
        except KafkaException:  # the broker is silent to all
            return False
        is_in_log = log_start <= self._next < log_end
        return is_in_log and self._first_readable() > self._next

    def _pass_over_trouble(self, consumer: Consumer) -> None:
        """Move `_next` behind offsets that left the log, which count as `lost`, or are `damaged`."""
        if self._has_left_log:
            self._has_left_log = False
            self._pass_over_lost(consumer)
            return
        start = self._next
        self._next = min(self._first_readable(), self._end)
        error = self._damage
        self._damage = None
        place = port.TopicPartition(self._topic, self._partition)
        why = "nothing of it can be read"
        if error is not None:
            why = self._client.damage(error, place, start).why
        if start < self._next:
            self.damaged.append(DamagedRun(*place, start, self._next, why))

    def _first_readable(self) -> int:
        """Return the first offset, from the next one on, that a client can read."""
        place = port.TopicPartition(self._topic, self._partition)
        return first_behind_damage(self._client, place, self._next)

    def _pass_over_lost(self, consumer: Consumer) -> None:
        """Move `_next` to where the log begins now, and count the offsets of the range before that.

        Raises `DataLoss`: the share does not skip lost records; `Disagreement`: the log has not
        lost its beginning, but its end.
        """
        log_start, log_end = self._bounds(consumer)
        if log_start <= self._next:
            raise self._cut_error(log_start, log_end)
        if not self._skips_loss:
            raise DataLoss(
                f"{self._where()} left the log, which begins at {log_start}, after the batch was"
                " planned; set on_data_loss: skip to go on without such records, or raise the"
                " topic's retention"
            )
        goes_on_at = min(log_start, self._end)
        self.lost += goes_on_at - self._next
        self._next = goes_on_at

    def _require_end(self, consumer: Consumer) -> None:
        """Raise `Disagreement` if the leader's log, too, ends before the range.

        A follower that is read may not know yet what is committed, so only the leader is believed.
        If it cannot be asked now, nothing is raised.
        """
        try:
            log_start, log_end = self._bounds(consumer)
        except KafkaException as error:
            if error.args[0].code() in TRANSIENT:
                return
            raise
        if log_end < self._end:
            raise self._cut_error(log_start, log_end)

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        """Ask the leader for the first offset of the log, and for its end; return both."""
        place = TopicPartition(self._topic, self._partition)
        return consumer.get_watermark_offsets(place, STALL_MS / 1000, cached=False)

    def _cut_error(self, log_start: int, log_end: int) -> Disagreement:
        """Return the error of a log that has not the offsets which the batch was planned with."""
        return Disagreement(
            f"{self._where()}: the log holds {log_start} to {log_end}: the topic was created"
            " again, or cut; run `windhover offsets reset` for its input"
        )

    def _error_of(self, error: KafkaError) -> WindhoverError:
        """Return the error that explains what the broker or the client has answered."""
        return self._client.error(error, self._where(), use=Use(Operation.READ, topic=self._topic))

    def _stall_error(self, consumer: Consumer, idle_ms: int) -> WindhoverError:
        """Return the error that explains why nothing arrives, and names who should have sent it."""
        text = "nothing came"
        # A topic that we may not describe is silent too, until its partitions are requested.
        if not self._background.is_hopeless:
            metadata = self._client.metadata_of(consumer, self._topic, self._background)
            partition = metadata.topics[self._topic].partitions.get(self._partition)
            leader = None if partition is None else metadata.brokers.get(partition.leader)
            text += f" from its leader, {leader.host}:{leader.port}" if leader else ", it has no leader"
        return self._client.unreachable(self._where(), idle_ms, text, self._background)

    def _where(self) -> str:
        """Return the place that is read next, as messages name it: `lines/3@42`."""
        return f"{self._topic}/{self._partition}@{self._next}"
