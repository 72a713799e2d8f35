"""From a verdict to `_ack_due`: finds the history of each lost root, and decides what becomes of it.

A root of a source topic is a first emission. A root of a replay topic is a
copy, whose record is read once here, since its headers contain its origin,
attempt and history. Some roots never had a record: the marker of a transaction
has an offset, too, which may be initialised and lost with its session. Such a
root is ignored, unless the verdict proves that there was a record
(`replay.records.due.proves_a_record`).

A root whose input cannot go on is *put aside*: `_ack_due` gets its verdict
unchanged (an entry of the kind `Aside`). It is decided when its input can go on
(`decide_asides`).

A verdict record may have more lost roots than one transaction should have. So
a `Batch` may end in the middle of a record. The *progress* says how far the
verdicts are accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, assert_never

import numpy as np

from acker.errors import Disagreement
from acker.identity import Position, Root, Source, input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import NO_EPOCH, Bound, Record, TopicPartition
from acker.wire.causes import HELD, error_class
from acker.wire.events import Lost, Verdicts, pack_positions, positions
from acker.wire.leader_epochs import LeaderEpochs
from acker.wire.stacks import WAITING_STACK_BYTES_MAX, Stacks, cut_stack, key_of
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason, LostEmission, Replay, dispose
from replay.records.due import Aside, Due, Loss, Progress, append_loss, history_of, proves_a_record
from replay.records.headers import Lineage, RecordPlace, location, parse_lineage
from replay.worker.fetch import Absence, cannot_be_read, find_cut_off, is_of_later_leader
from replay.worker.worker import ERRORS_OF_ONE_INPUT, Worker

_POSITION_BYTES: Final = 8
"""A position is packed into so many bytes in a verdict record."""


class LostRoot(NamedTuple):
    """One lost root.

    Attributes:
        lost: the part of the verdict record that says how it was lost; roots
            that were lost together share it.
        leader_epoch: of the partition's leader when it was emitted;
            `NO_EPOCH` if that is unknown.
        stack: of the exception that failed it; empty if none came with the
            verdict.
    """

    lost: Lost
    position: int
    leader_epoch: int = NO_EPOCH
    stack: str = ""

    @property
    def root(self) -> Root:
        """The root itself."""
        return Root(Source(self.lost.source), Position(self.position))

    @property
    def place(self) -> RecordPlace:
        """Where the record is that was emitted; that of a copy is on the replay topic."""
        return RecordPlace(self.lost.topic, partition_of(self.lost.source), offset_of(self.position))


class Batch(NamedTuple):
    """Lost roots in the order of the verdicts, and the progress once they are accepted."""

    roots: Sequence[LostRoot]
    progress: Progress


@dataclass(frozen=True, slots=True)
class _VerdictRecord:
    """A verdict record that was read: its lost roots, and what its headers have of them.

    Attributes:
        leader_epochs: of the leaders when the roots were emitted.
        stack_by_cause: stacks of exceptions, by the key of a cause.
    """

    offset: int
    lost_entries: tuple[Lost, ...]
    leader_epochs: LeaderEpochs
    stack_by_cause: Stacks

    def roots(self) -> Iterator[LostRoot]:
        """Yield its lost roots, always in the same order: `Progress.skip` counts in it."""
        for lost in self.lost_entries:
            # roots of one `Lost` have one cause, so they share its stack (the
            # text of the exception's stack)
            cause_key = key_of(lost.operator, lost.error, lost.message)
            stack = self.stack_by_cause.get(cause_key, "")
            packed = lost.positions
            for position in positions(packed).tolist():  # unpacked
                leader_epoch = self.leader_epochs.at(lost.source, position)
                yield LostRoot(lost, position, leader_epoch, stack)

    @property
    def root_count(self) -> int:
        """How many roots it has, without unpacking them."""
        packed_bytes = sum(len(lost.positions) for lost in self.lost_entries)
        return packed_bytes // _POSITION_BYTES


class Intake:
    """A queue of the verdict records that were read and are not accepted.

    Attributes:
        progress: how far the verdicts are accepted, as it was committed last.
        read_to: the offset below which all records were read.
    """

    def __init__(self, progress: Progress) -> None:
        """Begin with nothing read behind a progress."""
        self.progress = progress
        self.read_to = progress.next
        self._records: deque[_VerdictRecord] = deque()

    def __len__(self) -> int:
        """Return how many records are queued, each with a lost root or more."""
        return len(self._records)

    def add(
        self,
        offset: int,
        verdicts: Verdicts,
        leader_epochs: LeaderEpochs,
        stack_by_cause: Stacks = MappingProxyType({}),
    ) -> None:
        """Queue a verdict record.

        A record without lost roots is not queued: it has nothing to accept.

        Args:
            offset: of the record, higher than that of each record before.
            leader_epochs: of the leaders when the roots were emitted, from the
                record's headers.
            stack_by_cause: of exceptions, by cause; likewise.
        """
        if verdicts.lost:
            self._records.append(_VerdictRecord(offset, verdicts.lost, leader_epochs, stack_by_cause))

    def next_batch(self, limit: int) -> Batch:
        """Return up to `limit` roots, and the progress once they are accepted; remove nothing.

        With records of 5 and 4 roots at the offsets 7 and 8, and a limit of 6,
        these are the 5 roots of the one and the first of the other. The
        progress is then offset 8, of which 1 root is to be skipped.
        """
        roots: list[LostRoot] = []
        # So many roots of the record at the progress are accepted already. That record may be
        # missing: a person marked it as damaged meanwhile. Then nothing of the others is skipped.
        skip_count = 0
        if self._records and self._records[0].offset == self.progress.next:
            skip_count = self.progress.skip
        for record in self._records:
            room = limit - len(roots)
            # index in the record's roots, behind the last one of the batch
            batch_end = skip_count + room
            roots += islice(record.roots(), skip_count, batch_end)
            if record.root_count > batch_end:  # the batch ends in the middle of this record
                return Batch(roots, Progress(record.offset, skip=batch_end))
            skip_count = 0
        if self.read_to == self.progress.next:
            # nothing was read since the progress: keep its `skip`, since its
            # record is read again first
            return Batch(roots, self.progress)
        return Batch(roots, Progress(self.read_to, skip=0))

    def record_committed(self, progress: Progress) -> None:
        """Record the progress that was committed, and remove the records below it."""
        self.progress = progress
        while self._records and self._records[0].offset < progress.next:
            self._records.popleft()


class Past(NamedTuple):
    """What the record of a lost emission says about earlier emissions.

    Attributes:
        history: the losses of the earlier emissions, the oldest first.
        dead_reason: set if that record is missing: then the history is
            unknown, and the root becomes a dead letter for this reason.
        leader_epoch: that of the record, where it was read, or the one in which
            it was emitted.
    """

    lineage: Lineage
    history: tuple[Loss, ...] = ()
    dead_reason: DeadReason | None = None
    leader_epoch: int = NO_EPOCH

    @classmethod
    def of_missing_copy(
        cls, place: RecordPlace, dead_reason: DeadReason, leader_epoch: int = NO_EPOCH
    ) -> Past:
        """Return the past of a copy whose record, and with it the history, is missing; its root dies."""
        return cls(Lineage(location(*place)), dead_reason=dead_reason, leader_epoch=leader_epoch)


def entries_of_lost_roots(worker: Worker, roots: Sequence[LostRoot], now_ms: int) -> list[Due]:
    """Decide what becomes of lost roots; return their entries for `_ack_due`, in the same order.

    A root that never had a record has no entry. A root gets an `Aside` if
    topics.yaml does not have its input, or if its replay topic, or the batch of
    the copy there, cannot be read now.

    1. Record why roots of unknown inputs wait.
    2. Read the records of copies, which say how often they were emitted.
    3. Decide, root by root.
    """
    decidable_object_ids = _record_why_undecidable(worker, roots, now_ms)
    past_by_place = _pasts_of_copies(worker, roots, decidable_object_ids, now_ms)
    # An older session or acker did not say in which epoch a root was emitted:
    # that of now is the next best.
    without_epoch = [root for root in roots if root.leader_epoch == NO_EPOCH]
    epoch_now_by_partition = _epochs_now(worker, without_epoch)
    entries: list[Due] = []
    for root in roots:
        lost = root.lost
        place = root.place
        is_copy = is_replay(lost.source)
        epoch = root.leader_epoch
        if epoch == NO_EPOCH:
            epoch = epoch_now_by_partition.get(place.topic_partition, NO_EPOCH)
        # not in `past_by_place`: the record of the copy cannot be read now
        is_unreadable_copy = is_copy and place not in past_by_place
        if id(lost) not in decidable_object_ids or is_unreadable_copy:
            entries.append(_undecided_entry(root, epoch, now_ms))
            continue
        # there was nothing before a root that is no copy
        past: Past | None = Past(Lineage(location(*place)), leader_epoch=epoch)
        if is_copy:
            past = past_by_place[place]
        if past is None and proves_a_record(lost.reason, lost.operator, error_class(lost.error)):
            # the log seems never to have had a record there, but a bolt read it
            past = Past.of_missing_copy(place, DeadReason.GONE)
        if past is not None:  # else the copy never had a record
            entries.append(_decided_entry(worker, root, past, now_ms))
    return entries


def _record_why_undecidable(worker: Worker, roots: Sequence[LostRoot], now_ms: int) -> set[int]:
    """Record why roots wait if topics.yaml does not have their input, or has it with another group.

    Return which roots can be decided, as the Python ids (`id(root.lost)`) of
    their `Lost` objects. Roots that were lost together share one object, so
    each input is searched for once.
    """
    # by the object's Python id: to compare the contents takes longer
    lost_by_id = {id(root.lost): root.lost for root in roots}
    decidable_object_ids: set[int] = set()
    for lost_id, lost in lost_by_id.items():
        try:
            worker.input_of(lost.source, lost.group)
        except Disagreement as error:
            _record_why_it_waits(worker, lost, error, now_ms)
        else:
            decidable_object_ids.add(lost_id)
    return decidable_object_ids


def _record_why_it_waits(worker: Worker, lost: Lost, error: Disagreement, now_ms: int) -> None:
    """Record why lost roots wait whose input is not in topics.yaml, or is there with another group.

    An input that is not there is left alone as a whole. One that is there goes
    on; only the roots of the other group wait.
    """
    input_id = input_id_of(lost.source)
    if worker.is_of_other_group(lost.source, lost.group):
        worker.why_foreign_wait_by_input[input_id] = str(error)
    else:
        worker.record_trouble(input_id, error, now_ms)


def _pasts_of_copies(
    worker: Worker, roots: Sequence[LostRoot], decidable_object_ids: Set[int], now_ms: int
) -> Mapping[RecordPlace, Past | None]:
    """Read the records of the roots that are copies; return by place what each says of its past.

    None: there never was a record at that place. A copy is left out if its
    input cannot go on, or if its record cannot be read now: it is decided
    later. `decidable_object_ids` are from `_record_why_undecidable`.
    """
    lost_copies: list[LostRoot] = []
    for root in roots:
        is_decidable_copy = is_replay(root.lost.source) and id(root.lost) in decidable_object_ids
        if is_decidable_copy and worker.is_ready(_input_id_of(root), now_ms):
            lost_copies.append(root)
    past_by_place: dict[RecordPlace, Past | None] = {}
    if lost_copies:
        # All at once. If that fails, input by input: an input whose records cannot be read then
        # leaves the others as they are.
        pasts_by_call = worker.act_together_or_input_by_input(
            lost_copies, _input_id_of, lambda copies: _read_pasts(worker, copies, now_ms), now_ms
        )
        for pasts_of_call in pasts_by_call:
            past_by_place.update(pasts_of_call)
    return past_by_place


def decide_asides(
    worker: Worker, aside_by_offset: Mapping[int, Aside], now_ms: int
) -> Mapping[int, Due | None]:
    """Decide what becomes of roots that were put aside because their input could not go on.

    Return, by the offset of the former entry in `_ack_due`, the new entry;
    None: there never was a record. Roots whose input still cannot go on are
    missing.
    """
    roots = [_lost_root_of_aside(aside) for aside in aside_by_offset.values()]
    entry_by_root = {entry.root: entry for entry in entries_of_lost_roots(worker, roots, now_ms)}
    new_entry_by_offset: dict[int, Due | None] = {}
    for offset, aside in aside_by_offset.items():
        # None: there never was a record, so it gets only a tombstone
        new_entry = entry_by_root.get(aside.root)
        if isinstance(new_entry, Aside):
            continue  # its input cannot go on: the former entry stays
        if new_entry is not None and new_entry.due_ms <= now_ms:
            # It is due at once. Its due time becomes the time at which it was
            # put aside. Otherwise a root that was lost later, but accepted by a
            # worker that had the input, would be replayed before it.
            new_entry = replace(new_entry, due_ms=min(aside.due_ms, now_ms))
        new_entry_by_offset[offset] = new_entry
    return new_entry_by_offset


def _input_id_of(root: LostRoot) -> int:
    """Return the id of the input of a lost root."""
    return input_id_of(root.lost.source)


def _undecided_entry(root: LostRoot, leader_epoch: int, now_ms: int) -> Aside:
    """Return the entry of a root that cannot be decided now; `_lost_root_of_aside` reads it again.

    What the record of a copy says is unknown now: its origin is empty, and its
    attempt and counts are those of a first emission. They are read once the
    root is decided.
    """
    lost = root.lost
    root_name = location(*root.place)
    return Aside(
        source=lost.source,
        position=root.position,
        due_ms=now_ms,
        dead="",
        group=lost.group,
        topic=lost.topic,
        topic_id=lost.topic_id,
        origin="" if is_replay(lost.source) else root_name,  # that of a copy is in its record
        attempt=1,
        abandoned=0,
        first_emitted_ms=lost.emitted_wall,
        history=append_loss((), _loss_of(lost, attempt=1, root_name=root_name)),
        error=lost.error,
        leader_epoch=leader_epoch,
        stack=root.stack,
    )


def _lost_root_of_aside(aside: Aside) -> LostRoot:
    """Return a root that was put aside in the form in which its verdict had it.

    The entry has its age, and not its times by the session's clock. With 0 as the
    time of its emission, and its age as that of its verdict, it has this age again.
    """
    loss = aside.history[-1]  # the only one: `_undecided_entry` put it there
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


def _loss_of(lost: Lost, attempt: int, root_name: str) -> Loss:
    """Return the loss of a root as its record's history has it.

    `root_name` is the place of the emission, ``topic/partition@offset``.
    """
    return Loss(
        attempt=attempt,
        reason=lost.reason,
        operator=lost.operator,
        error=error_class(lost.error),
        message=lost.message,
        emitted_ms=max(0, lost.emitted_wall),
        age_ms=_age_ms(lost),
        root=root_name,
    )


def _read_pasts(
    worker: Worker, lost_copies: Sequence[LostRoot], now_ms: int
) -> Mapping[RecordPlace, Past | None]:
    """Return the past of each of some copies, by its place; None: there never was a record.

    A copy whose batch is damaged has no past here, if its input waits for the
    batch (`on_data_loss`).

    1. A copy whose topic was created again is not read: its record is gone.
    2. The records of the others are fetched, as many at a time as fit into
       memory; only the pasts are kept.
    3. Where there is no record, the log may have been cut: then there was one.
    """
    emitted_epoch_by_place = {root.place: root.leader_epoch for root in lost_copies}
    may_skip: set[RecordPlace] = set()  # copies of inputs that go on without what cannot be read
    for root in lost_copies:
        if not worker.input_of(root.lost.source, root.lost.group).fails_on_loss():
            may_skip.add(root.place)
    past_by_place: dict[RecordPlace, Past | None] = {}

    # 1. topics that were created again
    topics = {(root.lost.topic, root.lost.topic_id) for root in lost_copies}
    unchanged_topics = worker.fetch_unchanged(topics)
    to_read: set[RecordPlace] = set()
    for root in lost_copies:
        if (root.lost.topic, root.lost.topic_id) in unchanged_topics:
            to_read.add(root.place)
        else:
            past_by_place[root.place] = Past.of_missing_copy(root.place, DeadReason.RECREATED)

    while to_read:
        # 2. the others
        worker.note_operation("reading what was lost")
        answers = worker.fetch_readable(to_read, now_ms)
        # 3. no record: never one, or cut off
        epoch_without_record: dict[RecordPlace, int] = {}
        for place, answer in answers.items():
            if answer is Absence.NEVER:
                epoch_without_record[place] = emitted_epoch_by_place[place]
        cut_off = find_cut_off(worker.log, epoch_without_record)
        for place, answer in answers.items():
            emitted_epoch = emitted_epoch_by_place[place]
            if place in cut_off:
                past_by_place[place] = Past.of_missing_copy(
                    place,
                    DeadReason.RECREATED,
                    leader_epoch=emitted_epoch,
                )
            elif place in may_skip or not cannot_be_read(answer):
                past_by_place[place] = _past_of_copy(place, answer, emitted_epoch)
            # what has an answer is done; what did not fit into memory is read in the next round
            to_read.discard(place)
    return past_by_place


def _past_of_copy(place: RecordPlace, answer: Record | Absence, emitted_epoch: int) -> Past | None:
    """Return what a copy's record says about earlier emissions; None: there never was a record.

    `answer` is the record, or why there is none. If it is missing, the past has
    a reason to die. `emitted_epoch` is the leader's epoch in which the copy was
    emitted.
    """
    if isinstance(answer, Absence):
        dead_reason = answer.dead_reason  # None: there never was a record
        return None if dead_reason is None else Past.of_missing_copy(place, dead_reason)
    if is_of_later_leader(answer, emitted_epoch):
        # another record was written at the offset after the log was cut: its
        # headers are not this copy's
        return Past.of_missing_copy(place, DeadReason.RECREATED, emitted_epoch)
    lineage = parse_lineage(answer.headers, *place)
    return Past(lineage, history_of(answer.headers), leader_epoch=answer.leader_epoch)


def _epochs_now(worker: Worker, roots: Sequence[LostRoot]) -> dict[TopicPartition, int]:
    """Return the present leader's epoch of each partition with a root; one without a leader is missing.

    It stands for the epoch in which the root was emitted: a record that a
    later leader writes in its place has a higher one.
    """
    partitions_by_topic: dict[str, set[TopicPartition]] = {}
    for root in roots:
        partitions_by_topic.setdefault(root.lost.topic, set()).add(root.place.topic_partition)
    epochs: dict[TopicPartition, int] = {}
    for partitions in partitions_by_topic.values():
        # asked topic by topic: of one that is missing or forbidden to us, the
        # fetch that follows raises the error
        with suppress(*ERRORS_OF_ONE_INPUT):
            epochs |= worker.log.bounds(Bound.END, sorted(partitions)).epochs
    return epochs


def _lost_emission(lost: Lost, lineage: Lineage, lived_ms: int) -> LostEmission:
    """Return a lost emission as policies judge it: the counts of its record's lineage include it.

    `lived_ms` is how long after the record's first emission it was lost.
    """
    abandoned, timed_out = lineage.abandoned, lineage.timed_out
    blocked = lineage.held  # the header's name for blocked
    match lost.reason:
        case Verdict.ABANDONED:
            abandoned += 1
        case Verdict.TIMED_OUT:
            timed_out += 1
        case Verdict.FAILED:
            if lost.error == HELD:
                blocked += 1
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


def _decided_entry(worker: Worker, root: LostRoot, past: Past, now_ms: int) -> Due:
    """Return the entry of a lost root as its input's policy decides: a replay later, or a death now.

    Where the past says that the record is missing, the root dies for that.
    """
    lost = root.lost
    lineage = past.lineage
    first_emitted_ms = lineage.first_emitted_ms
    if first_emitted_ms is None:  # this was the first emission, or a copy that does not say it
        first_emitted_ms = lost.emitted_wall
    # wall time of the verdict: that of the emission, and the age by the session's
    # clock
    verdict_ms = lost.emitted_wall + _age_ms(lost)
    emission = _lost_emission(lost, lineage, lived_ms=verdict_ms - first_emitted_ms)
    policy = worker.policies[worker.input_of(lost.source, lost.group).id]
    disposition = dispose(policy, emission, now_ms, worker.jitter())
    # a missing record comes first, then the policy
    dead_reason: DeadReason | str = ""  # empty: it is replayed
    due_ms = now_ms
    if past.dead_reason is not None:
        dead_reason = past.dead_reason
    elif isinstance(disposition, Replay):
        due_ms = disposition.due_ms
    else:
        dead_reason = disposition.reason
    loss = _loss_of(lost, lineage.attempt, location(*root.place))
    was_always_blocked = emission.blocked == emission.attempt
    return Due(
        source=lost.source,
        position=root.position,
        due_ms=due_ms,
        dead=dead_reason,
        group=lost.group,
        topic=lost.topic,
        topic_id=lost.topic_id,
        origin=lineage.origin,
        attempt=lineage.attempt,
        abandoned=emission.abandoned,
        # no bolt has received it yet if it was always blocked: the time limit
        # begins with the next emission
        first_emitted_ms=due_ms if was_always_blocked else first_emitted_ms,
        history=append_loss(past.history, loss),
        timed_out=emission.timed_out,
        held=emission.blocked,  # blocked ones; the schema of `_ack_due` calls them held
        leader_epoch=past.leader_epoch,
        # A root that dies keeps its whole stack for the dead letter. A root that
        # is replayed keeps a part: it is needed only if the broker refuses the
        # copy, since a later failure has a stack of its own.
        stack=root.stack if dead_reason else cut_stack(root.stack, WAITING_STACK_BYTES_MAX),
    )
