"""A cohort: roots that were emitted together and expire together.

Storm's RotatingMap groups roots by the tick in which they came. Here a cohort is an emitted range
with its own, exact deadline. Ranges are cut at wire blocks, so that one record of contributions
concerns one piece.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from acker.hot_paths import Indices, among, as_array, distinct
from acker.identity import I64
from acker.ledger.roots import Roots

NEVER: Final = (1 << 63) - 1
"""The deadline of a root that does not expire."""


class Session(NamedTuple):
    """A session of a group. The sessions of one group are ordered by (epoch, id)."""

    group: str
    epoch: int
    id: str


@dataclass(frozen=True, slots=True)
class InitEmission:
    """What all roots of one `Init` share. Times are ms of the session's clock, except `wall_ms`."""

    session: Session
    topic: str
    topic_id: str
    at_ms: int
    wall_ms: int
    timeout_ms: int

    def deadline_ms(self, since_ms: int) -> int:
        """Return when a root expires that was emitted or touched at `since_ms`.

        Without a timeout it is `NEVER`.
        """
        return since_ms + self.timeout_ms if self.timeout_ms > 0 else NEVER


class Pin(NamedTuple):
    """A place in a log that a restart must still be able to read.

    `bytes` is the size of the records that this process has read or written there before it; only
    differences between two pins of a log mean anything.
    """

    offset: int
    bytes: int


