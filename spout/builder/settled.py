"""Whether a topology that emits nothing any more has settled its roots, by its status; pure.

The planning process writes the status, with the wall time of its machine. Only whether that
time is another one than before counts here, since somebody may set the clock meanwhile.
"""

from __future__ import annotations

from typing import Final

from acker.waits import SteadyMs, steady_ms
from spout.planning_process.status import PlannerStatus

HELD_MS: Final = 2_000
"""Roots that are pending this long after the last batch of tuples are not late: a keyed bolt
holds them."""

NEWER_MIN: Final = 2
"""The second status that is new was made since: the first one may have been made, and not
written, before."""


class SettledWatch:
    """Judges the statuses that are written after a topology has emitted its last tuple."""

    def __init__(self, *, holds: bool, clock_ms: SteadyMs = steady_ms) -> None:
        """Begin now; `holds`: the topology has a keyed bolt, which may keep roots open for long."""
        self._holds = holds
        self._clock_ms = clock_ms
        self._began_ms = clock_ms()
        self._last_wall_ms: int | None = None  # of the last status; None: there was none yet
        self._new_statuses = 0  # how many were made since this watch began, or just before

    def record_status(self, status: PlannerStatus | None) -> bool:
        """Record a status, None: there is none; return whether it shows that all roots are settled.

        That is: it was made since this watch began, and shows no pending root, or only those
        that a keyed bolt holds.
        """
        if status is None:
            return False
        if self._last_wall_ms is not None and status.wall != self._last_wall_ms:
            self._new_statuses += 1
        self._last_wall_ms = status.wall
        if self._new_statuses < NEWER_MIN:
            return False
        if not status.pending:
            return True
        return self._holds and self._clock_ms() - self._began_ms > HELD_MS
