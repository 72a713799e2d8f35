"""Reads exact ranges of offsets from Kafka partitions, in a Spark task.

A range may end in control records or in records of aborted transactions, which a client never returns. So
reading ends with the first message at or behind the end of the range, or with an EOF event there. An EOF
event before it is no end: the replica that is read may learn later than the planning process what is
committed, as a follower does (`client.rack`), or a new leader.

A range may have a damaged batch. What lies before it and behind it is returned, and the offsets between are
noted: whoever reads the range decides what becomes of them.

A consumer has its first record 20 to 35 ms after it was created, so the worker process keeps a consumer whose
position is where the next batch begins. A `seek` to any other position would take nearly as long, and would
drop the records that were fetched ahead. Where none is kept, since another worker read the batch before, the
consumer of a task's next share is created beside the work on the one before.

Spark gives the task of a small batch to the worker that waits longest, whose consumers are where an earlier
batch ended, and a task may have more ranges than consumers are kept. So small ranges are read together, by
one consumer that stays connected and has no partitions between two tasks (`Together`).

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
from acker.kafka.reader import before_damage, by_partition, is_damage, ready_messages, too_large_runs

CHUNK_RECORDS = 8_192
"""How many messages are taken at a time; it is also the size of the batches that bolts receive."""

CHUNK_BYTES = 64 << 20
"""With so many bytes of values a chunk is full, whatever is fetched besides: Arrow has 2 GB for a column."""

WAIT_MS = 200
"""A chunk that is not full is passed on after this time."""

STALL_MS = 60_000
"""A broker that sends nothing for this long counts as unreachable."""

CONSUMERS_KEPT = 4
"""Idle consumers that a worker process keeps; each may take some MB of memory with records fetched ahead."""

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
    # What is fetched beyond a range is lost when another worker reads the next range. A tenth of the default
    # is as fast, with 40 ms of slack at 250,000 records/s.
    "queued.min.messages": 10_000,
}

NOT_OURS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""The client tries to find the coordinator of its group, which we never use; so it may fail to find it."""


class Place(NamedTuple):
    """The position of a kept consumer, and the cluster that it reads from."""

    cluster: str
    topic: str
    partition: int
    offset: int


class Kept:
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
            self._idle.pop(next(iter(self._idle))).close()


_KEPT = Kept()
# Global, since nothing else in a worker process outlives a task.

COPIES_WAIT_MS = 20
"""How long the broker waits for records before it answers that there are none, where a reader expects so."""

TOGETHER_RECORDS = 65_536
"""So many records of several ranges, at most, are read together, and are in memory then."""

TOGETHER_WAIT_MS = 1_000
"""Ranges that are read together are read one by one when nothing comes for so long: a client that connects to
a broker far away may take as long."""

TOGETHER: Mapping[str, Any] = {
    **SETTINGS,
    # What is fetched beyond a range is thrown away.
    "max.partition.fetch.bytes": 262_144,
    # What an answer unpacks to is then no more than what one batch may (`acker.kafka.reader.ONE_BATCH`).
    "fetch.max.bytes": 1_048_576,
    "queued.min.messages": 1_000,
}

AT_ONCE: Mapping[str, Any] = {"fetch.wait.max.ms": COPIES_WAIT_MS}
"""A fetch behind the end of a range may be under way when its task ends, and keeps the next task waiting."""


class Share(NamedTuple):
    """The offsets [start, end) of one partition.

    `skips_loss`: records that have left the log are skipped. `of_copies`: the partition is a replay topic's,
    where every transaction ends in a marker, so most ranges do. Only an answer without records shows that,
    and by default the broker gives it after half a second.
    """

    topic: str
    partition: int
    start: int
    end: int
    skips_loss: bool = False
    of_copies: bool = False


class Early(NamedTuple):
    """The first records of a share, which were read before, and the offset at which the rest begins."""

    records: list[Message]
    next: int


