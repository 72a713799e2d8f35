"""The dead letter: a record that is given up, with its payload, its headers and its whole history.

Besides the record's own headers it has those of KIP-1191, which brokers write for share groups, so that
tools for such queues can read it; and Windhover's:

===============================  ==============================================================
__dlq.errors.topic               topic of the first emission; likewise ``.partition``, ``.offset``
__dlq.errors.group               the group that gave up
__dlq.errors.delivery.count      how often it was emitted
__dlq.errors.message             why it is here, in a sentence
windhover.dead                   `DeadReason`
windhover.missing                only if the payload is missing: why
windhover.timestamp              the record's own timestamp, ms; the letter's is when it was written
windhover.origin and the others  as in `replay.records.headers`; the attempt is the last one made
===============================  ==============================================================

Source: KIP-1191, "Dead-letter queues for share groups"; docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from typing import Final

from acker.identity import offset_of, partition_of
from acker.kafka.port import Headers, Outgoing, Record, record_bytes
from acker.wire.causes import clipped
from replay.policy.disposition import DeadReason
from replay.records.copies import story_headers
from replay.records.due import Due
from replay.records.headers import CAUSE_BYTES_MAX, PREFIX, parse_location, plain_headers, without_ours

KIP_PREFIX: Final = "__dlq.errors."
DEAD: Final = "windhover.dead"
MISSING: Final = "windhover.missing"
TIMESTAMP: Final = "windhover.timestamp"

_SENTENCES: Final = {
    DeadReason.ATTEMPTS: "given up after {attempt} emissions",
    DeadReason.ABANDONED: "given up after its session was taken over {abandoned} times",
    DeadReason.CAUSE: "given up after {attempt} emissions because its cause is final by a rule",
    DeadReason.TIME_LIMIT: "given up after {attempt} emissions because it was lost behind its time limit",
    DeadReason.DROPPED: "dropped after {attempt} emissions because a rule drops its cause",
    DeadReason.GONE: "given up because {root} is no longer in the log",
    DeadReason.DAMAGED: "given up because {root} lies in a batch that is damaged on its broker's disk",
    DeadReason.RECREATED: "given up because the topic of {root} was deleted or created again",
    DeadReason.TOO_LARGE: "given up because the copy with its history is larger than the replay topic takes",
    DeadReason.UNWRITABLE: "given up because the name of a header is no UTF-8: a copy cannot have it",
    DeadReason.UNREADABLE: "given up because what _ack_due held of {root} was overwritten and cannot be read",
}

_PAYLOAD_LOST: Final = {
    DeadReason.GONE: "the record is no longer in the log",
    DeadReason.DAMAGED: "the record lies in a damaged batch",
    DeadReason.RECREATED: "the topic was deleted or created again",
    DeadReason.UNREADABLE: "which record it was, and of which topic, is no longer known for sure",
}


def build_dead_letter(
    due: Due,
    reason: DeadReason,
    record: Record | None,
    *,
    topic: str,
    partitions: int,
    bytes_max: int,
    now_ms: int,
) -> Outgoing:
    """Build the dead letter of a record; its timestamp is `now_ms`, since retention counts from it.

    Args:
        record: as fetched; None if it could not be. If a rule drops it, only its key is kept.
        partitions: of `topic`, the dead-letter topic.
        bytes_max: its largest record; a larger letter loses the record's payload and headers, and says so.
    """
    missing = "" if record is not None else _PAYLOAD_LOST.get(reason, "the record could not be read")
    if reason is DeadReason.DROPPED and record is not None:
        record, missing = record._replace(value=None, headers=()), "a rule drops what fails by this cause"
    own_time: Headers = ()
    if record is not None and record.timestamp_ms >= 0:
        own_time = ((TIMESTAMP, b"%d" % record.timestamp_ms),)
    letter = Outgoing(
        topic=topic,
        partition=partition_of(due.source) % partitions,  # as in KIP-1191
        value=record.value if record else None,
        key=record.key if record else None,
        headers=(*_headers(due, reason, record.headers if record else (), missing), *own_time),
        timestamp_ms=now_ms,
    )
    size = record_bytes(letter)
    if size <= bytes_max:
        return letter
    missing = f"with its history it has {size} bytes, more than {topic} takes"
    return letter._replace(value=None, key=None, headers=_headers(due, reason, (), missing))


def _headers(due: Due, reason: DeadReason, kept: Headers, missing: str) -> Headers:
    note: Headers = ((MISSING, missing.encode()),) if missing else ()
    here = (due.topic, partition_of(due.source), offset_of(due.position))
    topic, partition, offset = parse_location(due.origin) or here
    return (
        *plain_headers(without_ours(kept, PREFIX, KIP_PREFIX)),
        (f"{KIP_PREFIX}topic", topic.encode()),
        (f"{KIP_PREFIX}partition", b"%d" % partition),
        (f"{KIP_PREFIX}offset", b"%d" % offset),
        (f"{KIP_PREFIX}group", due.group.encode()),
        (f"{KIP_PREFIX}delivery.count", b"%d" % due.attempt),
        (f"{KIP_PREFIX}message", clipped(_sentence(due, reason), CAUSE_BYTES_MAX).encode()),
        (DEAD, reason.encode()),
        *note,
        *story_headers(due, due.attempt),
    )


def _sentence(due: Due, reason: DeadReason) -> str:
    root = f"{due.topic}/{partition_of(due.source)}@{offset_of(due.position)}"
    given_up = _SENTENCES[reason].format(attempt=due.attempt, abandoned=due.abandoned, root=root)
    if not due.history:
        return given_up
    last = due.history[-1]
    cause = ": ".join(part for part in (last.error, last.message) if part)
    by = f" by {last.operator}" if last.operator else ""
    return f"{given_up}; the last {last.reason}{by}{': ' + cause if cause else ''}"
