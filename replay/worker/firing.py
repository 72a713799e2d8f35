"""What one transaction writes for due roots: copies, dead letters, and new entries of those that
wait on.

A *firing* is all that one such transaction writes; `Firings` prepares it, and
`replay.worker.partition` commits it. An *entry* is a record of `_ack_due`,
named by its offset there: a root waits as long as it has one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from acker.identity import Root, input_id_of
from acker.kafka.port import TopicPartition
from replay.records.due import Aside, Due, Pause, RefusedRoot, refused_entry
from replay.worker.accept import decide_asides
from replay.worker.cut import CutCopies, SentCopy
from replay.worker.entries import read_entries
from replay.worker.outcome import RootOutcome, leave_out_by_breaker, outcomes_of
from replay.worker.refusals import Accepted, Refusals
from replay.worker.waiting import DueRoot
from replay.worker.worker import Worker


class NewEntry(NamedTuple):
    """The new entry of a root that goes on waiting, and its value in `_ack_due`."""

    entry: Due
    value: bytes


Decision = NewEntry | None
"""What a root gets that waited and is neither copied nor dead now.

A `NewEntry` if it goes on waiting: either it was put aside, since its input
could not go on, and is decided now; or it is put aside now, since its topic
refuses what is written. None, that is only a tombstone, if there never was a
record.
"""


@dataclass(frozen=True, slots=True)
class Firing:
    """What one transaction writes. Offsets are those of entries in `_ack_due`.

    Attributes:
        chosen_roots: the due roots that it is for; for some of them nothing may
            be written.
        entry_by_offset: their entries, as `read_entries` returns them; None for
            an unreadable one that is not about a root of ours.
        decision_by_offset: by the offset of the former entry, what roots get
            that are neither copied nor dead now.
        outcomes: copies and dead letters.
        pauses: of inputs whose breakers have opened.
        input_ids: of the inputs of whose roots something is written.
    """

    chosen_roots: Sequence[DueRoot]
    entry_by_offset: Mapping[int, Due | None]
    decision_by_offset: Mapping[int, Decision]
    outcomes: Sequence[RootOutcome]
    pauses: Sequence[Pause]
    input_ids: frozenset[int]

    def root_count_of(self, input_id: int) -> int:
        """Return for how many roots of an input something is written."""
        root_count = 0
        for offset in self.decision_by_offset:
            entry = self.entry_by_offset[offset]
            if entry is not None and input_id_of(entry.source) == input_id:
                root_count += 1
        for outcome in self.outcomes:
            if outcome.input.id == input_id:
                root_count += 1
        return root_count

    def count_accepted_of(self, input_id: int, aside_offsets: Collection[int]) -> Accepted:
        """Count what the topics have accepted of an input, once all of this is committed.

        `aside_offsets` are those of roots that had been put aside.
        """
        copy_count = 0
        letter_count = 0
        aside_count = 0
        for outcome in self.outcomes:
            if outcome.input.id != input_id or not outcome.is_sent:
                continue
            if outcome.is_copy:
                copy_count += 1
            else:
                letter_count += 1
            if aside_offsets and self.offset_of(outcome) in aside_offsets:
                aside_count += 1
        return Accepted(self.root_count_of(input_id), copy_count, letter_count, aside_count)

    def offset_of(self, outcome: RootOutcome) -> int:
        """Return the offset of the entry of an outcome's root."""
        entries = self.entry_by_offset.items()
        return next(offset for offset, entry in entries if entry is outcome.entry)

    def done_offsets(self) -> set[int]:
        """Return the offsets of the entries that are no more once it is committed.

        Unreadable entries that are not about a root of ours are among them.
        """
        if len(self.outcomes) + len(self.decision_by_offset) == len(self.chosen_roots):
            return {root.offset for root in self.chosen_roots}  # the usual case: none was left out
        offsets = set(self.decision_by_offset)
        # outcomes have the same objects as `entry_by_offset`, so that their ids
        # are enough; to compare the contents of entries takes longer
        entry_ids_of_outcomes = {id(outcome.entry) for outcome in self.outcomes}
        for offset, entry in self.entry_by_offset.items():
            if entry is None or id(entry) in entry_ids_of_outcomes:
                offsets.add(offset)
        return offsets


