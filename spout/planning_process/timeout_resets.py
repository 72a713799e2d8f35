"""Lets timeouts of pending roots begin anew, since somebody works on them for longer.

A *lane* is a numbered sequence of messages to the ackers, which apply each number once.

Source: docs/design/protocol.md, section 5.2 ("Acks that wait").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.root_sets.root_set import RootSet
from acker.wire.events import SourceRun
from spout.group.announce import Announcer
from spout.group.tenure import Tenure

RESETS_LANE: Final = "resets"
"""What the name of the lane ends with by which a process resets timeouts."""


class TimeoutResets:
    """The lane of one process and session by which it resets timeouts."""

    def __init__(self, tenure: Tenure, announcer: Announcer, lane: str) -> None:
        """`lane` is the name of the process's other lane, from which the name of this one is made."""
        self._tenure = tenure
        self._announcer = announcer
        self._lane = f"{lane}/{RESETS_LANE}"
        self._number = 0  # of the last message on the lane

    def reset(self, runs: Iterable[SourceRun]) -> None:
        """Begin the timeouts of roots without a verdict anew, by the session's clock.

        Raises `Unreachable`: the broker does not have it in time.
        """
        pending_within = self._tenure.window.pending_within
        pending = RootSet.of_runs((run.source, *part) for run in runs for part in pending_within(*run))
        if pending:
            self._number += 1
            now = self._tenure.clock.now
            self._announcer.reset_timeouts(self._tenure.name, self._lane, self._number, now, pending)
