"""What one transaction writes for due roots: copies, dead letters, and new entries of those that wait on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from acker.identity import Position, Root, Source, input_id_of
from acker.kafka.port import TopicPartition
from replay.records.due import Aside, Due, Pause, RefusedRoot, refused_entry
from replay.worker.accept import decided
from replay.worker.cut import CutCopies, SentCopy
from replay.worker.entries import entries_of
from replay.worker.outcome import RootOutcome, bounded, outcomes_of
from replay.worker.refusals import Accepted, Refusals
from replay.worker.waiting import DueRoot
from replay.worker.worker import Worker


class NewEntry(NamedTuple):
    """The new entry of a root that goes on waiting, and its bytes in `_ack_due`."""

    due: Due
    value: bytes


Decision = NewEntry | None
"""What a root gets that waited and is neither copied nor dead now; None if there never was a record.

Either the root was put aside and is decided, or it is put aside since its
topic refuses what is written.
"""


@dataclass(frozen=True, slots=True)
class Firing:
    """What one transaction writes.

    Attributes:
        chosen: the due roots that it is for; some may be left out.
        entries: what `_ack_due` has of them, by offset, as `entries_of`
            returns it.
        decisions: by the offset of the former entry, the new ones of roots
            that go on waiting.
        outcomes: copies and dead letters.
        pauses: of inputs whose breakers have opened.
        inputs: ids of the inputs of whose roots something is written.
    """

    chosen: Sequence[DueRoot]
    entries: Mapping[int, Due | None]
    decisions: Mapping[int, Decision]
    outcomes: Sequence[RootOutcome]
    pauses: Sequence[Pause]
    inputs: frozenset[int]

    def root_count_of(self, input_id: int) -> int:
        """Return for how many roots of an input something is written."""
        root_count = 0
        for offset in self.decisions:
            due = self.entries[offset]
            root_count += due is not None and input_id_of(due.source) == input_id
        for outcome in self.outcomes:
            root_count += outcome.input.id == input_id
        return root_count

    def accepted(self, input_id: int, were_aside: Collection[int]) -> Accepted:
        """Return what the topics have accepted of an input, once all of this is committed.

        `were_aside` are the offsets of roots that had been put aside.
        """
        copy_count = letter_count = aside_count = 0
        for outcome in self.outcomes:
            if outcome.input.id != input_id or not outcome.is_sent:
                continue
            if outcome.is_copy:
                copy_count += 1
            else:
                letter_count += 1
            if were_aside:
                aside_count += self.offset_of(outcome) in were_aside
        return Accepted(self.root_count_of(input_id), copy_count, letter_count, aside_count)

    def offset_of(self, outcome: RootOutcome) -> int:
        """Return the offset in `_ack_due` of the entry of an outcome's root."""
        return next(offset for offset, due in self.entries.items() if due is outcome.due)

    def done(self) -> set[int]:
        """Return the offsets of the entries that wait no more once it is committed.

        Entries that are unreadable, and not about a root of ours, are among
        them.
        """
        if len(self.outcomes) + len(self.decisions) == len(self.chosen):  # the usual case: nothing is left
            return {entry.offset for entry in self.chosen}
        done = set(self.decisions)
        # outcomes have the same objects as `entries`; to compare the contents
        # of entries takes longer
        due_ids_of_outcomes = {id(outcome.due) for outcome in self.outcomes}
        for offset, due in self.entries.items():
            if due is None or id(due) in due_ids_of_outcomes:
                done.add(offset)
        return done


