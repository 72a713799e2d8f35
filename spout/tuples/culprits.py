"""Tuples that kill or hang the process that works on them: how to find them and leave them out; pure.

A child process works on tuples in place of its worker (`spout.isolation.isolation`). When the child ends, the
call that was running names the *culprit*. The next child raises `Isolated` instead of making that call, so
everything else happens as if the bolt itself had failed the tuple. A call of an `ArrowBolt` has many rows,
and does not show which row it was: the next child makes two calls, for one half of the rows each, and so on.

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
    """Is raised instead of a call that would kill or hang its process; `error`: `WORKER_DIED` or `HUNG`."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class Call(NamedTuple):
    """A call of a bolt.

    Attributes:
        bolt: its name.
        feed: number of the block of rows that the task works on.
        number: of the call, among those of the bolt for that block; of a call for one tuple, among those for
            tuples of the same roots, so that it stays the same where bolts do not repeat themselves.
        first: the call's first row; 0 where it has one.
        end: behind its last row.
        roots: the roots of its only row, by index; empty where there are none, or too many. Of a call for
            several rows those that are written down when it is made, the first ones where there are many.
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
    """What the next child does differently.

    Attributes:
        blames: by bolt and key, what is raised instead of a call.
        condemned: by bolt, the roots whose tuples it does not work on, and what is raised instead.
        cuts: by bolt, feed and call, the rows at which the call is divided into several.
    """

    blames: dict[tuple[str, Key], Isolated] = field(default_factory=dict)
    condemned: dict[str, tuple[frozenset[int], Isolated]] = field(default_factory=dict)
    cuts: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def learn(self, call: Call, error: str, message: str) -> bool:
        """Note a call that ended its process; True: its row is the culprit; False: its rows are halved."""
        if call.end - call.first > 1:
            cuts = self.cuts.setdefault((call.bolt, call.feed, call.number), [])
            middle = (call.first + call.end) // 2
            cuts.insert(bisect_left(cuts, middle), middle)
            return False
        self.blames[call.bolt, call.key] = Isolated(error, message)
        return True

    def blame_of(self, call: Call) -> Isolated | None:
        """Return what to raise instead of a call for one tuple, if anything."""
        blame = self.blames.get((call.bolt, call.key))
        if blame is None and call.bolt in self.condemned:
            roots, sentence = self.condemned[call.bolt]
            blame = sentence if roots & call.roots else None
        return blame

    def blames_part_of(self, call: Call) -> bool:
        """Return whether a row of a call is a culprit, or what its bolt holds is searched for one."""
        if call.bolt in self.condemned:
            return True
        return any(
            bolt == call.bolt and (feed, number) == (call.feed, call.number) and call.first <= row < call.end
            for bolt, (feed, number, row, _roots) in self.blames
        )

    def revoke(self, bolt: str) -> None:
        """Forget the culprits that single calls of a bolt named: other tuples may have been the cause."""
        for key in [key for key in self.blames if key[0] == bolt]:
            del self.blames[key]

    def pieces(self, call: Call, blamed: list[int]) -> list[tuple[int, int]]:
        """Return the calls that replace one call, each as its first row and the row behind its last.

        `blamed` are its rows that are culprits, ascending; each is a piece of its own.
        """
        alone = [bound for row in blamed for bound in (row, row + 1)]
        cuts = self.cuts.get((call.bolt, call.feed, call.number), [])
        bounds = sorted({call.first, call.end, *cuts, *alone})
        return list(pairwise(bounds))


class Search:
    """Finds the roots whose tuples end a process, where the process ends during another call.

    A bolt that collects tuples and works on them together ends the process at a later tuple, or in
    ``cleanup``. So children repeat everything, and in each of them some roots are *condemned*: the child does
    not work on their tuples. The suspects have an order. Take the smallest number of them, from the first
    one on, that must be condemned so that the child survives: the last of them is a culprit. It stays
    condemned, and the search begins anew, until a child survives with only the culprits condemned.
    """

    def __init__(self, suspects: Iterable[int]) -> None:
        """Begin with these suspects; a child in which none of them was condemned has died."""
        self.guilty: list[int] = []
        self._left = sorted(suspects)
        self._dies, self._survives = 0, len(self._left)
        self._tried = len(self._left)
        self._is_found = False

    @property
    def condemned(self) -> frozenset[int]:
        """The roots to condemn in the next child."""
        return frozenset([*self._left[: self._tried], *self.guilty])

    def died(self) -> bool:
        """Note that the child died; False: it dies even with all suspects condemned, so end the search."""
        if not self._is_found or not self._survives:
            return False
        self._dies = self._tried
        self._choose()
        return True

    def survived(self) -> bool:
        """Note that the child finished its work; True: only culprits were condemned, the search is over."""
        if not self._tried:
            return True
        self._is_found = True
        self._survives = self._tried
        self._choose()
        return False

    def _choose(self) -> None:
        if self._survives - self._dies > 1:
            self._tried = (self._dies + self._survives) // 2
            return
        self._left = self._left[: self._survives]
        self.guilty.append(self._left.pop())
        self._dies, self._survives, self._tried = 0, len(self._left), 0
