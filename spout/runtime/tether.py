"""Child processes that cannot outlive the process that started them.

The kernel kills a tethered process (SIGKILL) as soon as its parent ends, also by SIGKILL
(Linux: prctl, PR_SET_PDEATHSIG). A child of a child needs its own tether. It must be set in the
new process before the program starts: ``python tether.py PARENT COMMAND...`` sets it and
becomes COMMAND. A hook between fork and exec would be shorter, and can deadlock in a process
that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Linux, include/uapi/linux/prctl.h."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

STOPPED_CLEANLY = frozenset(
    [0, *(128 + number for number in _STOP_SIGNALS), *(-number for number in _STOP_SIGNALS)]
)
"""Exit codes after SIGTERM or SIGINT. A JVM and the commands of Windhover end with 143 or 130; a
program that does not handle the signal ends with its negative number."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: program and arguments, log file, working directory and environment."""

    arguments: Sequence[str]
    log: Path
    directory: Path | None = None
    environ: Mapping[str, str] | None = None


def require_linux(system: str) -> None:
    """Raise `UsageError` where the kernel cannot tether a process; `system` is `sys.platform`.

    >>> require_linux("linux")
    """
    if system != "linux":
        # imported here: a tethered process runs this file alone, without our packages
        from acker.errors import UsageError

        raise UsageError(
            "this command starts processes that must not outlive it, which only Linux ensures,"
            f" not {system}: run it in a container, or use a Kafka of your own"
        )


def spawn(command: Command) -> subprocess.Popen[bytes]:
    """Start a command that dies with this process; its output is appended to its log.

    Raises `RuntimeError` outside the main thread: the kernel watches the *thread* that started
    the process, so a child of a worker thread would die when that thread ends. Raises `UsageError`
    on another system than Linux.
    """
    require_linux(sys.platform)
    if threading.current_thread() is not threading.main_thread():
        why = "they die with the thread that starts them"
        raise RuntimeError(f"start children from the main thread: {why}")
    # -I and -S: without the user's paths and packages, of which this file needs none
    tethered = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command.arguments]
    with command.log.open("ab") as log:
        return subprocess.Popen(
            tethered,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=command.directory,
            env=None if command.environ is None else dict(command.environ),
            # Ctrl-C reaches every process of the group; the parent decides how its children end
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], timeout_ms: int) -> bool:
    """End a process by SIGTERM, by SIGKILL after `timeout_ms`.

    Return whether it ended by itself, cleanly.
    """
    process.terminate()
    try:
        process.wait(timeout_ms / 1000)
    except subprocess.TimeoutExpired:
        kill(process)
    return process.returncode in STOPPED_CLEANLY


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process by SIGKILL, so that it cannot flush or clean up, and wait until it is over."""
    process.kill()
    process.wait()


def last_lines(log: Path) -> str:
    """Return the last 15 lines of a log file, to be shown in an error."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


def _become(parent_id: int, arguments: list[str]) -> None:
    """Tether this process to its parent, and become the program that the arguments name.

    Return if the parent has died: the process then ends.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # If the parent died before the line above, no signal will come.
    if os.getppid() == parent_id:
        os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    _become(parent_id=int(sys.argv[1]), arguments=sys.argv[2:])
