"""The audit records of redrives: who had which dead letters handled, why, and how it ended.

A redrive carries out one order, to replay or to drop letters, for one input. It writes two records
into partition 0 of the input's dead-letter topic, with neither key nor value: one before its first
letter, one at its end. Every copy and every mark that it writes has its id. So the log shows what a
redrive did, even if it was killed.

==========================  ===================================================================
windhover.redrive           the id; on the copies and marks of the redrive as well
windhover.audit             JSON: the fields of `RedriveBegun` or `RedriveEnded`
==========================  ===================================================================
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from pydantic import TypeAdapter, ValidationError

from acker.kafka.port import Headers, Outgoing, Record
from acker.wire.causes import clipped
from replay.records.headers import CAUSE_BYTES_MAX, PREFIX, header_text, our_values

REDRIVE: Final = f"{PREFIX}redrive"
AUDIT: Final = f"{PREFIX}audit"

AUDIT_PARTITION: Final = 0


class RedriveEnd(StrEnum):
    """How a redrive ended."""

    DONE = "DONE"
    CANCELLED = "CANCELLED"
    DIED_AGAIN = "DIED_AGAIN"
    """Too many of its letters died again."""
    STALLED = "STALLED"
    """As many letters as allowed were open, and none of them was settled for too long."""


@dataclass(frozen=True, slots=True)
class RedriveBegun:
    """That a redrive began.

    Attributes:
        redrive: its id.
        action: a `LetterAction`.
        by, why: who ordered it, and the reason as they gave it.
        which: its filter in words.
        letters: how many it found.
        copies_from: where the replay topic ended before, by the number of a partition.
        letters_from, verdicts_from: likewise of the dead-letter topic, and of ``_ack_verdict``.
    """

    redrive: str
    action: str
    by: str
    why: str
    which: str
    letters: int
    copies_from: tuple[int, ...]
    letters_from: tuple[int, ...]
    verdicts_from: tuple[int, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class RedriveEnded:
    """That a redrive ended.

    Attributes:
        redrive: its id.
        end: a `RedriveEnd`.
        by: who ordered it, or cancelled it.
        handled: how many letters it handled; like the next two -1 if another process wrote this.
        acked, died: how many of these were acked by then, and died again.
    """

    redrive: str
    end: str
    by: str
    handled: int
    acked: int
    died: int
    at_ms: int


def audit_record(event: RedriveBegun | RedriveEnded, topic: str) -> Outgoing:
    """Build the audit record of a beginning or an end; `topic` is the input's dead-letter topic."""
    value_by_field = asdict(event)
    for name, value in value_by_field.items():
        if isinstance(value, str):  # an operator may have given a text of any length
            value_by_field[name] = clipped(value, CAUSE_BYTES_MAX)
    event_json = json.dumps(value_by_field, ensure_ascii=False, separators=(",", ":"))
    audit_value = event_json.encode("utf-8", "replace")
    headers: Headers = ((REDRIVE, event.redrive.encode()), (AUDIT, audit_value))
    return Outgoing(topic, AUDIT_PARTITION, value=None, headers=headers, timestamp_ms=event.at_ms)


_AUDIT_JSON: Final[TypeAdapter[RedriveBegun | RedriveEnded]] = TypeAdapter(RedriveBegun | RedriveEnded)


def parse_audit(record: Record) -> RedriveBegun | RedriveEnded | None:
    """Read an audit record; None: it is something else, or cannot be read."""
    # most records are letters and marks, which have no such header: nothing else is read
    if not any(name == AUDIT for name, _value in record.headers):
        return None
    event_json = our_values(record.headers).get(AUDIT)
    if event_json is None:
        return None
    try:
        return _AUDIT_JSON.validate_json(event_json)
    except ValidationError:
        return None


def redrive_of(headers: Headers) -> str:
    """Return the id of the redrive that wrote a copy or a mark; empty: none did."""
    return header_text(our_values(headers).get(REDRIVE))
