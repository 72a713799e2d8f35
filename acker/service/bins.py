"""Bins: cohorts that State carries by value, so that a restart need not read too much of the logs.

A bin is one record of ``_ack_state``. It contains every open root of its
cohorts with what the root misses, so a restart needs nothing else from the
logs for them. A bin is written again when one of its cohorts changes. It is
also written again at times without a change, so that a restart, which reads
the log from its end backwards, finds it soon.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.ledger.cohort import RootCohort

BIN_ROOTS: Final = 32_768
"""Most open roots in a bin when it is filled. Each takes at most 24 bytes, so
that a full bin stays below the wire's limit of a record."""


REWRITE_STEPS: Final = 1_000
"""A bin that did not change is written again after so many steps, at most one such bin in a step.

For a full bin this costs less than a kilobyte a step. A restart that had to
read an hour of steps backwards would take a second longer.
"""


class Bins:
    """The bins of one acker partition, by number."""

    def __init__(self) -> None:
        self._bins: dict[int, list[RootCohort]] = {}
        # by bin, the step in which it was last written; the one that was
        # written longest ago comes first
        self._written_steps: dict[int, int] = {}
        # how many steps have written bins
        self._steps = 0
        self._filling = 0  # the number of the bin that cohorts are put into
        self._room = 0  # for so many more roots

    def put(self, cohort: RootCohort) -> None:
        """Put a cohort into the bin that is being filled, or into a new one if it has no room."""
        if cohort.roots.open > self._room:
            self._find_room(cohort.roots.open)
        self._room -= cohort.roots.open
        self.load(self._filling, cohort)

    def load(self, number: int, cohort: RootCohort) -> None:
        """Put a cohort into a bin, whether there is room or not, and go on filling that one."""
        self._bins.setdefault(number, []).append(cohort)
        # a new bin counts as one that is to be written again at the next step
        self._written_steps.setdefault(number, self._steps - REWRITE_STEPS)
        self._filling = number
        cohort.bin = number

    def live(self, number: int) -> list[RootCohort]:
        """Remove from a bin the cohorts without open roots, and return the others.

        A bin of which none are left is removed; then the list is empty.
        """
        live = [cohort for cohort in self._bins.get(number, ()) if cohort.roots.open]
        if live:
            self._bins[number] = live
        else:
            self._bins.pop(number, None)
            self._written_steps.pop(number, None)
        return live

    def due(self, changed: set[int]) -> set[int]:
        """Begin a step; return the bins that it writes, which count as written from now on.

        These are the `changed` ones, and the one that was written longest
        ago, if `REWRITE_STEPS` are over.
        """
        self._steps += 1
        due = set(changed)
        oldest = next(iter(self._written_steps), None)
        if oldest is not None and self._steps - self._written_steps[oldest] > REWRITE_STEPS:
            due.add(oldest)
        for number in due & self._written_steps.keys():
            # removed first: so it becomes the last one in the order of the dict
            del self._written_steps[number]
            self._written_steps[number] = self._steps
        return due

    def _find_room(self, needed: int) -> None:
        """Go on filling the last bin if enough of its roots have settled, else begin a new one.

        `needed` is a number of roots. The roots of a bin are counted only
        here, since counting them for every cohort would cost too much.
        """
        self._room = BIN_ROOTS - sum(cohort.roots.open for cohort in self.live(self._filling))
        if needed > self._room:
            # of n bins one of the numbers 0 to n is free
            self._filling = next(free for free in range(len(self._bins) + 1) if free not in self._bins)
            self._room = BIN_ROOTS

    def numbers(self) -> Iterable[int]:
        """Return the numbers of the bins, ascending."""
        return sorted(self._bins)
