"""From a verdict to `_ack_due`: what is known of each lost root, and what becomes of it.

A root of a source topic is a first emission. A root of a replay topic is read once here, since its own
headers tell its origin, its attempt and its history. One that never had a record (a marker of the transaction
that wrote copies, initialised and then lost with its session) has nothing that could be lost. Where its
verdict proves that there was one all the same, it is gone (`replay.proof`).

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acker.causes import HELD, error_class
from acker.events import Reason
from acker.identity import is_replay, offset_of, partition_of
from acker.log import Record
from replay.disposition import DeadReason, LostEmission, Replay, dispose
from replay.due import Due, Loss, extended, parse_history
from replay.fetch import Absence, Wanted
from replay.headers import HISTORY, Lineage, location, parse_lineage
from replay.intake import LostRoot
from replay.proof import was_read
from replay.worker import Worker, topic_of


class Past(NamedTuple):
    """What was before an emission. `dead` is set when it cannot be told, since the record is not there."""

    lineage: Lineage
    history: tuple[Loss, ...] = ()
    dead: DeadReason | None = None


def dues_of(worker: Worker, roots: Sequence[LostRoot], now_ms: int) -> list[Due]:
    """Decide what becomes of lost roots, one for one; those without a record are left out.

    Args:
        worker: policy, jitter and the log that replayed roots are read from.
        roots: as the verdicts name them.
        now_ms: wall time; back-off counts from here.

    Raises:
        Disagreement: a root is of an input that topics.yaml does not have.
        Unreachable: the log of a replay topic does not answer.
    """
    for lost in {id(root.lost): root.lost for root in roots}.values():
        worker.input_of(lost.source, lost.group)
    pasts = _pasts(worker, [root for root in roots if is_replay(root.lost.source)])
    known = [(root, pasts.get(_place(root), Past(_here(root)))) for root in roots]
    found = [(root, _missed(root) if past is None else past) for root, past in known]
    return [_due(worker, root, past, now_ms) for root, past in found if past is not None]


def _place(root: LostRoot) -> Wanted:
    return Wanted(root.lost.topic, partition_of(root.lost.source), offset_of(root.position))


def _here(root: LostRoot) -> Lineage:
    return Lineage(location(*_place(root)))


def _missed(root: LostRoot) -> Past | None:
    """Return what is buried where the log shows no record, and the verdict proves that there was one."""
    lost = root.lost
    proven = was_read(lost.reason, lost.operator, error_class(lost.error))
    return Past(_here(root), dead=DeadReason.GONE) if proven else None


def _pasts(worker: Worker, replayed: Sequence[LostRoot]) -> Mapping[Wanted, Past | None]:
    """Return what was before each emission; None where there never was a record."""
    pasts: dict[Wanted, Past | None] = {}
    there = worker.same_topics({topic_of(root.lost) for root in replayed})
    left: set[Wanted] = set()
    for root in replayed:
        if topic_of(root.lost) in there:
            left.add(_place(root))
        else:
            pasts[_place(root)] = Past(_here(root), dead=DeadReason.RECREATED)
    # Only the pasts are kept, so that memory is bounded by one fetch however many roots there are.
    while left:
        worker.at("reading what was lost")
        for place, record in worker.fetcher.fetch(left).items():
            pasts[place] = _past(place, record)
            left.discard(place)
    return pasts


def _past(place: Wanted, record: Record | Absence) -> Past | None:
    if record is Absence.NEVER:
        return None
    if isinstance(record, Absence):
        return Past(Lineage(location(*place)), dead=DeadReason.GONE)
    history = next((value for name, value in reversed(record.headers) if name == HISTORY), None)
    return Past(parse_lineage(record.headers, *place), parse_history(history))


def _due(worker: Worker, root: LostRoot, past: Past, now_ms: int) -> Due:
    lost, lineage = root.lost, past.lineage
    age_ms = max(0, lost.decided_at - lost.emitted_at)
    first_ms = lost.emitted_wall if lineage.first_emitted_ms is None else lineage.first_emitted_ms
    emission = LostEmission(
        reason=lost.reason,
        attempt=lineage.attempt,
        abandoned=lineage.abandoned + (lost.reason is Reason.ABANDONED),
        timed_out=lineage.timed_out + (lost.reason is Reason.TIMED_OUT),
        lived_ms=lost.emitted_wall + age_ms - first_ms,
        operator=lost.operator,
        error=lost.error,
        held=lineage.held + (lost.reason is Reason.FAILED and lost.error == HELD),
    )
    policy = worker.policy_of(worker.input_of(lost.source, lost.group))
    decided = dispose(policy, emission, now_ms, worker.jitter())
    dead = past.dead or ("" if isinstance(decided, Replay) else decided.reason)
    loss = Loss(
        attempt=lineage.attempt,
        reason=lost.reason,
        operator=lost.operator,
        error=error_class(lost.error),
        message=lost.message,
        emitted_ms=max(0, lost.emitted_wall),
        age_ms=age_ms,
        root=location(*_place(root)),
    )
    due_ms = decided.due_ms if isinstance(decided, Replay) and not dead else now_ms
    return Due(
        source=lost.source,
        position=root.position,
        due_ms=due_ms,
        dead=dead,
        group=lost.group,
        topic=lost.topic,
        topic_id=lost.topic_id,
        origin=lineage.origin,
        attempt=lineage.attempt,
        abandoned=emission.abandoned,
        # its time begins when a bolt first sees it: what was held for an hour has not been tried for an hour
        first_emitted_ms=due_ms if emission.held == emission.attempt else first_ms,
        history=extended(past.history, loss),
        timed_out=emission.timed_out,
        held=emission.held,
    )
