"""Bins: cohorts that State carries by value, because the log that holds their past would grow too long.

A bin is one record of ``_ack_state``, written again when one of its cohorts changed, and now and then so that
a restart, which looks for it from the end of the log, need not go far back. It names every open root of its
cohorts with what the root misses, so nothing else of the log is needed for them.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.ledger.cohort import Cohort

BIN_ROOTS: Final = 32_768
"""Open roots of a bin when it is filled: at most 24 bytes each stay below the limit of the wire."""


REWRITE_STEPS: Final = 1_000
"""A bin that did not change is written again after so many steps, one bin in a step: less than a kilobyte a
step for a full one, while a restart that walks back through an hour of steps would take a second."""


class Bins:
    """The bins of one acker partition, by number."""

    def __init__(self) -> None:
        """Begin without a bin."""
        self._bins: dict[int, list[Cohort]] = {}
        self._written: dict[int, int] = {}  # the step in which each was written last, longest ago first
        self._steps = 0
        self._filling = 0
        self._room = 0

    def put(self, cohort: Cohort) -> None:
        """Carry a cohort by value from now on."""
        if cohort.roots.open > self._room:
            self._find_room(cohort.roots.open)
        self._room -= cohort.roots.open
        self.load(self._filling, cohort)

    def load(self, number: int, cohort: Cohort) -> None:
        """Put a cohort into a bin, as State has it."""
        self._bins.setdefault(number, []).append(cohort)
        self._written.setdefault(number, self._steps - REWRITE_STEPS)
        self._filling = number
        cohort.bin = number

    def live(self, number: int) -> list[Cohort]:
        """Return the cohorts of a bin that have open roots; an empty bin is gone."""
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
        """Go on filling the bin, if enough of it has settled meanwhile, or begin a new one.

        The roots of a bin are counted only here: counting at every cohort would cost more with each.
        """
        self._room = BIN_ROOTS - sum(cohort.roots.open for cohort in self.live(self._filling))
        if needed > self._room:
            self._filling = next(free for free in range(len(self._bins) + 1) if free not in self._bins)
            self._room = BIN_ROOTS

    def numbers(self) -> Iterable[int]:
        """Return the numbers of all bins."""
        return sorted(self._bins)
