"""Finds where a partition can be read again behind a damaged batch, by trying.

The client names a damaged batch by its first offset. It does not name the
last one, which stands in the batch's head and may be wrong like all else. But
if a client asks for an offset within the batch, the broker sends that batch;
for an offset behind it, the next batch. So each offset that is tried shows on
which side of the batch's end it lies:

1. Try at 1, 2, 4, 8 ... offsets behind the beginning, until one lies behind the batch, or the log
   ends.
2. Halve the rest. A batch of 1,000 records takes some 20 trials, each of some ms.
3. If the next batch is damaged, too, go on with that one.

A trial fetches a single batch, so it never sees what comes behind. Its answer
is a record, the end of the partition, or an event that says what is wrong,
mostly with the batch's first offset. For a few kinds of damage the event has
no first offset (the broker cannot read the head), or there is no event at all
(the head's length is too large, the records of a plain batch cannot be
parted). Then two damaged batches look like one; so the steps are short, and a
sound batch between them is not left out. A silent trial ends after
`SILENT_MS`, if the broker answers other questions meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from acker.kafka.client import CHECKED, DAMAGE, SILENT, Background, KafkaClient, Use
from acker.kafka.port import Operation, TopicPartition

NAMELESS: Final = frozenset({KafkaError.INVALID_MSG})
"""The offset of these events is the one that was asked for, not the first one of the batch."""

SILENT_MS: Final = 3_000
"""If nothing came for an offset for so long, it lies within the damage: a record would come in some ms."""

FORCED: Mapping[str, Any] = MappingProxyType(
    {
        **SILENT,
        **CHECKED,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # a record that its transaction aborted shows as well that its batch can be read
        "isolation.level": "read_uncommitted",
        # required by librdkafka and never used
        "group.id": "windhover-damage",
        # so few that the broker sends the batch that has the offset, and
        # nothing behind it
        "max.partition.fetch.bytes": 1,
        "queued.min.messages": 1,
        "fetch.wait.max.ms": 20,
        "fetch.queue.backoff.ms": 5,
        # the default, half a second, would be waited for at each trial
        "fetch.error.backoff.ms": 5,
        "max.poll.interval.ms": 86_400_000,
    }
)


NAMELESS_STEP_MAX: Final = 64
"""So many offsets lie at most between two trials while the events do not name their batches."""


class TrialResult(NamedTuple):
    """What a trial shows of the batch that has the tried offset.

    Attributes:
        can_be_read: whether it can; so can the partition's end.
        batch_start: the first offset of the damaged batch; None: it is
            unknown, or the batch can be read.
    """

    can_be_read: bool
    batch_start: int | None = None


def first_behind_damage(client: KafkaClient, partition: TopicPartition, position: int) -> int:
    """Return the first readable offset of a partition behind the damage at `position`, or its end.

    It is `position` itself if that can be read now: another replica may lead
    the partition.

    Raises:
        Unreachable: the broker does not answer.
        LogError: it refuses the partition.
    """
    trials = _Trials(client, partition)
    try:
        partition_end = trials.end()
        offset = position
        while offset < partition_end:
            result = trials.try_offset(offset)
            if result.can_be_read:
                break
            offset = _end_of_batch(trials, offset, result.batch_start, partition_end)
        return offset
    finally:
        trials.close()


def _end_of_batch(trials: _Trials, offset: int, batch_start: int | None, partition_end: int) -> int:
    """Return where the damaged batch ends that has the offset `offset`.

    `batch_start` is the first offset of that batch; None: it is unknown.
    """

    def lies_behind(tried_offset: int) -> bool:
        """Return whether an offset is behind the batch: it can be read, or is of another damaged one."""
        result = trials.try_offset(tried_offset)
        return result.can_be_read or result.batch_start not in (None, batch_start)

    # 1. From 100 on: 101, 103, 107, 115 ..., until an offset lies behind the batch.
    step = 1
    step_max = NAMELESS_STEP_MAX if batch_start is None else partition_end
    offset_within = offset
    offset_behind = min(offset_within + step, partition_end)
    while offset_behind < partition_end and not lies_behind(offset_behind):
        offset_within = offset_behind
        step = min(step * 2, step_max)
        offset_behind = min(offset_within + step, partition_end)
    # 2. The end lies between the two: halve what is between, until they are neighbours.
    while offset_behind - offset_within > 1:
        middle = (offset_within + offset_behind) // 2
        if lies_behind(middle):
            offset_behind = middle
        else:
            offset_within = middle
    return offset_behind


class _Trials:
    """Tries whether single batches of one partition can be read, by a consumer of its own."""

    def __init__(self, client: KafkaClient, partition: TopicPartition) -> None:
        self._client = client
        self._partition = partition
        self._background = Background(client.clock)
        self._consumer = self._new_consumer()

    def try_offset(self, offset: int) -> TrialResult:
        """Try to fetch the batch that has an offset, or the next one if no batch has it.

        Raises what `first_behind_damage` raises.
        """
        start = confluent_kafka.TopicPartition(*self._partition, offset)
        self._consumer.incremental_assign([start])
        answer = self._next_answer()
        if answer is None:
            self.end()  # raises if the broker answers nothing at all
            self._replace_consumer()
            return TrialResult(can_be_read=False)
        error = answer.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            self._consumer.incremental_unassign([start])
            return TrialResult(can_be_read=True)
        if error.code() not in DAMAGE:
            raise self._error(error)
        self._replace_consumer()
        batch_start = None if error.code() in NAMELESS else answer.offset()
        return TrialResult(can_be_read=False, batch_start=batch_start)

    def end(self) -> int:
        """Return where the partition ends, asked of the broker now."""
        partition = confluent_kafka.TopicPartition(*self._partition)
        try:
            _, end = self._consumer.get_watermark_offsets(partition, SILENT_MS / 1_000, cached=False)
        except KafkaException as error:
            raise self._error(error.args[0]) from error
        return end

    def close(self) -> None:
        self._consumer.close()

    def _replace_consumer(self) -> None:
        """Go on with a new client: one that met damage may read on in the middle of the damaged
        batch.

        It would stop at whatever it takes for offsets there.
        """
        self._consumer.close()
        self._consumer = self._new_consumer()

    def _new_consumer(self) -> Consumer:
        return self._client.make_client(Consumer, {}, FORCED, self._background)

    def _next_answer(self) -> Message | None:
        """Wait for a record or an event of the partition; None: nothing came within `SILENT_MS`."""
        deadline = self._client.deadline(SILENT_MS)
        while not deadline.is_over:
            message = self._consumer.poll(deadline.left_s)
            if message is not None and message.topic() == self._partition.topic:
                return message
        return None

    def _error(self, error: KafkaError) -> Exception:
        """Return the error of ours that an error of the client is."""
        doing = f"looking behind a damaged batch of {self._partition.name}"
        use = Use(Operation.READ, topic=self._partition.topic)
        return self._client.error(error, doing, SILENT_MS, self._background, use)
