"""A small disk for checkpoints and Spark's own files, which can be filled to the last byte: a tmpfs.

Only root may mount one. Where that cannot be had the run goes without full disks, and says so.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

DISK_BYTES: Final = 256 * 1024 * 1024
"""Half an hour of offsets and commits takes a few MB; drivers that were killed leave their blocks behind."""

_CHUNK: Final = bytes(1024 * 1024)
_BALLAST: Final = "ballast"


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk | None]:
    """Mount a small disk on a folder while the context lasts; None where it cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "windhover-torture", str(folder)]
    done = None if mount is None else subprocess.run(command, capture_output=True, check=False)
    if done is None or done.returncode != 0:
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        # lazily: a process of Spark's that is about to end may still hold a file
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


class SmallDisk:
    """A mounted small disk."""

    def __init__(self, folder: Path) -> None:
        """Know where it is mounted."""
        self._ballast = folder / _BALLAST

    def fill(self) -> None:
        """Write until nothing goes in any more."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(_CHUNK):
                pass

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)
