"""From a verdict to `_ack_due`: finds the history of each lost root, and decides what becomes of it.

A root of a source topic is a first emission. A root of a replay topic is a copy, whose record is read once
here, since its headers contain its origin, attempt and history. Some roots never had a record: the marker of
a transaction has an offset, too, which may be initialised and lost with its session. Such a root is ignored,
unless the verdict proves that there was a record (`replay.records.due.was_read`).

A root whose input cannot go on is put aside: `_ack_due` gets its verdict unchanged (`Aside`). It is decided
when its input can go on (`decided`).

A verdict record may have more lost roots than one transaction should have. So a `Batch` may end in the middle
of a record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, assert_never

import numpy as np

from acker.errors import Disagreement
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import NO_EPOCH, Bound, Record, TopicPartition
from acker.wire.causes import HELD, error_class
from acker.wire.events import Lost, Verdicts, pack_positions, positions
from acker.wire.leader_epochs import LeaderEpochs
from acker.wire.stacks import WAITING_STACK_BYTES_MAX, Stacks, cut_stack, key_of
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason, LostEmission, Replay, dispose
from replay.records.due import Aside, Due, Loss, Progress, extended, history_of, was_read
from replay.records.headers import Lineage, location, parse_lineage
from replay.worker.fetch import Absence, RecordPlace, cannot_be_read, lost_in_a_cut, took_the_place
from replay.worker.worker import OF_AN_INPUT, Worker


class LostRoot(NamedTuple):
    """One lost root: its position, and the entry of the verdict record that it shares with others.

    `leader_epoch` is one in which it was emitted, or `NO_EPOCH`. `stack` is that of the exception that failed
    it, where it came with the verdict.
    """

    lost: Lost
    position: int
    leader_epoch: int = NO_EPOCH
    stack: str = ""

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(self.lost.topic, partition_of(self.lost.source), offset_of(self.position))


class Batch(NamedTuple):
    """Lost roots in the order of the verdicts, and the progress once they are accepted."""

    roots: Sequence[LostRoot]
    progress: Progress


@dataclass(frozen=True, slots=True)
class _Buffered:
    offset: int
    lost: tuple[Lost, ...]
    epochs: LeaderEpochs
    stacks: Stacks

    def roots(self) -> Iterator[LostRoot]:
        for lost in self.lost:
            stack = self.stacks.get(key_of(lost.operator, lost.error, lost.message), "")
            for position in positions(lost.positions).tolist():
                yield LostRoot(lost, position, self.epochs.at(lost.source, position), stack)

    @property
    def count(self) -> int:
        return sum(len(lost.positions) // 8 for lost in self.lost)


class Intake:
    """A queue of verdict records from which single roots are taken.

    `progress` is what was committed; everything below the offset `read_to` was read.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.read_to = progress.next
        self._records: deque[_Buffered] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def offer(
        self, offset: int, verdicts: Verdicts, epochs: LeaderEpochs, stacks: Stacks = MappingProxyType({})
    ) -> None:
        """Add the record that was read at an offset, and its headers; offsets must ascend."""
        if verdicts.lost:
            self._records.append(_Buffered(offset, verdicts.lost, epochs, stacks))

    def peek(self, limit: int) -> Batch:
        """Return up to `limit` roots, and the progress once they are accepted; remove nothing."""
        roots: list[LostRoot] = []
        skip = self.progress.skip
        for record in self._records:
            room = limit - len(roots)
            roots += islice(record.roots(), skip, skip + room)
            if record.count - skip > room:
                return Batch(roots, Progress(record.offset, skip + room))
            skip = 0
        if self.read_to == self.progress.next:
            return Batch(roots, self.progress)  # a record that is half accepted may not be read again yet
        return Batch(roots, Progress(self.read_to, 0))

    def advance(self, progress: Progress) -> None:
        """Set the progress that was committed, and remove the records below it."""
        self.progress = progress
        while self._records and self._records[0].offset < progress.next:
            self._records.popleft()


class Past(NamedTuple):
    """The history before an emission; `dead` is set if its record is missing, so that it cannot be read.

    `leader_epoch` is that of the record, where it was read.
    """

    lineage: Lineage
    history: tuple[Loss, ...] = ()
    dead: DeadReason | None = None
    leader_epoch: int = NO_EPOCH


