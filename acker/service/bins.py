"""Bins: cohorts that State carries by value, so that a restart need not read too much of the logs.

A bin is one record of ``_ack_state``. It contains every open root of its cohorts with what the root misses,
so a restart needs nothing else from the logs for them. A bin is written again when one of its cohorts
changes. It is also written again at times without a change, so that a restart, which reads the log from its
end backwards, finds it soon.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.ledger.cohort import RootCohort

BIN_ROOTS: Final = 32_768
"""Most open roots in a bin when it is filled: with at most 24 bytes each it stays below the wire's limit."""


REWRITE_STEPS: Final = 1_000
"""A bin that did not change is written again after so many steps, at most one such bin in a step.

For a full bin this costs less than a kilobyte a step. A restart that had to read an hour of steps backwards
would take a second longer.
"""


class Bins:
    """The bins of one acker partition, by number."""

    def __init__(self) -> None:
        self._bins: dict[int, list[RootCohort]] = {}
        self._written: dict[int, int] = {}  # the step in which each was last written; the oldest comes first
        self._steps = 0
        self._filling = 0
        self._room = 0

    def put(self, cohort: RootCohort) -> None:
        if cohort.roots.open > self._room:
            self._find_room(cohort.roots.open)
        self._room -= cohort.roots.open
        self.load(self._filling, cohort)

    def load(self, number: int, cohort: RootCohort) -> None:
        self._bins.setdefault(number, []).append(cohort)
        self._written.setdefault(number, self._steps - REWRITE_STEPS)
        self._filling = number
        cohort.bin = number

    def live(self, number: int) -> list[RootCohort]:
        """Return the cohorts of a bin that have open roots; remove the bin if there are none."""
        live = [cohort for cohort in self._bins.get(number, ()) if cohort.roots.open]
        if live:
            self._bins[number] = live
        else:
            self._bins.pop(number, None)
            self._written.pop(number, None)
        return live

    def due(self, changed: set[int]) -> set[int]:
        """Return the bins that a step writes: those that changed, and one that was not written for long."""
        self._steps += 1
        oldest = next(iter(self._written), None)
        due = set(changed)
        if oldest is not None and self._steps - self._written[oldest] > REWRITE_STEPS:
            due.add(oldest)
        for number in due & self._written.keys():
            del self._written[number]
            self._written[number] = self._steps
        return due

    def _find_room(self, needed: int) -> None:
        """Go on filling the last bin if enough of its roots have settled, else begin a new one.

        The roots of a bin are counted only here, since counting them for every cohort would cost too much.
        """
        self._room = BIN_ROOTS - sum(cohort.roots.open for cohort in self.live(self._filling))
        if needed > self._room:
            self._filling = next(free for free in range(len(self._bins) + 1) if free not in self._bins)
            self._room = BIN_ROOTS

    def numbers(self) -> Iterable[int]:
        return sorted(self._bins)
