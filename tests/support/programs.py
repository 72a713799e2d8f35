"""Programs that tests run as users run them: in a process of their own, from a folder, with their output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from spout.runtime import tether
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0
STOP_MS = 60_000


class Program:
    """A running Python program."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def said(self) -> str:
        """All that it has written up to now."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    def send(self, signal: int) -> None:
        """Send it a signal."""
        self._process.send_signal(signal)

    def until(self, condition: Callable[[], object], *, told: Callable[[], object] | None = None) -> None:
        """Wait for a condition as long as it runs; fail with what it said, and with `told`."""

        def holds() -> bool:
            code = (
                self.exit_code
            )  # before the condition, which it may have met with the last thing that it did
            met = bool(condition())
            if not met and code is not None:
                raise AssertionError(f"it ended with {code}:\n{self.said[-4_000:]}")
            return met

        try:
            eventually(holds, DEADLINE_S, told=told)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.said[-4_000:]}") from error

    def ended(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(DEADLINE_S)


@contextmanager
def running(
    arguments: Sequence[str | Path],
    log: Path,
    *,
    folder: Path = ROOT,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """Run ``python`` with arguments as long as the context lasts, and end it by SIGTERM if it still runs."""
    # the python3 of PATH is what Spark's workers run, as in an activated environment
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    everything = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **(environ or {})}
    command = tether.Command([sys.executable, *map(str, arguments)], log, folder, everything)
    process = tether.spawn(command)
    try:
        yield Program(process, log)
    finally:
        if process.poll() is None:
            tether.stop(process, STOP_MS)