def dues_of(worker: Worker, roots: Sequence[LostRoot], now_ms: int) -> list[Due]:
    """Decide what becomes of lost roots: one `Due` for each, in order, except for roots without a record.

    A root gets an `Aside` if topics.yaml does not have its input, or if its replay topic, or the batch of the
    copy there, cannot be read now.
    """
    # roots of one verdict share their `Lost`, so it is asked once for each of these
    lost_by_id = {id(root.lost): root.lost for root in roots}
    owned = {lost_id: _note_unless_owned(worker, lost, now_ms) for lost_id, lost in lost_by_id.items()}
    lost_copies: list[LostRoot] = []
    for root in roots:
        is_copy = is_replay(root.lost.source)
        if is_copy and owned[id(root.lost)] and worker.is_ready(_input_of(root), now_ms):
            lost_copies.append(root)
    pasts: dict[RecordPlace, Past | None] = {}
    if lost_copies:
        parts = worker.apart(lost_copies, _input_of, lambda copies: _pasts(worker, copies, now_ms), now_ms)
        for pasts_of_part in parts:
            pasts.update(pasts_of_part)
    # an older session or acker did not say in which epoch a root was emitted: that of now is the next best
    epochs = _epochs(worker, [root for root in roots if root.leader_epoch == NO_EPOCH])
    dues: list[Due] = []
    for root in roots:
        lost, is_copy, place = root.lost, is_replay(root.lost.source), root.place
        epoch = root.leader_epoch
        if epoch == NO_EPOCH:
            epoch = epochs.get(place.log, NO_EPOCH)
        if not owned[id(lost)] or (is_copy and place not in pasts):
            dues.append(_aside(root, epoch, now_ms))
            continue
        past = pasts[place] if is_copy else Past(Lineage(location(*place)), leader_epoch=epoch)
        if past is None and was_read(lost.reason, lost.operator, error_class(lost.error)):
            past = Past(Lineage(location(*place)), dead=DeadReason.GONE)
        if past is not None:
            dues.append(_due(worker, root, past, now_ms))
    return dues


def decided(worker: Worker, asides: Mapping[int, Aside], now_ms: int) -> Mapping[int, Due | None]:
    """Decide what becomes of roots that were put aside, by the same keys; None if there never was a record.

    Roots whose input still cannot go on are missing. A root that waits for nothing has the due time at which
    it was put aside, and not the present time: else what was lost after it, and accepted by a worker that
    had its input, would be replayed before it.
    """
    roots = [_lost_root(aside) for aside in asides.values()]
    dues = {(due.source, due.position): due for due in dues_of(worker, roots, now_ms)}
    decisions: dict[int, Due | None] = {}
    for offset, aside in asides.items():
        due = dues.get((aside.source, aside.position))
        if isinstance(due, Aside):
            continue
        if due is not None and due.due_ms <= now_ms:
            due = replace(due, due_ms=min(aside.due_ms, now_ms))
        decisions[offset] = due
    return decisions


def _note_unless_owned(worker: Worker, lost: Lost, now_ms: int) -> bool:
    """Return whether a lost root's input is in topics.yaml, with its group; else note why it cannot go on."""
    try:
        worker.input_of(lost.source, lost.group)
    except Disagreement as error:
        if worker.is_strangers(lost.source, lost.group):
            worker.strangers[input_id_of(lost.source)] = str(error)  # the input's own roots go on
        else:
            worker.trouble(input_id_of(lost.source), error, now_ms)
        return False
    return True


def _input_of(root: LostRoot) -> int:
    return input_id_of(root.lost.source)


def _aside(root: LostRoot, leader_epoch: int, now_ms: int) -> Aside:
    lost, own_place = root.lost, location(*root.place)
    return Aside(
        source=lost.source,
        position=root.position,
        due_ms=now_ms,
        dead="",
        group=lost.group,
        topic=lost.topic,
        topic_id=lost.topic_id,
        origin="" if is_replay(lost.source) else own_place,
        attempt=1,
        abandoned=0,
        first_emitted_ms=lost.emitted_wall,
        history=extended((), _loss(lost, 1, own_place)),
        error=lost.error,
        leader_epoch=leader_epoch,
        stack=root.stack,
    )


def _lost_root(aside: Aside) -> LostRoot:
    """Return a root that was put aside as it was lost.

    Of its times only the age is known still: it is as if it was emitted at 0 and decided at its age.
    """
    loss = aside.history[-1]
    lost = Lost(
        reason=loss.reason,
        group=aside.group,
        topic=aside.topic,
        topic_id=aside.topic_id,
        operator=loss.operator,
        error=aside.error,
        message=loss.message,
        emitted_at=0,
        emitted_wall=aside.first_emitted_ms,
        decided_at=loss.age_ms,
        source=aside.source,
        positions=pack_positions(np.array([aside.position])),
    )
    return LostRoot(lost, aside.position, aside.leader_epoch, aside.stack)


def _age_ms(lost: Lost) -> int:
    """Return how long a root was pending, by the clock of its session."""
    return max(0, lost.decided_at - lost.emitted_at)


def _loss(lost: Lost, attempt: int, root: str) -> Loss:
    return Loss(
        attempt=attempt,
        reason=lost.reason,
        operator=lost.operator,
        error=error_class(lost.error),
        message=lost.message,
        emitted_ms=max(0, lost.emitted_wall),
        age_ms=_age_ms(lost),
        root=root,
    )


