"""Is a log still the one that was read? Asked as Kafka's own consumer does (KIP-320).

After an unclean leader election a log is shorter than it was, and grows again
with other records under the same offsets. Each leader has an epoch, and
records have that of the leader that wrote them. So the present leader can say
up to which offset its log has the records of an epoch and of those before it
(`OffsetForLeaderEpoch`).

librdkafka has no call for this question. Its consumer asks it when it is
assigned an offset with an epoch. It reports what it learned as an error of
the partition, with the offset in its text alone:

=============================================  ======================================================
what comes                                     what it means
=============================================  ======================================================
a record, the partition's end, another error   the log has all that was read
"log truncation detected", "end offset is 10"  the log was cut: offsets from 10 on are others, or gone
"No epoch found"                               the leader knows no epoch so low or so high
=============================================  ======================================================

Source: docs/design/protocol.md, section 5.1, "A log that was cut".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message

from acker.errors import Disagreement, LogError
from acker.kafka.client import Background, KafkaClient
from acker.kafka.port import ReadTo, TopicPartition
from acker.kafka.reader import FORCED

ANSWER_MS: Final = 3_000
"""How long the leaders of all partitions have for their answers.

A silent one is asked again later.
"""

_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        # what is fetched behind the answer is thrown away, so it is little
        # and comes at once
        "fetch.wait.max.ms": 20,
        "max.partition.fetch.bytes": 1_024,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 1_024,
    }
)

_CUT_TEXT: Final = re.compile(r"truncation detected at .*: broker end offset is (\d+) ")
_UNKNOWN_TEXT: Final = "No epoch found"


def unknown_epoch(partition: TopicPartition, epoch: int) -> Disagreement:
    """Return the error of a partition whose leader cannot say what its log had in `epoch`."""
    return Disagreement(
        f"{partition.name} was read when its leader had the epoch {epoch}, and its leader"
        " of now knows none like this: the cluster, or its metadata, is not the one that was read. Name the"
        " right cluster, or run `windhover offsets reset` for the inputs of this topic and start with a"
        " fresh checkpoint"
    )


def intact_to(
    client: KafkaClient, read_to_by_partition: Mapping[TopicPartition, ReadTo]
) -> dict[TopicPartition, int]:
    """Return, by partition, up to which offset its log still has what was read of it.

    A partition whose leader does not answer within `ANSWER_MS` is missing. Raises what
    `_intact_end` raises. See `acker.kafka.port.Log.intact_to`.
    """
    background = Background(client.clock)
    # read_uncommitted: a reader of committed records gets nothing behind an open transaction, so
    # the answer might not come either
    forced = {**FORCED, "isolation.level": "read_uncommitted"}
    consumer: Consumer = client.make_client(Consumer, _SETTINGS, forced, background)
    try:
        # librdkafka sends the question for an offset that is assigned with an epoch
        assignment = [
            confluent_kafka.TopicPartition(*partition, offset, leader_epoch=epoch)
            for partition, (offset, epoch) in read_to_by_partition.items()
        ]
        consumer.assign(assignment)
        return _wait_for_intact_offsets(client, consumer, read_to_by_partition)
    finally:
        consumer.close()


def _wait_for_intact_offsets(
    client: KafkaClient, consumer: Consumer, read_to_by_partition: Mapping[TopicPartition, ReadTo]
) -> dict[TopicPartition, int]:
    """Return what `intact_to` returns.

    The first message of a partition is its answer: a record, the end of the partition, or an error
    (the table at the head of this module). A partition without a message within `ANSWER_MS` is
    missing.
    """
    intact_ends: dict[TopicPartition, int] = {}
    deadline = client.deadline(ANSWER_MS)
    while len(intact_ends) < len(read_to_by_partition) and not deadline.is_over:
        message = consumer.poll(deadline.left_s)
        if message is None:
            continue
        partition = TopicPartition(message.topic() or "", message.partition() or 0)
        # only the first message of a partition is an answer; what follows it
        # was fetched behind
        if partition in read_to_by_partition and partition not in intact_ends:
            read_to = read_to_by_partition[partition]
            intact_ends[partition] = _intact_end(message, partition, read_to)
    return intact_ends


def _intact_end(message: Message, partition: TopicPartition, read_to: ReadTo) -> int:
    """Return up to which offset a log still has what was read of it.

    That is `read_to.offset`, or the lower offset at which the log was cut. `message` is the first
    message of the partition: a record, or an error.

    Raises:
        Disagreement: the leader knows no such epoch.
        LogError: the client's text has another form than the one that is known.
    """
    error = message.error()
    if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
        return read_to.offset
    text = error.str()
    if _UNKNOWN_TEXT in text:
        raise unknown_epoch(partition, read_to.leader_epoch)
    if "truncation" not in text:
        return read_to.offset  # not in the log for another reason, which a reader will report
    match = _CUT_TEXT.search(text)
    if match is None:
        raise LogError(f"asking where {partition.name} was cut: the client only says: {text}")
    log_end = int(match[1])
    return min(read_to.offset, log_end)
