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
        """Begin without a consumer; `limit` is how many are kept at most."""
        self._limit = limit
        self._consumer_by_place: dict[Place, Consumer] = {}  # the one kept for longest is the first

    def take(self, place: Place) -> Consumer | None:
        """Take out the consumer with this position, or return None."""
        return self._consumer_by_place.pop(place, None)

    def put(self, place: Place, consumer: Consumer) -> None:
        """Keep a consumer; if there are too many, close the one that was kept first."""
        self._consumer_by_place[place] = consumer
        if len(self._consumer_by_place) > self._limit:
            # a dict keeps its keys in the order in which they came
            oldest_place = next(iter(self._consumer_by_place))
            self._consumer_by_place.pop(oldest_place).close()


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
        self._settings: Mapping[str, str] = {}  # with which the consumer was connected
        self._consumer: Consumer | None = None
        self._client_topics: set[str] = set()  # whose leaders the consumer knows
        self._has_received = False  # whether the consumer has ever returned a message
        self._background = Background(time.monotonic)

    def read(self, settings: Mapping[str, str], shares: Sequence[Share]) -> dict[Share, FirstRecords]:
        """Read shares to their ends, or up to the first trouble; return what was read of each.

        Of a partition only its first share is read; the others are not in the mapping.
        """
        progress = _Progress(shares)
        consumer = self._kept_or_new_consumer(settings)
        try:
            self._fetch_leaders(consumer, {topic for topic, _ in progress.unread})
            starts = [TopicPartition(*place, share.start) for place, share in progress.unread.items()]
            consumer.incremental_assign(starts)
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
        # so the time counts from the last record of an unread share.
        until_s = time.monotonic() + TOGETHER_WAIT_MS / 1000
        held_bytes = 0
        is_damaged = False
        while progress.unread and held_bytes < CHUNK_BYTES and time.monotonic() < until_s:
            # 1. wait for a message, and take those that are ready with it
            message = consumer.poll(TOGETHER_WAIT_MS / 1000)
            if message is None:
                # The consumer may be unpacking a batch that takes longer, and would hold it while
                # `RangeReader`'s client unpacks it again. One that never received anything is
                # only connecting, and is ready for the next task.
                return not self._has_received
            self._has_received = True
            messages = [message]
            if message.error() is None:
                # the message, and those that the client has ready: they take no wait
                bytes_left = CHUNK_BYTES - held_bytes
                messages = ready_messages(consumer, message, CHUNK_RECORDS + 1, bytes_left).messages
            # 2. add them to their shares
            events, records = _split_events(messages)
            is_damaged = is_damaged or any(map(is_damage, events))
            held_bytes += sum(map(len, records))
            had_unread = progress.add_records(records)
            if had_unread:
                until_s = time.monotonic() + TOGETHER_WAIT_MS / 1000
            progress.end_shares(events)
            # 3. Give up partitions that are read. Of batches larger than
            # `max.partition.fetch.bytes` the broker sends one, and none of another partition: a
            # partition that goes on to send would keep the unread ones waiting.
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
        """Return the kept consumer, or a new one if that was connected with other settings."""
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
        self.first_records_by_share: dict[Share, FirstRecords] = {}
        for share in self.unread.values():
            self.first_records_by_share[share] = FirstRecords([], share.start)

    def add_records(self, records: list[Message]) -> bool:
        """Add records to their unread shares; return whether any record was of an unread share.

        Shares that are read to their ends now are removed from `unread`.
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
        """Remove from `unread` the shares of partitions with an event: an EOF, or an error.

        If the partition ends at the share's end or behind it, the share is complete. Else its
        `next` stays, and `RangeReader` reads on from there.
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
    """Split messages of a consumer into events, such as errors and ends of partitions, and records.

    Mostly there are no events. Of a partition with a damaged batch, only what lies before the
    damage is returned.
    """
    events = [message for message in messages if message.error() is not None]
    if not events:
        return events, messages
    if any(map(is_damage, events)):
        messages = before_damage(messages)
        # some events may have been behind the damage
        events = [message for message in messages if message.error() is not None]
    records = [message for message in messages if message.error() is None]
    return events, records


def _before(messages: list[Message], end: int) -> list[Message]:
    """Return the messages of one partition that lie before the offset `end`; mostly all do."""
    if (messages[-1].offset() or 0) < end:
        return messages
    return [message for message in messages if (message.offset() or 0) < end]


def _poll_messages(consumer: Consumer, messages_max: int) -> list[Message]:
    """Return up to `messages_max` messages; empty: none came within `WAIT_MS`.

    They are fewer where `CHUNK_BYTES` came, no more came within `WAIT_MS`, or an event came,
    which is the last of them. `Consumer.consume` with a timeout waits it out unless all messages
    come, even behind the event that says that the partition ends; so only `poll` waits here, for
    one message.
    """
    messages: list[Message] = []
    held_bytes = 0
    while len(messages) < messages_max and held_bytes < CHUNK_BYTES:
        message = consumer.poll(WAIT_MS / 1000)
        if message is None:
            break
        received = [message]
        if message.error() is None:
            # the message, and those that the client has ready: they take no wait
            messages_left = messages_max - len(messages)
            bytes_left = CHUNK_BYTES - held_bytes
            received = ready_messages(consumer, message, messages_left, bytes_left).messages
        messages += received
        if messages[-1].error() is not None:
            # an event, which the caller has to see before it waits for more
            break
        if len(messages) < messages_max:
            held_bytes += sum(map(len, received))
    return messages


def _groups_of(shares: Sequence[Share]) -> list[list[Share]]:
    """Put neighbouring shares into groups of `TOGETHER_RECORDS` offsets at most.

    A share that has more offsets is a group of its own. The order stays: shares of 40,000,
    20,000 and 30,000 offsets become the groups (40,000, 20,000) and (30,000).
    """
    groups: list[list[Share]] = []
    group_size = 0  # offsets of the last group
    for share in shares:
        share_size = share.end - share.start
        if not groups or group_size + share_size > TOGETHER_RECORDS:
            groups.append([])
            group_size = 0
        groups[-1].append(share)
        group_size += share_size
    return groups


