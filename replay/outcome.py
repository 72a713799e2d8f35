"""From `_ack_due` to the replay topic or the dead-letter topic: what is written for each root that is due.

Kafka's id of the topic is compared with the verdict's before the fetch and again after it: offsets of a
topic that was created again name other records.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acker.identity import offset_of, partition_of
from acker.log import Outgoing, Record, TopicInfo
from acker.topics import Input
from replay.copies import build_copy, outgoing_bytes
from replay.dead_letter import build_dead_letter
from replay.disposition import DeadReason
from replay.due import Due
from replay.fetch import Absence, Wanted
from replay.worker import Worker, bytes_max, unchanged


class Outcome(NamedTuple):
    """What is written for one root. `dead` is None for a copy; `input` is whose root it is.

    Nothing is written, but for the tombstone, where there never was a record.
    """

    due: Due
    input: Input
    written: Outgoing | None
    dead: DeadReason | None
    has_payload: bool


class _Found(NamedTuple):
    """What the fetch brought; `dead` says why there is no record."""

    due: Due
    record: Record | Absence
    dead: DeadReason | None


def outcomes_of(worker: Worker, dues: Sequence[Due], now_ms: int) -> list[Outcome]:
    """Read what is due and build what is to be written, in the order given.

    Those whose payload did not fit into one fetch, and dead letters beyond what the breaker lets die, are
    left out: they go on waiting.

    Raises:
        BreakerOpen: no more records of an input may be buried.
        Disagreement: a root is of an input that topics.yaml does not have.
        TopicError: a replay or dead-letter topic is missing.
        Unreachable: the log does not answer.
    """
    inputs = {due.root: worker.input_of(due.source, due.group) for due in dues}
    owners = {owner.id: owner for owner in inputs.values()}.values()
    infos = worker.writable(owners, (due.topic for due in dues))
    found = _fetch(worker, dues, unchanged(((due.topic, due.topic_id) for due in dues), infos))
    outcomes = [_outcome(entry, inputs[entry.due.root], infos, now_ms) for entry in found]
    return _bounded(worker, outcomes, now_ms)


def _place(due: Due) -> Wanted:
    return Wanted(due.topic, partition_of(due.source), offset_of(due.position))


def _fetch(worker: Worker, dues: Sequence[Due], there: set[tuple[str, str]]) -> list[_Found]:
    answers = worker.fetcher.fetch(_place(due) for due in dues if (due.topic, due.topic_id) in there)
    there = worker.same_topics(there)
    found: list[_Found] = []
    for due in dues:
        if (due.topic, due.topic_id) not in there:
            found.append(_Found(due, Absence.GONE, DeadReason.RECREATED))
        elif _place(due) in answers:
            record = answers[_place(due)]
            gone = DeadReason.GONE if record is Absence.GONE else None
            found.append(_Found(due, record, gone))
    return found


def _outcome(found: _Found, owner: Input, infos: Mapping[str, TopicInfo], now_ms: int) -> Outcome:
    due = found.due
    if found.record is Absence.NEVER:
        return Outcome(due, owner, None, None, has_payload=False)
    record = None if isinstance(found.record, Absence) else found.record
    dead = found.dead or (DeadReason(due.dead) if due.dead else None)
    if dead is None and record is not None:
        copy = build_copy(due, record, owner.replay_topic)
        if outgoing_bytes(copy) <= bytes_max(infos[owner.replay_topic]):
            return Outcome(due, owner, copy, None, has_payload=True)
        dead = DeadReason.TOO_LARGE
    info = infos[owner.dead_letter.topic]
    letter = build_dead_letter(
        due,
        dead or DeadReason.GONE,
        record,
        topic=info.name,
        partitions=info.partitions,
        bytes_max=bytes_max(info),
        now_ms=now_ms,
    )
    has_payload = record is not None and (letter.key, letter.value) == (record.key, record.value)
    return Outcome(due, owner, letter, dead, has_payload)


def _bounded(worker: Worker, outcomes: Sequence[Outcome], now_ms: int) -> list[Outcome]:
    """Leave out the dead letters that the breakers do not let die now."""
    dying = {outcome.input.id: outcome.input for outcome in outcomes if outcome.dead}
    room = {key: worker.breaker_of(found).room(now_ms) for key, found in dying.items()}
    buried: Counter[int] = Counter()
    kept: list[Outcome] = []
    for outcome in outcomes:
        if outcome.dead:
            if buried[outcome.input.id] >= room[outcome.input.id]:
                continue
            buried[outcome.input.id] += 1
        kept.append(outcome)
    return kept
