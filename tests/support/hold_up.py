"""What holds up a thread, or a worker of Spark, until a test lets it go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import eventually


@dataclass(frozen=True)
class HoldUp:
    """What waits from its first call until its test releases it.

    It is made of two files, since a worker of Spark, which is another process, calls it as well.

    Attributes:
        folder: an empty one, for the two files.
        seconds_max: how long it waits for its test at most, and then fails.
    """

    folder: Path
    seconds_max: float

    @property
    def _waits(self) -> Path:
        return self.folder / "waits"

    @property
    def _released(self) -> Path:
        return self.folder / "released"

    def wait(self) -> None:
        """Wait until the test releases it."""
        self._waits.touch()
        eventually(self._released.exists, self.seconds_max)

    def check_that_it_waits(self, timeout_s: float) -> None:
        """Check that somebody waits here within `timeout_s`, and has not been released."""
        eventually(self._waits.exists, timeout_s)
        assert not self._released.exists()

    def release(self) -> None:
        """Let go on who waits, now and later."""
        self._released.touch()
