"""What one verdict partition knows of records that the broker refuses.

The broker refuses a whole transaction for one record in it, by its size, its
time or the topic's settings. What cannot be written must not hold up the rest:

- A copy that is refused alone is found by halves (`replay.worker.narrowing`),
  and its root becomes a dead letter `REFUSED` with the broker's words. If the
  topic takes no copy at all, its input waits, as it does if the topic is
  missing.
- A copy that is too old for its topic is *put aside*
  (`replay.worker.refused_aside`): its root gets a new entry in `_ack_due`, with
  the broker's words, and is tried again from time to time, apart from all
  others. Every copy becomes too old some time, so the setting is wrong, and not
  the record.
- A dead letter that is refused alone is put aside as well. After `refused_max`
  letters of an input that were refused in a row, further ones are put aside
  without being tried.

An *entry* is the record of `_ack_due` by which a root waits; the root is named
by its offset there. All but the entries is in memory alone: the next owner of
the partition finds out again what is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.config.limits import ReplayLimits
from acker.identity import input_id_of
from replay.records.due import Due, RefusedRoot
from replay.worker.narrowing import AtFault, Narrowing
from replay.worker.refused_aside import RefusedAside
from replay.worker.waiting import DueRoot

TRANSACTIONS_WITHOUT_ASIDE_MAX: Final = 8
"""After so many transactions without roots that are put aside, those that are due are tried.

