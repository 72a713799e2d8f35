"""A wall clock that can be stepped from outside, for every Python process that finds this folder on its path.

Python imports `sitecustomize` when it starts. A process under torture has this folder in PYTHONPATH and a
file's name in `WINDHOVER_TORTURE_SKEW`; what the file holds, milliseconds as a little-endian int64, is added
to `time.time` and `time.time_ns` from then on. Librdkafka and the JVM keep the right time: timers in them run
on the monotonic clock, which no step of a wall clock touches either.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

_FILE = os.environ.get("WINDHOVER_TORTURE_SKEW", "")


def _install(path: str) -> None:
    with open(path, "rb") as file:
        skew = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    true_ns = time.time_ns

    def time_ns() -> int:
        return true_ns() + int(struct.unpack("<q", skew[:8])[0]) * 1_000_000

    def seconds() -> float:
        return time_ns() / 1e9

    time.time_ns = time_ns
    time.time = seconds


if _FILE:
    _install(_FILE)
