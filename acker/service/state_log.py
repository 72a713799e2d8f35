"""Reads the last State of an acker partition from the end of ``_ack_state``.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from acker.errors import CodecError, Disagreement
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.reading import read_piece
from acker.service.passed_over import CURE, kind_of, marked_offset
from acker.service.state import (
    BIN_PART,
    NO_BIN,
    Carried,
    State,
    StatePart,
    Stored,
    carried_from,
    part_of_key,
    state_from,
    unpack_ranges,
)
from acker.wire.codec import Codec

_TAIL: Final = 64
"""Number of last records of the state log that are read first; each further try reads 8 times as many."""


class LastState(NamedTuple):
    """A state, the bins that it refers to, and the wall time at which it was written, ms."""

    state: State
    bins: dict[int, Carried]
    at_ms: int


def read_last_state(
    log: Log, where: TopicPartition, codec: Codec[Stored], *, wait_ms: int
) -> LastState | None:
    """Read the last State of an acker partition; None when it never wrote one.

    Raises:
        Disagreement: the State is incomplete, or cannot be read.
        OutOfRange: the log was shortened meanwhile.
    """
    end = log.stable_ends([where])[where]
    start = log.starts([where])[where]
    reach = _TAIL
    while True:
        first = max(start, end - reach)
        records = _last_records(log, where, first, end, wait_ms)
        parts = {number: _part(codec, number, record) for number, record in records.items()}
        state = state_from(codec, parts)
        if state is not None:
            needed = {row.bin for row in unpack_ranges(state.ranges)} - {NO_BIN}
            if all(BIN_PART + number in parts for number in needed):
                bins = {n: carried_from(codec, parts[BIN_PART + n]) for n in needed}
                written_ms = max(record.timestamp_ms for record in records.values())
                return LastState(state, bins, written_ms)
        if first == start:
            if not parts:
                return None
            raise Disagreement(
                f"{where.topic}/{where.partition} holds pieces of a State but not all of them; is its"
                " cleanup.policy compact? Begin anew under another acker.topic_prefix"
            )
        reach *= 8


def _last_records(log: Log, where: TopicPartition, start: int, end: int, wait_ms: int) -> dict[int, Record]:
    """Return the last record of each part; ignore other keys, and records that a mark lets all pass over."""
    last: dict[int, Record] = {}
    passed: set[int] = set()
    again = True
    while again:
        last.clear()
        for record in read_piece(log, where, start, end, committed=True, wait_ms=wait_ms):
            part = part_of_key(where.partition, record.key)
            if part is not None and record.value is not None and record.offset not in passed:
                last[part] = record
            elif (offset := marked_offset(record)) is not None:
                passed.add(offset)
        again = any(record.offset in passed for record in last.values())
    return last


def _part(codec: Codec[Stored], number: int, record: Record) -> StatePart:
    try:
        part = codec.decode(record.value)
    except CodecError as error:
        raise _unreadable(record, f"{error} ({kind_of(record.value)})") from error
    if not isinstance(part, StatePart) or (part.partition, part.part) != (record.partition, number):
        raise _unreadable(record, "it is not the part of this partition's State that its key names")
    return part


@contextmanager
def loading(where: TopicPartition) -> Iterator[None]:
    """While a State is read and loaded, turn errors of its content into `Disagreement`."""
    try:
        yield
    except (CodecError, LookupError, ValueError, OverflowError) as error:
        raise Disagreement(
            f"{where.topic}/{where.partition} holds a State that cannot be loaded"
            f" ({type(error).__name__}: {error}); was it written by another program? Begin anew under another"
            " acker.topic_prefix"
        ) from error


def _unreadable(record: Record, why: str) -> Disagreement:
    return Disagreement(
        f"{record.topic}/{record.partition}@{record.offset} cannot be read as State: {why}. If a newer"
        f" version of Windhover wrote it, run that; {CURE}, so that the State before it counts. Where the"
        " topic holds that no more, begin anew under another acker.topic_prefix"
    )
