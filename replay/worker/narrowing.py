"""Finds, among the due roots of one input, those whose copies the broker refuses: by halves; pure.

The broker refuses a whole transaction for one record of it, and does not say
for which. So less is tried:

1. Of `n` roots that were refused together the first half is tried, then half
   of what is known to have a refused one, until a root is refused alone. Of
   100 roots this takes seven transactions.
2. Behind a root that was found twice as many are tried each time, 1, 2, 4 and
   so on, until all are through or the next transaction is refused.

A root that is refused alone is a *suspect*, and not given up yet: if the topic
takes no copy at all (it is compacted, say, or its schema is another one), the
trouble is the topic's, and the copies wait until somebody corrects it. So as
long as no copy was accepted, roots are tried one by one, spread over all that
are due: records that are refused come in runs. A copy that is accepted shows
that the topic takes copies, so the suspects are the trouble, as many as
`refused_copies_max` for each such copy. If none of `refused_copies_max` is
accepted, the topic is the trouble. Where fewer are due and all of them are refused, nobody
can say; then they are given up, since the others of the input must not wait
for them.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from replay.worker.waiting import DueRoot


class AtFault(Enum):
    """Why copies are refused, as far as it is known."""

    UNKNOWN = "unknown"
    """More is to be tried."""
    RECORDS = "records"
    """The suspects cannot be written to the topic, others can, or nobody knows: they are given up."""
    TOPIC = "topic"
    """The topic takes no copy."""


class Narrowing:
    """The search for refused copies of one input in one partition: which roots to try next.

    The broker does not say which record it refused. So the due roots are tried
    by halves: of 8 that were refused together the first 4, then 2, then 1,
    until one is refused alone. It is a suspect, and the others are tried twice
    as many at a time, until as many go together as ever. If the topic accepts
    none of several that are tried alone, the fault is the topic's, and no
    record's.

    Attributes:
        suspects: by the offset of its entry in `_ack_due`, the broker's words
            on each root that was refused alone and is not given up.
    """

    def __init__(
        self, roots_max: int, refused_copies_max: int, refused_in_a_row: int, search_number: int = 0
    ) -> None:
        """Begin with the first transaction that was refused.

        Args:
            roots_max: how many roots are tried at once where nothing is
                refused.
            refused_copies_max: if the topic refuses so many copies, and accepts
                none between them, the fault is the topic's.
            refused_in_a_row: how many were refused before this search, and
                none accepted since.
            search_number: counts the searches of the partition, from 0. Roots
                that are tried one by one are chosen by it, so that a new search
                does not begin with the same root.
        """
        self.suspects: dict[int, str] = {}  # by entry offset, the broker's words; see the class
        self._roots_max = roots_max
        self._refused_copies_max = refused_copies_max
        self._refused_in_a_row_before = refused_in_a_row
        self._search_number = search_number
        # among so many of the first due roots the broker refuses one at least; 0:
        # it is not clear of any
        self._roots_with_a_refused_one = 0
        self._roots_to_try_next = 1  # so many roots are tried next
        # grows by `refused_copies_max` for each copy that the topic accepts
        self._suspects_that_may_die = 0

    @property
    def is_over(self) -> bool:
        """Whether as many roots are tried at once again as before the first refusal."""
        is_searching = bool(self.suspects or self._roots_with_a_refused_one)
        return not is_searching and self._roots_to_try_next >= self._roots_max

    @property
    def has_accepted_lately(self) -> bool:
        """Whether the topic has accepted copies, so that suspects may be given up."""
        return self._suspects_that_may_die > 0

    @property
    def must_try_one_by_one(self) -> bool:
        """Whether roots are tried from all that are due, not only the first ones."""
        return bool(self.suspects) and not self.has_accepted_lately

    def choose_roots(self, due_roots: Sequence[DueRoot]) -> Sequence[DueRoot]:
        """Return which of the due roots are tried next; none if all of them are suspects.

        `due_roots` ascends by due time.
        """
        unsuspected = [root for root in due_roots if root.offset not in self.suspects]
        if not self.must_try_one_by_one or not unsuspected:
            return unsuspected[: self._roots_to_try_next]
        # With 3 suspects, where 10 refused ones are the topic's trouble, the
        # root at 3 tenths of those that are due is tried; in the next search
        # it is the one behind it.
        index = len(unsuspected) * len(self.suspects) // self._refused_copies_max
        index += self._search_number
        return [unsuspected[index % len(unsuspected)]]

    def record_refused_together(self, root_count: int) -> None:
        """Record that so many roots were refused together, two or more; half of them are tried next."""
        self._roots_with_a_refused_one = root_count
        self._roots_to_try_next = max(1, root_count // 2)

    def record_refused_alone(self, offset: int, why: str) -> AtFault:
        """Record that the copy of a root was refused alone; return where the fault lies."""
        self.suspects[offset] = why
        self._roots_with_a_refused_one = 0
        self._roots_to_try_next = 1
        return self._at_fault()

    def record_refused_letter(self) -> None:
        """Record that the dead letter of a root was refused alone: it shows nothing about copies."""
        self._roots_with_a_refused_one = 0
        self._roots_to_try_next = 1

    def record_accepted(self, root_count: int, copy_count: int) -> AtFault:
        """Record that the broker accepted a transaction of `root_count` roots.

        Of these `copy_count` got a copy; the others got a dead letter or only a
        tombstone. Return where the fault lies.
        """
        # 1. each accepted copy shows that the topic takes copies: so more
        # suspects may die
        self._suspects_that_may_die += copy_count * self._refused_copies_max
        # 2. suspects, and no copy was ever accepted: this transaction had no
        # copy, and shows nothing about the topic
        if self.must_try_one_by_one:
            return AtFault.UNKNOWN
        # 3. Fewer roots are left among which one is refused; if none is left, try
        # twice as many. Of 8 that were refused together the first 4 are accepted
        # now: so one of the other 4 is refused, and 2 of these are tried next.
        self._roots_with_a_refused_one = max(0, self._roots_with_a_refused_one - root_count)
        if self._roots_with_a_refused_one:
            self._roots_to_try_next = max(1, self._roots_with_a_refused_one // 2)
        else:
            twice_as_many = 2 * max(root_count, self._roots_to_try_next)
            self._roots_to_try_next = min(self._roots_max, twice_as_many)
        return self._at_fault()

    def fault_of_suspects(self) -> AtFault:
        """Return where the fault lies when nothing is due but the suspects.

        That is the topic if it took none of `refused_copies_max` copies; else nobody
        can say, and it counts as theirs.
        """
        refused_in_a_row = self._refused_in_a_row_before + len(self.suspects)
        if not self.has_accepted_lately and refused_in_a_row >= self._refused_copies_max:
            return AtFault.TOPIC
        return AtFault.RECORDS

    def give_up_suspects(self) -> Mapping[int, str]:
        """Remove the suspects from the search, since their roots die, or are put aside.

        Return them, by entry offset, with the broker's words.
        """
        suspects = self.suspects
        self.suspects = {}
        # the topic accepted a copy, so its refusals in a row are over
        if self._suspects_that_may_die:
            self._refused_in_a_row_before = 0
        else:
            self._refused_in_a_row_before += len(suspects)
        # each of these suspects uses up one of the allowance; it never falls below 0
        self._suspects_that_may_die = max(0, self._suspects_that_may_die - len(suspects))
        return suspects

    def _at_fault(self) -> AtFault:
        """Return where the fault lies, by the suspects and what was accepted."""
        if not self.suspects:
            return AtFault.UNKNOWN
        if self.has_accepted_lately:
            return AtFault.RECORDS
        # what was refused earlier is no reason to try fewer: one of those that
        # are due now may be accepted
        return AtFault.TOPIC if len(self.suspects) >= self._refused_copies_max else AtFault.UNKNOWN