class Together:
    """Reads small shares together, by a consumer that a worker process keeps.

    Where anything is not as it should be it returns fewer records, and `RangeReader` finds out what is wrong.
    """

    def __init__(self) -> None:
        self._settings: Mapping[str, str] = {}
        self._consumer: Consumer | None = None
        self._topics: set[str] = set()
        self._has_received = False
        self._background = Background(time.monotonic)

    def read(self, settings: Mapping[str, str], shares: Sequence[Share]) -> dict[Share, Early]:
        """Read shares to their ends, or up to the first trouble; of a partition only its first share."""
        places: dict[tuple[str, int], Share] = {}
        for share in shares:
            places.setdefault((share.topic, share.partition), share)
        left = dict(places)
        found = {share: Early([], share.start) for share in places.values()}
        consumer = self._connected(settings)
        try:
            # a connected client looks for the leaders of topics that are new to it once a second
            for topic in {topic for topic, _ in places} - self._topics:
                consumer.list_topics(topic, timeout=TOGETHER_WAIT_MS / 1000)
                self._topics.add(topic)
            fetched = {*places}
            consumer.incremental_assign([TopicPartition(*place, one.start) for place, one in places.items()])
            # partitions that are read go on to send what is new, also where another one is silent
            until_s = time.monotonic() + TOGETHER_WAIT_MS / 1000
            held = 0
            is_damaged = is_slow = False
            while left and held < CHUNK_BYTES and time.monotonic() < until_s:
                if (first := consumer.poll(TOGETHER_WAIT_MS / 1000)) is None:
                    # It may be unpacking a batch that takes longer, and would keep it while another client
                    # unpacks it again; but one that is only connecting is ready for the next task.
                    is_slow = self._has_received
                    break
                self._has_received = True
                messages = [first]
                if first.error() is None:
                    messages = ready_messages(consumer, first, CHUNK_RECORDS + 1, CHUNK_BYTES - held)
                events, records = _separated(messages)
                is_damaged = is_damaged or any(map(is_damage, events))
                held += sum(map(len, records))
                for place, group in by_partition(records).items():
                    if place in left:
                        until_s = time.monotonic() + TOGETHER_WAIT_MS / 1000
                        share = left[place]
                        ends_at = (group[-1].offset() or 0) + 1
                        read = found[share].records + _below(group, share.end)
                        found[share] = Early(read, min(ends_at, share.end))
                for event in events:
                    # where a partition ends; one that ends too early, or with an error, is not read on
                    ended = left.pop((event.topic() or "", event.partition() or 0), None)
                    error, end = event.error(), event.offset() or 0
                    is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                    if ended is not None and is_end and end >= ended.end:
                        found[ended] = found[ended]._replace(next=ended.end)
                left = {place: share for place, share in left.items() if found[share].next < share.end}
                # Of batches larger than `max.partition.fetch.bytes` the broker sends one, and none of another
                # partition: what goes on to send would keep those that are left waiting.
                if left and (whole := fetched - left.keys()):
                    consumer.incremental_unassign([TopicPartition(*place) for place in whole])
                    fetched -= whole
            # Of a damaged batch the client may go on in the middle, and stop there. Of a large one it keeps
            # all that it has unpacked, while another client unpacks it again.
            if is_damaged or is_slow or held >= CHUNK_BYTES:
                self._forget(consumer)
            else:
                consumer.incremental_unassign([TopicPartition(*place) for place in fetched])
        except KafkaException:
            self._forget(consumer)
        return found

    def _forget(self, consumer: Consumer) -> None:
        self._consumer = None
        consumer.close()

    def _connected(self, settings: Mapping[str, str]) -> Consumer:
        if self._consumer is None or self._settings != settings:
            if self._consumer is not None:
                self._consumer.close()
            client = KafkaClient(settings, "windhover-read", STALL_MS, time.monotonic)
            self._consumer = client.make(Consumer, TOGETHER, {**AT_ONCE, **CHECKED}, self._background)
            self._settings = settings
            self._topics = set()
            self._has_received = False
        return self._consumer


