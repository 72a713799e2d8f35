"""The state of one key of a keyed bolt, as Spark hands it in."""

from __future__ import annotations

from typing import Any


class FakeState:
    """A stand-in for `pyspark.sql.streaming.state.GroupState`."""

    def __init__(self) -> None:
        self.kept: tuple[Any, ...] | None = None
        self.hasTimedOut = False
        self.timeout_ms = 0
        self.now_ms = 1_000

    @property
    def exists(self) -> bool:
        """Tell whether something is kept."""
        return self.kept is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """Return it."""
        if self.kept is None:
            raise ValueError("nothing is kept")
        return self.kept

    def update(self, kept: tuple[Any, ...]) -> None:
        """Keep something."""
        self.kept = kept

    def remove(self) -> None:
        """Keep nothing."""
        self.kept = None

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - Spark's name
        """Tell when the batch began."""
        return self.now_ms

    def setTimeoutDuration(self, timeout_ms: int) -> None:  # noqa: N802 - Spark's name
        """Ask for a tick."""
        self.timeout_ms = timeout_ms
