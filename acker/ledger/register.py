"""The register of cohorts with open roots. It finds them by source and position, session, or deadline.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from acker.identity import I64, WIRE_BLOCK_BITS
from acker.ledger.cohort import NEVER, RootCohort, Session
from acker.wire.events import SourceRun

_PRUNE: Final = 1_024
"""So many deadlines of settled cohorts a session may keep, however few open cohorts it has."""


class _Book:
    __slots__ = ("cohorts", "deadlines")

    def __init__(self) -> None:
        self.cohorts: dict[int, RootCohort] = {}
        self.deadlines: list[tuple[int, int, RootCohort]] = []

    def prune(self) -> None:
        """Remove the deadlines of settled cohorts once they are most of all, so that memory stays bounded."""
        if len(self.deadlines) > 4 * len(self.cohorts) + _PRUNE:
            self.deadlines = [item for item in self.deadlines if item[2].roots.open]
            heapq.heapify(self.deadlines)


class Register:
    """All cohorts of an acker partition that have open roots."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, list[RootCohort]]] = {}
        self._books: dict[Session, _Book] = {}

    def add(self, cohort: RootCohort) -> None:
        blocks = self._blocks.setdefault(cohort.roots.source, {})
        blocks.setdefault(cohort.start >> WIRE_BLOCK_BITS, []).append(cohort)
        self._books.setdefault(cohort.emission.session, _Book()).cohorts[cohort.serial] = cohort
        self.remind(cohort, cohort.deadline_ms)

    def drop(self, cohort: RootCohort) -> None:
        blocks = self._blocks[cohort.roots.source]
        block = cohort.start >> WIRE_BLOCK_BITS
        blocks[block].remove(cohort)
        if not blocks[block]:
            del blocks[block]
        if not blocks:
            del self._blocks[cohort.roots.source]
        book = self._books[cohort.emission.session]
        del book.cohorts[cohort.serial]
        book.prune()
        if not book.cohorts:
            del self._books[cohort.emission.session]

    def live(self) -> list[RootCohort]:
        """Return all cohorts, in the order in which they were emitted."""
        live = [cohort for book in self._books.values() for cohort in book.cohorts.values()]
        return sorted(live, key=lambda cohort: cohort.serial)

    def sessions(self, group: str) -> list[Session]:
        return sorted(session for session in self._books if session.group == group)

    def of(self, session: Session) -> list[RootCohort]:
        book = self._books.get(session)
        return list(book.cohorts.values()) if book else []

    def within(self, session: Session, source: int, start: int, end: int) -> Iterable[RootCohort]:
        """Return the cohorts of a session that overlap [start, end), which lies in one wire block."""
        found = self._blocks.get(source, {}).get(start >> WIRE_BLOCK_BITS)
        if not found or start >= end:
            return ()
        if len(found) == 1:
            only = found[0]
            hit = only.emission.session == session and only.start < end and only.end > start
            return (only,) if hit else ()
        first = max(0, bisect_right(found, start, key=lambda cohort: cohort.start) - 1)
        last = bisect_right(found, end - 1, key=lambda cohort: cohort.start)
        return [c for c in found[first:last] if c.end > start and c.emission.session == session]

    def around(self, session: Session, source: int, named: I64) -> Iterable[RootCohort]:
        """Return the cohorts of a session around ascending positions, first to last, of one wire block."""
        return self.within(session, source, int(named[0]), int(named[-1]) + 1) if len(named) else ()

    def spanning(self, run: SourceRun) -> Iterator[RootCohort]:
        """Return the cohorts of any session that overlap a run of any length."""
        blocks = self._blocks.get(run.source, {})
        first, last = run.start >> WIRE_BLOCK_BITS, (run.end - 1) >> WIRE_BLOCK_BITS
        candidates: Iterable[int] = range(first, last + 1)
        if last - first >= len(blocks):
            candidates = [block for block in blocks if first <= block <= last]
        for block in candidates:
            for cohort in list(blocks.get(block, ())):
                if cohort.start < run.end and cohort.end > run.start:
                    yield cohort

    def remind(self, cohort: RootCohort, deadline_ms: int) -> None:
        """Let `due` return a cohort when the clock of its session reaches `deadline_ms`."""
        if deadline_ms != NEVER:
            book = self._books[cohort.emission.session]
            heapq.heappush(book.deadlines, (deadline_ms, cohort.serial, cohort))

    def due(self, session: Session, clock_ms: int) -> Iterator[RootCohort]:
        """Return the cohorts with open roots whose deadline the clock has reached, each once per `remind`."""
        book = self._books.get(session)
        while book and book.deadlines and book.deadlines[0][0] <= clock_ms:
            cohort = heapq.heappop(book.deadlines)[2]
            if cohort.roots.open:
                yield cohort


def block_runs(source: int, named: I64) -> Iterator[SourceRun]:
    """Yield for each wire block the run from the first to the last of the given ascending positions in it."""
    breaks = np.flatnonzero(np.diff(named >> WIRE_BLOCK_BITS)) + 1
    for part in np.split(named, breaks):
        if len(part):
            yield SourceRun(source, int(part[0]), int(part[-1]) + 1)
