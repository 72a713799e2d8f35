"""Bins: cohorts that State carries by value, because the log that holds their past would grow too long.

A bin is one record of ``_ack_state``, written again only when one of its cohorts changed. It names every open
root of its cohorts with what the root misses, so nothing else of the log is needed for them.

Source: DESIGN.md, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.cohort import Cohort

BIN_ROOTS: Final = 32_768
"""Open roots of a bin when it is filled: at most 24 bytes each stay below the limit of the wire."""


class Bins:
    """The bins of one acker partition, by number."""

    def __init__(self) -> None:
        """Begin without a bin."""
        self._bins: dict[int, list[Cohort]] = {}

    def put(self, cohort: Cohort) -> None:
        """Carry a cohort by value from now on."""
        number = max(self._bins, default=0)
        roots = sum(other.roots.open for other in self._bins.get(number, ()))
        if not self._bins or roots + cohort.roots.open > BIN_ROOTS:
            number = next(free for free in range(len(self._bins) + 1) if free not in self._bins)
        self.load(number, cohort)

    def load(self, number: int, cohort: Cohort) -> None:
        """Put a cohort into a bin, as State has it."""
        self._bins.setdefault(number, []).append(cohort)
        cohort.bin = number

    def live(self, number: int) -> list[Cohort]:
        """Return the cohorts of a bin that have open roots; an empty bin is gone."""
        live = [cohort for cohort in self._bins.get(number, ()) if cohort.roots.open]
        if live:
            self._bins[number] = live
        else:
            self._bins.pop(number, None)
        return live

    def numbers(self) -> Iterable[int]:
        """Return the numbers of all bins."""
        return sorted(self._bins)
