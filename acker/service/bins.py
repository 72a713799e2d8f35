"""Bins: cohorts that State carries by value, so that a restart need not read too much of the logs.

A *cohort* is the roots of one init in one block of positions. A bin is one record of
``_ack_state``. It contains every open root of its cohorts with what the root misses, so a restart
needs nothing else from the logs for them. A bin is written again when one of its cohorts changes.
It is also written again at times without a change, so that a restart, which reads
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
    """The bins of one acker partition, by their numbers."""

    def __init__(self) -> None:
        self._cohorts_by_bin: dict[int, list[RootCohort]] = {}
        # by bin: the number of the step in which it was last written; the one
        # that was written longest ago comes first
        self._written_step_by_bin: dict[int, int] = {}
        self._step_count = 0  # how many steps were begun
        self._filling_bin = 0  # the number of the bin that gets further cohorts
        self._filling_bin_room = 0  # for how many more open roots that bin has room

    def add(self, cohort: RootCohort) -> None:
        """Put a cohort into the bin that is being filled, or into another one if that has no room.

        A bin is a record of State with the XOR values of some cohorts' open roots.
        """
        if cohort.roots.open_count > self._filling_bin_room:
            self._choose_filling_bin(cohort.roots.open_count)
        self._filling_bin_room -= cohort.roots.open_count
        self.load(self._filling_bin, cohort)

    def load(self, bin_number: int, cohort: RootCohort) -> None:
        """Put a cohort into a bin of State, even beyond its room; `add` goes on to fill it."""
        self._cohorts_by_bin.setdefault(bin_number, []).append(cohort)
        # A new bin counts as one that was written `REWRITE_STEPS` steps ago,
        # so that a step soon writes it.
        self._written_step_by_bin.setdefault(bin_number, self._step_count - REWRITE_STEPS)
        self._filling_bin = bin_number
        cohort.bin_number = bin_number

    def remove_settled(self, bin_number: int) -> list[RootCohort]:
        """Remove from a bin of State the cohorts without open roots; return those that are left.

        If none is left, the bin is removed, and the list is empty.
        """
        cohorts = self._cohorts_by_bin.get(bin_number, ())
        open_cohorts = [cohort for cohort in cohorts if cohort.roots.open_count]
        if open_cohorts:
            self._cohorts_by_bin[bin_number] = open_cohorts
        else:
            self._cohorts_by_bin.pop(bin_number, None)
            self._written_step_by_bin.pop(bin_number, None)
        return open_cohorts

    def take_due_bins(self, changed_bins: set[int]) -> set[int]:
        """Begin a step; return the numbers of the bins that it writes, and record them as written.

        They are the changed bins, and the bin that was written longest ago, if
        that was more than `REWRITE_STEPS` steps ago. A changed bin may have no
        open root any more; it may even be removed already. Its number is returned
        all the same, since the caller has to remove its record of State.
        """
        self._step_count += 1
        due_bins = set(changed_bins)
        oldest_bin = next(iter(self._written_step_by_bin), None)  # None: there is no bin
        if oldest_bin is not None:
            steps_since_written = self._step_count - self._written_step_by_bin[oldest_bin]
            if steps_since_written > REWRITE_STEPS:
                due_bins.add(oldest_bin)
        # only bins that still exist: `remove_settled` may have removed a changed one
        for bin_number in due_bins & self._written_step_by_bin.keys():
            # removed and set again: so it becomes the last one in the order of the dict
            del self._written_step_by_bin[bin_number]
            self._written_step_by_bin[bin_number] = self._step_count
        return due_bins

    def _choose_filling_bin(self, needed_roots: int) -> None:
        """Choose the bin of State that gets the next cohorts.

        It has room for `needed_roots` open roots. It stays the present one if
        enough of its roots have settled, else it is a new one. The roots of a bin
        are counted only here, since counting them for every cohort would cost too
        much.
        """
        open_cohorts = self.remove_settled(self._filling_bin)
        self._filling_bin_room = BIN_ROOTS - sum(cohort.roots.open_count for cohort in open_cohorts)
        if needed_roots > self._filling_bin_room:
            # n bins have n numbers, so one of the numbers 0 to n is free
            numbers = range(len(self._cohorts_by_bin) + 1)
            free_numbers = (number for number in numbers if number not in self._cohorts_by_bin)
            self._filling_bin = next(free_numbers)
            self._filling_bin_room = BIN_ROOTS

    def numbers(self) -> Iterable[int]:
        """Return the numbers of the bins, ascending."""
        return sorted(self._cohorts_by_bin)
