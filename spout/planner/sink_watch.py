"""How the planning process learns that the sink has published a batch: one small file for each session.

A tracked stream that is written past `spout.sink` is never acked: all of its roots would time out and come
again until they are dead letters, and no error would say why. Only the planning process knows which batches
there are, and only the driver knows what its sink has published. Both run on one machine, so the sink leaves
the mark of each batch that it has published in a folder of the application, and the planning process looks
for it when Spark asks for the batch behind. Spark does so when the sink has returned, so the mark is there
unless nobody made it. A batch without positions leaves nothing to publish and is not looked for; nor is one
that an earlier process has planned, such as the one that a restart runs again.

A query that `spout.start` started is published by a listener, some time after its batch has ended, so the
planning process waits longer for the mark; a file of the stream says so. What the listener could not publish
it writes into that file, and the planning process, which Spark does ask, raises it.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acker.config.settings import UNREACHABLE_MS
from acker.errors import TrackingError
from acker.wire.events import SourceRun
from spout.planning.journal import Journal
from spout.planning.plan import BatchPlan

LATE_MS = 5_000
"""A batch counts as published past the sink when its mark is not there after this long: a sink that was
called from a thread of its own, and not waited for, may still be at it."""

LISTENER_LATE_MS = 10_000
"""The same where a listener publishes, beyond what it may wait for fails and then for acks to be durable:
then it says that it failed; only one that is gone says nothing."""

_LISTENS = ".listens"
_CORES = "cores"


def note(folder: Path, plan: BatchPlan) -> None:
    """Leave the mark of a batch that was published.

    Raises:
        TrackingError: the file cannot be written.
    """
    if not plan.ranges:
        return
    _write(folder / plan.session, _mark(plan.ranges), plan.group)


def is_noted(folder: Path, session: str, ranges: Sequence[SourceRun]) -> bool:
    """Tell whether the last mark of a session is that of a batch with these ranges."""
    try:
        return (folder / session).read_text(encoding="ascii") == _mark(ranges)
    except FileNotFoundError:
        return False


def listen(folder: Path, stream: str, group: str, failure: str = "") -> None:
    """Say that a listener publishes the batches of a stream, or why it could not.

    Raises:
        TrackingError: the file cannot be written.
    """
    _write(folder / (stream + _LISTENS), failure, group)


def stop_listening(folder: Path, stream: str) -> None:
    """Say that no listener publishes the batches of a stream any more."""
    (folder / (stream + _LISTENS)).unlink(missing_ok=True)


def note_cores(folder: Path, cores: int, group: str) -> None:
    """Leave how many cores the application has now: executors come and go.

    Raises:
        TrackingError: the file cannot be written.
    """
    if cores_noted(folder) != cores:
        _write(folder / _CORES, str(cores), group)


def cores_noted(folder: Path) -> int | None:
    """Return how many cores the application had when its last batch ended; None when nobody has said so."""
    try:
        return int((folder / _CORES).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def _write(path: Path, text: str, group: str) -> None:
    """Replace a file whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)  # what cleans up old temporary files may have taken it
        new = path.with_name(path.name + ".new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        raise TrackingError(
            f"{path} cannot be written ({error.strerror}), so the planner of group {group} cannot know"
            " that its batch was published; make room there, then start the query again"
        ) from error


def _mark(ranges: Sequence[SourceRun]) -> str:
    """Name a batch by its first position: a session emits each one once."""
    return f"{ranges[0].source}@{ranges[0].start}"


class SinkWatch:
    """Knows whether the sink still owes the last batch that this process has planned."""

    def __init__(
        self, folder: Path, group: str, stream: str = "", *, durable_ms: int = UNREACHABLE_MS
    ) -> None:
        """Watch the marks in a folder, for the session of a group and one `read_stream` call.

        Args:
            folder: where the sink leaves its marks.
            group: the group.
            stream: id of the call.
            durable_ms: as for `spout.publishing.publisher.Publisher`.
        """
        self._listener_late_ms = 2 * durable_ms + LISTENER_LATE_MS
        self._folder = folder
        self._group = group
        self._listens = folder / (stream + _LISTENS)
        self._owed: Journal | None = None

    def planned(self, end: Journal) -> None:
        """Take note of the offset behind a batch that was planned; untracked ones are owed by nobody."""
        self._owed = end if end.session and end.ranges else None

    def is_owed(self, start: Journal) -> bool:
        """Tell whether the batch that ends at `start` has ended and was not published."""
        if self._owed is None or start != self._owed:
            return False
        if not is_noted(self._folder, self._owed.session, self._owed.ranges):
            return True
        self._owed = None
        return False

    @property
    def late_ms(self) -> int:
        """How long to wait for a mark."""
        return LATE_MS if self._said() is None else self._listener_late_ms

    def failure(self) -> TrackingError | None:
        """Return why the stream's listener could not publish a batch; None when it could."""
        said = self._said()
        return TrackingError(said) if said else None

    def _said(self) -> str | None:
        try:
            return self._listens.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def refusal(self) -> TrackingError:
        """Make the error of a batch that is owed for good."""
        return TrackingError(
            f"group {self._group}: a batch of its tracked stream has ended and nothing of it was acked or"
            " failed, so all of its records would time out and come again; write it with"
            " foreachBatch(spout.sink(write)), start it with spout.start(...), or read it with tracked=False"
        )
