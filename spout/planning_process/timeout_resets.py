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
from spout.group.running_session import RunningSession

RESETS_LANE: Final = "resets"
"""What the name of the lane ends with by which a process resets timeouts."""


class TimeoutResets:
    """Resets timeouts for one process and session, on a lane of its own."""

    def __init__(self, session: RunningSession, announcer: Announcer, lane: str) -> None:
        """`lane` is the name of the process's other lane, from which the name of this one is made."""
        self._session = session
        self._announcer = announcer
        self._lane = f"{lane}/{RESETS_LANE}"
        self._number = 0  # of the last message on the lane

    def reset(self, runs: Iterable[SourceRun]) -> None:
        """Begin the timeouts of those roots of `runs` anew that have no verdict, by the session's
        clock.

        Without such a root nothing is sent. Raises `Unreachable`: no broker has the message in
        time.
        """
        pending_runs: list[SourceRun] = []
        for run in runs:
            for start, end in self._session.window.pending_within(run.source, run.start, run.end):
                pending_runs.append(SourceRun(run.source, start, end))
        pending = RootSet.of_runs(pending_runs)
        if pending:
            self._number += 1
            now = self._session.clock.now
            self._announcer.reset_timeouts(self._session.name, self._lane, self._number, now, pending)
