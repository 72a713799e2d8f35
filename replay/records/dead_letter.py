"""The dead letter: a record that is given up, with its payload, its headers and its whole history.

Besides the record's own headers it has those of KIP-1191, which brokers write for share groups, so that
tools for such queues can read it; and Windhover's. A record that was a dead letter before came with such
headers itself. They stand first (`replay.records.headers`), so of a name the last one is this letter's:

===============================  ==============================================================
__dlq.errors.topic               topic of the first emission; likewise ``.partition``, ``.offset``
__dlq.errors.group               the group that gave up
__dlq.errors.delivery.count      how often it was emitted
__dlq.errors.message             why it is here, in a sentence
windhover.dead                   `DeadReason`
windhover.missing                only if the payload is missing: why
windhover.stack                  of the exception that failed it last, if any (`acker.wire.stacks`)
windhover.timestamp              the record's own time (`replay.records.record_time`)
windhover.origin and the others  as in `replay.records.headers`; the attempt is the last one made
===============================  ==============================================================

Source: KIP-1191, "Dead-letter queues for share groups"; docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from acker.errors import UnreadableKind
from acker.identity import is_replay, partition_of
from acker.kafka.port import Headers, Outgoing, Record, record_bytes
from acker.wire.causes import clipped
from acker.wire.stacks import stack_header
from replay.policy.disposition import DeadReason
from replay.records.copies import original_headers, past_headers
from replay.records.due import Due
from replay.records.headers import (
    CAUSE_BYTES_MAX,
    PREFIX,
    joined_headers,
    location,
    parse_location,
    plain_headers,
)
from replay.records.record_time import time_headers, time_of

KIP_PREFIX: Final = "__dlq.errors."
OUR_PREFIXES: Final = (PREFIX, KIP_PREFIX)
"""Of the names of our headers in a dead letter."""

DEAD: Final = "windhover.dead"
MISSING: Final = "windhover.missing"

_SENTENCES: Final = {
    DeadReason.ATTEMPTS: "given up after {attempt} emissions",
    DeadReason.ABANDONED: "given up after its session was taken over {abandoned} times",
    DeadReason.CAUSE: "given up after {attempt} emissions because its cause is final by a rule",
    DeadReason.TIME_LIMIT: "given up after {attempt} emissions because it was lost behind its time limit",
    DeadReason.DROPPED: "dropped after {attempt} emissions because a rule drops its cause",
    DeadReason.GONE: "given up because {root} is no longer in the log",
    **{DeadReason[kind.name]: f"given up because {{root}} {kind.phrase}" for kind in UnreadableKind},
    DeadReason.RECREATED: "given up because the topic of {root} was deleted or created again, or its log cut",
    DeadReason.REFUSED: "given up after {attempt} emissions because its copy is refused ({why})",
    DeadReason.TOO_LARGE: "given up because the copy with its history is larger than the replay topic takes",
    DeadReason.UNWRITABLE: "given up because the name of a header is no UTF-8: a copy cannot have it",
    DeadReason.UNREADABLE: "given up because what _ack_due held of {root} was overwritten and cannot be read",
}

_PAYLOAD_LOST: Final = {
    DeadReason.GONE: "the record is no longer in the log",
    **{DeadReason[kind.name]: f"the record {kind.phrase}" for kind in UnreadableKind},
    DeadReason.RECREATED: "the topic was deleted or created again, or its log cut",
    DeadReason.UNREADABLE: "which record it was, and of which topic, is no longer known for sure",
}


class LetterTopic(NamedTuple):
    """A dead-letter topic: its name, how many partitions it has, and its largest record in bytes."""

    name: str
    partitions: int
    bytes_max: int


class Death(NamedTuple):
    """Why a record became a dead letter; `why` has the broker's words where it refused the copy."""

    reason: DeadReason
    why: str = ""