So a busy input does not keep them from it.
"""


@dataclass(slots=True)
class RefusedInARow:
    """How many records of an input were refused, each alone, since its topic accepted one.

    Copies go to the replay topic, letters to the dead-letter topic: each topic
    has its own count. `copy_why` has the broker's words on the last copy that
    was refused, `letter_why` those on the last letter; empty if none was.
    """

    copy_count: int = 0
    letter_count: int = 0
    copy_why: str = ""
    letter_why: str = ""

    @property
    def is_over(self) -> bool:
        """Whether both topics have accepted a record since they refused one."""
        return not self.copy_count and not self.letter_count


class Accepted(NamedTuple):
    """What a committed transaction had of one input.

    Attributes:
        root_count: roots for which anything was written, also tombstones alone.
        copy_count, letter_count: copies and dead letters among it.
        aside_count: how many of these copies and letters are of roots that had
            been put aside.
    """

    root_count: int
    copy_count: int
    letter_count: int
    aside_count: int


class Refusals:
    """Chooses which due roots the next transaction tries, and records what becomes of it.

    A *search* (`Narrowing`) finds the refused copies of one input by halves; a
    root whose copy was refused alone is its *suspect*. Offsets are those of
    entries in `_ack_due`.

    Attributes:
        why_refused_by_dying_offset: the broker's words on the copy of each root that
            dies since its copy was refused.
        roots_aside: roots that are put aside until a topic takes what is
            written for them.
    """

    def __init__(self, limits: ReplayLimits, refused_in_a_row_by_input: dict[int, RefusedInARow]) -> None:
        """Begin with nothing refused in this partition.

        `refused_in_a_row_by_input` is by the input's id. All partitions of a
        worker share it, and write to it.
        """
        self.why_refused_by_dying_offset: dict[int, str] = {}
        self.roots_aside = RefusedAside(limits.input_retry_ms, limits.fire_max)
        self._limits = limits
        self._refused_in_a_row_by_input = refused_in_a_row_by_input
        self._search_by_input: dict[int, Narrowing] = {}  # by an input's id
        # offsets of suspects whose copies are older than their topic takes
        self._too_old_suspects: set[int] = set()
        # by a root's offset, the broker's words on what was refused alone, and
        # is put aside by the next transaction that chooses the root
        self._why_copy_is_put_aside_by_offset: dict[int, str] = {}
        self._why_letter_is_put_aside_by_offset: dict[int, str] = {}
        # see `choose_next_inputs` and `choose_next_roots`
        self._transaction_count = 0
        self._transactions_without_aside = 0  # in a row, although roots that are put aside were due
        self._search_count = 0  # searches that were begun, of all inputs

    @property
    def has_refused_lately(self) -> bool:
        """Whether anything is still remembered as refused.

        If not, the caller need not record what is accepted.
        """
        return bool(
            self._refused_in_a_row_by_input
            or self._search_by_input
            or self.roots_aside
            or self.why_refused_by_dying_offset
            or self._why_copy_is_put_aside_by_offset
            or self._why_letter_is_put_aside_by_offset
        )

    # --- what is tried next

    def choose_next_inputs(
        self, ready_inputs: Sequence[int], inputs_to_try_alone: Collection[int]
    ) -> Sequence[int]:
        """Count a transaction that begins, and return the ids of the inputs that it tries.

        These are all ready inputs but those that must be tried alone, or one of
        these, in turn: with inputs 1 to 5, of which 4 and 5 must be tried
        alone, the transactions try [1, 2, 3], [4], [1, 2, 3], [5] and so on.
        Empty: no input is ready.

        Args:
            ready_inputs: ids of inputs that have due roots and can go on.
            inputs_to_try_alone: ids of the inputs of a transaction that the broker
                refused, which is one input's fault.
        """
        alone: list[int] = []
        together: list[int] = []
        for input_id in ready_inputs:
            if input_id in inputs_to_try_alone or input_id in self._search_by_input:
                alone.append(input_id)
            else:
                together.append(input_id)
        self._transaction_count += 1
        if not alone:
            return together
        if together and self._transaction_count % 2 == 1:
            return together
        index = self._transaction_count // 2 % len(alone)
        return [alone[index]]

    def choose_next_roots(self, due_roots: Sequence[DueRoot], inputs: Sequence[int]) -> Sequence[DueRoot]:
        """Return which due roots of `inputs` the transaction that begins tries.

        `inputs` are those that `choose_next_inputs` returned. If the result is
        empty, all due roots are suspects: then call `decide_about_suspects`.
        """
        not_aside = self.roots_aside.leave_out_roots_aside(due_roots)
        if len(not_aside) < len(due_roots):
            # roots that are put aside are tried alone, in each 8th transaction
            # (`TRANSACTIONS_WITHOUT_ASIDE_MAX`), or at once if nothing else is due
            self._transactions_without_aside += 1
            if not not_aside or self._transactions_without_aside >= TRANSACTIONS_WITHOUT_ASIDE_MAX:
                self._transactions_without_aside = 0
                return self.roots_aside.choose_due_aside(due_roots)
        # an input with a search is tried alone, so `inputs` has only that one
        search = self._search_by_input.get(inputs[0])
        return not_aside if search is None else search.choose_roots(not_aside)

    # --- what came of it

    def record_accepted(self, input_id: int, accepted: Accepted) -> None:
        """Record what a committed transaction had of an input.

        Its refusals in a row end; a search for refused records goes on with
        more roots at once.
        """
        refused_in_a_row = self._refused_in_a_row_by_input.get(input_id, RefusedInARow())
        if accepted.copy_count:
            refused_in_a_row.copy_count = 0
        if accepted.letter_count:
            refused_in_a_row.letter_count = 0
        if refused_in_a_row.is_over:
            self._refused_in_a_row_by_input.pop(input_id, None)
        if accepted.aside_count:
            self.roots_aside.record_try_accepted(input_id)
        search = self._search_by_input.get(input_id)
        if search is not None:
            at_fault = search.record_accepted(accepted.root_count, accepted.copy_count)
            self._act_on_fault(input_id, search, at_fault)

    def record_refused_together(self, input_id: int, root_count: int) -> None:
        """Record that so many roots of an input were refused together, two or more."""
        self._search_of(input_id).record_refused_together(root_count)

    def record_refused_copy(self, input_id: int, offset: int, why: str, *, is_too_old: bool) -> AtFault:
        """Record that the copy of a root was refused alone; return where the fault lies.

        `why` has the broker's words. `is_too_old`: the record's time is too old
        for the topic; such a root is put aside, and does not die. The count of
        refused copies in a row changes only when suspects are given up.
        """
        if is_too_old:
            self._too_old_suspects.add(offset)
        else:  # it may have been too old before, and the topic takes that age now
            self._too_old_suspects.discard(offset)
        self._refused_in_a_row_of(input_id).copy_why = why
        search = self._search_of(input_id)
        at_fault = search.record_refused_alone(offset, why)
        self._act_on_fault(input_id, search, at_fault)
        return at_fault

    def record_refused_letter(self, input_id: int, offset: int, why: str) -> None:
        """Record that the dead letter of a root was refused alone: the next transaction puts it aside.

        `why` has the broker's words.
        """
        self._why_letter_is_put_aside_by_offset[offset] = why
        refused_in_a_row = self._refused_in_a_row_of(input_id)
        refused_in_a_row.letter_count += 1
        refused_in_a_row.letter_why = why
        search = self._search_by_input.get(input_id)
        if search is not None:
            search.record_refused_letter()

    def decide_about_suspects(self, input_id: int) -> AtFault:
        """Decide what becomes of the suspects of an input, if nothing else of it is due.

        Return where the fault lies. If it is `AtFault.RECORDS`, they die, or
        are put aside if they are only too old. If it is `AtFault.TOPIC`, the
        search ends, and the caller leaves the input alone.
        """
        search = self._search_by_input[input_id]
        at_fault = search.fault_of_suspects()
        self._act_on_fault(input_id, search, at_fault)
        return at_fault

    def why_no_copy(self, input_id: int) -> str:
        """Return the broker's words on the last copy of an input that was refused alone.

        Empty: none was.
        """
        refused_in_a_row = self._refused_in_a_row_by_input.get(input_id)
        return "" if refused_in_a_row is None else refused_in_a_row.copy_why

    def end_search(self, input_id: int) -> None:
        """End the search for refused records of an input that is left alone for a while."""
        search = self._search_by_input.pop(input_id, None)
        if search is not None:
            self._too_old_suspects.difference_update(search.suspects)

    def forget_done(self, offsets: Collection[int]) -> None:
        """Forget the roots whose entries, at these offsets of `_ack_due`, got a tombstone."""
        if not self.has_refused_lately:  # the usual case
            return
        self.roots_aside.forget_done(offsets)
        for offset in offsets:
            self.why_refused_by_dying_offset.pop(offset, None)
            self._why_copy_is_put_aside_by_offset.pop(offset, None)
            self._why_letter_is_put_aside_by_offset.pop(offset, None)
        self._too_old_suspects.difference_update(offsets)

    def _search_of(self, input_id: int) -> Narrowing:
        """Return the search for the refused records of an input; begin one if there is none."""
        search = self._search_by_input.get(input_id)
        if search is None:
            search = Narrowing(
                roots_max=self._limits.fire_max,
                refused_copies_max=self._limits.refused_max,
                refused_in_a_row=self._refused_in_a_row_of(input_id).copy_count,
                search_number=self._search_count,
            )
            self._search_by_input[input_id] = search
            self._search_count += 1
        return search

    def _refused_in_a_row_of(self, input_id: int) -> RefusedInARow:
        """Return the refusals in a row of an input, which the caller may change."""
        return self._refused_in_a_row_by_input.setdefault(input_id, RefusedInARow())

    def _act_on_fault(self, input_id: int, search: Narrowing, at_fault: AtFault) -> None:
        """Give up the suspects of a search if the fault is theirs, and end a search that is over.

        Where more is to be tried first (`AtFault.UNKNOWN`), nothing changes.
        """
        if at_fault is AtFault.RECORDS:
            self._give_up_suspects(input_id, search)
        if at_fault is AtFault.TOPIC or search.is_over:
            self._too_old_suspects.difference_update(search.suspects)
            del self._search_by_input[input_id]

    def _give_up_suspects(self, input_id: int, search: Narrowing) -> None:
        """Give up the suspects of a search.

        Each root dies, or is put aside if its copy is only too old; the next
        transaction that chooses it writes that.
        """
        # No copy was accepted since: they count as refused in a row. Otherwise
        # `record_accepted` has set the count to 0.
        if not search.has_accepted_lately:
            self._refused_in_a_row_of(input_id).copy_count += len(search.suspects)
        for offset, why in search.give_up_suspects().items():
            if offset in self._too_old_suspects:
                self._too_old_suspects.discard(offset)
                self._why_copy_is_put_aside_by_offset[offset] = why
            else:
                self.why_refused_by_dying_offset[offset] = why

    # --- what is put aside

    def why_copy_waits(self, offset: int) -> str | None:
        """Return why the copy of a root is put aside, the broker's words; None: it is tried."""
        return self._why_copy_is_put_aside_by_offset.get(offset)

    def why_letter_waits(self, entry: Due, offset: int) -> str | None:
        """Return why the dead letter of a root is put aside, the broker's words; None: it is tried.

        Either it was refused itself, or `refused_max` letters of its input
        were refused in a row. A root that was put aside before (`entry` is a
        `RefusedRoot`) is tried alone, so it holds up nothing.
        """
        if offset in self._why_letter_is_put_aside_by_offset:
            return self._why_letter_is_put_aside_by_offset[offset]
        if isinstance(entry, RefusedRoot):
            return None
        refused_in_a_row = self._refused_in_a_row_by_input.get(input_id_of(entry.source))
        if refused_in_a_row is None or refused_in_a_row.letter_count < self._limits.refused_max:
            return None
        return refused_in_a_row.letter_why
