"""The copy of a lost record that goes to its input's replay topic, and what its headers say.

Headers of roots that were lost together differ little: what they share is built once for many
copies.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from acker.hot_paths import tuple_maker
from acker.identity import is_replay
from acker.kafka.port import Headers, Outgoing, Record
from replay.records.due import Due, Loss, history_json
from replay.records.headers import (
    HISTORY,
    ORIGIN,
    RECORD_ID,
    Lineage,
    build_headers,
    header_text,
    joined_headers,
    our_values,
    parted_headers,
    record_id,
)
from replay.records.record_time import needs_no_time_header, time_of, written_time

_outgoing = tuple_maker(Outgoing)


_LossWithoutRoot = tuple[object, ...]
"""All fields of a `Loss` but the last one, the root. Roots that were lost together have the same."""


class _LostCounts(NamedTuple):
    """How many emissions of a record were abandoned, timed out and blocked."""

    abandoned: int
    timed_out: int
    blocked: int


def past_headers(due: Due, attempt: int, record: Record | None) -> Headers:
    """Return a lost root's past as headers: its emissions, and why the last one was lost.

    `attempt` is the one that the headers name. `record` is that of the lost emission; None: it
    could not be read.
    """
    id_text = "" if record is None else _record_id(due, record)
    id_header: Headers = ((RECORD_ID, id_text.encode()),) if id_text else ()
    last_loss: _LossWithoutRoot | None = due.history[-1][:-1] if due.history else None
    counts = _LostCounts(abandoned=due.abandoned, timed_out=due.timed_out, blocked=due.held)
    shared = _shared_headers(attempt, counts, due.first_emitted_ms, last_loss)
    origin_header: Headers = ((ORIGIN, due.origin.encode()),)
    history_header: Headers = ((HISTORY, history_json(due.history)),)
    return origin_header + id_header + shared + history_header


def _record_id(due: Due, record: Record) -> str:
    """Return the record id of a lost emission: that of the record that was emitted first.

    Empty: it is a copy that a worker of an older version wrote.
    """
    if is_replay(due.source):
        return header_text(our_values(record.headers).get(RECORD_ID)) if record.headers else ""
    return record_id(due.topic_id, record.partition, record.offset, record.leader_epoch)


@lru_cache(maxsize=1_024)
def _shared_headers(
    attempt: int, counts: _LostCounts, first_emitted_ms: int, last_loss: _LossWithoutRoot | None
) -> Headers:
    """Return the headers that roots lost together share: all but origin, record id and history.

    `last_loss` is None where the history is unknown. `first_emitted_ms` is below 0 where it is
    unknown.
    """
    lineage = Lineage(
        origin="",
        attempt=attempt,
        abandoned=counts.abandoned,
        timed_out=counts.timed_out,
        held=counts.blocked,
        first_emitted_ms=first_emitted_ms if first_emitted_ms >= 0 else None,
    )
    if last_loss is not None:
        loss = Loss._make([*last_loss, ""])  # the root is empty: none of these headers has it
        cause = ": ".join(text for text in (loss.error, loss.message) if text)
        lineage = replace(lineage, reason=loss.reason, cause=cause, operator=loss.operator)
    _empty_origin, *shared = build_headers(lineage)
    return tuple(shared)


def original_headers(due: Due, record: Record) -> Headers:
    """Return the headers with which a lost record came into its source topic, in order."""
    if not is_replay(due.source):
        return record.headers  # whatever their names are: ours are on copies alone
    return parted_headers(record.headers).original if record.headers else ()


def build_copy(due: Due, record: Record, replay_topic: str, *, keeps_times: bool = True) -> Outgoing:
    """Return the copy of a lost record: all that it has, and our headers of the next attempt.

    `keeps_times`: the replay topic does not set the times of its records itself.
    """
    added = past_headers(due, due.attempt + 1, record)
    if keeps_times and needs_no_time_header(record):  # as nearly all do
        timestamp_ms: int | None = record.timestamp_ms
    else:
        time = time_of(record, is_copy=is_replay(due.source))
        timestamp_ms, time_headers = written_time(time, topic_keeps=keeps_times)
        added += time_headers
    headers = added
    if record.headers:
        headers = joined_headers(original_headers(due, record), added)
    return _outgoing(
        (
            replay_topic,
            record.partition,  # that of the source, as it was read from there
            record.value,
            record.key,
            headers,
            timestamp_ms,
        )
    )
