"""What clients confirmed and failed, and positions without a record, until they are published; pure.

Each settlement goes into the next publication, which has a number; when that publication is durable, so is
everything that was settled before it was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from acker.identity import I64
from acker.wire.events import PositionRun, SourceRun, runs_of
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome
from spout.standalone.item_records import ItemRecords
from spout.tuples.collector import Cause

_NONE: I64 = np.empty(0, np.int64)


class NextPublication:
    """Settlements that wait to be published; `number` is that of the publication, 1 for the first.

    Append to `confirmed` an item that is confirmed alone.
    """

    def __init__(self) -> None:
        self.number = 1
        self.confirmed: list[int] = []
        self._runs: list[PositionRun] = []
        self._failed: dict[Cause, list[PositionRun]] = {}
        self._absent: list[SourceRun] = []

    def __bool__(self) -> bool:
        return bool(self.confirmed or self._runs or self._failed or self._absent)

    def confirm(self, runs: Iterable[PositionRun]) -> None:
        """Add items that were confirmed together."""
        self._runs += runs

    def fail(self, runs: Iterable[PositionRun], cause: Cause) -> None:
        """Add items that failed."""
        self._failed.setdefault(cause, []).extend(runs)

    def absent(self, runs: Iterable[SourceRun]) -> None:
        """Add positions that were planned and have no record."""
        self._absent += runs

    def take(self, records: ItemRecords, around: BatchPlan) -> BatchOutcome:
        """Take out everything, drop its `records`, and begin the next publication.

        `around` has group, session and clock; the plan of the outcome has exactly the settled positions.
        """
        singles = np.array(self.confirmed, np.int64)
        singles.sort()
        runs = [*self._runs, *runs_of(singles)]
        confirmed = records.positions(runs)
        failed = {cause: records.positions(found) for cause, found in sorted(self._failed.items())}
        for found in (runs, *self._failed.values()):
            records.let_go(found)
        ranges = _ranges([confirmed, *failed.values()], self._absent)
        plan = replace(around, ranges=ranges)
        index = plan.index()
        causes = tuple(
            (cause, np.sort(np.concatenate([index.of(source, at) for source, at in sorted(by.items())])))
            for cause, by in failed.items()
            if by
        )
        outcome = BatchOutcome(plan, causes, tuple(sorted(self._absent)))
        self.confirmed, self._runs, self._failed, self._absent = [], [], {}, []
        self.number += 1
        return outcome


def _ranges(parts: Iterable[dict[int, I64]], absent: Sequence[SourceRun]) -> tuple[SourceRun, ...]:
    """Return all positions as ranges, ascending by source and start."""
    found: dict[int, list[I64]] = {}
    for part in parts:
        for source, positions in part.items():
            found.setdefault(source, []).append(positions)
    for source, start, end in absent:
        found.setdefault(source, []).append(np.arange(start, end, dtype=np.int64))
    return tuple(
        SourceRun(source, start, end)
        for source, pieces in sorted(found.items())
        for start, end in runs_of(np.sort(np.concatenate([_NONE, *pieces])))
    )
