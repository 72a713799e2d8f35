"""Whether a topology that emits nothing any more has settled its roots, by its status; pure.

The planning process writes the status, with the wall time of its machine. Only whether that
time is another one than before counts here, since somebody may set the clock meanwhile.
"""

from __future__ import annotations

from typing import Final

from acker.waits import SteadyMs, steady_ms
from spout.planning_process.status import PlannerStatus

HELD_MS: Final = 2_000
"""Roots that are still pending this long after the last batch of tuples are not late: a keyed
bolt holds their tuples."""

NEW_STATUSES_MIN: Final = 2
"""So many new statuses must be seen. The first one may have been made before the watch began,
and written after that; the second one was made since."""


class SettledWatch:
    """Judges the statuses that are written after a topology has emitted its last tuple."""

    def __init__(self, *, has_keyed_bolt: bool, clock_ms: SteadyMs = steady_ms) -> None:
        """Begin now; `has_keyed_bolt`: the topology has one, which may hold tuples for long."""
        self._has_keyed_bolt = has_keyed_bolt
        self._clock_ms = clock_ms
        self._began_ms = clock_ms()
        self._last_wall_ms: int | None = None  # of the last status; None: there was none yet
        self._new_status_count = 0  # see `NEW_STATUSES_MIN`

    def record_status(self, status: PlannerStatus | None) -> bool:
        """Record the status that is there now; return whether it shows that all roots are settled.

        That is: it was made since this watch began, and shows no pending root, or only those
        of which a keyed bolt holds tuples. None: there is no status, so nothing is known.
        """
        if status is None:
            return False
        # it is new if its time differs from the last one's; the first of all was there before
        is_new = self._last_wall_ms is not None and status.wall != self._last_wall_ms
        self._last_wall_ms = status.wall
        if is_new:
            self._new_status_count += 1
        if self._new_status_count < NEW_STATUSES_MIN:
            return False
        if status.pending == 0:
            return True
        return self._has_keyed_bolt and self._clock_ms() - self._began_ms > HELD_MS