class RootCohort:
    """An emitted range with open roots: its deadline, and which records a restart needs for it.

    Attributes:
        serial: a number that rises with every cohort of a ledger: the order of emission.
        deadline_ms: when its open roots expire; some of them may have a later deadline of their
            own.
        ack_from: contributions below this offset of ``_ack_ack`` do not count; they were read
            before.
        ack_pin: place of the first contribution to a root that may still be open; None: there was
            none.
        verdict_pin: place of the first verdict of one of the roots, or a place before it; None:
            none has one.
        bin_number: of the bin, a record of State, that has the cohort with its values; None: none
            has it.
    """

    __slots__ = (
        "_later_deadlines_ms",
        "_later_indices",
        "ack_from",
        "ack_pin",
        "bin_number",
        "deadline_ms",
        "emission",
        "end",
        "roots",
        "serial",
        "start",
        "verdict_pin",
    )

    def __init__(self, roots: Roots, emission: InitEmission, ack_from: int, serial: int) -> None:
        """Begin with the deadline that the emission gives all of the roots."""
        self.roots = roots
        self.start = roots.start
        self.end = roots.start + roots.size
        self.emission = emission
        self.ack_from = ack_from
        self.serial = serial
        self.deadline_ms = emission.deadline_ms(emission.at_ms)
        self.ack_pin: Pin | None = None
        self.verdict_pin: Pin | None = None
        self.bin_number: int | None = None
        # roots with a deadline of their own, after `deadline_ms`: their indices, ascending,
        # and these deadlines. Settled ones stay among them until others are added.
        self._later_indices = np.zeros(0, np.int64)
        self._later_deadlines_ms = np.zeros(0, np.int64)

    def settle_between(self, start: int, end: int) -> Indices:
        """Settle and return the open roots (indices) of the cohort at the positions [start, end).

        These may begin before the cohort, and end behind it; it has at least one of them.
        """
        first_own, end_own = max(start, self.start), min(end, self.end)
        return self.roots.settle_run(first_own - self.start, end_own - self.start)

    def touch(self, indices: I64, touched_at_ms: int) -> bool:
        """Move the deadlines of the open roots at `indices` to one timeout after `touched_at_ms`.

        That is a time of the session's clock. No deadline moves back. Returns whether one moved.
        """
        deadline_ms = self.emission.deadline_ms(touched_at_ms)
        # without a timeout there is no deadline, and no root has one before `self.deadline_ms`
        if deadline_ms == NEVER or deadline_ms <= self.deadline_ms:
            return False
        touched_indices = indices[self.roots.is_open(indices)]
        if not len(touched_indices):
            return False
        former_indices, former_deadlines_ms = self._open_with_later_deadline()
        # 1. all open roots are touched: then the deadline of all moves
        if len(touched_indices) == self.roots.open_count:
            # What a batch leaves open Spark's state mostly holds, all of it: so no root needs a
            # deadline of its own, which would be 16 bytes for each of them.
            is_later = former_deadlines_ms > deadline_ms
            self.deadline_ms = deadline_ms
            self._later_indices = former_indices[is_later]
            self._later_deadlines_ms = former_deadlines_ms[is_later]
            return True
        # 2. some are: they get a deadline of their own. Both lists are merged, ascending, so that
        # `searchsorted` finds the rows; of each root the later deadline stays
        self._later_indices = distinct(np.concatenate([former_indices, touched_indices]))
        self._later_deadlines_ms = np.full(len(self._later_indices), self.deadline_ms, np.int64)
        former_rows = np.searchsorted(self._later_indices, former_indices)
        self._later_deadlines_ms[former_rows] = former_deadlines_ms
        touched_rows = np.searchsorted(self._later_indices, touched_indices)
        deadlines_before_ms = self._later_deadlines_ms[touched_rows]
        self._later_deadlines_ms[touched_rows] = np.maximum(deadlines_before_ms, deadline_ms)
        return True

    def expire(self, clock_ms: int) -> Indices:
        """Settle and return the open roots (indices) whose deadline the session's clock has
        reached.
        """
        # `deadline_ms` is that of all roots, except those with a later one of their own
        if clock_ms < self.deadline_ms:
            return range(0)
        indices_not_due = self._later_indices[self._later_deadlines_ms > clock_ms]
        if not len(indices_not_due):
            return self.roots.settle_all()
        open_indices = as_array(self.roots.open_at())
        return self.roots.settle(open_indices[~among(open_indices, indices_not_due)])

    def next_deadline_ms(self, clock_ms: int) -> int:
        """Return the next deadline of an open root, after `expire` at the same time of the
        session's clock.

        It is `NEVER` if there is none.
        """
        if clock_ms < self.deadline_ms:
            return self.deadline_ms
        # `expire` has settled the roots with the common deadline: those with a later one are left
        later_indices, later_ms = self._open_with_later_deadline()
        return int(later_ms.min()) if len(later_indices) else NEVER

    def first_deadline_ms(self) -> int:
        """Return the first deadline of an open root; `NEVER` without a timeout."""
        later_indices, later_ms = self._open_with_later_deadline()
        have_all_their_own = len(later_indices) > 0 and len(later_indices) == self.roots.open_count
        return int(later_ms.min()) if have_all_their_own else self.deadline_ms

    @property
    def is_moved(self) -> bool:
        """Whether the deadline of all open roots was moved, so that Spark's state holds them."""
        unmoved_ms = self.emission.deadline_ms(self.emission.at_ms)
        # no array is looked at where none has anything: each State asks it of all ranges
        if self.deadline_ms > unmoved_ms:
            return True
        return len(self._later_indices) > 0 and self.first_deadline_ms() > unmoved_ms

    def touched(self) -> tuple[I64, I64]:
        """Return the open roots whose deadline was moved (indices), and their deadlines in ms."""
        later_indices, later_ms = self._open_with_later_deadline()
        # 1. the common deadline is still that of the emission: only these were moved
        if self.deadline_ms == self.emission.deadline_ms(self.emission.at_ms):
            return later_indices, later_ms
        # 2. the common deadline was moved, so that of all open roots was
        open_indices = as_array(self.roots.open_at())
        deadlines_ms = np.full(len(open_indices), self.deadline_ms, np.int64)
        deadlines_ms[np.searchsorted(open_indices, later_indices)] = later_ms
        return open_indices, deadlines_ms

    def load_touched(self, indices: I64, deadlines_ms: I64) -> None:
        """Set, from State, the moved deadlines of the open roots at `indices`.

        They are in ms of the session's clock. `touched` returned both arrays when State was
        written.
        """
        # if all open roots have such a deadline, the earliest is the deadline of the cohort, as
        # in `touch`
        if len(indices) and len(indices) == self.roots.open_count:
            self.deadline_ms = int(deadlines_ms.min())
            is_later = deadlines_ms > self.deadline_ms
            indices, deadlines_ms = indices[is_later], deadlines_ms[is_later]
        # copies: the arrays are views of a record, and would keep all of it in memory
        self._later_indices, self._later_deadlines_ms = indices.copy(), deadlines_ms.copy()

    def _open_with_later_deadline(self) -> tuple[I64, I64]:
        """Return the open roots that expire after `deadline_ms` (indices), and their deadlines in ms."""
        is_open = self.roots.is_open(self._later_indices)
        return self._later_indices[is_open], self._later_deadlines_ms[is_open]
