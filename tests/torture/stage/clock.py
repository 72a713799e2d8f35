"""Steps the wall clocks of the processes of one part; see `tests/torture/stage/skew/sitecustomize.py`."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

_SKEW = "WINDHOVER_TORTURE_SKEW"
_FOLDER = Path(__file__).with_name("skew")


class SteppedClock:
    """The wall clock of one part."""

    def __init__(self, file: Path) -> None:
        """Begin with the right time, kept in a file of eight bytes."""
        self._file = file
        self._file.write_bytes(bytes(8))

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment whose processes go by this clock."""
        path = os.pathsep.join(filter(None, (str(_FOLDER), environ.get("PYTHONPATH", ""))))
        return {**environ, "PYTHONPATH": path, _SKEW: str(self._file)}

    def step(self, skew_ms: int) -> None:
        """Set how far the clock is ahead of the right time, ms; negative when it is behind."""
        # in place, and eight bytes at once: a reader never sees half of it
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("<q", skew_ms))