def _pasts(worker: Worker, lost_copies: Sequence[LostRoot], now_ms: int) -> Mapping[RecordPlace, Past | None]:
    """Return what was before some copies; those in damaged batches are missing where that stops the input."""
    owners = {root.place: worker.input_of(root.lost.source, root.lost.group) for root in lost_copies}
    epochs = {root.place: root.leader_epoch for root in lost_copies}
    skipping = {place for place, owner in owners.items() if not owner.fails_on_loss()}
    pasts: dict[RecordPlace, Past | None] = {}
    same_topics = worker.same_topics({(root.lost.topic, root.lost.topic_id) for root in lost_copies})
    to_read: set[RecordPlace] = set()
    for root in lost_copies:
        place = root.place
        if (root.lost.topic, root.lost.topic_id) in same_topics:
            to_read.add(place)
        else:
            pasts[place] = Past(Lineage(location(*place)), dead=DeadReason.RECREATED)
    # only the pasts stay in memory, not the records
    while to_read:
        worker.note_operation("reading what was lost")
        answers = worker.fetch_readable(to_read, now_ms)
        never = {place: epochs[place] for place, record in answers.items() if record is Absence.NEVER}
        cut_off = lost_in_a_cut(worker.log, never)
        for place, record in answers.items():
            if place in cut_off:
                dead = DeadReason.RECREATED
                pasts[place] = Past(Lineage(location(*place)), dead=dead, leader_epoch=epochs[place])
            elif place in skipping or not cannot_be_read(record):
                pasts[place] = _past(place, record, epochs[place])
            to_read.discard(place)
    return pasts


def _past(place: RecordPlace, record: Record | Absence, emitted_epoch: int) -> Past | None:
    if record is Absence.NEVER:
        return None
    if isinstance(record, Absence):
        dead = DeadReason.GONE if record.unreadable is None else DeadReason[record.unreadable.name]
        return Past(Lineage(location(*place)), dead=dead)
    if took_the_place(record, emitted_epoch):  # its headers tell another record's history
        return Past(Lineage(location(*place)), dead=DeadReason.RECREATED, leader_epoch=emitted_epoch)
    lineage = parse_lineage(record.headers, *place)
    return Past(lineage, history_of(record.headers), leader_epoch=record.leader_epoch)


def _epochs(worker: Worker, roots: Sequence[LostRoot]) -> dict[TopicPartition, int]:
    """Return the epochs that the leaders of the roots' partitions have now, where they say so.

    Their records are there now, or were: in another leader's time others may be in their places.
    """
    by_topic: dict[str, set[TopicPartition]] = {}
    for root in roots:
        by_topic.setdefault(root.lost.topic, set()).add(root.place.log)
    epochs: dict[TopicPartition, int] = {}
    for places in by_topic.values():
        # a topic that is gone, or that we may not ask about, is for those to find who fetch from it
        with suppress(*OF_AN_INPUT):
            epochs |= worker.log.bounds(Bound.END, sorted(places)).epochs
    return epochs


def _emission(lost: Lost, lineage: Lineage, lived_ms: int) -> LostEmission:
    """Return a lost emission, itself counted beside those before it."""
    abandoned, timed_out, blocked = lineage.abandoned, lineage.timed_out, lineage.held
    match lost.reason:
        case Verdict.ABANDONED:
            abandoned += 1
        case Verdict.TIMED_OUT:
            timed_out += 1
        case Verdict.FAILED:
            blocked += lost.error == HELD
        case _:
            assert_never(lost.reason)
    return LostEmission(
        reason=lost.reason,
        attempt=lineage.attempt,
        abandoned=abandoned,
        timed_out=timed_out,
        lived_ms=lived_ms,
        operator=lost.operator,
        error=lost.error,
        blocked=blocked,
    )


def _due(worker: Worker, root: LostRoot, past: Past, now_ms: int) -> Due:
    lost, lineage = root.lost, past.lineage
    first_ms = lost.emitted_wall if lineage.first_emitted_ms is None else lineage.first_emitted_ms
    emission = _emission(lost, lineage, lived_ms=lost.emitted_wall + _age_ms(lost) - first_ms)
    policy = worker.policies[worker.input_of(lost.source, lost.group).id]
    disposed = dispose(policy, emission, now_ms, worker.jitter())
    dead = past.dead or ("" if isinstance(disposed, Replay) else disposed.reason)
    loss = _loss(lost, lineage.attempt, location(*root.place))
    due_ms = disposed.due_ms if isinstance(disposed, Replay) and not dead else now_ms
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
        # the time limit begins when a bolt first receives the record: while it was blocked, nobody tried it
        first_emitted_ms=due_ms if emission.blocked == emission.attempt else first_ms,
        history=extended(past.history, loss),
        timed_out=emission.timed_out,
        held=emission.blocked,
        leader_epoch=past.leader_epoch,
        # what is replayed fails again with a stack of its own, unless the broker refuses its copy
        stack=root.stack if dead else cut_stack(root.stack, WAITING_STACK_BYTES_MAX),
    )
