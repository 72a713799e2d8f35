"""The copy of a lost record that goes to its input's replay topic.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from typing import Final

from acker.identity import partition_of
from acker.log import Outgoing, Record
from replay.due import Due, history_json
from replay.headers import HISTORY, Lineage, build_headers, without_ours

RECORD_OVERHEAD_BYTES: Final = 70
"""What a record costs beside its key, value and headers: at most so much in a batch of its own."""


def lineage_of(due: Due, attempt: int) -> Lineage:
    """Return what headers say of a lost root: its past, and why its last emission was lost."""
    last = due.history[-1] if due.history else None
    return Lineage(
        origin=due.origin,
        attempt=attempt,
        abandoned=due.abandoned,
        first_emitted_ms=due.first_emitted_ms,
        reason=last.reason if last else "",
        cause=": ".join(part for part in (last.error, last.message) if part) if last else "",
        operator=last.operator if last else "",
    )


def build_copy(due: Due, record: Record, replay_topic: str) -> Outgoing:
    """Copy a lost record: same partition number, key, value, headers and timestamp, the next attempt.

    Headers of an earlier copy that begin with ``windhover.`` give way to the present ones.
    """
    return Outgoing(
        topic=replay_topic,
        partition=partition_of(due.source),
        value=record.value,
        key=record.key,
        headers=(
            *without_ours(record.headers),
            *build_headers(lineage_of(due, due.attempt + 1)),
            (HISTORY, history_json(due.history)),
        ),
        timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
    )


def outgoing_bytes(record: Outgoing) -> int:
    """Return the size of a record to write, as the broker counts it, rounded up."""
    headers = sum(len(name.encode()) + len(value or b"") + 6 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES
