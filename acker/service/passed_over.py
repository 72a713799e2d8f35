"""Records that stop their readers until an operator lets them all pass over: ``windhover topics repair``.

In `_ack_verdict`, `_ack_due` and `_ack_state` an unreadable record may be from a newer Windhover, so a
process that reads one stops. If the record is garbage, an operator writes a mark, and every process passes
over the record. A mark is a later record in the same partition; its key is ``passed-over/`` and the offset.
So a process that may read the record may read the mark, a mark stays as long as its record, and only a
process that met such a record has to search for marks. The value of a mark is text, which older versions pass
over like any garbage.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from typing import Final

from acker.errors import UnknownVersion, WindhoverError
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.kafka.reading import read_piece
from acker.wire.codec import HEADER_BYTES, MAGIC

PASSED_OVER: Final = b"passed-over/"
"""The key of a mark begins with this; the offset follows, in decimal digits."""

WHY_HEADER: Final = "windhover.why"
BY_HEADER: Final = "windhover.by"

WAIT_MS: Final = 10_000

_TAIL: Final = 1_000
"""So many last records of a partition are searched for a mark first; then 8 times as many, and so on."""

CURE: Final = "if none did, `windhover topics repair` shows it, and --execute --why lets all pass over it"


def passed_over_mark(place: TopicPartition, offset: int, why: str, by: str) -> Outgoing:
    """Return the record that lets all pass over the record at an offset of a partition."""
    headers = ((WHY_HEADER, why.encode()), (BY_HEADER, by.encode()))
    return Outgoing(*place, b"passed over: " + why.encode(), PASSED_OVER + b"%d" % offset, headers)


def marked_offset(record: Record) -> int | None:
    """Return the offset of the record that a mark is about; None for a record that is no mark."""
    key = record.key
    if key is None or record.value is None or not key.startswith(PASSED_OVER):
        return None
    digits = key[len(PASSED_OVER) :]
    return int(digits) if digits.isdigit() and len(digits) < 20 else None


def is_passed_over(log: Log, record: Record, *, wait_ms: int) -> bool:
    """Return whether a mark lets all pass over a record; search from the end of its partition back to it."""
    place = TopicPartition(record.topic, record.partition)
    end = log.stable_ends([place])[place]
    reach = _TAIL
    while True:
        first = max(record.offset + 1, end - reach, log.starts([place])[place])
        for found in read_piece(log, place, first, end, committed=True, wait_ms=wait_ms):
            if marked_offset(found) == record.offset:
                return True
        if end - reach <= record.offset + 1:
            return False
        end, reach = first, reach * 8


def require_passed_over(
    log: Log,
    record: Record,
    error: UnknownVersion,
    cure: str,
    kind: type[WindhoverError] = UnknownVersion,
    wait_ms: int = WAIT_MS,
) -> str:
    """Return the error's text for a record of an unknown version if a mark lets it pass; else raise `kind`.

    `cure` says what to do if a newer Windhover wrote the record.
    """
    if is_passed_over(log, record, wait_ms=wait_ms):
        return str(error)
    raise kind(f"{record.place}: {error}: if {cure}; {CURE}") from error


def kind_of(value: bytes | None) -> str:
    """Return a text about what an unreadable record may be."""
    if value is not None and value[:2] == MAGIC and len(value) >= HEADER_BYTES:
        return "perhaps a newer Windhover's: C3 01 and a fingerprint that this version does not know"
    return "garbage: it does not begin with C3 01 as all records of Windhover do"