def _is_read_together(group: Sequence[Share]) -> bool:
    """Return whether the shares of a group are read by the one consumer of `Together`.

    A single share of more than `CHUNK_RECORDS` offsets has a consumer of its own, which may be
    one that is kept where the batch before ended.
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
        groups = _groups_of(shares)
        # by the first share of a group: the group, all of which is read with that share
        self._groups_by_first = {group[0]: group for group in groups if _is_read_together(group)}
        # by the share before: a large share, which a consumer begins to fetch while that is read
        self._large_by_former: dict[Share, Share] = {}
        for group, next_group in pairwise(groups):
            if not _is_read_together(next_group):
                self._large_by_former[group[-1]] = next_group[0]

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Yield the records of one of the shares as `RangeReader.chunks` does."""
        # 1. with the first share of a group the whole group is read
        group = self._groups_by_first.get(share)
        if group is not None:
            self._first_records = self._together.read(self._settings, group)
        # 2. the reader of the share: one that fetches already, or a new one
        reader = self._fetching_readers.pop(share, None)
        if reader is None:
            first_records = self._first_records.pop(share, None)
            reader = RangeReader(self._settings, share, self._kept_consumers, first_records)
        reader.damaged = self.damaged
        # 3. begin to fetch the next share, if it is large
        next_share = self._large_by_former.get(share)
        if next_share is not None:
            reader.fetch()  # before the next one, whose records may wait
            next_reader = RangeReader(self._settings, next_share, self._kept_consumers)
            self._fetching_readers[next_share] = next_reader
            next_reader.fetch()
        # 4. the records
        for messages in reader.chunks():
            yield from self._without_too_large(messages)
        self.lost += reader.lost

    def _without_too_large(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Yield the records without those that are too large, and add these to `damaged`.

        A record that is too large is added before the records behind it are yielded: of offsets
        1 to 5, with 3 too large, come 1 and 2, then `damaged` has 3, then come 4 and 5.
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
    """A consumer, and whether it is new: a kept one may still deliver events of an earlier batch."""

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
        self._next_offset = share.start  # the offset that is read next
        self._end_offset = share.end
        self._skips_loss = share.skips_loss
        self._is_of_copies = share.of_copies
        self._kept_consumers = kept_consumers
        # what the last events have reported at `_next_offset`: it has left the log, or cannot be
        # read
        self._has_left_log = False
        self._damage: KafkaError | None = None
        # what `fetch` has begun with; None: it was not called, or `chunks` uses its consumer
        self._opened: _Opened | None = None

    def fetch(self) -> None:
        """Begin to fetch, in the client's own threads, while the caller does something else.

        Does nothing where records of the share were read before: `chunks` yields these first.
        """
        if self._first_records is None and self._opened is None:
            self._opened = self._take_or_open_consumer()

    def close(self) -> None:
        """Close the consumer of `fetch`; once a chunk was taken, `chunks` closes it."""
        if self._opened is not None:
            self._opened.consumer.close()

    @property
    def _place(self) -> Place:
        """Where a consumer has to stand to read on: at `_next_offset`."""
        return Place(self._client.bootstrap, self._topic, self._partition, self._next_offset)

    def chunks(self) -> Iterator[list[Message]]:
        """Yield the records of the share, in order.

        They come in lists of at most `CHUNK_RECORDS` records, or of some `CHUNK_BYTES`.

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
            if self._next_offset >= self._end_offset:
                return
        consumer, is_new = self._opened or self._take_or_open_consumer()
        self._opened = None
        try:
            idle_ms = 0
            has_end_event = False  # whether this consumer has said that the partition ends
            while self._next_offset < self._end_offset:
                # 1. take what the consumer has, and hand its records out
                messages = _poll_messages(
                    consumer,
                    min(
                        CHUNK_RECORDS,
                        self._end_offset - self._next_offset,
                    ),
                )
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
                if end_offset is not None and end_offset >= self._end_offset:
                    break
                if end_offset is not None and is_new:
                    self._require_log_reaches_end(consumer)
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
        if self._next_offset == self._end_offset and not self._is_of_copies:
            self._kept_consumers.put(self._place, consumer)
        else:
            consumer.close()

    def _first_chunks(self, first_records: FirstRecords) -> Iterator[list[Message]]:
        """Yield the records that were read before, in chunks.

        `_next_offset` is behind them at once.
        """
        self._next_offset = first_records.next
        records = first_records.records
        for first_row in range(0, len(records), CHUNK_RECORDS):
            yield records[first_row : first_row + CHUNK_RECORDS]

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
        consumer.assign([TopicPartition(self._topic, self._partition, self._next_offset)])
        return consumer

    def _take_records(self, messages: list[Message]) -> tuple[list[Message], int | None]:
        """Move `_next_offset` behind the last record.

        Return the share's records, and the partition's end. The end is the offset of an EOF event;
        None: there was no such event. A loss or a damage
        that an event reports is kept for `_pass_over_trouble`.
        """
        end_offset: int | None = None
        events, records = _split_events(messages)
        for event in events:
            error = event.error()
            # an event always has an error; None is for the type checker
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._record_trouble(error)
            else:
                end_offset = event.offset() or 0
        # the last record may lie behind the share: then nothing is left before it
        if records:
            self._next_offset = (records[-1].offset() or 0) + 1
            records = _before(records, self._end_offset)
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
        """Return whether a damaged batch, which no event reported, is why nothing came.

        False as long as less than `STALL_MS` have passed, and where the broker does not answer.
        """
        if idle_ms < STALL_MS or self._background.is_hopeless:
            return False
        try:
            log_start, log_end = self._log_bounds(consumer)
        except KafkaException:  # the broker answers nobody
            return False
        is_in_log = log_start <= self._next_offset < log_end
        return is_in_log and self._first_readable() > self._next_offset

    def _pass_over_trouble(self, consumer: Consumer) -> None:
        """Move `_next_offset` behind offsets that left the log, or that cannot be read.

        Count the former as `lost`, and add the latter to `damaged`.
        """
        if self._has_left_log:
            self._has_left_log = False
            self._pass_over_lost(consumer)
            return
        damage_start = self._next_offset
        self._next_offset = min(self._first_readable(), self._end_offset)
        error = self._damage
        self._damage = None
        place = port.TopicPartition(self._topic, self._partition)
        why = "nothing of it can be read"
        if error is not None:
            why = self._client.damage_error(error, place, damage_start).why
        if damage_start < self._next_offset:
            self.damaged.append(DamagedRun(*place, damage_start, self._next_offset, why))

    def _first_readable(self) -> int:
        """Return the first offset, from the next one on, that a client can read."""
        place = port.TopicPartition(self._topic, self._partition)
        return first_behind_damage(self._client, place, self._next_offset)

    def _pass_over_lost(self, consumer: Consumer) -> None:
        """Move `_next_offset` to where the log begins now; count those before that as `lost`.

        Raises `DataLoss`: the share does not skip lost records; `Disagreement`: the log has not
        lost its beginning, but its end.
        """
        log_start, log_end = self._log_bounds(consumer)
        if log_start <= self._next_offset:
            raise self._cut_error(log_start, log_end)
        if not self._skips_loss:
            raise DataLoss(
                f"{self._next_place()} left the log, which begins at {log_start}, after the batch was"
                " planned; set on_data_loss: skip to go on without such records, or raise the"
                " topic's retention"
            )
        first_left = min(log_start, self._end_offset)
        self.lost += first_left - self._next_offset
        self._next_offset = first_left

    def _require_log_reaches_end(self, consumer: Consumer) -> None:
        """Raise `Disagreement` if the leader's log, too, ends before the range.

        The broker that is read may be a follower of the partition, which does not have the newest
        end. So the leader is believed alone. If the leader cannot be reached now, nothing is
        raised,
        and the reader waits on.
        """
        try:
            log_start, log_end = self._log_bounds(consumer)
        except KafkaException as error:
            if error.args[0].code() in TRANSIENT:
                return
            raise
        if log_end < self._end_offset:
            raise self._cut_error(log_start, log_end)

    def _log_bounds(self, consumer: Consumer) -> tuple[int, int]:
        """Return the first offset of the log and its end, which the leader is asked for."""
        place = TopicPartition(self._topic, self._partition)
        return consumer.get_watermark_offsets(place, STALL_MS / 1000, cached=False)

    def _cut_error(self, log_start: int, log_end: int) -> Disagreement:
        """Return the error of a log that lacks offsets with which the batch was planned."""
        return Disagreement(
            f"{self._next_place()}: the log begins at {log_start} and ends at {log_end}: the topic"
            " was created again, or cut; run `windhover offsets reset` for its input"
        )

    def _error_of(self, error: KafkaError) -> WindhoverError:
        """Return our error for one of the broker's or the client's."""
        return self._client.error(error, self._next_place(), use=Use(Operation.READ, topic=self._topic))

    def _stall_error(self, consumer: Consumer, idle_ms: int) -> WindhoverError:
        """Return the error of a broker that sends nothing; it names the partition's leader."""
        text = "nothing came"
        if not self._background.is_hopeless:
            # this raises where we may not describe the topic: such a topic is silent, too
            metadata = self._client.metadata_of(consumer, self._topic, self._background)
            partition = metadata.topics[self._topic].partitions.get(self._partition)
            leader = None if partition is None else metadata.brokers.get(partition.leader)
            text += f" from its leader, {leader.host}:{leader.port}" if leader else ", it has no leader"
        return self._client.unreachable_error(self._next_place(), idle_ms, text, self._background)

    def _next_place(self) -> str:
        """Return the place that is read next, as messages name it: `lines/3@42`."""
        return f"{self._topic}/{self._partition}@{self._next_offset}"
