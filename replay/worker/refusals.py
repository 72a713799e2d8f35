"""What one verdict partition knows of records that the broker refuses.

The broker refuses a whole transaction for one record in it, by its size, its
time or the topic's settings. What cannot be written must not hold up the rest:

- A copy that is refused alone is found by halves (`replay.worker.narrowing`),
  and its root becomes a dead letter `REFUSED` with the broker's words. If the
  topic takes no copy at all, its input waits, as it does if the topic is
  missing.
- A copy that is too old for its topic is put aside
  (`replay.worker.refused_aside`): every copy becomes too old some time, so the
  setting is wrong, and not the record.
- A dead letter that is refused alone is put aside as well. After `refused_max`
  letters of an input that were refused in a row, further ones are put aside
  without being tried.

Only what is put aside has entries in `_ack_due`; all else is in memory, and
the next owner of the partition finds it again.
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

OTHERS_FIRST: Final = 8
"""So many transactions others go before what was put aside and is due; so a busy input does not keep it."""


@dataclass(slots=True)
class RefusedInARow:
    """How many records of an input were refused, each alone, since one was accepted by the same topic.

    Copies go to the replay topic, letters to the dead-letter topic.
    `copy_why` has the broker's words on the last copy that was refused,
    `letter_why` those on the last letter.
    """

    copy_count: int = 0
    letter_count: int = 0
    copy_why: str = ""
    letter_why: str = ""

    @property
    def is_over(self) -> bool:
        return not self.copy_count and not self.letter_count


class Accepted(NamedTuple):
    """What a transaction that was accepted had of one input.

    `aside_count` of its copies and letters are of roots that had been put
    aside.
    """

    root_count: int
    copy_count: int
    letter_count: int
    aside_count: int


class Refusals:
    """Chooses which due roots are tried in one transaction, and records what becomes of it.

    Roots are named by the offsets of their entries in `_ack_due`. A *search*
    (`Narrowing`) finds the refused copies of one input by halves; a root whose
    copy was refused alone is its *suspect*.

    Attributes:
        final_refusal_by_offset: by the offset of a root that dies since its copy was
            refused, the broker's words.
        aside: roots that wait, each for itself, until a topic takes them.
    """

    def __init__(self, limits: ReplayLimits, in_a_row: dict[int, RefusedInARow]) -> None:
        """Begin with nothing refused; `in_a_row` is by the input's id, and all partitions share it."""
        self.final_refusal_by_offset: dict[int, str] = {}
        self.aside = RefusedAside(limits.input_retry_ms, limits.fire_max)
        self._limits = limits
        self._in_a_row = in_a_row
        self._search_by_input: dict[int, Narrowing] = {}  # by an input's id
        # offsets of suspects whose copies are older than their topic takes
        self._too_old: set[int] = set()
        # by a root's offset, the broker's words: roots whose copies wait until
        # their topic takes them, and roots whose dead letters were refused
        # alone
        self._why_copy_waits: dict[int, str] = {}
        self._why_letter_waits: dict[int, str] = {}
        # each transaction is a turn: see `take_input_turn` and `take_root_turn`
        self._turn_count = 0
        self._turns_without_aside = 0
        self._search_count = 0  # searches that were begun, of all inputs

    @property
    def has_refused_lately(self) -> bool:
        """Whether anything is still remembered as refused.

        If not, the caller need not record what is accepted.
        """
        return bool(
            self._in_a_row
            or self._search_by_input
            or self.aside
            or self.final_refusal_by_offset
            or self._why_copy_waits
            or self._why_letter_waits
        )

    # --- what is tried next

    def take_input_turn(self, ready: Sequence[int], refused_inputs: Collection[int]) -> Sequence[int]:
        """Begin a turn; return the ids of the inputs that are tried in it.

        These are all but those that must be tried alone, or one of these. The
        turns alternate: with inputs 1 to 5, of which 4 and 5 must be tried
        alone, they are [1, 2, 3], [4], [1, 2, 3], [5] and so on.

        Args:
            ready: ids of inputs that have due roots and can go on.
            refused_inputs: ids of the inputs of a transaction that the broker
                refused, which is one input's fault.
        """
        alone: list[int] = []
        together: list[int] = []
        for input_id in ready:
            if input_id in refused_inputs or input_id in self._search_by_input:
                alone.append(input_id)
            else:
                together.append(input_id)
        self._turn_count += 1
        if not alone or (together and self._turn_count % 2):
            return together
        return [alone[self._turn_count // 2 % len(alone)]]

    def take_root_turn(self, due: Sequence[DueRoot], inputs: Sequence[int]) -> Sequence[DueRoot]:
        """Return which due roots of the inputs of this turn are tried in one transaction.

        It is empty if all of them are suspects: then
        `judge_last_suspects` decides what becomes of them.
        """
        not_aside = self.aside.leave_out_aside(due)
        if len(not_aside) < len(due):
            # what was put aside has its turn after `OTHERS_FIRST` turns of the
            # rest, or if there is no rest
            self._turns_without_aside += 1
            if not not_aside or self._turns_without_aside >= OTHERS_FIRST:
                self._turns_without_aside = 0
                return self.aside.choose_roots(due)
        # an input whose refused record is searched for is tried alone, so it
        # is the first of `inputs`
        search = self._search_by_input.get(inputs[0])
        return not_aside if search is None else search.choose_roots(not_aside)

    # --- what came of it

    def record_accepted(self, input_id: int, accepted: Accepted) -> None:
        """Record what a committed transaction had of an input.

        Its refusals in a row end; a search for refused records goes on with
        more roots at once.
        """
        in_a_row = self._in_a_row.get(input_id, RefusedInARow())
        if accepted.copy_count:
            in_a_row.copy_count = 0
        if accepted.letter_count:
            in_a_row.letter_count = 0
        if in_a_row.is_over:
            self._in_a_row.pop(input_id, None)
        if accepted.aside_count:
            self.aside.record_accepted(input_id)
        search = self._search_by_input.get(input_id)
        if search is not None:
            at_fault = search.record_accepted(accepted.root_count, accepted.copy_count)
            self._conclude(input_id, search, at_fault)

    def record_refused_together(self, input_id: int, root_count: int) -> None:
        """Record that so many roots of an input were refused together, two or more."""
        self._search_of(input_id).record_refused_together(root_count)

    def record_refused_copy(self, input_id: int, offset: int, why: str, *, is_too_old: bool) -> AtFault:
        """Record that the copy of a root was refused alone; return where the fault lies."""
        if is_too_old:
            self._too_old.add(offset)
        self._in_a_row.setdefault(input_id, RefusedInARow()).copy_why = why
        search = self._search_of(input_id)
        at_fault = search.record_refused_alone(offset, why)
        self._conclude(input_id, search, at_fault)
        return at_fault

    def record_refused_letter(self, input_id: int, offset: int, why: str) -> None:
        """Record that the dead letter of a root was refused alone: the next transaction puts it aside."""
        self._why_letter_waits[offset] = why
        in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
        in_a_row.letter_count += 1
        in_a_row.letter_why = why
        search = self._search_by_input.get(input_id)
        if search is not None:
            search.record_refused_letter()

    def judge_last_suspects(self, input_id: int) -> AtFault:
        """Decide about the suspects of an input of which nothing else is due; return where the
        fault lies.
        """
        search = self._search_by_input[input_id]
        at_fault = search.fault_of_suspects()
        self._conclude(input_id, search, at_fault)
        return at_fault

    def why_no_copy(self, input_id: int) -> str:
        """Return the broker's words on the last copy of an input that was refused alone; empty:
        none was.
        """
        in_a_row = self._in_a_row.get(input_id)
        return "" if in_a_row is None else in_a_row.copy_why

    def end_search(self, input_id: int) -> None:
        """End the search for refused records of an input that is left alone for a while."""
        self._search_by_input.pop(input_id, None)

    def forget_done(self, offsets: Collection[int]) -> None:
        """Forget the roots of entries that are no more."""
        if not self.has_refused_lately:  # the usual case
            return
        self.aside.forget_done(offsets)
        for offset in offsets:
            self.final_refusal_by_offset.pop(offset, None)
            self._why_copy_waits.pop(offset, None)
            self._why_letter_waits.pop(offset, None)

    def _search_of(self, input_id: int) -> Narrowing:
        """Return the search for the refused records of an input; begin one if there is none."""
        search = self._search_by_input.get(input_id)
        if search is None:
            in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
            search = Narrowing(
                roots_max=self._limits.fire_max,
                refused_max=self._limits.refused_max,
                refused_in_a_row=in_a_row.copy_count,
                search_number=self._search_count,
            )
            self._search_by_input[input_id] = search
            self._search_count += 1
        return search

    def _conclude(self, input_id: int, search: Narrowing, at_fault: AtFault) -> None:
        """Draw the consequence of what a search has found out.

        Suspects become dead letters, or wait if they are only too old. If the
        fault is the topic's, or nothing is suspected any more, the search is
        over.
        """
        if at_fault is AtFault.RECORDS:
            in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
            if not search.has_accepted_lately:  # no copy was accepted that would end the row
                in_a_row.copy_count += len(search.suspects)
            for offset, why in search.give_up_suspects().items():
                if offset in self._too_old:
                    self._why_copy_waits[offset] = why
                else:
                    self.final_refusal_by_offset[offset] = why
                self._too_old.discard(offset)
        if at_fault is AtFault.TOPIC or search.is_over:
            self._too_old.difference_update(search.suspects)
            del self._search_by_input[input_id]

    # --- what is put aside

    def why_copy_waits(self, offset: int) -> str | None:
        """Return why the copy of a root is put aside, the broker's words; None: it is tried."""
        return self._why_copy_waits.get(offset)

    def why_letter_waits(self, due: Due, offset: int) -> str | None:
        """Return why the dead letter of a root is put aside, the broker's words; None: it is tried.

        Either it was refused itself, or `refused_max` letters of its input
        were refused in a row. A root that was put aside before is tried alone,
        so it holds up nothing.
        """
        if offset in self._why_letter_waits:
            return self._why_letter_waits[offset]
        if isinstance(due, RefusedRoot):
            return None
        in_a_row = self._in_a_row.get(input_id_of(due.source))
        if in_a_row is None or in_a_row.letter_count < self._limits.refused_max:
            return None
        return in_a_row.letter_why
