"""How the planning process learns that the sink has published a batch: one small file for each session.

A tracked stream that is written past `spout.sink` is never acked: all of its roots would time out and come
again until they are dead letters, and no error would say why. Only the planning process knows which batches
there are, and only the driver knows what its sink has published. Both run on one machine, so the sink leaves
the mark of each batch that it has published in a folder of the application, and the planning process looks
for it when Spark asks for the batch behind. Spark does so when the sink has returned, so the mark is there
unless nobody made it. A batch without positions leaves nothing to publish and is not looked for; nor is one
that an earlier process has planned, such as the one that a restart runs again.

Source: DESIGN.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acker.errors import TrackingError
from acker.events import SourceRun
from spout.journal import Journal
from spout.plan import BatchPlan

LATE_MS = 5_000
"""A batch counts as published past the sink when its mark is not there after this long: a sink that was
called from a thread of its own, and not waited for, may still be at it."""


def note(folder: Path, plan: BatchPlan) -> None:
    """Leave the mark of a batch that was published.

    Raises:
        TrackingError: the file cannot be written.
    """
    if not plan.ranges:
        return
    path = folder / plan.session
    try:
        folder.mkdir(parents=True, exist_ok=True)  # what cleans up old temporary files may have taken it
        new = path.with_suffix(".new")
        new.write_text(_mark(plan.ranges), encoding="ascii")
        os.replace(new, path)
    except OSError as error:
        raise TrackingError(
            f"{path} cannot be written ({error.strerror}), so the planner of group {plan.group} cannot know"
            " that its batch was published; make room there, then start the query again"
        ) from error


def _mark(ranges: Sequence[SourceRun]) -> str:
    """Name a batch by its first position: a session emits each one once."""
    return f"{ranges[0].source}@{ranges[0].start}"


class SinkWatch:
    """Knows whether the sink still owes the last batch that this process has planned."""

    def __init__(self, folder: Path, group: str) -> None:
        """Watch the marks in a folder, for the session of a group."""
        self._folder = folder
        self._group = group
        self._owed: Journal | None = None

    def planned(self, end: Journal) -> None:
        """Take note of the offset behind a batch that was planned; untracked ones are owed by nobody."""
        self._owed = end if end.session and end.ranges else None

    def is_owed(self, start: Journal) -> bool:
        """Tell whether the batch that ends at `start` has ended and was not published."""
        if self._owed is None or start != self._owed:
            return False
        try:
            found = (self._folder / self._owed.session).read_text(encoding="ascii")
        except FileNotFoundError:
            return True
        if found != _mark(self._owed.ranges):
            return True
        self._owed = None
        return False

    def refusal(self) -> TrackingError:
        """Make the error of a batch that is owed for good."""
        return TrackingError(
            f"group {self._group}: a batch of its tracked stream has ended and nothing of it was acked or"
            " failed, so all of its records would time out and come again; write it with"
            " foreachBatch(spout.sink(write)), or read it with tracked=False"
        )
