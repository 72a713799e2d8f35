"""The copy of a lost record that goes to its input's replay topic."""

from __future__ import annotations

from functools import lru_cache

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
from replay.records.record_time import says_its_time, time_of, written_time

_outgoing = tuple_maker(Outgoing)


def story_headers(due: Due, attempt: int, record: Record | None) -> Headers:
    """Return a lost root's past as headers: its emissions, and why the last one was lost.

    `record` is that of the lost emission, None if it could not be read.
    """
    id_text = "" if record is None else _record_id(due, record)
    of_record: Headers = ((RECORD_ID, id_text.encode()),) if id_text else ()
    # without its last field, the root, since roots that were lost together differ in that
    last_loss = due.history[-1][:-1] if due.history else None
    shared = _shared_headers(
        attempt, (due.abandoned, due.timed_out, due.held), due.first_emitted_ms, last_loss
    )
    return ((ORIGIN, due.origin.encode()),) + of_record + shared + ((HISTORY, history_json(due.history)),)  # noqa: RUF005 - unpacking takes longer


def _record_id(due: Due, record: Record) -> str:
    """Return which record it was that was emitted first; empty on a copy that a former worker wrote."""
    if is_replay(due.source):
        return header_text(our_values(record.headers).get(RECORD_ID)) if record.headers else ""
    return record_id(due.topic_id, record.partition, record.offset, record.leader_epoch)


@lru_cache(maxsize=1_024)
def _shared_headers(
    attempt: int, counts: tuple[int, int, int], first_emitted_ms: int, last_loss: tuple[object, ...] | None
) -> Headers:
    """Return the headers that roots lost together share, all but origin and history.

    `counts` is how many emissions were abandoned, timed out and blocked.
    """
    loss = None if last_loss is None else Loss._make([*last_loss, ""])
    abandoned, timed_out, held = counts
    lineage = Lineage(
        origin="",
        attempt=attempt,
        abandoned=abandoned,
        timed_out=timed_out,
        held=held,
        first_emitted_ms=first_emitted_ms if first_emitted_ms >= 0 else None,
        reason=loss.reason if loss else "",
        cause=": ".join(part for part in (loss.error, loss.message) if part) if loss else "",
        operator=loss.operator if loss else "",
    )
    return build_headers(lineage)[1:]  # the first is the origin


def original_headers(due: Due, record: Record) -> Headers:
    """Return the headers with which a lost record came into its source topic, in order."""
    if not is_replay(due.source):
        return record.headers  # whatever their names are: ours are on copies alone
    return parted_headers(record.headers).original if record.headers else ()


def build_copy(due: Due, record: Record, replay_topic: str, *, keeps_times: bool = True) -> Outgoing:
    """Copy a lost record with all that it has, and with our headers of the next attempt.

    `keeps_times`: the replay topic does not set the times of its records itself.
    """
    story = story_headers(due, due.attempt + 1, record)
    if keeps_times and says_its_time(record):  # as nearly all do
        timestamp_ms: int | None = record.timestamp_ms
    else:
        time = time_of(record, is_copy=is_replay(due.source))
        timestamp_ms, headers = written_time(time, topic_keeps=keeps_times)
        story += headers
    return _outgoing(
        (
            replay_topic,
            record.partition,  # that of the source, as it was read from there
            record.value,
            record.key,
            joined_headers(original_headers(due, record), story) if record.headers else story,
            timestamp_ms,
        )
    )
