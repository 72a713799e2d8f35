"""Finds where a partition can be read again behind a damaged batch, by trying.

The client names a damaged batch by its first offset, and says nothing of its last one, which stands in the
batch's head and may be wrong like all else. But asked for an offset within the batch the broker sends that
batch, and for one behind it the next. So each offset that is tried tells on which side of the batch's end it
lies:

1. Try at 1, 2, 4, 8 ... offsets behind the beginning, until one lies behind the batch, or the log ends.
2. Halve the rest. A batch of 1,000 records takes some 20 trials, each of some ms.
3. Where the next batch is damaged, too, go on with that one.

A trial fetches a single batch, so it never sees what comes behind. Its answer is a record, the end of the
partition, or an event that says what is wrong, mostly with the batch's first offset. Of a few kinds of damage
nobody names it (the broker cannot read the head), or the client says nothing at all (the head's length is too
large, the records of a plain batch cannot be parted). Then two damaged batches look like one, so that the
steps are short, and what is sound between them is found. A silent trial ends after `SILENT_MS`, if the broker
answers other questions meanwhile.
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
"""Of these events the offset is the one that was asked for, not that of the batch."""

SILENT_MS: Final = 3_000
"""An offset of which nothing came for so long lies within the damage: a record would have come in some ms."""

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
        # so few that the broker sends the batch that has the offset, and nothing behind it
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
"""So many offsets are left out at most between two trials that tell of damage and not of which batch."""


class TrialResult(NamedTuple):
    """What a trial tells; `batch` is the first offset of a damaged batch, None: unknown, or none is."""

    can_be_read: bool
    batch: int | None = None


def first_behind_damage(client: KafkaClient, place: TopicPartition, at: int) -> int:
    """Return the first offset from `at` on, at which a partition cannot be read, that can be; or its end.

    It is `at` itself where that can be read now: another replica may lead the partition.

    Raises `Unreachable`: the broker does not answer; `LogError`: it refuses the partition.
    """
    trials = _Trials(client, place)
    try:
        end = trials.end()
        while at < end and not (found := trials.look(at)).can_be_read:
            at = _end_of_batch(trials, at, found.batch, end)
        return at
    finally:
        trials.close()


def _end_of_batch(trials: _Trials, at: int, batch: int | None, end: int) -> int:
    """Return where the damaged batch ends that has the offset `at`; the partition ends at `end`."""

    def lies_behind(offset: int) -> bool:
        found = trials.look(offset)
        return found.can_be_read or found.batch not in (None, batch)

    step_max = NAMELESS_STEP_MAX if batch is None else end
    within, step = at, 1
    while (behind := min(within + step, end)) < end and not lies_behind(behind):
        within, step = behind, min(step * 2, step_max)
    while behind - within > 1:
        middle = (within + behind) // 2
        if lies_behind(middle):
            behind = middle
        else:
            within = middle
    return behind


class _Trials:
    """A consumer that looks at single batches of one partition."""

    def __init__(self, client: KafkaClient, place: TopicPartition) -> None:
        self._client = client
        self._place = place
        self._background = Background(client.clock)
        self._consumer = self._new_consumer()

    def look(self, offset: int) -> TrialResult:
        """Find out whether the batch that has an offset, or the next one where none has, can be read."""
        placed = confluent_kafka.TopicPartition(*self._place, offset)
        self._consumer.incremental_assign([placed])
        answer = self._answer()
        error = None if answer is None else answer.error()
        if answer is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
            self._consumer.incremental_unassign([placed])
            return TrialResult(can_be_read=True)
        if error is not None and error.code() not in DAMAGE:
            raise self._error(error)
        if error is None:
            self.end()  # raises where the broker is silent to all
        # this one may go on in the middle of the batch, and stop at what it takes for offsets there
        self._consumer.close()
        self._consumer = self._new_consumer()
        is_named = answer is not None and error is not None and error.code() not in NAMELESS
        return TrialResult(
            can_be_read=False, batch=answer.offset() if answer is not None and is_named else None
        )

    def end(self) -> int:
        """Return where the partition ends, asked of the broker now."""
        place = confluent_kafka.TopicPartition(*self._place)
        try:
            _, end = self._consumer.get_watermark_offsets(place, SILENT_MS / 1_000, cached=False)
        except KafkaException as error:
            raise self._error(error.args[0]) from error
        return end

    def close(self) -> None:
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return self._client.make(Consumer, {}, FORCED, self._background)

    def _answer(self) -> Message | None:
        deadline = self._client.deadline(SILENT_MS)
        while not deadline.is_over:
            message = self._consumer.poll(deadline.left_s)
            if message is not None and message.topic() == self._place.topic:
                return message
        return None

    def _error(self, error: KafkaError) -> Exception:
        doing = f"looking behind a damaged batch of {self._place.topic}/{self._place.partition}"
        use = Use(Operation.READ, topic=self._place.topic)
        return self._client.error(error, doing, SILENT_MS, self._background, use)