_TOGETHER = Together()
# Global, as `_KEPT` is.


def _separated(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Return events and records of what a consumer returned, which mostly are records alone.

    Of a partition with a damaged batch only what lies before that is returned.
    """
    events = [message for message in messages if message.error() is not None]
    if not events:
        return events, messages
    if any(map(is_damage, events)):
        messages = before_damage(messages)
        events = [message for message in messages if message.error() is not None]
    return events, [message for message in messages if message.error() is None]


def _below(messages: list[Message], end: int) -> list[Message]:
    """Return the messages of one partition that are before an offset; in most cases all are."""
    if (messages[-1].offset() or 0) < end:
        return messages
    return [message for message in messages if (message.offset() or 0) < end]


def _come(consumer: Consumer, most: int) -> list[Message]:
    """Return `most` messages, or fewer when an event came, `CHUNK_BYTES`, or nothing more within `WAIT_MS`.

    `Consumer.consume` with a timeout waits it out unless all messages come, even behind the event that says
    that the partition ends; so only `poll` waits here, for one message.
    """
    messages: list[Message] = []
    held = 0
    while len(messages) < most and held < CHUNK_BYTES:
        message = consumer.poll(WAIT_MS / 1000)
        if message is None:
            break
        came = [message]
        if message.error() is None:
            came = ready_messages(consumer, message, most - len(messages), CHUNK_BYTES - held)
        messages += came
        if messages[-1].error() is not None:
            break
        if len(messages) < most:
            held += sum(map(len, came))
    return messages


def _grouped(shares: Sequence[Share]) -> list[list[Share]]:
    """Put shares that are to be read together into groups, without changing their order."""
    groups: list[list[Share]] = []
    held = TOGETHER_RECORDS
    for share in shares:
        records = share.end - share.start
        if held + records > TOGETHER_RECORDS:
            groups.append([])
            held = 0
        groups[-1].append(share)
        held += records
    return groups


def _is_small(group: Sequence[Share]) -> bool:
    """Return whether a group of shares is read together; a single large one goes on where a batch ended."""
    return len(group) > 1 or group[0].end - group[0].start <= CHUNK_RECORDS


class TaskReader:
    """Reads the shares of one task.

    `lost` counts offsets that had left the log before they were read. `damaged` has those that cannot be
    read, each run before the first chunk behind it is returned.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        shares: Sequence[Share],
        kept: Kept = _KEPT,
        together: Together = _TOGETHER,
    ) -> None:
        """Prepare; `shares` are in the order in which they will be read."""
        self.lost = 0
        self.damaged: list[DamagedRun] = []
        self._settings = settings
        self._kept = kept
        self._together = together
        self._early: dict[Share, Early] = {}
        self._ahead: dict[Share, RangeReader] = {}
        groups = _grouped(shares)
        self._group_of = {group[0]: group for group in groups if _is_small(group)}
        self._following = {one[-1]: next[0] for one, next in pairwise(groups) if not _is_small(next)}

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Return the records of one of the shares as `RangeReader.chunks` does."""
        if (group := self._group_of.get(share)) is not None:
            self._early = self._together.read(self._settings, group)
        reader = self._ahead.pop(share, None)
        if reader is None:
            reader = RangeReader(self._settings, share, self._kept, self._early.pop(share, None))
        reader.damaged = self.damaged
        if (following := self._following.get(share)) is not None:
            reader.fetch()  # before the next one, whose records may wait
            self._ahead[following] = RangeReader(self._settings, following, self._kept)
            self._ahead[following].fetch()
        for messages in reader.chunks():
            yield from self._handled(messages)
        self.lost += reader.lost

    def _handled(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Yield records up to each one that is too large, which is noted as one that cannot be read."""
        for run in too_large_runs(messages):
            before = [message for message in messages if (message.offset() or 0) < run.start]
            if before:
                yield before
            self.damaged.append(run)
            messages = [message for message in messages if (message.offset() or 0) >= run.end]
        if messages:
            yield messages

    def close(self) -> None:
        """Close the consumers of shares that nobody has read."""
        for reader in self._ahead.values():
            reader.close()


