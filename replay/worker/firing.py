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

from acker.identity import Position, Root, Source, input_id_of
from acker.kafka.port import TopicPartition
from replay.records.due import Aside, Due, Pause, RefusedRoot, refused_entry
from replay.worker.accept import decide_asides
from replay.worker.cut import CutCopies, SentCopy
from replay.worker.entries import entries_of
from replay.worker.outcome import RootOutcome, leave_out_by_breaker, outcomes_of
from replay.worker.refusals import Accepted, Refusals
from replay.worker.waiting import DueRoot
from replay.worker.worker import Worker


class NewEntry(NamedTuple):
    """The new entry of a root that goes on waiting, and its bytes in `_ack_due`."""

    due: Due
    value: bytes


Decision = NewEntry | None
"""What a root gets that waited and is neither copied nor dead now.

A `NewEntry` if it goes on waiting: either it was put aside and is decided, or
it is put aside since its topic refuses what is written. None, that is only a
tombstone, if there never was a record.
"""


@dataclass(frozen=True, slots=True)
class Firing:
    """What one transaction writes. Offsets are those of entries in `_ack_due`.

    Attributes:
        chosen_roots: the due roots that it is for; some may be left out.
        due_by_offset: their entries, as `entries_of` returns them; None for
            an unreadable one that is not about a root of ours.
        decision_by_offset: by the offset of the former entry, what roots get
            that are neither copied nor dead now.
        outcomes: copies and dead letters.
        pauses: of inputs whose breakers have opened.
        input_ids: of the inputs of whose roots something is written.
    """

    chosen_roots: Sequence[DueRoot]
    due_by_offset: Mapping[int, Due | None]
    decision_by_offset: Mapping[int, Decision]
    outcomes: Sequence[RootOutcome]
    pauses: Sequence[Pause]
    input_ids: frozenset[int]

    def root_count_of(self, input_id: int) -> int:
        """Return for how many roots of an input something is written."""
        root_count = 0
        for offset in self.decision_by_offset:
            due = self.due_by_offset[offset]
            if due is not None and input_id_of(due.source) == input_id:
                root_count += 1
        for outcome in self.outcomes:
            if outcome.input.id == input_id:
                root_count += 1
        return root_count

    def count_accepted(self, input_id: int, aside_offsets: Collection[int]) -> Accepted:
        """Count what the topics have accepted of an input, once all of this is committed.

        `aside_offsets` are those of roots that had been put aside.
        """
        copy_count = letter_count = aside_count = 0
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
        return next(offset for offset, due in self.due_by_offset.items() if due is outcome.due)

    def offsets_done(self) -> set[int]:
        """Return the offsets of the entries that are no more once it is committed.

        Unreadable entries that are not about a root of ours are among them.
        """
        if len(self.outcomes) + len(self.decision_by_offset) == len(self.chosen_roots):
            return {root.offset for root in self.chosen_roots}  # the usual case: none was left out
        offsets = set(self.decision_by_offset)
        # outcomes have the same objects as `due_by_offset`, so that their ids
        # are enough; to compare the contents of entries takes longer
        due_ids_of_outcomes = {id(outcome.due) for outcome in self.outcomes}
        for offset, due in self.due_by_offset.items():
            if due is None or id(due) in due_ids_of_outcomes:
                offsets.add(offset)
        return offsets


