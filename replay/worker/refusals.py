"""What one verdict partition knows of records that the broker refuses.

The broker refuses a whole transaction for one record in it. What cannot be
written must not hold up the rest:

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

Only what is put aside has entries; all else is in memory, and the next owner
of the partition finds it again.
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

    `copy_why` has the broker's words on the last copy, `letter_why` those on
    the last letter.
    """

    copies: int = 0
    letters: int = 0
    copy_why: str = ""
    letter_why: str = ""

    @property
    def is_over(self) -> bool:
        return not self.copies and not self.letters


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
    """Chooses which due roots are tried in one transaction, and learns from what becomes of it.

    Roots are named by their offsets in `_ack_due`.

    Attributes:
        given_up: roots that die since their copies were refused, each with the
            broker's words.
        aside: roots that wait, each for itself, until a topic takes them.
    """

    def __init__(self, limits: ReplayLimits, in_a_row: dict[int, RefusedInARow]) -> None:
        """Begin with nothing refused; `in_a_row` is by the input's id, and all partitions share it."""
        self.given_up: dict[int, str] = {}
        self.aside = RefusedAside(limits.input_retry_ms, limits.fire_max)
        self._limits = limits
        self._in_a_row = in_a_row
        self._narrowings: dict[int, Narrowing] = {}  # by an input's id
        self._too_old: set[int] = set()  # suspects whose copies are older than their topic takes
        # by a root's offset, the broker's words: roots whose copies wait until
        # their topic takes them, and roots whose dead letters were refused
        # alone
        self._waiting_copies: dict[int, str] = {}
        self._unwritable_letters: dict[int, str] = {}
        self._turn_count = 0
        self._turns_without_aside = 0
        self._search_count = 0

    @property
    def has_refused_lately(self) -> bool:
        """Whether anything was refused lately; else nothing is to be learned from what is accepted."""
        return bool(
            self._in_a_row
            or self._narrowings
            or self.aside
            or self.given_up
            or self._waiting_copies
            or self._unwritable_letters
        )

    # --- what is tried next

    def in_turn(self, ready: Sequence[int], refused_inputs: Collection[int]) -> Sequence[int]:
        """Return which inputs are tried now: all but those that must be tried alone, or one of these.

        The turns alternate: with inputs 1 to 5, of which 4 and 5 must be tried
        alone, they are [1, 2, 3], [4], [1, 2, 3], [5] and so on.

        Args:
            ready: ids of inputs that have due roots and can go on.
            refused_inputs: ids of inputs one of which made the broker refuse a
                transaction.
        """
        alone: list[int] = []
        together: list[int] = []
        for input_id in ready:
            if input_id in refused_inputs or input_id in self._narrowings:
                alone.append(input_id)
            else:
                together.append(input_id)
        self._turn_count += 1
        if not alone or (together and self._turn_count % 2):
            return together
        return [alone[self._turn_count // 2 % len(alone)]]

    def choose(self, due: Sequence[DueRoot], inputs: Sequence[int]) -> Sequence[DueRoot]:
        """Return which of the due roots of some inputs are tried in one transaction.

        It is empty if all of them are suspects: then `ran_out` decides what
        becomes of them.
        """
        not_aside = self.aside.others(due)
        if len(not_aside) < len(due):
            # what was put aside has its turn after `OTHERS_FIRST` turns of the
            # rest, or if there is no rest
            self._turns_without_aside += 1
            if not not_aside or self._turns_without_aside >= OTHERS_FIRST:
                self._turns_without_aside = 0
                return self.aside.to_try(due)
        # an input whose refused record is searched for is tried alone, so it
        # is the first of `inputs`
        narrowing = self._narrowings.get(inputs[0])
        return not_aside if narrowing is None else narrowing.choose(not_aside)

    # --- what came of it

    def accepted(self, input_id: int, of_input: Accepted) -> None:
        """Record what a transaction had of an input that the topics accepted.

        Its refusals in a row end; a search for refused records goes on with
        more roots at once.
        """
        in_a_row = self._in_a_row.get(input_id, RefusedInARow())
        if of_input.copy_count:
            in_a_row.copies = 0
        if of_input.letter_count:
            in_a_row.letters = 0
        if in_a_row.is_over:
            self._in_a_row.pop(input_id, None)
        if of_input.aside_count:
            self.aside.accepted(input_id)
        narrowing = self._narrowings.get(input_id)
        if narrowing is not None:
            at_fault = narrowing.accepted(of_input.root_count, of_input.copy_count)
            self._conclude(input_id, narrowing, at_fault)

    def refused_together(self, input_id: int, root_count: int) -> None:
        """Record that so many roots of an input were refused together, two or more."""
        self._narrowing_of(input_id).refused(root_count)

    def refused_copy(self, input_id: int, offset: int, why: str, *, is_too_old: bool) -> AtFault:
        """Record that the copy of a root was refused alone; return where the fault lies."""
        if is_too_old:
            self._too_old.add(offset)
        self._in_a_row.setdefault(input_id, RefusedInARow()).copy_why = why
        narrowing = self._narrowing_of(input_id)
        at_fault = narrowing.refused_alone(offset, why)
        self._conclude(input_id, narrowing, at_fault)
        return at_fault

    def refused_letter(self, input_id: int, offset: int, why: str) -> None:
        """Record that the dead letter of a root was refused alone: the next transaction puts it aside."""
        self._unwritable_letters[offset] = why
        in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
        in_a_row.letters += 1
        in_a_row.letter_why = why
        if narrowing := self._narrowings.get(input_id):
            narrowing.letter_was_refused()

    def ran_out(self, input_id: int) -> AtFault:
        """Record that of an input nothing is due but suspects; return where the fault lies."""
        narrowing = self._narrowings[input_id]
        at_fault = narrowing.ran_out()
        self._conclude(input_id, narrowing, at_fault)
        return at_fault

    def why_no_copy(self, input_id: int) -> str:
        """Return the broker's words on the last copy of an input that was refused alone."""
        in_a_row = self._in_a_row.get(input_id)
        return "" if in_a_row is None else in_a_row.copy_why

    def forget(self, input_id: int) -> None:
        """End the search for refused records of an input that is left alone for a while."""
        self._narrowings.pop(input_id, None)

    def done(self, offsets: Collection[int]) -> None:
        """Forget roots that wait no more under these offsets."""
        if not (self.given_up or self._waiting_copies or self._unwritable_letters or self.aside):
            return
        self.aside.done(offsets)
        for offset in offsets:
            for whys in (self.given_up, self._waiting_copies, self._unwritable_letters):
                whys.pop(offset, None)

    def _narrowing_of(self, input_id: int) -> Narrowing:
        """Return the search for the refused records of an input; begin one if there is none."""
        narrowing = self._narrowings.get(input_id)
        if narrowing is None:
            in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
            narrowing = Narrowing(
                self._limits.fire_max,
                self._limits.refused_max,
                in_a_row.copies,
                self._search_count,
            )
            self._narrowings[input_id] = narrowing
            self._search_count += 1
        return narrowing

    def _conclude(self, input_id: int, narrowing: Narrowing, at_fault: AtFault) -> None:
        """Draw the consequence of what a narrowing has found out.

        Suspects become dead letters, or wait if they are only too old. If the
        fault is the topic's, or nothing is suspected any more, the narrowing
        is over.
        """
        if at_fault is AtFault.RECORDS:
            in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
            if not narrowing.has_accepted_lately:  # no copy was accepted that would end the row
                in_a_row.copies += len(narrowing.suspects)
            for offset, why in narrowing.give_up_suspects().items():
                whys = self._waiting_copies if offset in self._too_old else self.given_up
                whys[offset] = why
                self._too_old.discard(offset)
        if at_fault is AtFault.TOPIC or narrowing.is_over:
            self._too_old.difference_update(narrowing.suspects)
            del self._narrowings[input_id]

    # --- what is put aside

    def why_copy_waits(self, offset: int) -> str | None:
        """Return why the copy of a root is put aside; None: it is tried."""
        return self._waiting_copies.get(offset)

    def why_letter_waits(self, due: Due, offset: int) -> str | None:
        """Return why the dead letter of a root is put aside; None: it is tried."""
        if offset in self._unwritable_letters:
            return self._unwritable_letters[offset]
        in_a_row = self._in_a_row.get(input_id_of(due.source))
        is_tried_alone = isinstance(due, RefusedRoot)
        if in_a_row is None or is_tried_alone or in_a_row.letters < self._limits.refused_max:
            return None
        return in_a_row.letter_why