class RangeReader:
    """Reads a share of a batch; `lost` and `damaged` are as in `TaskReader`."""

    def __init__(
        self, settings: Mapping[str, str], share: Share, kept: Kept = _KEPT, early: Early | None = None
    ) -> None:
        """Prepare; `early` is what was read of the share already."""
        self.lost = 0
        self.damaged: list[DamagedRun] = []
        self._early = early
        self._client = KafkaClient(settings, "windhover-read", STALL_MS, time.monotonic)
        self._background = Background(time.monotonic)
        self._topic, self._partition, self._next, self._end, self._skips_loss, self._of_copies = share
        self._kept = kept
        self._is_lost = False
        self._damage: KafkaError | None = None
        self._begun: tuple[Consumer, bool] | None = None

    def fetch(self) -> None:
        """Begin to fetch beside what the caller does; what was read before needs no consumer."""
        if self._early is None:
            self._begun = self._begun or self._begin()

    def close(self) -> None:
        """End what `fetch` began, if no chunk was taken."""
        if self._begun is not None:
            self._begun[0].close()

    @property
    def _place(self) -> Place:
        return Place(self._client.bootstrap, self._topic, self._partition, self._next)

    def chunks(self) -> Iterator[list[Message]]:
        """Return the records of the range, in order, in lists of `CHUNK_RECORDS` or some `CHUNK_BYTES`.

        Raises:
            DataLoss: the log begins behind the next offset, and the share does not skip lost records.
            Disagreement: the log ends before the range.
            NotAuthenticated, NotAuthorized: the broker refuses our credentials, or we may not read the topic.
            Unreachable: it sent nothing for a minute.
            LogError: the broker returned any other error.
        """
        if self._early is not None:
            records, self._next = self._early
            for begin in range(0, len(records), CHUNK_RECORDS):
                yield records[begin : begin + CHUNK_RECORDS]
            if self._next >= self._end:
                return
        consumer, fresh = self._begun or self._begin()
        self._begun = None
        try:
            idle_ms = 0
            seen_end = False
            while self._next < self._end:
                messages = _come(consumer, min(CHUNK_RECORDS, self._end - self._next))
                records, end = self._accept(messages)
                if records:
                    yield records
                idle_ms = 0 if messages else idle_ms + WAIT_MS
                if self._is_lost or self._damage is not None or self._is_silent(consumer, idle_ms):
                    self._leave_out(consumer)
                    consumer.close()
                    consumer, fresh, seen_end, idle_ms = self._open(), True, False, 0
                    continue
                if end is not None and end >= self._end:
                    break
                if end is not None and fresh:
                    self._require_whole(consumer)
                # A kept consumer may still deliver the EOF event of the batch before. When nothing follows
                # it, a new one sees where the partition ends now.
                seen_end = seen_end or end is not None
                if messages:
                    self._background.answered()
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
        if self._next == self._end and not self._of_copies:  # else it would ask, idle, fifty times a second
            self._kept.put(self._place, consumer)
        else:
            consumer.close()

    def _begin(self) -> tuple[Consumer, bool]:
        """Return the consumer that is kept for this place, or a new one, and whether it is new."""
        kept = self._kept.take(self._place)
        return (self._open(), True) if kept is None else (kept, False)

    def _open(self) -> Consumer:
        settings = {**SETTINGS, "fetch.wait.max.ms": COPIES_WAIT_MS} if self._of_copies else SETTINGS
        consumer: Consumer = self._client.make(Consumer, settings, CHECKED, self._background)
        consumer.assign([TopicPartition(self._topic, self._partition, self._next)])
        return consumer

    def _accept(self, messages: list[Message]) -> tuple[list[Message], int | None]:
        """Separate events from records of the range; return also where the partition ended, if it did."""
        end: int | None = None
        events, records = _separated(messages)
        for event in events:
            if self._is_end(event.error()):
                end = event.offset() or 0
        if not records:
            return records, end
        self._next = (records[-1].offset() or 0) + 1
        return _below(records, self._end), end

    def _is_end(self, error: KafkaError | None) -> bool:
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in DAMAGE:
            self._damage = error
            return False
        if error.code() in NOT_OURS:
            return False
        if error.code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self._refusal(error)
        self._is_lost = True
        return False

    def _is_silent(self, consumer: Consumer, idle_ms: int) -> bool:
        """Return whether nothing came for `idle_ms` since a batch cannot be read of which nobody says so."""
        if idle_ms < STALL_MS or self._background.is_hopeless:
            return False
        try:
            first, end = self._bounds(consumer)
        except KafkaException:  # the broker is silent to all
            return False
        return first <= self._next < end and self._first_readable() > self._next

    def _leave_out(self, consumer: Consumer) -> None:
        """Go on behind what has left the log, or cannot be read; note it."""
        if self._is_lost:
            self._is_lost = False
            self._pass_over(consumer)
            return
        start, self._next = self._next, min(self._first_readable(), self._end)
        error, self._damage = self._damage, None
        place = port.TopicPartition(self._topic, self._partition)
        why = "nothing of it can be read" if error is None else self._client.damage(error, place, start).why
        if start < self._next:
            self.damaged.append(DamagedRun(*place, start, self._next, why))

    def _first_readable(self) -> int:
        place = port.TopicPartition(self._topic, self._partition)
        return first_behind_damage(self._client, place, self._next)

    def _pass_over(self, consumer: Consumer) -> None:
        first, end = self._bounds(consumer)
        if first <= self._next:
            raise self._cut(first, end)
        if not self._skips_loss:
            raise DataLoss(
                f"{self._where()} left the log, which begins at {first}, after the batch was planned; set"
                " on_data_loss: skip to go on without such records, or raise the topic's retention"
            )
        self.lost += min(first, self._end) - self._next
        self._next = min(first, self._end)

    def _require_whole(self, consumer: Consumer) -> None:
        """Raise `Disagreement` if the log of the leader, too, ends before the range."""
        try:
            first, end = self._bounds(consumer)
        except KafkaException as error:
            if error.args[0].code() in TRANSIENT:
                return
            raise
        if end < self._end:
            raise self._cut(first, end)

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        """Ask the leader for the first offset of the log, and for its end."""
        place = TopicPartition(self._topic, self._partition)
        return consumer.get_watermark_offsets(place, STALL_MS / 1000, cached=False)

    def _cut(self, first: int, end: int) -> Disagreement:
        return Disagreement(
            f"{self._where()}: the log holds {first} to {end}: the topic was created again, or cut; run"
            " `windhover offsets reset` for its input"
        )

    def _refusal(self, error: KafkaError) -> WindhoverError:
        return self._client.error(error, self._where(), use=Use(Operation.READ, topic=self._topic))

    def _stalled(self, consumer: Consumer, idle_ms: int) -> WindhoverError:
        """Return an error that explains why nothing arrives, and names who should have sent it."""
        text = "nothing came"
        # A topic that we may not describe is silent too, until its partitions are requested.
        if not self._background.is_hopeless:
            found = self._client.metadata_of(consumer, self._topic, self._background)
            partition = found.topics[self._topic].partitions.get(self._partition)
            leader = None if partition is None else found.brokers.get(partition.leader)
            text += f" from its leader, {leader.host}:{leader.port}" if leader else ", it has no leader"
        return self._client.unreachable(self._where(), idle_ms, text, self._background)

    def _where(self) -> str:
        return f"{self._topic}/{self._partition}@{self._next}"
