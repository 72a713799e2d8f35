"""How a running topology is deactivated: a file that the driver leaves and the planning process looks for.

Storm's deactivate stops `nextTuple`; here no further batch is planned, while verdicts are read, offsets
committed and the clock told as before. Both processes run on one machine (see `spout.planner.sink_watch`).
Spark asks for the next batch when the one before has ended, sink and commit included; so the answer that the
planning process leaves says as well that nothing runs any more.

Source: docs/design/protocol.md, section 5.1; Storm's ``deactivate`` and ``activate``.
"""

from __future__ import annotations

from pathlib import Path

from acker.errors import UsageError


class Activation:
    """Whether the stream of one `read_stream` call is active."""

    def __init__(self, folder: Path, stream: str) -> None:
        """Look at the marks of a stream in a folder of the application."""
        self._wanted = folder / f"{stream}.inactive"
        self._answer = folder / f"{stream}.idle"
        self._last = folder / f"{stream}.last"

    def deactivate(self, *, for_good: bool = False) -> None:
        """Let no further batch be planned.

        Args:
            for_good: nor may Spark run one without records, as it does all the time where bolts tick: whoever
                ends the query then interrupts none. The planning process keeps Spark waiting for its answer.

        Raises:
            UsageError: the mark cannot be written.
        """
        self._answer.unlink(missing_ok=True)
        try:
            self._wanted.parent.mkdir(parents=True, exist_ok=True)
            if for_good:
                self._last.touch()
            self._wanted.touch()
        except OSError as error:
            raise UsageError(
                f"{self._wanted} cannot be written ({error.strerror}), so the topology stays active"
            ) from error

    def activate(self) -> None:
        """Let batches be planned again."""
        self._last.unlink(missing_ok=True)
        self._wanted.unlink(missing_ok=True)
        self._answer.unlink(missing_ok=True)

    def is_inactive(self) -> bool:
        """Tell whether no batch may be planned."""
        return self._wanted.exists()

    def is_for_good(self) -> bool:
        """Tell whether Spark may not run a batch without records either."""
        return self._last.exists()

    def answer(self) -> None:
        """Say that the last batch has ended and none is planned; the planning process does, when asked."""
        if not self._answer.exists():
            self._answer.touch()

    def is_idle(self) -> bool:
        """Tell whether the topology is inactive and nothing of it runs."""
        return self.is_inactive() and self._answer.exists()