class Firings:
    """Prepares what is written for the due roots of one partition."""

    def __init__(
        self,
        worker: Worker,
        due_partition: TopicPartition,
        refusals: Refusals,
        cut_copies: CutCopies,
    ) -> None:
        """Begin for the owner of a partition.

        Args:
            worker: what the partitions of one replay worker share.
            due_partition: the partition of `_ack_due`.
            refusals: what the broker refuses; the owner goes on changing it.
            cut_copies: copies of transactions that failed; likewise.
        """
        self._worker: Final = worker
        self._due_partition: Final = due_partition
        self._refusals: Final = refusals
        self._cut_copies: Final = cut_copies

    def prepare(
        self,
        chosen_roots: Sequence[DueRoot],
        entries_in_memory: Mapping[int, Due | None],
        now_ms: int,
    ) -> Firing:
        """Return what is written for chosen roots.

        `entries_in_memory` has, by offset, the entries that are there; None for
        the others.

        1. Get the other entries from the log.
        2. Decide about roots that were put aside, since their input could not
           go on.
        3. For the others fetch the records, and build copies and dead letters.
           A copy that a failed transaction has committed is taken in place of
           a new one (`replay.worker.cut`).
        4. Put aside the roots whose topics refused what was written for them.
        5. Leave out what the breakers do not allow now.
        6. Gather the ids of the inputs of whose roots something is written.
        """
        worker = self._worker
        # 1. entries
        entry_by_offset = dict(read_entries(worker, self._due_partition, entries_in_memory))
        self._remove_put_aside_before(entry_by_offset)
        undecided_entry_by_offset: dict[int, Aside] = {}
        decided_entry_by_offset: dict[int, Due] = {}
        for offset, entry in entry_by_offset.items():
            if isinstance(entry, Aside):
                undecided_entry_by_offset[offset] = entry
            # None: it cannot be read, and is not about a root of ours;
            # `Firing.done_offsets` removes it
            elif entry is not None:
                decided_entry_by_offset[offset] = entry
        # 2. roots that were put aside
        decision_by_offset = self._decide_asides(undecided_entry_by_offset, now_ms)
        # 3. copies and dead letters
        outcomes = self._build_outcomes(decided_entry_by_offset, now_ms)
        # 4. what topics refuse
        if self._refusals.has_refused_lately:
            outcomes, new_entry_by_offset = self._split_off_refused(
                outcomes,
                decided_entry_by_offset,
                now_ms,
            )
            decision_by_offset |= new_entry_by_offset
        # 5. breakers
        outcomes, inputs_to_pause = leave_out_by_breaker(worker, outcomes, now_ms)
        pauses = [Pause(input.id, now_ms, worker.breakers[input.id].why) for input in inputs_to_pause]
        # 6. inputs
        input_ids = {outcome.input.id for outcome in outcomes}
        for offset in decision_by_offset:
            entry = entry_by_offset[offset]
            if entry is not None:  # always so: only what was read is decided; for the types alone
                input_ids.add(input_id_of(entry.source))
        return Firing(
            chosen_roots,
            entry_by_offset,
            decision_by_offset,
            outcomes,
            pauses,
            frozenset(input_ids),
        )

    def _remove_put_aside_before(self, entry_by_offset: dict[int, Due | None]) -> None:
        """Remove the entries of roots that a former owner put aside, since a topic refuses them.

        Only its entry shows that a root is put aside. From now on it is
        recorded so, and a later transaction tries it with the others that are:
        apart from the rest, so that these are not refused with it.
        """
        roots_aside = self._refusals.roots_aside
        for offset, entry in list(entry_by_offset.items()):
            if isinstance(entry, RefusedRoot) and not roots_aside.has(offset):
                roots_aside.put(input_id_of(entry.source), offset, entry)
                del entry_by_offset[offset]

    def _decide_asides(
        self, undecided_entry_by_offset: Mapping[int, Aside], now_ms: int
    ) -> dict[int, Decision]:
        """Decide about roots that were put aside because their input could not go on.

        Return, by the offset of the former entry, the new entry; None: there
        never was a record, so only a tombstone is written. A root that still
        cannot be decided is missing.
        """
        new_entry_by_offset = decide_asides(self._worker, undecided_entry_by_offset, now_ms)
        decision_by_offset: dict[int, Decision] = {}
        for offset, entry in new_entry_by_offset.items():
            decision_by_offset[offset] = None if entry is None else self._new_entry(entry)
        return decision_by_offset

    def _new_entry(self, entry: Due) -> NewEntry:
        """Return an entry with its encoded value."""
        return NewEntry(entry, self._worker.due_codec.encode(entry))

    def _build_outcomes(
        self,
        entry_by_offset: Mapping[int, Due],
        now_ms: int,
    ) -> Sequence[RootOutcome]:
        """Build the copy or dead letter of each due root.

        If a failed transaction has committed a root's copy or letter already,
        the outcome has that one, and it is not written again.
        """
        if not entry_by_offset:
            return ()
        worker = self._worker
        why_refused_by_root: dict[Root, str] = {}
        # the broker refused the copies of these roots: they die
        for offset, why in self._refusals.why_refused_by_dying_offset.items():
            if offset in entry_by_offset:
                why_refused_by_root[entry_by_offset[offset].root] = why
        outcomes = outcomes_of(worker, list(entry_by_offset.values()), why_refused_by_root, now_ms)
        wait_ms = worker.limits.operation_timeout_ms
        committed_by_root = self._cut_copies.find_committed(worker.log, wait_ms, worker.note_operation)
        if not committed_by_root:
            return outcomes
        return [_with_committed_copy(outcome, committed_by_root) for outcome in outcomes]

    def _split_off_refused(
        self, outcomes: Sequence[RootOutcome], entry_by_offset: Mapping[int, Due], now_ms: int
    ) -> tuple[Sequence[RootOutcome], Mapping[int, NewEntry]]:
        """Return the outcomes that are to be written, and the new entries of the other roots.

        These are put aside, since a topic refused their copy or letter; the
        entries are by the offset of the former entry. `entry_by_offset` has the
        entry of each outcome.
        """
        # by `id(entry)`: outcomes have the same objects, and to compare the
        # contents takes longer
        offset_by_entry_id = {id(entry): offset for offset, entry in entry_by_offset.items()}
        outcomes_to_write: list[RootOutcome] = []
        new_entry_by_offset: dict[int, NewEntry] = {}
        for outcome in outcomes:
            offset = offset_by_entry_id[id(outcome.entry)]
            refused_entry_of_root = self._refused_entry(outcome, offset, now_ms)
            if refused_entry_of_root is None:
                outcomes_to_write.append(outcome)
            else:
                new_entry_by_offset[offset] = self._new_entry(refused_entry_of_root)
        return outcomes_to_write, new_entry_by_offset

    def _refused_entry(self, outcome: RootOutcome, offset: int, now_ms: int) -> RefusedRoot | None:
        """Return the new entry of a root that is put aside; None: what its outcome says is written.

        `offset` is that of its present entry.
        """
        if not outcome.is_sent:
            return None
        refusals = self._refusals
        due_ms = refusals.roots_aside.next_try_ms(outcome.input.id, now_ms)
        if outcome.dead_reason is None:  # a copy
            why = refusals.why_copy_waits(offset)
            return None if why is None else refused_entry(outcome.entry, due_ms, copy_why=why)
        why = refusals.why_letter_waits(outcome.entry, offset)
        if why is None:
            return None
        # so that it is known, once it is tried again, why it died
        dead_entry = replace(outcome.entry, dead=outcome.dead_reason.value)
        return refused_entry(dead_entry, due_ms, letter_why=why, copy_why=outcome.why_copy_refused)


def _with_committed_copy(
    outcome: RootOutcome,
    committed_by_root: Mapping[Root, SentCopy],
) -> RootOutcome:
    """Return an outcome, or in its place the copy or letter of its root that is committed already."""
    copy = committed_by_root.get(outcome.root)
    if copy is None:
        return outcome
    return outcome._replace(
        record_to_write=copy.record,
        dead_reason=copy.dead_reason,
        is_committed=True,
    )
