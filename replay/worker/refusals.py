"""What one verdict partition knows of records that the broker refuses.

The broker refuses a whole transaction for one record in it. What cannot be written must not hold up the rest:

- A copy that is refused alone is found by halves (`replay.worker.narrowing`), and its root becomes a dead
  letter `REFUSED` with the broker's words. If the topic takes no copy at all, its input waits, as it does if
  the topic is missing.
- A dead letter that is refused alone is put aside: `_ack_due` gets a `Refused` entry with the broker's words.
  It is tried again from time to time, alone, until the topic takes it. After `refused_max` letters of an
  input that were refused in a row, further ones are put aside without being tried.

All of this is in memory, but for the entries: the next owner of the partition finds it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acker.config.limits import ReplayLimits
from acker.identity import input_id_of
from replay.records.due import Due, Refused
from replay.worker.narrowing import Finding, Narrowing
from replay.worker.waiting import DueRoot

_FIRST_SHARE: Final = 64
"""Letters that were put aside are tried again first after `ReplayLimits.input_retry_ms` divided by this."""


@dataclass(slots=True)
class RefusedInARow:
    """How many records of an input were refused, each alone, since one was accepted by the same topic.

    `letter_why` has the broker's words on the last letter.
    """

    copies: int = 0
    letters: int = 0
    letter_why: str = ""


@dataclass(slots=True)
class _LettersAside:
    """The letters of an input that wait in this partition until its topic takes them."""

    offsets: set[int]
    why: str
    wait_ms: int
    at_once: int = 1


class Refusals:
    """Chooses which due roots are tried in one transaction, and learns from what becomes of it.

    Attributes:
        condemned: by their offsets in `_ack_due`, roots whose copies were refused, each with the broker's
        words. unwritable: the same of roots whose dead letters were refused, and that are not put aside yet.
    """

    def __init__(self, limits: ReplayLimits, in_a_row: dict[int, RefusedInARow]) -> None:
        """Begin with nothing refused; `in_a_row` is by the input's id, and all partitions share it."""
        self.condemned: dict[int, str] = {}
        self.unwritable: dict[int, str] = {}
        self._limits = limits
        self._in_a_row = in_a_row
        self._narrowings: dict[int, Narrowing] = {}
        self._letters: dict[int, _LettersAside] = {}
        self._turns = 0
        self._rounds = 0

    @property
    def has_some(self) -> bool:
        """Whether anything was refused lately; else nothing is to be learned from what is accepted."""
        return bool(self._in_a_row or self._narrowings or self._letters)

    # --- what is tried next

    def in_turn(self, ready: Sequence[int], suspects: set[int]) -> Sequence[int]:
        """Return which inputs are tried now: all but those that must be tried alone, or one of these.

        `suspects` are inputs one of which made the broker refuse a transaction.
        """
        alone = [input_id for input_id in ready if input_id in suspects or input_id in self._narrowings]
        others = [input_id for input_id in ready if input_id not in alone]
        self._turns += 1
        if not alone or (others and self._turns % 2):
            return others
        return [alone[self._turns // 2 % len(alone)]]

    def choose(self, due: Sequence[DueRoot], inputs: Sequence[int]) -> Sequence[DueRoot]:
        """Return which of the due roots of some inputs are tried in one transaction.

        None if all of them are accused: then `ran_out` tells what becomes of them.
        """
        others = due
        if self._letters:
            aside = set[int]().union(*(letters.offsets for letters in self._letters.values()))
            others = [entry for entry in due if entry.offset not in aside]
        if not others:
            return self._letters_to_try(due)
        narrowing = self._narrowings.get(inputs[0])  # an input with one is tried alone
        return others if narrowing is None else narrowing.choose(others)

    def _letters_to_try(self, due: Sequence[DueRoot]) -> Sequence[DueRoot]:
        """Return letters of one input that were put aside: one, or more after one was accepted."""
        letters = next(each for each in self._letters.values() if due[0].offset in each.offsets)
        return [entry for entry in due if entry.offset in letters.offsets][: letters.at_once]

    # --- what came of it

    def accepted(self, input_id: int, roots: int, *, copies: int, letters: int) -> Finding:
        """Learn that a transaction was accepted, in which an input had so many roots, copies and letters."""
        in_a_row = self._in_a_row.get(input_id, RefusedInARow())
        if copies:
            in_a_row.copies = 0
        if letters:
            in_a_row.letters = 0
            if aside := self._letters.get(input_id):
                aside.at_once = min(self._limits.fire_max, 2 * aside.at_once)
        if in_a_row == RefusedInARow(letter_why=in_a_row.letter_why):
            self._in_a_row.pop(input_id, None)
        narrowing = self._narrowings.get(input_id)
        if narrowing is None:
            return Finding.NOTHING
        finding = narrowing.accepted(roots, copies)
        self._conclude(input_id, narrowing, finding)
        return finding

    def refused_together(self, input_id: int, roots: int) -> None:
        """Learn that roots of an input were refused, two or more."""
        self._narrowing_of(input_id).refused(roots)

    def refused_copy(self, input_id: int, offset: int, why: str) -> Finding:
        """Learn that the copy of a root was refused alone."""
        narrowing = self._narrowing_of(input_id)
        finding = narrowing.accuse(offset, why)
        self._conclude(input_id, narrowing, finding)
        return finding

    def refused_letter(self, input_id: int, offset: int, why: str) -> None:
        """Learn that the dead letter of a root was refused alone: the next transaction puts it aside."""
        self.unwritable[offset] = why
        in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
        in_a_row.letters += 1
        in_a_row.letter_why = why
        if narrowing := self._narrowings.get(input_id):
            narrowing.found_letter()

    def ran_out(self, input_id: int) -> Finding:
        """Learn that of an input nothing is due but what is accused."""
        narrowing = self._narrowings[input_id]
        finding = narrowing.ran_out()
        self._conclude(input_id, narrowing, finding)
        return finding

    def forget(self, input_id: int) -> None:
        """Begin anew with an input: it is left alone for a while."""
        self._narrowings.pop(input_id, None)

    def _narrowing_of(self, input_id: int) -> Narrowing:
        narrowing = self._narrowings.get(input_id)
        if narrowing is None:
            limits, in_a_row = self._limits, self._in_a_row.setdefault(input_id, RefusedInARow())
            narrowing = Narrowing(limits.fire_max, limits.refused_max, in_a_row.copies, self._rounds)
            self._rounds += 1
            self._narrowings[input_id] = narrowing
        return narrowing

    def _conclude(self, input_id: int, narrowing: Narrowing, finding: Finding) -> None:
        if finding is Finding.RECORDS:
            in_a_row = self._in_a_row.setdefault(input_id, RefusedInARow())
            if not narrowing.has_credit:
                in_a_row.copies += len(narrowing.accused)
            self.condemned.update(narrowing.condemned())
        if finding is Finding.TOPIC or narrowing.is_over:
            del self._narrowings[input_id]

    # --- letters that wait until their topic takes them

    def why_aside(self, due: Due, offset: int) -> str | None:
        """Return why the dead letter of a root is put aside without being tried; None: it is tried."""
        if offset in self.unwritable:
            return self.unwritable[offset]
        in_a_row = self._in_a_row.get(input_id_of(due.source))
        is_tried_alone = isinstance(due, Refused)
        if in_a_row is None or is_tried_alone or in_a_row.letters < self._limits.refused_max:
            return None
        return in_a_row.letter_why

    def retry_ms(self, input_id: int, now_ms: int) -> int:
        """Return when letters of an input that are put aside now are tried again, wall time."""
        letters = self._letters.get(input_id)
        return now_ms + (self._limits.input_retry_ms // _FIRST_SHARE if letters is None else letters.wait_ms)

    def is_aside(self, offset: int) -> bool:
        return any(offset in letters.offsets for letters in self._letters.values())

    def put_aside(self, offset: int, due: Refused) -> None:
        """Take note of the entry of a letter that was put aside, by this owner or one before."""
        input_id = input_id_of(due.source)
        first_ms = self._limits.input_retry_ms // _FIRST_SHARE
        letters = self._letters.setdefault(input_id, _LettersAside(set(), due.letter_why, first_ms))
        letters.offsets.add(offset)

    def refused_again(self, input_id: int, tried: Sequence[DueRoot], why: str) -> int:
        """Learn that letters of an input that were put aside are refused again.

        Return for how many ms all of them are left alone: 0 if fewer of them are to be tried first.
        """
        letters = self._letters[input_id]
        letters.at_once = max(1, len(tried) // 2)
        if len(tried) > 1:
            return 0
        letters.why = why
        wait_ms = letters.wait_ms
        letters.wait_ms = min(self._limits.input_retry_ms, 2 * wait_ms)
        return wait_ms

    def done(self, offsets: Collection[int]) -> None:
        """Forget roots that wait no more under these offsets."""
        if not (self.condemned or self.unwritable or self._letters):
            return
        for offset in offsets:
            self.condemned.pop(offset, None)
            self.unwritable.pop(offset, None)
        for input_id, letters in list(self._letters.items()):
            letters.offsets.difference_update(offsets)
            if not letters.offsets:
                del self._letters[input_id]

    def letters_aside(self) -> Mapping[int, tuple[int, str]]:
        """Return how many letters of each input wait for their topic, by the input's id, and why."""
        return {input_id: (len(each.offsets), each.why) for input_id, each in self._letters.items()}
