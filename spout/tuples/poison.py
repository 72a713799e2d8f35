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

Key = tuple[int, int, int, frozenset[int]]
"""Names a tuple in one bolt: feed, number, row, roots."""


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
        feed: number of the block of rows that the task works on.
        number: of the call, among those of the bolt for that block; of a call
            for one tuple, among those for tuples of the same roots, so that
            it stays the same where bolts do not repeat themselves.
        first: the call's first row; 0 where it has one.
        end: behind its last row.
        roots: the roots of its only row, by index; empty where there are
            none, or too many. Of a call for several rows those that are
            written down when it is made, the first ones where there are many.
    """

    bolt: str
    feed: int
    number: int
    first: int
    end: int
    roots: frozenset[int]

    @property
    def key(self) -> Key:
        """What names its only tuple."""
        return self.feed, self.number, self.first, self.roots


@dataclass(slots=True)
class Orders:
    """What the next child process does differently from one that was never ended.

    Attributes:
        poison: by bolt and key of a poison tuple, what is raised instead of
            its call.
        withheld: by bolt, the roots of which it gets no tuple, and what is
            raised instead.
        cuts: by bolt, feed and call, the rows at which the call is divided
            into several.
    """

    poison: dict[tuple[str, Key], Isolated] = field(default_factory=dict)
    withheld: dict[str, tuple[frozenset[int], Isolated]] = field(default_factory=dict)
    cuts: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def record_end(self, call: Call, error: str, message: str) -> bool:
        """Record the call at which a child ended; return whether its row is
        poison, else halve its rows.
        """
        if call.end - call.first > 1:
            cuts = self.cuts.setdefault((call.bolt, call.feed, call.number), [])
            middle = (call.first + call.end) // 2
            cuts.insert(bisect_left(cuts, middle), middle)
            return False
        self.poison[call.bolt, call.key] = Isolated(error, message)
        return True

    def raised_for(self, call: Call) -> Isolated | None:
        """Return what is raised instead of a call for one tuple; None: the bolt is called."""
        raised = self.poison.get((call.bolt, call.key))
        if raised is not None or call.bolt not in self.withheld:
            return raised
        withheld_roots, raised_for_withheld = self.withheld[call.bolt]
        return raised_for_withheld if withheld_roots & call.roots else None

    def isolates_part_of(self, call: Call) -> bool:
        """Return whether `raised_for` may return an error for a row of a call."""
        if call.bolt in self.withheld:
            return True
        for bolt, (feed, number, row, _roots) in self.poison:
            is_in_call = (bolt, feed, number) == (call.bolt, call.feed, call.number)
            if is_in_call and call.first <= row < call.end:
                return True
        return False

    def forget_poison_of(self, bolt: str) -> None:
        """Forget what single calls of a bolt named: tuples that it held may
        have been the cause.
        """
        keys_of_bolt = [key for key in self.poison if key[0] == bolt]
        for key in keys_of_bolt:
            del self.poison[key]

    def pieces(self, call: Call, poison_rows: list[int]) -> list[tuple[int, int]]:
        """Return the calls that replace one call, each as its first row and
        the row behind its last.

        `poison_rows` ascend; each of them is a piece of its own.
        """
        cuts = self.cuts.get((call.bolt, call.feed, call.number), [])
        # of rows 0 to 7, cut at 4, of which row 5 is poison: 0, 4, 5, 6 and 8
        bounds = {call.first, call.end, *cuts}
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
        # how many suspects were withheld when a child died, at most, and when
        # one survived, at least
        self._dies_without = 0
        self._survives_without = len(self._suspects)
        # how many are withheld from the next child
        self._tried = len(self._suspects)
        self._has_survived = False

    @property
    def withheld(self) -> frozenset[int]:
        """The roots whose tuples the next child does not get."""
        return frozenset([*self._suspects[: self._tried], *self.poison])

    def record_death(self) -> bool:
        """Record that the child died; choose what the next one does not get.

        Returns False if a child dies whatever is withheld: then end the
        search.
        """
        if not self._has_survived or not self._survives_without:
            return False
        self._dies_without = self._tried
        self._choose()
        return True

    def record_survival(self) -> bool:
        """Record that the child did its work; choose what the next one does not get.

        Returns True if only poison was withheld: the search is over.
        """
        if not self._tried:
            return True
        self._has_survived = True
        self._survives_without = self._tried
        self._choose()
        return False

    def _choose(self) -> None:
        """Choose how many suspects are withheld from the next child, by
        halves; record poison found so.
        """
        if self._survives_without - self._dies_without > 1:
            self._tried = (self._dies_without + self._survives_without) // 2
            return
        # without 7 suspects it survives, and without 6 it dies: the seventh
        # is poison, and begins a search among those before it, whose first
        # child gets them all
        self._suspects = self._suspects[: self._survives_without]
        self.poison.append(self._suspects.pop())
        self._dies_without = 0
        self._survives_without = len(self._suspects)
        self._tried = 0