class Firings:
    """Prepares what is written for the due roots of one partition."""

    def __init__(self, worker: Worker, due: TopicPartition, refusals: Refusals, cut: CutCopies) -> None:
        """Prepare for the owner of a partition of `_ack_due`."""
        self._worker: Final = worker
        self._due: Final = due
        self._refusals: Final = refusals
        self._cut: Final = cut

    def prepare(self, chosen: Sequence[DueRoot], in_memory: Mapping[int, Due | None], now_ms: int) -> Firing:
        """Return what is written for chosen roots.

        `in_memory` has, by offset, the entries that are there; None for the
        others.

        1. Get the other entries from the log.
        2. Decide about roots that were put aside.
        3. For the others fetch the records, and build copies and dead letters,
           except for those that are there already (`replay.worker.cut`).
        4. Put aside what its topic refuses, and what waits until it takes it.
        5. Leave out what the breakers do not allow now.
        """
        worker = self._worker
        entries = self._take_entries(in_memory)
        asides: dict[int, Aside] = {}
        dues: dict[int, Due] = {}
        for offset, due in entries.items():
            if isinstance(due, Aside):
                asides[offset] = due
            elif due is not None:
                dues[offset] = due
        decisions = self._decided(asides, now_ms)
        outcomes = self._outcomes(dues, now_ms)
        if self._refusals.has_refused_lately:
            outcomes, put_aside = self._parted(outcomes, dues, now_ms)
            decisions |= put_aside
        outcomes, inputs_to_pause = bounded(worker, outcomes, now_ms)
        pauses = [Pause(input.id, now_ms, worker.breakers[input.id].why) for input in inputs_to_pause]
        input_ids = {outcome.input.id for outcome in outcomes}
        for offset in decisions:
            decided_entry = entries[offset]
            if decided_entry is not None:
                input_ids.add(input_id_of(decided_entry.source))
        return Firing(chosen, entries, decisions, outcomes, pauses, frozenset(input_ids))

    def _decided(self, asides: Mapping[int, Aside], now_ms: int) -> dict[int, Decision]:
        """Return the new entries of roots that were put aside, except of those that cannot be decided yet."""
        decisions: dict[int, Decision] = {}
        for offset, due in decided(self._worker, asides, now_ms).items():
            decisions[offset] = None if due is None else self._new_entry(due)
        return decisions

    def _new_entry(self, due: Due) -> NewEntry:
        return NewEntry(due, self._worker.due_codec.encode(due))

    def _parted(
        self, outcomes: Sequence[RootOutcome], dues: Mapping[int, Due], now_ms: int
    ) -> tuple[list[RootOutcome], dict[int, Decision]]:
        """Part outcomes into those that are written, and new entries of roots that are put aside, by offset.

        `dues` are the entries that the outcomes are of, by offset.
        """
        offset_by_due_id = {id(due): offset for offset, due in dues.items()}
        written: list[RootOutcome] = []
        put_aside: dict[int, Decision] = {}
        for outcome in outcomes:
            offset = offset_by_due_id[id(outcome.due)]
            refused = self._aside(outcome, offset, now_ms)
            if refused is None:
                written.append(outcome)
            else:
                put_aside[offset] = self._new_entry(refused)
        return written, put_aside

    def _take_entries(self, in_memory: Mapping[int, Due | None]) -> Mapping[int, Due | None]:
        """Return the entries of chosen roots, by offset, in memory or from the log.

        An entry that a former owner of the partition put aside for a topic is
        left out, and joins those that are put aside: it has its turn with
        them.
        """
        entries = dict(entries_of(self._worker, self._due, in_memory))
        for offset, due in list(entries.items()):
            if isinstance(due, RefusedRoot) and not self._refusals.aside.has(offset):
                self._refusals.aside.put(input_id_of(due.source), offset, due)
                del entries[offset]
        return entries

    def _outcomes(self, dues: Mapping[int, Due], now_ms: int) -> Sequence[RootOutcome]:
        """Build the copy or dead letter of each due root; `dues` are by their offsets in `_ack_due`.

        Of a root whose copy or letter is committed already, by a transaction
        that was cut, it is that one.
        """
        if not dues:
            return ()
        worker = self._worker
        why_refused_by_root: dict[Root, str] = {}
        for offset, why in self._refusals.given_up.items():
            if offset in dues:
                why_refused_by_root[_root_of(dues[offset])] = why
        outcomes = outcomes_of(worker, list(dues.values()), why_refused_by_root, now_ms)
        wait_ms = worker.limits.operation_timeout_ms
        committed = self._cut.find_committed(worker.log, wait_ms, worker.note_operation)
        if not committed:
            return outcomes
        return [_committed_or(outcome, committed) for outcome in outcomes]

    def _aside(self, outcome: RootOutcome, offset: int, now_ms: int) -> RefusedRoot | None:
        """Return the entry of a root that is put aside; None if its copy or dead letter is written."""
        if not outcome.is_sent:
            return None
        refusals = self._refusals
        due_ms = refusals.aside.due_ms(outcome.input.id, now_ms)
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


def _committed_or(outcome: RootOutcome, committed: Mapping[Root, SentCopy]) -> RootOutcome:
    """Return an outcome, or in its place the copy or letter of its root that is committed already."""
    copy = committed.get(outcome.root)
    if copy is None:
        return outcome
    return outcome._replace(written=copy.record, dead=copy.dead, is_committed=True)
