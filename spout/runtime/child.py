"""An acker or a replay worker as a separate process that dies with the process that started it.

It runs the same command as a user (`windhover acker run`, `windhover replay run`), so when the
demo and the tests kill it, they kill what an installation would lose.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from acker.errors import Unreachable
from spout.runtime import tether
from spout.runtime.forks import Owner

Kind = Literal["acker", "replay", "driver", "ui"]
"""The kind of process; names of events in its log begin with it. A driver has its own program."""

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
"""Longer than a service may need to finish its step and commit."""

_CHECK_EVERY_S = 0.05


class Child:
    """One acker or one replay worker, as long as the context lasts.

    Start it from the main thread: it is killed when the thread that started it ends. Its output
    is appended to `log`; None: a temporary file. `program`: arguments for Python, instead of
    the command of its kind.
    """

    def __init__(
        self,
        kind: Kind,
        config: Path,
        *,
        log: Path | None = None,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] | None = None,
    ) -> None:
        self.kind = kind
        self._program = program or (
            "-m",
            "spout.cli",
            kind,
            "run",
            "--config",
            str(config.resolve()),
        )
        self._log = log  # None: not made yet
        self._environ = environ
        self._temporary_folder: Path | None = None  # for a log of our own
        self._process: subprocess.Popen[bytes] | None = None  # None: it was not started yet
        self._log_start_bytes = 0  # where the log of the last start begins in its file
        self._owner = Owner(f"this {kind}", "End it there, where it was started")

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._owner.is_here:  # a process that was forked within the context leaves it, too
            return
        self.stop()
        if self._temporary_folder is not None:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)

    @property
    def log(self) -> Path:
        """Return the file with its output, of all its starts.

        Make a temporary one if none was named.
        """
        if self._log is None:
            self._temporary_folder = Path(tempfile.mkdtemp(prefix=f"windhover-{self.kind}-"))
            self._log = self._temporary_folder / f"{self.kind}.log"
        return self._log

    @property
    def pid(self) -> int | None:
        """Return its process id, also after its end; None before its first start."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """Return its exit code: negative after a signal.

        None while it runs or before it was started.
        """
        return self._process.poll() if self._process else None

    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, for the first time or again, unless it runs."""
        self._owner.check()
        if self.alive():
            return
        self._log_start_bytes = self.log.stat().st_size if self.log.exists() else 0
        command = tether.Command([sys.executable, *self._program], self.log, environ=self._environ)
        self._process = tether.spawn(command)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it is ready.

        Raises `Unreachable`, with the end of its log: it has ended, or is not ready after
        `timeout_s`.
        """
        if self._process is None:
            raise RuntimeError(f"the {self.kind} was not started")
        deadline_s = time.monotonic() + timeout_s
        while not self.ready():
            has_ended = True
            try:
                self._process.wait(_CHECK_EVERY_S)
            except subprocess.TimeoutExpired:
                has_ended = False
            if has_ended or time.monotonic() >= deadline_s:
                raise Unreachable(self.how_it_ended(timeout_s))

    def ready(self) -> bool:
        """Return whether its log shows, since its last start, that it owns partitions, or works."""
        with self.log.open("rb") as file:
            file.seek(self._log_start_bytes)
            return any(_event_of(line) == f"{self.kind}.ready" for line in file)

    def how_it_ended(self, timeout_s: float = 0.0) -> str:
        """Return a sentence that says how it ended, with the end of its log.

        If it runs: that it is not ready after `timeout_s`.
        """
        if self.exit_code is None:
            state = f"is not ready after {timeout_s:.0f} s"
        else:
            state = f"ended with exit code {self.exit_code}"
        return f"the {self.kind} {state}; {self.log} ends with:\n{tether.last_lines(self.log)}"

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End it by SIGTERM, by SIGKILL after the timeout.

        Return whether it ended by itself, cleanly; True if it was never started.
        """
        self._owner.check()
        return self._process is None or tether.stop(self._process, int(timeout_s * 1000))

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        self._owner.check()
        if self._process is not None:
            tether.kill(self._process)


def _event_of(line: bytes) -> str | None:
    """Return the event of a line of a log; None: it is no JSON, or has none."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields.get("event") if isinstance(fields, dict) else None