def build_dead_letter(
    due: Due, death: Death, record: Record | None, topic: LetterTopic, now_ms: int
) -> Outgoing:
    """Build the dead letter of a record; its timestamp is `now_ms`, since retention counts from it.

    A letter that is too large for its topic is built without the stack, and if that is not enough
    without the record's payload and headers; then it says so.

    Args:
        record: as fetched; None if it could not be. If a rule drops it, only its key is kept.
        now_ms: wall time.
    """
    letter = _whole_letter(due, death, record, topic, now_ms)
    size_bytes = record_bytes(letter)
    if size_bytes > topic.bytes_max and due.stack:
        due = replace(due, stack="")  # the payload is worth more
        letter = _whole_letter(due, death, record, topic, now_ms)
        size_bytes = record_bytes(letter)
    if size_bytes <= topic.bytes_max:
        return letter
    why_missing = f"with its history it has {size_bytes} bytes, more than {topic.name} takes"
    headers = _our_headers(due, death, why_missing, record) + _time_headers(due, record)
    return letter._replace(value=None, key=None, headers=headers)


def _whole_letter(due: Due, death: Death, record: Record | None, topic: LetterTopic, now_ms: int) -> Outgoing:
    """Build a dead letter with all that it should have, however large it is."""
    original: Headers = ()  # the record's own
    why_missing = ""  # why there is no payload
    if record is None:
        why_missing = _PAYLOAD_LOST.get(death.reason, "the record could not be read")
    elif death.reason is DeadReason.DROPPED:
        record = record._replace(value=None)
        why_missing = "a rule drops what fails by this cause"
    else:
        original = original_headers(due, record)
    added = _our_headers(due, death, why_missing, record) + _time_headers(due, record)
    return Outgoing(
        topic=topic.name,
        partition=partition_of(due.source) % topic.partitions,  # as in KIP-1191
        value=record.value if record else None,
        key=record.key if record else None,
        headers=joined_headers(plain_headers(original), added, OUR_PREFIXES),
        timestamp_ms=now_ms,
    )


def _time_headers(due: Due, record: Record | None) -> Headers:
    """Return the record's own time as headers; none if the record could not be read."""
    if record is None:
        return ()
    return time_headers(time_of(record, is_copy=is_replay(due.source)))


def _our_headers(due: Due, death: Death, why_missing: str, record: Record | None) -> Headers:
    """Return what a letter says in headers of KIP-1191 and of our own, without the record's time.

    Args:
        why_missing: why the payload is missing; empty: it is there.
        record: that of the lost emission; None: it could not be read.
    """
    missing_header: Headers = ((MISSING, why_missing.encode()),) if why_missing else ()
    # a root that was put aside has no origin yet, and is named by the emission that was lost
    topic, partition, offset = parse_location(due.origin) or due.place
    return (
        (f"{KIP_PREFIX}topic", topic.encode()),
        (f"{KIP_PREFIX}partition", b"%d" % partition),
        (f"{KIP_PREFIX}offset", b"%d" % offset),
        (f"{KIP_PREFIX}group", due.group.encode()),
        (f"{KIP_PREFIX}delivery.count", b"%d" % due.attempt),
        (f"{KIP_PREFIX}message", clipped(_why_it_died(due, death), CAUSE_BYTES_MAX).encode()),
        (DEAD, death.reason.encode()),
        *missing_header,
        *past_headers(due, due.attempt, record),
        *stack_header(due.stack),
    )


def _why_it_died(due: Due, death: Death) -> str:
    """Return why a root was given up, and how its last emission was lost.

    Such as ``given up after 3 emissions; the last FAILED by parse: ValueError: no number``.
    """
    given_up = _SENTENCES[death.reason].format(
        attempt=due.attempt, abandoned=due.abandoned, root=location(*due.place), why=death.why
    )
    if not due.history:
        return given_up
    last_loss = due.history[-1]
    by_whom = f" by {last_loss.operator}" if last_loss.operator else ""
    causes = "".join(f": {text}" for text in (last_loss.error, last_loss.message) if text)
    return f"{given_up}; the last {last_loss.reason}{by_whom}{causes}"
