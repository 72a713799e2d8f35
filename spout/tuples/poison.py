"""Poison tuples, which kill or hang the process that works on them: how to
find and to leave them out; pure.

A child process works on tuples in place of its worker
(`spout.isolation.isolation`). When the child ends, the call that was running
names the *poison* tuple. The next child raises `Isolated` instead of making
that call, so everything else happens as if the bolt itself had failed the
tuple. A call of an `ArrowBolt` has many rows, and does not show which row it
was: the next child makes two calls, for one half of the rows each, and so on.

Source: docs/design/protocol.md, section 3 rules 5, 6 and 11.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

WORKER_DIED: Final = "WORKER_DIED"
"""The error of a root of which a tuple ended the process that worked on it."""

HUNG: Final = "HUNG"
"""The error of a root of which a tuple kept a bolt for longer than `bolt_timeout`."""


class TupleKey(NamedTuple):
    """Names a tuple that a bolt is called for, in the same way whichever child makes the call.

    Attributes:
        block_number: as in `Call`.
        call_number: as in `Call`.
        row: the number of the tuple among the rows of the call.
        roots: of the tuple, by index; empty where there are none, or too many.
    """

    block_number: int
    call_number: int
    row: int
    roots: frozenset[int]


class Isolated(Exception):
    """Is raised instead of a call that would kill or hang its process;
    `error`: `WORKER_DIED` or `HUNG`.
    """

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class Call(NamedTuple):
    """A call of a bolt.

    Attributes:
        bolt: its name.
        block_number: of the block of rows that the task works on.
        call_number: counts the bolt's calls for that block; of a call for one tuple, those for
            tuples of the same roots alone, so that it stays the same where a bolt that runs again
            emits in another order.
        first_row: the number of the call's first row in the block; 0 where the bolt is called for
            one tuple.
        end_row: the number behind its last row.
        roots: the roots of its only row, by index; empty where there are
            none, or too many. Of a call for several rows those that are
            written down when it is made, the first ones where there are many.
    """

    bolt: str
    block_number: int
    call_number: int
    first_row: int
    end_row: int
    roots: frozenset[int]

    @property
    def key(self) -> TupleKey:
        """What names its only tuple."""
        return TupleKey(self.block_number, self.call_number, self.first_row, self.roots)


class Withheld(NamedTuple):
    """The roots of which a bolt gets no tuple, and what is raised in place of each call for one."""

    roots: frozenset[int]
    error: Isolated


@dataclass(slots=True)
class Orders:
    """What the next child process does differently from one that was never ended.

    Attributes:
        poison: by bolt and key of a poison tuple, what is raised instead of
            its call.
        withheld: by bolt, the roots of which it gets no tuple.
        cuts: by bolt, block number and call number, the rows at which the call is divided
            into several.
    """

    poison: dict[tuple[str, TupleKey], Isolated] = field(default_factory=dict)
    withheld: dict[str, Withheld] = field(default_factory=dict)
    cuts: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def record_end(self, call: Call, error: str, message: str) -> bool:
        """Record the call during which a child ended; return whether its only row is poison now.

        False: it has several rows, and the next child makes a call for each half of them.
        """
        if call.end_row - call.first_row > 1:
            cuts = self.cuts.setdefault((call.bolt, call.block_number, call.call_number), [])
            middle = (call.first_row + call.end_row) // 2
            cuts.insert(bisect_left(cuts, middle), middle)
            return False
        self.poison[call.bolt, call.key] = Isolated(error, message)
        return True

    def error_for(self, call: Call) -> Isolated | None:
        """Return what is raised instead of a call for one tuple; None: the bolt is called."""
        poison_error = self.poison.get((call.bolt, call.key))
        if poison_error is not None or call.bolt not in self.withheld:
            return poison_error
        withheld = self.withheld[call.bolt]
        return withheld.error if withheld.roots & call.roots else None

    def isolates_part_of(self, call: Call) -> bool:
        """Return whether `error_for` may return an error for a row of a call."""
        if call.bolt in self.withheld:
            return True
        for bolt, poison_tuple in self.poison:
            call_of_poison = (bolt, poison_tuple.block_number, poison_tuple.call_number)
            is_in_call = call_of_poison == (call.bolt, call.block_number, call.call_number)
            if is_in_call and call.first_row <= poison_tuple.row < call.end_row:
                return True
        return False

    def forget_poison_of(self, bolt: str) -> None:
        """Forget the poison tuples of a bolt.

        They were named by the calls that a child ended in, and the cause may
        be tuples that the bolt had held since earlier calls.
        """
        for poison_bolt, tuple_key in list(self.poison):
            if poison_bolt == bolt:
                del self.poison[poison_bolt, tuple_key]

    def pieces(self, call: Call, poison_rows: list[int]) -> list[tuple[int, int]]:
        """Return the calls that replace one call, each as its first row and
        the row behind its last.

        `poison_rows` ascend; each of them is a piece of its own.
        """
        cuts = self.cuts.get((call.bolt, call.block_number, call.call_number), [])
        # of rows 0 to 7, cut at 4, of which row 5 is poison: 0, 4, 5, 6 and 8
        bounds = {call.first_row, call.end_row, *cuts}
        for row in poison_rows:
            bounds |= {row, row + 1}
        return list(pairwise(sorted(bounds)))


class PoisonSearch:
    """Finds the roots whose tuples end a process, where the process ends during another call.

    A bolt that collects tuples and works on them together ends the process at
    a later tuple, or in ``cleanup``. So children repeat everything, and from
    each of them the tuples of some roots are *withheld*. The suspects have an
    order. Take the smallest number of them, from the first one on, that must
    be withheld so that the child survives: the last of them is poison. It
    stays withheld, and the search begins anew, until a child survives from
    which only poison was withheld.

    Of the suspects 1 to 8, of which 5 and 7 are poison, the child survives
    without 1 to 7, and not without 1 to 6: 7 is poison. Without 7 and 1 to 5
    it survives, and not without 7 and 1 to 4: so is 5.
    """

    def __init__(self, suspects: Iterable[int]) -> None:
        """Begin with these suspects; a child from which none of them was withheld has died."""
        self.poison: list[int] = []
        self._suspects = sorted(suspects)
        # Counts of suspects, from the first one on: a child died though this
        # many were withheld from it, and one survives if this many are.
        self._died_count_max = 0
        self._survival_count_min = len(self._suspects)
        # this many are withheld from the next child
        self._withheld_count = len(self._suspects)
        self._has_survived = False

    @property
    def withheld(self) -> frozenset[int]:
        """The roots whose tuples the next child does not get."""
        return frozenset([*self._suspects[: self._withheld_count], *self.poison])

    def record_death(self) -> bool:
        """Record that the child died, and choose what is withheld from the
        next one; return whether to start it.

        False: a child dies whatever is withheld, so the search ends.
        """
        is_first_child = not self._has_survived  # all suspects were withheld from it
        is_none_suspect = self._survival_count_min == 0
        if is_first_child or is_none_suspect:
            return False
        self._died_count_max = self._withheld_count
        self._narrow_search()
        return True

    def record_survival(self) -> bool:
        """Record that the child did its work, and choose what is withheld
        from the next one; return whether the search is over.

        True: only poison was withheld from this child, so all is found.
        """
        if self._withheld_count == 0:
            return True
        self._has_survived = True
        self._survival_count_min = self._withheld_count
        self._narrow_search()
        return False

    def _narrow_search(self) -> None:
        """Choose how many suspects are withheld from the next child: half way
        between the two counts.

        Where nothing lies between them, one suspect is poison: move it to
        `poison`, and begin a search among those before it.
        """
        if self._survival_count_min - self._died_count_max > 1:
            self._withheld_count = (self._died_count_max + self._survival_count_min) // 2
            return
        # without 7 suspects it survives, and without 6 it dies: the seventh is poison
        self._suspects = self._suspects[: self._survival_count_min]
        self.poison.append(self._suspects.pop())
        # the first child of the new search gets all six
        self._died_count_max = 0
        self._survival_count_min = len(self._suspects)
        self._withheld_count = 0