class Firings:
    """Prepares what is written for the due roots of one partition."""

    def __init__(
        self,
        worker: Worker,
        due_partition: TopicPartition,
        refusals: Refusals,
        unsure_copies: CutCopies,
    ) -> None:
        """Prepare for the owner of a partition of `_ack_due`."""
        self._worker: Final = worker
        self._due_partition: Final = due_partition
        self._refusals: Final = refusals
        self._unsure_copies: Final = unsure_copies

    def prepare(
        self, chosen_roots: Sequence[DueRoot], in_memory: Mapping[int, Due | None], now_ms: int
    ) -> Firing:
        """Return what is written for chosen roots.

        `in_memory` has, by offset, the entries that are there; None for the
        others.

        1. Get the other entries from the log.
        2. Decide about roots that were put aside, since their input could not
           go on.
        3. For the others fetch the records, and build copies and dead letters,
           except for those that are there already (`replay.worker.cut`).
        4. Put aside what its topic refuses, and what waits until it takes it.
        5. Leave out what the breakers do not allow now.
        """
        worker = self._worker
        due_by_offset = self._read_entries(in_memory)
        asides: dict[int, Aside] = {}
        decided: dict[int, Due] = {}
        for offset, due in due_by_offset.items():
            if isinstance(due, Aside):
                asides[offset] = due
            elif due is not None:
                decided[offset] = due
        decision_by_offset = self._decide(asides, now_ms)
        outcomes = self._build_outcomes(decided, now_ms)
        if self._refusals.has_refused_lately:
            outcomes, put_aside = self._part_refused(outcomes, decided, now_ms)
            decision_by_offset |= put_aside
        outcomes, inputs_to_pause = leave_out_by_breaker(worker, outcomes, now_ms)
        pauses = [Pause(input.id, now_ms, worker.breakers[input.id].why) for input in inputs_to_pause]
        input_ids = {outcome.input.id for outcome in outcomes}
        for offset in decision_by_offset:
            due = due_by_offset[offset]
            if due is not None:
                input_ids.add(input_id_of(due.source))
        return Firing(chosen_roots, due_by_offset, decision_by_offset, outcomes, pauses, frozenset(input_ids))

    def _read_entries(self, in_memory: Mapping[int, Due | None]) -> Mapping[int, Due | None]:
        """Return the entries of chosen roots by offset, from memory or from the log.

        An entry that a former owner of the partition put aside, since a topic
        refused what was written, is left out: it is recorded as put aside, and
        has its turn with the others that are.
        """
        due_by_offset = dict(entries_of(self._worker, self._due_partition, in_memory))
        for offset, due in list(due_by_offset.items()):
            if isinstance(due, RefusedRoot) and not self._refusals.aside.has(offset):
                self._refusals.aside.put(input_id_of(due.source), offset, due)
                del due_by_offset[offset]
        return due_by_offset

    def _decide(self, asides: Mapping[int, Aside], now_ms: int) -> dict[int, Decision]:
        """Return the new entries of roots that were put aside, except of those that cannot be decided yet."""
        decision_by_offset: dict[int, Decision] = {}
        for offset, due in decide_asides(self._worker, asides, now_ms).items():
            decision_by_offset[offset] = None if due is None else self._new_entry(due)
        return decision_by_offset

    def _new_entry(self, due: Due) -> NewEntry:
        return NewEntry(due, self._worker.due_codec.encode(due))

    def _build_outcomes(self, due_by_offset: Mapping[int, Due], now_ms: int) -> Sequence[RootOutcome]:
        """Build the copy or dead letter of each due root.

        A root whose copy or letter is committed already, by a transaction that
        the broker cut in two, gets that one.
        """
        if not due_by_offset:
            return ()
        worker = self._worker
        why_refused_by_root: dict[Root, str] = {}
        for offset, why in self._refusals.final_refusal_by_offset.items():
            if offset in due_by_offset:
                why_refused_by_root[_root_of(due_by_offset[offset])] = why
        outcomes = outcomes_of(worker, list(due_by_offset.values()), why_refused_by_root, now_ms)
        wait_ms = worker.limits.operation_timeout_ms
        committed_by_root = self._unsure_copies.find_committed(worker.log, wait_ms, worker.note_operation)
        if not committed_by_root:
            return outcomes
        return [_committed_or(outcome, committed_by_root) for outcome in outcomes]

    def _part_refused(
        self, outcomes: Sequence[RootOutcome], due_by_offset: Mapping[int, Due], now_ms: int
    ) -> tuple[list[RootOutcome], dict[int, Decision]]:
        """Return the outcomes that are written, and the new entries of roots that are put aside.

        Both mappings are by offset: the entries that the outcomes are of, and
        the new entries.
        """
        offset_by_due_id = {id(due): offset for offset, due in due_by_offset.items()}
        written: list[RootOutcome] = []
        put_aside: dict[int, Decision] = {}
        for outcome in outcomes:
            offset = offset_by_due_id[id(outcome.due)]
            refused = self._refused_entry(outcome, offset, now_ms)
            if refused is None:
                written.append(outcome)
            else:
                put_aside[offset] = self._new_entry(refused)
        return written, put_aside

    def _refused_entry(self, outcome: RootOutcome, offset: int, now_ms: int) -> RefusedRoot | None:
        """Return the new entry of a root that is put aside; None if its copy or dead letter is
        written.
        """
        if not outcome.is_sent:
            return None
        refusals = self._refusals
        due_ms = refusals.aside.next_try_ms(outcome.input.id, now_ms)
        if outcome.dead is None:
            why = refusals.why_copy_waits(offset)
            return None if why is None else refused_entry(outcome.due, due_ms, copy_why=why)
        why = refusals.why_letter_waits(outcome.due, offset)
        if why is None:
            return None
        dead = replace(outcome.due, dead=outcome.dead.value)
        return refused_entry(dead, due_ms, letter_why=why, copy_why=outcome.why)


def _root_of(due: Due) -> Root:
    return Root(Source(due.source), Position(due.position))


def _committed_or(outcome: RootOutcome, committed_by_root: Mapping[Root, SentCopy]) -> RootOutcome:
    """Return an outcome, or in its place the copy or letter of its root that is committed already."""
    copy = committed_by_root.get(outcome.root)
    if copy is None:
        return outcome
    return outcome._replace(written=copy.record, dead=copy.dead, is_committed=True)
