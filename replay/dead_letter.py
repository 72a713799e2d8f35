"""The dead letter: a record that is given up, with its payload, its headers and its whole history.

Beside the record's own headers it carries those of KIP-1191, as the brokers write them for share groups, so
that tools for such queues can read it, and Windhover's:

===============================  ==============================================================
__dlq.errors.topic               topic of the first emission; likewise ``.partition``, ``.offset``
__dlq.errors.group               the group that gave up
__dlq.errors.delivery.count      how often it was emitted
__dlq.errors.message             why it is here, in a sentence
windhover.dead                   `DeadReason`
windhover.missing                only where the payload is missing: why
windhover.origin and the others  as in `replay.headers`; the attempt is the last one made
===============================  ==============================================================

Source: KIP-1191, "Dead-letter queues for share groups"; DESIGN.md, section 5.4.
"""

from __future__ import annotations

from typing import Final

from acker.identity import offset_of, partition_of
from acker.log import Headers, Outgoing, Record
from replay.copies import lineage_of, outgoing_bytes
from replay.disposition import DeadReason
from replay.due import Due, history_json
from replay.headers import (
    CAUSE_BYTES_MAX,
    HISTORY,
    PREFIX,
    build_headers,
    clipped,
    parse_location,
    without_ours,
)

KIP_PREFIX: Final = "__dlq.errors."
DEAD: Final = "windhover.dead"
MISSING: Final = "windhover.missing"

_SENTENCES: Final = {
    DeadReason.ATTEMPTS: "given up after {attempt} emissions",
    DeadReason.ABANDONED: "given up after its session was taken over {abandoned} times",
    DeadReason.GONE: "given up because {root} is no longer in the log",
    DeadReason.RECREATED: "given up because the topic of {root} was deleted or created again",
    DeadReason.TOO_LARGE: "given up because the copy with its history is larger than the replay topic takes",
}

_PAYLOAD_LOST: Final = {
    DeadReason.GONE: "the record is no longer in the log",
    DeadReason.RECREATED: "the topic was deleted or created again",
}


def dead_letter_partition(source: int, partitions: int) -> int:
    """Return the partition of a dead-letter topic for a root of a source: as in KIP-1191, modulo."""
    return partition_of(source) % partitions


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
    """Bury a record.

    Args:
        due: what is known of the lost root.
        reason: why it is given up.
        record: as fetched; None when it could not be.
        topic: the dead-letter topic.
        partitions: how many partitions that topic has.
        bytes_max: the largest record it takes; a larger one is buried without payload and headers, and
            says so.
        now_ms: wall time; the record's timestamp, since retention counts from it.
    """
    missing = "" if record is not None else _PAYLOAD_LOST.get(reason, "the record could not be read")
    letter = Outgoing(
        topic=topic,
        partition=dead_letter_partition(due.source, partitions),
        value=record.value if record else None,
        key=record.key if record else None,
        headers=_headers(due, reason, record.headers if record else (), missing),
        timestamp_ms=now_ms,
    )
    size = outgoing_bytes(letter)
    if size <= bytes_max:
        return letter
    missing = f"with its history it has {size} bytes, more than {topic} takes"
    return letter._replace(value=None, key=None, headers=_headers(due, reason, (), missing))


def _headers(due: Due, reason: DeadReason, kept: Headers, missing: str) -> Headers:
    note: Headers = ((MISSING, missing.encode()),) if missing else ()
    return (
        *without_ours(kept, PREFIX, KIP_PREFIX),
        *_kip_headers(due, reason),
        (DEAD, reason.encode()),
        *note,
        *build_headers(lineage_of(due, due.attempt)),
        (HISTORY, history_json(due.history)),
    )


def _kip_headers(due: Due, reason: DeadReason) -> Headers:
    here = (due.topic, partition_of(due.source), offset_of(due.position))
    topic, partition, offset = parse_location(due.origin) or here
    return (
        (f"{KIP_PREFIX}topic", topic.encode()),
        (f"{KIP_PREFIX}partition", b"%d" % partition),
        (f"{KIP_PREFIX}offset", b"%d" % offset),
        (f"{KIP_PREFIX}group", due.group.encode()),
        (f"{KIP_PREFIX}delivery.count", b"%d" % due.attempt),
        (f"{KIP_PREFIX}message", clipped(_sentence(due, reason), CAUSE_BYTES_MAX).encode()),
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
